"""Replays of forks: what a fork called itself is taken, also where its parent's call was open when it was forked."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest

from orchestrator import Executor
from orchestrator.kernel.records import EffectIntended, StepFailed
from orchestrator.stores import Store
from tests.executor.test_forks_everywhere import KINDS, Echo, acting_tools, drawn_graph, ends, said, to_the_end
from tests.executor.test_replay import Diary, chain
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("live", ["never", "always"])
async def test_a_fork_taken_while_a_call_was_open_replays_with_the_result_of_its_own_call(
    store: Store, live: str
) -> None:
    graph = chain("one {topic}", "two {log}")
    model = Diary()
    async with Executor(store, graphs=[graph], model=model.model) as executor:
        await executor.start(graph, "tea", run_id="r")
        opened = [one.seq for one in await store.read("r") if isinstance(one, EffectIntended)]
        assert len(opened) == 2
        for at in opened:
            fork = await executor.fork("r", at=at)
            model.asked.clear()
            for begun in (None, at, at - 1):
                replay = await executor.replay(fork.run_id, at=begun, live="always" if live == "always" else "never")
                assert (replay.same, replay.made, replay.status) == (True, 0, "completed"), (at, begun)
            assert model.asked == []


async def replayed(kind: str, seed: int, forks: int) -> Counter[str] | None:
    """Fork a run of a generated graph at its records, and replay each fork; None: the run is of no use."""
    found = drawn_graph(kind, seed, 0.05 if seed % 3 == 2 else 0.0)
    if found is None or not await ends(*found):
        return None
    graph, values = found
    met = Counter({"graphs": 1})
    places = sized(1, (None, 1, 3)[seed % 3])
    async with Executor(graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=places) as executor:
        run, _ = await to_the_end(executor, await executor.start(graph, values, run_id=f"{kind}-{seed}"), said)
        records = await executor.store.read(run.run_id)
        met["maps"] += any(edge.each for edge in graph.edges)
        met["graphs inside"] += any(record.type == "graph_opened" for record in records)
        met["joins"] += any(node.join is not None for node in graph.nodes.values())
        last = len(records) - (run.status == "completed")
        dice = random.Random(f"{kind} {seed}")
        for at in sorted(dice.sample(range(1, last + 1), min(forks, last))):
            fork, _ = await to_the_end(executor, await executor.fork(run.run_id, at=at), said)
            journal = await executor.store.read(fork.run_id)
            met[records[at - 1].type] += 1
            failed = [one.seq for one in journal if isinstance(one, StepFailed)]
            later = dice.randrange(1, min([len(journal), *failed]))
            async with Executor(executor.store, graphs=[graph], tools=acting_tools(), concurrency=places) as other:
                for begun in (None, later):
                    replay = await other.replay(fork.run_id, at=begun)
                    where = f"{run.run_id}@{at} ({records[at - 1].type}), replayed from {begun}"
                    assert replay.made == 0, where
                    assert replay.same, f"{where} {replay.diverged_at}\n{replay.diff.to_text()}"
                    assert replay.status == fork.status, where
    return met


@quick_on("trio")
def test_forks_of_generated_runs_replay_without_a_call_and_are_the_same(anyio_backend: str) -> None:
    met: Counter[str] = Counter()
    seed = 0
    while met["graphs"] < sized(6, 150) or met["effect_intended"] < sized(5, 50):
        for kind in KINDS:
            met += anyio.run(replayed, kind, seed, sized(4, 40), backend=anyio_backend) or Counter()
        seed += 1
    assert min(met["maps"], met["graphs inside"], met["joins"]) >= sized(1, 20), met

"""Replays of runs of generated graphs: with forks, joins, maps, loops, subgraphs, questions, failures and retries."""

from __future__ import annotations

import math
import random
from collections import Counter

import anyio
import pytest

from orchestrator import Executor
from orchestrator.kernel.records import StepFailed
from tests.executor.test_forks_everywhere import KINDS, Echo, acting_tools, drawn_graph, ends, said, to_the_end
from tests.support.sizes import quick_on, sized

NEAR = 5
"""So few steps before the limit, a failing run depends on the order in which steps that run at the same time landed."""


async def replayed(kind: str, seed: int, fails: float) -> Counter[str]:
    """Replay a run of a generated graph, from its beginning and from a record before its first failure."""
    found = drawn_graph(kind, seed, fails)
    if found is None or not await ends(*found):
        return Counter()
    graph, values = found
    places = sized(1, (None, 1, 3)[seed % 3])
    async with Executor(graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=places) as executor:
        run, _ = await to_the_end(executor, await executor.start(graph, values, run_id=f"{kind}-{seed}"), said)
        failed = [one.seq for one in run.records() if isinstance(one, StepFailed)]
        async with Executor(executor.store, graphs=[graph], tools=acting_tools(), concurrency=places) as other:
            whole = await other.replay(run.run_id)
            part = await other.replay(run.run_id, at=random.Random(seed).randrange(1, min([run.seq, *failed])))
            near = run.status == "failed" and run.usage.steps + NEAR > (graph.limits.steps or math.inf)
            for replay in (whole, part):
                assert replay.made == 0, (kind, seed)
                assert replay.same or near, f"{kind} {seed} {replay.run.parent}\n{replay.diff.to_text()}"
                assert replay.status == run.status
    inside = any(record.type == "graph_opened" for record in run.records())
    return Counter({"graphs": 1, run.status: 1, "calls": whole.saved.calls, "graphs inside": inside, "near": near})


def replays(backend: str, count: int, fails: float, first: int = 0) -> Counter[str]:
    """Replays of runs of so many generated graphs."""
    met: Counter[str] = Counter()
    seed = first
    while met["graphs"] < count:
        for kind in KINDS:
            met += anyio.run(replayed, kind, seed, fails if seed % 2 else 0.0, backend=backend)
        seed += 1
    return met


@quick_on("asyncio")
def test_runs_of_generated_graphs_replay_without_a_call_and_are_the_same(anyio_backend: str) -> None:
    met = replays(anyio_backend, sized(4, 200), fails=0.05)
    assert met["calls"] > sized(4, 200), met
    assert min(met["failed"], met["graphs inside"]) >= sized(0, 5), met


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
def test_a_storm_of_replays(anyio_backend: str, scale: int) -> None:
    """`--storm-scale N`: N times 100 graphs, most of whose runs fail somewhere while other steps run."""
    met = replays(anyio_backend, 100 * scale, fails=0.2, first=5_000)
    print(f"\nreplays on {anyio_backend}: {dict(met)}")
    assert met["failed"] > 20 * scale, met
    assert met["near"] < met["graphs"] / 20, met

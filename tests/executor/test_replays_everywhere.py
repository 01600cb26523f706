"""Replays of runs of generated graphs: with forks, joins, maps, loops, subgraphs, questions, failures and retries."""

from __future__ import annotations

import random

import anyio

from orchestrator import Executor
from tests.executor.test_forks_everywhere import KINDS, Echo, acting_tools, drawn_graph, ends, said, to_the_end
from tests.support.sizes import quick_on, sized


async def replayed(kind: str, seed: int) -> int | None:
    """Replay a run of a generated graph, from its beginning and from a record; None: it is of no use."""
    found = drawn_graph(kind, seed)
    if found is None or not await ends(*found):
        return None
    graph, values = found
    async with Executor(graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=1) as executor:
        run, _ = await to_the_end(executor, await executor.start(graph, values, run_id=f"{kind}-{seed}"), said)
        async with Executor(executor.store, graphs=[graph], tools=acting_tools(), concurrency=1) as other:
            whole = await other.replay(run.run_id)
            part = await other.replay(run.run_id, at=random.Random(seed).randrange(1, run.seq))
            for replay in (whole, part):
                assert replay.made == 0, (kind, seed)
                assert replay.same, f"{kind} {seed} {replay.run.parent}\n{replay.diff.to_text()}"
    return whole.saved.calls


@quick_on("asyncio")
def test_runs_of_generated_graphs_replay_without_a_call_and_are_the_same(anyio_backend: str) -> None:
    tried = calls = seed = 0
    while tried < sized(8, 300):
        for kind in KINDS:
            found = anyio.run(replayed, kind, seed, backend=anyio_backend)
            tried += found is not None
            calls += found or 0
        seed += 1
    assert calls > 0

"""Replays of forks: what a fork called itself is taken, also where its parent's call was open when it was forked."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Graph, Update, node
from orchestrator.kernel.records import EffectIntended, StepFailed
from orchestrator.nodes import Ask
from orchestrator.stores import Store
from tests.executor.test_forks_everywhere import KINDS, Echo, acting_tools, drawn_graph, ends, said, to_the_end
from tests.executor.test_replay import Diary, chain
from tests.executor.test_replays_reopened import World, calls
from tests.support.executors import Log, says
from tests.support.executors import chain as chain_of
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


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


# -- forks that wait for an answer about a call ------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["never", "ask", "always"])
async def test_a_fork_that_asks_before_a_call_asks_in_its_replay_too(store: Store, live: Any) -> None:
    world = World()
    graph = chain_of(says("a"), calls("pay tea", "pay tea", check=False))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        fork = await executor.fork(run.run_id, at=2)
        for _ in range(2):  # at the first call, and at the second one
            for at in (None, *range(1, fork.seq, sized(3, 1))):
                replay = await executor.replay(fork.run_id, at=at, live=live)
                assert (replay.status, replay.same, replay.made) == ("paused", True, 0), (at, replay.diff.to_text())
                assert replay.run.waiting[0].payload.get("args") == fork.waiting[0].payload.get("args")
                again = await executor.replay(replay.run.run_id)
                assert (again.status, again.same) == ("paused", True)
            fork = await executor.answer(fork.run_id, fork.waiting[0].id, "recorded")
        assert (fork.status, world.made) == ("completed", ["pay tea", "pay tea"])


@pytest.mark.parametrize(
    ("live", "answer", "status", "paid"),
    [
        ("never", Approve(), "diverged", 1),
        ("never", Deny(reason="no"), "completed", 1),
        ("never", "recorded", "completed", 1),
        ("always", Approve(), "completed", 2),
        ("always", Deny(reason="no"), "completed", 1),
    ],
)
async def test_a_question_of_a_replay_about_a_call_is_answered_as_that_of_a_fork(
    store: Store, live: Any, answer: Any, status: str, paid: int
) -> None:
    world = World()
    graph = chain_of(says("a"), calls("pay tea", check=False))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        fork = await executor.fork(run.run_id, at=2)
        replay = await executor.replay(fork.run_id, live=live)
        await executor.answer(replay.run.run_id, replay.run.waiting[0].id, answer)
        replay = await executor.replays.load(replay.run.run_id)
        assert (replay.status, replay.same, len(world.made)) == (status, False, paid)


async def test_a_repaired_step_that_asks_before_another_call_asks_in_its_replay_too(store: Store) -> None:
    world, what = World(), ["tea"]

    @node
    async def buy(ctx: Context[Any]) -> Update:
        found = str((await ctx.tool("pay", what=what[0])).output)
        if world.broken:
            raise ZeroDivisionError("a bug")
        return {"log": found}

    graph = chain_of(buy)
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        world.broken, what[0] = False, "coffee"
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "paused"
        replay = await executor.replay(run.run_id)
        assert (replay.status, replay.same, replay.made) == ("paused", True, 0), replay.diff.to_text()
        assert world.made == ["pay tea"]


# -- questions that a failure withdrew ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["fork", "resume"])
async def test_a_question_that_a_failure_withdrew_counts_where_the_next_failure_came_before_it_was_asked_again(
    store: Store, way: str
) -> None:
    waits = False

    @node
    async def fails() -> Update:
        raise ZeroDivisionError("a bug")

    @node
    async def asks(ctx: Context[Any]) -> Update:
        if waits:
            await anyio.sleep_forever()
        return {"log": str(await ctx.ask("input", prompt="Second?"))}

    graph = Graph(
        name="withdrawn", state=Log, edges="START -> first, asks\nfirst -> fails -> END\nasks -> END",
        nodes={"first": Ask(prompt="First?", answer="answer"), "fails": fails, "asks": asks},
    )  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        (first,) = (one for one in run.waiting if one.prompt == "First?")
        run = await executor.answer(run.run_id, first.id, "yes")
        assert run.status == "failed"
        failed = next(one.seq for one in run.records() if isinstance(one, StepFailed))
        waits = True
        if way == "fork":
            run = await executor.fork(run.run_id, at=failed)
        else:
            run = await executor.resume(run.run_id, retry=True)
        waits = False
        assert [one.attempt for one in run.records() if isinstance(one, StepFailed)] == [1, 2]
        for at in (None, *range(1, failed)):
            replay = await executor.replay(run.run_id, at=at)
            assert (replay.same, replay.made, replay.status) == (True, 0, "failed"), (at, replay.diverged_at)


# -- generated graphs --------------------------------------------------------------------------------------------------


async def replayed(kind: str, seed: int, forks: int, fails: float = 0.0) -> Counter[str] | None:
    """Fork a run of a generated graph at its records, and replay each fork; None: the run is of no use.

    Args:
        forks: at how many records; also at, and right after, each record `step_failed`.
        fails: how likely a step fails for good.
    """
    found = drawn_graph(kind, seed, fails)
    if found is None or not await ends(*found):
        return None
    graph, values = found
    met = Counter({"graphs": 1})
    places = 1 if fails else sized(1, (None, 1, 3)[seed % 3])  # which steps a failure stops is a race otherwise
    async with Executor(graphs=[graph], model=Echo(), tools=acting_tools(), concurrency=places) as executor:
        run, _ = await to_the_end(executor, await executor.start(graph, values, run_id=f"{kind}-{seed}"), said)
        records = await executor.store.read(run.run_id)
        met["maps"] += any(edge.each for edge in graph.edges)
        met["graphs inside"] += any(record.type == "graph_opened" for record in records)
        met["joins"] += any(node.join is not None for node in graph.nodes.values())
        last = len(records) - (run.status == "completed")
        dice = random.Random(f"{kind} {seed}")
        met[run.status] += 1
        near = {one.seq + more for one in records if isinstance(one, StepFailed) for more in (0, 1)}
        places_of_forks = {*dice.sample(range(1, last + 1), min(forks, last)), *near}
        for at in sorted(one for one in places_of_forks if one <= last):
            fork, _ = await to_the_end(executor, await executor.fork(run.run_id, at=at), said)
            journal = await executor.store.read(fork.run_id)
            met[records[at - 1].type] += 1
            failed = [one.seq for one in journal if isinstance(one, StepFailed)]
            later = dice.randrange(1, max(2, min([len(journal), *failed])))
            async with Executor(executor.store, graphs=[graph], tools=acting_tools(), concurrency=places) as other:
                for begun in (None, later):
                    replay = await other.replay(fork.run_id, at=begun)
                    where = f"{run.run_id}@{at} ({records[at - 1].type}), replayed from {begun}"
                    assert replay.made == 0, where
                    assert replay.same, f"{where} {replay.diverged_at}\n{replay.diff.to_text()}"
                    assert replay.status == fork.status, where
    return met


@pytest.mark.full
@quick_on("trio")
@pytest.mark.parametrize("fails", [0.0, 0.15])
def test_forks_of_generated_runs_replay_without_a_call_and_are_the_same(anyio_backend: str, fails: float) -> None:
    met: Counter[str] = Counter()
    seed = 0
    while met["graphs"] < sized(5, 15) or met["effect_intended"] < sized(4, 15):
        for kind in KINDS:
            met += anyio.run(replayed, kind, seed, sized(3, 5), fails, backend=anyio_backend) or Counter()
        seed += 1
    assert min(met["maps"], met["graphs inside"], met["joins"]) >= 1, met
    assert (met["failed"] > 0) == (fails > 0), met

"""Replays of runs that ended and were reopened: they give what the run gave in the end, without a call."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Retry, Run, Update, node, tool
from orchestrator.errors import InvalidValue
from orchestrator.executor import Replay
from orchestrator.graph import Node
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import EffectIntended, EffectSettled, Record, StepDone, StepFailed, StepRetried
from orchestrator.nodes import Ask, Subgraph
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel, assert_replays
from tests.executor.test_forks_everywhere import KINDS, Echo, acting_tools, said
from tests.support.executors import Log, chain, counting, says
from tests.support.sizes import quick_on, sized
from tests.testing.acting import Acting, drawn_graph, ends

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


class World:
    """What happens outside, and whether it is broken."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.broken = True

    def fail(self) -> None:
        if self.broken:
            raise ConnectionError("down")

    def tools(self) -> list[Any]:
        """Tools that fail while something is broken: `look` of all kinds, `pay`, which is irreversible, for certain."""

        @tool(effect="read", risk="none")
        async def look(what: str) -> str:
            """Look."""
            self.made.append(f"look {what}")
            self.fail()
            return f"<{what}>"

        @tool(effect="irreversible", risk="none")
        async def pay(what: str) -> str:
            """Pay."""
            self.made.append(f"pay {what}")
            return f"${what}"

        @tool(effect="irreversible", risk="none")
        async def ship(what: str) -> str:
            """Ship."""
            self.made.append(f"ship {what}")
            if self.broken:
                raise ValueError("no such street")
            return f"shipped {what}"

        return [look, pay, ship]


def calls(*made: str, check: bool = True, **options: Any) -> Any:
    """A node that makes calls, each `TOOL WHAT`, and fails where one fails."""

    @node(**options)
    async def work(ctx: Context[Any]) -> Update:
        found = []
        for one in made:
            name, what = one.split()
            found.append(str((await ctx.tool(name, what=what, check=check)).output))
        return {"log": " ".join(found)}

    return work


async def same(store: Store, graph: Graph, run: Run, **given: Any) -> Replay:
    """Replay a run without a model, from its beginning and from its records: the same, without a call."""
    async with Executor(store, graphs=[graph], **given) as executor:
        for at in (None, *range(1, run.seq, sized(1 + run.seq // 4, 1))):
            replay = await executor.replay(run.run_id, at=at)
            where = f"at {at}: {replay.diverged_at}\n{replay.diff.to_text()}"
            assert (replay.made, replay.status, replay.run.output) == (0, run.status, run.output), where
            assert replay.same, where
        replay = await executor.replay(run.run_id)
        assert replay.saved.calls == run.usage.calls
        again = await executor.replay(replay.run.run_id)
        assert again.same, again.diff.to_text()
        assert again.saved.calls == replay.saved.calls
    return replay


# -- attempts that failed --------------------------------------------------------------------------------------------


async def test_a_call_that_failed_and_was_repaired_is_replayed_as_it_went_in_the_end(store: Store) -> None:
    world = World()
    graph = chain(says("a"), calls("look tea"), says("c"))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        assert run.status == "failed"
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "failed"
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert (run.status, run.output) == ("completed", ["a", "<tea>", "c"])
    replay = await same(store, graph, run, tools=world.tools())
    assert world.made == ["look tea"] * 3
    (done,) = [one for one in replay.run.records() if isinstance(one, StepDone) and one.node == "n1"]
    assert done.attempt == 3
    assert [one.run.status for one in await assert_replays(store, graph, tools=world.tools())] == ["completed"]


async def test_a_run_that_failed_again_is_replayed_to_its_last_failure(store: Store) -> None:
    world = World()
    graph = chain(calls("look tea", retry=Retry(attempts=2, wait=0, on=("ToolFailed",))))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "failed"
        assert [one.attempt for one in run.records() if isinstance(one, StepFailed)] == [2, 3]
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.made, replay.saved.calls, replay.run.error) == (0, 3, run.error)


async def test_a_bug_that_was_repaired_is_no_difference_and_neither_is_a_retry_before_it(store: Store) -> None:
    world = World()

    @node(retry=Retry(attempts=2, wait=0, on=("KeyError",)))
    async def work(ctx: Context[Any]) -> Update:
        found = str((await ctx.tool("pay", what="tea")).output)
        asked = (await ctx.model.complete(f"attempt {ctx.attempt}")).text
        if world.broken:
            raise KeyError("a bug")
        return {"log": f"{found} {asked}"}

    graph = chain(work, says("b"))
    model = ScriptedModel(lambda request: f"re: {request.messages[-1].content}")
    async with Executor(store, graphs=[graph], tools=world.tools(), model=model) as executor:
        run = await executor.start(graph, "?")
        assert run.status == "failed"
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.output == ["$tea re: attempt 3", "b"]
    await same(store, graph, run, tools=world.tools())
    assert world.made == ["pay tea"]


async def test_irreversible_calls_are_taken_as_the_last_attempt_had_them(store: Store) -> None:
    world = World()
    graph = chain(calls("pay tea", "ship tea"))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        assert run.status == "failed"
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.output == ["$tea shipped tea"]
    replay = await same(store, graph, run, tools=world.tools())
    taken = [one.taken for one in replay.run.records() if isinstance(one, EffectIntended)]
    results = {one.seq: one for one in run.records()}
    assert [results[seq].type for seq in taken if seq is not None] == ["effect_settled"] * 2
    assert world.made == ["pay tea", "ship tea", "ship tea"]


@pytest.mark.parametrize("answer", [Approve(), Deny(reason="it is paid")])
async def test_what_a_person_said_about_another_call_is_taken_too(store: Store, answer: Approve | Deny) -> None:
    world, what = World(), ["tea"]

    @node
    async def buy(ctx: Context[Any]) -> Update:
        found = str((await ctx.tool("pay", what=what[0])).output)
        if world.broken:
            raise ZeroDivisionError("a bug")
        return {"log": found}

    graph = chain(buy)
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        world.broken, what[0] = False, "coffee"
        run = await executor.resume(run.run_id, retry=True)
        run = await executor.answer(run.run_id, run.waiting[0].id, answer)
        assert run.status == "completed"
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.made, replay.run.output) == (0, run.output)


@pytest.mark.parametrize("ends", [ConnectionResetError("reset"), 5])
@pytest.mark.parametrize("how", ["effect", "node"])
async def test_what_became_of_a_call_is_asked_and_taken_as_the_reopened_run_had_it(
    store: Store, how: str, ends: Any
) -> None:
    ways, paid = [ends], list[int]()

    def pay() -> Any:
        paid.append(1)
        end = ways.pop() if ways else "well"
        if isinstance(end, Exception):
            raise end
        return end

    @node(effect="irreversible" if how == "node" else "idempotent")
    async def work(state: Log, ctx: Context) -> Update:
        if how == "node":
            return {"log": pay()}
        return {"log": await ctx.effect("pay", pay, returns=str, effect="irreversible")}

    graph = chain(work)
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, "?", run_id="r")
        for answer in ("failed", "failed", "retry"):
            run = await executor.resume("r", retry=True)
            assert [one.kind for one in run.waiting] == ["unknown_outcome"]
            replay = await executor.replay("r")
            assert (replay.status, replay.same) == ("paused", True), replay.diff.to_text()
            run = await executor.answer("r", run.waiting[0].id, answer)
            replay = await executor.replay("r")
            assert (replay.status, replay.same) == (run.status, True), replay.diff.to_text()
    assert (run.output, paid) == (["well"], [1, 1])


async def test_a_fork_that_was_denied_a_call_is_replayed_without_asking(store: Store) -> None:
    world = World()
    graph = chain(says("a"), calls("pay tea", check=False))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        fork = await executor.fork(run.run_id, at=2)
        fork = await executor.answer(fork.run_id, fork.waiting[0].id, Deny(reason="no"))
        assert fork.status == "completed"
        replay = await executor.replay(fork.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.made, world.made) == (0, ["pay tea"])


async def test_a_graph_that_was_called_as_a_tool_gives_the_result_that_it_had_in_the_end(store: Store) -> None:
    world = World()
    inner = Graph(
        name="inner", state=Log, nodes={"a": calls("pay x"), "b": calls("look y")}, edges="START -> a -> b -> END",
        input="question", output="log",
    )  # fmt: skip

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

    graph, tools = chain(call, says("b"), name="caller"), [inner.as_tool("inner", "Works."), *world.tools()]
    async with Executor(store, graphs=[graph], tools=tools) as executor:
        run = await executor.start(graph, "?")
        run = await executor.resume(run.run_id, retry=True)
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.output == ["['$x', '<y>']", "b"]
        child = (await executor.runs(graph="inner")).runs[0].run_id
        replay = await executor.replay(child)
        assert replay.same, replay.diff.to_text()
    replay = await same(store, graph, run, tools=tools)
    assert len((await Executor(store).runs(graph="inner")).runs) == 2  # the run, and its replay


async def test_what_lost_attempts_spent_counts_against_limits(store: Store) -> None:
    """The second attempt may make one call less than a first one could."""
    world = World()
    graph = chain(calls("pay a", "look b"), calls("look c", check=False), calls("look d", check=False))
    graph = graph.model_copy(update={"limits": Limits(calls=4)})
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        assert (run.status, run.usage.calls) == ("failed", 2)
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert (run.status, run.usage.calls, run.steps) == ("exhausted", 4, 3)
        assert world.made == ["pay a", "look b", "look b", "look c"]
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.saved.calls, replay.made, replay.run.machine.usage.calls) == (4, 0, 4)
        run = await executor.resume(run.run_id, retry=True, limits=Limits(calls=5))
        assert (run.status, run.usage.calls) == ("completed", 5)
    await same(store, graph, run, tools=world.tools())


# -- graphs inside, branches -----------------------------------------------------------------------------------------


async def test_the_innermost_step_begins_behind_its_lost_attempts(store: Store) -> None:
    world = World()
    inmost = chain(says("x"), calls("look tea"), name="inmost")
    retry = Retry(attempts=2, wait=0, on=("ToolFailed",))
    graph = Graph(
        name="outside", state=Log, output="log", edges="START -> z, y -> sub -> END",
        nodes={"z": says("z"), "y": says("y"), "sub": Subgraph(inmost, join="all", retry=retry)},
    )  # fmt: skip
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, {})
        assert run.status == "failed"
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "completed"
        assert [one.type for one in run.records()].count("graph_opened") == 2
    replay = await same(store, graph, run, tools=world.tools())
    assert [one.type for one in replay.run.records()].count("graph_opened") == 1


async def test_items_of_a_map_fail_and_are_repaired_each_for_itself(store: Store) -> None:
    broken = {1, 2}

    @node
    async def work(ctx: Context[Any]) -> Update:
        found = str((await ctx.tool("save", what=str(ctx.item))).output)
        if ctx.item in broken:
            broken.discard(ctx.item)  # type: ignore[arg-type]
            raise KeyError("a bug")
        return {"log": f"{found} {ctx.attempt}"}

    graph = Graph(
        name="map", state=Log, nodes={"plan": says("plan"), "work": work, "j": says("j", join="all")},
        edges="START -> plan -> work : each items\nwork -> j -> END", output="log",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], tools=acting_tools(), concurrency=1) as executor:
        run = await executor.start(graph, {"items": [0, 1, 2, 3]})
        while run.status == "failed":
            run = await executor.resume(run.run_id, retry=True)
        assert sorted(run.output) == ["[0] 1", "[1] 2", "[2] 2", "[3] 1", "j", "plan"]
    await same(store, graph, run, tools=acting_tools(), concurrency=1)


async def test_a_subgraph_that_ran_out_of_time_and_was_reopened_has_all_its_time(store: Store) -> None:
    world = World()

    @node
    async def slow(ctx: Context[Any]) -> Update:
        async def hang() -> str:
            if world.broken:
                await anyio.sleep_forever()
            return "done"

        return {"log": await ctx.effect("hang", hang, returns=str)}

    graph = Graph(
        name="late", state=Log, nodes={"sub": Subgraph(chain(slow, name="in"), timeout=0.05)}, output="log",
        edges="START -> sub -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        assert (run.status, str(run.error)) == ("failed", "StepTimeout: sub took longer than 0.05 s")
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "completed"
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()


# -- limits and cancels ----------------------------------------------------------------------------------------------


async def test_a_run_whose_limit_was_raised_is_replayed_with_the_last_limit(store: Store) -> None:
    graph = counting(steps=3)
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {"until": 8})
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=5))
        assert run.status == "exhausted"
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert replay.run.error == run.error
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=None))
    await same(store, graph, run)


async def test_what_followed_a_limit_that_was_raised_does_not_count(store: Store) -> None:
    world = World()
    nodes = {
        "a": calls("look a", check=False), "b": says("b"), "c": calls("look c", check=False), "d": says("d"),
        "rescue": calls("look help", check=False), "ask": Ask(prompt="Fine?", answer="answer"),
    }  # fmt: skip
    graph = Graph(
        name="rescued", state=Log, nodes=nodes, output=("log", "answer"), limits=Limits(steps=2),
        edges="START -> a -> b -> c -> d -> END\n* -> rescue : exhausted\nrescue -> ask -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, {})
        run = await executor.answer(run.run_id, run.waiting[0].id, "fine")
        assert run.status == "exhausted"
        undone = next(one.seq for one in run.records() if one.type == "asked")
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=3))
        assert (run.status, run.waiting[0].prompt) == ("paused", "Fine?")
        run = await executor.answer(run.run_id, run.waiting[0].id, "still fine")
        assert (run.status, run.output["answer"], run.usage.calls) == ("exhausted", "still fine", 4)
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.made, replay.saved.calls) == (0, 4)
        with pytest.raises(InvalidValue, match="a limit that was raised later"):
            await executor.replay(run.run_id, at=undone)
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=9))
        assert run.status == "completed"
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert (replay.made, replay.saved.calls, replay.run.machine.usage.calls) == (0, 4, 4)


async def test_limits_that_were_raised_while_another_step_failed_leave_no_error_behind(store: Store) -> None:
    """The limit refused a step before another one failed: with a higher limit the run completes, without an error."""
    world = World()
    graph = Graph(
        name="two", state=Log, nodes={"a": says("a"), "b": calls("look b"), "c": says("c")}, output="log",
        edges="START -> a, b\na -> c -> END\nb -> END", limits=Limits(steps=2),
    )  # fmt: skip
    async with Executor(store, graphs=[graph], tools=world.tools(), concurrency=1) as executor:
        run = await executor.start(graph, {})
        assert run.status == "failed"
        world.broken = False
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=5))
        assert (run.status, run.error) == ("completed", None)
    await same(store, graph, run, tools=world.tools(), concurrency=1)


async def test_a_cancel_that_was_taken_back_does_not_happen_and_the_last_one_does(store: Store) -> None:
    graph = Graph(
        name="asks", state=Log, nodes={"a": says("a"), "ask": Ask(prompt="Whose?", answer="answer")},
        edges="START -> a -> ask -> END", output="answer",
    )  # fmt: skip
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        run = await executor.cancel(run.run_id, reason="enough")
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert replay.run.status == "cancelled"
        run = await executor.resume(run.run_id, retry=True)
        replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()
        assert replay.run.status == "paused"
        run = await executor.answer(run.run_id, run.waiting[0].id, "mine")
        assert run.output == "mine"
    await same(store, graph, run)


async def test_a_call_that_a_failure_stopped_waits_for_it_outside_of_the_places_for_steps() -> None:
    """With one place for steps, the step that fails must not wait behind the one that it stops."""
    going, store = anyio.Event(), MemoryStore()

    @node
    async def slow(ctx: Context[Any]) -> Update:
        async def hang() -> str:
            going.set()
            await anyio.sleep_forever()
            return ""

        return {"log": await ctx.effect("hang", hang, returns=str)}

    @node
    async def fails(ctx: Context[Any]) -> Update:
        async def wait() -> str:
            await going.wait()
            raise OSError("down")

        return {"log": await ctx.effect("fails", wait, returns=str)}

    graph = Graph(name="two", state=Log, nodes={"s": slow, "f": fails}, edges="START -> s, f -> END", output="log")
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        assert run.status == "failed"
    async with Executor(store, graphs=[graph], concurrency=1) as executor:
        with anyio.fail_after(30):
            replay = await executor.replay(run.run_id)
        assert replay.same, replay.diff.to_text()


async def test_a_replay_whose_run_was_reopened_meanwhile_is_the_replay_that_it_was(store: Store) -> None:
    world = World()
    graph = chain(says("a"), calls("look tea"))
    async with Executor(store, graphs=[graph], tools=world.tools()) as executor:
        run = await executor.start(graph, "?")
        before = await executor.replay(run.run_id, replay_id="again")
        assert (before.status, before.same) == ("failed", True)
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        after = await executor.replay(run.run_id, replay_id="again")
        assert (after.run.run_id, after.status) == ("again", "failed")
        assert (await executor.replay(run.run_id)).same


async def test_a_replay_from_behind_a_retry_that_was_superseded_later_is_the_same(store: Store) -> None:
    """The retry is among the records that both have; only the run that was reopened once more has superseded it."""
    faults: list[Exception] = [ZeroDivisionError("a bug"), OSError("down"), OSError("down")]

    @node
    async def work(ctx: Context[Any]) -> Update:
        def check() -> None:
            if faults:
                raise faults.pop(0)

        await ctx.effect("check", check, returns=type(None))
        return {"log": "b"}

    inner = Subgraph(chain(says("a"), work), inputs={}, outputs={}, retry=Retry(attempts=2, wait=0, on=("OSError",)))
    async with Executor(store, graphs=[graph := chain(inner)]) as executor:
        run = await executor.start(graph, "?")
        for _ in range(2):
            assert run.status == "failed"
            run = await executor.resume(run.run_id, retry=True)
        assert run.status == "completed"
        records = await store.read(run.run_id)
        retried = next(one.seq for one in records if isinstance(one, StepRetried))
        for at in range(retried + 1, run.seq):
            if not failing_at(records, at):
                replay = await executor.replay(run.run_id, at=at)
                assert (replay.made, replay.same) == (0, True), f"{at} {replay.diff.to_text()}"


async def test_a_changed_prompt_of_a_step_that_was_begun_again_diverges_there(store: Store) -> None:
    world = World()

    def asking(prompt: str) -> Graph:
        @node
        async def ask(ctx: Context[Any]) -> Update:
            found = (await ctx.model.complete(prompt)).text
            await ctx.effect("check", world.fail, returns=type(None))
            return {"log": found}

        return chain(says("a"), ask)

    model = ScriptedModel(lambda request: request.messages[-1].content.upper())
    async with Executor(store, graphs=[asking("one")], model=model) as executor:
        run = await executor.start("chain", "?")
        world.broken = False
        run = await executor.resume(run.run_id, retry=True)
        assert run.output == ["a", "ONE"]
    async with Executor(store, graphs=[asking("two")], model=model) as executor:
        never = await executor.replay(run.run_id)
        assert (never.status, str(never.diverged_at)) == ("diverged", "n1: model scripted")
        assert [one.kind for one in never.diff.differences] == ["request"]
        always = await executor.replay(run.run_id, live="always")
        assert (always.made, always.run.output) == (1, ["a", "TWO"])


# -- generated graphs ------------------------------------------------------------------------------------------------


class Bugs:
    """A bug that some steps meet, each time that they come by, until it is repaired."""

    def __init__(self, seed: int) -> None:
        self.dice, self.left = random.Random(f"bugs {seed}"), 4

    def meet(self) -> None:
        if self.left and self.dice.random() < 0.2:
            self.left -= 1
            raise ZeroDivisionError("a bug")

    def check(self) -> None:
        """The same as a call, whose failure is in the journal."""
        if self.left and self.dice.random() < 0.2:
            self.left -= 1
            raise OSError("not there")


class Buggy(Acting, kind="buggy"):
    """A node that acts, and may meet a bug before and after."""

    async def run(self, state: Any, ctx: Any) -> Any:
        bugs = ctx.deps
        if isinstance(bugs, Bugs):
            bugs.meet()
        found = await super().run(state, ctx)
        await ctx.effect("check", bugs.check if isinstance(bugs, Bugs) else None, returns=type(None))
        return found


def buggy(graph: GraphDefinition) -> GraphDefinition:
    """The same graph, whose nodes may meet bugs."""
    nodes: dict[str, Node] = {}
    for name, one in graph.nodes.items():
        if isinstance(one, Subgraph):
            nodes[name] = one.model_copy(update={"graph": buggy(one.graph), "retry": Retry(attempts=2, wait=0)})
        else:
            assert isinstance(one, Acting)
            nodes[name] = Buggy(said=one.said, join=one.join, seed=one.seed, retry=one.retry)
    return graph.model_copy(update={"nodes": nodes})


async def to_some_end(executor: Executor, run: Run, dice: random.Random) -> tuple[Run, int]:
    """Answer and cancel a run, and reopen it when it has ended, until it completes or its chances are used up."""
    reopened = 0
    while True:
        if run.waiting:
            if dice.random() < 0.2:
                run = await executor.cancel(run.run_id)
                continue
            question = run.waiting[0]
            run = await executor.answer(run.run_id, question.id, said(question), digest=question.digest or None)
        elif run.status in ("failed", "cancelled", "exhausted") and dice.random() < 0.9:
            limits = None
            if run.status == "exhausted":
                steps = run.machine.root.limits.steps  # type: ignore[union-attr]
                limits = Limits(steps=(steps or 0) + dice.randrange(1, 12))
            reopened += 1
            run = await executor.resume(run.run_id, retry=True, limits=limits)
        else:
            return run, reopened


async def _met_bugs(executor: Executor, run: Run) -> bool:
    """Whether bugs count in what it came to: it failed at one, or an edge took one."""
    found = [one.error for one in await executor.store.read(run.run_id) if isinstance(one, StepDone)]
    return any(error is not None and error.type == "ZeroDivisionError" for error in (*found, run.error))


def failing_at(records: Sequence[Record], at: int) -> bool:
    """Whether a step stands between a call that failed and the end of its attempt: a replay from there sees it fail."""
    failing: set[str] = set()
    for one in records[:at]:
        if isinstance(one, EffectSettled) and not one.ok:
            failing.add(one.activation)
        elif isinstance(one, StepDone | StepFailed | StepRetried):
            failing.discard(one.activation)
    return bool(failing)


async def replayed(kind: str, seed: int) -> tuple[int, int] | None:
    """Replay a run of a generated graph that was reopened, from its beginning and from records."""
    found = drawn_graph(kind, seed)
    if found is None or not await ends(*found):
        return None
    graph, dice = buggy(found[0]), random.Random(f"ends {seed}")
    limits = Limits(steps=dice.choice((4, 9, 25)))
    given: Mapping[str, Any] = {"graphs": [graph], "tools": acting_tools(), "concurrency": 1}
    async with Executor(**given, model=Echo(), deps=Bugs(seed)) as executor:
        run = await executor.start(graph, found[1], run_id=f"{kind}-{seed}", limits=limits)
        run, reopened = await to_some_end(executor, run, dice)
        if not reopened or run.status == "exhausted" or await _met_bugs(executor, run):
            return None  # which step a limit refuses is a race, and by now the bugs are gone
        records = await executor.store.read(run.run_id)
        places = dice.sample(range(1, run.seq), min(sized(2, 5), run.seq - 1))
        async with Executor(executor.store, **given) as other:
            for at in (None, *(place for place in sorted(places) if not failing_at(records, place))):
                replay = await other.replay(run.run_id, at=at)
                where = f"{run.run_id}@{at} {records[(at or 1) - 1].type}"
                assert replay.made == 0, where
                if run.status == "completed":  # else how far other steps came is a race
                    assert replay.same, f"{where} {replay.diverged_at}\n{replay.diff.to_text()}"
                    assert at is not None or replay.saved.calls == run.usage.calls, where
    return reopened, run.usage.calls


@quick_on("asyncio")
def test_generated_runs_that_were_reopened_replay_as_they_went_in_the_end(anyio_backend: str) -> None:
    tried = calls = seed = 0
    while tried < sized(1, 200):
        for kind in KINDS:
            found = anyio.run(replayed, kind, seed, backend=anyio_backend)
            tried += found is not None
            calls += found[1] if found else 0
        seed += 1
    assert calls > 0

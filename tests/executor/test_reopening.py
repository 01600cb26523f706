"""Runs that ended go on: failed, exhausted and cancelled ones, with the code and limits of today, and nothing twice."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Outcome, Run, Tool, Update, node, tool
from orchestrator.errors import RunConflict, RunEnded, StaleAnswer, StoreUnavailable
from orchestrator.kernel.records import Reopened, StepFailed, TimerSet
from orchestrator.kernel.seals import Seal, audit
from orchestrator.nodes import Ask, Sleep, Subgraph
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.testing import MockClock
from tests.support.executors import Log, chain, counting, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class World:
    """What happens outside: payments, and whether the code has its bug."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.bug = True
        self.waits: Callable[[], Awaitable[object]] | None = None

    def pay(self, **options: Any) -> Tool:
        @tool(effect="irreversible", risk="write", **options)
        async def pay(what: str) -> str:
            """Pay."""
            self.paid.append(what)
            if self.waits is not None:
                await self.waits()
            return f"paid {what}"

        return pay

    def check(self) -> None:
        if self.bug:
            raise ZeroDivisionError("a bug")

    def buys(self) -> Any:
        """A node that pays, and then meets the bug."""

        @node
        async def buy(ctx: Context[Any]) -> Update:
            result = await ctx.tool("pay", what="tea")
            self.check()
            return {"log": str(result.output)}

        return buy


async def records(run: Run, store: Store) -> list[str]:
    return [record.type for record in await store.read(run.run_id)]


async def test_a_failed_run_goes_on_with_the_repaired_code_and_pays_once(store: Store) -> None:
    world = World()
    graph = chain(says("a"), world.buys(), says("c"))
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as executor:
        failed = await executor.start(graph, "?")
        assert failed.status == "failed"
        with pytest.raises(RunEnded, match=r"resume\(run_id, retry=True\), or `orchestrator resume \w+ --retry`"):
            await executor.resume(failed.run_id)
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert (run.status, run.output, run.error) == ("completed", ["a", "paid tea", "c"], None)
        assert world.paid == ["tea"]
        with pytest.raises(RunEnded, match="completed"):
            await executor.resume(failed.run_id, retry=True)
        found = await store.read(run.run_id)
        types = [record.type for record in found]
        assert types.count("ended") == 2
        assert types[types.index("ended") + 1] == "reopened"
        reopened = found[types.index("reopened")]
        assert isinstance(reopened, Reopened)
        assert (reopened.status, reopened.limits) == ("failed", None)
        assert (await store.info(run.run_id)).status == "completed"
        assert (await executor.load(failed.run_id, at=types.index("ended") + 1)).status == "failed"
        assert (await executor.load(failed.run_id, at=types.index("reopened") + 1)).status == "running"


async def test_a_failure_that_is_still_there_fails_the_run_once_more(store: Store) -> None:
    world = World()
    graph = chain(world.buys())
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as executor:
        run = await executor.start(graph, "?")
        for number in range(2, 5):
            run = await executor.resume(run.run_id, retry=True)
            assert run.status == "failed"
            attempts = [r.attempt for r in await store.read(run.run_id) if isinstance(r, StepFailed)]
            assert attempts == list(range(1, number + 1))
        world.bug = False
        assert (await executor.resume(run.run_id, retry=True)).status == "completed"
        assert world.paid == ["tea"]


async def test_siblings_that_finished_stay_and_those_that_were_stopped_go_on() -> None:
    made: list[str] = []
    world, going = World(), anyio.Event()

    @node
    async def quick(ctx: Context[Any]) -> Update:
        made.append(await ctx.effect("quick", lambda: "quick", returns=str))
        return {"log": "quick"}

    @node
    async def slow(ctx: Context[Any]) -> Update:
        made.append("slow begins")
        first = await ctx.effect("first", lambda: made.append("first") or "first", returns=str)
        going.set()
        if world.bug:
            await anyio.sleep(60)
        return {"log": f"slow after {first}"}

    @node
    async def broken(ctx: Context[Any]) -> Update:
        await going.wait()
        world.check()
        return {"log": "repaired"}

    nodes = {"a": says("a"), "quick": quick, "slow": slow, "broken": broken, "j": says("j", join="all")}
    graph = Graph(
        name="fork", state=Log, nodes=nodes,
        edges="START -> a -> quick, slow, broken\nquick, slow, broken -> j -> END", output="log",
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph]) as executor:
        failed = await executor.start(graph, {})
        assert failed.status == "failed"
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
    assert run.output == ["a", "quick", "slow after first", "repaired", "j"]
    assert sorted(made) == ["first", "quick", "slow begins", "slow begins"]


async def test_an_irreversible_call_that_the_end_stopped_is_asked_about() -> None:
    world, paying = World(), anyio.Event()

    async def hang() -> None:
        paying.set()
        if world.bug:
            await anyio.sleep(60)

    world.waits = hang

    @node
    async def buy(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("pay", what="tea")).output)}

    graph = chain(buy)
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay()]) as executor:
        run_id = await executor.submit(graph, "?")
        await paying.wait()
        cancelled = await executor.cancel(run_id)
        assert cancelled.status == "cancelled"
        world.bug = False
        run = await executor.resume(run_id, retry=True)
        assert run.status == "paused"
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", "cancelled")
        assert world.paid == ["tea"]
        run = await executor.answer(run_id, question.id, {"choice": "happened", "result": "paid by hand"})
        assert (run.status, run.output) == ("completed", ["paid by hand"])
        assert world.paid == ["tea"]


async def test_what_certainly_failed_is_called_again_and_what_happened_is_not() -> None:
    world = World()
    tried: list[str] = []

    @tool(effect="irreversible", risk="write")
    async def ship(what: str) -> str:
        """Ship."""
        tried.append(what)
        if world.bug:
            raise ValueError("no such street")
        return f"shipped {what}"

    @node
    async def work(ctx: Context[Any]) -> Update:
        paid = await ctx.tool("pay", what="tea")
        shipped = await ctx.tool("ship", what="tea", check=True)
        return {"log": f"{paid.output}, {shipped.output}"}

    graph = chain(work)
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay(), ship]) as executor:
        failed = await executor.start(graph, "?")
        assert failed.status == "failed"
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert run.output == ["paid tea, shipped tea"]
        assert (world.paid, tried) == (["tea"], ["tea", "tea"])


async def test_a_spent_limit_of_visits_names_its_node() -> None:
    graph = counting(visits={"count": 3})
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, {"until": 5})
        raised = (
            r"visits=3 of node 'count' are spent \(3 used\): raise that limit, limits=Limits\(visits=\{'count': 6\}\)"
        )
        with pytest.raises(RunEnded, match=raised):
            await executor.resume(run.run_id, retry=True)
        run = await executor.resume(run.run_id, retry=True, limits=Limits(visits={"count": 6}))
        assert (run.status, run.output) == ("completed", 5)


async def test_an_exhausted_run_needs_the_limit_that_it_spent(store: Store) -> None:
    graph = counting(steps=3)
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph, {"until": 8})
        assert (run.status, run.output) == ("exhausted", 3)
        with pytest.raises(RunEnded, match=r"raise its limits: resume\(run_id, retry=True, limits=Limits"):
            await executor.resume(run.run_id)
        with pytest.raises(RunEnded, match=r"steps=3 are spent \(3 used\): raise that limit, .*steps=6.*--max-steps 6"):
            await executor.resume(run.run_id, retry=True)
        with pytest.raises(RunEnded, match=r"steps=2 are spent"):
            await executor.resume(run.run_id, retry=True, limits=Limits(steps=2))
        assert (await executor.load(run.run_id)).status == "exhausted"
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=5))
        assert (run.status, run.output, run.usage.steps) == ("exhausted", 5, 5)
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=None))
        assert (run.status, run.output, run.usage.steps) == ("completed", 8, 8)


async def test_what_came_after_a_spent_limit_is_undone_when_the_limit_is_raised() -> None:
    @node
    async def rescue(state: Log) -> Update:
        return {"log": "rescued"}

    graph = Graph(
        name="rescued", state=Log, nodes={"a": says("a"), "b": says("b"), "c": says("c"), "rescue": rescue},
        edges="START -> a -> b -> c -> END\n* -> rescue : exhausted\nrescue -> END", output="log",
        limits=Limits(steps=2),
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        assert (run.status, run.output) == ("exhausted", ["a", "b", "rescued"])
        run = await executor.resume(run.run_id, retry=True, limits=Limits(steps=3))
        assert (run.status, run.output) == ("completed", ["a", "b", "c"])


async def test_the_innermost_step_is_begun_again_and_never_the_graph_around_it() -> None:
    world = World()
    inmost = chain(says("x"), world.buys(), name="inmost")
    inside = Graph(
        name="inside", state=Log, nodes={"y": says("y"), "deep": Subgraph(inmost)},
        edges="START -> y -> deep -> END", output="log",
    )  # fmt: skip
    graph = Graph(
        name="outside", state=Log, nodes={"z": says("z"), "sub": Subgraph(inside)},
        edges="START -> z -> sub -> END", output="log",
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay()]) as executor:
        failed = await executor.start(graph, {})
        assert failed.status == "failed"
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert run.status == "completed"
        types = await records(run, executor.store)
        assert types.count("graph_opened") == 2
        assert world.paid == ["tea"]


async def test_questions_that_were_open_are_asked_again_under_another_id() -> None:
    graph = Graph(
        name="asks", state=Log, nodes={"ask": Ask(prompt="Whose?", answer="answer")}, edges="START -> ask -> END",
        output="answer",
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        (old,) = run.waiting
        assert (await executor.cancel(run.run_id)).status == "cancelled"
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "paused"
        (new,) = run.waiting
        assert new.id != old.id
        assert new.digest != old.digest
        with pytest.raises(StaleAnswer):
            await executor.answer(run.run_id, old.id, "mine")
        run = await executor.answer(run.run_id, new.id, "mine")
        assert (run.status, run.output) == ("completed", "mine")


@pytest.mark.parametrize("passed", [2000, 9000])
async def test_a_sleep_keeps_its_time_when_its_run_is_reopened(store: Store, passed: int) -> None:
    world, clock = World(), MockClock()

    @node
    async def fails() -> None:
        world.check()

    nodes = {"nap": Sleep(seconds=3600), "a": says("a"), "slow": Sleep(seconds=600), "fails": fails}
    graph = Graph(
        name="naps", state=Log, nodes={**nodes, "j": says("j", join="all")}, output="log",
        edges="START -> nap, slow\nslow -> a -> fails -> j\nnap -> j -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[graph], clock=clock, idle="sleep") as executor:
        run = await executor.start(graph, {})
        due = next(one.deadline for one in run.waiting if one.node == "nap")
        assert due is not None
        clock.jump(600)
        run = await executor.resume(run.run_id)
        assert run.status == "failed"
        run = await executor.resume(run.run_id, retry=True)
        assert run.status == "failed"
        clock.jump(passed)
        world.bug = False
        run = await executor.resume(run.run_id, retry=True)
        if passed < 3000:
            assert [(one.kind, one.deadline) for one in run.waiting] == [("timer", due)]
            clock.jump(1000)
            run = await executor.resume(run.run_id)
        assert (run.status, run.output) == ("completed", ["a", "j"])
        times = [one.at for one in await store.read(run.run_id) if isinstance(one, TimerSet) and one.node == "nap"]
        assert set(times) == {due}
        ended = next(one.seq for one in await store.read(run.run_id) if one.type == "ended")
        fork = await executor.fork(run.run_id, at=ended)
        assert [one.deadline for one in fork.waiting] == [clock.now() + 3600]


async def test_a_failed_run_of_a_called_graph_is_reopened_and_not_begun_anew() -> None:
    world = World()
    inner = Graph(
        name="inner", state=Log, nodes={"a": says("a"), "buy": world.buys()}, edges="START -> a -> buy -> END",
        input="question", output="log",
    )  # fmt: skip

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

    graph = chain(call, name="caller")
    tools = [inner.as_tool("inner", "Works."), world.pay()]
    async with Executor(MemoryStore(), graphs=[graph], tools=tools) as executor:
        failed = await executor.start(graph, "?")
        assert failed.status == "failed"
        (child,) = (await executor.runs(graph="inner")).runs
        assert child.status == "failed"
        again = await executor.resume(failed.run_id, retry=True)
        assert again.status == "failed"
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert (run.status, run.output) == ("completed", ["['a', 'paid tea']"])
        (child,) = (await executor.runs(graph="inner")).runs
        assert child.status == "completed"
        reopened = [r for r in await executor.store.read(child.run_id) if isinstance(r, Reopened)]
        assert [r.by.split("@")[0] for r in reopened] == [f"run {run.run_id}"] * 2
        assert world.paid == ["tea"]
        assert run.usage.calls == 2


async def test_a_cancelled_caller_goes_on_with_the_run_that_it_called() -> None:
    paying = anyio.Event()
    world = World()

    @node
    async def slow(ctx: Context[Any]) -> Update:
        paying.set()
        if world.bug:
            await anyio.sleep(60)
        return {"log": "slow"}

    inner = Graph(
        name="inner", state=Log, nodes={"a": says("a"), "slow": slow}, edges="START -> a -> slow -> END",
        input="question", output="log",
    )  # fmt: skip

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

    graph = chain(call, name="caller")
    async with Executor(MemoryStore(), graphs=[graph], tools=[inner.as_tool("inner", "Works.")]) as executor:
        run_id = await executor.submit(graph, "?")
        await paying.wait()
        assert (await executor.cancel(run_id)).status == "cancelled"
        (child,) = (await executor.runs(graph="inner")).runs
        assert child.status == "cancelled"
        world.bug = False
        run = await executor.resume(run_id, retry=True)
        assert (run.status, run.output) == ("completed", ["['a', 'slow']"])
        assert len((await executor.runs(graph="inner")).runs) == 1


async def test_of_two_that_reopen_a_run_one_wins() -> None:
    world = World()
    store = MemoryStore()
    graph = chain(world.buys())
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as one:
        failed = await one.start(graph, "?")
        world.bug = False
        ended: list[str] = []

        async def reopen(executor: Executor) -> None:
            try:
                ended.append((await executor.resume(failed.run_id, retry=True)).status)
            except (RunConflict, RunEnded) as error:
                ended.append(type(error).__name__)

        async with Executor(store, graphs=[graph], tools=[world.pay()]) as other, anyio.create_task_group() as tasks:
            for executor in (one, other, one, other):
                tasks.start_soon(reopen, executor)
        assert ended.count("completed") >= 1
        assert set(ended) <= {"completed", "RunConflict", "RunEnded"}
        assert (await records(failed, store)).count("reopened") == 1
        assert world.paid == ["tea"]


async def test_an_ended_run_is_reopened_by_one_who_knows_where_it_stands() -> None:
    """One that saw the run fail does not reopen it after another has, and it has failed once more."""
    world = World()
    graph = chain(world.buys())

    class Slow(MemoryStore):
        passed: Any = None

        async def take_lease(self, *given: Any, **more: Any) -> bool:
            if self.passed is not None:
                then, self.passed = self.passed, None
                await then()
            return await super().take_lease(*given, **more)

    store = Slow()
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as executor:
        run = await executor.start(graph, "?")

        async def meanwhile() -> None:
            async with Executor(store, graphs=[graph], tools=[world.pay()]) as other:
                assert (await other.resume(run.run_id, retry=True)).status == "failed"

        store.passed = meanwhile
        with pytest.raises(RunConflict, match="continued it"):
            await executor.resume(run.run_id, retry=True)
        assert (await records(run, store)).count("reopened") == 1


async def test_events_of_a_run_that_is_reopened_go_on(store: Store) -> None:
    world = World()
    graph = chain(world.buys())
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as executor:
        failed = await executor.start(graph, "?")
        events = [event async for event in executor.events(failed.run_id, follow=True)]
        assert events[-1].type == "ended"
        world.bug = False
        await executor.resume(failed.run_id, retry=True)
        more = [event async for event in executor.events(failed.run_id, after=len(events), follow=True)]
        assert more[0].type == "reopened"
        assert more[-1].type == "ended"
        whole = [event async for event in executor.events(failed.run_id, follow=True)]
        assert [event.seq for event in whole if event.seq is not None] == list(range(1, len(whole) + 1))
        assert whole[-1].data["status"] == "completed"


@pytest.mark.usefixtures("impatient")
async def test_repaired_code_that_pays_otherwise_asks_first() -> None:
    """A call with other arguments than the one that happened is another call: only a person knows if both are meant."""
    world = World()
    amount = ["tea"]

    @node
    async def buy(ctx: Context[Any]) -> Update:
        result = await ctx.tool("pay", what=amount[0])
        world.check()
        return {"log": str(result.output)}

    graph = chain(buy)
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay()]) as executor:
        for answer, paid in ((Approve(), ["tea", "coffee"]), (Deny(reason="it is paid"), ["tea"])):
            world.paid.clear()
            world.bug, amount[0] = True, "tea"
            failed = await executor.start(graph, "?", approve="dangerous")
            assert failed.status == "failed"
            world.bug, amount[0] = False, "coffee"
            run = await executor.resume(failed.run_id, retry=True)
            assert run.status == "paused"
            (question,) = run.waiting
            assert question.kind == "approval"
            assert question.payload["args"] == {"what": "coffee"}
            (known,) = question.payload["family"]  # type: ignore[typeddict-item]
            assert (known["args"], known["status"], known["result"]) == (
                {"what": "tea"}, "returned", {"output": "paid tea"},
            )  # fmt: skip
            assert "other arguments" in question.prompt
            assert world.paid == ["tea"]
            run = await executor.answer(run.run_id, question.id, answer)
            assert (run.status, world.paid) == ("completed", paid), run.error


async def test_calls_of_a_loop_are_reused_in_any_order() -> None:
    """Repaired code may make the same calls, and one more."""
    world = World()

    @node
    async def buy(ctx: Context[Any]) -> Update:
        wanted = ["a", "b"] if world.bug else ["b", "a", "c"]
        made: dict[str, str] = {}

        async def one(what: str) -> None:
            made[what] = str((await ctx.tool("pay", what=what)).output)

        async with anyio.create_task_group() as tasks:
            for what in wanted:
                tasks.start_soon(one, what)
        world.check()
        return {"log": ", ".join(made[what] for what in sorted(made))}

    graph = chain(buy)
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay()]) as executor:
        failed = await executor.start(graph, "?")
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert (run.status, run.output) == ("completed", ["paid a, paid b, paid c"])
        assert sorted(world.paid) == ["a", "b", "c"]


async def test_limits_that_a_caller_shares_hold_when_it_is_reopened() -> None:
    """A called graph that its caller's limit cancelled goes on when the caller's limit is raised, and no further."""
    made: list[str] = []

    @tool(effect="idempotent", risk="none")
    async def look(what: str) -> str:
        """Look."""
        made.append(what)
        return what

    @node
    async def looks(state: Log, ctx: Context[Any]) -> Update:
        found = [str((await ctx.tool("look", what=f"{state.n}.{number}")).output) for number in range(2)]
        return {"log": " ".join(found), "n": state.n + 1}

    inner = Graph(
        name="inner", state=Log, nodes={"x": looks, "y": looks}, edges="START -> x -> y -> END",
        input="question", output="log",
    )  # fmt: skip

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

    graph = chain(call, name="caller", limits=Limits(calls=3))
    async with Executor(MemoryStore(), graphs=[graph], tools=[inner.as_tool("inner", "Works."), look]) as executor:
        run = await executor.start(graph, "?")
        assert (run.status, made) == ("exhausted", ["0.0", "0.1"])
        (child,) = (await executor.runs(graph="inner")).runs
        assert child.status == "cancelled"
        with pytest.raises(RunEnded, match=r"calls=3 are spent \(3 used\)"):
            await executor.resume(run.run_id, retry=True)
        run = await executor.resume(run.run_id, retry=True, limits=Limits(calls=4))
        assert (run.status, made) == ("exhausted", ["0.0", "0.1", "1.0"])
        run = await executor.resume(run.run_id, retry=True, limits=Limits(calls=5))
        assert (run.status, run.output) == ("completed", ["['0.0 0.1', '1.0 1.1']"])
        assert made == ["0.0", "0.1", "1.0", "1.1"]
        assert run.usage.calls == 5
        assert len((await executor.runs(graph="inner")).runs) == 1


async def test_a_sealed_journal_stays_sealed_and_its_approvals_stay_valid(tmp_path: Path) -> None:
    world = World()

    @node
    async def buy(ctx: Context[Any]) -> Update:
        answer = await ctx.ask(
            "approval", prompt="Pay?", payload={"tool": "pay", "args": {"what": "tea"}, "risk": "write"}
        )
        assert isinstance(answer, Approve)
        world.check()
        return {"log": str((await ctx.tool("pay", what="tea")).output)}

    graph = chain(buy)
    seal = Seal(b"0123456789abcdef", str(tmp_path))
    async with Executor(MemoryStore(), graphs=[graph], tools=[world.pay()], seal=seal) as executor:
        run = await executor.start(graph, "?")
        failed = await executor.answer(run.run_id, run.waiting[0].id, Approve())
        assert failed.status == "failed"
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert (run.status, world.paid) == ("completed", ["tea"])
        checked = audit(seal, run.run_id, await executor.store.read(run.run_id))
        assert checked.whole
        assert any(record.type == "reopened" for record in checked.records)


async def test_a_long_run_is_reopened_behind_its_snapshots() -> None:
    world = World()

    @node(effect="pure")
    def count(state: Log) -> Outcome[Literal["again", "enough"]]:
        if state.n == 1500:
            world.check()
        return Outcome("again" if state.n < 2400 else "enough", n=state.n + 1)

    graph = Graph(
        name="long", state=Log, nodes={"count": count}, output="n", limits=Limits(steps=None),
        edges="START -> count\ncount -> count : again\ncount -> END : enough",
    )  # fmt: skip
    store = MemoryStore()
    async with Executor(store, graphs=[graph]) as executor:
        failed = await executor.start(graph, {})
        assert failed.status == "failed"
        assert await store.snapshot(failed.run_id) is not None
        world.bug = False
        run = await executor.resume(failed.run_id, retry=True)
        assert (run.status, run.output) == ("completed", 2401)
    async with Executor(store) as reader:
        assert (await reader.load(run.run_id)).values["n"] == 2401
        assert (await reader.load(run.run_id, at=failed.seq)).status == "failed"


async def test_a_reopened_run_that_is_interrupted_goes_on_like_any_other(store: Store) -> None:
    world, going = World(), anyio.Event()

    @node
    async def slow(ctx: Context[Any]) -> Update:
        if not world.bug and not going.is_set():
            going.set()
            await anyio.sleep(60)
        return {"log": "slow"}

    graph = chain(world.buys(), slow)
    async with Executor(store, graphs=[graph], tools=[world.pay()]) as executor:
        failed = await executor.start(graph, "?")
        world.bug = False
        with anyio.move_on_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: executor.resume(failed.run_id, retry=True))
                await going.wait()
                tasks.cancel_scope.cancel()
        assert (await executor.load(failed.run_id)).status == "interrupted"
        run = await executor.resume(failed.run_id)
        assert (run.status, run.output, world.paid) == ("completed", ["paid tea", "slow"], ["tea"])


async def test_limits_of_a_run_that_has_not_ended_can_be_changed() -> None:
    graph = Graph(
        name="asks", state=Log, nodes={"a": says("a"), "ask": Ask(prompt="Whose?", answer="answer"), "b": says("b")},
        edges="START -> a -> ask -> b -> END", output="log", limits=Limits(steps=2),
    )  # fmt: skip
    async with Executor(MemoryStore(), graphs=[graph]) as executor:
        run = await executor.start(graph, {})
        run = await executor.resume(run.run_id, limits=Limits(steps=3))
        assert run.status == "paused"
        run = await executor.answer(run.run_id, run.waiting[0].id, "mine")
        assert (run.status, run.output) == ("completed", ["a", "b"])
        assert "limits_changed" in await records(run, executor.store)


class Power(MemoryStore):
    """A store whose power fails at a write: this write and those after it are not made, or this one still is."""

    writes, fails_at, after = 0, 0, False

    async def append(self, append: Append) -> int:
        self.writes += 1
        if self.fails_at and self.writes >= self.fails_at:
            if self.after and self.writes == self.fails_at:
                await super().append(append)
            raise StoreUnavailable("no power")
        return await super().append(append)


async def test_a_process_may_die_at_any_write_of_a_reopened_run() -> None:
    for after in (False, True):
        for write in range(1, 30, sized(3, 1)):
            world, store = World(), Power()
            inner = Graph(
                name="inner", state=Log, nodes={"a": says("a"), "buy": world.buys()}, edges="START -> a -> buy -> END",
                input="question", output="log",
            )  # fmt: skip

            @node
            async def call(ctx: Context[Any]) -> Update:
                return {"log": str((await ctx.tool("inner", question="?", check=True)).output)}

            graph = chain(says("x"), call, says("y"), name="caller")
            given: dict[str, Any] = {"graphs": [graph], "tools": [inner.as_tool("inner", "Works."), world.pay()]}
            async with Executor(store, **given) as executor:
                failed = await executor.start(graph, "?")
            world.bug = False
            store.fails_at, store.after = store.writes + write, after
            async with Executor(store, **given) as executor:
                with contextlib.suppress(StoreUnavailable):
                    await executor.resume(failed.run_id, retry=True)
            died = store.writes >= store.fails_at
            store.fails_at = 0
            async with Executor(store, **given) as executor:
                if (await executor.load(failed.run_id)).status != "completed":
                    await executor.resume(failed.run_id, retry=True)
                run = await executor.load(failed.run_id)
                assert (run.status, run.output) == ("completed", ["x", "['a', 'paid tea']", "y"]), (write, after)
                assert len((await executor.runs(graph="inner")).runs) == 1
            assert world.paid == ["tea"]
            if not died:
                break
        assert write > 4

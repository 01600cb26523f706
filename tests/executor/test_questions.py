"""Questions over branches, executors and time: each answer counts once, for what was asked, and for nothing else."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from orchestrator import Approve, Context, Deny, Executor, Graph, Limits, Outcome, Run, Update, node, tool
from orchestrator.errors import InvalidAnswer, QuestionUnknown, RunConflict, RunEnded, StaleAnswer, StoreUnavailable
from orchestrator.graph import Node
from orchestrator.graph.model import ITEM
from orchestrator.kernel.records import encode
from orchestrator.nodes import Subgraph
from orchestrator.stores.base import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.testing import ScriptedModel
from tests.support.executors import Log, says, single
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store | str:
    """Where runs are kept when their executor is gone."""
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


async def journal(executor: Executor, run_id: str) -> list[bytes]:
    """The journal, byte for byte."""
    return [encode(record) for record in await executor.store.read(run_id)]


class Ran:
    """What was done outside, and how often."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(risk="dangerous")
        async def pay(amount: int) -> str:
            """Pay."""
            self.calls.append(f"pay {amount}")
            return f"paid {amount}"

        self.pay = pay


# -- several at once ---------------------------------------------------------------------------------------------------


def asking(ran: Ran, name: str = "") -> Node:
    """A node that does something outside, asks, does something else, and says what was answered."""

    @node
    async def asks(state: Log, ctx: Context) -> Update:
        who = name or str(ctx.item if ctx.item is not None else state.n)

        def note(when: str) -> str:
            ran.calls.append(f"{who} {when}")
            return when

        await ctx.effect("note", note, "before", returns=str, effect="irreversible")
        answer = await ctx.ask("input", prompt=f"{who}?")
        await ctx.effect("note", note, "after", returns=str, effect="irreversible")
        return {"log": f"{who}={answer.value}"}

    return asks


def forked(ran: Ran) -> Graph:
    nodes = {"begin": says("begin"), **{name: asking(ran, name) for name in "012"}, "join": says("end", join="all")}
    # Names of nodes are identifiers.
    nodes = {(f"n{name}" if name.isdigit() else name): one for name, one in nodes.items()}
    return Graph(
        name="forked", state=Log, nodes=nodes, output="log",
        edges="START -> begin -> n0, n1, n2\nn0, n1, n2 -> join -> END",
    )  # fmt: skip


def mapped(ran: Ran) -> Graph:
    nodes = {"begin": says("begin"), "asks": asking(ran), "join": says("end", join="all")}
    return Graph(
        name="mapped", state=Log, nodes=nodes, output="log",
        edges="START -> begin\nbegin -> asks : each items\nasks -> join -> END",
    )  # fmt: skip


def nested(ran: Ran) -> Graph:
    done = node(effect="pure")(lambda state: {"answer": " ".join(state.log)})
    inner = Graph(
        name="inner", state=Log, nodes={"asks": asking(ran), "done": done}, output="log",
        edges="START -> asks -> done -> END",
    )  # fmt: skip
    sub = Subgraph(inner, inputs={"n": ITEM}, outputs={"log": "answer"})
    nodes = {"begin": says("begin"), "sub": sub, "join": says("end", join="all")}
    return Graph(
        name="nested", state=Log, nodes=nodes, output="log",
        edges="START -> begin\nbegin -> sub : each items\nsub -> join -> END",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "place"),
    [(forked, "memory"), (mapped, "memory"), (nested, "memory"), (nested, "sqlite")],
    indirect=["place"],
)
async def test_three_open_questions_answered_in_any_order_give_the_same(
    shape: Callable[[Ran], Graph], place: Store | str
) -> None:
    ends: list[Any] = []
    for number, order in enumerate(sized(["012", "201"], ["".join(order) for order in itertools.permutations("012")])):
        ran = Ran()
        graph = shape(ran)
        run_id = f"r{number}"
        async with Executor(place, graphs=[graph]) as executor:
            run = await executor.start(graph, {"items": [0, 1, 2]}, run_id=run_id)
        open_ = {question.prompt[0]: question for question in run.waiting}
        assert sorted(open_) == ["0", "1", "2"]
        for who in order:
            before = list(ran.calls)
            async with Executor(place, graphs=[graph]) as executor:  # a new one for each answer
                question = open_.pop(who)
                run = await executor.answer(run_id, question.id, f"yes{who}", digest=question.digest)
                assert {q.id: q for q in run.waiting} == {q.id: q for q in open_.values()}
                with pytest.raises((StaleAnswer, RunEnded)):
                    await executor.answer(run_id, question.id, "again")
            assert ran.calls == [*before, f"{who} after"]
        assert run.status == "completed"
        assert sorted(ran.calls) == sorted(f"{who} {when}" for who in "012" for when in ("before", "after"))
        ends.append(run.values)
    assert all(values == ends[0] for values in ends)
    assert ends[0]["log"] == ["begin", "0=yes0", "1=yes1", "2=yes2", "end"]


async def test_questions_open_at_once_may_be_answered_before_anything_goes_on(place: Store | str) -> None:
    ran = Ran()
    graph = mapped(ran)
    async with Executor(place, graphs=[graph]) as executor:
        run = await executor.start(graph, {"items": [0, 1, 2]})
    for question in reversed(run.waiting):
        async with Executor(place, graphs=[graph]) as executor:
            await executor.answer(run.run_id, question.id, f"to {question.prompt}", resume=False)
    assert len(ran.calls) == 3
    async with Executor(place, graphs=[graph]) as executor:
        run = await executor.resume(run.run_id)
    assert run.output == ["begin", "0=to 0?", "1=to 1?", "2=to 2?", "end"]


# -- one approves, the other pays --------------------------------------------------------------------------------------


def approves(ran: Ran, edges: str, **others: Any) -> Graph:
    @node
    async def approve(state: Log, ctx: Context) -> Update:
        answer = await ctx.ask("approval", prompt="go?", payload={"tool": "pay", "args": {"amount": 2}})
        return {"log": answer.type}

    @node
    async def pay(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("pay", amount=1)).text}

    @node
    async def both(state: Log, ctx: Context) -> Update:
        said: dict[str, str] = {}

        async def one() -> None:
            said["pay"] = (await ctx.tool("pay", amount=1)).text

        async def other() -> None:
            said["ask"] = (await ctx.ask("approval", prompt="go?")).type

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            tasks.start_soon(one)
        return {"log": f"{said['pay']} {said['ask']}"}

    @node
    async def either(state: Log, ctx: Context, item: int) -> Update:
        return await (approve if item else pay).run(state, ctx)  # type: ignore[return-value]

    known = {"approve": approve, "pay": pay, "both": both, "either": either, "begin": says("begin"), **others}
    return Graph(
        name="pair", state=Log, nodes={name: one for name, one in known.items() if name in edges}, edges=edges,
        output="log",
    )  # fmt: skip


PAIRS = {
    "branches": "START -> begin -> approve, pay\napprove, pay -> join -> END",
    "tasks": "START -> begin -> both -> END",
    "map": "START -> begin\nbegin -> either : each items\neither -> join -> END",
}


@pytest.mark.parametrize("pair", PAIRS)
async def test_beside_an_approval_what_pays_pays_once_however_often_the_run_is_resumed(
    pair: str, place: Store | str
) -> None:
    ran = Ran()
    graph = approves(ran, PAIRS[pair], join=says("end", join="all"))
    said = {"paid 1", "approve"} if pair != "tasks" else {"paid 1 approve"}
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.start(graph, {"items": [1, 0]})
    (question,) = run.waiting
    for _ in range(5):
        async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
            run = await executor.resume(run.run_id)
            assert run.waiting == (question,)
            await executor.recover()
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.answer(run.run_id, question.id, Approve())
    assert run.status == "completed"
    assert ran.calls == ["pay 1"]
    assert set(run.output) == {"begin", "end"} - ({"end"} if pair == "tasks" else set()) | said


# -- answers that do not count -----------------------------------------------------------------------------------------


def approval(deadline: float | None = None) -> Graph:
    @node
    async def work(state: Log, ctx: Context) -> Update:
        args: dict[str, Any] = {"amount": 5}
        payload = {"tool": "pay", "args": args, "risk": "dangerous"}
        answer = await ctx.ask("approval", prompt="pay?", payload=payload, deadline=deadline)
        if isinstance(answer, Deny):
            return {"log": f"denied: {answer.reason}"}
        assert isinstance(answer, Approve)
        return {"log": (await ctx.tool("pay", **(answer.args or args))).text}

    return Graph(name="approval", state=Log, nodes={"work": work}, edges="START -> work -> END", output="log")


async def test_what_does_not_fit_changes_nothing_and_a_changed_call_is_what_is_made(place: Store | str) -> None:
    ran, graph = Ran(), approval()
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.start(graph, run_id="r")
        (question,) = run.waiting
        before = await journal(executor, "r")
    wrong: list[tuple[str, Any, str | None, type[Exception]]] = [
        (question.id, Approve(), "another", StaleAnswer),
        (question.id, Approve(args={"amount": "much"}), None, InvalidAnswer),
        (question.id, Approve(args={"amount": 1, "to": "me"}), question.digest, InvalidAnswer),
        (question.id, Approve(args={}), None, InvalidAnswer),
        (question.id, "yes", None, InvalidAnswer),
        ("another", Approve(), None, QuestionUnknown),
    ]
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        for name, answer, digest, error in wrong:
            for resume in (True, False):
                with pytest.raises(error):
                    await executor.answer("r", name, answer, digest=digest, resume=resume)
        assert await journal(executor, "r") == before
        assert (await executor.load("r")).waiting == (question,)
        run = await executor.answer("r", question.id, Approve(args={"amount": 7}), by="ann", digest=question.digest)
        assert run.output == ["paid 7"]
        after = await journal(executor, "r")
        for late in (Approve(), Deny()):
            with pytest.raises(StaleAnswer):
                await executor.answer("r", question.id, late)
        assert await journal(executor, "r") == after
        (answered,) = [event for event in [e async for e in executor.events("r")] if event.type == "answered"]
    assert (answered.data["by"], answered.data.get("policy", False)) == ("ann", False)
    assert answered.ts is not None
    assert answered.ts > 0
    assert ran.calls == ["pay 7"]


async def test_a_second_answer_before_the_run_goes_on_is_stale(place: Store | str) -> None:
    ran, graph = Ran(), approval()
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.start(graph, run_id="r")
        await executor.answer("r", run.waiting[0].id, Deny(reason="no"), resume=False)
        before = await journal(executor, "r")
        for resume in (True, False):
            with pytest.raises(StaleAnswer):
                await executor.answer("r", run.waiting[0].id, Approve(), resume=resume)
        assert await journal(executor, "r") == before
        run = await executor.resume("r")
    assert run.output == ["denied: no"]
    assert ran.calls == []


async def test_of_many_who_answer_at_once_one_counts(place: Store | str) -> None:
    ran, graph = Ran(), approval()
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.start(graph, run_id="r")
        counted: list[int] = []

        async def say(amount: int) -> None:
            try:
                await executor.answer("r", run.waiting[0].id, Approve(args={"amount": amount}))
            except (StaleAnswer, RunEnded):
                return
            counted.append(amount)

        async with anyio.create_task_group() as tasks:
            for amount in range(5):
                tasks.start_soon(say, amount)
        run = await executor.load("r")
    assert ran.calls == [f"pay {amount}" for amount in counted]
    assert run.output == [f"paid {amount}" for amount in counted]
    assert len(counted) == 1


async def test_a_deadline_that_passed_while_nobody_was_there(place: Store | str) -> None:
    ran, graph = Ran(), approval(deadline=0.1)
    async with Executor(place, graphs=[graph], tools=[ran.pay], idle="sleep") as executor:
        run = await executor.start(graph, run_id="r")
        if run.status == "paused":  # a slow machine may have needed longer than that
            before = await journal(executor, "r")
            await anyio.sleep(0.15)
            for resume in (True, False):
                with pytest.raises(StaleAnswer, match="deadline"):
                    await executor.answer("r", run.waiting[0].id, Approve(), by="ann", resume=resume)
            assert await journal(executor, "r") == before
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        await executor.recover()
        run = await executor.load("r")
        (answered,) = [event for event in [e async for e in executor.events("r")] if event.type == "answered"]
    assert run.output == ["denied: deadline passed"]
    assert (answered.data["policy"], answered.data.get("by", "")) == (True, "")
    assert ran.calls == []


async def test_a_question_of_a_branch_that_lost_or_of_a_cancelled_run_is_closed(place: Store | str) -> None:
    ran = Ran()

    @node
    async def asks(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="?")).value}

    @node
    async def other(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="other?")).value}

    graph = Graph(
        name="race", state=Log, output="log",
        nodes={"fork": says("f"), "asks": asks, "other": other, "first": says("first", join=1), "last": other},
        edges="START -> fork -> asks, other -> first -> last -> END",
    )  # fmt: skip
    async with Executor(place, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.start(graph, run_id="r")
        lost, won = sorted(run.waiting, key=lambda question: question.prompt != "?")
        run = await executor.answer("r", won.id, "me")
        assert [question.node for question in run.waiting] == ["last"]
        before = await journal(executor, "r")
        with pytest.raises(StaleAnswer):
            await executor.answer("r", lost.id, "late")
        assert await journal(executor, "r") == before
        last = run.waiting[0].id
        await executor.cancel("r")
        before = await journal(executor, "r")
        for name in (lost.id, last):
            with pytest.raises(StaleAnswer):
                await executor.answer("r", name, "late")
        assert await journal(executor, "r") == before
        assert (await executor.load("r")).waiting == ()


# -- nodes that catch everything ---------------------------------------------------------------------------------------


async def catches_errors(what: Callable[[], Any]) -> str:
    try:
        return str(await what())
    except Exception:
        return "caught"


async def catches_all(what: Callable[[], Any]) -> str:
    try:
        return str(await what())
    except BaseException:
        return "caught"


async def raises_another(what: Callable[[], Any]) -> str:
    try:
        return str(await what())
    except BaseException as error:
        raise ValueError("something else") from error


async def returns_at_last(what: Callable[[], Any]) -> str:
    said = "caught"
    try:
        said = str(await what())
    finally:
        return said  # noqa: B012


async def catches_in_a_group(what: Callable[[], Any]) -> str:
    said = ["caught"]

    async def one() -> None:
        said[0] = str(await what())

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
    except BaseException:
        return said[0]
    return said[0]


CATCHERS = [catches_errors, catches_all, raises_another, returns_at_last, catches_in_a_group]


@pytest.mark.parametrize("catch", CATCHERS)
async def test_a_pause_cannot_be_caught_and_nothing_is_done_after_it(catch: Any) -> None:
    ran = Ran()

    async def work(state: Log, ctx: Context) -> Update:
        said = await catch(lambda: ctx.ask("approval", prompt="?"))
        return {"log": [said[:4], (await catch(lambda: ctx.tool("pay", amount=1)))][0]}

    async with Executor(tools=[ran.pay]) as executor:
        run = await executor.start(single(work), run_id="r")
        assert run.status == "paused"
        assert [question.prompt for question in run.waiting] == ["?"]
        assert ran.calls == []
        run = await executor.answer("r", run.waiting[0].id, Approve())
    assert run.status == "completed"
    assert run.output == ["type"]
    assert ran.calls == ["pay 1"]


@pytest.mark.parametrize("catch", CATCHERS)
async def test_a_limit_cannot_be_caught(catch: Any) -> None:
    ran = Ran()

    async def work(state: Log, ctx: Context) -> Update:
        for _ in range(3):
            await catch(lambda: ctx.model.complete("hi"))
        await catch(lambda: ctx.tool("pay", amount=1))
        return {"log": "went on"}

    model = ScriptedModel(["one"])
    async with Executor(model=model, tools=[ran.pay]) as executor:
        run = await executor.start(single(work, limits=Limits(calls=1)))
    assert (run.status, run.output, ran.calls) == ("exhausted", [], [])


class Fails(MemoryStore):
    """A store that takes no more records from some moment on."""

    fails = False
    error: Exception = StoreUnavailable("the disk is gone")

    async def append(self, append: Append) -> int:
        if self.fails:
            raise self.error
        return await super().append(append)


@pytest.mark.parametrize("catch", CATCHERS)
@pytest.mark.parametrize(
    "error", [StoreUnavailable("the disk is gone"), RunConflict("r", "another executor has continued it")]
)
async def test_neither_a_store_that_fails_nor_the_loss_of_the_run_can_be_caught(catch: Any, error: Exception) -> None:
    ran, store = Ran(), Fails()
    store.error = error
    heard: list[str] = []

    async def work(state: Log, ctx: Context) -> Update:
        store.fails = not heard
        said = await catch(lambda: ctx.tool("pay", amount=1))
        heard.append(said)
        await catch(lambda: ctx.tool("pay", amount=2))
        return {"log": said}

    graph = single(work)
    async with Executor(store, graphs=[graph], tools=[ran.pay]) as executor:
        with pytest.raises(type(error)):
            await executor.start(graph, run_id="r")
    assert ran.calls == []
    assert "caught" not in heard or catch is not catches_errors
    store.fails, heard[:] = False, ["again"]
    async with Executor(store, graphs=[graph], tools=[ran.pay]) as executor:
        run = await executor.resume("r")
    assert run.status == "completed"
    assert ran.calls == ["pay 1", "pay 2"]


async def test_clean_up_runs_at_every_suspension_and_touches_nothing_outside() -> None:
    ran = Ran()
    cleaned: list[str] = []

    @asynccontextmanager
    async def lent(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        finally:
            cleaned.append("given back")
            await ctx.effect("unlock", lambda: ran.calls.append("unlock"), returns=type(None))

    async def work(state: Log, ctx: Context) -> Update:
        try:
            async with lent(ctx):
                answer = await ctx.ask("input", prompt="?")
                await ctx.tool("pay", amount=1)
        finally:
            cleaned.append("finally")
        return {"log": answer.value}

    async with Executor(tools=[ran.pay]) as executor:
        run = await executor.start(single(work))
        assert (cleaned, ran.calls) == (["given back", "finally"], [])
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
    assert run.output == ["yes"]
    assert cleaned == ["given back", "finally"] * 2
    assert ran.calls == ["pay 1", "unlock"]


# -- many questions of one node ----------------------------------------------------------------------------------------


async def to_the_end(executor: Executor, run: Run, say: Callable[[str], str]) -> tuple[Run, list[str]]:
    """Answer whatever is asked, one by one; the run and the prompts."""
    prompts: list[str] = []
    while run.status == "paused":
        question = run.waiting[0]
        prompts.append(question.prompt)
        run = await executor.answer(run.run_id, question.id, say(question.prompt))
    return run, prompts


async def test_a_node_that_asks_until_it_is_content() -> None:
    async def work(state: Log, ctx: Context) -> Update:
        name = (await ctx.ask("input", prompt="name?")).value
        tries = 0
        while (await ctx.ask("input", prompt=f"{name}, again?")).value == "yes":
            tries += 1
        return {"log": f"{name} {tries}"}

    async with Executor() as executor:
        run = await executor.start(single(work))
        answers = iter(["ann", "yes", "yes", "no"])
        run, prompts = await to_the_end(executor, run, lambda prompt: next(answers))
    assert run.output == ["ann 2"]
    assert prompts == ["name?", *["ann, again?"] * 3]


async def test_tasks_of_a_node_get_the_answers_to_their_own_questions_in_whatever_order_they_run() -> None:
    rounds = 0

    async def work(state: Log, ctx: Context) -> Update:
        nonlocal rounds
        rounds += 1
        first = (await ctx.ask("input", prompt="first?")).value
        said: dict[str, Any] = {}

        async def one(who: str) -> None:
            said[who] = [(await ctx.ask("input", prompt=f"{who}{number}?")).value for number in range(2)]

        order = "abcd" if rounds % 2 else "dcba"
        async with anyio.create_task_group() as tasks:
            for who in order:
                tasks.start_soon(one, who)
        last = (await ctx.ask("input", prompt="last?")).value
        return {"log": " ".join([first, *itertools.chain(*(said[who] for who in "abcd")), last])}

    async with Executor() as executor:
        run = await executor.start(single(work))
        run, prompts = await to_the_end(executor, run, lambda prompt: f"<{prompt}>")
    assert run.output == ["<first?> <a0?> <a1?> <b0?> <b1?> <c0?> <c1?> <d0?> <d1?> <last?>"]
    assert len(prompts) == len(set(prompts)) == 10


async def test_a_changed_prompt_voids_no_answer_of_the_nodes_own_task() -> None:
    words = ["old"]

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt=f"{words[0]}?")).value}

    async with Executor() as executor:
        run = await executor.start(single(work))
        words[0] = "new"
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
    assert run.output == ["yes"]


# -- questions inside of calls -----------------------------------------------------------------------------------------


def careful(ran: Ran, name: str = "careful") -> Any:
    @tool(name=name)
    async def asks_first(amount: int, ctx: Context) -> str:
        """An irreversible tool that asks before it does anything."""
        answer = await ctx.ask("approval", prompt=f"{name} {amount}?")
        if isinstance(answer, Deny):
            return "not done"
        ran.calls.append(f"{name} {amount}")
        return f"{name} {amount} done"

    return asks_first


async def test_an_irreversible_tool_may_ask_first_and_is_asked_about_once() -> None:
    ran = Ran()

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": (await ctx.tool("careful", amount=1)).text}

    async with Executor(tools=[careful(ran)]) as executor:
        run = await executor.start(single(work))
        assert [question.kind for question in run.waiting] == ["approval"]
        run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
    assert run.output == ["careful 1 done"]
    assert ran.calls == ["careful 1"]


@pytest.mark.parametrize("catch", CATCHERS)
@pytest.mark.parametrize("what", ["tool", "node"])
async def test_what_asks_inside_of_a_call_cannot_catch_it_either(catch: Any, what: str) -> None:
    ran = Ran()

    async def done(ctx: Context) -> str:
        said = await catch(lambda: ctx.ask("input", prompt="?"))
        ran.calls.append(said)
        return "done"

    @tool
    async def asks(ctx: Context) -> str:
        """Asks, and catches whatever is raised."""
        return await done(ctx)

    async def work(state: Log, ctx: Context) -> Update:
        return {"log": await done(ctx) if what == "node" else (await ctx.tool("asks")).text}

    graph = single(work, effect="irreversible" if what == "node" else "idempotent")
    async with Executor(tools=[asks]) as executor:
        run = await executor.start(graph)
        assert [question.kind for question in run.waiting] == ["input"]
        ran.calls.clear()
        run = await executor.answer(run.run_id, run.waiting[0].id, "yes")
    assert (run.output, run.waiting) == (["done"], ())
    assert len(ran.calls) == 1


async def test_tools_that_ask_beside_each_other_and_one_that_pays_meanwhile() -> None:
    ran = Ran()

    async def work(state: Log, ctx: Context) -> Update:
        said: dict[int, str] = {}

        async def one(name: str, amount: int) -> None:
            said[amount] = (await ctx.tool(name, amount=amount)).text

        async with anyio.create_task_group() as tasks:
            for name, amount in (("careful", 1), ("other", 2), ("pay", 3)):
                tasks.start_soon(one, name, amount)
        return {"log": " ".join(said[amount] for amount in sorted(said))}

    with anyio.fail_after(20):
        async with Executor(tools=[careful(ran), careful(ran, "other"), ran.pay]) as executor:
            run = await executor.start(single(work))
            kinds: list[str] = []
            while run.status == "paused":
                (question,) = run.waiting
                kinds.append(question.kind)
                run = await executor.answer(run.run_id, question.id, Approve())
    assert run.output == ["careful 1 done other 2 done paid 3"]
    assert kinds == ["approval", "approval"]
    assert sorted(ran.calls) == ["careful 1", "other 2", "pay 3"]


@pytest.mark.parametrize("outer", ["tool", "node"])
async def test_what_was_called_inside_of_a_call_is_not_missed_when_that_call_is_not_made_again(outer: str) -> None:
    ran = Ran()

    @tool
    async def twice(ctx: Context) -> str:
        """Pays through another tool."""
        return f"{(await ctx.tool('pay', amount=1)).text}, {(await ctx.tool('pay', amount=2)).text}"

    async def work(state: Log, ctx: Context) -> Update:
        said = (await ctx.tool("twice")).text if outer == "tool" else (await twice.perform({}, ctx=ctx)).text
        if outer == "tool":
            await ctx.ask("input", prompt="?")
        return {"log": said}

    store = Fails()
    graph = single(work, effect="irreversible" if outer == "node" else "idempotent")
    async with Executor(store, graphs=[graph], tools=[ran.pay, twice]) as executor:
        run = await executor.start(graph, run_id="r")
        if outer == "tool":
            run = await executor.answer("r", run.waiting[0].id, "yes")
    assert run.output == ["paid 1, paid 2"]
    assert ran.calls == ["pay 1", "pay 2"]


async def test_a_loop_of_approvals_counts_each_answer_for_its_own_round() -> None:
    ran = Ran()

    @node
    async def work(state: Log, ctx: Context) -> Outcome[Literal["again", "enough"]]:
        answer = await ctx.ask("approval", payload={"tool": "pay", "args": {"amount": 1}, "risk": "dangerous"})
        if isinstance(answer, Approve):
            await ctx.tool("pay", amount=1)
        return Outcome("again" if state.n < 3 else "enough", n=state.n + 1, log=answer.type)

    graph = Graph(
        name="loop", state=Log, nodes={"work": work}, output="log",
        edges="START -> work\nwork -> work : again\nwork -> END : enough",
    )  # fmt: skip
    async with Executor(tools=[ran.pay]) as executor:
        run = await executor.start(graph)
        seen: set[str] = set()
        for answer in (Approve(), Deny(), Approve(), Deny()):
            (question,) = run.waiting
            assert {question.id, question.digest}.isdisjoint(seen)
            seen |= {question.id, question.digest}
            run = await executor.answer(run.run_id, question.id, answer, digest=question.digest)
    assert run.output == ["approve", "deny", "approve", "deny"]
    assert len(ran.calls) == 2

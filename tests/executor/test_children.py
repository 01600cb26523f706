"""Graphs as tools: what their runs ask, the caller asks; a call that nobody wants any more ends its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Retry, Update, node, tool
from orchestrator.errors import StepError
from orchestrator.nodes import Ask, Subgraph
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


class State(BaseModel):
    word: str = ""
    reply: str = ""


async def _buy(ctx: Context[Any]) -> Update:
    answer = await ctx.ask("approval", prompt="Pay?", payload={"tool": "pay", "args": {"what": "tea"}, "risk": "write"})
    if isinstance(answer, Deny):
        return {"reply": f"not paid: {answer.reason}"}
    what = "tea" if answer.args is None else answer.args["what"]
    return {"word": str((await ctx.tool("pay", what=what)).output)}


def inner() -> Graph:
    """Asks twice: an approval, and a word."""
    return Graph(
        name="inner", state=State, nodes={"buy": node(_buy), "ask": Ask(prompt="For whom?")},
        edges="START -> buy -> ask -> END", input="word", output=["word", "reply"],
    )  # fmt: skip


def outer(inside: Graph, **options: Any) -> tuple[Graph, list[Any]]:
    """A step that calls it twice, and what it calls with."""
    paid: list[str] = []

    @tool(effect="irreversible", risk="write")
    async def pay(what: str) -> str:
        """Pay."""
        paid.append(what)
        return f"{len(paid)}. paid {what}"

    @node(**options)
    async def work(ctx: Context[Any]) -> Update:
        first = await ctx.tool("inside", word="a")
        second = await ctx.tool("inside", word="b")
        return {"reply": f"{first.output} {second.output}"}

    graph = Graph(name="outer", state=State, nodes={"work": work}, edges="START -> work -> END", output="reply")
    return graph, [inside.as_tool("inside", "Works."), pay, paid]


@quick_on("trio")
async def test_what_a_run_inside_asks_its_caller_asks_one_after_the_other(tmp_path: Path) -> None:
    graph, (inside, pay, paid) = outer(inner())
    store = f"sqlite:///{tmp_path}/runs.db"
    answers = [Approve(), "ann", Approve(args={"what": "milk"}), "bob"]
    seen: list[str] = []
    async with Executor(store, graphs=[graph], tools=[inside, pay]) as executor:
        run = await executor.start(graph, run_id="r")
    for answer in answers:
        assert run.status == "paused"
        (question,) = run.waiting
        assert (question.node, question.path) == ("work", "")
        seen.append(question.prompt)
        async with Executor(store, graphs=[graph], tools=[inside, pay]) as executor:
            run = await executor.resume("r")
            assert [one.id for one in run.waiting] == [question.id]
            run = await executor.answer("r", question.id, answer, digest=question.digest)
    assert run.status == "completed", run.error
    assert seen == ["Pay?", "For whom?"] * 2
    assert paid == ["tea", "milk"]
    assert run.output == "{'word': '1. paid tea', 'reply': 'ann'} {'word': '2. paid milk', 'reply': 'bob'}"
    async with Executor(store) as executor:
        page = await executor.runs(labels={"parent": "r"})
        assert [one.status for one in page.runs] == ["completed", "completed"]


async def test_a_policy_of_the_caller_answers_for_the_run_inside() -> None:
    graph, (inside, pay, paid) = outer(inner())
    async with Executor(graphs=[graph], tools=[inside, pay]) as executor:
        run = await executor.start(graph, approve="write")
        assert [question.prompt for question in run.waiting] == ["For whom?"]
        assert paid == ["tea"]


async def test_a_child_that_is_answered_itself_needs_no_answer_of_its_caller() -> None:
    graph, (inside, pay, paid) = outer(inner())
    async with Executor(graphs=[graph], tools=[inside, pay]) as executor:
        run = await executor.start(graph, run_id="r")
        (child,) = (await executor.runs(labels={"parent": "r"})).runs
        own = (await executor.load(child.run_id)).waiting[0]
        await executor.answer(child.run_id, own.id, Deny(reason="no money"))
        run = await executor.answer("r", run.waiting[0].id, Approve())  # too late: it is settled
        assert [question.prompt for question in run.waiting] == ["For whom?"]
        assert paid == []


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_run_inside_that_nobody_wants_any_more_is_cancelled(how: str, tmp_path: Path) -> None:
    begun = anyio.Event()

    @node
    async def hang(ctx: Context[Any]) -> None:
        begun.set()
        await anyio.sleep(60)

    inside = Graph(name="inner", state=State, nodes={"hang": hang}, edges="START -> hang -> END", input="word")
    graph, (inner_tool, pay, _) = outer(inside, **({"timeout": 0.3} if how == "timeout" else {}))
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph], tools=[inner_tool, pay]) as executor:
        run_id = await executor.submit(graph, run_id="r")
        with anyio.fail_after(20):
            await begun.wait()
            run = await (executor.cancel(run_id) if how == "cancel" else executor.wait(run_id))
        assert run.status == ("cancelled" if how == "cancel" else "failed")
        (child,) = (await executor.runs(labels={"parent": "r"})).runs
        assert child.status == "cancelled"
        assert await executor.workers.recoverable() == []


async def test_a_retry_of_the_caller_begins_a_run_of_its_own(tmp_path: Path) -> None:
    inside = Graph(
        name="inner", state=State, nodes={"n": node(lambda state: {"reply": state.word})}, edges="START -> n -> END",
        input="word", output="reply",
    )  # fmt: skip

    @node(retry=Retry(attempts=2, wait=0, on=("ValueError",)))
    async def work(ctx: Context[Any]) -> Update:
        found = await ctx.tool("inside", word="a")
        if ctx.attempt == 1:
            raise ValueError("again")
        return {"reply": found.output}

    graph = Graph(name="outer", state=State, nodes={"work": work}, edges="START -> work -> END", output="reply")
    async with Executor(graphs=[graph], tools=[inside.as_tool("inside", "Works.")]) as executor:
        run = await executor.start(graph, run_id="r")
        assert run.output == "a"
        assert len((await executor.runs(labels={"parent": "r"})).runs) == 2


def asking(name: str, deadline: float | None = None) -> Graph:
    """One step that asks."""

    @node
    async def ask(ctx: Context[Any]) -> Update:
        return {"reply": (await ctx.ask("approval", prompt="Sure?", deadline=deadline)).type}

    return Graph(name=name, state=State, nodes={"ask": ask}, edges="START -> ask -> END", input="word", output="reply")


def calling(name: str, tool_name: str) -> Graph:
    """One step that calls a tool."""

    @node
    async def call(ctx: Context[Any]) -> Update:
        return {"reply": str((await ctx.tool(tool_name, word="a")).output)}

    return Graph(name=name, state=State, nodes={"call": call}, edges="START -> call -> END", output="reply")


@pytest.mark.parametrize("idle", ["awake", "sleep"])
async def test_the_deadline_of_a_question_inside_passes_for_the_caller_and_inside(
    tmp_path: Path, idle: Literal["awake", "sleep"]
) -> None:
    graph = calling("outer", "inner")
    inside = asking("inner", deadline=0.2).as_tool("inner", "Asks.")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph], tools=[inside], idle=idle) as executor:
        run = await executor.start(graph, run_id="r")
        assert all(question.deadline is not None for question in run.waiting)  # it may have passed by now
        await anyio.sleep(0.3)
        with anyio.fail_after(60):
            if idle == "sleep":
                run = await executor.resume("r")  # the caller only: the run inside is left alone
            while run.status != "completed":
                await anyio.sleep(0.05)
                run = await executor.load("r")
        assert (run.status, run.output) == ("completed", "deny")


@pytest.mark.parametrize("how", ["cancel", "elsewhere", "race"])
async def test_a_run_inside_that_asks_what_nobody_wants_to_know_any_more_is_cancelled(how: str, tmp_path: Path) -> None:
    tools = [
        asking("leaf").as_tool("leaf", "Asks."),
        calling("inner", "leaf").as_tool("inner", "Calls."),
    ]
    call = calling("outer", "inner").nodes["call"]
    asked = anyio.Event()

    @node
    async def other(ctx: Context[Any]) -> Update:
        await asked.wait()
        return {"word": "quick"}

    @node
    def nothing() -> None:
        return None

    race = "START -> begin -> call, other -> first -> END"
    graph = Graph(
        name="outer", state=State,
        nodes={"call": call} if how != "race" else {
            "begin": nothing, "call": call, "other": other, "first": nothing.with_(join=1),
        },
        edges=race if how == "race" else "START -> call -> END",
    )  # fmt: skip
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[graph], tools=tools) as executor:
        await executor.submit(graph, run_id="r")
        with anyio.fail_after(20):
            async for event in executor.events("r", follow=True):
                if event.type == "asked":
                    break
        asked.set()
        run = await (executor.cancel("r") if how == "cancel" else executor.wait("r"))
    async with Executor(store) as executor:
        if how == "elsewhere":
            run = await executor.cancel("r")  # without any code
        assert run.status == ("completed" if how == "race" else "cancelled")
        children = [one for one in (await executor.runs()).runs if one.run_id != "r"]
        assert [one.status for one in children] == ["cancelled", "cancelled"]
        assert [(await executor.load(one.run_id)).waiting for one in children] == [(), ()]


async def test_bad_arguments_that_nobody_could_check_are_asked_about_again(tmp_path: Path) -> None:
    graph, (inside, pay, paid) = outer(inner())
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(store, graphs=[graph], tools=[inside, pay]) as executor:
        run = await executor.start(graph, run_id="r")
    async with Executor(store) as bare:  # has no tools to check by
        await bare.answer("r", run.waiting[0].id, Approve(args={"what": 5, "more": 1}), resume=False)
    async with Executor(store, graphs=[graph], tools=[inside, pay]) as executor:
        run = await executor.resume("r")
        assert run.status == "paused"
        assert "more" in run.waiting[0].prompt
        run = await executor.answer("r", run.waiting[0].id, Approve(args={"what": "milk"}))
        assert paid == ["milk"]
        assert [question.prompt for question in run.waiting] == ["For whom?"]


async def _call_inside(ctx: Context[Any]) -> Update:
    found = await ctx.tool("inside", word="a")
    if found.failed:
        raise StepError("broken inside")
    return {"reply": found.output}


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
@pytest.mark.parametrize("breaks", ["inside", "after"])
@pytest.mark.parametrize("how", ["tool", "subgraph", "two deep"])
async def test_a_retry_around_a_graph_that_paid_does_not_pay_again(
    how: str, breaks: str, store: str, tmp_path: Path
) -> None:
    paid: list[str] = []
    again = Retry(attempts=3, wait=0, on=("StepError",))

    @tool(effect="irreversible", risk="none")
    async def pay() -> str:
        """Pay."""
        paid.append("x")
        return f"paid {len(paid)}"

    @node
    async def pays(ctx: Context[Any]) -> Update:
        return {"reply": str((await ctx.tool("pay")).output)}

    @node
    async def end(ctx: Context[Any]) -> None:
        if breaks == "inside":
            raise StepError("broken inside")

    inside = Graph(
        name="inner", state=State, nodes={"pays": pays, "end": end}, edges="START -> pays -> end -> END", input="word",
        output="reply",
    )  # fmt: skip

    between = Graph(
        name="between", state=State, nodes={"call": node(_call_inside)}, edges="START -> call -> END", input="word",
        output="reply",
    )  # fmt: skip

    @node(retry=again)
    async def work(ctx: Context[Any]) -> Update:
        found = await ctx.tool("inside" if how == "tool" else "between", word="a")
        if found.failed or ctx.attempt < 3:
            raise StepError("again")
        return {"reply": found.output}

    sub = Subgraph(inside, outputs={"reply": "reply"}, retry=again)
    graph = Graph(
        name="outer", state=State, nodes={"work": sub if how == "subgraph" else work}, edges="START -> work -> END",
        output="reply",
    )  # fmt: skip
    url = f"sqlite:///{tmp_path}/runs.db" if store == "sqlite" else store
    tools = [inside.as_tool("inside", "Works."), between.as_tool("between", "Works.")]
    async with Executor(url, graphs=[graph], tools=[*tools, pay]) as executor:
        run = await executor.start(graph)
    assert paid == ["x"]
    assert (run.status, run.output) == (("completed", "paid 1") if breaks == "after" else ("failed", None))
    if how == "subgraph" and breaks == "inside":
        assert "not tried again: what was done inside cannot be undone" in str(run.error)

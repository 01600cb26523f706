"""Forks of runs that wait for an answer inside a graph that they call as a tool: the answer counts for the call."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Deny, Executor, Graph, Run, Update, node, tool
from orchestrator.nodes import Ask, Complete, Confirm, Execute
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


class Mail(BaseModel):
    to: str = ""
    body: str = ""
    tool: str = "mail"
    args: dict[str, Any] = {"to": "ann"}
    result: Any = None
    reason: str = ""
    word: str = ""


class State(BaseModel):
    reply: str = ""


def post(sent: list[str]) -> Graph:
    """Asks about a mail, sends it, and asks for a word."""

    @tool(risk="write", effect="irreversible")
    def mail(to: str) -> str:
        """Mail."""
        sent.append(to)
        return f"mailed {to}"

    return Graph(
        name="post", state=Mail, input="to", output=("result", "reason", "word"),
        nodes={
            "draft": Complete(prompt="Write to {to}.", result="body"),
            "confirm": Confirm(tool="tool", args="args", show=("body",), reason="reason", tools=[mail]),
            "send": Execute(tool="tool", args="args", result="result", tools=[mail]),
            "last": Ask(prompt="A word?", answer="word"),
        },
        edges="START -> draft -> confirm\nconfirm -> send : approved\nconfirm -> last : denied\nsend -> last -> END",
    )  # fmt: skip


def waits(sent: list[str]) -> Graph:
    """The same without a call before its first question."""
    graph = post(sent)
    nodes = {name: one for name, one in graph.nodes.items() if name != "draft"}
    edges = "START -> confirm\nconfirm -> send : approved\nconfirm -> last : denied\nsend -> last -> END"
    return Graph(name="post", state=Mail, input="to", output=("result", "reason", "word"), nodes=nodes, edges=edges)


def calling(inside: Graph, name: str = "outer") -> Graph:
    """A graph whose step calls another one as a tool."""
    inner = inside.as_tool("inner", "Works.", risk="none")

    @node(tools=[inner])
    async def call(ctx: Context[Any]) -> Update:
        names: Any = inner.parameters["properties"]
        return {"reply": str((await ctx.tool("inner", **({"to": "x"} if "to" in names else {}))).output)}

    return Graph(name=name, state=State, nodes={"call": call}, edges="START -> call -> END", input=(), output="reply")


async def first_answer(executor: Executor, run: Run, answer: object) -> Run:
    """Answer the only question of a run."""
    (question,) = run.waiting
    return await executor.answer(run.run_id, question.id, answer, digest=question.digest)


def has(run: Run, *words: str) -> bool:
    """Whether a run completed, and its output has these words."""
    return run.status == "completed" and all(word in str(run.output) for word in words)


@pytest.mark.parametrize(
    ("answer", "expected", "mailed"),
    [
        (Approve(), "mailed ann", ["ann"]),
        (Approve(args={"to": "bob"}), "mailed bob", ["bob"]),
        (Deny(reason="never"), "never", []),
    ],
    ids=["approve", "edited", "deny"],
)
@pytest.mark.parametrize("given", ["later", "with the fork"])
async def test_an_answer_to_a_fork_counts_for_the_call_inside(
    given: str, answer: object, expected: str, mailed: list[str]
) -> None:
    sent: list[str] = []
    graph = calling(waits(sent))
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        (question,) = run.waiting
        if given == "later":
            fork = await first_answer(executor, await executor.fork("r", run_id="f"), answer)
        else:
            fork = await executor.fork("r", run_id="f", answers={question.id: answer})
        assert [one.prompt for one in fork.waiting] == ["A word?"]
        fork = await first_answer(executor, fork, "w")
        assert has(fork, expected, "'word': 'w'")
        assert sent == mailed
        assert (await executor.load("r")).waiting == (question,)  # the parent, and its call, are as they were


async def test_a_call_is_forked_behind_what_its_question_shows() -> None:
    sent: list[str] = []
    graph = calling(post(sent))
    with ScriptedModel(["Dear X"]) as model:
        async with Executor(graphs=[graph], model=model) as executor:
            run = await executor.start(graph, run_id="r")
            fork = await executor.fork("r", run_id="f")
            assert fork.waiting[0].payload == run.waiting[0].payload
            fork = await first_answer(executor, fork, Approve())
            assert [one.prompt for one in fork.waiting] == ["A word?"]
            assert sent == ["ann"]  # the model was asked once, in the parent


async def test_forks_of_forks_at_each_question_and_answer_ask_nothing_twice() -> None:
    sent: list[str] = []
    graph = calling(calling(waits(sent), "between"))  # two calls deep
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        one = await executor.fork("r", run_id="one", start=False)
        two = await executor.fork("one", run_id="two", at=run.seq, start=False)  # before the first fork began
        three = await executor.fork("two", run_id="three", start=False)
        for name in (one.run_id, two.run_id, three.run_id):
            fork = await executor.load(name)
            (question,) = [each for each in fork.waiting if each.kind == "approval"]
            fork = await executor.answer(name, question.id, Deny(reason=name))
            assert [each.prompt for each in fork.waiting] == ["A word?"]
            later = await executor.fork(name, run_id=f"{name}-later")
            assert [each.prompt for each in later.waiting] == ["A word?"]
            later = await first_answer(executor, later, "w")
            assert has(later, f"'reason': '{name}'")
        assert sent == []
        assert [each.prompt for each in (await executor.load("r")).waiting] == ["Call mail?"]


async def test_a_call_whose_run_is_deleted_begins_again() -> None:
    sent: list[str] = []
    graph = calling(waits(sent))
    async with Executor(graphs=[graph]) as executor:
        run = await executor.start(graph, run_id="r")
        (child,) = (await executor.runs(labels={"parent": "r"})).runs
        await executor.cancel("r")
        await executor.delete(child.run_id)
        fork = await first_answer(executor, await executor.fork("r", at=run.seq, run_id="f"), Deny(reason="no"))
        assert [one.prompt for one in fork.waiting] == ["Call mail?"]  # of a new run
        fork = await first_answer(executor, fork, Deny(reason="no"))
        assert [one.prompt for one in fork.waiting] == ["A word?"]

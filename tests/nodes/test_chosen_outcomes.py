"""Outcomes that tools choose, and outcomes by which the graph inside a node ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import (
    Approve,
    Context,
    Deny,
    Executor,
    Graph,
    Limits,
    Message,
    Outcome,
    ToolCall,
    ToolResult,
    handoff,
    node,
    tool,
)
from orchestrator.errors import GraphError, InvalidGraph, NotSerialisable
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Complete, Confirm, Execute, Respond, Subgraph
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def look(topic: str) -> ToolResult:
    """Look a topic up."""
    if topic == "broken":
        return ToolResult(error="nothing found", outcome="billing")
    return ToolResult(output=topic, outcome=topic if topic in ("billing", "legal", "nowhere") else None)


@tool(risk="none", effect="pure", ends=True)
def finish() -> str:
    """End the work."""
    return "over"


class Calls(BaseModel):
    pending: list[ToolCall] = []
    observations: list[Message] = []
    taken: str = ""


def goes(name: str) -> Any:
    @node
    def go(state: Calls, ctx: Context) -> dict[str, object]:
        return {"taken": name if ctx.error is None else f"{name}: {ctx.error.type}"}

    return go


def routing(it: Execute) -> Graph:
    names = ("done", "finished", "failed", "billing", "legal")
    edges = "\n".join(f"it -> {name} : {name}\n{name} -> END" for name in names)
    return Graph(
        name="g",
        state=Calls,
        nodes={"it": it, **{name: goes(name) for name in names}},
        edges=f"START -> it\n{edges}",
    )


MANY = Execute(calls="pending", results="observations", outcomes=("billing", "legal"))


@pytest.mark.parametrize(
    ("calls", "taken"),
    [
        (["weather"], "done"),
        (["billing"], "billing"),
        (["weather", "legal", "billing"], "legal"),
        (["finish", "billing"], "billing"),
        (["finish", "weather"], "finished"),
        (["legal", "broken"], "failed: ToolFailed"),
    ],
)
async def test_the_first_call_that_chose_an_outcome_decides(calls: list[str], taken: str) -> None:
    pending = [
        ToolCall(id=str(n), name="finish", arguments={})
        if call == "finish"
        else ToolCall(id=str(n), name="look", arguments={"topic": call})
        for n, call in enumerate(calls)
    ]
    async with executing(tools=(look, finish)) as (executor, _):
        found = await executor.start(routing(MANY), {"pending": pending})
    assert found.values["taken"] == taken
    assert len(found.values["observations"]) == len(calls)


async def test_a_failed_call_chooses_nothing() -> None:
    graph = Graph(
        name="g", state=Calls, nodes={"it": MANY.with_(on_failure="observe"), "next": goes("next")},
        edges="START -> it\nit -> next : done\nit -> END\nnext -> END",
    )  # fmt: skip
    async with executing(tools=(look,)) as (executor, _):
        call = ToolCall(id="c", name="look", arguments={"topic": "broken"})
        found = await executor.start(graph, {"pending": [call]})
    assert found.values["taken"] == "next"


async def test_an_outcome_that_is_not_declared_is_an_error_that_says_where() -> None:
    async with executing(tools=(look,)) as (executor, _):
        call = ToolCall(id="c", name="look", arguments={"topic": "nowhere"})
        found = await executor.start(routing(MANY), {"pending": [call]})
    assert error_of(found) == (
        "InvalidOutcome",
        (
            "it: tool look chose outcome 'nowhere', which it does not declare: it has 'done', 'finished', 'billing', "
            "'legal'; add it to Execute(outcomes=...), and an edge for it"
        ),
    )


def test_failed_is_no_outcome_that_tools_choose_and_done_needs_no_naming() -> None:
    with pytest.raises(ValidationError, match="'failed' is an outcome of every Execute"):
        Execute(outcomes=("failed",))
    assert Execute(outcomes=("done", "finished")) == Execute()
    assert Execute(outcomes=("billing",)).with_(join="each").outcomes == ("done", "finished", "billing")
    with pytest.raises(InvalidGraph, match="outcome 'billing' of it has no edge"):
        Graph(
            name="g",
            state=Execute.State,
            nodes={"it": Execute(outcomes=("billing",))},
            edges="START -> it\nit -> END : done\nit -> END : finished",
        )


# -- handing over ----------------------------------------------------------------------------------------------------


class Desk(Respond.State):
    question: str = "Why was I charged twice?"


TRANSFERS = (handoff("billing", "Questions about money."), handoff("legal", "Contracts.", name="ask_a_lawyer"))


def desk() -> Graph:
    return Graph(
        name="desk",
        state=Desk,
        nodes={
            "hello": Respond(question="question", tools=TRANSFERS),
            "act": Execute(calls="pending", results="messages", outcomes=("billing", "legal"), tools=TRANSFERS),
            "billing": Respond(tools_offered=False, tools=()),
            "lawyer": Respond(tools_offered=False, tools=()),
        },
        edges="""
            START -> hello
            hello -> END : answer
            hello -> act : calls
            act -> billing : billing
            act -> lawyer : legal
            act -> hello
            billing, lawyer -> END
        """,
        output="answer",
    )


def script() -> dict[str, Any]:
    call = ToolCall(id="c", name="transfer_to_billing", arguments={"message": "charged twice"})
    return {"hello": [[call]], "billing": ["We refund it."]}


async def test_a_handoff_chooses_the_next_agent_which_sees_the_conversation(tmp_path: Path) -> None:
    async with executing(script()) as (executor, model):
        found = await executor.start(desk())
    assert (found.output, found.status) == ("We refund it.", "completed")
    assert model.requests[1].messages[-1].content == "Handed over to billing. charged twice"
    assert [tool["function"]["name"] for tool in model.requests[0].tools] == ["transfer_to_billing", "ask_a_lawyer"]
    path = tmp_path / "desk.yaml"
    desk().save(path)
    again = Graph.load(path)
    assert again.content == desk().content
    async with executing(script()) as (executor, _):
        assert (await executor.start(again)).output == "We refund it."


@pytest.mark.full
async def test_a_handoff_survives_crashes() -> None:
    report = await assert_crash_safe(desk(), setup=lambda: {"model": ScriptedModel(script())})
    assert report.stops > 4


def test_an_outcome_that_no_edge_can_name_is_refused() -> None:
    with pytest.raises(ValueError, match="outcome 'a b' cannot be named by an edge"):
        handoff("a b", "Never.")
    with pytest.raises(ValueError, match="outcome 'failed' is reserved: no tool can choose it"):
        handoff("failed", "Never.")


# -- tools that are data ---------------------------------------------------------------------------------------------


class Asked(BaseModel):
    question: str = ""
    reply: str = ""


def expert() -> Graph:
    return Graph(
        name="expert",
        state=Asked,
        nodes={"say": Complete(system="You know money.")},
        edges="START -> say -> END",
        input="question",
        output="reply",
    )


def lead(**options: Any) -> Graph:
    tools = (expert().as_tool("ask_expert", "Asks about money.", risk="none", limits=Limits(calls=3), depth=2),)
    return Graph(
        name="lead",
        state=Desk,
        nodes={
            "hello": Respond(question="question", tools=tools),
            "act": Execute(calls="pending", results="messages", tools=tools),
        },
        edges="START -> hello\nhello -> END : answer\nhello -> act : calls\nact -> hello",
        output="answer",
        **options,
    )


async def test_graphs_that_nodes_have_as_tools_are_part_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "lead.yaml"
    lead().save(path)
    again = Graph.load(path)
    assert again.content == lead().content
    call = ToolCall(id="c", name="ask_expert", arguments={"question": "why"})
    async with executing({"hello": [[call], "Because."], "say": ["A mistake."]}) as (executor, _):
        found = await executor.start(again)
    assert found.output == "Because."
    assert found.values["messages"][2]["content"] == "A mistake."


@pytest.mark.full
def test_graphs_that_are_tools_of_each_other_stay_small_as_data(tmp_path: Path) -> None:
    """Two nodes with one tool double what is inside with each level."""
    graph = expert()
    sizes: list[int] = []
    for number in range(40):
        tools = (graph.as_tool("next", "Asks the next one.", risk="none"),)
        graph = Graph(
            name=f"level{number}",
            state=Desk,
            nodes={
                "hello": Respond(question="question", tools=tools),
                "act": Execute(calls="pending", results="messages", tools=tools),
            },
            edges="START -> hello\nhello -> END : answer\nhello -> act : calls\nact -> hello",
            output="answer",
        )
        sizes.append(len(json.dumps(graph.data())))
    assert max(sizes) < 200_000
    assert sizes[2] > 4 * sizes[0]
    with pytest.raises(NotSerialisable, match="has its own tool that a file cannot refer to"):
        graph.save(tmp_path / "g.yaml")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "and this is empty"),
        ({"name": "x"}, "and this is name"),
        ({"handoff": "a", "graph": {}}, "and this is handoff, graph"),
        ({"handoff": "a"}, "description"),
        ({"handoff": "a b", "description": "d"}, "cannot be named by an edge"),
        ({"graph": 3, "name": "n", "description": "d"}, "'graph' must be a mapping, or module:attr"),
        ({"graph": {"name": "n"}, "name": "n", "description": "d"}, "needs 'state'"),
        ({"handoff": "a", "description": "d", "color": "red"}, "color"),
    ],
)
def test_data_of_a_tool_that_cannot_be_read_is_named(entry: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = {
        "name": "g",
        "state": {"name": "S", "fields": {"tool": "str", "args": {"type": "dict", "default": {}}}},
        "nodes": {"it": {"kind": "execute", "result": None, "tools": [entry]}},
        "edges": "START -> it -> END",
    }
    path = tmp_path / "g.json"
    path.write_text(json.dumps(data))
    with pytest.raises(GraphError, match="it") as caught:
        Graph.load(path)
    assert words in str(caught.value)


# -- subgraphs -------------------------------------------------------------------------------------------------------


class Text(BaseModel):
    text: str = "draft"
    verdict: str = ""
    parts: list[str] = []


@node
def judge(state: Text) -> Outcome[Literal["good", "bad", "odd"]]:
    return Outcome(state.text if state.text in ("good", "bad") else "odd")  # type: ignore[arg-type]


@node
def note(state: Text) -> dict[str, object]:
    return {"verdict": "noted"}


def inner(edges: str = "START -> judge -> END", **options: Any) -> Graph:
    return Graph(name="inner", state=Text, nodes={"judge": judge}, edges=edges, **options)


def outer(sub: Subgraph, edges: str) -> Graph:
    def says(word: str) -> Any:
        @node
        def say(state: Text, ctx: Context) -> dict[str, object]:
            return {"verdict": word if ctx.error is None else f"{word}: {ctx.error.type}"}

        return say

    names = [name for name in ("yes", "no", "else") if f"> {name}" in edges]
    ends = "\n".join(f"{name} -> END" for name in names)
    nodes = {"sub": sub, **{name: says(name) for name in names}}
    return Graph(name="outer", state=Text, nodes=nodes, edges=f"START -> sub\n{edges}\n{ends}")


WAYS = "sub -> yes : good\nsub -> no : bad\nsub -> else : odd"
ALL = ("good", "bad", "odd")
INS = {"text": "text"}


@pytest.mark.parametrize(("text", "verdict"), [("good", "yes"), ("bad", "no"), ("strange", "else")])
@pytest.mark.parametrize("end", ["END", "STOP"])
async def test_a_subgraph_takes_the_outcome_by_which_its_end_was_entered(text: str, verdict: str, end: str) -> None:
    sub = Subgraph(inner(f"START -> judge -> {end}" if end == "END" else "START -> judge\njudge -> END : bad\n"
                         "judge -> STOP : good\njudge -> STOP : odd"), inputs=INS, outcomes=ALL)  # fmt: skip
    async with Executor() as executor:
        found = await executor.start(outer(sub, WAYS), {"text": text})
    assert found.values["verdict"] == verdict


async def test_done_stands_for_all_others() -> None:
    sub = Subgraph(inner(), inputs=INS, outcomes=("good", "done"))
    async with Executor() as executor:
        for text, verdict in (("good", "yes"), ("bad", "else"), ("strange", "else")):
            found = await executor.start(outer(sub, "sub -> yes : good\nsub -> else"), {"text": text})
            assert found.values["verdict"] == verdict


@node
def split(state: Text) -> None: ...


async def test_of_several_branches_the_outcome_named_first_counts() -> None:
    branches = Graph(
        name="branches",
        state=Text,
        nodes={"split": split, "a": judge.with_(), "b": note},
        edges="START -> split -> a, b\na, b -> END",
    )
    for outcomes, verdict in ((("done", *ALL), "else"), ((*ALL, "done"), "yes")):
        sub = Subgraph(branches, inputs=INS, outcomes=outcomes)
        async with Executor() as executor:
            found = await executor.start(outer(sub, f"{WAYS}\nsub -> else : done"), {"text": "good"})
        assert found.values["verdict"] == verdict


@pytest.mark.parametrize(
    ("outcomes", "problem"),
    [
        (("good", "bad"), "END of graph inner is entered by odd, which outcomes= of sub leaves out: add it, or 'done'"),
        (("god", "done"), "sub declares outcome 'god', by which END of its graph inner is never entered: did you mean"),
        (("error", "done"), "sub declares outcome 'error', which every node has"),
    ],
)
def test_outcomes_that_the_graph_inside_has_not_are_refused(outcomes: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InvalidGraph) as caught:
        outer(Subgraph(inner(), outcomes=outcomes), "sub -> END")
    assert problem in str(caught.value)


async def test_a_graph_that_spent_its_limit_takes_exhausted_else_what_it_reached_else_fails() -> None:
    spent = inner(
        "START -> judge\njudge -> judge : odd\njudge -> END : good\njudge -> END : bad", limits=Limits(steps=3)
    )
    sub = Subgraph(spent, inputs=INS, outcomes=("good", "bad"))
    two = "sub -> yes : good\nsub -> no : bad"
    async with Executor() as executor:
        found = await executor.start(outer(sub, f"{two}\nsub -> else : error, exhausted"), {"text": "strange"})
        assert found.values["verdict"] == "else: LimitSpent"
        fails = await executor.start(outer(sub, two), {"text": "strange"})
    assert error_of(fails)[0] == "LimitSpent"


class Empty(Text):
    pass


async def test_a_map_without_items_gives_no_outcome_but_done() -> None:
    mapping = Graph(
        name="mapping", state=Text, nodes={"split": split, "judge": judge},
        edges="START -> split -> judge : each parts\njudge -> END",
    )  # fmt: skip
    async with Executor() as executor:
        strict = await executor.start(outer(Subgraph(mapping, outcomes=ALL), WAYS))
        assert "entered by no outcome: a map had no items" in error_of(strict)[1]
        lenient = Subgraph(mapping, outcomes=(*ALL, "done"))
        assert (await executor.start(outer(lenient, f"{WAYS}\nsub -> else : done"))).values["verdict"] == "else"


class Draft(BaseModel):
    text: str = "draft"
    reason: str = ""


async def test_a_question_inside_decides_the_outcome_and_no_crash_changes_it(tmp_path: Path) -> None:
    ask = Graph(
        name="ask", state=Draft, nodes={"ask": Confirm(prompt="Send?", show=("text",), reason="reason")},
        edges="START -> ask -> END",
    )  # fmt: skip
    sub = Subgraph(ask, inputs={"text": "text"}, outputs={"reason": "reason"}, outcomes=("approved", "denied"))
    graph = Graph(
        name="outer", state=Draft, nodes={"sub": sub}, edges="START -> sub\nsub -> END : approved\nsub -> END : denied"
    )
    report = await assert_crash_safe(graph, {}, answer=lambda question: Deny(reason="no"))
    assert report.stops > 2
    path = tmp_path / "g.yaml"
    graph.save(path)
    assert "outcomes:" in path.read_text()
    assert Graph.load(path).content == graph.content
    assert Graph.from_data(graph.data()).structure == graph.structure


async def test_snapshots_keep_the_outcomes_by_which_ends_were_entered(tmp_path: Path) -> None:
    """Another executor goes on from what is stored, with one branch ended and one that waits for an answer."""
    branches = Graph(
        name="branches", state=Draft,
        nodes={"split": split_draft, "judge": said, "ask": Confirm(prompt="Send?")},
        edges="START -> split -> judge, ask\njudge, ask -> END",
    )  # fmt: skip
    sub = Subgraph(branches, outcomes=("good", "approved", "denied"))
    edges = "\n".join(f"sub -> END : {one}" for one in sub.outcomes)
    graph = Graph(name="outer", state=Draft, nodes={"sub": sub}, edges=f"START -> sub\n{edges}")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        found = await executor.start(graph, {})
        assert found.status == "paused"
        assert found.machine is not None
        again = load(found.machine.plan, dump(found.machine))
        (frame,) = again.inner_frames.values()
        assert frame.entered == {"good"}
    async with Executor(url, graphs=[graph]) as executor:
        found = await executor.answer(found.run_id, found.waiting[0].id, Approve())
        points = await executor.history(found.run_id)
    assert (found.status, points[-1].outcome) == ("completed", "good")


@node
def split_draft(state: Draft) -> None: ...


@node
def said(state: Draft) -> Outcome[Literal["good"]]:
    return Outcome("good")


# -- lists of outcomes on an edge ------------------------------------------------------------------------------------


@node
def breaks(state: Text) -> None:
    raise ValueError("broken")


@node
def loops(state: Text) -> None: ...


@node
def clean(state: Text, ctx: Context) -> dict[str, object]:
    return {"verdict": "clean" if ctx.error is None else ctx.error.type}


@pytest.mark.parametrize(("first", "error"), [(breaks, "ValueError"), (loops, "LimitSpent")])
async def test_one_edge_takes_errors_and_spent_limits(first: Any, error: str) -> None:
    edges = "START -> work -> work\n* -> clean : error, exhausted\nclean -> END"
    graph = Graph(name="g", state=Text, nodes={"work": first, "clean": clean}, edges=edges, limits=Limits(steps=3))
    async with Executor() as executor:
        found = await executor.start(graph, {})
    assert found.values["verdict"] == error

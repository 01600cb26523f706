"""The contract of subgraphs, and of graphs as tools."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Limits, Update, append, node
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Node
from orchestrator.nodes import ITEM, Confirm, Subgraph
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio


def gives(update: Any) -> Node:
    return node(effect="pure")(lambda state: update)


class Inner(BaseModel):
    query: str
    lang: str = "en"
    notes: Annotated[list[str], append] = []
    secret: int = 0


class Outer(BaseModel):
    questions: list[str] = []
    language: str = "de"
    findings: Annotated[list[list[str]], append] = []


@node(effect="pure")
def look(state: Inner) -> Update:
    return {"notes": f"{state.query}/{state.lang}", "secret": 1}


def inner(*, confirm: bool = False, limits: Limits | None = None) -> Graph:
    nodes: dict[str, Any] = {"look": look}
    edges = "START -> look -> END"
    if confirm:
        nodes["sure"] = Confirm(prompt="Sure?")
        edges = "START -> look -> sure\nsure -> END"
    return Graph(name="inner", state=Inner, input="query", nodes=nodes, edges=edges, output="notes", limits=limits)


def outer(graph: Graph, **options: Any) -> Graph:
    sub = Subgraph(graph, inputs={"query": ITEM, "lang": "language"}, outputs={"findings": "notes"}, **options)
    return Graph(
        name="outer", state=Outer, nodes={"plan": gives(None), "search": sub, "j": gives(None).with_(join="all")},
        edges="START -> plan -> search : each questions\nsearch -> j -> END", output="findings",
    )  # fmt: skip


async def test_a_subgraph_runs_in_the_same_journal_under_a_path() -> None:
    async with Executor() as ex:
        run = await ex.start(outer(inner()), {"questions": ["a", "b"]})
        assert run.output == [["a/de"], ["b/de"]]
        events = [event async for event in ex.events(run.run_id)]
        assert {event.run_id for event in events} == {run.run_id}
        assert [run.run_id for run in (await ex.runs()).runs] == [run.run_id]
        paths = {event.path for event in events if event.node == "look"}
        assert paths == {"plan.0/search", "plan.1/search"}
        assert "look" in run.to_svg()


def nested(graph: Graph, depth: int) -> Graph:
    for level in range(depth):
        graph = Graph(
            name=f"level{level}",
            state=Inner,
            input="query",
            output="lang",
            limits=Limits(steps=None),
            nodes={"in": Subgraph(graph, inputs={"query": "query"}, outputs={"lang": "lang"})},
            edges="START -> in -> END",
        )
    return graph


@pytest.mark.parametrize("depth", [1, 4])
async def test_pause_confirm_and_drawing_go_through_a_subgraph_at_any_depth(depth: int) -> None:
    graph = nested(inner(confirm=True), depth)
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph, "q")
        assert run.status == "paused"
        (question,) = run.waiting
        assert (question.kind, question.node, question.path) == ("approval", "sure", "/".join(["in"] * depth))
        assert "sure" in run.to_svg()
        assert "sure" in graph.to_svg()
        run = await ex.answer(run.run_id, question.id, Approve())
        assert (run.status, run.output) == ("completed", "en")


@pytest.mark.parametrize("depth", [1, 4])
async def test_limits_go_through_a_subgraph_at_any_depth(depth: int) -> None:
    graph = nested(
        Graph(
            name="loop",
            state=Inner,
            input="query",
            nodes={"look": look},
            edges="START -> look -> look\nlook -> END : error",
        ),
        depth,
    )
    run = await graph.run("q", limits=Limits(steps=depth + 5))
    assert (run.status, run.steps) == ("exhausted", 5)


async def test_several_questions_inside_are_answered_one_by_one() -> None:
    graph = outer(inner(confirm=True))
    async with Executor(graphs=[graph]) as ex:
        run = await ex.start(graph, {"questions": ["a", "b"]})
        assert run.status == "paused"
        asked = {question.path: question.id for question in run.waiting}
        assert asked.keys() == {"plan.0/search", "plan.1/search"}
        run = await ex.answer(run.run_id, asked["plan.1/search"], Approve())
        assert (run.status, [question.path for question in run.waiting]) == ("paused", ["plan.0/search"])
        run = await ex.answer(run.run_id, asked["plan.0/search"], Approve())
        assert (run.status, run.output) == ("completed", [["a/de"], ["b/de"]])


async def test_a_subgraph_takes_model_and_tools() -> None:
    @node
    async def ask(state: Inner, ctx: Context) -> Update:
        return {"notes": (await ctx.model.complete("?")).text}

    graph = Graph(
        name="asks", state=Inner, input="query", nodes={"ask": ask}, edges="START -> ask -> END", output="notes"
    )
    with ScriptedModel([]) as dear, ScriptedModel(["cheap"]) as cheap:
        run = await outer(graph, model="cheap").run({"questions": ["a"]}, model=dear, models={"cheap": cheap})
    assert run.output == [["cheap"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": {"query": "questionz"}}, "'questionz'"),
        ({"inputs": {"quary": "language"}}, "'quary'"),
        ({"inputs": {"query": ITEM}, "outputs": {"findings": "nots"}}, "'nots'"),
        ({"inputs": {"query": ITEM}, "outputs": {"finding": "notes"}}, "'finding'"),
        ({"inputs": {}}, "'query', which has no default"),
    ],
)
def test_fields_of_a_subgraph_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidGraph, match=words):
        Graph(name="g", state=Outer, nodes={"s": Subgraph(inner(), **options)}, edges="START -> s -> END")


async def test_a_graph_is_a_tool() -> None:
    made = inner().as_tool("search", "Looks for something.")
    assert (made.name, made.description) == ("search", "Looks for something.")
    assert made.to_param()["function"]["parameters"]["required"] == ["query"]

    @node
    async def work(ctx: Context) -> Update:
        result = await ctx.tool("search", query="x")
        return {"findings": result.output}

    graph = Graph(name="g", state=Outer, nodes={"work": work}, edges="START -> work -> END", output="findings")
    assert (await graph.run(tools=[made])).output == [["x/en"]]

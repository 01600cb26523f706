"""One setting for all nodes that it is about: `graph.with_tools` and `graph.with_model`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Context, Executor, Graph, Update, node, tool
from orchestrator.errors import GraphUnknown
from orchestrator.graph import Node
from orchestrator.models.messages import Reply
from orchestrator.nodes import Ask, Complete, Confirm, Execute, Plan, Subgraph
from orchestrator.nodes import Call as CallNode
from orchestrator.strategies import chat, plan_and_solve, react, rewoo, tool_user
from orchestrator.testing import ScriptedModel


class State(BaseModel):
    question: str = "why?"
    reply: str = ""
    steps: list[str] = []


@tool(risk="none")
def look(what: str) -> str:
    """Look something up."""
    return what


@tool(risk="write")
def put(what: str) -> str:
    """Put something down."""
    return what


@node
async def says(state: State, ctx: Context) -> Update:
    """A function that asks a model."""
    return {"reply": (await ctx.model.complete(state.question)).text}


@node(tools=["look"])
async def looks(state: State, ctx: Context) -> Update:
    """A function that calls tools."""
    return {"reply": (await ctx.tool("look", {"what": "it"})).text}


@node
def told(state: State, ctx: Context) -> Update:
    """A function that has the context for its error, and can await nothing."""
    return {"reply": str(ctx.error)}


@node
def plain(state: State) -> Update:
    return {"reply": "x"}


class Judge(Node, kind="judge_sample"):
    """A kind of the user's, which asks a model and sees no tools."""

    asks = "model"

    @property
    def sees_tools(self) -> bool:
        return False

    async def run(self, state: object, ctx: Context) -> Update:
        return {"reply": (await ctx.model.complete("judge")).text}


class Reach(Node, kind="reach_sample"):
    """A kind of the user's that says nothing of itself: it may call tools."""

    async def run(self, state: object, ctx: Context) -> None:
        return None


NODES = {
    "says": says, "looks": looks, "told": told, "plain": plain, "judge": Judge(), "reach": Reach(), "plan": Plan(),
    "complete": Complete(), "ask": Ask(prompt="?"), "call": CallNode(ref="tests.graph.sample:plain"),
}  # fmt: skip


def flat() -> Graph[State]:
    return Graph(name="flat", state=State, nodes=NODES, edges=f"START -> {' -> '.join(NODES)} -> END", output="reply")


def nodes_of(graph: object, path: str = "") -> Iterator[tuple[str, Node]]:
    """All nodes, also inside subgraphs, by their paths."""
    assert isinstance(graph, Graph)
    for name, found in graph.nodes.items():
        if found.subgraph is None:
            yield f"{path}{name}", found
        else:
            yield from nodes_of(found.subgraph, f"{path}{name}/")


def test_a_model_is_set_where_one_is_asked_and_nowhere_else() -> None:
    graph = flat().with_model("cheap")
    assert {name for name, found in graph.nodes.items() if found.model == "cheap"} == {
        "says", "looks", "judge", "plan", "complete",
    }  # fmt: skip
    assert all(found.model is None for found in graph.with_model(None).nodes.values())
    assert graph.structure == flat().structure
    assert graph.content != flat().content


def test_tools_are_set_where_they_are_seen_and_nowhere_else() -> None:
    graph = flat().with_tools([put, "look"])
    assert {name for name, found in graph.nodes.items() if found.tools == ("put", "look")} == {
        "looks", "reach", "plan",
    }  # fmt: skip
    assert graph.nodes["plan"].toolset == (put, "look")
    assert graph.with_tools(None).nodes["plan"].tools is None


def test_both_reach_into_subgraphs_and_leave_the_old_graph_as_it_is() -> None:
    inner = flat()
    middle = Graph(name="middle", state=State, nodes={"flat": Subgraph(inner)}, edges="START -> flat -> END")
    outer = Graph(name="outer", state=State, nodes={"middle": Subgraph(middle)}, edges="START -> middle -> END")
    changed = dict(nodes_of(outer.with_tools({"look"}).with_model("cheap")))
    assert changed["middle/flat/judge"].model == "cheap"
    assert changed["middle/flat/plan"].tools == changed["middle/flat/looks"].tools == ("look",)
    assert all(found.model is None for _, found in nodes_of(outer))


def test_what_is_no_tool_is_refused() -> None:
    for wrong in ([3], 3):
        with pytest.raises(ValidationError, match="3 is not a tool"):
            flat().with_tools(wrong)  # type: ignore[arg-type]


def test_one_tool_needs_no_list() -> None:
    for one in ("look", look, look.function):  # type: ignore[attr-defined]
        assert dict(nodes_of(flat().with_tools(one)))["plan"].tools == ("look",)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_group_named_as_a_tool_is_an_error_that_says_what_to_write() -> None:
    said = (
        r"nodes 'think', 'act/check', .* use 'arithmetic' as the name of a tool, and it is a group of tools: give the "
        r"group to the executor, Executor\(tools=\['arithmetic'\]\)"
    )
    for given in ("arithmetic", ["arithmetic"]):
        with pytest.raises(GraphUnknown, match=said):
            await react.react(tools=given).run("q", model=ScriptedModel(["ok"]), tools=["arithmetic"])


@pytest.mark.parametrize("graph", [react.graph, tool_user.graph, rewoo.graph, chat.graph, plan_and_solve.graph])
def test_a_strategy_with_tools_and_a_model_of_its_own_is_proved_as_before(graph: Graph) -> None:
    changed = graph.with_tools([look, put]).with_model("cheap")
    assert [(proof.about, proof.verdict) for proof in changed.check(prove=True).proofs] == [
        (proof.about, proof.verdict) for proof in graph.check(prove=True, tools=[look, put]).proofs
    ]
    for path, found in nodes_of(changed):
        if isinstance(found, Execute | Confirm):
            assert found.tools == ("look", "put"), path
        assert (found.model == "cheap") == found.asks_model, path
    assert changed.structure == graph.structure


def test_both_are_kept_in_files(tmp_path: Path) -> None:
    changed = react.graph.with_tools(["look"]).with_model("cheap")
    changed.save(tmp_path / "g.yaml")
    assert Graph.load(tmp_path / "g.yaml").content == changed.content


def test_a_stored_graph_without_its_code_stays_as_it_is() -> None:
    stored = Graph.from_data(Graph(name="g", state=State, nodes={"says": says}, edges="START -> says -> END").data())
    assert stored.with_model("cheap").with_tools(["look"]).content == stored.content


@pytest.mark.anyio
async def test_a_run_asks_the_model_that_was_set() -> None:
    graph = Graph(name="g", state=State, nodes={"says": says}, edges="START -> says -> END", output="reply")
    asked = ScriptedModel([Reply(text="cheap one")])
    async with Executor(model=ScriptedModel([]), models={"cheap": asked}) as executor:
        assert (await executor.start(graph.with_model("cheap"), {})).output == "cheap one"


@pytest.mark.parametrize(
    "make",
    [
        lambda model: react.react(model=model),
        lambda model: react.graph.with_model(model),
        lambda model: Complete(prompt="{question}", model=model),
    ],
    ids=["option", "with_model", "node"],
)
def test_a_model_in_place_of_its_name_is_refused_with_what_to_write(make: Callable[[Any], object]) -> None:
    with pytest.raises(ValidationError, match=r"model=ScriptedModel\(\.\.\.\): a node has the name of a model; give"):
        make(ScriptedModel([]))

"""What a graph can do by itself: run, be drawn, be a tool, with nodes of the library in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Graph
from orchestrator.errors import GraphError
from orchestrator.graph import (
    ITEM,
    GraphDefinition,
    StateSchema,
    Update,
    extend,
    local,
    node,
    node_data,
    node_from_data,
)
from orchestrator.graph.reading import stored_graph
from orchestrator.nodes import Ask, Call, ChooseArgs, ChooseTool, Confirm, Execute, Subgraph, Think


class Research(BaseModel):
    query: str
    found: str = ""


class Main(BaseModel):
    topics: list[str]
    notes: Annotated[list[str], extend] = []
    tool: str = ""
    args: dict[str, JsonValue] = {}
    why: Annotated[str, local] = ""


@node
def look(state: Research) -> Update:
    return {"found": f"about {state.query}"}


@node
def collect(item: object) -> Update:
    return {"notes": [f"{item}"]}


@node(join="all")
def done() -> Update:
    return {"notes": ["done"]}


research = Graph(
    name="research", state=Research, input="query", nodes={"look": look}, edges="START -> look -> END", output="found"
)
mapped = Graph(
    name="mapped",
    state=Main,
    input="topics",
    nodes={
        "collect": collect,
        "sub": Subgraph(research, inputs={"query": ITEM}, outputs={"why": "found"}),
        "note": node(lambda state: {"notes": [state.why]}),
        "done": done,
    },
    edges="START -> collect : each topics\ncollect -> sub -> note -> done -> END",
    output="notes",
)


@pytest.mark.anyio
async def test_a_graph_runs() -> None:
    run = await research.run("graphs")
    assert (run.status, run.output) == ("completed", "about graphs")


def test_a_graph_runs_without_an_event_loop() -> None:
    assert research.run_sync({"query": "graphs"}).output == "about graphs"


@pytest.mark.anyio
async def test_a_graph_inside_takes_the_item_and_gives_its_result_to_the_branch() -> None:
    run = await mapped.run(["a", "b"])
    assert run.output == ["a", "about a", "b", "about b", "done"]


@pytest.mark.anyio
async def test_a_run_can_be_kept_and_named(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    run = await research.run("graphs", store=store, run_id="one", labels={"user": "ann"})
    assert (run.run_id, run.labels) == ("one", {"user": "ann"})
    assert (await research.run("graphs", store=store, run_id="one")).steps == run.steps


@pytest.mark.anyio
async def test_a_confirm_that_is_put_in_pauses_the_run() -> None:
    graph = research.insert_before("look", "sure", Confirm(prompt="Look for {query}?", show=("query",)))
    run = await graph.run("graphs")
    assert run.status == "paused"
    assert run.waiting[0].prompt == "Look for graphs?"


def test_a_graph_is_drawn() -> None:
    assert "look" in research.to_text()
    assert research.to_mermaid().startswith("flowchart")
    assert research.to_dot().startswith("digraph")
    assert research.to_svg().lstrip().startswith(("<?xml", "<svg"))
    assert set(research._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}


def test_a_graph_is_a_tool() -> None:
    tool = research.as_tool("research", "Looks things up.")
    assert (tool.name, tool.description) == ("research", "Looks things up.")
    assert set(tool.parameters["properties"]) == {"query"}  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize(
    "shipped",
    [
        ChooseTool(),
        ChooseArgs(),
        Confirm(prompt="Sure?", join="all"),
        Execute(),
        Think(),
        Ask(prompt="And now?"),
        Subgraph(research, inputs={"query": "topic"}),
    ],
    ids=lambda shipped: shipped.kind,
)
def test_nodes_of_the_library_are_data_and_need_no_code(shipped: object) -> None:
    data = node_data(shipped)  # type: ignore[arg-type]
    assert "class" not in data
    again = node_from_data(data)
    assert type(again) is type(shipped)
    assert node_data(again) == data


def test_a_stored_call_of_a_function_is_not_live_without_trust() -> None:
    """It would import and call what it names, and stored data may come from anywhere."""
    call = Call(ref="math:sqrt", args={"x": "score"}, result="score")
    stored = node_from_data(node_data(call))
    assert (stored.kind, node_data(stored)) == ("unresolved", node_data(call))
    assert node_from_data(node_data(call), resolve=True) == call


def test_a_stored_node_that_does_not_fit_its_kind_any_more_can_still_be_drawn() -> None:
    data = {"kind": "confirm", "outcomes": ["yes", "no"], "words": "an older version's field"}
    old = node_from_data(data)
    assert (old.kind, old.outcomes, node_data(old)) == ("unresolved", ("yes", "no"), data)
    with pytest.raises(GraphError, match="node of kind 'confirm' has no 'words': it has"):
        Graph(name="g", state=Main, nodes={"a": data}, edges="START -> a -> END")


def test_a_stored_graph_has_the_graphs_inside_it() -> None:
    stored = Graph.from_data(mapped.data())
    assert (stored.structure, stored.content) == (mapped.structure, mapped.content)
    inner = stored.nodes["sub"].subgraph
    assert inner is not None
    assert inner.structure == research.structure


def test_every_definition_is_a_graph() -> None:
    stored = stored_graph(mapped.data())
    inner = stored.nodes["sub"].subgraph
    assert type(stored) is type(inner) is type(mapped) is Graph
    assert isinstance(mapped.model_copy(update={"name": "other"}), Graph)
    with pytest.raises(TypeError, match="a graph is built, and checked, as a Graph"):
        GraphDefinition(name="g", state=StateSchema.of(Main), nodes={}, edges=())


def test_its_name_in_the_first_version_is_another_one() -> None:
    import orchestrator.graph as module

    assert vars(module)["__getattr__"]("Graph") is Graph
    assert not hasattr(module, "Grpah")

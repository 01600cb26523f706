"""A kind of a user's says how it is drawn, also where its code is not loaded."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.graph import Node
from orchestrator.graph.model import DRAWN
from orchestrator.graph.reading import stored_graph
from orchestrator.render import draw


class Hole(BaseModel):
    depth: int = 0


class Dig(Node):
    look = "tool"

    @property
    def does(self) -> str:
        return "digs a hole"

    async def run(self, state: Hole, ctx: object) -> dict[str, int]:
        return {"depth": state.depth + 1}


def test_a_stored_graph_draws_a_kind_without_its_code() -> None:
    graph = Graph(name="g", state=Hole, nodes={"dig": Dig()}, edges="START -> dig -> END")
    stored = stored_graph(graph.data())
    assert stored.nodes["dig"].kind == "unresolved"
    assert draw(stored) == draw(graph)
    assert next((mark.look, mark.does) for mark in draw(stored).nodes if mark.name == "dig") == ("tool", "digs a hole")


def test_what_only_drawings_need_is_not_in_the_digests() -> None:
    graph = Graph(name="g", state=Hole, nodes={"dig": Dig()}, edges="START -> dig -> END")
    data = dict(graph.data())
    node = data["nodes"]["dig"]  # type: ignore[index]
    assert node[DRAWN] == {"look": "tool", "does": "digs a hole"}
    plain = stored_graph({**data, "nodes": {"dig": {key: value for key, value in node.items() if key != DRAWN}}})
    assert (plain.content, plain.structure) == (graph.content, graph.structure)
    assert DRAWN not in graph.to_yaml()

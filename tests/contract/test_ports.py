"""The contract of ports: the fields that shipped nodes read and write."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import BaseModel

from orchestrator import Graph, tool
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Node
from orchestrator.nodes import Ask, ChooseArgs, ChooseTool, Confirm, Execute, Think

pytestmark = pytest.mark.anyio


async def test_ports_are_renamed_and_checked_when_built() -> None:
    @tool(risk="none", effect="pure")
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    execute = Execute(calls="pending", results="observations")
    call = {"id": "1", "name": "double", "arguments": {"n": 4}}
    graph = Graph(
        name="g",
        state=Execute.ListState,
        nodes={"execute": execute},
        edges="START -> execute -> END",
        output="observations",
    )
    run = await graph.run({"pending": [call]}, tools=[double])
    assert [(m["role"], m["content"], m["tool_call_id"]) for m in run.output] == [("tool", "8", "1")]
    with pytest.raises(
        InvalidGraph, match="port 'calls' of execute is 'pendng', and state ListState has no such field"
    ):
        Graph(
            name="g", state=Execute.ListState, nodes={"execute": execute.with_(calls="pendng")},
            edges="START -> execute -> END",
        )  # fmt: skip


MIXINS: Mapping[str, Node] = {
    "execute": Execute(), "think": Think(), "choose_tool": ChooseTool(), "choose_args": ChooseArgs(),
    "ask": Ask(prompt="?"), "confirm": Confirm(tool="tool", args="args"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MIXINS)
def test_a_mixin_state_is_the_default(kind: str) -> None:
    made = MIXINS[kind]
    assert made.State is not None
    assert issubclass(made.State, BaseModel)
    edges = "START -> it\n" + "\n".join(f"it -> END : {outcome}" for outcome in made.outcomes)
    Graph(name="g", state=made.State, nodes={"it": made}, edges=edges)  # builds: every port has its field

    class Mine(made.State):  # type: ignore[name-defined, misc]
        more: int = 0

    Graph(name="g", state=Mine, nodes={"it": made}, edges=edges)

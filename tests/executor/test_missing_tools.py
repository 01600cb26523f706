"""Runs do not begin where a node needs a tool and sees none, also in the graphs that their tools run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, node, tool
from orchestrator.errors import GraphUnknown
from orchestrator.nodes import Complete, Confirm, Execute, Subgraph
from orchestrator.testing import ScriptedModel
from orchestrator.tools import Toolbox

pytestmark = pytest.mark.anyio


class Call(BaseModel):
    tool: str = "mail"
    args: dict[str, Any] = {"to": "ann"}
    result: Any = None
    reply: str = ""


@tool(risk="write")
def mail(to: str) -> str:
    """Mail."""
    return f"mailed {to}"


def confirming(**options: Any) -> Graph:
    """A call whose confirmation sees the tools of `options`, and whose node has its own."""
    return Graph(
        name="inner", state=Call, input=(), output="result",
        nodes={
            "confirm": Confirm(tool="tool", args="args", **options),
            "send": Execute(tool="tool", args="args", result="result", tools=[mail]),
        },
        edges="START -> confirm\nconfirm -> send : approved\nconfirm -> END : denied\nsend -> END",
    )  # fmt: skip


def calling(inside: Graph) -> Graph:
    """Asks a model, then calls a graph as its own tool."""

    @node(tools=[inside.as_tool("mailer", "Mails.", risk="none")])
    async def call(ctx: Context[Any]) -> Update:
        return {"result": (await ctx.tool("mailer")).output}

    nodes = {"ask": Complete(prompt="Hello.", result="reply"), "call": call}
    return Graph(name="outer", state=Call, input=(), nodes=nodes, edges="START -> ask -> call -> END")


async def test_no_model_is_asked_and_no_run_is_left_where_a_graph_tool_has_a_node_without_tools() -> None:
    graph = calling(confirming())
    with ScriptedModel([]) as model:
        async with Executor(graphs=[graph], model=model) as executor:
            with pytest.raises(GraphUnknown, match=r"node 'confirm' of tool 'mailer' .*give the node its own, tools="):
                await executor.start(graph)
            assert (await executor.runs()).runs == ()


async def test_a_node_in_a_subgraph_is_named_with_its_path() -> None:
    inside = Subgraph(confirming(), inputs={}, outputs={"result": "result"})
    graph = Graph(name="g", state=Call, input=(), nodes={"sub": inside}, edges="START -> sub -> END")
    async with Executor(graphs=[graph]) as executor:
        with pytest.raises(GraphUnknown, match="node 'sub/confirm': there is no tool to use"):
            await executor.start(graph)


@pytest.mark.parametrize("where", ["node", "executor"])
async def test_a_run_begins_where_the_node_or_the_executor_has_tools(where: str) -> None:
    graph = calling(confirming(**({"tools": [mail]} if where == "node" else {})))
    tools = [mail] if where == "executor" else []
    async with Executor(graphs=[graph], model=ScriptedModel(["hi"]), tools=tools) as executor:
        assert (await executor.start(graph)).status == "paused"


async def test_a_producer_needs_no_tools() -> None:
    graph = calling(confirming())
    async with Executor(graphs=[graph]) as executor:
        run_id = await executor.enqueue(graph)
        assert (await executor.load(run_id)).status == "running"  # a worker that has tools takes it up


class Changing(Toolbox):
    """Tools that come and go."""

    def __init__(self, *tools: Any) -> None:
        self.there = {one.name: one for one in tools}
        super().__init__()

    def current(self) -> dict[str, Any]:
        return self.there


@pytest.mark.parametrize("inside", [False, True])
async def test_tools_that_go_are_missed_by_the_next_run_of_a_graph_that_passed_before(inside: bool) -> None:
    tools = Changing(mail)
    async with Executor(tools=Toolbox(tools) if inside else tools) as executor:
        for number in range(3):
            run = await executor.start(confirming(), {"tool": "mail"}, run_id=f"r{number}")
            assert run.status == "paused", run.error
        graph = confirming()
        await executor.start(graph, run_id="before")
        tools.there.clear()
        with pytest.raises(GraphUnknown, match="there is no tool to use"):
            await executor.start(graph, run_id="after")
        tools.there["mail"] = mail
        assert (await executor.start(graph, run_id="again")).status == "paused"


async def test_a_graph_that_looks_like_one_that_passed_is_checked_itself() -> None:
    async with Executor(tools=[mail]) as executor:
        await executor.start(confirming(), run_id="passed")
        stored = Graph.from_data(confirming().data())
        assert stored.content == confirming().content
        with pytest.raises(GraphUnknown, match="is not loaded"):
            await executor.start(stored, run_id="stored")

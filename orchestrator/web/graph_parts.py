"""The models and tools of the server that a graph uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from orchestrator.graph.given_code import with_inner
from orchestrator.web.documents import GraphParts, OfferedTool, first_line

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.tools.tool import Tool

_TOOLS = 200
NO_PARTS = GraphParts(models=[], asks_default=False, choices=[], tools=[])
"""Of a graph that the server does not have."""


def parts_of(executor: Executor, graph: GraphDefinition) -> GraphParts:
    """Return what a graph uses.

    Args:
        executor: the executor that runs it.
        graph: the graph.
    """
    names: dict[str | None, None] = {}
    tools: dict[str, Tool] = {}
    offered = {tool.name: tool for tool in executor.tools.tools} if executor.tools.ready else {}
    for one in with_inner([graph]):
        for node in one.nodes.values():
            if node.asks_model:
                names[node.model] = None
            if node.takes_tools:
                own = node.toolset
                given = (
                    [*offered.values()] if own is None else [offered.get(t) if isinstance(t, str) else t for t in own]
                )
                tools |= {tool.name: cast("Tool", tool) for tool in given if tool is not None}
    return GraphParts(
        models=[_said(executor, name) for name in names],
        asks_default=None in names,
        choices=sorted(executor.models) if None in names else [],
        tools=[
            OfferedTool(name=first_line(tool.name), risk=tool.risk, effect=tool.effect)
            for tool in [*tools.values()][:_TOOLS]
        ],
    )


def _said(executor: Executor, name: str | None) -> str:
    model = executor.model if name is None else executor.models.get(name)
    if model is None:
        return f"{name or 'default'} (not on this server)"
    return model.name if name in (None, model.name) else f"{name} ({model.name})"

"""Refuses to begin a run that has nodes which need a tool and see none, also in the graphs that its tools run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.errors import GraphUnknown
from orchestrator.graph.model import GraphDefinition
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox


def check_tools(graph: GraphDefinition, tools: Toolbox) -> None:
    """Refuse a graph with nodes that fail because they see no tool.

    Args:
        graph: the graph of a run that begins.
        tools: what the executor has; a run whose tools are not known yet is not refused.

    Raises:
        GraphUnknown: names the nodes.
    """
    found = list(dict.fromkeys(_without(graph, tools.current(), [graph]))) if tools.ready else []
    if found:
        nodes = f"node {found[0]}" if len(found) == 1 else f"nodes {', '.join(found)}"
        words = f"graph {graph.name!r}: {nodes}: there is no tool to use; give the node its own, tools=[...], or add "
        raise GraphUnknown(f"{words}tools to Executor(tools=[...])").on_command_line(f"{words}tools with --tools")


def _without(
    graph: GraphDefinition,
    there: Mapping[str, Tool],
    seen: list[GraphDefinition],
    path: str = "",
    around: Sequence[str] | None = None,
) -> Iterator[str]:
    """The nodes that need a tool and see none.

    Args:
        graph: where to look.
        there: the tools of the executor.
        seen: the graphs that were looked at; grows.
        path: of the graph.
        around: the tools that the nodes around it name.
    """
    for name, node in graph.nodes.items():
        names = around if node.tools is None else node.tools
        if node.subgraph is not None:
            yield from _without(node.subgraph, there, seen, f"{path}{name}/", names)
        elif node.needs_tools and not (there if names is None else names):
            yield f"'{path}{name}'"
        own = [one for one in node.toolset or () if isinstance(one, Tool)]
        named = there.values() if names is None else [there[one] for one in names if one in there]
        for tool in [*own, *(named if node.sees_tools else ())]:
            inner = getattr(tool, "graph", None)
            if isinstance(inner, GraphDefinition) and not any(inner is one for one in seen):
                seen.append(inner)
                of_tool = "" if inner.name == tool.name else f" (of graph {inner.name!r})"
                yield from (f"{one} of tool {tool.name!r}{of_tool}" for one in _without(inner, there, seen))

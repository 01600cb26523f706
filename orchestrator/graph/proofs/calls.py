"""Which calls a node may make, as far as is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import listed
from orchestrator.graph.node import is_shipped

if TYPE_CHECKING:
    from orchestrator.graph.node import Node
    from orchestrator.graph.node_tools import NodeTool

HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""
CHANGING = ("write", "dangerous")
"""Risks of tools that a confirmation is wanted for."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What a node may do that wants a confirmation before it."""

    changing: tuple[str, ...] = ()
    """Tools that change something, with their risks."""
    unknown: str = ""
    """Why not all of its tools are known; empty: they are."""

    @property
    def any(self) -> bool:
        """Whether there is anything to confirm."""
        return bool(self.changing or self.unknown)


def calls_of(node: Node, tools: Sequence[NodeTool] | None) -> Calls:
    """The calls of a node itself, without those of a graph inside it.

    Args:
        node: the node.
        tools: the tools of nodes that name none of their own; None: not known.
    """
    if node.subgraph is not None:
        return Calls()
    irreversible = ("its effect is irreversible",) if node.effect == "irreversible" else ()
    own = has_own_code(node)
    if not (node.calls_tools or (own and node.tools is None and may_call(node))):
        return Calls(irreversible)
    given = {tool.name: tool for tool in tools or ()}
    if node.toolset is None:
        found, missing = list(given.values()), ""
        changing = [tool for tool in found if tool.risk not in HARMLESS]
        if tools is None:
            missing = "it may call any tool: name its tools, tools=[...], or pass --tools"
        elif own and changing:
            missing = f"its code may call {_names(changing)}: name its tools, tools=[...]"
            found = []
    else:
        absent = [one for one in node.toolset if isinstance(one, str) and one not in given]
        found = [given[one] if isinstance(one, str) else one for one in node.toolset if one not in absent]
        missing = f"tool {listed(map(str, absent))} is not declared: pass --tools" if absent else ""
    changing = [tool for tool in found if tool.risk not in HARMLESS]
    return Calls((*irreversible, *(f"{tool.name} ({tool.risk})" for tool in changing)), missing)


def has_own_code(node: Node) -> bool:
    """Whether the node's work is a function, or a method, of the user's."""
    return node.subgraph is None and (node.kind in ("function", "unresolved") or not is_shipped(type(node)))


def may_call(node: Node) -> bool:
    """Whether the node's code gets at tools, and can await what they give."""
    return node.sees_tools and getattr(node, "awaits", True)


def _names(tools: Sequence[NodeTool]) -> str:
    return listed(f"{tool.name} ({tool.risk})" for tool in tools)

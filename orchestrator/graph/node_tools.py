"""A node's own tools, as far as a graph knows them. Room `tools` makes them of functions, tools and toolboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from orchestrator._lazy import above


class NodeTool(Protocol):
    """A tool, as far as a graph knows it."""

    @property
    def name(self) -> str: ...
    @property
    def risk(self) -> str: ...


class NodeTools(Protocol):
    """What makes tools of the things that a node is given."""

    def tools_of_a_node(self, things: object) -> dict[str, tuple[object, NodeTool] | None]: ...
    def handoff(self, outcome: str, **fields: Any) -> NodeTool: ...
    def tools_in(self, thing: object) -> Sequence[NodeTool] | None: ...


def node_tools() -> NodeTools:
    """That of room `tools`."""
    found: NodeTools = above("node_tools")
    return found

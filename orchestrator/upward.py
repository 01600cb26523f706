"""The one door upward: what rooms use of rooms above them.

Imports point downward, for types too. Six conveniences run the other way:

- a `GraphDefinition` is always made as a `Graph`, which runs and draws itself;
- a run draws itself;
- a node takes functions and toolboxes as its own tools;
- an executor gives the events of a run in another style;
- a stored graph finds the kinds of nodes that come with the library;
- the fields of a state that is written as data can be messages, calls and results.

The lower room declares what it gets (a base class, or a protocol), and the door loads it when it is first used.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, Literal

_ABOVE = {
    "Graph": "orchestrator.verbs:Graph",
    "drawings": "orchestrator.render:",
    "embedia": "orchestrator.embedia:Embedia",
    "messages": "orchestrator.models.messages:",
    "node_tools": "orchestrator.tools.node_tools:",
    "nodes": "orchestrator.nodes:",
}
"""Name -> class or module."""


def above(name: Literal["Graph", "drawings", "embedia", "messages", "node_tools", "nodes"]) -> Any:
    """What a higher room has under this name. The caller annotates it with the type that its own room declares."""
    return resolve_name(_ABOVE[name])

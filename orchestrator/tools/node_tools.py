"""The tools that a node is given for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from orchestrator.tools.handoff import handoff
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

__all__ = ["handoff", "tools_in", "tools_of_a_node"]


def tools_of_a_node(things: object) -> dict[str, tuple[object, Tool] | None]:
    """What a node was given as `tools=`, by name: what each of its own tools was given as, and the tool.

    Raises:
        ValueError: two have one name.
        TypeError: something can be no tool, or comes from a server, to which a node cannot connect.
    """

    def each(thing: object) -> Iterator[Any]:
        if isinstance(thing, Iterable) and not isinstance(thing, str | Tool | Toolbox | BaseModel):
            for one in thing:
                yield from each(one)
        else:
            yield thing

    found: dict[str, tuple[object, Tool] | None] = {}
    for thing in each(things):
        if isinstance(thing, str):
            if found.setdefault(thing, None) is not None:
                raise ValueError(f"two tools are named {thing!r}: one is the node's own, so leave out the name")
            continue
        box = thing if isinstance(thing, Toolbox) else Toolbox(thing)
        if box.connections:
            raise TypeError(
                "tools of a server cannot be a node's own: give them to the executor, and their names to the node"
            )
        for tool in box:
            if tool.name in found:
                raise ValueError(f"two tools are named {tool.name!r}: rename one with tool(it, name=...)")
            found[tool.name] = (tool if thing is box else thing, tool)
    return found


def tools_in(thing: object) -> tuple[Tool, ...] | None:
    """The tool, or those of a toolbox; None for whatever is neither."""
    if isinstance(thing, Tool):
        return (thing,)
    return tuple(thing) if isinstance(thing, Toolbox) else None

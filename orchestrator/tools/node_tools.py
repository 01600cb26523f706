"""The tools that a node is given for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.graph.names import RULE, is_name, plain_name
from orchestrator.graph.outcome import FAILED, RESERVED
from orchestrator.tools.result import ToolResult
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

__all__ = ["handoff", "tools_in", "tools_of_a_node"]
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What the next one has to know.", "default": ""}},
    "additionalProperties": False,
}


class Handoff(Tool):
    """A tool whose call does nothing but choose an outcome of the `Execute` node that makes it."""

    risk = "none"
    effect = "pure"
    parameters = _PARAMETERS

    def __init__(self, outcome: str, description: str, name: str) -> None:
        self.outcome = outcome
        self.description = description
        self.name = name

    def as_data(self) -> Mapping[str, Any]:
        """Return the tool as a graph's data has it."""
        own = {} if self.name == _name_of(self.outcome) else {"name": self.name}
        return {"handoff": self.outcome, "description": self.description, **own}

    def call(self, message: str = "") -> ToolResult:
        """Choose the outcome."""
        told = f"Handed over to {self.outcome}."
        return ToolResult(output=f"{told} {message}" if message else told, outcome=self.outcome)


def handoff(outcome: str, description: str, *, name: str | None = None) -> Handoff:
    """Return a tool by which a model hands its work on.

    The call has one optional argument, a message for the next node, which is its result as well. The node that makes
    the call has to declare the outcome: `Execute(calls=..., results=..., outcomes=("billing",))`.

    Args:
        outcome: the outcome that `Execute` takes after the call.
        description: when to hand over, for the model.
        name: the tool's name. Default: `transfer_to_` and the outcome.

    Returns:
        The tool; it has the risk `none`.

    Raises:
        ValueError: no edge can name the outcome, or it is a reserved one.
    """
    outcome = plain_name(outcome)
    if not is_name(outcome):
        raise ValueError(f"outcome {outcome!r} cannot be named by an edge: {RULE}")
    if outcome in (*RESERVED, FAILED):
        raise ValueError(f"outcome {outcome!r} is reserved: no tool can choose it; name the outcome after its node")
    return Handoff(outcome, description, _name_of(outcome) if name is None else name)


def _name_of(outcome: str) -> str:
    return f"transfer_to_{outcome}"


def tools_of_a_node(things: object) -> dict[str, tuple[object, Tool] | None]:
    """The `tools=` of a node by name: for each of its own tools the object that was given, and the tool.

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

"""A toolbox of all that may stand for tools: tools, functions, toolboxes, registries, references, and lists of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from pydantic import BaseModel

from orchestrator.tools.refs import tools_from_ref
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

ToolLike: TypeAlias = Tool | Callable[..., Any] | Toolbox | str
"""A tool, a function or method that becomes one, a toolbox, or a reference (see `tools_from_ref`)."""

ToolsLike: TypeAlias = ToolLike | Iterable[ToolLike]
"""One of these, or several."""


def toolbox_of(things: ToolsLike) -> Toolbox:
    """Return a toolbox of the given tools. References are followed, because the caller wrote them.

    Args:
        things: a tool, function, toolbox or reference, or a list of them.

    Returns:
        The toolbox; a toolbox is returned as it is.

    Raises:
        ValueError: two tools have the same name.
        TypeError: one of the objects cannot be a tool.
        GraphUnknown: a reference does not lead to a tool.
    """
    return things if isinstance(things, Toolbox) else Toolbox(*_flat(things))


def _flat(thing: Any) -> Iterator[Any]:
    if isinstance(thing, str):
        yield tools_from_ref(thing)
    elif isinstance(thing, Iterable) and not isinstance(thing, Tool | Toolbox | BaseModel):
        for one in thing:
            yield from _flat(one)
    else:
        yield thing

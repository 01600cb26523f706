"""Tools named by text: a shipped group, `module`, `module:attr`, `file.py:attr`, or `mcp:` and a server."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from orchestrator.errors import GraphUnknown
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox


def builtin_groups() -> tuple[str, ...]:
    """Names of the groups of tools that come with the library."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("builtin"))])))


def tools_from_ref(ref: str, directory: str | None = None) -> Toolbox:
    """Return the tools that a reference names. Imports the module that they are in.

    Args:
        ref: a shipped group (`arithmetic`, `files:DIRECTORY`, `web_fetch:HOST,HOST`), a module (every tool in it),
            `module:attr` or `file.py:attr`, where the attribute is a tool, a function, a toolbox or a list of them;
            `file.py` alone is every tool in it.
            `mcp:COMMAND ARGS`, `mcp:http://...`, `mcp:.mcp.json` and `mcp:.mcp.json#SERVER` are servers, whose
            tools are known while the toolbox is open.
        directory: the directory of relative paths: a server's command and file, and the directory of files. Default:
            the current directory.

    Returns:
        The tools.

    Raises:
        GraphUnknown: the reference does not lead to a tool.
    """
    place, _, name = ref.partition(":")
    if ref.startswith("mcp:"):
        from orchestrator.tools.mcp import toolbox_of

        return toolbox_of(ref, directory)
    if place in builtin_groups():
        module = importlib.import_module(f"orchestrator.tools.builtin.{place}")
        if hasattr(module, "at"):
            with _named(ref, OSError):  # of a group that works in a directory
                return cast(Toolbox, module.at(os.path.join(directory or "", name) or "."))
        if name and hasattr(module, "of"):
            with _named(ref, ValueError):  # of a group that takes more behind the colon
                return cast(Toolbox, module.of(name))
        if not name:
            return _tools_in(module, ref)
    if place.endswith(".py"):
        with _named(ref, GraphUnknown):
            module = module_of_file(place)
    elif name:
        try:
            return _tools(resolve(ref), ref)
        except GraphUnknown as error:
            if place not in builtin_groups():
                raise
            raise GraphUnknown(
                f"tools {ref!r}: the group {place!r} takes nothing after ':', and {error}; "
                f"write {place!r} for the group"
            ) from None
    else:
        module = _module(place)
    if not name:
        return _tools_in(module, ref)
    thing = attribute(module, name)
    if thing is None:
        raise GraphUnknown(f"tools {ref!r}: {place} has no {name!r}; {_there(module)}")
    return _tools(thing, ref)


@contextmanager
def _named(ref: str, *errors: type[Exception]) -> Iterator[None]:
    """Say of which reference these errors are."""
    try:
        yield
    except errors as error:
        raise GraphUnknown(f"tools {ref!r}: {error}") from None


def _tools(thing: object, ref: str) -> Toolbox:
    if isinstance(thing, Toolbox):
        return thing
    many = isinstance(thing, Iterable) and not isinstance(thing, Tool | str | BaseModel)
    found: list[Any] = list(cast("Iterable[Any]", thing)) if many else [thing]
    if not found:
        raise GraphUnknown(
            f"tools {ref!r}: {type(thing).__name__} is not a tool, toolbox or list of tools: it is empty"
        )
    with _named(ref, TypeError, ValueError):
        return Toolbox(*found)


def _tools_in(module: ModuleType, ref: str) -> Toolbox:
    found: list[Tool | Toolbox] = []
    for name, thing in list(vars(module).items()):  # a lazy attribute may import more when it is looked at
        if isinstance(thing, Tool | Toolbox) and not name.startswith("_") and not any(thing is one for one in found):
            found.append(thing)
    tools = [one for one in found if isinstance(one, Tool)] or found
    if not tools:
        raise GraphUnknown(f"tools {ref!r}: there is no tool in {module.__name__}; decorate functions with @tool")
    return _tools(tools, ref)


def _there(module: ModuleType) -> str:
    names = [name for name, thing in vars(module).items() if isinstance(thing, Tool)]
    return f"the tools there: {', '.join(names)}" if names else "there is no tool there"


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        groups = ", ".join(builtin_groups())
        raise GraphUnknown(
            f"tools {name!r}: it is neither a shipped group ({groups}) nor a module; "
            "write module, module:attr or file.py:attr"
        ) from None


ToolLike: TypeAlias = Tool | Callable[..., Any] | Toolbox | str
"""A tool, a function or method that becomes one, a toolbox, or a reference (see `tools_from_ref`)."""

ToolsLike: TypeAlias = ToolLike | Iterable[ToolLike]
"""A `ToolLike`, or several."""


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

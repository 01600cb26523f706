"""Tools named by text: a shipped group, `module`, `module:attr` or `file.py:attr`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import cast

from orchestrator.errors import GraphUnknown
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox


def builtin_groups() -> tuple[str, ...]:
    """Names of the groups of tools that come with the library."""
    from orchestrator.tools import builtin

    return tuple(sorted(module.name for module in pkgutil.iter_modules(builtin.__path__)))


def tools_from_ref(ref: str) -> list[Tool]:
    """The tools that a reference names; imports the module that they are in.

    Args:
        ref: a shipped group (`arithmetic`), a module (every tool in it), `module:attr` or `file.py:attr`, where
            the attribute is a tool, a toolbox or a list of tools; `file.py` alone is every tool in it.

    Raises:
        GraphUnknown: there is no such thing, or it is no tool.
    """
    place, _, name = ref.partition(":")
    if not name and place in builtin_groups():
        return _tools_in(importlib.import_module(f"orchestrator.tools.builtin.{place}"), ref)
    if place.endswith(".py"):
        module = _module_of_file(place, ref)
    elif name:
        return _tools(resolve(ref), ref)
    else:
        module = _module(place)
    if not name:
        return _tools_in(module, ref)
    thing = attribute(module, name)
    if thing is None:
        raise GraphUnknown(f"tools {ref!r}: {place} has no {name!r}; {_there(module)}")
    return _tools(thing, ref)


def _tools(thing: object, ref: str) -> list[Tool]:
    if isinstance(thing, Tool):
        return [thing]
    if isinstance(thing, Toolbox | list | tuple):
        found = list(cast("Iterable[object]", thing))
        tools = [one for one in found if isinstance(one, Tool)]
        if tools and len(tools) == len(found):
            return tools
    raise GraphUnknown(
        f"tools {ref!r}: {type(thing).__name__} is no tool, toolbox or list of tools; decorate with @tool"
    )


def _tools_in(module: ModuleType, ref: str) -> list[Tool]:
    found: list[Tool] = []
    for name, thing in vars(module).items():
        if isinstance(thing, Tool) and not name.startswith("_") and not any(thing is one for one in found):
            found.append(thing)
    if not found:
        raise GraphUnknown(f"tools {ref!r}: there is no tool in {module.__name__}; decorate functions with @tool")
    return found


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


def _module_of_file(place: str, ref: str) -> ModuleType:
    try:
        return module_of_file(place)
    except GraphUnknown as error:
        raise GraphUnknown(f"tools {ref!r}: {error}") from None

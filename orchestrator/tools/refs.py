"""Tools by name: registries made by a program, and references such as `module:attr`.

A reference is a shipped group, `module`, `module:attr`, `file.py:attr`, or `mcp:` and a server.

A registry is an object that a program makes; there is no global one, and two registries are independent:

    registry = Registry()

    @registry.register("weather")
    def now(city: str) -> str:
        \"\"\"The weather now.\"\"\"

    registry.register("weather")(forecast, "weather_tomorrow")
    await graph.run("...", tools=registry.pick("now", "weather_tomorrow"))
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast

from pydantic import BaseModel

from orchestrator.errors import GraphUnknown
from orchestrator.graph.refs import attribute, module_of_file, resolve
from orchestrator.spelling import did_you_mean
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox, as_tool


def builtin_groups() -> tuple[str, ...]:
    """Return the names of the groups of tools that come with the library."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).with_name("builtin"))])))


def tools_from_ref(ref: str, directory: str | None = None) -> Toolbox:
    """Return the tools that a reference names. The module that contains them is imported.

    Args:
        ref: a shipped group (`arithmetic`, `files:DIRECTORY`, `web_fetch:HOST,HOST`), a module (every tool in it),
            `module:attr` or `file.py:attr`, where the attribute is a tool, a function, a toolbox or a list of them;
            `file.py` alone is every tool in it. `mcp:COMMAND ARGS`, `mcp:http://...`, `mcp:.mcp.json` and
            `mcp:.mcp.json#SERVER` are servers, whose tools are known while the toolbox is open.
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
            with _named(ref, OSError):  # raised by a group with a directory
                return cast(Toolbox, module.at(os.path.join(directory or "", name) or "."))
        if name and hasattr(module, "of"):
            with _named(ref, ValueError):  # raised by a group with a value after the colon
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
        raise GraphUnknown(
            f"tools {ref!r}: {place} has no {name!r}{did_you_mean(name, vars(module)) or ';'} {_there(module)}"
        )
    return _tools(thing, ref)


@contextmanager
def _named(ref: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise these errors as `GraphUnknown`, with the reference in the message."""
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
    for name, thing in list(vars(module).items()):  # reading a lazy attribute may import more
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
        groups = builtin_groups()
        guess = did_you_mean(name, groups) or "; write module, module:attr or file.py:attr"
        raise GraphUnknown(
            f"tools {name!r}: it is neither a shipped group ({', '.join(groups)}) nor a module{guess}"
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
        The toolbox; a toolbox is returned unchanged.

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


class Register(Protocol):
    """Result of `Registry.register`: a decorator, also callable with a function and another name."""

    def __call__(self, function: Callable[..., Any] | Tool, /, name: str | None = None) -> Tool:
        """Register the function and return it as a tool."""
        ...


class Registry:
    """Registered tools by group and name. A name is unique in its group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Tool]] = {}

    def register(self, group: str, /, **options: object) -> Register:
        """Register functions, methods or tools in a group: `@registry.register("math", risk="none")`.

        Args:
            group: the group's name.
            options: as for `Tool.with_`, such as `risk`, `effect` and `timeout`.

        Returns:
            A decorator that registers what it is given and returns it as a tool.

        Raises:
            TypeError: the group is not a string, as when the decorator is used without a group; or as for `tool`.
            ValueError: the group already has a tool with that name.
        """
        if not isinstance(group, str) or not group:
            raise TypeError(f"register({group!r}): name the group first, as in @registry.register('tools')")

        def register(function: Callable[..., object] | Tool, /, name: str | None = None) -> Tool:
            made = as_tool(function, name).with_(**{**options, "group": group})
            there = self._groups.get(group, {})
            if made.name in there:
                raise ValueError(
                    f"group {group!r} has a tool {made.name!r} already: register this one under another name, "
                    f'register({group!r})(it, "name")'
                )
            self._groups[group] = {**there, made.name: made}
            return made

        return register

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of the groups, in the order of their registration."""
        return tuple(self._groups)

    def __iter__(self) -> Iterator[Tool]:
        return (one for group in self._groups.values() for one in group.values())

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __contains__(self, name: object) -> bool:
        return any(name in group for group in self._groups.values())

    def __repr__(self) -> str:
        said = "; ".join(f"{group}: {', '.join(there)}" for group, there in self._groups.items())
        return f"Registry({said})"

    def in_group(self, group: str) -> Toolbox:
        """Return the tools of a group.

        Args:
            group: the group's name.

        Returns:
            The tools, in the order in which they were registered.

        Raises:
            GraphUnknown: the registry has no such group.
        """
        if group not in self._groups:
            raise GraphUnknown(f"no group {group!r} is registered; there are: {', '.join(self._groups) or 'none'}")
        return Toolbox(*self._groups[group].values())

    def get(self, name: str, group: str | None = None) -> Tool:
        """Return the tool with a name.

        Args:
            name: the tool's name.
            group: its group; needed if several groups have a tool with that name.

        Returns:
            The tool.

        Raises:
            GraphUnknown: no tool, or several tools, have the name.
        """
        found = [one for one in self if one.name == name and group in (None, one.group)]
        if len(found) == 1:
            return found[0]
        if found:
            groups = ", ".join(str(one.group) for one in found)
            raise GraphUnknown(f"several tools are named {name!r}, in the groups {groups}: choose one with group=")
        there = ", ".join(one.name for one in self if group in (None, one.group)) or "none"
        place = "is registered" if group is None else f"is registered in group {group!r}"
        raise GraphUnknown(f"no tool {name!r} {place}; there are: {there}")

    def pick(self, *things: str | Callable[..., object] | Tool, group: str | None = None) -> Toolbox:
        """Return a toolbox of registered tools, and of functions that are only in this toolbox.

        Args:
            things: names of registered tools, functions, or tools.
            group: the group of the names; needed if several groups have a tool with a name.

        Returns:
            The toolbox.

        Raises:
            GraphUnknown: no tool, or several tools, have a name.
            ValueError: two tools of the toolbox have the same name.
        """
        return Toolbox(*(self.get(one, group) if isinstance(one, str) else one for one in things))

"""Tools by group and name.

A registry is an object that a program makes; there is no global one, and two registries are independent:

    registry = Registry()

    @registry.register("weather")
    def now(city: str) -> str:
        \"\"\"The weather now.\"\"\"

    registry.register("weather")(forecast, "weather_tomorrow")
    await graph.run("...", tools=registry.pick("now", "weather_tomorrow"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from orchestrator.errors import GraphUnknown
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox, as_tool


class Register(Protocol):
    """Result of `Registry.register`: a decorator, also callable with a function and another name."""

    def __call__(self, function: Callable[..., Any] | Tool, /, name: str | None = None) -> Tool:
        """Register it and give the tool."""
        ...


class Registry:
    """Tools by group and name. A name is taken once in each group."""

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
            TypeError: the group is not a text, as when the decorator is used without a group; or as for `tool`.
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
        """The names of the groups, in the order in which they came."""
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
        """Return a toolbox of registered tools, and of functions that are in this toolbox only.

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

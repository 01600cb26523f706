"""A set of tools with distinct names, in the order given."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from orchestrator.errors import GraphUnknown
from orchestrator.tools.result import ToolFailure, ToolResult, as_text
from orchestrator.tools.tool import Tool


class Toolbox:
    """Tools that are offered together."""

    def __init__(self, *tools: Tool) -> None:
        """
        Raises:
            ValueError: two tools have one name.
            TypeError: one of them is no tool.
        """
        self._tools: dict[str, Tool] = {}
        for one in tools:
            if _tool(one).name in self._tools:
                raise ValueError(f"two tools are named {one.name!r}: rename one with tool(it, name=...)")
            self._tools[one.name] = one

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order given."""
        return tuple(self._tools.values())

    @property
    def tool_map(self) -> dict[str, Tool]:
        """The tools by name."""
        return dict(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

    def get(self, name: str) -> Tool | None:
        """The tool of a name, None if there is none."""
        return self._tools.get(name)

    def subset(self, names: Iterable[str]) -> Toolbox:
        """Only the tools of these names, in their order here.

        Raises:
            GraphUnknown: there is no tool of one of the names.
        """
        wanted = set(names)
        unknown = sorted(wanted - self._tools.keys())
        if unknown:
            known = ", ".join(self._tools) or "none at all"
            raise GraphUnknown(f"no tool {unknown[0]!r} here; there are: {known}")
        return Toolbox(*(one for one in self if one.name in wanted))

    def in_group(self, group: str) -> Toolbox:
        """Only the tools of a group."""
        return Toolbox(*(one for one in self if one.group == group))

    def to_params(self) -> list[dict[str, Any]]:
        """All tools as a model is offered them."""
        return [one.to_param() for one in self]

    def add_tool(self, tool: Tool) -> Self:
        """Add a tool and return the toolbox. One whose name is taken is skipped, with a warning.

        Raises:
            TypeError: it is no tool.
        """
        if _tool(tool).name in self._tools:
            warnings.warn(f"tool {tool.name!r} is skipped: the toolbox has one of that name", stacklevel=2)
            return self
        self._tools[tool.name] = tool
        return self

    def add_tools(self, *tools: Tool) -> Self:
        """Add tools, each as `add_tool` does."""
        for one in tools:
            self.add_tool(one)
        return self

    async def execute(self, *, name: str, tool_input: Mapping[str, object] | None = None) -> ToolResult:
        """Call a tool by name. Whatever goes wrong is a `ToolFailure`; nothing is raised.

        A value that is no `ToolResult` is wrapped as its text, JSON if it is not a text already;
        `Tool.invoke` keeps it as it is.
        """
        found = self._tools.get(name)
        if found is None:
            return ToolFailure(error=f"Tool {name} is invalid")
        try:
            result = await found.perform(found.validate(tool_input or {}))
        except Exception as error:
            return found.failure(error)
        return result.model_copy(update={"output": as_text(result.output)})


def _tool(thing: object) -> Tool:
    if not isinstance(thing, Tool):
        raise TypeError(f"{thing!r} is no tool: decorate it with @tool, or subclass Tool")
    return thing

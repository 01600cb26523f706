"""Sets of tools with distinct names, in the order given; views of them; and the tools of a node.

A view contains some of the tools, or renamed or changed copies of them.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any, Self, TypeAlias

from pydantic import BaseModel

from orchestrator.errors import GraphUnknown
from orchestrator.graph.names import RULE, is_name, plain_name
from orchestrator.graph.outcome import FAILED, RESERVED
from orchestrator.graph.reducers import Reducer
from orchestrator.tasks import OwnTask
from orchestrator.tools.foreign import foreign_tool
from orchestrator.tools.function import FunctionTool
from orchestrator.tools.result import ToolFailure, ToolResult, worded
from orchestrator.tools.stored_results import StoredResult
from orchestrator.tools.tool import Tool
from orchestrator.user_code import contained

_Change: TypeAlias = Callable[[Tool], "Tool | None"]
_WILD = frozenset("*?[")


class Toolbox:
    """An ordered set of tools with distinct names.

    A toolbox is made from tools, from functions and methods, which become tools as with `@tool`, and from other
    toolboxes. It also contains tools that are added to one of these later.

    A subclass whose tools are known later, or change (as those of a server), returns its tools in `current`, whether
    they are known in `ready`, and itself in `connections`. It is opened by `async with`, possibly several times at
    once. Its tools must allow renaming, because views contain copies made by `Tool.with_`.
    """

    def __init__(self, *things: Tool | Callable[..., Any] | Toolbox) -> None:
        """
        Args:
            things: tools, functions and toolboxes.

        Raises:
            ValueError: two tools have the same name.
            TypeError: one of the objects cannot be a tool.
        """
        self._parts: list[Tool | Toolbox] = [one if isinstance(one, Toolbox) else as_tool(one) for one in things]
        self._made: dict[str, Tool] | None = None
        self.current()

    # -- tools and connections -------------------------------------------------------------------------------------

    def current(self) -> Mapping[str, Tool]:
        """Return the current tools, by name.

        Raises:
            ValueError: two tools have the same name.
        """
        if self._made is None:
            found = distinct(one for part in self._parts for one in (part if isinstance(part, Toolbox) else (part,)))
            if any(isinstance(part, Toolbox) for part in self._parts):
                return found
            self._made = found
        return self._made

    @property
    def ready(self) -> bool:
        """Return True if its tools are known now; if not, opening it (`async with`) fetches them."""
        return all(part.ready for part in self._parts if isinstance(part, Toolbox))

    @property
    def connections(self) -> tuple[Toolbox, ...]:
        """Return the toolboxes that must be open before its tools can be called, each once."""
        found: list[Toolbox] = []
        for part in self._parts:
            if isinstance(part, Toolbox):
                found += [one for one in part.connections if not any(one is known for known in found)]
        return tuple(found)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools, in the order given."""
        return tuple(self.current().values())

    @property
    def tool_map(self) -> dict[str, Tool]:
        """Return the tools by name."""
        return dict(self.current())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.current())

    def __contains__(self, name: object) -> bool:
        return name in self.current()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.current())})"

    def get(self, name: str) -> Tool | None:
        """Return the tool with a name.

        Args:
            name: the tool's name.

        Returns:
            The tool; None if the toolbox has no such tool.
        """
        return self.current().get(name)

    def to_params(self, *, strict: bool = False) -> list[dict[str, Any]]:
        """Return all tools in the form that models receive; see `Tool.to_param`.

        Args:
            strict: use the form of providers' strict mode.

        Returns:
            The tools, in order.
        """
        return [one.to_param(strict=strict) for one in self]

    # -- opening ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open all parts of the toolbox. An executor does so with the toolbox that it is given."""
        task = OwnTask(self._hold, repr(self)) if self.connections else None
        if task is None:
            self.current()
        else:
            await task.open()
        self._opened().append(task)
        return self

    async def __aexit__(self, *error: object) -> None:
        task = self._opened().pop()
        if task is not None:
            await task.close()

    def _opened(self) -> list[OwnTask[None] | None]:
        opened: list[OwnTask[None] | None] = self.__dict__.setdefault("_tasks", [])
        return opened

    @asynccontextmanager
    async def _hold(self) -> AsyncIterator[None]:
        """Hold the connections of one opening until it is closed, in a separate task."""
        async with AsyncExitStack() as stack:
            for one in self.connections:
                await stack.enter_async_context(one)
            self.current()
            yield

    # -- views -----------------------------------------------------------------------------------------------------

    def include(self, *names: str) -> Toolbox:
        """Return only the tools with these names, in the order of this toolbox.

        Args:
            names: names, or patterns such as `read_*`.

        Returns:
            A view of this toolbox.

        Raises:
            GraphUnknown: a name matches no tool. If the toolbox is not ready yet, this is raised when it is.
        """
        return self._view(lambda one: one if _fits(one.name, names) else None, names)

    def exclude(self, *names: str) -> Toolbox:
        """Return all tools except those with these names.

        Args:
            names: names, or patterns such as `read_*`.

        Returns:
            A view of this toolbox.

        Raises:
            GraphUnknown: as for `include`.
        """
        return self._view(lambda one: None if _fits(one.name, names) else one, names)

    def subset(self, names: Iterable[str]) -> Toolbox:
        """Return the tools with exactly these names, in the order of this toolbox.

        Args:
            names: the exact names.

        Returns:
            A view of this toolbox.

        Raises:
            GraphUnknown: there is no tool with one of the names.
        """
        wanted = tuple(dict.fromkeys(names))
        return self._view(lambda one: one if one.name in wanted else None, wanted)

    def in_group(self, group: str) -> Toolbox:
        """Return only the tools of a group.

        Args:
            group: the group's name.

        Returns:
            A view of this toolbox; empty if no tool is in the group.
        """
        return self._view(lambda one: one if one.group == group else None)

    def prefix(self, text: str) -> Toolbox:
        """Return the tools under longer names: `prefix("git_")` turns `log` into `git_log`.

        Args:
            text: the prefix.

        Returns:
            A view of this toolbox.

        Raises:
            TypeError: a name would be one that models cannot call.
        """
        return self._view(lambda one: one.with_(name=text + one.name))

    def override(self, *names: str, **changes: object) -> Toolbox:
        """Return the same tools with some of them changed: `override("write_*", risk="write", timeout=30)`.

        Args:
            names: names or patterns of the tools to change; none: all tools.
            changes: as for `Tool.with_`: `risk`, `effect`, `timeout`, `retry`, `description`, `name` and so on.

        Returns:
            A view of this toolbox.

        Raises:
            GraphUnknown: as for `include`.
            TypeError: a tool has no such attribute, or the value is invalid.
        """
        _nothing.with_(**{name: value for name, value in changes.items() if name != "parameters"})
        return self._view(lambda one: one.with_(**changes) if not names or _fits(one.name, names) else one, names)

    def __or__(self, other: object) -> Toolbox:
        """Return the tools of both. If two have the same name, it is a ValueError: use `prefix` or `exclude`."""
        if isinstance(other, Toolbox) or callable(other):
            return self._derived(Toolbox(self, other))
        return NotImplemented

    __add__ = __or__

    def _view(self, change: _Change, names: Iterable[str] = ()) -> Toolbox:
        return self._derived(_View(self, change, tuple(names)))

    def _derived(self, box: Toolbox) -> Toolbox:
        """Return a toolbox derived from this one; a subclass that calls tools in its own way makes it one of its own
        kind."""
        return box

    # -- changing and calling --------------------------------------------------------------------------------------

    def add_tool(self, tool: Tool | Callable[..., object]) -> Self:
        """Add a tool. If its name is taken, it is skipped with a warning.

        Args:
            tool: a tool, or a function to make into one.

        Returns:
            This toolbox.

        Raises:
            TypeError: the object cannot be a tool.
        """
        return self._add(as_tool(tool))

    def add_tools(self, *tools: Tool | Callable[..., object]) -> Self:
        """Add tools as `add_tool` does.

        Args:
            tools: tools, or functions to make into tools.

        Returns:
            This toolbox.

        Raises:
            TypeError: one of the objects cannot be a tool.
        """
        for one in tools:
            self._add(as_tool(one))
        return self

    def _add(self, tool: Tool) -> Self:
        if tool.name in self.current():
            warnings.warn(f"tool {tool.name!r} is skipped: the toolbox already has a tool with that name", stacklevel=3)
            return self
        self._parts.append(tool)
        self._made = None
        return self

    async def execute(self, *, name: str, tool_input: Mapping[str, object] | None = None) -> ToolResult:
        """Call a tool by name. Every error becomes a `ToolFailure`; nothing is raised.

        A value other than a `ToolResult` becomes the output as text, or as JSON if it is not a string. `Tool.invoke`
        keeps the value.

        Args:
            name: the tool's name.
            tool_input: its arguments by name.

        Returns:
            The tool's result, or a `ToolFailure`.
        """
        found = self.get(name)
        if found is None:
            return ToolFailure(error=f"Tool {name} is invalid")
        try:
            with contained():
                result = await found.perform(found.validate(tool_input or {}))
        except Exception as error:
            return found.failure(error)
        return worded(result)

    async def stored_result(self, id: str) -> StoredResult | None:  # noqa: A002  as in `read_result`
        """Return a long result from the journal of the run, if these are the tools of a step.

        Args:
            id: the id in the excerpt of the result.

        Returns:
            The result; None if there is no run, or its journal has no such result.
        """
        return None


class _View(Toolbox):
    """A view of another toolbox, in which tools are changed or left out. It follows changes of that toolbox."""

    def __init__(self, source: Toolbox, change: _Change, names: tuple[str, ...]) -> None:
        self._source, self._change, self._names = source, change, names
        self._kept: dict[int, tuple[Tool, Tool | None]] = {}
        super().__init__()

    def current(self) -> Mapping[str, Tool]:
        there = self._source.current()
        if self._source.ready:
            for name in self._names:
                if name not in there and not any(_fits(one, (name,)) for one in there):
                    raise GraphUnknown(f"no tool {name!r} here; there are: {', '.join(there) or 'none'}")
        # The same copies each time, so that their schemas are made once.
        known = self._kept
        self._kept = {
            id(one): known[id(one)] if id(one) in known else (one, self._change(one)) for one in there.values()
        }
        changed = (copy for _, copy in self._kept.values() if copy is not None)
        return distinct((*changed, *super().current().values()))

    @property
    def ready(self) -> bool:
        return self._source.ready

    @property
    def connections(self) -> tuple[Toolbox, ...]:
        return self._source.connections


def as_tool(thing: Tool | Callable[..., Any], name: str | None = None) -> Tool:
    """Return a tool unchanged, and a function, a method or a tool of another framework as a tool.

    Args:
        thing: the tool, function or method, or an object of a framework that `foreign_tool` names.
        name: the tool's name. Default: its own name.

    Raises:
        TypeError: the object cannot be a tool; the message suggests a fix.
        ValueError: the schema that it sets is faulty, see `Tool.check_schema`.
    """
    renamed: dict[str, Any] = {} if name is None else {"name": name}
    found = thing if isinstance(thing, Tool) else foreign_tool(thing)
    if found is not None:
        found.check_schema()
        return found.with_(**renamed) if renamed else found
    if isinstance(thing, Reducer):
        raise TypeError(f"{thing!r} is a reducer of state fields, not a tool: use a function of your own")
    if isinstance(thing, type):
        raise TypeError(f"{thing!r} is a class, not a tool: use one of its objects, {thing.__name__}(...)")
    if hasattr(thing, "as_tool"):
        raise TypeError(f"{type(thing).__name__} is not a tool itself: use its .as_tool(name, description)")
    if not callable(thing):
        raise TypeError(
            f"{thing!r} is not a tool: decorate it with @tool, or subclass Tool. Of other frameworks, tools of "
            "LangChain and pydantic-ai and functions of the OpenAI Agents SDK are taken, and none that a provider runs"
        )
    made = FunctionTool(thing, **renamed)
    made.check_schema()
    return made


def distinct(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return tools by name, in order.

    Raises:
        ValueError: two tools have the same name.
    """
    found: dict[str, Tool] = {}
    for one in tools:
        if one.name in found:
            raise ValueError(
                f"two tools are named {one.name!r}: rename one with tool(it, name=...), or a toolbox's with prefix()"
            )
        found[one.name] = one
    return found


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(name == one or (not _WILD.isdisjoint(one) and fnmatchcase(name, one)) for one in patterns)


class _Nothing(Tool):
    def call(self) -> None: ...


_nothing = _Nothing()
"""Matches changes that no tool supports."""


_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What the next agent needs to know.", "default": ""}},
    "additionalProperties": False,
}


class Handoff(Tool):
    """A tool whose call only chooses an outcome of the `Execute` node that makes it."""

    risk = "none"
    effect = "pure"
    parameters = _PARAMETERS

    def __init__(self, outcome: str, description: str, name: str) -> None:
        self.outcome = outcome
        self.description = description
        self.name = name

    def as_data(self) -> Mapping[str, Any]:
        """Return the tool as data of a graph."""
        own = {} if self.name == _name_of(self.outcome) else {"name": self.name}
        return {"handoff": self.outcome, "description": self.description, **own}

    def call(self, message: str = "") -> ToolResult:
        """Choose the outcome."""
        told = f"Handed over to {self.outcome}."
        return ToolResult(output=f"{told} {message}" if message else told, outcome=self.outcome)


def handoff(outcome: str, description: str, *, name: str | None = None) -> Handoff:
    """Return a tool by which a model hands its work over.

    The call has one optional argument, a message for the next node, which is its result as well. The node that makes
    the call must declare the outcome: `Execute(calls=..., results=..., outcomes=("billing",))`.

    Args:
        outcome: the outcome that `Execute` takes after the call.
        description: when to hand over, for the model.
        name: the tool's name. Default: `transfer_to_` and the outcome.

    Returns:
        The tool; it has the risk `none`.

    Raises:
        ValueError: the outcome is reserved, or not valid as the outcome of an edge.
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
    """Return a node's own tools (its `tools=`) by name: the object given for each, and the tool.

    Raises:
        ValueError: two tools have the same name.
        TypeError: an object cannot be a tool, or comes from a server, to which a node cannot connect.
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
    """Return the tool, or the tools of a toolbox; None for any other object."""
    if isinstance(thing, Tool):
        return (thing,)
    return tuple(thing) if isinstance(thing, Toolbox) else None

"""Functions and methods as tools.

@tool(risk="read", effect="read")
def weather(city: str) -> str:
    \"\"\"The weather now.

    Args:
        city: name of the city.
    \"\"\"
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack, overload

from orchestrator.graph.limits import Retry
from orchestrator.spelling import checks_names
from orchestrator.tools.foreign import foreign_tool
from orchestrator.tools.result import Effect, Risk
from orchestrator.tools.schema import Spec, spec_of, wants_of
from orchestrator.tools.tool import Tool, checked

if TYPE_CHECKING:
    from orchestrator.tools.pool import Pool

Reconcile: TypeAlias = Callable[[str], object]


class FunctionTool(Tool):
    """A tool made from a function or method, by `@tool`."""

    def __init__(
        self, function: Callable[..., Any], *, around: Mapping[str, object] | None = None, **given: Any
    ) -> None:
        self._of_class = isinstance(function, classmethod)
        inside: Any = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        self.function: Callable[..., Any] = inside
        """The wrapped function."""
        self._around = around
        self._bound: tuple[object, ...] = ()
        first = next(iter(_signature(self.function).parameters), "")
        free = isinstance(function, staticmethod) or inspect.ismethod(function)
        self._method = self._of_class or (first in ("self", "cls") and not free)
        inner: Any = self.function.func if isinstance(self.function, partial) else self.function
        self.name = str(getattr(inner, "__name__", type(inner).__name__))
        for attribute, value in given.items():
            setattr(self, attribute, value)
        checked(self.name, self.risk, self.effect, self.timeout)
        self._wants_ = wants_of(self.function, self.name, bound=self._method, pooled=self.pool is not None)

    def __get__(self, instance: object | None, owner: type | None = None) -> FunctionTool:
        """Return the tool bound to the instance that it is accessed from, like a method."""
        if not self._method or self._bound:
            return self
        target = owner if self._of_class else instance
        if target is None:
            return self
        bound = copy.copy(self)
        bound._bound = (target,)
        return bound

    def _own_doc(self) -> str:
        return ""  # the docstring of this class describes function tools in general, not this tool

    def _function(self) -> Callable[..., object]:
        if self._method and not self._bound:
            owner = self.function.__qualname__.rpartition(".")[0].rpartition(".")[2] or "the_object"
            raise TypeError(f"tool {self.name!r} is a method: take it from an instance, {owner}(...).{self.name}")
        return partial(self.function, *self._bound) if self._bound else self.function

    @property
    def _spec(self) -> Spec:
        if self._spec_ is None:
            self._spec_ = spec_of(self.function, self.name, self._wants, around=self._around)
        return self._spec_


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function.

    Raises:
        TypeError: it has no signature, like some functions written in C.
    """
    try:
        return inspect.signature(function)
    except ValueError:
        raise TypeError(f"{function!r} has no readable signature: wrap it in a function with type hints") from None


class _ToolDecorator(Protocol):
    def __call__(self, function: Callable[..., Any] | Tool, /) -> Tool: ...


class _ToolOptions(TypedDict, total=False):
    description: str | None
    risk: Risk | None
    effect: Effect | None
    timeout: float | None
    retry: Retry | None
    ends: bool | None
    untrusted: bool | None
    group: str | None
    reconcile: Reconcile | None
    pool: Pool[Any] | None


@overload
def tool(function: Callable[..., Any] | Tool, /, name: str | None = None, **options: Unpack[_ToolOptions]) -> Tool: ...
@overload
def tool(*, name: str | None = None, **options: Unpack[_ToolOptions]) -> _ToolDecorator: ...
@checks_names
def tool(
    function: Callable[..., object] | Tool | None = None,
    /,
    name: str | None = None,
    *,
    description: str | None = None,
    risk: Risk | None = None,
    effect: Effect | None = None,
    timeout: float | None = None,
    retry: Retry | None = None,
    ends: bool | None = None,
    untrusted: bool | None = None,
    group: str | None = None,
    reconcile: Reconcile | None = None,
    pool: Pool[object] | None = None,
) -> Tool | _ToolDecorator:
    """Make a tool from a sync or async function or method: `@tool`, or `@tool(risk="read")`.

    With a tool instead of a function it returns a changed copy: `tool(add, name="plus")`.

    Args:
        function: the function, method or tool, also one of another framework; None when the decorator has options.
        name: the name for models. Default: the function's name.
        description: what the tool does, for models. Default: the docstring.
        risk: what a call can do. Default: `dangerous`.
        effect: whether a call may be repeated after a crash. Default: `irreversible`.
        timeout: seconds that one call may take; None: no limit.
        retry: when the executor retries a failed call.
        ends: whether a successful call of the tool ends the agent's work.
        untrusted: whether results contain text from outside, such as web pages or mails.
        group: the group that the tool belongs to.
        reconcile: receives the key of a call whose outcome a crash left unknown; returns its result, or None if the
            call did not happen.
        pool: the pool whose instance for the run, or for the call's `id`, is passed to each call as `env`.

    Returns:
        The tool, or a decorator that makes it.

    Raises:
        TypeError: the function takes `*args`, or an option does not fit.
    """
    given = {
        key: value
        for key, value in {
            "name": name,
            "description": description,
            "risk": risk,
            "effect": effect,
            "timeout": timeout,
            "retry": retry,
            "ends": ends,
            "untrusted": untrusted,
            "group": group,
            "reconcile": reconcile,
            "pool": pool,
        }.items()
        if value is not None
    }
    around = sys._getframe(2).f_locals  # of the caller; 1 is `checks_names`

    def wrap(function: Callable[..., object] | Tool, /) -> Tool:
        found = function if isinstance(function, Tool) else foreign_tool(function)
        if found is not None:
            return found.with_(**given)
        return FunctionTool(function, around=around, **given)

    return wrap if function is None else wrap(function)

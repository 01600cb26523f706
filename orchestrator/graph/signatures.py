"""Outcomes and parameters, read from the signatures of functions."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel

from orchestrator.errors import GraphError
from orchestrator.graph.names import plain_name
from orchestrator.graph.outcome import DONE, Outcome

INJECTED = ("state", "ctx", "item", "deps")


class Wanted(Struct, frozen=True):
    """A parameter of a node's function, and the value to pass."""

    parameter: str
    gives: str
    """The value to pass: `state`, `ctx`, `item` or `deps`."""
    positional: bool


class _Holder:
    """An object to pass to `typing.get_type_hints`."""

    def __init__(self, name: str, annotation: object) -> None:
        self.__annotations__ = {name: annotation}


def is_async(function: object) -> bool:
    """Return True if calling a function, or a callable object, returns a coroutine."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  what it is


def is_awaitable(found: object) -> TypeGuard[Awaitable[object]]:
    """Return True if a result is awaitable. Checks its type, because a proxy's `__class__` may raise."""
    kind = type(found)
    if kind is types.GeneratorType:
        return inspect.isawaitable(found)
    return kind is types.CoroutineType or (kind is not dict and issubclass(kind, Awaitable))


def hints_of(function: Callable[..., object], names: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return a function's annotations, each evaluated by itself: one that fails stays as it was written.

    Args:
        names: further names that annotations may use, such as the locals of the enclosing function.
    """
    inner: object = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)  # functools.partial
    inner = getattr(inner, "__func__", inner)  # a bound method
    if not hasattr(inner, "__annotations__") or not hasattr(inner, "__globals__"):
        inner = getattr(type(inner), "__call__", inner)  # noqa: B004  its annotations, not whether it has one
    scope = {**getattr(inner, "__globals__", {}), **(names or {}), **_closure(inner)}
    found: dict[str, object] = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        try:
            found[name] = typing.get_type_hints(_Holder(name, annotation), scope, include_extras=True)[name]
        except (NameError, TypeError, AttributeError, SyntaxError):
            found[name] = annotation
    return found


def _closure(function: object) -> dict[str, object]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def declared_outcomes(
    function: Callable[..., object], what: str, names: Mapping[str, object] | None = None
) -> tuple[str, ...] | None:
    """Return the outcomes that a return annotation declares; None if it declares none.

    Raises:
        GraphError: it is `Outcome` without its outcomes, or a type that no node can return.
    """
    annotation = hints_of(function, names).get("return")
    if annotation is None or isinstance(annotation, str):
        return None
    found: dict[str, None] = {}
    for member in _members(annotation):
        if get_origin(member) is Outcome:
            for outcome in _literals(get_args(member)[0]):
                if not isinstance(outcome, str):
                    raise GraphError(f"{what} returns {annotation!r}: an outcome must be a string")
                found[plain_name(outcome)] = None
        elif member is Outcome:
            raise GraphError(
                f"{what} returns an Outcome without its names: "
                "annotate Outcome[Literal['good', 'bad']], or declare outcomes=(...)"
            )
        elif (get_origin(member) or member) in _NO_RESULTS:
            raise GraphError(
                f"{what} returns {_name(member)}, and a node returns a dict of state fields, an Outcome or None: to "
                f"name its outcome, annotate Outcome[Literal['good', 'bad']] and return Outcome('good')"
            )
        elif member is not object and member is not Any:
            found[DONE] = None
    return tuple(found) or None


_NO_RESULTS = (Literal, str, int, float, bool)
"""Return types of functions whose result is meant as an outcome, or as the value of one field."""


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).removeprefix("typing.")


def declared_updates(
    function: Callable[..., object], names: Mapping[str, object] | None = None
) -> frozenset[str] | None:
    """Return the state fields in the `TypedDict`s of a return annotation; None if it has none."""
    hints = hints_of(function, names)
    found: set[str] = set()
    for member in _members(hints["return"]) if "return" in hints else [object]:
        arguments = get_args(member)
        update = _plain(arguments[1]) if get_origin(member) is Outcome and len(arguments) > 1 else member
        if typing.is_typeddict(update):
            found |= {*vars(update)["__required_keys__"], *vars(update)["__optional_keys__"]}
        elif update is not None and update is not type(None):
            return None
    return frozenset(found)


def returns_plainly(function: Callable[..., object]) -> bool:
    """Return True if a return annotation declares a plain result, never an awaitable."""
    annotation = _plain(hints_of(function).get("return", object))
    union = get_origin(annotation) in (Union, types.UnionType)
    members = [_plain(member) for member in (get_args(annotation) if union else (annotation,))]
    return all(
        member in (None, type(None)) or typing.is_typeddict(member) or _is_result(get_origin(member) or member)
        for member in members
    )


def _is_result(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Outcome | Mapping)


def _members(annotation: object) -> list[object]:
    annotation = _plain(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    if get_origin(annotation) in (Coroutine, Awaitable):
        return _members(get_args(annotation)[-1])
    return [annotation]


def _plain(annotation: Any) -> Any:
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__value__"):  # `type X = ...`
            annotation = annotation.__value__
        else:
            return annotation


def _literals(annotation: object) -> list[object]:
    annotation = _plain(annotation)
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return [value for member in get_args(annotation) for value in _literals(member)]
    raise GraphError(f"Outcome[{annotation!r}] does not list its outcomes: write Outcome[Literal['good', 'bad']]")


def wanted_arguments(
    function: Callable[..., object], what: str, names: Mapping[str, object] | None = None
) -> tuple[Wanted, ...]:
    """Return the parameters of a node's function.

    A parameter is identified by name (`state`, `ctx`, `item`, `deps`), else by annotation: a `Context`, or a pydantic
    model for the state. Any other parameter keeps its default.

    Raises:
        GraphError: names a parameter for which there is no value.
    """
    hints = hints_of(function, names)
    wanted: list[Wanted] = []
    positional = True
    for parameter in inspect.signature(function).parameters.values():
        gives = _gives(parameter, hints.get(parameter.name), {w.gives for w in wanted})
        if gives is None:
            if parameter.default is inspect.Parameter.empty or parameter.kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                fix = "a node takes state, ctx, item and deps, by name or annotation"
                if parameter.name == "self":
                    fix = "make a node of the method of an instance, node(steps.method), or subclass Node"
                raise GraphError(f"{what} wants {str(parameter).split(':')[0]!r}, which a node cannot receive: {fix}")
            positional = False
            continue
        positional = positional and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        wanted.append(Wanted(parameter.name, gives, positional))
    return tuple(wanted)


def _gives(parameter: inspect.Parameter, annotation: object, given: set[str]) -> str | None:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return None
    if parameter.name in INJECTED:
        return parameter.name
    if is_context(annotation):
        return "ctx"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and "state" not in given:
        return "state"
    return None


def is_context(annotation: object) -> bool:
    """Return True if an annotation is `Context`: also as a string, with type arguments, or as a member of a union."""
    if isinstance(annotation, str):
        return annotation.split("[")[0].split(".")[-1].strip() == "Context"
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return any(is_context(member) for member in get_args(annotation))
    return getattr(origin or annotation, "__name__", "") == "Context"

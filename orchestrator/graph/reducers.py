"""Reducers: functions that apply an update to a state field, named in the field's annotation.

    drafts: Annotated[list[str], append] = []

A field without a reducer is plain: the last update in sequence replaces its value, and two branches that both write it
conflict. Any function `f(old, new)` can be a reducer; it must not change `old`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Generic, TypeAlias, overload

from typing_extensions import TypeVar

from orchestrator.graph.refs import made_for, ref_of

ReducerFunction: TypeAlias = Callable[[Any, Any], Any]
"""`f(old, new)`; the types of both depend on the field."""

T = TypeVar("T")
ItemT = TypeVar("ItemT", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Extend(Generic[ItemT]):
    """Marks an update with several items for a field that takes one item at a time."""

    items: list[ItemT]


@dataclass(frozen=True, slots=True)
class Replace(Generic[ItemT]):
    """Marks an update that sets the field's whole value, without its reducer."""

    value: ItemT


@made_for("reducer")
@dataclass(frozen=True, slots=True)
class Reducer:
    """A built-in reducer. Calling it with two values reduces them."""

    name: str
    function: ReducerFunction

    def __call__(self, old: Any, new: Any) -> Any:
        return self.function(old, new)

    def __repr__(self) -> str:
        return self.name


class _ExtendReducer(Reducer):
    """As a reducer it adds many items; called with one argument, it marks an update with many items."""

    __slots__ = ()

    @overload
    def __call__(self, items: Iterable[T], /) -> Extend[T]: ...
    @overload
    def __call__(self, old: list[Any], new: Iterable[Any], /) -> list[Any]: ...
    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]  it is two things, by design
        self, old: Iterable[Any], new: Iterable[Any] | None = None, /
    ) -> object:
        return Extend(list(old)) if new is None else self.function(old, new)


def _append(old: list[object] | None, new: object) -> list[object]:
    return [*old, new] if old else [new]


def _extend(old: list[object] | None, new: Iterable[object]) -> list[object]:
    return [*old, *new] if old else list(new)


def _add(old: Any, new: Any) -> Any:
    return new if old is None else old + new


def _merge(old: Mapping[object, object] | None, new: Mapping[object, object]) -> dict[object, object]:
    return {**old, **new} if old else dict(new)


def _union(old: Any, new: Any) -> Any:
    if isinstance(old, set | frozenset):
        return old.union(new)
    if isinstance(new, set | frozenset):
        return new
    found = list(old or ())
    try:
        known = set(found)
        fresh = [item for item in dict.fromkeys(new) if item not in known]
    except TypeError:  # unhashable items are compared one by one
        for item in new:
            if item not in found:
                found.append(item)
        return found
    return found + fresh


append = Reducer("append", _append)
"""Append one item to a list; `extend([...])` in an update adds many."""
extend = _ExtendReducer("extend", _extend)
"""Extend a list by the items of another list."""
add = Reducer("add", _add)
"""old + new."""
merge = Reducer("merge", _merge)
"""Update a dict with the keys of another one, shallowly."""
union = Reducer("union", _union)
"""Add to a set or list the items that it does not contain yet, in order."""


@dataclass(frozen=True, slots=True)
class Local:
    """Marks a plain field as local to a branch."""

    def __repr__(self) -> str:
        return "local"


local = Local()
"""A plain field that is local to a branch: a join restores its value from the fork."""

BUILTIN: Mapping[str, Reducer] = {r.name: r for r in (append, extend, add, merge, union)}


def replace(value: T) -> Replace[T]:
    """In an update, set a field to a new value without its reducer: `{"log": replace([])}`.

    Args:
        value: the field's whole new value.

    Returns:
        The value, marked to replace the old one.
    """
    return Replace(value)


def is_reducer(thing: object) -> bool:
    """Return True if an annotation's metadata is a reducer: a built-in one, or a callable like a function."""
    if isinstance(thing, Reducer | FunctionType | BuiltinFunctionType | MethodType | partial):
        return True
    foreign = type(thing).__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types", "typing")
    return callable(thing) and not isinstance(thing, type) and not foreign


def takes_two(reducer: ReducerFunction) -> bool:
    """Return True if a function can be called as `f(old, new)`, or its signature is unknown."""
    try:
        signature = inspect.signature(reducer)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def reducer_name(reducer: object) -> str:
    """Return the name of a reducer.

    Args:
        reducer: a shipped reducer, or a function.

    Returns:
        A name such as `append`, or `module:attr`; `<closure>` for a function that cannot be imported.
    """
    if isinstance(reducer, Reducer | Local):
        return repr(reducer)
    return ref_of(reducer) or "<closure>"

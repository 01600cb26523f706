"""`typing.TypedDict` as pydantic takes it on every Python.

Before Python 3.12 such a class does not know which of its keys were inherited, so pydantic refuses it, and asks for the
one of `typing_extensions`. Its keys and which of them are required are known all the same.
"""

from __future__ import annotations

import sys
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions


def with_newer_dicts(annotation: object) -> Any:
    """The annotation, each `typing.TypedDict` in it replaced by one of `typing_extensions`."""
    return annotation if sys.version_info >= (3, 12) else _replaced(annotation, {})


def _replaced(annotation: Any, known: dict[int, Any]) -> Any:
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _newer(annotation, known)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None or not args:
        return annotation
    if origin is Annotated:
        inner = _replaced(args[0], known)
        return annotation if inner is args[0] else Annotated[(inner, *args[1:])]
    replaced = tuple(arg if isinstance(arg, str | list) else _replaced(arg, known) for arg in args)
    if all(new is old for new, old in zip(replaced, args, strict=True)):
        return annotation
    if origin is types.UnionType:
        return Union[replaced]  # noqa: UP007  of as many members as there are
    return annotation.copy_with(replaced) if hasattr(annotation, "copy_with") else origin[replaced]


def _newer(old: Any, known: dict[int, Any]) -> Any:
    if id(old) in known:
        return known[id(old)]
    known[id(old)] = old  # one that holds itself is left as it is inside, and pydantic says so
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(old, include_extras=True).items():
        # Of a class whose hints are texts, as under `from __future__ import annotations`, it was not read who says so.
        said = get_origin(hint)
        marked = said in (typing_extensions.Required, typing_extensions.NotRequired)
        inner = _replaced(get_args(hint)[0] if marked else hint, known)
        required = said is typing_extensions.Required if marked else name in old.__required_keys__
        fields[name] = inner if required else typing_extensions.NotRequired[inner]
    make: Any = typing_extensions.TypedDict  # checkers want to read name and fields where they stand
    new = make(old.__name__, fields)
    new.__doc__, new.__module__ = old.__doc__, old.__module__
    known[id(old)] = new
    return new

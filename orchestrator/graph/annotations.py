"""What the type of a state field is made of."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, Secret, SecretBytes, SecretStr, SerializeAsAny

SCALARS = (str, int, float, bool)
SECRETS = (SecretStr, SecretBytes, Secret)
_NONE = type(None)
_AS_ANY: Any = SerializeAsAny  # a class, which type checkers are told otherwise


def parts_of(annotation: Any, seen: frozenset[Any] = frozenset()) -> Iterator[Any]:
    """Every type that a type is made of, through models and dataclasses; `Any` where a value may hold any other."""
    origin = get_origin(annotation)
    if hasattr(annotation, "__value__") and annotation is not JsonValue:  # `type X = ...`, which may name itself
        if annotation not in seen:
            yield from parts_of(annotation.__value__, seen | {annotation})
        return
    if origin is Annotated:
        kind, *extras = get_args(annotation)
        yield from parts_of(kind, seen)
        if _open(extras):
            yield Any
    elif origin is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif origin in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from parts_of(argument, seen)
    elif origin is not None:
        yield origin
        if not get_args(annotation) or origin is Sequence:  # pydantic writes what a Sequence holds as it is
            yield Any
        for argument in get_args(annotation):
            for part in argument if isinstance(argument, list) else [argument]:  # a list: the arguments of a Callable
                if part is not Ellipsis:
                    yield from parts_of(part, seen)
        if origin in (list, dict, set, frozenset, tuple):
            return
        yield from _inner(origin, seen)
    else:
        yield _NONE if annotation is None else annotation
        if is_container(annotation):
            yield Any
        yield from _inner(annotation, seen)


def is_container(kind: object) -> bool:
    """Whether a class without arguments has values that hold others, of which nothing is said."""
    if not isinstance(kind, type) or issubclass(kind, (str, bytes, bytearray, BaseModel)):
        return False
    if hasattr(kind, "__required_keys__") or (issubclass(kind, tuple) and getattr(kind, "__annotations__", None)):
        return False  # a TypedDict or a NamedTuple, whose fields say it
    return kind is Hashable or issubclass(kind, Iterable)


def _open(extras: Iterable[object]) -> bool:
    """Whether a field is written by what its value is, not by its type."""
    return any(isinstance(extra, _AS_ANY) for extra in extras)


def _inner(kind: object, seen: frozenset[object]) -> Iterator[object]:
    if kind in seen or not isinstance(kind, type):
        return
    seen = seen | {kind}
    config = getattr(kind, "model_config" if issubclass(kind, BaseModel) else "__pydantic_config__", None) or {}
    if config.get("extra") == "allow" or config.get("polymorphic_serialization"):
        yield Any
    if issubclass(kind, BaseModel):
        if any(_open(field.metadata) for field in kind.model_fields.values()):
            yield Any
        for field in kind.model_fields.values():
            yield from parts_of(field.annotation, seen)
    elif dataclasses.is_dataclass(kind) or hasattr(kind, "__annotations__"):
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, TypeError):
            return
        for hint in hints.values():
            if get_origin(hint) is not typing.ClassVar:
                yield from parts_of(hint, seen)


def holds_anything(part: object) -> bool:
    """Whether values of a type may be of any other type."""
    return part in (Any, object, JsonValue) or isinstance(part, TypeVar)


def secret_in(annotation: object) -> bool:
    """Whether a type is, or holds, a secret."""
    return any(isinstance(part, type) and issubclass(part, SECRETS) for part in parts_of(annotation))


def members_of(annotation: object) -> tuple[Any, ...]:
    """The members of a union, or the one type; empty where constraints stand in the annotation."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return get_args(annotation)
    return () if origin is not None else (_NONE if annotation is None else annotation,)


def is_native(annotation: object) -> bool:
    """Whether a value's JSON is the value itself."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        known = all(type(extra).__module__ == "annotated_types" for extra in arguments[1:])
        return known and is_native(arguments[0])
    if origin is Literal:
        return all(type(value) in (*SCALARS, _NONE) for value in arguments)
    if origin in (Union, types.UnionType):
        return all(is_native(argument) for argument in arguments)
    if origin is list:
        return all(is_native(argument) for argument in arguments)
    if origin is dict:
        return bool(arguments) and arguments[0] is str and is_native(arguments[1])
    return annotation in (*SCALARS, _NONE, None, Any, JsonValue, list)

"""Copies that share nothing mutable, as cheap as a type allows.

What says of itself that it is frozen (a model, a dataclass) is taken at its word and shared.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

_set = object.__setattr__
_NONE = type(None)
_ATOMS = frozenset({str, int, float, bool, _NONE})
_IMMUTABLE = (
    str, int, float, bool, _NONE, bytes, complex, range,
    date, datetime, time, timedelta, Decimal, UUID, PurePath, enum.Enum,
)  # fmt: skip


def isolation_of(annotation: object) -> Callable[[Any], Any] | None:
    """What makes a copy of a value of this type that shares nothing mutable; None where values can be shared."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return isolation_of(get_args(annotation)[0])
    if _shareable(annotation):
        return None
    arguments = [a for a in get_args(annotation) if a is not Ellipsis]
    if origin in (list, dict, set) and arguments and all(_shareable(argument) for argument in arguments):
        return _copy
    return isolated


def _copy(value: Any) -> Any:
    # A value that has been through a union or a subclass may be another container than its type says.
    return value.copy() if type(value) in (list, dict, set) else isolated(value)


def _shareable(annotation: object) -> bool:
    """Whether all values of a type are immutable; what says that it is frozen is taken at its word."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shareable(get_args(annotation)[0])
    if origin is Literal or annotation is None:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(_shareable(argument) for argument in get_args(annotation) if argument is not Ellipsis)
    return isinstance(annotation, type) and (issubclass(annotation, _IMMUTABLE) or _frozen(annotation))


def _frozen(kind: type) -> bool:
    if issubclass(kind, BaseModel):
        return bool(kind.model_config.get("frozen"))
    parameters = getattr(kind, "__dataclass_params__", None)
    return bool(getattr(parameters, "frozen", False))


def isolated(value: Any) -> Any:
    """A copy of a value of any type that shares nothing mutable with it."""
    kind: type = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [isolated(item) for item in value]
    if kind is dict:
        return {key: isolated(item) for key, item in value.items()}
    if kind is tuple:
        return tuple(isolated(item) for item in value)
    own = _own_copy(kind)
    return copy.deepcopy(value) if own is None else own(value)


@lru_cache(maxsize=1024)
def _own_copy(kind: type) -> Callable[[Any], Any] | None:
    """What copies the values of a class faster than `deepcopy` does, or shares them; None where it has its own ways."""
    if issubclass(kind, _IMMUTABLE) or _frozen(kind):
        return _shared
    if not issubclass(kind, BaseModel) or kind.__deepcopy__ is not BaseModel.__deepcopy__:
        return None
    if kind.__new__ is not object.__new__ or _has_slots(kind):
        return None
    return _model_copy


def _shared(value: Any) -> Any:
    return value


def _model_copy(value: Any) -> Any:
    """A deep copy of a model, field by field, as pydantic's `__deepcopy__` makes it."""
    made = object.__new__(type(value))
    values = value.__dict__
    plain = _ATOMS.issuperset(map(type, values.values()))
    _set(made, "__dict__", values.copy() if plain else {name: isolated(one) for name, one in values.items()})
    _set(made, "__pydantic_fields_set__", value.__pydantic_fields_set__.copy())
    extra = value.__pydantic_extra__
    _set(made, "__pydantic_extra__", None if extra is None else isolated(extra))
    private = getattr(value, "__pydantic_private__", None)
    if private is not None:
        private = {name: copy.deepcopy(one) for name, one in private.items() if one is not PydanticUndefined}
    _set(made, "__pydantic_private__", private)
    return made


def _has_slots(kind: type) -> bool:
    """Whether a class has values outside its dictionary, besides those of pydantic's base class."""
    return any(vars(base).get("__slots__") for base in kind.__mro__ if base not in BaseModel.__mro__)

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
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

_NONE = type(None)
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
    kind = type(value)
    if kind in (str, int, float, bool, _NONE):
        return value
    if kind is list:
        return [isolated(item) for item in value]
    if kind is dict:
        return {key: isolated(item) for key, item in value.items()}
    if kind is tuple:
        return tuple(isolated(item) for item in value)
    if isinstance(value, _IMMUTABLE) or _frozen(kind):
        return value
    return copy.deepcopy(value)

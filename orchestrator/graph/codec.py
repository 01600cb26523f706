"""How one state field's values are checked, written as JSON, read back and kept apart.

Everything that depends on the type alone is decided once, when the codec is made: the types of most fields are
plain JSON and need no pydantic at all on the way.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from orchestrator.errors import SecretInState
from orchestrator.jsontypes import canonical

_SCALARS = (str, int, float, bool)
_NONE = type(None)
_IMMUTABLE = (
    str, int, float, bool, _NONE, bytes, complex, range,
    date, datetime, time, timedelta, Decimal, UUID, PurePath, enum.Enum,
)  # fmt: skip
_SECRETS = (SecretStr, SecretBytes)


class Unfit(ValueError):
    """Raised when a value does not fit its field; the message is for people and names no field."""


class Codec:
    """Check, write and read values of one type."""

    __slots__ = ("_adapter", "_exact", "_native", "_opaque", "_strict_floats", "_unordered", "isolate")

    isolate: Callable[[Any], Any] | None
    """Makes a copy that shares nothing mutable; None where values can be shared."""

    def __init__(self, annotation: Any, config: ConfigDict | None = None, *, plain: bool = True) -> None:
        parts = frozenset(_parts(annotation))
        bare = _optional(annotation)
        self._exact: frozenset[type] = (
            frozenset(bare) if plain and bare and set(bare) <= {*_SCALARS, _NONE} else frozenset()
        )
        self._native = plain and _native(annotation)
        self._opaque = any(_hides(part) for part in parts)
        self._unordered = not parts.isdisjoint((set, frozenset)) or self._opaque
        self._strict_floats = float in parts or Decimal in parts or self._opaque or not self._native
        self._adapter: TypeAdapter[Any] = _adapter(annotation, config)
        self.isolate = _isolation(annotation)

    @property
    def adapter(self) -> TypeAdapter[Any]:
        """Pydantic's view of the type."""
        return self._adapter

    def encode(self, value: Any) -> object:
        """A checked value as JSON that shares nothing mutable with it.

        Raises:
            Unfit: it does not fit the type, or JSON cannot say it.
            SecretInState: it holds a secret.
        """
        kind = type(value)
        if kind in self._exact:
            if kind is float:
                if not math.isfinite(value):
                    raise Unfit(f"{value!r} is no number that JSON can say")
            elif kind is str and not value.isascii():
                _refuse_surrogates(value)
            return value
        try:
            checked = self._adapter.validate_python(value, by_alias=True, by_name=True)
        except ValidationError as error:
            refuse_secrets(value)
            raise Unfit(explain(error)) from None
        if self._opaque:
            refuse_secrets(checked)
        return self.dump(checked)

    def dump(self, value: Any) -> object:
        """A value of this type as JSON, the same for equal values."""
        if type(value) in self._exact:
            return value
        try:
            found = self._adapter.dump_python(value, mode="json", warnings=False)
            if self._unordered:
                found = _ordered(value, found)
            if self._strict_floats:
                json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise Unfit(f"it cannot be written as JSON ({error})") from None
        return found

    def load(self, value: object) -> Any:
        """Read back what `dump` wrote.

        Raises:
            Unfit: it is not of this type (any more).
        """
        if self._native or type(value) in self._exact:
            return value
        try:
            return self._adapter.validate_json(to_json(value), strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            raise Unfit(explain(error)) from None


class JsonCodec:
    """The codec of a field whose class is not at hand: values stay JSON."""

    __slots__ = ()

    isolate: Callable[[Any], Any] | None = staticmethod(lambda value: isolated(value))

    def encode(self, value: Any) -> object:
        """The value, if it is plain JSON. Raises `Unfit` if not."""
        try:
            return json.loads(canonical(value))
        except (TypeError, ValueError) as error:
            refuse_secrets(value)
            raise Unfit(f"it cannot be written as JSON ({error})") from None

    def dump(self, value: Any) -> object:
        """A copy."""
        return copy.deepcopy(value)

    def load(self, value: object) -> Any:
        """The value itself."""
        return value


def explain(error: ValidationError) -> str:
    """All of a validation error's faults in one line."""
    faults = []
    for fault in error.errors(include_url=False, include_context=False):
        place = ".".join(str(part) for part in fault["loc"])
        got = fault["input"]
        message = fault["msg"][:1].lower() + fault["msg"][1:]
        short = "a secret" if isinstance(got, _SECRETS) else _short(got)
        faults.append(f"{place}: {message}, got {short}" if place else f"{message}, got {short}")
    return "; ".join(faults)


def _short(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


# -- looking at types --------------------------------------------------------------------------------------------


def _adapter(annotation: Any, config: ConfigDict | None) -> TypeAdapter[Any]:
    if config:
        try:
            return TypeAdapter(annotation, config=config)
        except PydanticUserError:
            pass  # the type brings its own configuration
    return TypeAdapter(annotation)


def _parts(annotation: Any, seen: frozenset[Any] = frozenset()) -> Iterator[Any]:
    """Every type that a type is made of, through models and dataclasses."""
    origin = get_origin(annotation)
    if hasattr(annotation, "__value__") and annotation is not JsonValue:  # `type X = ...`, which may name itself
        if annotation not in seen:
            yield from _parts(annotation.__value__, seen | {annotation})
        return
    if origin is Annotated:
        yield from _parts(get_args(annotation)[0], seen)
    elif origin is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif origin in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from _parts(argument, seen)
    elif origin is not None:
        yield origin
        for argument in get_args(annotation):
            if argument is not Ellipsis:
                yield from _parts(argument, seen)
        if origin in (list, dict, set, frozenset, tuple):
            return
        yield from _inner(origin, seen)
    else:
        yield _NONE if annotation is None else annotation
        if annotation in (list, dict, set, frozenset, tuple):
            yield Any
        yield from _inner(annotation, seen)


def _inner(kind: Any, seen: frozenset[Any]) -> Iterator[Any]:
    if kind in seen or not isinstance(kind, type):
        return
    seen = seen | {kind}
    if issubclass(kind, BaseModel):
        for field in kind.model_fields.values():
            yield from _parts(field.annotation, seen)
    elif dataclasses.is_dataclass(kind) or hasattr(kind, "__annotations__"):
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, TypeError):
            return
        for hint in hints.values():
            if get_origin(hint) is not typing.ClassVar:
                yield from _parts(hint, seen)


def _hides(part: Any) -> bool:
    """Whether values of a type may be of any other type."""
    return part in (Any, object, JsonValue) or isinstance(part, TypeVar)


def secret_in(annotation: Any) -> bool:
    """Whether a type is, or holds, a secret."""
    return any(isinstance(part, type) and issubclass(part, _SECRETS) for part in _parts(annotation))


def _optional(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type; empty where constraints stand in the annotation."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return get_args(annotation)
    return () if origin is not None else (_NONE if annotation is None else annotation,)


def _native(annotation: Any) -> bool:
    """Whether a value's JSON is the value itself."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        known = all(type(extra).__module__ == "annotated_types" for extra in arguments[1:])
        return known and _native(arguments[0])
    if origin is Literal:
        return all(type(value) in (*_SCALARS, _NONE) for value in arguments)
    if origin in (Union, types.UnionType):
        return all(_native(argument) for argument in arguments)
    if origin is list:
        return _native(arguments[0])
    if origin is dict:
        return arguments[0] is str and _native(arguments[1])
    return annotation in (*_SCALARS, _NONE, None, Any, JsonValue, list)


# -- keeping values apart ----------------------------------------------------------------------------------------


def _isolation(annotation: Any) -> Callable[[Any], Any] | None:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _isolation(get_args(annotation)[0])
    if _shareable(annotation):
        return None
    arguments = [a for a in get_args(annotation) if a is not Ellipsis]
    if origin in (list, dict, set) and arguments and all(_shareable(argument) for argument in arguments):
        return _copy
    return isolated


def _copy(value: Any) -> Any:
    # A value that has been through a union or a subclass may be another container than its type says.
    return value.copy() if type(value) in (list, dict, set) else isolated(value)


def _shareable(annotation: Any) -> bool:
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


# -- walking values ----------------------------------------------------------------------------------------------


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unfit("the text holds half a surrogate pair, which cannot be stored") from None


def refuse_secrets(value: Any) -> None:
    """Raise `SecretInState` if a value holds a secret anywhere."""
    if isinstance(value, _SECRETS):
        raise SecretInState("a secret must not enter the state: hand it over by deps, or as an 'env:NAME' reference")
    if isinstance(value, dict):
        for item in value.values():
            refuse_secrets(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            refuse_secrets(item)
    elif isinstance(value, BaseModel):
        refuse_secrets(value.__dict__)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        refuse_secrets([getattr(value, field.name) for field in dataclasses.fields(value)])


def _ordered(value: Any, dumped: Any) -> Any:
    """The dumped form with the items of sets sorted: their own order differs from process to process."""
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        items = [_ordered(item, form) for item, form in zip(value, dumped, strict=True)]
        return sorted(items, key=canonical)
    if isinstance(value, dict) and isinstance(dumped, dict) and len(value) == len(dumped):
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: _ordered(item, form) for item, (key, form) in pairs}
    if isinstance(value, list | tuple) and isinstance(dumped, list) and len(value) == len(dumped):
        return [_ordered(item, form) for item, form in zip(value, dumped, strict=True)]
    if isinstance(dumped, dict) and (isinstance(value, BaseModel) or dataclasses.is_dataclass(value)):
        return {key: _ordered(getattr(value, key, None), form) for key, form in dumped.items()}
    return dumped

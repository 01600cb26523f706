"""How one state field's values are checked, written as JSON, read back and kept apart.

Everything that depends on the type alone is decided once, when the codec is made: the types of most fields are
plain JSON and need no pydantic at all on the way.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import UserString
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from orchestrator.errors import InvalidValue, SecretInState
from orchestrator.graph.annotations import SCALARS, SECRETS, holds_anything, is_native, members_of, parts_of, secret_in
from orchestrator.graph.isolation import isolation_of, json_copy
from orchestrator.graph.read_back import MISSING, Difference, difference, kinds_of
from orchestrator.jsontypes import canonical, deeper_than
from orchestrator.values import MAX_BYTES, MAX_DEPTH, Unfit, check, too_deep

__all__ = [
    "Codec",
    "JsonCodec",
    "Unfit",
    "as_json",
    "explain",
    "explain_fault",
    "ordered",
    "refuse_secrets",
    "secret_in",
    "shown",
]

_NONE = type(None)
_READABLE = 254
"""Levels that pydantic writes: what was stored before there was a lower bound is shown, and goes on."""
_ANY_SIZE = 1 << 62
_LONG = 1 << 20
"""Characters from which on a text's bytes are counted."""
_SMALL = 1 << 63


class Codec:
    """Check, write and read values of one type.

    Args:
        annotation: the type.
        config: what a state class's configuration says of single values.
        validators: extras of the annotation that check what comes in. What is read back has passed them already.
        depth: how many levels of lists and objects a value may have.
        size: how many UTF-8 bytes its JSON may have.
    """

    __slots__ = (
        "_checks", "_depth", "_exact", "_lazy", "_native", "_opaque", "_open", "_size", "_stored", "_unordered",
        "isolate",
    )  # fmt: skip

    isolate: Callable[[Any], Any] | None
    """Makes a copy that shares nothing mutable; None where values can be shared."""

    def __init__(
        self,
        annotation: Any,
        config: ConfigDict | None = None,
        validators: Sequence[object] = (),
        *,
        depth: int = MAX_DEPTH,
        size: int = MAX_BYTES,
    ) -> None:
        self._depth, self._size = depth, size
        parts = frozenset(parts_of(annotation))
        bare = members_of(annotation)
        plain = not config and not validators
        self._exact: frozenset[type] = (
            frozenset(bare) if plain and bare and set(bare) <= {*SCALARS, _NONE} else frozenset()
        )
        self._native = not config and is_native(annotation)
        self._opaque = any(holds_anything(part) for part in parts)
        self._lazy = not parts.isdisjoint((Iterable, Generator))  # pydantic makes iterators of their values
        self._unordered = self._opaque or not parts.isdisjoint((set, frozenset)) or (dict in parts and not self._native)
        self._stored: TypeAdapter[Any] = _adapter(annotation, config)
        self._open = kinds_of(annotation) if self._opaque else ()
        self._checks = _adapter(Annotated[(annotation, *validators)], config) if validators else self._stored
        self.isolate = isolation_of(annotation, native=self._native)

    def encode(self, value: object, *, validators: bool = True) -> object:
        """A value as JSON that shares nothing mutable with it, after all checks.

        Args:
            validators: whether those of the state class check it too; they check no defaults.

        Raises:
            Unfit: it does not fit the type, or JSON cannot say it.
            SecretInState: it holds a secret.
        """
        if type(value) in self._exact:
            return _sayable(value)
        try:
            checks = self._checks if validators else self._stored
            checked = checks.validate_python(value, by_alias=True, by_name=True)
        except ValidationError as error:
            refuse_secrets(value)
            raise Unfit(explain(error)) from None
        return self.write(checked)

    def write(self, value: object) -> object:
        """A value that was checked as JSON.

        Raises:
            Unfit: JSON cannot say it, or not so that it can be read back.
            SecretInState: it holds a secret.
        """
        if type(value) in self._exact:
            return _sayable(value)
        if self._opaque:
            if self._lazy and isinstance(value, Iterator):
                value = _all_of(value)
            refuse_secrets(value, finite=True)  # where the type is open, pydantic would write NaN as null
        found = self._dumped(value, self._depth, self._size)
        if not self._native or self._checks is not self._stored:
            self._come_back(value, found)
        return found

    def dump(self, value: object) -> object:
        """A value of this type as JSON, the same for equal values."""
        if type(value) in self._exact:
            return value
        return self._dumped(value, _READABLE, _ANY_SIZE)

    def show(self, value: object) -> object:
        """The same for a value that is only looked at: it is not checked whether it could be stored."""
        return value if type(value) in self._exact else self._plain(value, _READABLE)

    def _dumped(self, value: object, depth: int, size: int) -> object:
        found = self._plain(value, depth)
        check(found, depth=depth, size=size)
        return found

    def _plain(self, value: object, depth: int) -> object:
        try:
            found = self._stored.dump_python(value, mode="json", warnings=False)
            if self._unordered:
                found = ordered(value, found)
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, Unfit):
                raise
            if isinstance(error, RecursionError) or "depth exceeded" in str(error) or deeper_than(value, _READABLE):
                raise Unfit(too_deep(depth)) from None
            if isinstance(error, UnicodeEncodeError):
                raise Unfit("the text contains an unpaired surrogate, which cannot be stored") from None
            raise Unfit(f"it cannot be written as JSON ({error}){_mend(value)}") from None
        return found

    def load(self, value: object) -> Any:
        """Read back what `write` wrote. Values of the state's validators are taken at their word.

        Raises:
            Unfit: it is not of this type (any more).
        """
        return value if self._native or type(value) in self._exact else self._read(value)

    def _read(self, value: object) -> object:
        try:
            return self._stored.validate_json(to_json(value), strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            raise Unfit(explain(error)) from None

    def _come_back(self, value: object, written: object) -> None:
        """Refuse JSON that would be read back as a different value, or not at all.

        A part of any type may become what JSON makes of it.
        """
        try:
            found = difference(value, self._read(written), self._open)
        except Exception as error:
            refuse_secrets(value)  # before anything of it is quoted
            why = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
            raise Unfit(f"its JSON, {shown(written)}, cannot be read back ({why})") from None
        if found is not None:
            refuse_secrets(value)
            raise Unfit(f"its JSON, {shown(written)}, is read back {_told(found)}")


class JsonCodec:
    """The codec of a field whose class is not at hand: values stay JSON."""

    __slots__ = ()

    isolate: Callable[[Any], Any] | None = staticmethod(json_copy)

    def encode(self, value: object, *, validators: bool = True) -> object:
        """The value, if it is plain JSON. Raises `Unfit` if not."""
        return self.write(value)

    def write(self, value: object) -> object:
        """The same."""
        try:
            check(value)
            return json.loads(canonical(value))
        except (TypeError, ValueError, RecursionError) as error:
            refuse_secrets(value)
            if isinstance(error, Unfit):
                raise
            raise Unfit(f"it cannot be written as JSON ({error})") from None

    def dump(self, value: object) -> object:
        """A copy."""
        return json_copy(value)

    def show(self, value: object) -> object:
        """A copy."""
        return json_copy(value)

    def load(self, value: object) -> Any:
        """The value itself."""
        return value


def explain(error: ValidationError) -> str:
    """All of a validation error's faults in one line."""
    return "; ".join(explain_fault(fault) for fault in error.errors(include_url=False, include_context=False))


def explain_fault(fault: ErrorDetails) -> str:
    """One fault of a validation error, in a line."""
    place = ".".join(str(part) for part in fault["loc"])
    got = fault["input"]
    message = fault["msg"]
    if not message[:2].isupper():  # JSON stays JSON
        message = message[:1].lower() + message[1:]
    if fault["type"] not in ("missing", "value_error", "assertion_error"):  # those say it, or have nothing to say
        message += ", got a secret" if isinstance(got, SECRETS) else f", got {shown(got)} ({type(got).__name__})"
    return f"{place}: {message}" if place else message


def shown(value: object) -> str:
    """A value as messages show it: short, and whatever its `__repr__` does."""
    try:
        text = repr(value)
    except Exception:  # a repr of the user's
        return "something"
    return text if len(text) <= 60 else text[:57] + "..."


def _sayable(value: Any) -> Any:
    """A plain value, if JSON can say it."""
    kind = type(value)
    if kind is int:
        if not -_SMALL < value < _SMALL:
            check(value)
    elif kind is str:
        if len(value) > _LONG or not value.isascii():
            check(value)
    elif kind is float and not math.isfinite(value):
        check(value)
    return value


def _all_of(values: Iterator[object]) -> list[object]:
    try:
        return list(values)
    except ValidationError as error:
        raise Unfit(explain(error)) from None


def _mend(value: object) -> str:
    if isinstance(value, bytes):
        return ": set ser_json_bytes='base64' and val_json_bytes='base64' in the state's model_config"
    return ""


def _told(found: Difference) -> str:
    """Describe how the value read back differs, and the fix. Shows no value, because it may be a secret."""
    given, read = type(found.given).__name__, type(found.read).__name__
    place = f" (at {found.place})" if found.place else ""
    if found.read is MISSING:
        return f"without a part of it{place}: keys are texts in JSON, so give them one type; and name the type of items"
    if type(found.given) is type(found.read) or found.given is MISSING:
        mend = "make it a plain field, without exclude=, or let its validator undo what its serializer does"
        return f"as another value{place}: {mend}"
    if isinstance(found.given, BaseModel) or dataclasses.is_dataclass(found.given):
        mend = f"give a {read}, or declare a union of both classes with Field(discriminator=...)"
    else:
        mend = f"give a {read}, or declare one type that JSON tells from others"
    return f"as a {read}, not as a {given}{place}: {mend}"


def _adapter(annotation: Any, config: ConfigDict | None) -> TypeAdapter[Any]:
    if config:
        try:
            return TypeAdapter(annotation, config=config)
        except PydanticUserError:
            pass  # the type brings its own configuration
    return TypeAdapter(annotation)


def as_json(value: object, where: str, *, inside: int = 0, size: int = MAX_BYTES) -> Any:
    """Any value as plain JSON that shares nothing mutable with it, by the rules of a state field of type `Any`.

    Args:
        where: what the value is, for messages.
        inside: levels of lists and objects around what counts as a value, such as 1 for a list of arguments.
        size: how many UTF-8 bytes its JSON may have.

    Raises:
        InvalidValue: it has no JSON form, or could not be read back.
        SecretInState: it holds a secret.
    """
    try:
        return _any(depth=MAX_DEPTH + inside, size=size).encode(value)
    except Unfit as error:
        raise InvalidValue(f"{where}: {error}", where=where) from None


_any = cache(partial(Codec, Any))


def refuse_secrets(value: object, *, finite: bool = False) -> None:
    """Raise `SecretInState` if a value holds a secret anywhere, `Unfit` if it has no end.

    Args:
        finite: refuse numbers that JSON cannot say, and what cannot be looked at without using it up, too.
    """
    try:
        _look_for_secrets(value, finite)
    except RecursionError:
        raise Unfit("it is nested too deeply, or contains itself") from None


_PLAIN = frozenset({str, int, bool, _NONE})
"""Types whose values hold no secret, and that JSON can say."""


def _look_for_secrets(value: object, finite: bool) -> None:
    if type(value) in _PLAIN:  # as most of what is looked at; it is none of what follows
        return
    if isinstance(value, SECRETS):
        raise SecretInState("a secret must not enter the state: pass it in deps, or as an 'env:NAME' reference")
    if isinstance(value, float):
        if finite and not math.isfinite(value):
            raise Unfit(f"{value!r} is not a number that JSON can represent")
    elif isinstance(value, dict):
        if not _PLAIN.issuperset(map(type, value)):
            _look_into(value, finite)
        for item in value.values():
            if type(item) not in _PLAIN:
                _look_for_secrets(item, finite)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            if type(item) not in _PLAIN:
                _look_for_secrets(item, finite)
    elif isinstance(value, BaseModel):
        _look_into(value.__dict__.values(), finite)
        if value.__pydantic_extra__:
            _look_for_secrets(value.__pydantic_extra__, finite)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _look_for_secrets([getattr(value, field.name) for field in dataclasses.fields(value)], finite)
    elif isinstance(value, Enum):
        _look_for_secrets(value.value, finite)
    elif isinstance(value, Mapping):
        _look_into(value, finite)
        _look_into(value.values(), finite)
    elif isinstance(value, Sequence | AbstractSet) and not isinstance(value, _TEXTS):
        _look_into(value, finite)
    elif finite and isinstance(value, Iterator):
        raise Unfit(f"{type(value).__name__}: it can be read only once; make a list of it")


_TEXTS = (str, bytes, bytearray, memoryview, range, UserString)
"""Sequences that hold nothing but characters and numbers."""


def _look_into(values: Iterable[object], finite: bool) -> None:
    for item in values:
        if type(item) not in _PLAIN:
            _look_for_secrets(item, finite)


def ordered(value: object, dumped: object) -> Any:
    """The dumped form with the items of sets sorted: their own order differs from process to process."""
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        items = [ordered(item, form) for item, form in zip(value, dumped, strict=True)]
        return sorted(items, key=canonical)
    if isinstance(value, dict) and isinstance(dumped, dict):
        if len(value) != len(dumped):
            raise Unfit("two of its keys are equal in JSON, where keys are texts; make them different texts")
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: form if type(item) in _PLAIN else ordered(item, form) for item, (key, form) in pairs}
    if isinstance(value, list | tuple) and isinstance(dumped, list) and len(value) == len(dumped):
        return [form if type(item) in _PLAIN else ordered(item, form) for item, form in zip(value, dumped, strict=True)]
    if isinstance(dumped, dict) and (isinstance(value, BaseModel) or dataclasses.is_dataclass(value)):
        return {key: ordered(getattr(value, key, None), form) for key, form in dumped.items()}
    return dumped

"""Conversion of field values to JSON and back, by the annotations of the fields."""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
import types
import typing
from collections import UserString, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from enum import Enum
from functools import cache, lru_cache, partial
from itertools import chain
from operator import is_, itemgetter
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json
from typing_extensions import is_typeddict

from orchestrator.errors import InvalidValue, SecretInState
from orchestrator.graph.isolation import isolation_of, json_copy
from orchestrator.json import canonical, deeper_than
from orchestrator.values import MAX_BYTES, MAX_DEPTH, Unfit, check, too_deep

# -- The types inside a field's type ---------------------------------------------------------------------------


SCALARS = (str, int, float, bool)
SECRETS = (SecretStr, SecretBytes, Secret)
_NONE = type(None)
_AS_ANY: Any = SerializeAsAny  # it is a class at run time, which the stubs hide from type checkers


def parts_of(annotation: Any, seen: frozenset[Any] = frozenset()) -> Iterator[Any]:
    """Yield every type inside a type, through models and dataclasses; `Any` where a value may be of any type."""
    origin = get_origin(annotation)
    if hasattr(annotation, "__value__") and annotation is not JsonValue:  # `type X = ...`, which may refer to itself
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
        if not get_args(annotation) or origin is Sequence:  # pydantic does not check items of a Sequence
            yield Any
        for argument in get_args(annotation):
            for part in argument if isinstance(argument, list) else [argument]:  # a list: the parameters of a Callable
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
    """Return True if a class without type arguments is a container, whose items may be of any type."""
    if not isinstance(kind, type) or issubclass(kind, (str, bytes, bytearray, BaseModel)):
        return False
    if hasattr(kind, "__required_keys__") or (issubclass(kind, tuple) and getattr(kind, "__annotations__", None)):
        return False  # a TypedDict or a NamedTuple, whose fields have types
    return kind is Hashable or issubclass(kind, Iterable)


def _open(extras: Iterable[object]) -> bool:
    """Return True if a field is serialized by the type of its value, not by its own type."""
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
    """Return True if a type admits values of any type."""
    return part in (Any, object, JsonValue) or isinstance(part, TypeVar)


def secret_in(annotation: object) -> bool:
    """Return True if a type is a secret or contains one."""
    return any(isinstance(part, type) and issubclass(part, SECRETS) for part in parts_of(annotation))


def members_of(annotation: object) -> tuple[Any, ...]:
    """Return the members of a union, or the single type; empty if the annotation contains constraints."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return get_args(annotation)
    return () if origin is not None else (_NONE if annotation is None else annotation,)


def is_native(annotation: object) -> bool:
    """Return True if a value is its own JSON form."""
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


# -- Comparison of values with those read back from their JSON, including types --------------------------------
# Values of different types can compare equal (a member of an `IntEnum` and an integer, a `Path` and a `PurePath`), and
# a serializer may omit parts. Values are therefore compared part by part. The value from JSON may replace the original
# only where a type is open, such as `Any`.


_ATOMS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (list, dict, set, tuple, frozenset)
_KEYS, _EXTRA = object(), object()
"""Markers for two places in a value: the keys of a dictionary, and the extra fields of a model."""
MISSING = object()
"""Marks a part that is missing from the value read back."""

Kinds: TypeAlias = tuple[Any, ...]
"""Types that a value may have; empty if no part of the value has an open type."""


def kinds_of(annotation: Any) -> Kinds:
    """Return the members of a union, or the single type."""
    if hasattr(annotation, "__value__") and annotation is not JsonValue:  # `type X = ...`
        return kinds_of(annotation.__value__)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds_of(arguments[0])
    return tuple(chain.from_iterable(map(kinds_of, arguments))) if origin in (Union, UnionType) else (annotation,)


def _inside(kinds: Kinds, place: Any) -> Kinds:
    """Return the types of the part at `place` in a container of one of these types."""
    found: list[Any] = []
    for kind in kinds:
        origin, arguments = get_origin(kind), get_args(kind)
        if is_typeddict(kind):
            found += _fields_in(kind).get(place, ())
        elif arguments and isinstance(origin, type):
            if origin is tuple and arguments[-1] is not Ellipsis:
                found += kinds_of(arguments[place])
            else:  # the type of a mapping's values is its last argument
                found += kinds_of(arguments[-1 if issubclass(origin, Mapping) and place is not _KEYS else 0])
        elif is_container(kind):
            found.append(Any)
    return tuple(found)


@lru_cache(maxsize=1024)
def _fields_in(kind: Any) -> Mapping[object, Kinds]:
    """Return the types of the fields of a class."""
    if not issubclass(kind, BaseModel):
        try:
            hints = get_type_hints(kind)
        except (NameError, TypeError):  # evaluating an annotation may raise any exception
            return {}
        return {name: kinds_of(hint) for name, hint in hints.items()}
    return {_EXTRA: (Any,), **{name: kinds_of(info.annotation) for name, info in kind.__pydantic_fields__.items()}}


class Difference(NamedTuple):
    """The first part of a value that changed when it was read back."""

    place: str
    """Its place in the value, such as `[0].name`; empty for the whole value."""
    given: object
    read: object


_Part: TypeAlias = tuple[str, object, Any, Any]
"""Format of the place, with `*` for the place itself; the place; the original value; the value read back."""


def difference(given: Any, read: Any, kinds: Kinds = ()) -> Difference | None:
    """Return the first difference between a value and what was read back; None if all parts are equal.

    Args:
        given: the value that was written.
        read: what was read from its JSON.
        kinds: the types of the value, from `kinds_of`; empty if none is open.
    """
    if kinds and any(map(holds_anything, kinds)):
        return None
    if type(given) is not type(read):
        # An iterator can be read only once; a float field may have an integer as its default.
        same = isinstance(read, Iterator) or (type(given) is int and type(read) is float and given == read)
        same = same or (_is_time_of(type(read), given) and _equal(given, read))
        return None if same else Difference("", given, read)
    kind: type = type(given)
    apart = _parts_of(kind)
    if apart is None:
        return None if _equal(given, read) else Difference("", given, read)
    fields = _fields_in(kind) if kinds and apart in _OF_CLASSES else None
    for form, place, one, other in apart(given, read):
        if type(one) in _ATOMS and type(one) is type(other):
            if one == other:
                continue
            found: Difference | None = Difference("", one, other)
        else:
            below = () if not kinds else _inside(kinds, place) if fields is None else fields.get(place, ())
            found = difference(one, other, below)
        if found is not None:
            text = form.replace("*", str(place) if form == ".*" else reprlib.repr(place), 1) if "*" in form else form
            return found._replace(place=text + found.place)
    return None


@lru_cache(maxsize=1024)
def _parts_of(kind: type) -> Callable[[Any, Any], Iterable[_Part]] | None:
    """Return a function that splits values of a class into parts; None if they are compared as a whole."""
    if issubclass(kind, BaseModel):  # a class with its own `__eq__` decides which values are equal
        return _model if kind.__eq__ in (BaseModel.__eq__, RootModel.__eq__) else None
    if dataclasses.is_dataclass(kind):
        return _dataclass
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple
    for kinds, parts in (((dict,), _dict), ((set, frozenset), _set), ((list, tuple, deque), _list)):
        if issubclass(kind, kinds):
            return parts
    return None


def _model(given: BaseModel, read: BaseModel) -> Iterable[_Part]:
    names, plain = _fields_of(type(given))
    try:
        one, other = plain(given.__dict__), plain(read.__dict__)
        if one != other or not all(map(is_, map(type, one), map(type, other))):
            names = tuple(type(given).__pydantic_fields__)
    except KeyError:  # the model was made without validation
        names = tuple(type(given).__pydantic_fields__)
    extra, private = given.__pydantic_extra__ or read.__pydantic_extra__, given.__pydantic_private__
    return _model_parts(given, read, names) if names or extra or private else ()


def _model_parts(given: BaseModel, read: BaseModel, names: Iterable[str]) -> Iterator[_Part]:
    was_given, infos = given.__pydantic_fields_set__, type(given).__pydantic_fields__
    for name in names:
        value, info = given.__dict__.get(name, MISSING), infos[name]
        if name in was_given or not _is_default(value, info.default, info.default_factory):
            yield ".*", name, value, read.__dict__.get(name, MISSING)
    extra, other = given.__pydantic_extra__ or {}, read.__pydantic_extra__ or {}
    for name in extra.keys() | other:
        yield (
            f".{name}",
            _EXTRA if name in extra and name in other else "",
            extra.get(name, MISSING),
            other.get(name, MISSING),
        )
    private = read.__pydantic_private__ or {}
    for name, value in (given.__pydantic_private__ or {}).items():
        if not _is_identity(value):
            yield f".{name}", "", value, private.get(name, MISSING)


def _is_default(value: object, default: object, factory: object) -> bool:
    """Return True if a value is its field's default. Defaults are not validated: `tags: set[str] = []` is a list."""
    if factory in _CONTAINERS:
        return type(value) is factory and not value
    return type(value) is type(default) and (value is default or bool(value == default))


@lru_cache(maxsize=1024)
def _fields_of(kind: type[BaseModel]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of fields to compare one by one, and a getter of plain JSON fields to compare together."""
    every, own = kind.__pydantic_fields__, kind.__pydantic_decorators__
    coded = bool(own.field_validators or own.field_serializers)
    plain = [name for name, info in every.items() if not (coded or info.metadata) and is_native(info.annotation)]
    if len(plain) < 2:  # `itemgetter` with one name returns no tuple
        return tuple(every), lambda _: ()
    return tuple(name for name in every if name not in plain), itemgetter(*plain)


def _dataclass(given: Any, read: Any) -> Iterator[_Part]:
    for field in dataclasses.fields(given):
        if field.compare and not _is_default(getattr(given, field.name, None), field.default, field.default_factory):
            yield ".*", field.name, getattr(given, field.name, MISSING), getattr(read, field.name, MISSING)


def _named_tuple(given: Any, read: Any) -> Iterator[_Part]:
    return ((".*", name, one, other) for name, one, other in zip(given._fields, given, read, strict=True))


def _list(given: Any, read: Any) -> Iterator[_Part]:
    yield "", "", len(given), len(read)
    yield "", "", str(getattr(given, "maxlen", None)), str(getattr(read, "maxlen", None))
    for at, (one, other) in enumerate(zip(given, read, strict=True)):
        yield "[*]", at, one, other


def _dict(given: Any, read: Any) -> Iterator[_Part]:
    if not all(type(key) is str for key in given):
        yield from _set(given, read, _KEYS)
    yield "", "", len(given), len(read)
    yield "", "", getattr(given, "default_factory", None), getattr(read, "default_factory", None)
    for key, value in given.items():
        yield "[*]", key, value, read.get(key, MISSING)


def _set(given: Any, read: Any, place: object = None) -> Iterator[_Part]:
    same = {item: item for item in read}
    for item in given:
        yield "", place, item, same.get(item, MISSING)
    yield "", "", len(given), len(read)


_OF_CLASSES = (_model, _dataclass, _named_tuple)


def _equal(given: Any, read: Any) -> bool:
    if given is read or isinstance(given, Iterator):
        return True
    if isinstance(given, datetime | time):  # equal offsets are enough, whatever the name of the time zone
        return bool(given.replace(tzinfo=None) == read.replace(tzinfo=None) and given.utcoffset() == read.utcoffset())
    if _is_identity(given):
        return bool(given.__reduce_ex__(4) == read.__reduce_ex__(4))
    return bool(given == read)


def _is_time_of(kind: type, given: object) -> bool:
    """Return True if a value's class is a subclass of `datetime`, `date` or the like, which pydantic keeps."""
    return (
        kind in (datetime, date, time) and isinstance(given, kind) and isinstance(given, datetime) == (kind is datetime)
    )


def _is_identity(value: object) -> bool:
    """Return True if an object is equal only to itself."""
    return type(value).__eq__ is object.__eq__


# -- Validation, serialization and isolation of one field's values ---------------------------------------------
# Everything that depends on the type alone is decided once, when the codec is made. Most fields have types that are
# plain JSON, and their values never pass through pydantic.

_READABLE = 254
"""Levels of nesting that pydantic can write. Values stored before the limit was lowered can still be read."""
_ANY_SIZE = 1 << 62
_LONG = 1 << 20
"""Characters from which the bytes of a text are counted."""
_SMALL = 1 << 63


class Codec:
    """Validate, write and read values of one type.

    Args:
        annotation: the type.
        config: the part of the state class's configuration that applies to single values.
        validators: validators of the field, which check new values. Values that are read back have already passed them.
        depth: the most levels of lists and objects in a value.
        size: the most UTF-8 bytes in a value's JSON.
    """

    __slots__ = (
        "_checks",
        "_depth",
        "_exact",
        "_lazy",
        "_native",
        "_opaque",
        "_open",
        "_size",
        "_stored",
        "_unordered",
        "isolate",
    )

    isolate: Callable[[Any], Any] | None
    """Makes a copy that shares nothing mutable; None if values can be shared."""

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
        self._lazy = not parts.isdisjoint((Iterable, Generator))  # pydantic turns such values into iterators
        self._unordered = self._opaque or not parts.isdisjoint((set, frozenset)) or (dict in parts and not self._native)
        self._stored: TypeAdapter[Any] = _adapter(annotation, config)
        self._open = kinds_of(annotation) if self._opaque else ()
        self._checks = _adapter(Annotated[(annotation, *validators)], config) if validators else self._stored
        self.isolate = isolation_of(annotation, native=self._native)

    def encode(self, value: object, *, validators: bool = True) -> object:
        """Validate a value and return its JSON, which shares nothing mutable with the value.

        Args:
            validators: whether the validators of the state class run too; they do not run for defaults.

        Raises:
            Unfit: the value does not fit the type, or has no JSON form.
            SecretInState: the value contains a secret.
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
        """Return a validated value as JSON.

        Raises:
            Unfit: the value has no JSON form, or none that can be read back.
            SecretInState: the value contains a secret.
        """
        if type(value) in self._exact:
            return _sayable(value)
        if self._opaque:
            if self._lazy and isinstance(value, Iterator):
                value = _all_of(value)
            refuse_secrets(value, finite=True)  # for an open type, pydantic would write NaN as null
        found = self._dumped(value, self._depth, self._size)
        if not self._native or self._checks is not self._stored:
            self._come_back(value, found)
        return found

    def dump(self, value: object) -> object:
        """Return a value of this type as JSON, the same for equal values."""
        if type(value) in self._exact:
            return value
        return self._dumped(value, _READABLE, _ANY_SIZE)

    def show(self, value: object) -> object:
        """Return JSON to display. Does not check that the value could be stored."""
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
        """Read back the JSON from `write`. The validators of the state class do not run again.

        Raises:
            Unfit: the value is not, or no longer, of this type.
        """
        return value if self._native or type(value) in self._exact else self._read(value)

    def _read(self, value: object) -> object:
        try:
            return self._stored.validate_json(to_json(value), strict=False, by_alias=True, by_name=True)
        except ValidationError as error:
            raise Unfit(explain(error)) from None

    def _come_back(self, value: object, written: object) -> None:
        """Refuse JSON that would be read back as a different value, or could not be read at all.

        A part of an open type may become the plain value that its JSON gives.
        """
        try:
            found = difference(value, self._read(written), self._open)
        except Exception as error:
            refuse_secrets(value)  # check for secrets before an error message quotes the value
            why = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
            raise Unfit(f"its JSON, {shown(written)}, cannot be read back ({why})") from None
        if found is not None:
            refuse_secrets(value)
            raise Unfit(f"its JSON, {shown(written)}, is read back {_told(found)}")


class JsonCodec:
    """The codec of a field whose class is not loaded: values stay JSON."""

    __slots__ = ()

    isolate: Callable[[Any], Any] | None = staticmethod(json_copy)

    def encode(self, value: object, *, validators: bool = True) -> object:
        """Return the value. Raises `Unfit` if it is not plain JSON."""
        return self.write(value)

    def write(self, value: object) -> object:
        """Return the value. Raises `Unfit` if it is not plain JSON."""
        try:
            check(value)
            return json.loads(canonical(value))
        except (TypeError, ValueError, RecursionError) as error:
            refuse_secrets(value)
            if isinstance(error, Unfit):
                raise
            raise Unfit(f"it cannot be written as JSON ({error})") from None

    def dump(self, value: object) -> object:
        """Return a copy of the value."""
        return json_copy(value)

    def show(self, value: object) -> object:
        """Return a copy of the value."""
        return json_copy(value)

    def load(self, value: object) -> Any:
        """Return the value itself."""
        return value


def explain(error: ValidationError) -> str:
    """Return all faults of a validation error in one line."""
    return "; ".join(said for _, said in explain_fields(error))


def explain_fields(error: ValidationError) -> list[tuple[str, str]]:
    """Return all faults of a validation error, each with the name of its field; without one it is empty."""
    faults = error.errors(include_url=False, include_context=False)
    return [(str(next(iter(one["loc"]), "")), explain_fault(one)) for one in faults]


IN_PYTHON = "; in Python, write "
"""Begins the fix in a fault of a call in Python; messages about data leave it out."""


def explain_fault(fault: ErrorDetails) -> str:
    """Return one fault of a validation error as one line."""
    place = ".".join(str(part) for part in fault["loc"])
    got = fault["input"]
    message, _, _ = fault["msg"].partition(IN_PYTHON)
    if not message[:2].isupper():  # JSON is not converted
        message = message[:1].lower() + message[1:]
    # Messages of validators are complete, and a missing value has no details.
    if fault["type"] not in ("missing", "value_error", "assertion_error"):
        message += ", got a secret" if isinstance(got, SECRETS) else f", got {shown(got)} ({type(got).__name__})"
    return f"{place}: {message}" if place else message


def shown(value: object) -> str:
    """Return a value as messages show it: shortened, even if its `__repr__` raises."""
    try:
        text = repr(value)
    except Exception:  # calls the user's `__repr__`
        return "something"
    return text if len(text) <= 60 else text[:57] + "..."


def _sayable(value: Any) -> Any:
    """Return a plain value, with numbers that JSON lacks, such as NaN, replaced."""
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
    """Describe how the value read back differs, and the fix, without showing the value, which may be secret."""
    given, read = type(found.given).__name__, type(found.read).__name__
    place = f" (at {found.place})" if found.place else ""
    if found.read is MISSING:
        return f"without a part of it{place}: JSON keys are strings: give keys one type, and name the type of items"
    if type(found.given) is type(found.read) or found.given is MISSING:
        fix = "make it a plain field, without exclude=, or let its validator undo what its serializer does"
        return f"as another value{place}: {fix}"
    if isinstance(found.given, BaseModel) or dataclasses.is_dataclass(found.given):
        fix = f"give a {read}, or declare a union of both classes with Field(discriminator=...)"
    else:
        fix = f"give a {read}, or declare one type that JSON tells from others"
    return f"as a {read}, not as a {given}{place}: {fix}"


def _adapter(annotation: Any, config: ConfigDict | None) -> TypeAdapter[Any]:
    if config:
        try:
            return TypeAdapter(annotation, config=config)
        except PydanticUserError:
            pass  # the type has its own configuration
    return TypeAdapter(annotation)


def as_json(value: object, where: str, *, inside: int = 0, size: int = MAX_BYTES) -> Any:
    """Return any value as plain JSON that shares nothing mutable with it, by the rules of a state field of type `Any`.

    Args:
        where: the name of the value in messages.
        inside: levels of lists and objects around the value, such as 1 for a value inside a list of arguments.
        size: the most UTF-8 bytes in its JSON.

    Raises:
        InvalidValue: the value has no JSON form, or could not be read back.
        SecretInState: the value contains a secret.
    """
    try:
        return _any(depth=MAX_DEPTH + inside, size=size).encode(value)
    except Unfit as error:
        raise InvalidValue(f"{where}: {error}", where=where) from None


_any = cache(partial(Codec, Any))


def refuse_secrets(value: object, *, finite: bool = False) -> None:
    """Raise `SecretInState` if a value contains a secret, or `Unfit` if it contains itself.

    Args:
        finite: also refuse numbers that JSON lacks, and values that can be read only once, such as iterators.
    """
    try:
        _look_for_secrets(value, finite)
    except RecursionError:
        raise Unfit("it is nested too deeply, or contains itself") from None


_PLAIN = frozenset({str, int, bool, _NONE})
"""Types whose values contain no secret and are plain JSON."""


def _look_for_secrets(value: object, finite: bool) -> None:
    if type(value) in _PLAIN:  # the common case, which none of the checks below concerns
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
"""Sequences that contain only characters or numbers."""


def _look_into(values: Iterable[object], finite: bool) -> None:
    for item in values:
        if type(item) not in _PLAIN:
            _look_for_secrets(item, finite)


def ordered(value: object, dumped: object) -> Any:
    """Return dumped JSON with the items of sets sorted: the order of a set differs between processes.

    Raises:
        Unfit: two keys of a mapping are equal in JSON.
    """
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        items = [ordered(item, form) for item, form in zip(value, dumped, strict=True)]
        return sorted(items, key=canonical)
    if isinstance(value, dict) and isinstance(dumped, dict):
        if len(value) != len(dumped):
            raise Unfit("two of its keys are equal in JSON, where keys are strings: make them different strings")
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: form if type(item) in _PLAIN else ordered(item, form) for item, (key, form) in pairs}
    if isinstance(value, list | tuple) and isinstance(dumped, list) and len(value) == len(dumped):
        return [form if type(item) in _PLAIN else ordered(item, form) for item, form in zip(value, dumped, strict=True)]
    if isinstance(dumped, dict) and (isinstance(value, BaseModel) or dataclasses.is_dataclass(value)):
        return {key: ordered(getattr(value, key, None), form) for key, form in dumped.items()}
    return dumped

"""Compares values with what was read back from their JSON, including types.

Values of different types can compare equal (a member of an `IntEnum` and an integer, a `Path` and a `PurePath`), and a
serializer may leave parts out. So values are compared part by part. Only where a type is open, such as `Any`, may the
value from JSON replace the original.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from functools import lru_cache
from itertools import chain
from operator import is_, itemgetter
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, RootModel
from typing_extensions import is_typeddict

from orchestrator.graph.annotations import holds_anything, is_container, is_native

_ATOMS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (list, dict, set, tuple, frozenset)
_KEYS, _EXTRA = object(), object()
"""Places that stand for the keys of a dictionary, and for the extra fields of a model."""
MISSING = object()
"""Stands for a part that is not read back."""

Kinds: TypeAlias = tuple[Any, ...]
"""Types that a value may have; empty if none of its parts is open."""


def kinds_of(annotation: Any) -> Kinds:
    """The members of a union, or the one type."""
    if hasattr(annotation, "__value__") and annotation is not JsonValue:  # `type X = ...`
        return kinds_of(annotation.__value__)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kinds_of(arguments[0])
    return tuple(chain.from_iterable(map(kinds_of, arguments))) if origin in (Union, UnionType) else (annotation,)


def _inside(kinds: Kinds, place: Any) -> Kinds:
    """Types of the part at a place in a container of one of these types."""
    found: list[Any] = []
    for kind in kinds:
        origin, arguments = get_origin(kind), get_args(kind)
        if is_typeddict(kind):
            found += _fields_in(kind).get(place, ())
        elif arguments and isinstance(origin, type):
            if origin is tuple and arguments[-1] is not Ellipsis:
                found += kinds_of(arguments[place])
            else:  # values of mappings come last
                found += kinds_of(arguments[-1 if issubclass(origin, Mapping) and place is not _KEYS else 0])
        elif is_container(kind):
            found.append(Any)
    return tuple(found)


@lru_cache(maxsize=1024)
def _fields_in(kind: Any) -> Mapping[object, Kinds]:
    """The types of the fields of a class."""
    if not issubclass(kind, BaseModel):
        try:
            hints = get_type_hints(kind)
        except (NameError, TypeError):  # an annotation may be any expression
            return {}
        return {name: kinds_of(hint) for name, hint in hints.items()}
    return {_EXTRA: (Any,), **{name: kinds_of(info.annotation) for name, info in kind.__pydantic_fields__.items()}}


class Difference(NamedTuple):
    """First part of a value that changed when it was read back."""

    place: str
    """Where in the value it is, such as `[0].name`; empty: the whole value."""
    given: object
    read: object


_Part: TypeAlias = tuple[str, object, Any, Any]
"""Format of the place, with `*` for the place itself; the place; the value given there; the value read."""


def difference(given: Any, read: Any, kinds: Kinds = ()) -> Difference | None:
    """Return the first difference between a value and what was read back; None if all parts are equal.

    Args:
        given: the value that was written.
        read: what was read from its JSON.
        kinds: its types, from `kinds_of`, if any of them is open.
    """
    if kinds and any(map(holds_anything, kinds)):
        return None
    if type(given) is not type(read):
        # An iterator can be read only once; a field for floats may have an integer as its default.
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
    """Function that splits values of a class into parts; None if they are compared as a whole."""
    if issubclass(kind, BaseModel):  # one with an equality of its own says itself what its value is
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
    except KeyError:  # it was made without validation
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
    """Whether a value is its class's default. Defaults are not validated: `tags: set[str] = []` is a list."""
    if factory in _CONTAINERS:
        return type(value) is factory and not value
    return type(value) is type(default) and (value is default or bool(value == default))


@lru_cache(maxsize=1024)
def _fields_of(kind: type[BaseModel]) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Fields of a model to compare one by one, and a getter of the plain JSON fields, compared together."""
    every, own = kind.__pydantic_fields__, kind.__pydantic_decorators__
    coded = bool(own.field_validators or own.field_serializers)
    plain = [name for name, info in every.items() if not (coded or info.metadata) and is_native(info.annotation)]
    if len(plain) < 2:  # `itemgetter` of one name gives no tuple
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
    if isinstance(given, datetime | time):  # equal in their offset, whatever the zone is called
        return bool(given.replace(tzinfo=None) == read.replace(tzinfo=None) and given.utcoffset() == read.utcoffset())
    if _is_identity(given):
        return bool(given.__reduce_ex__(4) == read.__reduce_ex__(4))
    return bool(given == read)


def _is_time_of(kind: type, given: object) -> bool:
    """Whether a value is of a subclass of `datetime`, `date` or the like, which pydantic does not convert."""
    return (
        kind in (datetime, date, time) and isinstance(given, kind) and isinstance(given, datetime) == (kind is datetime)
    )


def _is_identity(value: object) -> bool:
    """Whether an object is equal only to itself."""
    return type(value).__eq__ is object.__eq__

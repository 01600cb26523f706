"""Plain JSON values: their type, their canonical text, their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, NoReturn, TypeAlias, TypeVar, overload

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object. Its values are plain JSON, which `canonical` verifies and type checkers need not."""

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

ORDERED = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Writes plain JSON with its keys in their own order."""

_plain_encoder = json.JSONEncoder(ensure_ascii=False)


def canonical(value: object) -> str:
    """Return the canonical text of a JSON value: sorted keys, no white space, no unnecessary escapes.

    Raises:
        ValueError: the value contains NaN or an infinity, which JSON does not have.
        TypeError: the value is not plain JSON.
    """
    return value.canonical if type(value) is FrozenObject else _encoder.encode(value)


def json_text(value: object) -> str:
    """Return a JSON value as text in the form of `canonical`, but with its keys in their own order.

    Raises:
        ValueError: the value contains NaN or an infinity, which JSON does not have.
        TypeError: the value is not plain JSON.
    """
    return ORDERED.encode(value)


def storable(text: str) -> str:
    """Return a string without unpaired surrogates, which UTF-8 cannot encode; a model may well write one."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def paired(text: str) -> str:
    """Return a string in which adjacent surrogates that form a pair are one character; others stay unpaired."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@overload
def cleaned(value: dict[str, object]) -> dict[str, object]: ...
@overload
def cleaned(value: object) -> object: ...
def cleaned(value: object) -> object:
    """Return the value with `storable` strings, also in its mappings and lists; anything else is unchanged."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list) and _is_storable(value):
        return value  # the usual case, detected in a fraction of the time needed to examine each text
    return _cleaned(value)


def _is_storable(value: object) -> bool:
    try:
        _plain_encoder.encode(value).encode()
    except (TypeError, ValueError, RecursionError):  # a UnicodeEncodeError is a ValueError
        return False
    return True


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def deeper_than(value: object, levels: int) -> bool:
    """Return True if mappings and lists are nested more than `levels` levels deep."""
    level = [value] if isinstance(value, _NESTS) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in (outer if isinstance(outer, (list, tuple)) else outer.values())
            if type(inner) not in _SCALARS and isinstance(inner, _NESTS)
        ]
    return bool(level)


_SCALARS = frozenset({str, int, float, bool, type(None)})
_NESTS = (dict, list, tuple, Mapping)
"""The most frequent types come first: a check for `Mapping` costs much more."""


def digest(value: object) -> str:
    """Return the first 128 bits, in hex, of the SHA-256 of a value's canonical text."""
    return value.digest if type(value) is FrozenObject else digest_of_text(canonical(value))


def digest_of_text(text: str) -> str:
    """Return the digest of a value with this canonical text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# -- immutable values ------------------------------------------------------------------------------------------------
# Messages and schemas are sent, compared and journaled again with each call of a model. What is computed from one of
# them is kept with it, which is correct because it cannot change.


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("this value belongs to an immutable object: change a copy, such as copy.deepcopy(value)")


class FrozenObject(dict[str, Any]):
    """An immutable JSON object, whose canonical text and digest are computed once.

    `dict(value)` and `copy.deepcopy(value)` are mutable copies.
    """

    __slots__ = ("_digest", "_kept", "_text", "size")
    _text: str
    _digest: str
    _kept: dict[Hashable, Any]
    size: int
    """Number of characters of its canonical text; set when it was checked, see `values.checked_size`."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenObject, (dict(self),)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return {key: deepcopy(item) for key, item in self.items()}

    @property
    def canonical(self) -> str:
        """Its canonical text, which is kept if it is not long."""
        try:
            return self._text
        except AttributeError:
            text = _encoder.encode(self)
            if len(text) <= MOST_KEPT:
                self._text = text
            return text

    @property
    def digest(self) -> str:
        """The digest of its canonical text."""
        try:
            return self._digest
        except AttributeError:
            self._digest = digest_of_text(self.canonical)
            return self._digest

    def kept(self, name: Hashable, make: Callable[[FrozenObject], T]) -> T:
        """Return what a function makes from the object. It is made once.

        Args:
            name: names the result among those that are kept with the object.
            make: makes it.
        """
        try:
            found = self._kept
        except AttributeError:
            found = self._kept = {}
        if name not in found:
            found[name] = make(self)
        made: T = found[name]
        return made


class FrozenList(list[Any]):
    """An immutable JSON list. `list(value)` and `copy.deepcopy(value)` are mutable copies."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[Any]:
        return [deepcopy(item) for item in self]


MOST_KEPT = 1 << 20
"""Maximum number of characters of a text that is kept with the object from which it is made."""
EMPTY = FrozenObject()


@overload
def frozen(value: Mapping[str, Any]) -> FrozenObject: ...
@overload
def frozen(value: object) -> object: ...
def frozen(value: object) -> object:
    """Return an immutable copy of plain JSON; what is immutable already is shared.

    Raises:
        ValueError: the value is nested too deeply.
    """
    try:
        return _frozen(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply, or contains itself") from None


def _frozen(value: object) -> object:
    kind = type(value)
    if kind in _SCALARS or kind is FrozenObject or kind is FrozenList:
        return value
    if isinstance(value, Mapping):
        return FrozenObject((key, _frozen(item)) for key, item in value.items())
    return FrozenList(map(_frozen, value)) if isinstance(value, list | tuple) else value


def joined_canonical(value: object) -> str:
    """Return the canonical text of plain JSON, joined from the kept texts of the immutable objects in it."""
    if type(value) is FrozenObject:
        return value.canonical
    if type(value) is dict:
        return f"{{{','.join(f'{_encoder.encode(key)}:{joined_canonical(value[key])}' for key in sorted(value))}}}"
    if type(value) is list:
        return f"[{','.join(map(joined_canonical, value))}]"
    return _encoder.encode(value)


def joined_digest(value: object) -> str:
    """Return the same as `digest`, of the text that `joined_canonical` returns."""
    return digest_of_text(joined_canonical(value))


# -- in pieces -----------------------------------------------------------------------------------------------------
# A call of C code holds the interpreter lock until it returns, even in a thread, so each call gets a piece of a large
# value.

SMALL = 1 << 15
"""Maximum number of characters that are processed in place: using a thread would take longer."""
PIECE = 1 << 18
"""Characters, or bytes, that one call of C code gets."""
_ITEM = 8
"""Characters that each item of a list or an object counts for, in addition to its own."""
_BATCH = 1000
_ANY = 1 << 62
_PLAIN: tuple[Any, ...] = (str, int, float, dict, list, tuple, bytes, Mapping, Sequence)


def is_small(value: object, most: int = SMALL) -> bool:
    """Return True if plain values, or models of them, have at most `most` characters. Reads no more than that.

    Values of other types are not small, since their size is not known.
    """
    return _room_beside(value, most, most + 1) >= 0


def size_of(value: object) -> int:
    """Return the number of characters of plain values, and of models, counted as by `is_small`."""
    return _ANY - _room_beside(value, _ANY, 0)


def _room_beside(value: object, most: int, other: int) -> int:
    """Return the characters left of `most`; negative if there are too many. `other`: the count for other types."""
    todo: list[Any] = [value]
    for one in todo:  # the loop adds to it
        if most < 0:
            break
        if one is None:
            continue
        kind = type(one)
        if kind not in _PLAIN:
            kind = next((base for base in _PLAIN if isinstance(one, base)), kind)
        if kind is str or kind is bytes:
            most -= len(one)
        elif kind is int:
            most -= one.bit_length() >> 2
        elif kind is dict or kind is Mapping or kind is list or kind is tuple or kind is Sequence:
            most -= _ITEM * len(one)
            if most >= 0:
                todo += one
                if kind is dict or kind is Mapping:
                    todo += one.values()
        elif kind is float:
            continue
        elif (more := getattr(one, "__pydantic_extra__", one)) is not one:  # a model; pydantic is not imported
            most -= _ITEM * len(vars(one))
            todo += vars(one).values()
            todo.append(more)
        elif is_dataclass(one) and not isinstance(one, type):
            most -= _ITEM * len(fields(one))
            todo += (getattr(one, field.name, None) for field in fields(one))
        else:
            most -= other
    return most


def in_pieces(value: object, encoder: json.JSONEncoder = ORDERED) -> Iterator[str]:
    """Yield plain JSON as text, in pieces. The encoder must not indent; a call makes about `PIECE` characters."""
    if isinstance(value, str) and len(value) > PIECE:
        yield '"'
        for piece in cut_up(value):
            yield encoder.encode(piece)[1:-1]
        yield '"'
    elif not isinstance(value, dict | list | tuple) or is_small(value, PIECE):
        yield encoder.encode(value)
    elif isinstance(value, list | tuple):
        batches = (value[at : at + _BATCH] for at in range(0, len(value), _BATCH))
        yield from _joined("[", (_some(batch, encoder) for batch in batches), "]", encoder)
    else:
        pairs = iter(sorted(value.items()) if encoder.sort_keys else value.items())
        parts = iter(lambda: dict(islice(pairs, _BATCH)), {})
        yield from _joined("{", (_some(part, encoder) for part in parts), "}", encoder)


def _some(batch: Sequence[object] | dict[str, object], encoder: json.JSONEncoder) -> Iterator[str]:
    """Yield some items, without the surrounding brackets."""
    if is_small(batch, PIECE):
        yield encoder.encode(batch)[1:-1]
    elif isinstance(batch, dict):
        yield from _joined("", (_pair(name, part, encoder) for name, part in batch.items()), "", encoder)
    else:
        yield from _joined("", (in_pieces(one, encoder) for one in batch), "", encoder)


def _pair(name: str, value: object, encoder: json.JSONEncoder) -> Iterator[str]:
    yield from in_pieces(name, encoder)
    yield encoder.key_separator
    yield from in_pieces(value, encoder)


def _joined(before: str, parts: Iterable[Iterable[str]], behind: str, encoder: json.JSONEncoder) -> Iterator[str]:
    yield before
    for number, part in enumerate(parts):
        if number:
            yield encoder.item_separator
        yield from part
    yield behind


def digest_in_pieces(value: object) -> str:
    """Return the same as `digest`, of plain JSON that may be large."""
    found = hashlib.sha256()
    for piece in in_pieces(value, _encoder):
        found.update(piece.encode())
    return found.hexdigest()[:32]


def cut_up(text: str) -> Iterator[str]:
    """Yield a string in pieces."""
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def encoded(texts: Iterable[str]) -> list[bytes]:
    """Return concatenated strings in UTF-8, in parts of about `PIECE` bytes, at least one."""
    parts: list[bytes] = []
    held: list[str] = []
    size = 0
    for text in texts:
        for piece in cut_up(text):
            held.append(piece)
            size += len(piece)
            if size >= PIECE:
                parts.append("".join(held).encode())
                held, size = [], 0
    return [*parts, "".join(held).encode()] if held or not parts else parts

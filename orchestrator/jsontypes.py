"""Plain JSON values: their type, their one canonical text, their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias, overload

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object. Its values are plain JSON, which `canonical` proves and a type checker need not."""

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

_ordered_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)

_plain_encoder = json.JSONEncoder(ensure_ascii=False)


def canonical(value: object) -> str:
    """The one text of a JSON value: sorted keys, no white space, no escapes that are not needed.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON cannot say.
        TypeError: the value is not plain JSON.
    """
    return _encoder.encode(value)


def json_text(value: object) -> str:
    """A JSON value as text, as `canonical` writes it, but with its keys in their own order.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON cannot say.
        TypeError: the value is not plain JSON.
    """
    return _ordered_encoder.encode(value)


def storable(text: str) -> str:
    """A text without the unpaired surrogates, which UTF-8 cannot say; a model may well write one."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def paired(text: str) -> str:
    """A text in which unpaired surrogates that stand side by side are one character; others stay halves."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@overload
def cleaned(value: dict[str, object]) -> dict[str, object]: ...
@overload
def cleaned(value: object) -> object: ...
def cleaned(value: object) -> object:
    """The value with `storable` texts, also in its mappings and lists; whatever is no JSON stays as it is."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list) and _is_storable(value):
        return value  # nearly always, and found out in a fraction of the time that a look at each text takes
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
    """Whether mappings and lists stand more than so many levels inside of each other."""
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
"""Those that nearly all values are come first: to ask about `Mapping` costs much more."""


def digest(value: object) -> str:
    """The first 128 bits, in hex, of the SHA-256 of a value's canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]

"""Values out of the sandbox as text of a bounded length, whatever they hold."""

from __future__ import annotations

import datetime as dt
import decimal
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

_DEEPEST = 30
_LEAVES = (
    bool, float, complex, type(None), type(...), type, range, re.Pattern, decimal.Decimal, pathlib.PurePath,
    dt.date, dt.time, dt.timedelta, dt.tzinfo, BaseException,
)  # fmt: skip
_BRACKETS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


def shown_value(value: object, limit: int) -> str:
    """A value as Python writes it, cut after so many characters.

    A list may hold one other list a thousand times, and that one another: written out it would be endless, so this
    stops where `repr` would not.
    """
    found: list[str] = []
    left = limit
    for piece in _pieces(value, limit, 0):
        left -= len(piece)
        if left < 0:
            return "".join(found) + piece[:left] + "..."
        found.append(piece)
    return "".join(found)


def _pieces(value: Any, most: int, depth: int) -> Iterator[str]:
    kind = type(value)
    brackets = _BRACKETS.get(kind)
    if isinstance(value, _LEAVES):
        yield repr(value)
    elif kind is str or kind is bytes:
        yield repr(value if len(value) <= most else value[: most + 1])
    elif kind is int:
        # Digits of a very long number are costly, and Python refuses to write them.
        yield repr(value) if value.bit_length() < 10_000 else f"<a whole number of {value.bit_length()} bits>"
    elif depth > _DEEPEST:
        yield "..."
    elif brackets is not None:
        if not value and kind in (set, frozenset):
            yield f"{kind.__name__}()"
            return
        yield ("frozenset(" if kind is frozenset else "") + brackets[0]
        yield from _inner(value.items() if kind is dict else ((item,) for item in value), most, depth)
        yield ("," if kind is tuple and len(value) == 1 else "") + brackets[1] + (")" if kind is frozenset else "")
    elif hasattr(value, "attributes") and hasattr(value, "name"):  # an object of a class made in the sandbox
        yield f"{value.name}("
        first = True
        for name, item in dict(value.attributes).items():
            yield f"{'' if first else ', '}{name}="
            yield from _pieces(item, most, depth + 1)
            first = False
        yield ")"
    else:
        yield f"<{kind.__name__}>"


def _inner(items: Iterable[tuple[object, ...]], most: int, depth: int) -> Iterator[str]:
    first = True
    for parts in items:
        if not first:
            yield ", "
        first = False
        yield from _pieces(parts[0], most, depth + 1)
        if len(parts) > 1:
            yield ": "
            yield from _pieces(parts[1], most, depth + 1)

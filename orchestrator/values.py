"""The checks that every value passes before it enters a run: its depth, its size, and that JSON can represent it.

Whatever is journaled has passed `check` or `checked`: input, updates, arguments and results of effects, replies of
models, answers, questions, labels, references. So every accepted value can be read back equal, and any other value is
refused before anything is written. A record nests its values; the bounds here leave room for that:

    MAX_DEPTH       levels of lists and objects in a value of the user's program
    FOREIGN_DEPTH   levels in results of tools and replies of models, which are stored inside values of the state
    MAX_BYTES       UTF-8 bytes of a value's JSON
    MAX_RECORD_BYTES  the same for a record, with all of its values
    MAX_DIGITS      digits of an integer, as many as Python reads

NaN, infinities and unpaired surrogates are not JSON and are always refused. Moments are Unix seconds, within the
calendar.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from orchestrator.errors import InvalidValue
from orchestrator.json import FrozenObject, deeper_than

MAX_DEPTH = 160
"""Maximum number of levels of lists and objects in a value. pydantic's JSON reader takes 200, a record needs up to
20."""

FOREIGN_DEPTH = 100
"""Maximum number of levels in results of tools and replies of models, which the state stores inside its own lists and
objects.
"""

MAX_BYTES = 64 * 1024 * 1024
"""Maximum number of UTF-8 bytes of one value's JSON."""

MAX_REQUEST_BYTES = 8 * MAX_BYTES
"""Maximum number of UTF-8 bytes of the JSON of many values, such as a conversation."""

MAX_RECORD_BYTES = MAX_REQUEST_BYTES + MAX_BYTES
"""Maximum number of bytes of a record: the largest request or result, plus the rest. Memory stores accept larger
ones."""

MAX_DIGITS = 4300
"""Maximum number of digits of an integer: by default, Python reads no longer ones from text."""

MAX_TOKENS = 10**12
"""An upper bound of the tokens, and of all other counts, of one reply: stores add them up in 64 bits."""

MAX_LIFETIME = 100 * 366 * 86400
"""The longest lifetime of a memory item or a cached result, in seconds: 100 years. None means for ever."""

_LARGEST = 10**MAX_DIGITS
_SMALL = 1 << 63


def read_bounded(path: str | os.PathLike[str], most: int = MAX_BYTES) -> str:
    """Return the text of a file of limited size, reading no more than the limit.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is larger, or is not UTF-8.
    """
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"the file has more than {most:,} bytes, the limit for files of this kind")
    return data.decode("utf-8").replace("\r\n", "\n")


class Unfit(ValueError):
    """Raised when a value does not fit its field; the message is for people and names no field."""


def check(value: object, *, depth: int = MAX_DEPTH, size: int = MAX_BYTES) -> None:
    """Refuse plain JSON that could not be read back from a record.

    Args:
        value: the value, made of mappings with string keys, lists, strings, numbers, booleans and None.
        depth: maximum number of levels of lists and objects.
        size: maximum number of UTF-8 bytes of its JSON.

    Raises:
        Unfit: the value could not be read back; the message names the place and the reason.
    """
    from pydantic_core import to_json

    try:
        data = to_json(value)
    except (ValueError, TypeError, RecursionError, UnicodeError) as error:
        raise Unfit(fault_in(value, depth) or f"it cannot be written as JSON ({error})") from None
    length = len(data)
    if length > size:
        raise Unfit(
            f"its JSON has {length:,} bytes, and the limit is {size:,}; store it elsewhere and keep its address"
        )
    if (
        # each of these cheap tests accepts most values; the rare rest is examined closely
        (length > depth and data.count(b"[") + data.count(b"{") > depth and deeper_than(value, depth))
        or ((b"NaN" in data or b"Infinity" in data) and fault_in(value, depth))
        or (length > MAX_DIGITS and _long_number(data) and fault_in(value, depth))
    ):
        raise Unfit(fault_in(value, depth) or too_deep(depth))


def checked_size(part: FrozenObject) -> int:
    """Return the number of characters of an object's JSON. The first time, it is also checked, see `check`.

    Raises:
        Unfit, ValueError, TypeError: the object could not be read back.
    """
    size: int = getattr(part, "size", 0)
    if not size:
        check(part)
        size = part.size = len(part.canonical)
    return size


def checked(value: object, where: str, *, depth: int = MAX_DEPTH, size: int = MAX_BYTES) -> None:
    """Check a value that has a name; see `check`.

    Raises:
        InvalidValue: the value could not be read back.
    """
    try:
        check(value, depth=depth, size=size)
    except Unfit as error:
        raise InvalidValue(f"{where}: {error}", where=where) from None


def check_text(text: object, where: str) -> str:
    """Return a string that people or programs gave, if it can be stored.

    Raises:
        InvalidValue: the value is not a string, contains half a surrogate pair, or is too long.
    """
    if not isinstance(text, str):
        raise InvalidValue(f"{where}: it is of type {type(text).__name__}: give a str", where=where)
    if len(text) > MAX_BYTES or not text.isascii():
        checked(text, where)
    return text


def check_position(value: object, where: str = "at") -> None:
    """Refuse a value that is not the number of a record. 0 is before the first one, None means no record.

    Raises:
        InvalidValue: the value is of another kind.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidValue(
            f"{where}={reprlib.repr(value)}: the number of a record is expected, an int of 0 or more, or None",
            where=where,
        )


def check_mapping(value: object, where: str) -> None:
    """Refuse a value that is neither a mapping with names as keys nor None.

    Raises:
        InvalidValue: the value is of another kind.
    """
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        kind = type(value).__name__
        raise InvalidValue(f"{where} is of type {kind}: a mapping with str keys is expected, or None", where=where)


def check_kind(value: object, kind: type, where: str) -> None:
    """Refuse a value that is neither an instance of a class nor None.

    Raises:
        InvalidValue: the value is of another kind.
    """
    if value is not None and not isinstance(value, kind):
        given = type(value).__name__
        raise InvalidValue(f"{where} is of type {given}: give {kind.__name__}(...), or None", where=where)


def check_seconds(value: object, where: str) -> None:
    """Refuse a value that is not a number of seconds, 0 or more.

    Raises:
        InvalidValue: the value is of another kind.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidValue(f"{where}={reprlib.repr(value)}: give a number of seconds, 0 or more", where=where)


def check_flag(value: object, where: str) -> None:
    """Refuse a value that is neither True nor False.

    Raises:
        InvalidValue: the value is of another kind.
    """
    if not isinstance(value, bool):
        raise InvalidValue(f"{where}={reprlib.repr(value)}: True or False is expected", where=where)


def check_options(
    owner: str,
    *,
    seconds: object = None,
    on_denied: object = "observe",
    on_error: object = "observe",
    errors: Sequence[str] = ("raise", "observe"),
    constrain: object = "auto",
    context: object = "compact",
    **counts: object,
) -> None:
    """Refuse options of a strategy that have another type or value; the strategy itself checks lower bounds.

    Args:
        owner: the strategy's name.
        seconds: its `max_seconds`.
        on_denied: as given to it.
        on_error: as given to it.
        errors: the valid values of `on_error`.
        constrain: as given to it.
        context: as given to it.
        counts: its options that are integers.

    Raises:
        ValueError: an option is invalid; the message names it and the valid values.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{owner}: {name}={reprlib.repr(value)}: give a whole number")
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and -math.inf < seconds < math.inf
    if seconds is not None and not number:
        raise ValueError(f"{owner}: max_seconds={reprlib.repr(seconds)}: give a number of seconds, or None")
    chosen = [("on_denied", on_denied, ("raise", "observe")), ("on_error", on_error, errors)]
    chosen += [("constrain", constrain, ("auto", "never")), ("context", context, ("compact", "clear", "none"))]
    for name, value, valid in chosen:
        if value not in valid:
            words = ", ".join(f"{one!r}" for one in valid[:-1])
            raise ValueError(f"{owner}: {name}={reprlib.repr(value)}: give {words} or {valid[-1]!r}")


MAX_NAME = 200
"""Maximum number of characters of a name: of an event, or of an event's id."""


def check_name(name: object, what: str = "the name of an event") -> str:
    """Return a name that people or programs gave, if it is valid.

    Raises:
        InvalidValue: the name is empty, longer than `MAX_NAME` characters, or has a character that is not printable.
    """
    text = check_text(name, what)
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise InvalidValue(f"{what} is {_short(text)}: give 1 to {MAX_NAME} printable characters", where=what)
    return text


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Check labels to search runs by, and return them as a dict. `new_labels` checks those of a new run.

    Raises:
        InvalidValue: a name or a value is not a string, or cannot be stored.
    """
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            fault = "names and values of labels must be strings"
            raise InvalidValue(f"label {_short(name)}: {_short(value)}: {fault}", where="labels")
        check_text(name, f"the name of label {_short(name)}")
        check_text(value, f"label {_short(name)}")
    return dict(labels)


MAX_LABELS = 100
"""Maximum number of labels of a run."""

MAX_LABEL = 1000
"""Maximum number of characters of a label's value; its name has at most `MAX_NAME`."""


def new_labels(labels: Mapping[str, str], beside: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels of a new run, if they are valid. Lists show all of them, so they must be few and short.

    Runs are searched by `name:value`, so a name has no colon.

    Args:
        labels: the labels.
        beside: labels that the run has in any case, such as those of the run that it forks.

    Raises:
        InvalidValue: a name or a value is not a string, cannot be stored or is too long, a name is empty or has a
            colon, or there are too many.
    """
    for name, value in check_labels(labels).items():
        if not name or ":" in name:
            fault = (
                f"its name has a colon: use another sign, such as {name.replace(':', '.')!r}"
                if name
                else "it has no name"
            )
            raise InvalidValue(f"label {_short(name)}: {fault}", where="labels")
        for what, text, most in (("name", name, MAX_NAME), ("value", value, MAX_LABEL)):
            if len(text) > most:
                raise InvalidValue(
                    f"label {_short(name)}: its {what} has {len(text):,} characters, and the limit is {most:,}",
                    where="labels",
                )
    found = {**(beside or {}), **labels}
    if labels and len(found) > MAX_LABELS:
        raise InvalidValue(f"a run has at most {MAX_LABELS} labels, and these are {len(found):,}", where="labels")
    return found


def shown_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a run to display, shortened: stores of other origin may have longer and more."""
    names = labels if len(labels) <= MAX_LABELS else sorted(labels)[:MAX_LABELS]
    return {cut(name, MAX_NAME): cut(labels[name], MAX_LABEL) for name in names}


def cut(text: str, most: int) -> str:
    """Return a string of limited length, ending in an ellipsis if it was shortened."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


_DIGITS = bytes(ord("0") if chr(code).isascii() and chr(code).isdigit() else ord(" ") for code in range(256))
_RUN = b"0" * (MAX_DIGITS + 1)
_SAMPLES = 8
"""Digits that a row which is too long has at least among those at every `_EVERY`th place."""
_EVERY = len(_RUN) // _SAMPLES


def _long_number(data: bytes) -> bool:
    """Return True if a string has a longer sequence of digits than a number may have."""
    return _RUN[:_SAMPLES] in data[::_EVERY].translate(_DIGITS) and _RUN in data.translate(_DIGITS)


def too_deep(depth: int) -> str:
    """Return the fault of a value that is nested too deeply."""
    return f"it is nested too deeply, or contains itself: the limit is {depth} levels; store it flatter, or as text"


def fault_in(value: object, depth: int = MAX_DEPTH) -> str:
    """Return the fault that keeps a value from being stored as JSON, with its place; empty if there is none."""
    todo: list[tuple[object, str, int]] = [(value, "", 0)]
    while todo:
        one, place, level = todo.pop()
        fault = _fault(one)
        if fault:
            return f"at {place}: {fault}" if place else fault
        nested = isinstance(one, Mapping | list | tuple)
        if nested and level >= depth:
            return too_deep(depth)
        if isinstance(one, Mapping):
            for key, item in one.items():
                if not isinstance(key, str):
                    return f"{f'at {place}: ' if place else ''}the key {_short(key)} is not a string"
                if fault := _fault(key):
                    return f"{f'at {place}: ' if place else ''}the key {_short(key)}: {fault}"
                todo.append((item, f"{place}[{_short(key)}]" if level < 4 else place, level + 1))
        elif isinstance(one, list | tuple):
            todo += [(item, f"{place}[{at}]" if level < 4 else place, level + 1) for at, item in enumerate(one)]
    return ""


def _fault(value: object) -> str:
    """Return the fault of a value, without its items."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "the text contains an unpaired surrogate, which cannot be stored"
    elif isinstance(value, float):
        if not math.isfinite(value):
            return f"{value!r} is not a number that JSON can represent"
    elif isinstance(value, int):
        if not -_SMALL <= value < _SMALL and abs(value) >= _LARGEST:
            return f"an integer of more than {MAX_DIGITS:,} digits cannot be read back; store it as text"
    elif value is not None and not isinstance(value, Mapping | list | tuple):
        return f"a value of type {type(value).__name__} has no JSON form"
    return ""


def _short(key: object) -> str:
    text = ascii(key) if isinstance(key, str) else f"of type {type(key).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


# -- times -----------------------------------------------------------------------------------------------------------

EARLIEST = -62135596800.0
"""The first second of the year 1, Unix seconds."""

LATEST = 253402300799.0
"""The last second of the year 9999, Unix seconds: calendars end there."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_calendar(seconds: object) -> float:
    """Return a time that was read, or the nearest one within the calendar; 0 for a value that is not a number."""
    if type(seconds) is float and EARLIEST <= seconds <= LATEST:
        return seconds  # the usual case; lists read many
    if not isinstance(seconds, int | float):
        return 0.0
    return float(min(max(EARLIEST, seconds), LATEST))  # in this order, NaN becomes a valid time, too


def utc(seconds: float) -> datetime:
    """Return Unix seconds as date and time in UTC."""
    return _EPOCH + timedelta(seconds=in_calendar(seconds))

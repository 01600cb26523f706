"""The events that a run received from outside and that some step may still take.

An event is kept for the steps that wait for one of its name, now or later. A step takes the oldest one that matches and
that none of its causes took (`Version.taken`); concurrent branches may each take it. Which event a step takes therefore
depends only on the order in which events arrived, never on which branch was faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json


@dataclass(frozen=True, slots=True)
class Event:
    """An event from outside."""

    number: int
    """Its place in the order of arrival, from 0: its bit in `Version.taken`."""
    seq: int
    """`seq` of the record that contains it."""
    ts: float
    """When it arrived, Unix seconds."""
    name: str
    data: object
    """Plain JSON."""
    by: str = ""


@dataclass(slots=True)
class EventQueue:
    """The events of one run."""

    kept: dict[int, Event] = field(default_factory=dict)
    """Number -> an event that a step may still take, the oldest first."""
    ids: dict[str, int] = field(default_factory=dict)
    """Id from the sender -> `seq` of the record that contains the event."""
    count: int = 0
    """Number of events that arrived."""
    size: int = 0
    """UTF-8 bytes of the JSON of the kept events' data."""
    _mask: int = 0
    """The numbers of the kept events, as bits."""

    def __deepcopy__(self, memo: object) -> EventQueue:
        return EventQueue(self.kept.copy(), self.ids.copy(), self.count, self.size, self._mask)

    @classmethod
    def restored(cls, rows: Sequence[Sequence[Any]], ids: Mapping[str, int], count: int) -> EventQueue:
        """Return the queue from a snapshot; `rows` is the result of the method `rows`."""
        kept = {event.number: event for event in (Event(*row) for row in rows)}
        return cls(kept, dict(ids), count, sum(map(_size, kept.values())), sum(1 << number for number in kept))

    def rows(self) -> list[list[object]]:
        """Return the kept events as plain JSON."""
        return [[one.number, one.seq, one.ts, one.name, one.data, one.by] for one in self.kept.values()]

    def add(self, seq: int, ts: float, name: str, data: object, id_: str, by: str = "") -> Event | None:
        """Keep an event and return it; None if one with this id arrived before."""
        if id_ and id_ in self.ids:
            return None
        if id_:
            self.ids[id_] = seq
        event = self.kept[self.count] = Event(self.count, seq, ts, name, data, by)
        self._mask |= 1 << self.count
        self.size += _size(event)
        self.count += 1
        return event

    def matching(self, name: str, match: Mapping[str, object], taken: int) -> Event | None:
        """Return the oldest event that matches and is not in `taken`, if any."""
        return next((one for one in self._named(name) if not taken >> one.number & 1 and fits(one.data, match)), None)

    def forget(self, taken: int) -> None:
        """Drop events that no step can take any more."""
        if taken & self._mask:
            for number in [number for number in self.kept if taken >> number & 1]:
                self.size -= _size(self.kept.pop(number))
            self._mask &= ~taken

    def _named(self, name: str) -> Iterator[Event]:
        return (one for one in self.kept.values() if one.name == name)


def _size(event: Event) -> int:
    return len(to_json(event.data))


def fits(data: object, match: Mapping[str, object]) -> bool:
    """Return True if an event's data has all keys of `match`, with equal values."""
    if not match:
        return True
    return isinstance(data, Mapping) and all(name in data and same(data[name], match[name]) for name in match)


def same(one: object, other: object) -> bool:
    """Return True if two values are the same JSON: `true` is not 1, and 1 is 1.0."""
    todo = [(one, other)]
    while todo:
        a, b = todo.pop()
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            todo += [(a[key], b[key]) for key in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            todo += zip(a, b, strict=True)
        elif isinstance(a, bool) or isinstance(b, bool):
            if a is not b:
                return False
        elif isinstance(a, Mapping | list | tuple) or isinstance(b, Mapping | list | tuple) or a != b:
            return False
    return True


def bits_of(text: str | None) -> int:
    """Return a set of events, read from the text in a snapshot."""
    return int(text, 16) if text else 0


def text_of(bits: int) -> str:
    """Return a set of events as text for a snapshot: hexadecimal, since JSON's numbers are bounded."""
    return format(bits, "x")

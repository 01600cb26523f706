"""Fair claims: the values of a label take turns, and a graph has no more runs than it may have.

With 100,000 runs of one customer and one of another waiting, the other's run is the first or the second to be given
out. A store that is asked for runs in turn (`ClaimRequest.turns`) visits the values behind the last one that it
visited, a bounded number of them in each claim, and takes one run of each before it takes a second one of any.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from orchestrator.errors import InvalidValue

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)


class Turns:
    """Whose turn it is among the values of a label. A worker keeps one, and stores move it on.

    Runs without the label take turns as one value.

    Args:
        label: the label's name: ASCII letters, digits, `.`, `_` and `-`, for an index may be named after it.

    Raises:
        InvalidValue: a label with this name cannot be used.
    """

    __slots__ = ("after", "label")

    def __init__(self, label: str) -> None:
        if not isinstance(label, str) or _NAME.fullmatch(label) is None:
            raise InvalidValue(
                f"label {label!r}: runs take turns by a label whose name has 1 to 100 ASCII letters, digits and ._-",
                where="fair_by",
            )
        self.label = label
        self.after = ""
        """The value that was visited last; '' before the first one."""

    def value_of(self, labels: Mapping[str, str]) -> str:
        """The value of a run with these labels."""
        return labels.get(self.label, "")

    def in_order(self, values: Iterable[str]) -> list[str]:
        """Values in the order of their turns: first those behind the last one that was visited."""
        known = sorted({*values})
        return [one for one in known if one > self.after] + [one for one in known if one <= self.after]


class Selection(Generic[T]):
    """The runs that a claim selects, each once: at most so many, and of some graphs at most so many.

    Args:
        limit: the most runs.
        most: name of a graph -> the most runs of it; graphs that are not named have no bound of their own.
    """

    def __init__(self, limit: int, most: Mapping[str, int] | None = None) -> None:
        self.rows: list[T] = []
        self.limit, self._most, self._left = limit, most or {}, dict(most or {})
        self._seen: set[object] = set()

    @property
    def full(self) -> bool:
        """True if no run can be added any more."""
        return len(self.rows) >= self.limit

    def bound(self, graph: str) -> int:
        """The most runs of a graph."""
        return min(self.limit, self._most.get(graph, self.limit))

    def open(self, graphs: Collection[str]) -> list[str]:
        """The graphs of which runs can be added."""
        return [] if self.full else [name for name in graphs if self._left.get(name, 1) > 0]

    def add(self, key: object, graph: str, row: T) -> bool:
        """Add a run, if there is room for it and it is not there already; whether it was added."""
        if self.full or key in self._seen or self._left.get(graph, 1) <= 0:
            return False
        self._seen.add(key)
        if graph in self._left:
            self._left[graph] -= 1
        self.rows.append(row)
        return True


def take_turns(
    turns: Turns, rows: Iterable[tuple[str, T]], add: Callable[[T], bool], enough: Callable[[], bool]
) -> None:
    """Add one run of each value, then a second one of each, and so on, until there are enough or none is left.

    Args:
        turns: whose turn it is; it is moved on to the value of the last run that was added.
        rows: runs with their values, those of one value in their order.
        add: adds a run, and returns whether it was added.
        enough: whether no more runs are wanted.
    """
    waiting: dict[str, deque[T]] = {}
    for value, row in rows:
        waiting.setdefault(value, deque()).append(row)
    order = turns.in_order(waiting)
    while order and not enough():
        for value in order:
            while waiting[value] and not enough():
                if add(waiting[value].popleft()):
                    turns.after = value
                    break
        order = [value for value in order if waiting[value]]

"""Fair claims: the values of a label take turns, and the number of runs of a graph is limited.

With 100,000 runs of one customer and one of another waiting, the other's run is the first or the second to be given
out. A store that gives out runs in turn (`ClaimRequest.turns`) visits the values after the last visited one, a bounded
number of them in each claim, and takes one run of each before it takes a second one of any.
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
    """The turns of the values of a label. A worker keeps one, and stores advance it.

    Runs without the label take turns as one value.

    Args:
        label: the label's name: ASCII letters, digits, `.`, `_` and `-`, since an index may be named after it.

    Raises:
        InvalidValue: the name of the label cannot be used.
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
        """Return the value of a run with these labels."""
        return labels.get(self.label, "")

    def in_order(self, values: Iterable[str]) -> list[str]:
        """Return values in the order of their turns: first those after the last visited one."""
        known = sorted({*values})
        return [one for one in known if one > self.after] + [one for one in known if one <= self.after]


class Selection(Generic[T]):
    """The distinct runs that a claim selects, limited in total and for some graphs.

    Args:
        limit: maximum number of runs.
        most: name of a graph -> maximum number of its runs; other graphs have no limit of their own.
    """

    def __init__(self, limit: int, most: Mapping[str, int] | None = None) -> None:
        self.rows: list[T] = []
        self.limit, self._most, self._left = limit, most or {}, dict(most or {})
        self._seen: set[object] = set()

    @property
    def full(self) -> bool:
        """True if no more runs can be added."""
        return len(self.rows) >= self.limit

    def bound(self, graph: str) -> int:
        """Return the maximum number of runs of a graph."""
        return min(self.limit, self._most.get(graph, self.limit))

    def open(self, graphs: Collection[str]) -> list[str]:
        """Return the names of the graphs whose runs can be added."""
        return [] if self.full else [name for name in graphs if self._left.get(name, 1) > 0]

    def add(self, key: object, graph: str, row: T) -> bool:
        """Add a run, if there is room for it and it is not selected already; return whether it was added."""
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
        turns: the turns; advanced to the value of the last run that was added.
        rows: runs with their values; those of one value in their order.
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

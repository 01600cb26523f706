"""What changed when, so that a reader who has an earlier version of something gets what is different, and no more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """The version in which each of many things changed last."""

    def __init__(self) -> None:
        self._last: dict[T, int] = {}
        """The things in the order of their last changes."""

    def note(self, thing: T, version: int) -> None:
        """Something changed, in the newest version."""
        self._last.pop(thing, None)
        self._last[thing] = version

    def since(self, version: int) -> Iterator[T]:
        """The things that changed behind a version, the newest first. Costs what changed."""
        for thing, changed in reversed(self._last.items()):
            if changed <= version:
                return
            yield thing


class GrowingList(Generic[T]):
    """A list that only grows.

    Attributes:
        items: What is in it.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self._versions: list[int] = []

    def extend(self, items: Iterable[T], version: int) -> None:
        """Put things at the end, in the newest version."""
        self.items.extend(items)
        self._versions.extend([version] * (len(self.items) - len(self._versions)))

    def since(self, version: int) -> tuple[int, list[T]]:
        """How many things a reader of a version has, and those behind them."""
        first = bisect_right(self._versions, version)
        return first, self.items[first:]


class TailList(Generic[T]):
    """A list that is made anew for each version, and is mostly the same at its beginning.

    Attributes:
        items: What is in it.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self._changes: list[tuple[int, int]] = []
        """Versions in which it changed, and the first place that did."""

    def put(self, items: list[T], version: int) -> None:
        """Take what is in it, in the newest version."""
        before = self.items
        same = min(len(before), len(items))
        if len(before) == len(items) and before == items:
            return
        first = next((at for at in range(same) if before[at] != items[at]), same)
        self.items = items
        self._changes.append((version, first))

    def since(self, version: int) -> tuple[int, list[T]]:
        """How many things at the beginning a reader of a version has as they are, and those behind them."""
        first = len(self.items)
        for changed, at in reversed(self._changes):
            if changed <= version:
                break
            first = min(first, at)
        return first, self.items[first:]

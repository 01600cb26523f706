"""Lists that share their items with the lists that they were made from.

A field with the reducer `append` or `extend` grows by a few items a step, and every version of the state holds it. To
copy the whole list each time would make a step cost what the list holds, and a fork of many branches would hold it
many times. The first list that is made from another one puts its items behind that one's in the same store; a further
one, as branches make them, begins a store of its own on top of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

_lock = threading.Lock()
_DEEP = 16
"""Lists on top of each other from which on they are put together."""


class SharedList:
    """An immutable list that is cheap to make from another one.

    Args:
        items: the store of its last items. It may grow behind `count` and is not changed otherwise.
        count: how many items of the store belong to the list.
        below: the list of the items before those.
    """

    __slots__ = ("_below", "_count", "_depth", "_flat", "_items", "_length")

    def __init__(self, items: list[Any], count: int, below: SharedList | None = None) -> None:
        self._items, self._count, self._below = items, count, below
        self._length: int = count if below is None else count + below._length
        self._depth: int = 1 if below is None else 1 + below._depth
        self._flat: SharedList | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        return self.items()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedList | list):
            return self is other or self.items() == listed(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __deepcopy__(self, memo: object) -> SharedList:
        return self

    def __repr__(self) -> str:
        return f"SharedList({self.items()!r})"

    def items(self) -> list[Any]:
        """A new list of its items."""
        if self._below is None:
            return self._items[: self._count]
        parts: list[SharedList] = []
        part: SharedList | None = self
        while part is not None:
            parts.append(part)
            part = part._below
        found: list[Any] = []
        for part in reversed(parts):
            found += part._items[: part._count]
        return found

    def plus(self, fresh: Sequence[Any]) -> SharedList:
        """A list of its items and others behind them."""
        store, count, below = self._items, self._count, self._below
        with _lock:  # versions of one run may be made by several threads: a view folds its records, too
            if len(store) == count:
                store += fresh
                return SharedList(store, count + len(fresh), below)
        return SharedList(own := list(fresh), len(own), self._as_base())

    def _as_base(self) -> SharedList:
        """The same list, for others to lie on: one that lies on many others is put together once."""
        if self._depth < _DEEP:
            return self
        if self._flat is None:
            items = self.items()
            self._flat = SharedList(items, len(items))
        return self._flat

    def since(self, other: object) -> list[Any] | None:
        """Its items behind those of a list that it was made from; None if it was not, or not by this store alone."""
        if isinstance(other, SharedList) and other._items is self._items and other._below is self._below:
            return self._items[other._count : self._count] if other._count <= self._count else None
        return None


def grown(old: object, fresh: Sequence[Any]) -> SharedList:
    """A list of the items of an old one, which may be None, and others behind them. The old one is not changed."""
    if type(old) is SharedList:
        return old.plus(fresh)
    items = list(fresh)
    if not old:
        return SharedList(items, len(items))
    # What came in at once is left as it is: only stores that are made here grow.
    known = old if type(old) is list else list(old)  # type: ignore[call-overload]
    return SharedList(items, len(items), SharedList(known, len(known)))


def listed(value: Any) -> Any:
    """The value itself; of a shared list a list of its items."""
    return value.items() if type(value) is SharedList else value

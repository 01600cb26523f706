"""A store that stops: from some write on nothing reaches it any more, as if the process were gone."""

from __future__ import annotations

from typing import Any, Literal, cast

from orchestrator.errors import StoreUnavailable
from orchestrator.stores.base import Store
from orchestrator.stores.requests import Append, NewRun

Side = Literal["before", "after"]
"""Whether the write at which the process stops is lost, or kept and not acknowledged."""


class Stopped(StoreUnavailable):
    """What a process sees of the store after it was stopped: nothing."""


class StoppingStore:
    """Hands everything on to a store until a write of records, the `at`th, at which it stops.

    Args:
        inner: where the records are kept.
        at: the number of the write, from 1; None never stops.
        side: see `Side`.
    """

    def __init__(self, inner: Store, at: int | None = None, side: Side = "before") -> None:
        self.inner, self.at, self.side = inner, at, side
        self.writes = 0
        self.stopped = False

    def __getattr__(self, name: str) -> object:
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def handed_on(*args: object, **options: object) -> Any:
            self._alive()
            return found(*args, **options)

        return handed_on

    @property
    def store(self) -> Store:
        """Itself, as a store."""
        return cast("Store", self)

    async def create(self, new: NewRun) -> None:
        """See `Store.create`."""
        last = self._begins()
        await self.inner.create(new)
        self._ended(last)

    async def append(self, append: Append) -> int:
        """See `Store.append`."""
        last = self._begins()
        head = await self.inner.append(append)
        self._ended(last)
        return head

    def _alive(self) -> None:
        if self.stopped:
            raise Stopped(f"the process was stopped at write {self.at}")

    def _begins(self) -> bool:
        """Count a write. Whether it is the last one."""
        self._alive()
        self.writes += 1
        last = self.writes == self.at
        if last and self.side == "before":
            self.stopped = True
            self._alive()
        return last

    def _ended(self, last: bool) -> None:
        if last:
            self.stopped = True
        self._alive()  # also of a write that began before and ended after

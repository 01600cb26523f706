"""One watcher of a live run: what is durable already, in order, with the live events between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio

from orchestrator.views.events import Event

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


class Watcher:
    """One watcher of a live run: what is durable already, in order, with the live events between.

    Nothing that a watcher does, or leaves undone, holds up the run: it keeps a bounded number of records and
    reads what it missed from the store.
    """

    def __init__(self, run_id: str, after: int, read: Callable[[int], Awaitable[Sequence[Record]]]) -> None:
        self.run_id, self.seen = run_id, after
        self._read = read
        self._records: deque[Record] = deque(maxlen=2000)
        self._read_ahead: deque[Record] = deque()
        self._live: deque[tuple[int, Event]] = deque(maxlen=10_000)
        self._wake = anyio.Event()
        self._stored = after
        self._closed = False

    def catch_up(self, stored: int) -> None:
        """Records up to this one are in the store already."""
        self._stored = max(self._stored, stored)
        self._wake.set()

    def stored(self, records: Sequence[Record]) -> None:
        """These records are durable now."""
        self._records.extend(records)
        if records:
            self._stored = max(self._stored, records[-1].seq)
            self._wake.set()

    def live(self, after: int, kind: str, data: dict[str, object]) -> None:
        """A live event, to be shown when record `after` is durable."""
        event = Event(type=kind, seq=None, ts=time.time(), run_id=self.run_id, data=data)
        self._live.append((after, event))
        if after <= self._stored:
            self._wake.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Record | Event:
        while True:
            following = self._read_ahead[0].seq if self._read_ahead else self.seen + 1
            if self._live and self._live[0][0] < following:
                return self._live.popleft()[1]
            if self._read_ahead:
                record = self._read_ahead.popleft()
                self.seen = record.seq
                return record
            if self.seen < self._stored:
                self._read_ahead.extend(await self._next())
            elif self._closed:
                raise StopAsyncIteration
            else:
                await self._wake.wait()
                self._wake = anyio.Event()

    async def _next(self) -> Sequence[Record]:
        while self._records and self._records[0].seq <= self.seen:
            self._records.popleft()
        if self._records and self._records[0].seq == self.seen + 1:
            return [self._records.popleft()]
        return await self._read(self.seen)

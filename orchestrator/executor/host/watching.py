"""A watcher of a run that is driven here: its durable records in order, with the live events between them.

It is an iterator instead of an async generator: a generator that is left early must be closed explicitly, or trio
complains and asyncio cleans up late. Iterators hold nothing that needs closing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import anyio

from orchestrator.clock import Clock
from orchestrator.executor.host.host import Host
from orchestrator.kernel.records import Record
from orchestrator.views.events import Event

CHUNK = 500
"""Records that are read from the store at a time."""
_RECORDS = 2000
"""Records that wait for a slow watcher; older ones it reads from the store."""
_LIVE = 10_000
"""Live events that wait for a slow watcher."""
_CHARACTERS = 4_000_000
"""Characters of their texts, of which each counts with a thousand at most: else a few long replies under way, which a
slow watcher gets from their beginning, would fill it again at once."""


class Watcher:
    """A watcher of a live run: its durable records in order, with the live events between them.

    A slow watcher never delays the run. It buffers a bounded number of records, and reads what it missed from the
    store. It buffers a bounded number of live events, too: when there are more it drops them, and gets the replies that
    are under way from their beginning.
    """

    def __init__(
        self, run_id: str, after: int, read: Callable[[int], Awaitable[Sequence[Record]]], clock: Clock
    ) -> None:
        self.run_id, self.seen = run_id, after
        self._read, self._clock = read, clock
        self._records: deque[Record] = deque(maxlen=_RECORDS)
        self._read_ahead: deque[Record] = deque()
        self._live: deque[tuple[int, Event]] = deque()
        self._characters = 0
        self._wake = anyio.Event()
        self._stored = after
        self._closed = False

    def catch_up(self, stored: int) -> None:
        """Note that records up to this one are in the store."""
        self._stored = max(self._stored, stored)
        self._wake.set()

    def stored(self, records: Sequence[Record]) -> None:
        """Add records that are durable now."""
        self._records.extend(records)
        if records:
            self._stored = max(self._stored, records[-1].seq)
            self._wake.set()

    def live(self, seq: int, kind: str, data: dict[str, object]) -> bool:
        """Add a live event, which is delivered when record `seq` is durable.

        Returns:
            False if too many waited: all of them were dropped.
        """
        kept = len(self._live) < _LIVE and self._characters < _CHARACTERS
        if not kept:
            self._live.clear()
            self._characters = 0
        self._characters += _weight(data)
        event = Event(type=kind, seq=None, ts=self._clock.now(), run_id=self.run_id, data=data)
        self._live.append((seq, event))
        if seq <= self._stored:
            self._wake.set()
        return kept

    def close(self) -> None:
        """End the iteration after the records so far."""
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Record | Event:
        while True:
            following = self._read_ahead[0].seq if self._read_ahead else self.seen + 1
            if self._live and self._live[0][0] < following:
                event = self._live.popleft()[1]
                self._characters -= _weight(event.data)
                return event
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


def _weight(data: dict[str, object]) -> int:
    return min(len(str(data.get("text", ""))), 1000)


def watch(host: Host, run_id: str, after: int) -> Watcher:
    """Return a watcher of a run, which reads what it missed from the store."""

    async def read(seen: int) -> Sequence[Record]:
        return await host.store.read(run_id, after=seen, limit=CHUNK)

    return Watcher(run_id, after, read, host.resources.clock)

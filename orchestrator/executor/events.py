"""What a watcher of a run sees: journaled events, which are the records, and live ones, which are provisional."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio
from pydantic import BaseModel, ConfigDict

from orchestrator.kernel.records import RECORD_TYPES, revived

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

LIVE_TYPES = ("step_started", "token", "progress", "emitted")
"""Types of events that are not journaled: `seq` is None, and a replay does not have them."""
EVENT_TYPES = (*RECORD_TYPES, *LIVE_TYPES)
"""Every `type` that an event can have."""


class Event(BaseModel):
    """Something that happened in a run. A journaled event has a `seq`, and is the same whenever it is read."""

    model_config = ConfigDict(frozen=True)

    type: str
    """One of `EVENT_TYPES`, or of the names of another style."""
    seq: int | None
    """The record's number; None for a live event."""
    ts: float
    """Unix seconds."""
    run_id: str
    data: dict[str, object] = {}
    """The other fields of the record, those at their default left out; of a live event what its type says."""

    @property
    def node(self) -> str:
        """The node that it is about, or an empty text."""
        return str(self.data.get("node", ""))

    @property
    def path(self) -> str:
        """The branch that it is about."""
        return str(self.data.get("path", ""))

    def to_json(self) -> dict[str, object]:
        """The event as one flat JSON object: `type, seq, ts, run_id`, and the fields of `data`."""
        return {"type": self.type, "seq": self.seq, "ts": self.ts, "run_id": self.run_id, **self.data}


def event_of(run_id: str, record: Record) -> Event:
    """The event that a record is."""
    data = record.model_dump(mode="json", exclude={"type", "seq", "ts", "v", "run_id", "seal"}, exclude_defaults=True)
    return Event(type=record.type, seq=record.seq, ts=record.ts, run_id=run_id, data=data)


def record_of(event: Event) -> Record | None:
    """The record that a journaled event is, such as to fold it; None for a live event.

    Raises:
        ValueError: it is none that this version knows, or an event of another style.
    """
    if event.seq is None:
        return None
    return revived({**event.data, "type": event.type, "seq": event.seq, "ts": event.ts}, event.run_id)


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

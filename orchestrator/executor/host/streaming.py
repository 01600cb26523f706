"""The events of a run: stored ones, and new ones while it is driven.

These are iterators instead of async generators: a generator that is left early must be closed explicitly, or trio
complains and asyncio cleans up late. Iterators hold nothing that needs closing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Literal, Self

import anyio

from orchestrator.clock import Clock
from orchestrator.errors import StoreCorrupt
from orchestrator.executor.drive.drive import Drive
from orchestrator.executor.failures import without_group
from orchestrator.executor.host.host import Host
from orchestrator.kernel.records import FINAL, Record
from orchestrator.typevars import StateT
from orchestrator.upward import above
from orchestrator.views.events import Event, EventStyle, event_of
from orchestrator.views.run import Run

_FOLLOW = 0.2
"""Seconds between two looks at a run that another process drives."""
_CHUNK = 500


class Watcher:
    """A watcher of a live run: its durable records in order, with the live events between them.

    A slow watcher never delays the run: it buffers a bounded number of records and reads what it missed from the
    store.
    """

    def __init__(
        self, run_id: str, after: int, read: Callable[[int], Awaitable[Sequence[Record]]], clock: Clock
    ) -> None:
        self.run_id, self.seen = run_id, after
        self._read, self._clock = read, clock
        self._records: deque[Record] = deque(maxlen=2000)
        self._read_ahead: deque[Record] = deque()
        self._live: deque[tuple[int, Event]] = deque(maxlen=10_000)
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

    def live(self, seq: int, kind: str, data: dict[str, object]) -> None:
        """Add a live event, which is delivered when record `seq` is durable."""
        event = Event(type=kind, seq=None, ts=self._clock.now(), run_id=self.run_id, data=data)
        self._live.append((seq, event))
        if seq <= self._stored:
            self._wake.set()

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


def watch(host: Host, run_id: str, after: int) -> Watcher:
    """Return a watcher of a run, which reads what it missed from the store."""

    async def read(seen: int) -> Sequence[Record]:
        return await host.store.read(run_id, after=seen, limit=_CHUNK)

    return Watcher(run_id, after, read, host.resources.clock)


class RecordFollower:
    """Iterates over the records after `after`, with live events between them if it follows a run driven here."""

    def __init__(self, host: Host, run_id: str, after: int, *, follow: bool) -> None:
        self._host, self._run_id, self._after, self._follow = host, run_id, after, follow
        self._ahead: deque[Record] = deque()
        self._watched: tuple[Drive, Watcher] | None = None
        self._over = False
        self._woken = anyio.Event()

    def __aiter__(self) -> RecordFollower:
        return self

    def __del__(self) -> None:
        self._leave()

    async def __anext__(self) -> Record | Event:
        while not self._ahead:
            if self._over:
                raise StopAsyncIteration
            self._join()
            if self._watched is not None:
                found = await anext(self._watched[1], None)
                if found is not None:
                    return found
                self._over = self._watched[0].machine.ended is not None
                self._leave()
            else:
                await self._read()
        record = self._ahead.popleft()
        self._after = record.seq
        return record

    def _join(self) -> None:
        """Watch the run, if it is driven here."""
        live = self._host.live.get(self._run_id) if self._follow and self._watched is None else None
        if live is None or live.done.is_set():
            return
        watcher = watch(self._host, self._run_id, self._after)
        live.log.watchers.add(watcher)
        watcher.catch_up(live.log.journal.stored)
        self._watched = (live, watcher)

    def _leave(self) -> None:
        if self._watched is not None:
            live, watcher = self._watched
            live.log.watchers.discard(watcher)
            self._after, self._watched = watcher.seen, None

    async def _read(self) -> None:
        try:
            records = await self._host.store.read(self._run_id, after=self._after, limit=_CHUNK)
        except StoreCorrupt as error:
            before: Sequence[Record] = vars(error).get("records", ())
            if not before:
                raise
            self._ahead.extend(before)  # deliver the readable records first; the next read meets the damage again
            return
        self._ahead.extend(records)
        if not self._follow:
            self._over = len(records) < _CHUNK
        elif not records:
            info = await self._host.store.info(self._run_id)
            self._over = info.status in FINAL and info.head <= self._after
            if not self._over and self._host.live.get(self._run_id) is None:
                await self._idle()

    async def _idle(self) -> None:
        """Wait briefly, or until the run is opened here, so that none of its live events are missed."""
        followers = self._host.idle_followers.setdefault(self._run_id, set())
        followers.add(self)
        self._woken = anyio.Event()
        try:
            with anyio.move_on_after(_FOLLOW):
                await self._woken.wait()
        finally:
            followers.discard(self)
            if not followers and self._host.idle_followers.get(self._run_id) is followers:
                del self._host.idle_followers[self._run_id]

    def notify(self) -> None:
        """Stop waiting: the run was opened here, and nothing has happened in it yet."""
        self._join()
        self._woken.set()


class RunEvents(AsyncIterator[Event]):
    """See `Executor.events`."""

    def __init__(self, host: Host, run_id: str, *, after: int, follow: bool, style: Literal["embedia"] | None) -> None:
        if style not in (None, "embedia"):
            raise ValueError(f"style {style!r} is unknown: use None or 'embedia'")
        self._host, self._run_id, self._after = host, run_id, after
        self._style: Literal["embedia"] | None = style
        # What the other style says of a record depends on all before it.
        self._seen = RecordFollower(host, run_id, after if style is None else 0, follow=follow)
        self._ahead: deque[Event] = deque()
        self._styled: EventStyle | None = None

    async def __anext__(self) -> Event:
        while not self._ahead:
            seen = await anext(self._seen)
            if self._style is None:
                return seen if isinstance(seen, Event) else event_of(self._run_id, seen)
            if not isinstance(seen, Event):
                events = (await self._other_style(self._style)).events_of(seen)
                self._ahead.extend(events if seen.seq > self._after else ())
        return self._ahead.popleft()

    async def _other_style(self, name: Literal["embedia"]) -> EventStyle:
        if self._styled is None:
            graph = await self._host.loader.stored_graph(await self._host.store.info(self._run_id))
            made: EventStyle = above(name)(graph)
            self._styled = made
        return self._styled


class Stream(Generic[StateT]):
    """The events of a running run. Iterate over it; after the last event, `run` is the run."""

    def __init__(self, host: Host, live: Drive, watcher: Watcher) -> None:
        self._host, self._live, self._watcher = host, live, watcher

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._live.run_id

    @property
    def run(self) -> Run[StateT]:
        """The run, after it has ended or paused.

        Raises:
            RuntimeError: the run is still running: read its events to the end first.
        """
        if not self._live.done.is_set():
            raise RuntimeError(f"run {self.run_id!r} is still running: read its events to the end first")
        return self._host.run_of(self._live)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        seen = await anext(self._watcher, None)
        if seen is None:
            await self._live.done.wait()
            if self._live.fault is not None:
                raise self._live.fault
            raise StopAsyncIteration
        return seen if isinstance(seen, Event) else event_of(self.run_id, seen)


@asynccontextmanager
async def streamed(host: Host, live: Drive) -> AsyncIterator[Stream]:
    """Drive a new run while the block runs. Leaving it interrupts the run."""
    watcher = watch(host, live.run_id, 0)
    watcher.catch_up(live.log.journal.stored)
    live.log.watchers.add(watcher)

    async def drive() -> None:
        try:
            await host.drive(live)
        except (Exception, SystemExit) as error:
            live.fault = live.fault or error  # raised where the events are read

    with without_group():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            yield Stream(host, live, watcher)
            tasks.cancel_scope.cancel()

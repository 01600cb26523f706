"""The events of a run, whoever drives it: stored ones, and new ones while they come.

A watcher of a run that is driven here gets its durable records in order, with the live events between them. It is an
iterator instead of an async generator: a generator that is left early must be closed explicitly, or trio complains and
asyncio cleans up late. Iterators hold nothing that needs closing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

from orchestrator._lazy import above
from orchestrator.clock import Clock
from orchestrator.errors import StoreCorrupt
from orchestrator.executor.host import Host
from orchestrator.kernel.records import FINAL, Record
from orchestrator.views.events import Event, EventStyle, event_of

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive
    from orchestrator.executor.recovery import Waiting

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


Until: TypeAlias = 'Literal["end", "pause"]'
"""How far a run is followed: to its end, or until it ends or pauses."""

FOLLOW = 0.2
"""Seconds between two looks at a run that another process drives."""


class RecordFollower:
    """Iterates over the records after `after`, with live events between them if it follows a run driven here."""

    def __init__(
        self, host: Host, run_id: str, after: int, *, follow: bool, until: Until = "end", joined: Waiting | None = None
    ) -> None:
        self._host, self._run_id, self._after, self._follow, self._until = host, run_id, after, follow, until
        self._joined = joined
        """Looks whether a run that was joined goes on; then it is followed until it does not."""
        self._ahead: deque[Record] = deque()
        self._watched: tuple[Drive, Watcher] | None = None
        self._over = False
        self._woken = anyio.Event()

    def __aiter__(self) -> RecordFollower:
        return self

    def __del__(self) -> None:
        self.leave()

    async def __anext__(self) -> Record | Event:
        while not self._ahead:
            if self._over:
                raise StopAsyncIteration
            self.join()
            if self._watched is not None:
                found = await anext(self._watched[1], None)
                if found is not None:
                    return found
                self._over = self._is_over(self._watched[0])
                self.leave()
            else:
                await self._read()
        record = self._ahead.popleft()
        self._after = record.seq
        return record

    def join(self) -> None:
        """Watch the run from now on, if it is driven here."""
        live = self._host.live.get(self._run_id) if self._follow and self._watched is None else None
        if live is None or live.done.is_set():
            return
        watcher = watch(self._host, self._run_id, self._after)
        watcher.catch_up(live.log.journal.stored)
        live.log.watch(watcher)
        self._watched = live, watcher

    def _is_over(self, live: Drive) -> bool:
        """Whether a drive that has ended was followed as far as is wanted."""
        machine = live.machine
        pauses = self._until == "pause" or (self._joined is not None and not self._host.watched.waits_on(machine))
        stands = machine.status == "paused" and live.log.journal.stored == machine.head
        return machine.ended is not None or (pauses and stands)

    def watches(self, live: Drive | None) -> bool:
        """Whether it watches this drive."""
        return (None if self._watched is None else self._watched[0]) is live

    def leave(self) -> None:
        """Stop watching the run here; the iteration goes on behind what was read."""
        if self._watched is not None:
            live, watcher = self._watched
            live.log.watchers.discard(watcher)
            self._after, self._watched = watcher.seen, None

    async def _read(self) -> None:
        try:
            records = await self._host.store.read(self._run_id, after=self._after, limit=CHUNK)
        except StoreCorrupt as error:
            before: Sequence[Record] = vars(error).get("records", ())
            if not before:
                raise
            self._ahead.extend(before)  # deliver the readable records first; the next read meets the damage again
            return
        self._ahead.extend(records)
        if not self._follow:
            self._over = len(records) < CHUNK
        elif not records and self._host.live.get(self._run_id) is None:
            self._over = await self._stands_still()
            if not self._over:
                await self._idle()
        elif not records:
            await anyio.lowlevel.checkpoint()  # it is being given back here

    async def _stands_still(self) -> bool:
        """Whether all records were read, and no more are wanted."""
        info = await self._host.store.info(self._run_id)
        if info.head > self._after:
            return False
        if self._joined is not None:
            found = await self._joined.look()
            return found is not None and found.seq <= self._after  # it may have gone on between the two looks
        return info.status in FINAL or (self._until == "pause" and info.status != "running")

    async def _idle(self) -> None:
        """Wait briefly, or until the run is opened here, so that none of its live events are missed."""
        followers = self._host.idle_followers.setdefault(self._run_id, set())
        followers.add(self)
        self._woken = anyio.Event()
        try:
            with anyio.move_on_after(FOLLOW):
                await self._woken.wait()
        finally:
            followers.discard(self)
            if not followers and self._host.idle_followers.get(self._run_id) is followers:
                del self._host.idle_followers[self._run_id]

    def notify(self) -> None:
        """Stop waiting: the run was opened here, and nothing has happened in it yet."""
        self.join()
        self._woken.set()


class RunEvents(AsyncIterator[Event]):
    """See `Executor.events`."""

    def __init__(
        self,
        host: Host,
        run_id: str,
        *,
        after: int,
        follow: bool,
        until: Literal["end", "pause"],
        style: Literal["embedia"] | None,
        tokenizer: Callable[[str], int] | None = None,
    ) -> None:
        if style not in (None, "embedia"):
            raise ValueError(f"style {style!r} is unknown: use None or 'embedia'")
        if until not in ("end", "pause"):
            raise ValueError(f"until={until!r}: use 'end' or 'pause'")
        self._host, self._run_id, self._after = host, run_id, after
        if tokenizer is not None and style is None:
            raise ValueError("tokenizer= is for style='embedia': other events have the provider's counts only")
        self._style: Literal["embedia"] | None = style
        self._tokenizer = tokenizer
        # What the other style says of a record depends on all before it.
        self._seen = RecordFollower(host, run_id, after if style is None else 0, follow=follow, until=until)
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
            made: EventStyle = above(name)(graph, self._tokenizer, self._run_id)
            self._styled = made
        return self._styled

"""The events of a run in the store, and of the drive that makes more of them.

Iterators, and not async generators: who leaves one of those early has to close it by hand, or trio complains and
asyncio cleans up late. These hold nothing that needs closing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Literal

import anyio

from orchestrator.errors import StoreCorrupt
from orchestrator.executor.events import Watcher
from orchestrator.kernel.records import FINAL
from orchestrator.views.events import Event, event_of

if TYPE_CHECKING:
    from orchestrator.embedia import Embedia
    from orchestrator.executor.drive.drive import Drive
    from orchestrator.executor.host.host import Host
    from orchestrator.kernel.records import Record

_FOLLOW = 0.2
"""Seconds between two looks at a run that another process drives."""
_CHUNK = 500


def watch(host: Host, run_id: str, after: int) -> Watcher:
    """A watcher of a run, which reads what it missed from the store."""

    async def read(seen: int) -> Sequence[Record]:
        return await host.store.read(run_id, after=seen, limit=_CHUNK)

    return Watcher(run_id, after, read)


class Seen:
    """Records behind `after`; following a run that is driven here, live events between them."""

    def __init__(self, host: Host, run_id: str, after: int, *, follow: bool) -> None:
        self._host, self._run_id, self._after, self._follow = host, run_id, after, follow
        self._ahead: deque[Record] = deque()
        self._watched: tuple[Drive, Watcher] | None = None
        self._over = False
        self._woken = anyio.Event()

    def __aiter__(self) -> Seen:
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
            self._ahead.extend(before)  # what can be read is told first; the next look meets the damage again
            return
        self._ahead.extend(records)
        if not self._follow:
            self._over = len(records) < _CHUNK
        elif not records:
            info = await self._host.store.info(self._run_id)
            self._over = info.status in FINAL and info.head <= self._after
            if not self._over and self._host.live.get(self._run_id) is None:
                await self._doze()

    async def _doze(self) -> None:
        """Wait a little; whoever takes the run up here ends it, so that nothing that he tells is missed."""
        dozing = self._host.dozing.setdefault(self._run_id, set())
        dozing.add(self)
        self._woken = anyio.Event()
        try:
            with anyio.move_on_after(_FOLLOW):
                await self._woken.wait()
        finally:
            dozing.discard(self)
            if not dozing and self._host.dozing.get(self._run_id) is dozing:
                del self._host.dozing[self._run_id]

    def wake(self) -> None:
        """The run was taken up here, and nothing is done in it yet."""
        self._join()
        self._woken.set()


class Events(AsyncIterator[Event]):
    """See `Executor.events`."""

    def __init__(self, host: Host, run_id: str, *, after: int, follow: bool, style: Literal["embedia"] | None) -> None:
        if style not in (None, "embedia"):
            raise ValueError(f"style {style!r} is not known: say None, or 'embedia'")
        self._host, self._run_id, self._after, self._style = host, run_id, after, style
        # What the other style says of a record depends on all before it.
        self._seen = Seen(host, run_id, after if style is None else 0, follow=follow)
        self._told: deque[Event] = deque()
        self._teller: Embedia | None = None

    async def __anext__(self) -> Event:
        while not self._told:
            seen = await anext(self._seen)
            if self._style is None:
                return seen if isinstance(seen, Event) else event_of(self._run_id, seen)
            if not isinstance(seen, Event):
                told = (await self._embedia()).tell(seen)
                self._told.extend(told if seen.seq > self._after else ())
        return self._told.popleft()

    async def _embedia(self) -> Embedia:
        if self._teller is None:
            from orchestrator.embedia import Embedia

            self._teller = Embedia(await self._host.stored_graph(await self._host.store.info(self._run_id)))
        return self._teller

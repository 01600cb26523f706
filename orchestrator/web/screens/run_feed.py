"""Runs for pages that follow them: each is read once, and a page gets the changes since its last request.

A long run is read in parts: its page opens with the first records, and each request gets the changes by the next ones.
Meanwhile the status comes from the row of the run.

A run is kept while pages request it. A page that returns after the run was dropped, or the server restarted, gets the
whole run, as far as it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from orchestrator.executor import Run
from orchestrator.executor.run_status import is_interrupted, standby_of, waits_to_be_taken_up, with_status
from orchestrator.json import size_of
from orchestrator.render.html.page import embedded, live_pane, live_picture
from orchestrator.render.html.run_data import RESTARTS, RunWriter
from orchestrator.render.html.step_data import clean, usage_data
from orchestrator.tasks import away
from orchestrator.views.safe_text import told
from orchestrator.views.transcript import transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.executor import Executor
    from orchestrator.kernel.records import Record
    from orchestrator.kernel.run_state import RunState
    from orchestrator.stores.base import RunInfo
    from orchestrator.views.transcript import Entry

T = TypeVar("T")
_KEPT = 24
"""Runs that are kept."""
_RECORDS = 200_000
"""Records of all of them together: beyond it, only recently requested runs are kept."""
_SIZE = 1 << 24
"""Characters of these records, likewise. In memory, a run with many small values takes 50 times as much."""
_MOST = 2 * _SIZE
"""Characters above which no other run is kept, even if it was requested recently."""
_LATELY = 60.0
"""Seconds: runs followed at the same time must not cause each other to be read again from the start."""
PART = 1000
"""Records that are read at a time."""
ENTRIES = 150
"""Entries of a transcript in one answer."""


@dataclass(frozen=True, slots=True)
class RunPane:
    """A run for a page that follows it."""

    version: str
    graph: str
    html: str
    data: str
    """Its document, as JSON for a script element."""


class RunFeeds:
    """The runs with open pages.

    Args:
        executor: the executor that is served.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._feeds: dict[str, RunFeed] = {}

    def of(self, run_id: str) -> RunFeed:
        """Return the run with this id; drops the least recently requested one."""
        feed = self._feeds.pop(run_id, None) or RunFeed(self._executor, run_id)
        self._feeds[run_id], feed.asked = feed, monotonic()
        while len(self._feeds) > _KEPT or self._crowded(feed.asked - _LATELY):
            self._feeds.pop(next(iter(self._feeds)))
        return feed

    def forget(self, run_id: str) -> None:
        """Drop a run that is deleted."""
        self._feeds.pop(run_id, None)

    def _crowded(self, lately: float) -> bool:
        """Return True if there are so many records that the least recently requested run must be dropped."""
        oldest, *others = self._feeds.values()
        size = sum(one.size for one in self._feeds.values())
        if oldest.asked >= lately:
            return bool(others) and size > _MOST
        return size > _SIZE or sum(one.head for one in self._feeds.values()) > _RECORDS


class RunFeed:
    """A run for pages that follow it: its records are read once, and a page gets the changes since its last request."""

    def __init__(self, executor: Executor, run_id: str) -> None:
        self._executor, self._run_id = executor, run_id
        self._lock = anyio.Lock()
        self.asked = 0.0
        """Time of the last request for it, of the monotonic clock."""
        self.size = 0
        """Characters of the records that were read, see `size_of`; those of the transcript are counted once more."""
        self._epoch = ""
        """Id of the reading of the run to which the versions belong."""
        self._created = 0.0
        self._writer: RunWriter | None = None
        self._ahead: RunInfo | None = None
        """The row of the run, if it has more records than were read."""
        self._caught_up = 0
        """The version in which it was read to its end: the picture shows the run's duration."""
        self._first: RunWriter | None = None
        """The writer, also while it takes records: for what does not change then."""
        self._reading = anyio.Lock()
        self._entries: tuple[int, list[Entry]] = 0, []
        """The transcript up to a record, while the run has more records than were read."""
        self._entries_size = 0

    @property
    def head(self) -> int:
        """Number of records that were read."""
        return 0 if self._writer is None else self._writer.machine.head

    async def page(self) -> RunPane:
        """Return the pane of the run in its current state.

        Raises:
            RunUnknown, StoreCorrupt: see `Executor.load`.
        """

        def made(writer: RunWriter) -> RunPane:
            data = self._document(writer)
            return RunPane(data["version"], str(data["graph"]), live_pane(writer, data), embedded(data))

        return await self._after_reading(made)

    async def since(self, version: str) -> str:
        """Return the changes after a version, as JSON; or the whole run, with its picture, if the version is unknown.

        Raises:
            RunUnknown, StoreCorrupt: see `Executor.load`.
        """

        def made(writer: RunWriter) -> str:
            return embedded(change(writer))

        def change(writer: RunWriter) -> dict[str, Any]:
            epoch, _, number = version.partition(".")
            if epoch != self._epoch or not (number.isascii() and number.isdecimal() and len(number) < 16):
                return {"whole": self._document(writer), "drawing": live_picture(writer)}
            redrawn = writer.redrawn(int(number)) or int(number) < self._caught_up
            drawing = {"drawing": live_picture(writer)} if redrawn else {}
            found = writer.since(int(number))
            found["head"] |= self._newest(writer)
            return {"version": self._version(writer), **found, **drawing}

        return await self._after_reading(made)

    async def transcript(self, before: int) -> str:
        """Return the newest entries of the transcript before one, as JSON, also those of records that are not read yet.

        Args:
            before: number of an entry; 0: none, so the last entries of all.

        Raises:
            RunUnknown, StoreCorrupt: see `Executor.load`.
        """
        store, run_id = self._executor.store, self._run_id
        writer = self._first
        if writer is None:
            async with self._lock:
                writer = self._writer or await self._read()
        async with self._reading:
            head, entries = self._entries
            if self._ahead is None:
                entries = writer.transcript
            elif head < (await store.info(run_id)).head:
                records, plan = await store.read(run_id), writer.run.plan
                entries = await away(lambda: transcript(plan, records))
                self._keep(records[-1].seq, entries, await away(lambda: size_of(records)))
        end = min(before - 1, len(entries)) if before else len(entries)
        shown = entries[max(0, end - ENTRIES) : max(0, end)]
        return await away(lambda: embedded({"count": len(entries), "entries": writer.entries(shown)}))

    def _document(self, writer: RunWriter) -> dict[str, Any]:
        ahead = self._ahead
        output = {"output": clean(ahead.output)} if ahead is not None and ahead.output else {}
        found = writer.document() | self._newest(writer) | output
        return {**found, "version": self._version(writer), "numbers": writer.order()}

    def _newest(self, writer: RunWriter) -> dict[str, Any]:
        """Return the current facts of the run, if it is not read to its end."""
        info, read = self._ahead, writer.machine.head
        if info is None:
            return {"of": read}
        used = info.usage
        return {
            "of": info.head,
            "status": with_status(info).status,
            "why": f"{read:,} of {info.head:,} records are read",
            "counted": info.steps,
            "error": told(info.error, 2000) if info.error else None,
            "waiting": [told(info.question, 300)] if info.waiting else [],
            **({} if used is None else {"usage": usage_data(used), "seconds": round(used.seconds, 6)}),
        }

    def _version(self, writer: RunWriter) -> str:
        return f"{self._epoch}.{writer.version}"

    async def _after_reading(self, make: Callable[[RunWriter], T]) -> T:
        async with self._lock:
            writer = await self._read()
            return await away(lambda: make(writer))

    async def _read(self) -> RunWriter:
        """Read the new records of the store, or the next part of them."""
        store, run_id = self._executor.store, self._run_id
        info, upto = await store.info(run_id), PART
        writer = self._writer
        if writer is not None and info.created == self._created and info.head >= writer.machine.head:
            records = await store.read(run_id, after=writer.machine.head, limit=PART)
            if not any(isinstance(record, RESTARTS) for record in records):
                return await self._taken(writer, records, info)
            upto = records[-1].seq  # earlier records are read again
        run = await self._executor.load(run_id, at=upto if upto < info.head else None)
        records = await store.read(run_id, upto=run.seq)
        return await away(lambda: self._begun(RunWriter(run, records), records, info))

    def _begun(self, writer: RunWriter, records: Sequence[Record], info: RunInfo) -> RunWriter:
        self._writer = self._first = writer
        self._epoch, self._created = token_hex(4), info.created
        self.size, self._entries_size = size_of(records), 0
        self._ahead, self._caught_up = None, 0
        self._keep(0, [], 0)
        self._look_ahead(writer, info)
        return writer

    def _keep(self, head: int, entries: list[Entry], size: int) -> None:
        """Keep the entries of the transcript up to a record, of records with so many characters."""
        self._entries = head, entries
        self.size += size - self._entries_size
        self._entries_size = size

    def _look_ahead(self, writer: RunWriter, info: RunInfo) -> None:
        before, self._ahead = self._ahead, info if info.head > writer.machine.head else None
        if before is not None and self._ahead is None:
            self._caught_up = writer.version
            self._keep(0, [], 0)

    async def _taken(self, writer: RunWriter, records: Sequence[Record], info: RunInfo) -> RunWriter:
        definition, store = writer.run.definition, self._executor.store

        def now(machine: RunState) -> Run[Any]:
            if machine.head < info.head:
                return Run(machine, definition, store, archived=info.archived)
            held = {"interrupted": is_interrupted(info), "queued": waits_to_be_taken_up(info)}
            return Run(machine, definition, store, **held, standby=standby_of(info), archived=info.archived)

        def take() -> RunWriter:
            self._writer = None  # it is unusable if it fails half way
            writer.take(records, now)
            self._writer = writer
            self.size += size_of(records)
            self._look_ahead(writer, info)
            return writer

        return await away(take)

"""Runs of a store in memory whose records are in an archive."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from orchestrator.archived import Archived
from orchestrator.errors import RunArchived, RunConflict
from orchestrator.kernel.records import FINAL, encode
from orchestrator.stores.memory.leases import MemoryRun
from orchestrator.stores.rows import Page, RunInfo
from orchestrator.stores.shared import out_of_reach, page_cursor, parse_cursor

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


class MemoryArchived:
    """The part of `MemoryStore` that is `Archivable`."""

    _runs: dict[str, MemoryRun]

    def __init__(self) -> None:
        super().__init__()
        self._objects: dict[str, tuple[str, Archived]] = {}
        """Name -> id of the run, and the object."""
        self._gone: set[str] = set()
        """Names of the objects of deleted runs."""

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable`."""
        least = (-1e300, 0) if after is None else parse_cursor(after)
        with self._writing():
            ready = sorted(self._to_archive(before, least), key=lambda run: (run.info.created, run.number))
            found = ready[: max(limit, 1)]
            cursor = page_cursor(found[-1].info.created, found[-1].number) if len(ready) > len(found) else None
            return Page(tuple(self._info(run) for run in found), cursor)

    def _to_archive(self, before: float | None, least: tuple[float, int]) -> Iterator[MemoryRun]:
        for run in self._runs.values():
            old = before is None or run.info.updated < before
            behind = (run.info.created, run.number) > least
            if old and behind and run.archived is None and run.info.status in FINAL:
                yield run

    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """See `Archivable`."""
        with self._writing():
            self._run(run_id)
            for name, (owner, known) in self._objects.items():
                same = (owner, known.archive, known.sha256) == (run_id, noted.archive, noted.sha256)
                if same and name not in self._gone:
                    return known
            self._objects[noted.name] = run_id, noted
            return noted

    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """See `Archivable`."""
        with self._writing():
            run = self._run(run_id)
            if run.archived == where:
                return
            held, elsewhere = run.token is not None, run.archived is not None
            why = out_of_reach(run.info.status, run.info.head, head, held=held, elsewhere=elsewhere)
            if why is None and (where.name in self._gone or self._objects.get(where.name, ("", where))[0] != run_id):
                why = "the object was not noted for this run"
            if why is not None:
                raise RunConflict(run_id, why)
            run.archived = where
            run.records.clear()
            run.snapshots.clear()

    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """See `Archivable`."""
        encoded = [encode(record) for record in records]
        with self._writing():
            run = self._run(run_id)
            if run.archived is None:
                return
            if run.archived != where:
                raise RunConflict(run_id, "its records are in another object of the archive")
            run.archived, run.records = None, encoded

    async def objects(self, run_id: str) -> list[Archived]:
        """See `Archivable`."""
        with self._writing():
            return sorted((one for name, one in self._objects.values() if name == run_id), key=lambda one: one.at)

    async def left_objects(self) -> list[Archived]:
        """See `Archivable`."""
        with self._writing():
            return sorted((self._objects[name][1] for name in self._gone), key=lambda one: one.at)

    async def forget_objects(self, names: Collection[str]) -> None:
        """See `Archivable`."""
        with self._writing():
            for name in self._gone.intersection(names):
                self._gone.remove(name)
                del self._objects[name]

    def _leave_objects(self, run_id: str) -> None:
        """Note that a run is deleted whose objects are not."""
        self._gone.update(name for name, (owner, _) in self._objects.items() if owner == run_id)

    def _check_here(self, run: MemoryRun) -> None:
        """Refuse to touch records that are in an archive.

        Raises:
            RunArchived: they are.
        """
        if run.archived is not None:
            raise RunArchived(run.info.run_id, run.archived)

    def _writing(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _run(self, run_id: str) -> MemoryRun:
        raise NotImplementedError

    def _info(self, run: MemoryRun) -> RunInfo:
        raise NotImplementedError

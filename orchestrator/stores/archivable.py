"""What a store needs so that ended runs can be kept in an archive; see `orchestrator.stores.archive`.

The row of an archived run stays: `RunInfo.archived` says where its records are. Reading them in the store, and
appending to them, is `RunArchived`. Every object is noted before it is written, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from orchestrator.archived import Archived
from orchestrator.stores.rows import Page

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


@runtime_checkable
class Archivable(Protocol):
    """A store whose runs can be archived. Every write may be asked again, as those of `Store`."""

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """Return a page of the runs that have ended and whose records are in the store, oldest `created` first.

        Runs that are archived already cost nothing.

        Args:
            before: Unix seconds: the last record of the run is older; None: any.
            after: the cursor of the previous page; None: the first page.
            limit: the most runs on a page.
        """
        ...

    async def note_object(self, run_id: str, noted: Archived) -> Archived:
        """Note which object is going to be written for a run.

        Args:
            run_id: the run's id.
            noted: the object.

        Returns:
            The object to write: `noted`, or one of the same archive and content that was noted before.

        Raises:
            RunUnknown: the store has no such run.
        """
        ...

    async def move_out(self, run_id: str, where: Archived, *, head: int) -> None:
        """Delete the records and snapshots of a run, which are in the archive, and say so in its row.

        Asked again, it returns.

        Args:
            run_id: the run's id.
            where: an object that was noted.
            head: the number of the last record in it.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run has not ended, has another head, is held, or is in another object; nothing was changed.
        """
        ...

    async def move_back(self, run_id: str, records: Sequence[Record], where: Archived) -> None:
        """Store the records of an archived run again. Its objects stay noted.

        Of a run whose records are in the store already, nothing is changed.

        Args:
            run_id: the run's id.
            records: all of its records.
            where: where they were.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run is in another object.
        """
        ...

    async def objects(self, run_id: str) -> list[Archived]:
        """Return all objects that were noted for a run, the oldest first.

        Those that its row does not name any more are among them, and those of deleted runs of this id.

        Args:
            run_id: the run's id.
        """
        ...

    async def left_objects(self) -> list[Archived]:
        """Return the objects of runs that are deleted, the oldest first."""
        ...

    async def forget_objects(self, names: Collection[str]) -> None:
        """Forget objects that are deleted. Those of runs that are there are not forgotten.

        Args:
            names: the names of the objects.
        """
        ...


@runtime_checkable
class Archiving(Protocol):
    """A store that has an archive: its ended runs can be moved there, and are read as if they were in the store."""

    async def ended(self, *, before: float | None = None, after: str | None = None, limit: int = 500) -> Page:
        """See `Archivable.ended`."""
        ...

    async def archive_run(self, run_id: str) -> Archived:
        """Write an ended run to the archive, and remove its records from the store once they were read back.

        Interrupted at any point, the run is whole in the store, or whole in the archive. Of a run that is archived
        already, nothing is changed.

        Args:
            run_id: the run's id.

        Returns:
            Where its records are.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run has not ended, is held, or was changed meanwhile; its records are in the store.
            StoreCorrupt: a record is damaged.
            StoreUnavailable: the archive cannot be reached or written.
        """
        ...

    async def restore_run(self, run_id: str) -> bool:
        """Store the records of an archived run again. The object stays, for copies of the store that name it.

        Args:
            run_id: the run's id.

        Returns:
            Whether they were in the archive.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: the object is missing or was changed.
            StoreUnavailable: the archive cannot be reached.
        """
        ...

    async def reach(self, run_id: str) -> None:
        """Check, before a run is deleted, that the archive with its objects can be reached.

        Args:
            run_id: the run's id.

        Raises:
            StoreError: it cannot be reached or read.
        """
        ...

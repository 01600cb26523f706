"""What is kept of runs: deleting and pruning them, exporting them to a file and importing them from one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.executor.host.forking import RunForking
from orchestrator.values import check_text

if TYPE_CHECKING:
    from orchestrator.executor.host.archiving import ArchivedRuns
    from orchestrator.executor.host.checking import Checked
    from orchestrator.executor.host.executor_cache import ExecutorCache
    from orchestrator.executor.host.executor_memory import ExecutorMemory
    from orchestrator.executor.host.pruning import Pruned
    from orchestrator.executor.host.transfer import Imported, Source


class RunRetention(RunForking):
    """Commands about which runs a store keeps, and the memory beside them."""

    @property
    def memory(self) -> ExecutorMemory:
        """The memory that runs of this store share, as `ctx.memory` has it. What is done here is not journaled."""
        from orchestrator.executor.host.executor_memory import ExecutorMemory

        return ExecutorMemory(self._host)

    @property
    def cache(self) -> ExecutorCache:
        """The results that are kept of nodes with `cache=`."""
        from orchestrator.executor.host.executor_cache import ExecutorCache

        return ExecutorCache(self._host)

    async def check(self, *, repair: bool = False, progress: Callable[[int], object] | None = None) -> Checked:
        """Check a store: every record, every graph and every row, leases, and what belongs to no run.

        Runs that are being driven are read, and their rows are left alone.

        Args:
            repair: whether to repair what can be repaired without losing anything: rows are written again from their
                journals, indexes from their rows, and what belongs to no run is deleted. A damaged record stays as it
                is.
            progress: called with the number of runs that are checked.

        Returns:
            What was found, and what was done about it.

        Raises:
            StoreError: the store cannot be read.
        """
        from orchestrator.executor.host import checking

        return await checking.check(self._host, repair=repair, progress=progress)

    async def delete(self, run_id: str, *, children: bool = True) -> list[str]:
        """Delete a run that is not being driven: its records, questions, messages and labels, for good.

        Args:
            run_id: the run's id.
            children: whether to delete the runs that its graph tools started, and theirs, too. Only their caller
                refers to them. Forks and other runs with its label stay.

        Returns:
            The ids of the deleted runs, the run itself first.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run, or a run that it started, is being driven; nothing was deleted.
            RunArchived: an archive, which is not given, has objects of such a run; nothing was deleted.
            StoreError: the store, or its archive, cannot be reached. Deleting the run again deletes the rest of the
                runs it started.
        """
        from orchestrator.executor.host import deletion

        deleted = await deletion.delete(self._host, run_id, children=children)
        await self._host.store.compact()
        return deleted

    async def prune(
        self,
        *,
        older_than: timedelta | datetime | None = None,
        status: Collection[str] | str | None = None,
        labels: Mapping[str, str] | None = None,
        graph: str | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete runs that have ended, with the runs that their graph tools started, and items that have expired.

        Runs that have not ended stay, and so do runs that a graph tool of a remaining run started.

        Args:
            older_than: an age or a time (with a time zone): only runs whose last record is older.
            status: `completed`, `failed`, `cancelled` or `exhausted`, or several of them; None: all four.
            labels: labels that a run must have, with their values.
            graph: the name of a graph; None: any.
            keep: how many of the matching runs stay whatever their age, the newest.
            dry_run: whether only to report which runs would be deleted.

        Returns:
            The ids of the deleted runs, and of those that were skipped, with the reason; and how many items of memory
            and cache were removed.

        Raises:
            ValueError: neither `older_than` nor `keep` is given, or one of the arguments cannot be used.
            StoreError: the store cannot be written, or its archive fails at the first run. Pruning again continues.
        """
        from orchestrator.executor.host import pruning

        return await pruning.prune(
            self._host, older_than=older_than, status=status, labels=labels, graph=graph, keep=keep, dry_run=dry_run
        )

    async def archive(
        self,
        *,
        older_than: timedelta | datetime | None = None,
        status: Collection[str] | str | None = None,
        labels: Mapping[str, str] | None = None,
        graph: str | None = None,
        dry_run: bool = False,
    ) -> ArchivedRuns:
        """Move the records of runs that have ended to the archive of the store (`Executor(archive=)`).

        Their rows stay: the runs are listed, searched and counted as before, and read as before. An append, as when
        such a run is reopened or forked, moves the records back first. Nothing is removed from the store before its
        object was written and read back. Interrupted, archiving again archives the rest.

        Args:
            older_than: an age or a time (with a time zone): only runs whose last record is older; None: any.
            status: `completed`, `failed`, `cancelled` or `exhausted`, or several of them; None: all four.
            labels: labels that a run must have, with their values.
            graph: the name of a graph; None: any.
            dry_run: whether only to report which runs would be archived.

        Returns:
            The ids of the archived runs, and how many bytes were written, and given back by the store.

        Raises:
            ValueError: one of the arguments cannot be used.
            StoreError: the store has no archive, or one of the two cannot be written.
        """
        from orchestrator.executor.host import archiving

        return await archiving.archive(
            self._host, older_than=older_than, status=status, labels=labels, graph=graph, dry_run=dry_run
        )

    async def restore(self, run_id: str) -> bool:
        """Move the records of an archived run back into the store. The object stays, for copies of the store.

        Args:
            run_id: the run's id.

        Returns:
            Whether they were in the archive.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: the object is missing, or is not what was written.
            StoreError: the store has no archive, or the archive cannot be read.
        """
        from orchestrator.executor.host import archiving

        check_text(run_id, "run_id")
        return await archiving.restore(self._host, run_id)

    def export(
        self, run_ids: str | Collection[str], *, children: bool = True, redact: bool = False
    ) -> AsyncIterator[str]:
        """Return runs as lines of JSON: their records, their graphs, and the runs that their graph tools started.

        Args:
            run_ids: the id of a run, or several.
            children: whether to include the runs that graph tools started.
            redact: whether to blank what looks like a secret. A redacted export can be read, but not imported,
                because changed records fold differently.

        Returns:
            The lines, without line ends. Unread messages to a run are not in them.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: a record is damaged.
        """
        from orchestrator.executor.host import transfer

        wanted = [run_ids] if isinstance(run_ids, str) else list(run_ids)
        return transfer.exported(self._host, wanted, children=children, redact=redact)

    async def import_(self, source: Source) -> Imported:
        """Add the runs of an export to the store. It is checked as a whole before anything is written.

        The runs come from elsewhere: their records have no seal, and approvals of calls that were not made yet are
        withdrawn, so that the runs ask again.

        Args:
            source: the path of the exported file, or its lines.

        Returns:
            The ids of the imported runs, and of those that the store has already.

        Raises:
            InvalidExport: the file is damaged, cut off or redacted; nothing was imported.
            RunExists: the store has another run with one of the ids; nothing was imported.
            StoreError: the file cannot be read, or the store cannot be written. Each run is imported whole or not at
                all; importing again imports the rest.
        """
        from orchestrator.executor.host import transfer

        return await transfer.imported(self._host, source)

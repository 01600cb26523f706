"""A disk that fails its process from some write on."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
from typing import Literal

from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.sqlite.writer import Writer, _Job

Fault = Literal["full", "error", "torn"]
"""It has no room any more; every write to a file is an I/O error; the process dies as the write reaches it."""


class Disk:
    """Puts itself under a store that has written nothing yet.

    Args:
        fault: what happens when it fails.
        store: whose file it has.
    """

    def __init__(self, fault: Fault, store: SQLiteStore) -> None:
        self._fault: Fault = fault
        self._writer = store._writer = _FaultyWriter(store.path, store.url)

    def fail(self) -> None:
        """From the next write on."""
        if self._fault == "error":
            # Python ignores the signal that would come with it
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        else:
            self._writer.fault = self._fault


class _FaultyWriter(Writer):
    fault: Fault | None = None

    def _transaction(self, connection: sqlite3.Connection, batch: list[_Job[object]], begun: bool) -> float:
        if self.fault == "full":
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            batch = [*batch, _Job(_fill, False)]
        elif self.fault == "torn":
            # what was copied out of the log is never torn there: it was safe before
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        seconds = super()._transaction(connection, batch, begun)
        if self.fault == "torn":
            os.kill(os.getpid(), signal.SIGKILL)  # nobody was told that it is written
        return seconds


def _fill(connection: sqlite3.Connection) -> object:
    """Take more than what is free in the file, so that a write which would fit is refused too."""
    free, size = (connection.execute(f"PRAGMA {of}").fetchone()[0] for of in ("freelist_count", "page_size"))
    return connection.execute(f"CREATE TABLE filler AS SELECT zeroblob({(free + 2) * size})")

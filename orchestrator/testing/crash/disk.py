"""Disks that fail: under a process that writes (`Disk`), and the last write to a SQLite file torn afterwards (`tear`).

A torn write is what a power failure may leave of a transaction that was not acknowledged. SQLite's log
(https://sqlite.org/fileformat2.html#walformat) is a header of 32 bytes and frames, each a header of 24 bytes and a
page. A transaction ends with a frame that holds the size of the file in pages. Frames that are left from before the log
was restarted have other salts than its header.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Literal

from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.sqlite.connections import Writer, _Job

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


_HEADER, _FRAME = 32, 24


def log_of(file: Path) -> Path:
    """Path of the log with the latest transactions of a file."""
    return file.with_name(f"{file.name}-wal")


def last_write(log: bytes) -> tuple[int, int]:
    """Start and end of the last transaction of a log; the first one of a log includes the log's header.

    Raises:
        ValueError: there is none.
    """
    size = _FRAME + int.from_bytes(log[8:12])
    ends = [0]
    for place in range(_HEADER, len(log) - size + 1, size):
        if log[place + 8 : place + 16] != log[16:24]:
            break
        if any(log[place + 4 : place + 8]):
            ends.append(place + size)
    if len(ends) == 1:
        raise ValueError("the log is empty")
    return ends[-2], ends[-1]


def before_and_after(file: Path) -> tuple[Path, Path]:
    """Copies next to a file: as it was before its last transaction, and as it is."""
    log = log_of(file).read_bytes()
    before, after = file.with_name(f"before-{file.name}"), file.with_name(f"after-{file.name}")
    for copy, end in ((before, last_write(log)[0]), (after, len(log))):
        shutil.copy(file, copy)
        log_of(copy).write_bytes(log[:end])
    return before, after


def tear(file: Path, chance: random.Random) -> str:
    """Lose or garble a drawn part of the last transaction. Gives in words what was done."""
    log = log_of(file).read_bytes()
    begin, end = last_write(log)
    first = chance.randrange(begin, end)
    last = chance.randrange(first, end)
    way = chance.choice(("cut", "zeros", "noise"))
    if way == "cut":
        log_of(file).write_bytes(log[:first])
        return f"the log cut at byte {first} of {begin} to {end}"
    lost = chance.randbytes(last + 1 - first) if way == "noise" else bytes(last + 1 - first)
    log_of(file).write_bytes(log[:first] + lost + log[last + 1 :])
    return f"{way} in bytes {first} to {last} of {begin} to {end}"

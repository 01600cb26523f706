"""Whether the log that a process left behind lost commits that were acknowledged.

SQLite ends its log at the first frame whose checksum does not fit, without a word: that is right for a write that the
power broke off, and wrong for a bit that flipped later, behind which acknowledged commits are lost. The two can be told
apart: a commit is written only when the one before it is on the disk. So behind a write that broke off there is no
second commit of the same log; where there is one, the log was damaged. A bit that flips in the last commit of a log
cannot be told from a write that broke off.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.stores.sqlite.files import busy_error, patiently
from orchestrator.stores.sqlite.schema import APPLICATION_ID

_HEADER, _FRAME = 32, 24
"""Bytes of the log's header, and of that of each page in it; see https://www.sqlite.org/fileformat.html#walformat."""


_BUSY_SECONDS = 1.0


def kept_log(path: Path) -> Path:
    """Where a damaged log is kept. While it is there, the store is not opened."""
    return path.with_name(f"{path.name}-damaged-log")


def check_log(path: Path, url: str) -> None:
    """Refuse a store whose log lost commits. To be called before other connections to it are opened.

    A file without a log, as whoever closes a store leaves it, costs two looks at the directory.

    Raises:
        StoreError: it did. What is left of the log is kept beside the file.
    """
    kept, log = kept_log(path), path.with_name(f"{path.name}-wal")
    if kept.exists():
        raise StoreError(f"store {url}: {_words(log, kept)}")
    try:
        if log.stat().st_size < _HEADER + _FRAME or not path.exists():
            return
    except OSError:
        return
    with contextlib.suppress(sqlite3.Error):  # whoever opens the file next says what is wrong with it
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=1.0)
        try:
            if _is_damaged(connection, log):
                _keep(log, kept)  # before it is closed: then SQLite empties the log
                raise StoreError(f"store {url}: {_words(log, kept)}")
        finally:
            connection.close()


def _words(log: Path, kept: Path) -> str:
    return (
        f"its log {log.name} was damaged after it was written, and commits that were acknowledged are lost; restore "
        f"the store from a copy, or delete {kept} (what was left of the log) to continue from what is readable"
    )


def _is_damaged(connection: sqlite3.Connection, log: Path) -> bool:
    tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]  # SQLite reads the log here
    if tables and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return False  # another program's; without any table, those of ours may be what was lost
    page: int = connection.execute("PRAGMA page_size").fetchone()[0]
    frames = _frames(connection)
    # Others may write at the same time: what they wrote meanwhile is in the log that SQLite knows afterwards.
    return _commits_behind(log, frames, page) > 1 and _frames(connection) == frames


def _frames(connection: sqlite3.Connection) -> int:
    """How many pages the log has by SQLite's own account.

    Raises:
        sqlite3.OperationalError: another process empties the log all the time, so that SQLite does not say. Such a
            process has read the log to its end, and looked at it before as this one does.
    """

    def ask() -> int:
        row: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        busy, frames, _ = row
        if busy and frames < 0:
            raise busy_error()
        return max(frames, 0)

    return patiently(ask, _BUSY_SECONDS)


def _commits_behind(log: Path, frames: int, page: int) -> int:
    """How many commits of the present log stand behind so many pages."""
    count, step = 0, _FRAME + page
    with log.open("rb") as file:
        head = file.read(_HEADER)
        if len(head) < _HEADER:
            return 0
        salts = struct.unpack(">2I", head[16:24])  # new ones each time that the log is begun anew
        at = _HEADER + frames * step
        while True:
            file.seek(at)
            frame = file.read(_FRAME)
            if len(frame) < _FRAME:
                return count
            _, size, *own = struct.unpack(">4I", frame[:16])
            # one of them would do: a bit may have flipped in the other, and both change when the log is begun anew
            if size and (own[0] == salts[0] or own[1] == salts[1]):
                count += 1
            at += step


def _keep(log: Path, kept: Path) -> None:
    with contextlib.suppress(OSError):  # the disk may be full; then this error is told only once
        data = log.read_bytes()
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)

"""Opening the file of a store, and what the errors of SQLite mean to a user."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import InvalidValue, StoreError, StoreUnavailable
from orchestrator.stores.sqlite.schema import check_tables, check_version, make_tables

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long a lock that another process holds is waited for."""

PAGE_BYTES = 4096
"""Of a new file. Each commit writes the pages that it changes as a whole, and each table and index has one at least.

A record is kept within one page if it fits. Pages of 8192 bytes hold records of 1.4 to 4 KiB better, and longer ones
worse; of records of mixed lengths both take the same."""

_LOG_BYTES = 4 << 20
"""So long may the log become before SQLite empties it into the file."""

_LEAST_BYTES = 512
"""The smallest page that SQLite has."""


def open_to_write(path: Path, url: str) -> sqlite3.Connection:
    """A connection that writes durably; makes the file (0600), its directory (0700) and its tables when needed.

    Raises:
        sqlite3.Error, OSError: the file cannot be made or opened; `store_error` says it in words.
        StoreError, StoreTooNew: it is not a file for this version.
    """
    for directory in reversed(path.parents):
        directory.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its side files the same mode
    connection = _connect(path, url, "rw", timeout=0.0)  # who writes waits by `patiently`, where it may wait at all
    try:
        patiently(lambda: _prepare(connection, url))
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, url: str) -> None:
    # journal_mode is remembered by the file; asked for again, it would wait for every reader
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        check_version(connection, url)  # leave files of others as they are
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # a new file can give the space of deleted runs back
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # a deleted run leaves no text behind in free pages
    page: int = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // page}")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    make_tables(connection, url)
    check_tables(connection, url)


def open_to_read(path: Path, url: str) -> tuple[sqlite3.Connection, bool]:
    """A connection that only reads, and whether it may be kept for the next reader.

    A file that is not there yet, or is empty, reads as a store without runs: reading never makes a file.

    Raises:
        sqlite3.Error, OSError: the file cannot be opened; `store_error` says it in words.
        StoreError, StoreTooNew, StoreUnavailable: it is not a file for this version, or not as it is.
    """
    _check_kind(path, url)
    if not path.exists() or path.stat().st_size == 0:
        return _nothing(url), False
    connection, reusable = _connect(path, url, "rw"), True  # SQLite goes on read-only where it may not write
    try:
        try:
            version = patiently(lambda: check_version(connection, url))
        except sqlite3.OperationalError as error:
            full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE
            if _code(error) not in _NO_SHARED_MEMORY and not full:
                raise
            connection.close()
            connection, reusable = _connect_frozen(path, url, full=full), False
            version = check_version(connection, url)
        if version == 0:  # another process is making the tables, and may take its time
            connection.close()
            return _nothing(url), False
        check_tables(connection, url)
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection, reusable


def _nothing(url: str) -> sqlite3.Connection:
    """A store without runs."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # as the file will have it
    make_tables(connection, url)
    return connection


def _connect_frozen(path: Path, url: str, *, full: bool) -> sqlite3.Connection:
    """Read a file in a directory where the files that coordinate readers and writers cannot be made.

    So nobody has them: nobody writes just now.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        if full:
            raise StoreUnavailable(f"store {url}: {_UNAVAILABLE[sqlite3.SQLITE_FULL]}")
        raise StoreUnavailable(
            f"store {url}: its latest records are in {log.name}, which cannot be read in a directory that is "
            f"read-only; copy {path.name} and {log.name} to a directory where you may write"
        )
    return _connect(path, url, "ro&immutable=1")


def _connect(path: Path, url: str, mode: str, timeout: float = 1.0) -> sqlite3.Connection:
    _check_kind(path, url)
    # SQLite takes such a file for an empty one and would write over it. Not opened to look: closing it again would
    # take the locks away that our other connections have on it.
    if path.exists() and 0 < path.stat().st_size < _LEAST_BYTES:
        raise StoreError(f"store {url}: {_BROKEN[sqlite3.SQLITE_NOTADB]}")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=timeout
    )
    connection.text_factory = _text
    return connection


def _check_kind(path: Path, url: str) -> None:
    """Refuse what is there and is no file. SQLite would take a pipe or a device for an empty file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # opening it reports what is wrong
    if stat.S_ISDIR(mode):
        raise StoreUnavailable(f"store {url}: it cannot be opened, it is a directory; name a file in it")
    if not stat.S_ISREG(mode):
        raise StoreUnavailable(f"store {url}: it cannot be opened, it is a pipe, socket or device; name a file")


def _text(data: bytes) -> str:
    """Text of the file. What a damaged byte left of it is no UTF-8, and still to be told and not to stop a list."""
    return data.decode("utf-8", "backslashreplace")


def file_identity(path: str | Path) -> tuple[int, int] | None:
    """Which file a path names just now: it changes when the file is removed or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class StoreFile:
    """The file of a store, which has to stay the one that was opened: nothing is begun anew in its place.

    Known from the first time that it was there. While a connection is open no other file can have its identity.
    """

    __slots__ = ("_known", "_url", "name")

    def __init__(self, path: Path, url: str) -> None:
        self.name = str(path)
        self._url = url
        self._known: tuple[int, int] | None = None

    def identity(self) -> tuple[int, int] | None:
        """Which file the path names; None if there is none yet.

        Raises:
            StoreUnavailable: it is not the one that was opened. Costs a microsecond or two.
        """
        found = file_identity(self.name)
        if found == self._known:
            return found
        if self._known is not None:
            raise StoreUnavailable(f"store {self._url}: {self._gone(found)}")
        self._known = found
        return found

    def _gone(self, found: object) -> str:
        if found is None:
            return (
                f"the file {self.name} was removed or renamed while it was open; put it back to continue, "
                "or open the store again to start an empty one"
            )
        return (
            f"{self.name} is no longer the file that was opened; put that file back to continue, "
            "or open the store again to use this one"
        )


def patiently(action: Callable[[], T], seconds: float = BUSY_SECONDS) -> T:
    """Do something that another process's lock may stand in the way of; try for `seconds`.

    The waits are random, so that two processes which want the same lock do not keep step.
    """
    deadline = time.monotonic() + seconds
    longest = 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.0, longest))
        longest = min(longest * 2, 0.05)


# ------------------------------------------------------------------------------------ errors

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_SHARED_MEMORY = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
_WHOLE_FILE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOTADB,
}  # fmt: skip

_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then continue: nothing written is lost",
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only; make both writable, or name another store",
    sqlite3.SQLITE_PERM: "this user may not use the file; change its permissions, or name another store",
    sqlite3.SQLITE_BUSY: "another process has locked it for too long; end that process, then continue",
    sqlite3.SQLITE_LOCKED: "another process has locked it for too long; end that process, then continue",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; make its directory, and make both readable and writable",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check the disk and its free space, then continue",
}
_BROKEN = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it, or save what can be read with `sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; name another file",
}


def busy_error() -> sqlite3.OperationalError:
    """What SQLite raises for a lock, for where it only says so."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def _code(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it is detail
    return code


def whole_file(error: BaseException) -> bool:
    """True when an error is about the file, so that every other write would meet it too."""
    return isinstance(error, OSError | UnicodeDecodeError | StoreUnavailable) or _code(error) in _WHOLE_FILE


def store_error(error: Exception, url: str) -> Exception:
    """What an error of SQLite or of the file system means to a user; other errors are given back as they are."""
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code in _UNAVAILABLE:
            return StoreUnavailable(f"store {url}: {_UNAVAILABLE[code]} ({error})")
        if code in _BROKEN:
            return StoreError(f"store {url}: {_BROKEN[code]} ({error})")
        said = StoreError(f"store {url}: {error}")
        said.__cause__ = error
        return said
    if isinstance(error, UnicodeEncodeError):
        return InvalidValue("a run id, label or other text contains an unpaired surrogate, which cannot be stored")
    if isinstance(error, UnicodeDecodeError):  # what SQLite says of a damaged schema quotes it
        return StoreError(f"store {url}: {_BROKEN[sqlite3.SQLITE_CORRUPT]} ({error})")
    if isinstance(error, OSError):
        return StoreUnavailable(
            f"store {url}: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}; "
            f"name a file in a directory where this user may write"
        )
    return error

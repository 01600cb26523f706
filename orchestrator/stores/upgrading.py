"""Upgrading a store whose tables an earlier version of this library wrote, at a time that its user chooses.

Opening a database, and the first write to a file, do the same by themselves: in one transaction, without a backup, and
without asking whether other processes work on the store.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import StoreError, StoreUnavailable
from orchestrator.stores import check_psycopg
from orchestrator.stores.owner import is_dead
from orchestrator.stores.places import beside, file_of, is_database

if TYPE_CHECKING:
    import psycopg

    from orchestrator.stores.rows import Holder

_PAGES = 2000
"""Pages of a file that are copied between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a store: their version, and what an upgrade would do."""

    version: int
    """Their schema version; 0: there are none yet."""
    newest: int
    """The schema version of this library."""
    steps: tuple[str, ...]
    """The beginning of each statement that an upgrade executes; empty: there is nothing to upgrade."""
    workers: tuple[str, ...]
    """Processes that may be working on the store."""


def tables_of(url: str) -> Tables:
    """Return the version of a store's tables. Nothing is changed.

    Args:
        url: the URL of an existing file or database.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreError: it is not a store, or cannot be read.
    """
    if is_database(url):
        from orchestrator.stores.postgres import leases as database_leases
        from orchestrator.stores.postgres import schema as database_schema

        with _database(url) as connection:
            version = database_schema.version_of(connection)
            database_schema.check_version(version, url)
            holders = database_leases.holders(connection, 0) if version else []
        return _tables(version, database_schema.VERSION, database_schema.STEPS, holders)
    from orchestrator.stores.sqlite import files, leases, schema

    with _file(url, lambda path: files.open_to_read(path, url)[0]) as file:
        version = schema.version_of(file)
        return _tables(version, schema.VERSION, schema.STEPS, leases.holders(file, leases.StoreClock(), 0))


def _tables(version: int, newest: int, steps: dict[int, str], holders: list[Holder]) -> Tables:
    heads = tuple(steps[one].strip().partition("(")[0].strip() for one in range(version or newest, newest))
    alive = (one.owner for one in holders if one.left > 0 and not is_dead(one.owner))
    return Tables(version, newest, heads, tuple(f"process {one.get('pid')} on {one.get('host')}" for one in alive))


def upgrade(url: str) -> None:
    """Bring the tables of a store to the version of this library, in one transaction.

    A process that is killed in the middle leaves the tables as they were, or as they are afterwards.

    Args:
        url: the URL of an existing file or database.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreError: it is not a store, or cannot be written. Nothing was changed.
    """
    if is_database(url):
        from orchestrator.stores.postgres.schema import make_tables

        with _database(url) as connection:
            make_tables(connection, url)
        return
    from orchestrator.stores.sqlite.files import open_to_write

    with _file(url, lambda path: open_to_write(path, url)):
        pass


def back_up(url: str, to: Path, progress: Callable[[int, int], object] | None = None) -> None:
    """Copy the file of a store as it is at one moment, while other processes may write to it, and check the copy.

    Args:
        url: the URL of a file.
        to: the file to create. Until the copy is whole and on the disk, it has another name, with the ending `.part`.
        progress: called with the number of copied pages and the number of all pages.

    Raises:
        FileExistsError: there is such a file.
        StoreUnavailable: the disk of the backup is full, or failed.
        StoreError: the store cannot be read, or is damaged, or `to` is the name of a file that SQLite keeps beside it.
    """
    from orchestrator.stores.sqlite.files import open_to_read

    if os.path.lexists(to):
        raise FileExistsError(f"{to}: there is such a file; name another one")
    if to.resolve() in beside(Path(file_of(url) or "").resolve()):
        raise StoreError(f"store {url}: SQLite writes and deletes {to} itself; name another file for the backup")
    opened, name = tempfile.mkstemp(prefix=f"{to.name}.", suffix=".part", dir=to.absolute().parent)
    os.close(opened)
    part = Path(name)
    try:
        with (
            _file(url, lambda path: open_to_read(path, url)[0]) as source,
            closing(sqlite3.connect(part)) as copy,
        ):
            source.execute("BEGIN")  # one moment: without it, each write of another process restarts the copy
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            with _place_named(to):
                source.backup(
                    copy, pages=_PAGES, progress=lambda _, left, pages: progress and progress(pages - left, pages)
                )
        with closing(sqlite3.connect(f"{part.absolute().as_uri()}?immutable=1", uri=True)) as copy:
            (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreError(f"store {url}: the file is damaged, so its backup would be, too ({found})")
        with _place_named(to):
            _sync(part)
            _publish(part, to)
            _sync(to.absolute().parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _place_named(to: Path) -> Iterator[None]:
    """Name a backup in the error about its disk: the store may be on another one.

    Raises:
        StoreUnavailable: the disk is full, or failed.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE) or getattr(error, "errno", 0) == errno.ENOSPC:
            raise StoreUnavailable(
                f"backup {to}: {error}; free some space there, or name a file on another disk"
            ) from error
        raise


def _publish(part: Path, to: Path) -> None:
    """Give a backup its name, unless another process has made a file of that name meanwhile.

    Raises:
        FileExistsError: there is such a file.
    """
    try:
        os.link(part, to)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        part.rename(to)  # a file system without hard links


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _file(url: str, connect: Callable[[Path], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    """Open the file of a store; errors are those of stores."""
    from orchestrator.stores.sqlite.files import check_filesystem, check_log, store_error

    path = Path(file_of(url) or "").absolute()
    check_filesystem(path, url)
    try:
        check_log(path, url)
        with closing(connect(path)) as connection:
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise store_error(error, url) from error


@contextmanager
def _database(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Connect to a database whatever its tables; errors are those of stores."""
    check_psycopg()
    import psycopg

    from orchestrator.stores.postgres.connections import address_of, connect_bare, store_error

    address = address_of(url)
    try:
        with closing(connect_bare(address)) as connection:
            yield connection
    except psycopg.Error as error:
        raise (store_error(error, address) or error) from error

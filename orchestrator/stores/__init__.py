"""Stores of runs: in memory, in an SQLite file, or in a PostgreSQL database.

    store = open_store("sqlite:///runs.db")     # in the current directory
    store = open_store("sqlite:////var/runs.db")
    store = open_store("memory://")
    store = open_store("postgresql://me@db.example.org/runs")   # extra `postgres`
    store = open_store("sqlite:///runs.db", codec=AESGCMCodec({"2026": "env:RUNS_KEY"}))     # values are encrypted
    store = open_store("sqlite:///runs.db", archive="file:///var/archive")      # see docs/archive.md

`Store` is the protocol; `orchestrator.testing.check_store` tests an implementation of your own.
"""

from __future__ import annotations

from os import environ
from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names
from orchestrator.errors import StoreError
from orchestrator.stores.places import file_of, is_database

if TYPE_CHECKING:
    from orchestrator.stores.archive import Archive
    from orchestrator.stores.base import (
        Finding,
        Holder,
        Lease,
        Message,
        Note,
        Page,
        Parent,
        RunInfo,
        RunSummary,
        Schedule,
        StatsRow,
        Store,
    )
    from orchestrator.stores.codec import Codec
    from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery, StatsQuery

_HOMES = {
    "orchestrator.stores.base": (
        "Finding",
        "Holder",
        "Lease",
        "Message",
        "Note",
        "Page",
        "Parent",
        "RunInfo",
        "RunSummary",
        "Schedule",
        "StatsRow",
        "Store",
    ),
    "orchestrator.stores.archive": ("Archive",),
    "orchestrator.stores.codec": ("Codec",),
    "orchestrator.stores.requests": (
        "Append",
        "ClaimRequest",
        "NewRun",
        "QuestionQuery",
        "RunQuery",
        "StatsQuery",
    ),
}

__all__ = [
    "Append",
    "Archive",
    "ClaimRequest",
    "Codec",
    "Finding",
    "Holder",
    "Lease",
    "Message",
    "NewRun",
    "Note",
    "Page",
    "Parent",
    "QuestionQuery",
    "RunInfo",
    "RunQuery",
    "RunSummary",
    "Schedule",
    "StatsQuery",
    "StatsRow",
    "Store",
    "open_store",
    "with_archive",
    "with_codec",
]


def open_store(url: str, *, codec: Codec | None = None, archive: Archive | str | None = None) -> Store:
    """Open a store by its URL. Every call opens a separate store: `memory://` twice shares nothing.

    An SQLite file and its directory are created at the first write. The tables of a PostgreSQL database are created
    when it is opened; its URL takes the parameters of libpq, and `patience`, `prepare` and `listen` (docs/stores.md).

    Args:
        url: `memory://`, or `sqlite:///` and the path of a file, such as `sqlite:///runs.db`, or the URL of a database,
            such as `postgresql://me@db.example.org/runs`.
        codec: encrypts the values that are written, and decrypts those that are read; None: nothing is encrypted.
        archive: the archive of the records of archived runs, or its URL (see `open_archive`); None: the one that the
            environment variable `ORCHESTRATOR_ARCHIVE` names, if it is set.

    Returns:
        The store. Close it after use.

    Raises:
        StoreError: the URL has an unknown form, or the file is not a store.
        StoreTooNew: a newer version of this library wrote the file.
        StoreUnavailable: the file cannot be opened, or the server cannot be reached.
        StoreUnsupported: the file is on a network file system; see docs/promises.md.
    """
    chosen = archive if archive is not None else environ.get("ORCHESTRATOR_ARCHIVE") or None
    return with_codec(with_archive(_opened(url), chosen), codec)


def _opened(url: str) -> Store:
    if is_database(url):
        return _open_postgres(url)
    file = file_of(url)
    if file is None:
        from orchestrator.stores.memory import MemoryStore

        return MemoryStore()
    from orchestrator.stores.sqlite import SQLiteStore

    return SQLiteStore(file, url=url)


def _open_postgres(url: str) -> Store:
    check_psycopg()
    from orchestrator.stores.postgres import PostgresStore

    return PostgresStore(url)


def check_psycopg() -> None:
    """Check that the extra `postgres` is installed.

    Raises:
        StoreError: it is not.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        from orchestrator.errors import install_command

        raise StoreError(
            f"a store in PostgreSQL needs psycopg ({error}); install it with `{install_command('postgres')}`"
        ) from error


def with_archive(store: Store, archive: Archive | str | None) -> Store:
    """Wrap a store in one that reads archived runs from an archive.

    Args:
        store: any store without a codec. Closing the returned store closes it.
        archive: see `open_archive`; None: the store is returned unchanged.

    Raises:
        InvalidValue: the store has a codec, or an archive, or cannot be archived.
        StoreError: the URL of the archive cannot be used.
    """
    if archive is None:
        return store
    from orchestrator.stores.archive import open_archive
    from orchestrator.stores.archive.store import ArchivedStore

    return ArchivedStore(store, open_archive(archive) if isinstance(archive, str) else archive)


def with_codec(store: Store, codec: Codec | None) -> Store:
    """Wrap a store in one that encrypts values before they are stored.

    Args:
        store: any store. Closing the returned store closes it.
        codec: encrypts and decrypts; None: the store is returned unchanged.

    Raises:
        InvalidValue: the store has a codec already, or the codec's key id cannot be stored.
    """
    if codec is None:
        return store
    from orchestrator.stores.coded import CodedStore

    return CodedStore(store, codec)


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

"""Where runs are kept: in memory, in an SQLite file, or in a PostgreSQL database.

    store = open_store("sqlite:///runs.db")     # beside the current directory's files
    store = open_store("sqlite:////var/runs.db")
    store = open_store("memory://")
    store = open_store("postgresql://me@db.example.org/runs")   # extra `postgres`

`Store` is the protocol; `orchestrator.testing.check_store` tests an implementation of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import StoreError
from orchestrator.late import late

if TYPE_CHECKING:
    from orchestrator.stores.base import (
        Finding,
        Holder,
        Lease,
        Message,
        Page,
        Parent,
        RunInfo,
        RunSummary,
        Schedule,
        StatsRow,
        Store,
    )

_HOMES = {
    "orchestrator.stores.base": (
        "Finding", "Holder", "Lease", "Message", "Page", "Parent", "RunInfo", "RunSummary", "Schedule", "StatsRow",
        "Store",
    ),
}  # fmt: skip

__all__ = [
    "Finding", "Holder", "Lease", "Message", "Page", "Parent", "RunInfo", "RunSummary", "Schedule", "StatsRow", "Store",
    "open_store",
]  # fmt: skip

_FORMS = (
    "`memory://`, `sqlite:///runs.db` (relative), `sqlite:////home/me/runs.db` (absolute) or"
    " `postgresql://USER@HOST:5432/DATABASE`"
)
_POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str) -> Store:
    """Open a store by its URL. Every call opens a separate store: `memory://` twice shares nothing.

    A SQLite file and its directory are created at the first write. The tables of a PostgreSQL database are created
    when it is opened; its URL takes the parameters of libpq, and `patience`, `prepare` and `listen` (docs/stores.md).

    Args:
        url: `memory://`, or `sqlite:///` and the path of a file, such as `sqlite:///runs.db`, or the URL of a database,
            such as `postgresql://me@db.example.org/runs`.

    Returns:
        The store. Close it after use.

    Raises:
        StoreError: the URL has an unknown form, or the file is not a store.
        StoreTooNew: a newer version of this library wrote the file.
        StoreUnavailable: the file cannot be opened, or the server cannot be reached.
        StoreUnsupported: the file is on a network file system; see docs/promises.md.
    """
    if url.startswith(_POSTGRES):
        return _open_postgres(url)
    file = file_of(url)
    if file is None:
        from orchestrator.stores.memory import MemoryStore

        return MemoryStore()
    from orchestrator.stores.sqlite import SQLiteStore

    return SQLiteStore(file, url=url)


def _open_postgres(url: str) -> Store:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StoreError(
            f"a store in PostgreSQL needs psycopg ({error}); install it with "
            "`pip install 'graph-orchestrator[postgres]'`"
        ) from error
    from orchestrator.stores.postgres import PostgresStore

    return PostgresStore(url)


def file_of(url: str) -> str | None:
    """The file that a store's URL names; None: the store is in memory, or in a database.

    Raises:
        StoreError: the URL is none of the known forms.
    """
    if url == "memory://" or url.startswith(_POSTGRES):
        return None
    if url.startswith("sqlite://"):
        path = url.removeprefix("sqlite://")
        if not path.startswith("/") or path == "/":
            raise StoreError(f"store URL {url!r} names no file; write {_FORMS}")
        if path == "/:memory:":
            raise StoreError(f"store URL {url!r} does not name a place; write `memory://` for a store in memory")
        return path[1:]
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise StoreError(f"store URL {url!r} has no scheme; write `sqlite:///{url}` for a file")
    raise StoreError(f"store URL {url!r}: {scheme!r} is not among the schemes of this version; write {_FORMS}")


if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = late(__name__, _HOMES)

"""How statements are asked whose cost must not depend on what the planner of PostgreSQL guesses.

It chooses by statistics, which are old when many runs have just been added, and are missing in a new database. So a
list leaves it little choice: it may neither sort nor read whole tables, and asks some queries once for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import psycopg

    from orchestrator.stores.postgres.connections import Connection

    Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_hashjoin", "enable_mergejoin", "jit")
_WALKING = "; ".join(
    ["BEGIN READ ONLY", *(f"SET LOCAL {name} = off" for name in _OFF), "SET LOCAL max_parallel_workers_per_gather = 0"]
)
_LOOKING_UP = "SET LOCAL enable_bitmapscan = on"


@contextmanager
def walking(connection: Connection) -> Iterator[None]:
    """Read in one transaction, along indexes."""
    with _transaction(connection, _WALKING):
        yield


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Read in one transaction, of one moment."""
    with _transaction(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
        yield


@contextmanager
def _transaction(connection: Connection, begin: str) -> Iterator[None]:
    connection.execute(begin.encode(), prepare=False)
    try:
        yield
    finally:
        if not connection.closed:
            connection.rollback()


def looking_up(connection: Connection) -> None:
    """From now on, let a transaction use indexes of words: they give all that they find at once."""
    connection.execute(_LOOKING_UP.encode(), prepare=False)


def execute(connection: Connection, query: str, values: Sequence[object] = ()) -> Cursor:
    """Run a statement that is put together of parts of this package; what users give is in the values alone."""
    return connection.execute(query.encode(), values)


def streamed(connection: Connection, query: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, of which some are held at once. The connection must be inside a transaction."""
    with connection.cursor("rows") as cursor:
        cursor.itersize = _FETCHED
        cursor.execute(query.encode(), values)
        yield from cursor


_FETCHED = 2000


def exists(query: str) -> str:
    """A condition: whether a query has a row. It is asked once for each row, and never turned into a join."""
    return f"EXISTS ({query} OFFSET 0)"

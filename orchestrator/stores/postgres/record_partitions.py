"""The monthly partitions of `records`: the records of runs of one month are dropped as a file.

The number of a run determines its month: the numbers of a month start at `month << BITS`, where months are counted
from January 1970. Numbers come only from the sequence of `runs.id`. When a month starts, by the clock of the database,
its partition is created, and only then the sequence is moved to the first number of the month. Until then, new runs
belong to the month before, so no append ever depends on it.

A partition is attached under a lock for which neither reads nor writes wait. It is dropped if it is empty and no new
run can get a number in it; when a run of it is restored later, it is created again: see `mending`. Users of `records`
need no rights on its partitions, and only the owner has any: so no user gets around the policies of `records`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import StoreUnavailable
from orchestrator.stores.postgres.schema import LOCK as SCHEMA_LOCK
from orchestrator.stores.postgres.schema import withdraw
from orchestrator.stores.postgres.statements import walking

if TYPE_CHECKING:
    import psycopg

    from orchestrator.stores.postgres.statements import Connection


T = TypeVar("T")
log = logging.getLogger("orchestrator")

BITS = 40
"""Bits of the numbers of a month: enough for a million runs a day for 3,000 years. All are exact as floats, too."""

THIS_MONTH = (
    "((extract(year FROM clock_timestamp() AT TIME ZONE 'UTC') - 1970) * 12"
    " + extract(month FROM clock_timestamp() AT TIME ZONE 'UTC') - 1)::bigint"
)
"""The month by the clock of the database."""

EARLIER = 0
"""The month of all runs whose numbers are older than months."""

LOCK = SCHEMA_LOCK + 2
"""The advisory lock for creating a partition or moving the sequence."""

_WAIT_TO_MAKE = 2000
_WAIT_TO_BEGIN = 200
_WAIT_TO_DROP = 200
"""Milliseconds to wait for a lock. Other transactions queue up behind one that waits to drop a partition."""

_TRIES = 10


@dataclass(frozen=True, slots=True)
class _Records:
    """The table in the database."""

    month: int
    """The current month."""
    numbers: str
    """Name of the sequence of runs, as SQL."""
    schema: str
    """Schema where partitions are created, as SQL."""
    owner: str
    """Owner of the table, as SQL."""
    is_ours: bool
    """True if this user may create and drop partitions."""
    has_policies: bool
    """True if policies restrict the rows that a user sees."""


def month_of(number: int) -> int:
    """Return the month of a run's number."""
    return number >> BITS


def first_number(month: int) -> int:
    """Return the first number of a month."""
    return month << BITS


def name_of(month: int) -> str:
    """Return the name of a month's partition."""
    return "records_earlier" if month == EARLIER else f"records_{1970 + month // 12:04}_{month % 12 + 1:02}"


def made(connection: Connection) -> list[int]:
    """Return the months that have a partition, earliest first, except partitions created by other programs."""
    return sorted(month for month in map(_month_named, _partitions(connection)) if month is not None)


# ------------------------------------------------------------------------------------------------------------- to make


def begin_month(connection: Connection) -> None:
    """Assign new runs to the current month, if they are not yet, and if this user may change tables.

    The connection must not be inside a transaction.

    Raises:
        psycopg.Error: this is not possible now; new runs still belong to the month before.
    """
    records = _records(connection)
    if not records.is_ours or _open_month(connection, records) >= records.month:
        return
    make(connection, records.month, wait=_WAIT_TO_BEGIN)
    first = first_number(records.month)
    with _changing(connection, _WAIT_TO_BEGIN):  # under the lock, so that the sequence never goes back
        connection.execute(
            f"SELECT setval('{_doubled(records.numbers)}', {first}, FALSE) FROM {records.numbers}"
            f" WHERE last_value < {first}".encode()
        )


def make(connection: Connection, month: int, *, wait: int = _WAIT_TO_MAKE) -> None:
    """Create the partition of a month, if missing. The connection must not be inside a transaction.

    Raises:
        psycopg.Error: it cannot be created now.
    """
    with _changing(connection, wait):
        there = _partitions(connection)
        if name_of(month) in there:
            return
        records = _records(connection)
        table, end = f"{records.schema}.{name_of(month)}", first_number(month + 1)
        least = "MINVALUE" if month == EARLIER else str(first_number(month))
        # settings of a partition do not apply to those created later
        options = there[max(there, key=lambda name: _month_named(name) or EARLIER)] if there else ""
        for statement in (
            f"CREATE TABLE {table} (LIKE {records.schema}.records INCLUDING ALL){options}",
            f"ALTER TABLE {table} OWNER TO {records.owner}",
            *((f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",) if records.has_policies else ()),
            f"ALTER TABLE {records.schema}.records ATTACH PARTITION {table} FOR VALUES FROM ({least}) TO ({end})",
        ):
            connection.execute(statement.encode(), prepare=False)
        withdraw(connection, table)


def mending(connection: Connection, work: Callable[[], T]) -> T:
    """Repeat work for which a partition was missing: that of a run which is restored, or had no records yet.

    Raises:
        StoreUnavailable: this user may not create the partition.
    """
    from psycopg.errors import CheckViolation, InsufficientPrivilege

    for _ in range(_TRIES):
        try:
            return work()
        except CheckViolation as error:
            missing = _missing(error)
            if missing is None:
                raise
        try:
            make(connection, missing)
        except InsufficientPrivilege as error:
            raise StoreUnavailable(
                f"the month of this run no longer has a partition ({name_of(missing)}), and only the tables' owner can"
                " make it: have the owner restore or continue a run of that month once, for example by"
                f" `orchestrator restore`; this user can do so then ({error.diag.message_primary})"
            ) from error
    return work()


def _missing(error: psycopg.Error) -> int | None:
    """Return the month whose partition was missing; None if the error is another one."""
    found = re.search(r"\((\d+)\)", error.diag.message_detail or "")
    if error.diag.constraint_name or error.diag.table_name != "records" or found is None:
        return None
    return month_of(int(found[1]))


# ------------------------------------------------------------------------------------------------------------- to drop


def drop_empty(connection: Connection) -> bool:
    """Drop the empty partitions of past months; return False if one could not be locked and is left for later.

    A partition that cannot be dropped for another reason stays, for example if a user's view depends on it. The
    connection must not be inside a transaction.
    """
    records = _records(connection)
    if not records.is_ours:
        return True
    last = _open_month(connection, records)
    # stop at the first one that cannot be locked: other transactions wait each time
    return all(_drop(connection, records, month) for month in _empty(connection, last))


def _empty(connection: Connection, before: int) -> list[int]:
    """Return earlier months without records; takes no locks that matter, so it may take a while."""
    over = [month for month in made(connection) if month < before]
    if not over:
        return []
    last = [  # the oldest runs are archived first, so remaining ones are found at the end
        f"({month}, (SELECT run FROM records WHERE run >= {first_number(month)} AND run < {first_number(month + 1)}"
        " ORDER BY run DESC LIMIT 1))"
        for month in over
    ]
    with walking(connection):
        found: Any = connection.execute(
            f"SELECT month FROM (VALUES {', '.join(last)}) AS known (month, run) WHERE run IS NULL ORDER BY 1".encode()
        ).fetchall()
    return [month for (month,) in found]


def _drop(connection: Connection, records: _Records, month: int) -> bool:
    """Drop a partition if it is empty and can be dropped; return False if it cannot be locked now.

    A writer holds locks on it and on the whole table until the write is committed. So a partition that is empty under
    the first of these locks is empty under both.
    """
    import psycopg
    from psycopg.errors import DeadlockDetected, LockNotAvailable, UndefinedTable

    table = f"{records.schema}.{name_of(month)}"
    connection.execute(_begin(_WAIT_TO_DROP), prepare=False)
    try:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode(), prepare=False)
        connection.execute(  # rows hidden by policies are an error, not an empty table
            b"SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL row_security = off", prepare=False
        )
        if connection.execute(f"SELECT 1 FROM {table} ORDER BY run DESC LIMIT 1".encode()).fetchone() is None:
            # in one message: if this client is stopped, no session waits for it
            connection.execute(f"DROP TABLE {table}; COMMIT".encode(), prepare=False)
    except (DeadlockDetected, LockNotAvailable):
        return False
    except psycopg.Error as error:
        if connection.closed:
            raise
        if not isinstance(error, UndefinedTable):  # else another process has dropped it
            log.warning("the empty table %s cannot be dropped: %s", table, error.diag.message_primary)
    finally:
        if not connection.closed and connection.info.transaction_status:
            connection.rollback()
    return True


# --------------------------------------------------------------------------------------------------------- the catalog


def _records(connection: Connection) -> _Records:
    row: Any = connection.execute(
        f"SELECT {THIS_MONTH}, pg_get_serial_sequence('runs', 'id'), quote_ident(nspname),"
        " quote_ident(pg_get_userbyid(relowner)), pg_has_role(relowner, 'USAGE'), relrowsecurity FROM pg_class"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = 'records'::regclass".encode()
    ).fetchone()
    return _Records(*row)


def _open_month(connection: Connection, records: _Records) -> int:
    """Return the month of new runs."""
    row: Any = connection.execute(f"SELECT last_value FROM {records.numbers}".encode()).fetchone()
    return month_of(int(row[0]))


def _partitions(connection: Connection) -> dict[str, str]:
    """Return the partitions by name, each with the SQL to create another one with its storage and tablespace."""
    rows: Any = connection.execute(
        "SELECT one.relname, (SELECT ' WITH (' || string_agg(name, ', ') || ')' FROM (SELECT quote_ident(option_name)"
        " || '=' || quote_literal(option_value) FROM pg_options_to_table(one.reloptions) UNION ALL SELECT 'toast.'"
        " || quote_ident(option_name) || '=' || quote_literal(option_value) FROM pg_options_to_table(toast.reloptions)"
        " ) AS option (name)), ' TABLESPACE ' || quote_ident(spcname) FROM pg_inherits"
        " JOIN pg_class AS one ON one.oid = inhrelid LEFT JOIN pg_class AS toast ON toast.oid = one.reltoastrelid"
        " LEFT JOIN pg_tablespace ON pg_tablespace.oid = one.reltablespace WHERE inhparent = 'records'::regclass"
    ).fetchall()
    return {name: (options or "") + (tablespace or "") for name, options, tablespace in rows}


def _month_named(name: str) -> int | None:
    if name == name_of(EARLIER):
        return EARLIER
    found = re.fullmatch(r"records_(\d{4})_(\d{2})", name)
    return None if found is None else (int(found[1]) - 1970) * 12 + int(found[2]) - 1


def _doubled(name: str) -> str:
    return name.replace("'", "''")


def _begin(wait: int) -> bytes:
    return f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = 5000; SET LOCAL lock_timeout = {wait}".encode()


@contextmanager
def _changing(connection: Connection, wait: int) -> Iterator[None]:
    """Run the body in a transaction; only one process at a time creates partitions."""
    connection.execute(_begin(wait), prepare=False)
    try:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        yield
        connection.execute("COMMIT")
    finally:
        if not connection.closed and connection.info.transaction_status:
            connection.rollback()

"""Giving the space of deleted runs back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from orchestrator.stores.postgres import record_partitions

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection

log = logging.getLogger("orchestrator")

TABLES = (
    "runs", "labels", "records", "snapshots", "graphs", "holders", "inbox", "summaries", "run_totals", "run_parts",
    "failed_tools", "questions", "unlisted", "schedules", "items", "item_writes",
    "archive_objects", "payloads", "payload_uses",
)  # fmt: skip


def compact(connection: Connection) -> int:
    """See `Store.compact`. The server gives back the records of whole months, and what is free at the ends of tables.

    It uses the rest again. Writes of others go on meanwhile. The connection must not be inside a transaction. What the
    server refuses is left for the next time: the runs are deleted or archived already, so nothing has failed.
    """
    import psycopg

    with suppress(psycopg.Error):
        record_partitions.begin_month(connection)
    before = _size(connection)
    all_dropped = _drop_empty(connection)
    for table in TABLES:
        # Records are found by their key alone, so nothing need be known about them; and there are very many.
        what = "VACUUM" if table == "records" else "VACUUM (ANALYZE)"
        with _left_for_later(connection):
            connection.execute(f"{what} {table}".encode(), prepare=False)
    if not all_dropped:
        _drop_empty(connection)
    return max(0, before - _size(connection))


def _drop_empty(connection: Connection) -> bool:
    with _left_for_later(connection):
        return record_partitions.drop_empty(connection)
    return True


@contextmanager
def _left_for_later(connection: Connection) -> Iterator[None]:
    """Pass over what the server refuses. A lost connection is an error: the server may do it when it is asked again."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        if connection.closed:
            raise
        log.warning("space is given back later, the server refuses it now: %s", error.diag.message_primary)


def _size(connection: Connection) -> int:
    """Bytes of the tables, their partitions and their indexes."""
    row = connection.execute(
        "SELECT sum(pg_table_size(one) + pg_indexes_size(one)) FROM (SELECT name::regclass FROM unnest(%s::text[])"
        " AS name UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'records'::regclass) AS known (one)",
        ([*TABLES],),
    ).fetchone()
    return 0 if row is None else int(row[0])

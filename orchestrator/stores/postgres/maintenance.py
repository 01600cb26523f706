"""Giving the space of deleted runs back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.stores.postgres import months

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection

TABLES = (
    "runs", "labels", "records", "snapshots", "graphs", "holders", "inbox", "summaries", "run_totals", "run_parts",
    "failed_tools", "questions", "unlisted", "schedules", "items", "item_writes",
    "archive_objects", "payloads", "payload_uses",
)  # fmt: skip


def compact(connection: Connection) -> int:
    """See `Store.compact`. The server gives back the records of whole months, and what is free at the ends of tables.

    It uses the rest again. Writes of others go on meanwhile. The connection must not be inside a transaction.
    """
    import psycopg

    with suppress(psycopg.Error):
        months.begin_month(connection)
    before = _size(connection)
    all_dropped = months.drop_empty(connection)
    for table in TABLES:
        # Records are found by their key alone, so nothing need be known about them; and there are very many.
        what = "VACUUM" if table == "records" else "VACUUM (ANALYZE)"
        connection.execute(f"{what} {table}".encode(), prepare=False)
    if not all_dropped:
        months.drop_empty(connection)
    return max(0, before - _size(connection))


def _size(connection: Connection) -> int:
    """Bytes of the tables, their partitions and their indexes."""
    row = connection.execute(
        "SELECT sum(pg_table_size(one) + pg_indexes_size(one)) FROM (SELECT name::regclass FROM unnest(%s::text[])"
        " AS name UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'records'::regclass) AS known (one)",
        ([*TABLES],),
    ).fetchone()
    return 0 if row is None else int(row[0])

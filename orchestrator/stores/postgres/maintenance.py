"""Giving the space of deleted runs back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection

TABLES = (
    "runs", "labels", "records", "snapshots", "graphs", "holders", "inbox", "summaries", "run_totals", "run_parts",
    "failed_tools", "questions", "unlisted", "schedules", "items", "item_writes",
    "archive_objects",
)  # fmt: skip


def compact(connection: Connection) -> int:
    """See `Store.compact`. The server gives back what is free at the ends of tables, and uses the rest again.

    Writes of others go on meanwhile. The connection must not be inside a transaction.
    """
    before = _size(connection)
    for table in TABLES:
        connection.execute(f"VACUUM (ANALYZE) {table}".encode(), prepare=False)
    return max(0, before - _size(connection))


def _size(connection: Connection) -> int:
    """Bytes of the tables and their indexes."""
    row = connection.execute(
        "SELECT sum(pg_table_size(name::regclass) + pg_indexes_size(name::regclass)) FROM unnest(%s::text[]) AS name",
        ([*TABLES],),
    ).fetchone()
    return 0 if row is None else int(row[0])

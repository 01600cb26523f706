"""From the tables of version 3 to those of version 4: payloads beside records (see `payloads`).

What a released migration does is never changed, so it uses nothing of this package that may change.

Who may change records must be able to change what goes with them, and who may not see them must not see payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.stores.postgres.rights import changes_of, policies_of

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = (
    # long strings of records, once each, by SHA-256, and which runs have records with them
    "CREATE TABLE payloads (digest bytea PRIMARY KEY, data bytea NOT NULL)",
    "CREATE TABLE payload_uses (digest bytea REFERENCES payloads, run bigint, PRIMARY KEY (digest, run))",
    "CREATE INDEX payload_uses_by_run ON payload_uses (run)",
)
_JOURNAL = """
SELECT runs.run_id, records.seq, convert_from(
    CASE WHEN substring(records.data FROM 1 FOR 1) = '\\x7e'::bytea
    THEN substring(records.data FROM position('\\x0a'::bytea IN records.data) + 1) ELSE records.data END, 'UTF8'
) AS record
FROM records JOIN runs ON runs.id = records.run
"""


def add(connection: Connection[tuple[Any, ...]]) -> None:
    """Add the tables, and have the view `journal` show skeletons. The connection is inside a transaction."""
    row: Any = connection.execute(
        "SELECT coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '') FROM pg_class"
        " WHERE oid = 'journal'::regclass"
    ).fetchone()
    for statement in (*_TABLES, f"CREATE OR REPLACE VIEW journal{row[0]} AS {_JOURNAL}"):
        connection.execute(statement.encode(), prepare=False)
    for statement in _rights(connection):
        connection.execute(statement.encode(), prepare=False)


def _rights(connection: Connection[tuple[Any, ...]]) -> list[str]:
    row: Any = connection.execute(
        "SELECT quote_ident(pg_get_userbyid(records.relowner)), pg_has_role(objects.relowner, 'USAGE')"
        " FROM pg_class AS records, pg_class AS objects"
        " WHERE records.oid = 'records'::regclass AND objects.oid = 'archive_objects'::regclass"
    ).fetchone()
    owner, may_grant = row
    payloads = ("payloads", "payload_uses")
    tables = (*payloads, "archive_objects") if may_grant else payloads
    return [
        *(f"ALTER TABLE {table} OWNER TO {owner}" for table in tables),
        *(right for table in tables for right in changes_of(connection, "records", table)),
        *(policy for table in payloads for policy in policies_of(connection, "records", table, alike=False)),
    ]

"""From the tables of version 2 to those of version 3: `records` has a partition for each month.

What a released migration does is never changed, so it uses nothing of this package that may change.

The table becomes the partition of all runs that are there, and none of its rows is touched. The server must know that
they all fit into it. So a constraint says so, before: it is checked while others write, at the speed at which the table
is read. What is left takes milliseconds, under a lock of the whole table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

_BOUND = 1 << 40
"""Numbers of runs that have no month are below it."""
_CHECK = "records_before_months"


def prepare(connection: Connection[tuple[Any, ...]], lock: int) -> None:
    """Have the server know that all rows fit into the first partition. The connection is in no transaction.

    It may be ended at any point, and begun again. The database remains one of version 2.
    """
    from psycopg.errors import UndefinedObject, WrongObjectType

    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        connection.execute(b"SET LOCAL lock_timeout = 2000", prepare=False)
        row: Any = connection.execute(
            "SELECT relkind, EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = pg_class.oid AND conname = %s)"
            " FROM pg_class WHERE oid = 'records'::regclass",
            (_CHECK,),
        ).fetchone()
        if row[0] != "r":
            return  # another process has done all of it
        if not row[1]:
            connection.execute(
                f"ALTER TABLE records ADD CONSTRAINT {_CHECK} CHECK (run < {_BOUND}) NOT VALID".encode(), prepare=False
            )
    with suppress(UndefinedObject, WrongObjectType):  # another process has done all of it meanwhile
        connection.execute(f"ALTER TABLE records VALIDATE CONSTRAINT {_CHECK}".encode(), prepare=False)


def divide(connection: Connection[tuple[Any, ...]]) -> None:
    """Turn the table into the first partition of a new one. The connection is inside a transaction."""
    connection.execute(b"LOCK TABLE records IN ACCESS EXCLUSIVE MODE", prepare=False)
    row: Any = connection.execute(
        "SELECT quote_ident(nspname), quote_ident(pg_get_userbyid(relowner)), quote_ident(conname) FROM pg_class"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " JOIN pg_constraint ON conrelid = pg_class.oid AND contype = 'p' WHERE pg_class.oid = 'records'::regclass"
    ).fetchone()
    schema, owner, key = row
    grants: Any = connection.execute(
        "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,"
        " CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END FROM pg_class, aclexplode(relacl)"
        " WHERE oid = 'records'::regclass AND grantee <> relowner"
    ).fetchall()
    views: Any = connection.execute(
        "SELECT DISTINCT quote_ident(nspname) || '.' || quote_ident(relname), pg_get_viewdef(pg_class.oid)"
        " FROM pg_depend JOIN pg_rewrite ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid"
        " JOIN pg_class ON pg_class.oid = ev_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE refclassid = 'pg_class'::regclass AND refobjid = 'records'::regclass AND relkind = 'v'"
        " AND pg_has_role(relowner, 'USAGE')"
    ).fetchall()
    whole, earlier = f"{schema}.records", f"{schema}.records_earlier"
    for statement in (
        f"ALTER TABLE {whole} RENAME TO records_earlier",
        f"ALTER TABLE {earlier} RENAME CONSTRAINT {key} TO records_earlier_pkey",
        f"CREATE TABLE {whole} (LIKE {earlier} INCLUDING ALL EXCLUDING CONSTRAINTS) PARTITION BY RANGE (run)",
        f"ALTER TABLE {whole} OWNER TO {owner}",
        *(f"GRANT {right} ON {whole} TO {role}{option}" for right, role, option in grants),
        f"ALTER TABLE {whole} ATTACH PARTITION {earlier} FOR VALUES FROM (MINVALUE) TO ({_BOUND})",
        f"ALTER TABLE {earlier} DROP CONSTRAINT IF EXISTS {_CHECK}",
        # a view keeps the table that it was made for, whatever its name
        *(f"CREATE OR REPLACE VIEW {name} AS {query}" for name, query in views),
    ):
        connection.execute(statement.encode(), prepare=False)

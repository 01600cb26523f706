"""From the tables of version 2 to those of version 3: `records` has a partition for each month.

What a released migration does is never changed, so it uses nothing of this package that may change.

Rights, policies and views go over to the new table. What cannot, such as a trigger, is refused before anything is
changed. Partitions are for their owner alone: who asks the table needs no rights on them.

The table becomes the partition of all runs that are there, and none of its rows is touched. The server must know that
they all fit into it. So a constraint says so, before: it is checked while others write, at the speed at which the table
is read. What is left takes milliseconds, under a lock of the whole table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orchestrator.errors import StoreError
from orchestrator.stores.postgres.rights import grants_of, policies_of, withdraw

if TYPE_CHECKING:
    from psycopg import Connection

_BOUND = 1 << 40
"""Numbers of runs that have no month are below it."""
_CHECK = "records_before_months"
_TAKE_YOUR_TIME = b"SET LOCAL statement_timeout = 0"


def prepare(connection: Connection[tuple[Any, ...]], lock: int) -> None:
    """Have the server know that all rows fit into the first partition. The connection is in no transaction.

    It may be ended at any point, and begun again. The database remains one of version 2.

    Raises:
        StoreError: something depends on the table that cannot be carried over.
    """
    from psycopg.errors import UndefinedObject, WrongObjectType

    with connection.transaction():
        connection.execute(_TAKE_YOUR_TIME, prepare=False)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        connection.execute(b"SET LOCAL lock_timeout = 2000", prepare=False)
        row: Any = connection.execute(
            "SELECT relkind, EXISTS (SELECT 1 FROM pg_constraint WHERE conrelid = pg_class.oid AND conname = %s)"
            " FROM pg_class WHERE oid = 'records'::regclass",
            (_CHECK,),
        ).fetchone()
        if row[0] != "r":
            return  # another process has done all of it
        _refuse_what_stays_behind(connection)
        if not row[1]:
            connection.execute(
                f"ALTER TABLE records ADD CONSTRAINT {_CHECK} CHECK (run < {_BOUND}) NOT VALID".encode(), prepare=False
            )
    with (
        suppress(UndefinedObject, WrongObjectType),
        connection.transaction(),
    ):  # another process did all of it meanwhile
        connection.execute(_TAKE_YOUR_TIME, prepare=False)
        connection.execute(f"ALTER TABLE records VALIDATE CONSTRAINT {_CHECK}".encode(), prepare=False)


_STAYS_BEHIND = """
SELECT 'trigger ' || quote_ident(tgname) FROM pg_trigger WHERE tgrelid = 'records'::regclass AND NOT tgisinternal
UNION ALL SELECT 'rule ' || quote_ident(rulename) FROM pg_rewrite WHERE ev_class = 'records'::regclass
UNION ALL SELECT 'foreign key ' || quote_ident(conname) || ' of ' || conrelid::regclass FROM pg_constraint
    WHERE contype = 'f' AND 'records'::regclass IN (conrelid, confrelid)
UNION ALL SELECT 'publication ' || quote_ident(pubname) FROM pg_publication_rel
    JOIN pg_publication ON pg_publication.oid = prpubid WHERE prrelid = 'records'::regclass
UNION ALL SELECT 'policy ' || quote_ident(polname) || ' of ' || polrelid::regclass FROM pg_policy
    WHERE polrelid <> 'records'::regclass AND EXISTS (SELECT 1 FROM pg_depend WHERE classid = 'pg_policy'::regclass
    AND objid = pg_policy.oid AND refclassid = 'pg_class'::regclass AND refobjid = 'records'::regclass)
UNION ALL SELECT DISTINCT 'materialized view ' || ev_class::regclass FROM pg_rewrite
    JOIN pg_class ON pg_class.oid = ev_class AND relkind = 'm' JOIN pg_depend ON classid = 'pg_rewrite'::regclass
    AND objid = pg_rewrite.oid AND refclassid = 'pg_class'::regclass AND refobjid = 'records'::regclass
ORDER BY 1
"""
"""What belongs to the table itself, and would see the first partition alone."""


def _refuse_what_stays_behind(connection: Connection[tuple[Any, ...]]) -> None:
    names = [name for (name,) in connection.execute(_STAYS_BEHIND.encode(), prepare=False).fetchall()]
    if names:
        raise StoreError(
            f"the table `records` cannot be divided by months with {', '.join(names)}: note the definition and drop"
            " it, open the store again, then make it for the new table; nothing was changed (docs/scale.md)"
        )


def divide(connection: Connection[tuple[Any, ...]]) -> None:
    """Turn the table into the first partition of a new one. The connection is inside a transaction.

    Raises:
        StoreError: something depends on the table that cannot be carried over.
    """
    connection.execute(b"LOCK TABLE records IN ACCESS EXCLUSIVE MODE", prepare=False)
    _refuse_what_stays_behind(connection)
    row: Any = connection.execute(
        "SELECT quote_ident(nspname), quote_ident(pg_get_userbyid(relowner)), quote_ident(conname) FROM pg_class"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " JOIN pg_constraint ON conrelid = pg_class.oid AND contype = 'p' WHERE pg_class.oid = 'records'::regclass"
    ).fetchone()
    schema, owner, key = row
    whole, earlier = f"{schema}.records", f"{schema}.records_earlier"
    rights = [*grants_of(connection, "records", whole), *policies_of(connection, "records", whole)]
    views: Any = connection.execute(
        "SELECT DISTINCT quote_ident(nspname) || '.' || quote_ident(relname), pg_get_viewdef(pg_class.oid),"
        " coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '')"
        " FROM pg_depend JOIN pg_rewrite ON classid = 'pg_rewrite'::regclass AND objid = pg_rewrite.oid"
        " JOIN pg_class ON pg_class.oid = ev_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE refclassid = 'pg_class'::regclass AND refobjid = 'records'::regclass AND relkind = 'v'"
        " AND pg_has_role(relowner, 'USAGE')"
    ).fetchall()
    for statement in (
        f"ALTER TABLE {whole} RENAME TO records_earlier",
        f"ALTER TABLE {earlier} RENAME CONSTRAINT {key} TO records_earlier_pkey",
        f"CREATE TABLE {whole} (LIKE {earlier} INCLUDING ALL EXCLUDING CONSTRAINTS) PARTITION BY RANGE (run)",
        f"ALTER TABLE {whole} OWNER TO {owner}",
        f"ALTER TABLE {whole} ATTACH PARTITION {earlier} FOR VALUES FROM (MINVALUE) TO ({_BOUND})",
        f"ALTER TABLE {earlier} DROP CONSTRAINT IF EXISTS {_CHECK}",
        f"ALTER TABLE {earlier} NO FORCE ROW LEVEL SECURITY",  # its owner must see whether it is empty
        # a view keeps the table that it was made for, whatever its name
        *(f"CREATE OR REPLACE VIEW {name}{options} AS {query}" for name, query, options in views),
    ):
        connection.execute(statement.encode(), prepare=False)
    for table in (whole, earlier):
        withdraw(connection, table)
    for right in rights:
        connection.execute(right.encode(), prepare=False)

"""Who may do what with a table: what is granted, and which rows a user sees.

Migrations use these functions, so what they do is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

_ROLE = "CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END"
_GRANTS = (
    f"SELECT privilege_type, '', {_ROLE} AS role, is_grantable FROM pg_class, aclexplode(relacl)"
    " WHERE oid = %(table)s::regclass AND grantee <> relowner UNION ALL"
    f" SELECT privilege_type, ' (' || quote_ident(attname) || ')', {_ROLE}, is_grantable FROM pg_class"
    " JOIN pg_attribute ON attrelid = pg_class.oid, aclexplode(attacl)"
    " WHERE pg_class.oid = %(table)s::regclass AND grantee <> relowner"
)


def grants_of(connection: Connection[tuple[Any, ...]], table: str, onto: str) -> list[str]:
    """The statements that give others the rights on the table `onto` that they have on a table and its columns."""
    return [
        f"GRANT {right}{column} ON {onto} TO {role}{' WITH GRANT OPTION' if option else ''}"
        for right, column, role, option in _granted(connection, table)
    ]


def changes_of(connection: Connection[tuple[Any, ...]], table: str, onto: str) -> list[str]:
    """The same for a table with other columns, whose rows are updated by whoever adds or deletes rows of the first."""
    return sorted(
        {
            f"GRANT {given} ON {onto} TO {role}{' WITH GRANT OPTION' if option else ''}"
            for right, column, role, option in _granted(connection, table)
            if not column
            for given in (right, *(("UPDATE",) if right in ("INSERT", "DELETE") else ()))
        }
    )


def _granted(connection: Connection[tuple[Any, ...]], table: str) -> list[tuple[str, str, str, bool]]:
    rows: Any = connection.execute(_GRANTS.encode(), {"table": table}).fetchall()
    return [*rows]


def policies_of(connection: Connection[tuple[Any, ...]], table: str, onto: str, *, alike: bool = True) -> list[str]:
    """The statements that give the table `onto` the row-level security of a table.

    Args:
        connection: a connection.
        table: the name of the table.
        onto: that of the other one.
        alike: whether it has the same columns. Else it does not get policies that look at columns, and none hold for
            its owner.
    """
    row: Any = connection.execute(
        "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass", (table,)
    ).fetchone()
    policies: Any = connection.execute(
        "SELECT quote_ident(polname), CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, CASE polcmd"
        " WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,"
        " (SELECT string_agg(CASE WHEN role = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(role)) END, ', ')"
        " FROM unnest(polroles) AS role), ' USING (' || pg_get_expr(polqual, polrelid) || ')',"
        " ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')' FROM pg_policy WHERE polrelid = %s::regclass"
        " AND (%s OR NOT EXISTS (SELECT 1 FROM pg_depend WHERE classid = 'pg_policy'::regclass"
        " AND objid = pg_policy.oid AND refobjid = polrelid AND refobjsubid <> 0)) ORDER BY polname",
        (table, alike),
    ).fetchall()
    return [
        *(
            f"CREATE POLICY {name} ON {onto} AS {kind} FOR {command} TO {roles}{using or ''}{check or ''}"
            for name, kind, command, roles, using, check in policies
        ),
        *([f"ALTER TABLE {onto} ENABLE ROW LEVEL SECURITY"] if row[0] else []),
        *([f"ALTER TABLE {onto} FORCE ROW LEVEL SECURITY"] if row[1] and alike else []),
    ]


def withdraw(connection: Connection[tuple[Any, ...]], table: str) -> None:
    """Leave no rights on a table to others than its owner: those that new tables get by default, for example."""
    rows: Any = connection.execute(f"SELECT DISTINCT role FROM ({_GRANTS}) AS known".encode(), {"table": table})
    for (role,) in rows.fetchall():
        connection.execute(f"REVOKE ALL ON {table} FROM {role} CASCADE".encode(), prepare=False)

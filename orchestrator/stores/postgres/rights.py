"""Who may do what with a table."""

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


def changes_of(connection: Connection[tuple[Any, ...]], table: str, onto: str) -> list[str]:
    """The statements that give others rights on the table `onto`, whose rows change with those of another table.

    Args:
        connection: a connection.
        table: the name of that table.
        onto: the name of the table that gets the rights.
    """
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


def withdraw(connection: Connection[tuple[Any, ...]], table: str) -> None:
    """Leave no rights on a table to others than its owner: those that new tables get by default, for example."""
    rows: Any = connection.execute(f"SELECT DISTINCT role FROM ({_GRANTS}) AS known".encode(), {"table": table})
    for (role,) in rows.fetchall():
        connection.execute(f"REVOKE ALL ON {table} FROM {role} CASCADE".encode(), prepare=False)

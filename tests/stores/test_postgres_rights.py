"""Rights and row-level security of people's own: not passed by with new tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from orchestrator.stores import open_store
from orchestrator.stores.postgres import record_partitions
from orchestrator.stores.postgres.connections import address_of, connect
from tests.stores.runs import add_run
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_months import month, move_calendar, partitions

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def empty(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database without tables."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    return postgres


def make(postgres: PostgresDatabase) -> None:
    """Make the tables, with records of two runs."""
    connect(address_of(postgres.url)).close()
    for number in (1, 2):
        postgres.execute(
            "INSERT INTO runs (id, run_id, graph, status, labels, created, updated, head, structure, content, waiting)"
            f" VALUES ({number}, 'r{number}', 'g', 'running', '{{}}', 1, 2, 1, '', '', 0)"
        )
        postgres.execute(f"INSERT INTO records (run, seq, crc, data) VALUES ({number}, 1, 0, '{{}}')")


def seen(postgres: PostgresDatabase, role: str, what: str) -> int | None:
    """How many rows a role sees; None: it may not look."""
    with psycopg.connect(postgres.conninfo) as connection:
        connection.execute(f"SET ROLE {role}".encode())
        try:
            row = connection.execute(f"SELECT count(*) FROM {what}".encode()).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return None
    return None if row is None else int(row[0])


@pytest.fixture
def clerk(postgres: PostgresDatabase) -> Iterator[str]:
    """A role without rights."""
    role = f"clerk_{postgres.name}"
    postgres.server.execute(f"CREATE ROLE {role}")
    yield role
    postgres.execute(f"DROP OWNED BY {role} CASCADE")
    postgres.server.execute(f"DROP ROLE {role}")


async def test_policies_hold_for_new_months(
    empty: PostgresDatabase, clerk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that is granted all tables to come sees the rows that policies show it, and no others."""
    postgres = empty
    postgres.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {clerk}")
    make(postgres)
    for statement in (
        "ALTER TABLE records ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE records FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY one ON records TO {clerk} USING (EXISTS (SELECT FROM runs WHERE id = records.run AND id = 1))",
        f"CREATE POLICY two ON records AS RESTRICTIVE FOR UPDATE TO {clerk} USING (TRUE) WITH CHECK (run < 9)",
        "ALTER VIEW journal SET (security_invoker = true)",
    ):
        postgres.execute(statement)
    policies = (
        "SELECT polname, polcmd, polpermissive, polroles, pg_get_expr(polqual, polrelid), polwithcheck IS NULL"
        " FROM pg_policy WHERE polrelid = 'records'::regclass ORDER BY 1"
    )
    before = postgres.execute(policies)
    assert [seen(postgres, clerk, what) for what in ("records", "journal")] == [1, 1]
    move_calendar(monkeypatch, 1)
    with closing(connect(address_of(postgres.url))) as connection:
        record_partitions.begin_month(connection)
    assert postgres.execute(policies) == before
    assert postgres.execute(
        "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = 'records'::regclass"
    ) == [(True, True)]
    assert [seen(postgres, clerk, what) for what in ("records", "journal")] == [1, 1]
    assert len(partitions(postgres)) == 3
    assert [seen(postgres, clerk, what) for what in partitions(postgres)] == [None] * 3


async def test_a_month_whose_records_are_hidden_from_the_owner_is_not_dropped(
    postgres: PostgresDatabase, clerk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that is subject to policies of its own does not take hidden records for none."""
    store = open_store(postgres.url)
    await add_run(store, "a")
    await store.close()
    name = record_partitions.name_of(month(postgres))
    for statement in (
        f"GRANT CREATE, USAGE ON SCHEMA public TO {clerk}",
        *(f"ALTER TABLE {table} OWNER TO {clerk}" for table in ("records", *partitions(postgres))),
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {clerk}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {clerk}",
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY",
        "ALTER TABLE records ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE records FORCE ROW LEVEL SECURITY",
    ):
        postgres.execute(statement)
    move_calendar(monkeypatch, 1)
    with closing(connect(address_of(postgres.url_with(options=f"-crole%3D{clerk}")))) as connection:
        first = record_partitions.first_number(month(postgres, 1))
        postgres.execute(f"SELECT setval(pg_get_serial_sequence('runs', 'id'), {first})")
        assert record_partitions.drop_empty(connection)
    assert name in partitions(postgres)


async def test_who_may_change_records_by_default_may_change_payloads(empty: PostgresDatabase, clerk: str) -> None:
    """Records are never updated, payloads are locked and objects of an archive marked, which takes that right."""
    empty.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, DELETE ON TABLES TO {clerk}")
    make(empty)
    updated = empty.execute(
        "SELECT table_name FROM information_schema.role_table_grants"
        f" WHERE grantee = '{clerk}' AND privilege_type = 'UPDATE' ORDER BY 1"
    )
    assert updated == [("archive_objects",), ("payload_uses",), ("payloads",)]
    assert seen(empty, clerk, "records") == 2
    assert [seen(empty, clerk, name) for name in partitions(empty)] == [None] * 2

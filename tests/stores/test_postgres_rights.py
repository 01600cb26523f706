"""Rights and row-level security of people's own: kept when tables are changed, and not passed by with new tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from orchestrator.errors import StoreError
from orchestrator.stores import open_store
from orchestrator.stores.postgres import months
from orchestrator.stores.postgres.connections import connect
from orchestrator.stores.postgres.schema import MIGRATIONS, migrate
from orchestrator.stores.postgres.url import address_of
from orchestrator.stores.requests import Append
from tests.stores.runs import add_run, events
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_months import month, move_calendar, partitions

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def tables_of(postgres: PostgresDatabase, version: int) -> None:
    """Have the database have the tables of a version, and records of two runs."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    with closing(psycopg.connect(postgres.url, autocommit=True)) as connection:
        migrate(connection, postgres.url, MIGRATIONS[:version])
    for number in (1, 2):
        postgres.execute(
            "INSERT INTO runs (id, run_id, graph, status, labels, created, updated, head, structure, content, waiting)"
            f" VALUES ({number}, 'r{number}', 'g', 'running', '{{}}', 1, 2, 1, '', '', 0)"
        )
        postgres.execute(f"INSERT INTO records (run, seq, crc, data) VALUES ({number}, 1, 0, '{{}}')")


def upgrade(postgres: PostgresDatabase) -> None:
    connect(address_of(postgres.url)).close()


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


async def test_policies_hold_after_the_division_and_for_new_months(
    postgres: PostgresDatabase, clerk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that is granted all tables, present and future, sees the rows that policies show it, and no others."""
    tables_of(postgres, 2)
    for statement in (
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {clerk}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {clerk}",
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
    upgrade(postgres)
    move_calendar(monkeypatch, 1)
    with closing(connect(address_of(postgres.url))) as connection:
        months.begin_month(connection)
    assert postgres.execute(policies) == before
    assert postgres.execute(
        "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = 'records'::regclass"
    ) == [(True, True)]
    assert [seen(postgres, clerk, what) for what in ("records", "journal")] == [1, 1]
    assert len(partitions(postgres)) == 3
    assert [seen(postgres, clerk, what) for what in partitions(postgres)] == [None] * 3


async def test_rights_on_columns_are_kept_and_no_others_come(postgres: PostgresDatabase, clerk: str) -> None:
    """A new table gets default rights: the one in the place of another has what that one had."""
    tables_of(postgres, 2)
    postgres.execute(f"GRANT SELECT (run, seq) ON records TO {clerk} WITH GRANT OPTION")
    postgres.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {clerk}, PUBLIC")
    upgrade(postgres)
    with closing(psycopg.connect(postgres.conninfo)) as connection:
        connection.execute(f"SET ROLE {clerk}".encode())
        assert connection.execute("SELECT run, seq FROM records ORDER BY run").fetchall() == [(1, 1), (2, 1)]
    assert seen(postgres, clerk, "(SELECT data FROM records) AS texts") is None
    assert [seen(postgres, clerk, f"(SELECT run FROM {what}) AS numbers") for what in partitions(postgres)] == [
        None
    ] * 2


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE TRIGGER watch BEFORE INSERT ON records EXECUTE FUNCTION suppress_redundant_updates_trigger()",
         "trigger watch"),
        ("CREATE RULE never AS ON DELETE TO records DO INSTEAD NOTHING", "rule never"),
        ("CREATE TABLE notes (run bigint, seq bigint, FOREIGN KEY (run, seq) REFERENCES records)",
         "foreign key notes_run_seq_fkey of notes"),
        ("CREATE PUBLICATION copies FOR TABLE runs, records", "publication copies"),
        ("CREATE POLICY mine ON runs USING (EXISTS (SELECT 1 FROM records WHERE run = id))", "policy mine of runs"),
        ("CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM records", "materialized view counted"),
    ],
)  # fmt: skip
async def test_what_cannot_be_carried_over_is_refused_before_anything_is_changed(
    postgres: PostgresDatabase, statement: str, name: str
) -> None:
    tables_of(postgres, 2)
    postgres.execute(statement)
    with pytest.raises(StoreError, match=f"divided by months with {name}: note the definition and drop it"):
        open_store(postgres.url)
    assert postgres.execute(
        "SELECT relkind::text, version, (SELECT count(*) FROM pg_constraint WHERE conrelid = 'records'::regclass"
        " AND contype = 'c') FROM pg_class, orchestrator_schema WHERE relname = 'records'"
    ) == [("r", 2, 0)]


async def test_a_month_whose_records_are_hidden_from_the_owner_is_not_dropped(
    postgres: PostgresDatabase, clerk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that is subject to policies of its own does not take hidden records for none."""
    store = open_store(postgres.url)
    await add_run(store, "a")
    await store.close()
    name = months.name_of(month(postgres))
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
        first = months.first_number(month(postgres, 1))
        postgres.execute(f"SELECT setval(pg_get_serial_sequence('runs', 'id'), {first})")
        assert months.drop_empty(connection)
    assert name in partitions(postgres)


async def test_who_may_change_records_may_change_payloads_after_an_upgrade(
    postgres: PostgresDatabase, clerk: str
) -> None:
    """Records are never updated, payloads are locked and objects of an archive marked, which takes that right."""
    tables_of(postgres, 2)
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {clerk}")
    postgres.execute(f"REVOKE ALL ON archive_objects FROM {clerk}")
    postgres.execute(f"REVOKE UPDATE ON records FROM {clerk}")
    upgrade(postgres)
    store = open_store(postgres.url_with(options=f"-crole%3D{clerk}"))
    long = "x" * 40_000
    await add_run(store, "a", 1, long)
    await add_run(store, "b")
    assert await store.append(Append("b", events(2, 1, long), after=1)) == 2
    assert await store.read("b") == events(1) + events(2, 1, long)
    assert await store.delete("a")
    assert await store.delete("b")
    assert postgres.execute("SELECT count(*) FROM payloads") == [(0,)]
    await store.close()


async def test_payloads_are_as_hidden_as_records(postgres: PostgresDatabase, clerk: str) -> None:
    """Policies that look at no column are carried over; others have to be made by hand."""
    tables_of(postgres, 3)
    worker = f"worker_{postgres.name}"
    postgres.execute(f"CREATE ROLE {worker}")
    postgres.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {clerk}, {worker}")
    postgres.execute("ALTER TABLE records ENABLE ROW LEVEL SECURITY")
    postgres.execute(f"CREATE POLICY all_of_them ON records TO {worker} USING (TRUE)")
    postgres.execute(f"CREATE POLICY one ON records TO {clerk} USING (run = 1)")
    upgrade(postgres)
    store = open_store(postgres.url)
    await add_run(store, "a", 1, "x" * 40_000)
    await store.close()
    for role, records, payloads in ((clerk, 1, 0), (worker, 3, 1)):
        assert [seen(postgres, role, what) for what in ("records", "payloads", "payload_uses")] == [
            records, payloads, payloads,
        ]  # fmt: skip
    postgres.execute(f"DROP OWNED BY {worker}")
    postgres.execute(f"DROP ROLE {worker}")


async def test_new_tables_belong_to_whom_records_belong(postgres: PostgresDatabase, clerk: str) -> None:
    """An administrator may upgrade the store of a user."""
    tables_of(postgres, 2)
    postgres.execute(f"GRANT ALL ON SCHEMA public TO {clerk}")
    for (table,) in postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        postgres.execute(f"ALTER TABLE {table} OWNER TO {clerk}")
    upgrade(postgres)
    assert postgres.execute(
        "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'payload%'"
    ) == [(clerk,)]

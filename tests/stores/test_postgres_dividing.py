"""A database whose records are in one table is divided by months: as it is, at any point, beside others that use it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import psycopg
import pytest

from orchestrator import Executor
from orchestrator.errors import StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.postgres import months, schema
from orchestrator.stores.postgres.connections import connect
from orchestrator.stores.postgres.schema import MIGRATIONS, migrate, version_of
from orchestrator.stores.postgres.url import address_of
from orchestrator.stores.requests import Append
from tests.stores.runs import add_run, events
from tests.support.executors import chain, says
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_months import killed_at, month, month_of_run, partitions, use_tables_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
GRAPH = chain(*(says(f"{number} " + "word " * 50) for number in range(3)))
_JOURNAL = "SELECT run_id, seq, md5(record) FROM journal ORDER BY run_id, seq"


NEWEST = len(MIGRATIONS)


@pytest.fixture
def empty(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database without tables."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    return postgres


@pytest.fixture
async def former(empty: PostgresDatabase) -> PostgresDatabase:
    """A database of the version before, with a run that has ended and one that goes on."""
    with pytest.MonkeyPatch.context() as patch:
        use_tables_of(2, patch)
        async with Executor(empty.url, graphs=[GRAPH]) as executor:
            await executor.start(GRAPH, "x", run_id="done")
            await add_run(executor.store, "open", 3)
    assert empty.execute(
        "SELECT relkind::text, version FROM pg_class, orchestrator_schema WHERE relname = 'records'"
    ) == [("r", 2)]
    assert empty.execute("SELECT max(id) FROM runs") == [(2,)]
    return empty


async def test_all_that_is_there_stays(
    former: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not copied, people's views and rights are as before, and the runs go on or are archived."""
    role = f"clerk_{former.name}"
    former.execute(f"CREATE ROLE {role}")
    former.execute(f"GRANT SELECT ON records TO {role} WITH GRANT OPTION")
    former.execute("GRANT SELECT ON records TO PUBLIC")
    former.execute("CREATE VIEW mine AS SELECT count(*) AS amount FROM records")
    former.execute("ALTER TABLE records SET (autovacuum_vacuum_scale_factor = 0.01)")
    rights = former.execute("SELECT relacl::text FROM pg_class WHERE relname = 'records'")
    journal, ((file,),) = former.execute(_JOURNAL), former.execute("SELECT pg_relation_filepath('records')")
    try:
        async with Executor(former.url, graphs=[GRAPH], archive=str(tmp_path)) as executor:
            assert former.execute("SELECT pg_relation_filepath('records_earlier')") == [(file,)]
            assert former.execute(_JOURNAL) == journal
            assert (await executor.load("done")).status == "completed"
            assert await executor.store.append(Append("open", events(4), after=3)) == 4
            assert await executor.store.read("open") == events(1, 4)
            await add_run(executor.store, "new")
            assert [month_of_run(former, name) for name in ("done", "open", "new")] == [0, 0, month(former)]
            assert former.execute("SELECT amount FROM mine") == [(len(journal) + 2,)]
            assert partitions(former) == [months.name_of(month(former)), "records_earlier"]
            assert await executor.store.check() == []
            assert former.execute(
                "SELECT count(DISTINCT reloptions) FROM pg_class JOIN pg_inherits ON inhrelid = oid"
                " WHERE inhparent = 'records'::regclass AND reloptions IS NOT NULL"
            ) == [(1,)]
            assert former.execute("SELECT relacl::text FROM pg_class WHERE relname = 'records'") == rights
            await executor.archive()
            await executor.store.delete("open")
            await executor.store.compact()
            assert partitions(former) == [months.name_of(month(former))]
            await executor.restore("done")
            assert former.execute(_JOURNAL)[: len(journal) - 3] == journal[:-3]
            assert "records_earlier" in partitions(former)
    finally:
        former.execute(f"DROP OWNED BY {role}")
        former.execute(f"DROP ROLE {role}")


async def test_a_process_dies_while_it_divides(former: PostgresDatabase) -> None:
    """Killed before any of its statements: what is there is a database of the former version, or of this one."""
    journal, number, versions = former.execute(_JOURNAL), 0, set[int]()

    def divide() -> None:
        connect(address_of(former.url)).close()

    while killed_at(number := number + 1, divide):
        ((version,),) = former.execute("SELECT version FROM orchestrator_schema")
        ((kind,),) = former.execute("SELECT relkind::text FROM pg_class WHERE oid = 'records'::regclass")
        assert (version, kind) in {(2, "r"), (NEWEST, "p")}
        assert former.execute(_JOURNAL) == journal
        versions.add(version)
        if version == 2:
            former.execute("INSERT INTO records VALUES (2, 99, 0, 'x')")  # it is used meanwhile
            former.execute("DELETE FROM records WHERE seq = 99")
    assert number > 15
    assert versions == {2, NEWEST}
    assert former.execute(_JOURNAL) == journal


async def test_rows_are_read_before_the_table_is_locked(former: PostgresDatabase) -> None:
    """Attaching it scans nothing, because the server knows that all of them fit."""
    with closing(psycopg.connect(former.url, autocommit=True)) as connection:
        said: list[str] = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        connection.execute("SET client_min_messages = debug1")
        migrate(connection, former.url)
    assert 'partition constraint for table "records_earlier" is implied by existing constraints' in said


async def test_a_limit_for_statements_ends_neither_an_upgrade_nor_a_check(former: PostgresDatabase) -> None:
    """The server ends a statement of this user after half a second, which is too little for a large table."""
    url = former.url_with(options="-cstatement_timeout%3D500")
    with held(former, "records", "SHARE UPDATE EXCLUSIVE"):
        connect(address_of(url)).close()
    assert former.execute("SELECT version FROM orchestrator_schema") == [(NEWEST,)]
    store = open_store(url)
    for repair in (False, True):
        with held(former, "payload_uses", "ACCESS EXCLUSIVE"):
            assert await store.check(repair=repair) == []
    await store.close()


@contextmanager
def held(database: PostgresDatabase, table: str, mode: str) -> Iterator[None]:
    """Hold a lock of a table for a second, after which others have it."""
    with psycopg.connect(database.conninfo) as connection:
        connection.execute(f"LOCK TABLE {table} IN {mode} MODE".encode())
        timer = threading.Timer(1.0, connection.commit)
        timer.start()
        try:
            yield
        finally:
            timer.join(60)


async def test_a_process_dies_before_the_first_month_begins(
    former: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is of this version, and new runs are counted to the time before, until one is added."""
    with closing(psycopg.connect(former.url, autocommit=True)) as connection:
        migrate(connection, former.url)
        assert version_of(connection) == NEWEST
    assert partitions(former) == ["records_earlier"]
    store = open_store(former.url)
    await add_run(store, "a")
    await add_run(store, "b")
    assert [month_of_run(former, name) for name in "ab"] == [0, month(former)]
    assert await store.read("a") == events(1)
    await store.close()


async def test_who_uses_the_table_for_long_is_not_waited_for_by_others(
    former: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_TRIES", 2)
    monkeypatch.setattr(schema, "_WAIT", 200)
    with psycopg.connect(former.conninfo) as reader, psycopg.connect(former.conninfo, autocommit=True) as writer:
        reader.execute("SELECT count(*) FROM records")
        with pytest.raises(StoreUnavailable, match="locked the tables"):
            open_store(former.url)
        writer.execute("SET lock_timeout = 100")
        writer.execute("INSERT INTO records VALUES (2, 4, 0, 'x')")
        writer.execute("DELETE FROM records WHERE run = 2 AND seq = 4")
    store = open_store(former.url)
    assert await store.read("open") == events(1, 3)
    await store.close()


async def test_several_divide_at_once_while_the_former_version_appends(former: PostgresDatabase) -> None:
    done, added = threading.Event(), 0

    def append() -> None:
        nonlocal added
        with closing(psycopg.connect(former.url, autocommit=True)) as connection:
            while not done.is_set():
                connection.execute("INSERT INTO records VALUES (2, %s, 0, 'x')", (4 + added,))
                added += 1

    def divide() -> None:
        connect(address_of(former.url)).close()

    writer = threading.Thread(target=append)
    threads = [threading.Thread(target=divide) for _ in range(4)]
    try:
        for thread in (writer, *threads):
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        before = added
        with anyio.fail_after(60):
            while added == before:
                await anyio.sleep(0.01)
                assert writer.is_alive()
    finally:
        done.set()
        writer.join(60)
    assert former.execute("SELECT count(*) FROM records WHERE run = 2") == [(3 + added,)]
    assert former.execute("SELECT version FROM orchestrator_schema") == [(NEWEST,)]


@pytest.mark.parametrize("version", [1, 2])
async def test_tables_of_former_versions_in_a_schema_of_their_own(empty: PostgresDatabase, version: int) -> None:
    empty.execute('CREATE SCHEMA "Runs"')
    empty.execute("CREATE TABLE records (a integer)")  # of another program
    url = empty.url_with(options="-csearch_path%3D%22Runs%22,public")
    with closing(psycopg.connect(address_of(url).conninfo, autocommit=True)) as connection:
        connection.execute('SET search_path = "Runs"')
        migrate(connection, url, MIGRATIONS[:version])
        connection.execute("INSERT INTO records VALUES (1, 1, 0, 'x')")
    store = open_store(url)
    await add_run(store, "a")
    await store.compact()
    assert await store.read("a") == events(1)
    assert empty.execute('SELECT tableoid::regclass::text, run FROM "Runs".records ORDER BY run')[0] == (
        '"Runs".records_earlier', 1,
    )  # fmt: skip
    await store.close()

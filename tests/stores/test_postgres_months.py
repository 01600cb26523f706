"""A partition for each month: made when the month begins, dropped when it is empty, there again when it is needed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest

from orchestrator import Executor
from orchestrator.errors import RunArchived, StoreUnavailable
from orchestrator.stores import RunInfo, Store, open_store
from orchestrator.stores.postgres import maintenance, reads, record_partitions
from orchestrator.stores.postgres.connections import address_of, connect
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.requests import Append, NewRun
from tests.stores.runs import add_run, events
from tests.support.executors import chain, says
from tests.support.pgbouncer import bouncer, command
from tests.support.postgres import PASSWORD, USER, PostgresDatabase
from tests.support.postgres_months import killed_at, month, month_of_run, move_calendar, partitions, paths, room

pytestmark = pytest.mark.anyio
GRAPH = chain(*(says(f"{number} " + "word " * 50) for number in range(3)))


def later() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def compacted(database: PostgresDatabase) -> int:
    with closing(connect(address_of(database.url))) as connection:
        return maintenance.compact(connection)


# ---------------------------------------------------------------------------------------------------- a month begins


async def test_a_month_begins_with_the_first_run_that_is_added_in_it(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = month(postgres)
    store = open_store(postgres.url)
    await add_run(store, "a")
    assert month_of_run(postgres, "a") == now
    assert record_partitions.name_of(now + 1) not in partitions(postgres)
    move_calendar(monkeypatch, 1)
    await add_run(store, "b")  # finds out
    await add_run(store, "c")
    assert [month_of_run(postgres, name) for name in "abc"] == [now, now, now + 1]
    assert record_partitions.name_of(now + 1) in partitions(postgres)
    await store.append(Append("a", events(2), after=1))
    for name, head in (("a", 2), ("b", 1), ("c", 1)):
        assert await store.read(name) == events(1, head)
    await store.close()


async def test_a_calendar_that_goes_back_changes_nothing(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = month(postgres)
    store = open_store(postgres.url)
    await add_run(store, "a")
    before = partitions(postgres)
    move_calendar(monkeypatch, -5)
    await add_run(store, "b")
    await store.compact()
    await add_run(store, "c")
    assert [month_of_run(postgres, name) for name in "abc"] == [now] * 3
    assert {*partitions(postgres)} <= {*before}
    await store.close()


async def test_a_month_begins_while_others_read_and_write(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other, whatever locks of tables they have."""
    store = open_store(postgres.url)
    await add_run(store, "a")
    move_calendar(monkeypatch, 1)
    with psycopg.connect(postgres.conninfo) as reader, psycopg.connect(postgres.conninfo) as writer:
        reader.execute("SELECT count(*) FROM records")
        writer.execute("INSERT INTO records SELECT run, 1000, crc, data FROM records")
        with anyio.fail_after(60):
            await add_run(store, "b")
        assert record_partitions.name_of(month(postgres, 1)) in partitions(postgres)
        assert reader.execute("SELECT count(*) FROM records").fetchone() == (2,)
        writer.rollback()
    await store.close()


async def test_many_connections_append_while_months_begin(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every append is made, and each run is counted to a month that has a partition.

    A month that cannot begin, because its locks are not free in time, begins later.
    """
    done, on, lock = threading.Event(), 0, threading.Lock()

    async def work(number: int) -> int:
        store, count = open_store(postgres.url), 0
        while not done.is_set() or count < 5:
            name = await add_run(store, f"r-{number}-{count}")
            assert await store.append(Append(name, events(2, 2), after=1)) == 3
            count += 1
        await store.close()
        return count

    def begin(_: int) -> None:
        nonlocal on
        with closing(connect(address_of(postgres.url))) as connection:
            for _ in range(6):
                with lock:
                    on += 1
                    move_calendar(monkeypatch, on)
                with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                    record_partitions.begin_month(connection)

    with ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(anyio.run, work, number) for number in range(4)]
        try:
            list(pool.map(begin, range(2)))
        finally:
            done.set()
        counts = [worker.result() for worker in workers]
    assert postgres.execute("SELECT count(*) FROM records") == [(3 * sum(counts),)]
    with closing(connect(address_of(postgres.url))) as connection:
        record_partitions.begin_month(connection)
    assert record_partitions.name_of(month(postgres, on)) in partitions(postgres)
    store = open_store(postgres.url)
    await add_run(store, "last")
    await store.close()
    ((last,),) = postgres.execute(f"SELECT max(id) >> {record_partitions.BITS} FROM runs")
    assert last == month(postgres, on)
    assert postgres.execute("SELECT count(DISTINCT id) = count(*) FROM runs") == [(True,)]


async def test_who_may_not_change_tables_goes_on_in_the_month_before(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"clerk_{postgres.name}"
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        store = open_store(postgres.url_with(options=f"-crole%3D{role}"))
        move_calendar(monkeypatch, 1)
        for name in "abc":
            await add_run(store, name)
            assert month_of_run(postgres, name) == month(postgres)
        await store.append(Append("a", events(2), after=1))
        assert await store.read("a") == events(1, 2)
        await store.close()
        compacted(postgres)  # by the owner
        store = open_store(postgres.url_with(options=f"-crole%3D{role}"))
        await add_run(store, "d")
        assert month_of_run(postgres, "d") == month(postgres, 1)
        assert await store.read("d") == events(1)
        await store.close()
    finally:
        postgres.execute(f"DROP OWNED BY {role}")
        postgres.execute(f"DROP ROLE {role}")


def test_partitions_are_stored_as_those_before_them(postgres: PostgresDatabase) -> None:
    name, now = record_partitions.name_of(month(postgres)), month(postgres)
    postgres.execute(f"ALTER TABLE {name} SET (autovacuum_vacuum_scale_factor = 0.01, toast.autovacuum_enabled = off)")
    postgres.execute("ALTER TABLE records ALTER data SET STORAGE external")
    with closing(connect(address_of(postgres.url))) as connection:
        record_partitions.make(connection, now + 1)
        record_partitions.make(connection, now + 1)
    name = record_partitions.name_of(now + 1)
    assert postgres.execute(
        f"SELECT one.reloptions, toast.reloptions, attstorage FROM pg_class AS one"
        f" JOIN pg_class AS toast ON toast.oid = one.reltoastrelid JOIN pg_attribute ON attrelid = one.oid"
        f" WHERE one.relname = '{name}' AND attname = 'data'"
    ) == [(["autovacuum_vacuum_scale_factor=0.01"], ["autovacuum_enabled=off"], "e")]
    assert postgres.execute(f"SELECT indexdef FROM pg_indexes WHERE tablename = '{name}'") == [
        (f"CREATE UNIQUE INDEX {name}_pkey ON public.{name} USING btree (run, seq)",)
    ]


# --------------------------------------------------------------------------------------------------- a month is over


async def test_the_files_of_an_empty_month_are_removed(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of a month with a record, nor those of the month to which new runs are counted."""
    store, now = open_store(postgres.url), month(postgres)
    for on in range(3):
        move_calendar(monkeypatch, on)
        await store.compact()  # begins the month
        await add_run(store, f"r{on}", 100, "x" * 1000)
    await store.delete("r0")
    names = [record_partitions.name_of(now + on) for on in range(3)]
    files = {name: paths(postgres, name) for name in names}
    full = {name: room(postgres, name) for name in names}
    assert min(full.values()) > 16_000
    freed = await store.compact()
    postgres.execute("CHECKPOINT")  # an empty file may stay until then
    assert partitions(postgres) == names[1:]
    assert freed > 0.8 * full[names[0]]
    left = [path for path in files[names[0]] if (postgres.server.data / path).exists()]
    assert left == []
    assert room(postgres, names[1]) == full[names[1]]
    await store.delete("r2")
    await store.compact()
    assert partitions(postgres) == names[1:], "new runs are counted to the last one"
    await add_run(store, "r3")
    assert month_of_run(postgres, "r3") == now + 2
    await store.close()


async def test_runs_of_a_dropped_month_are_restored_forked_and_continued(
    postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = month(postgres)
    async with Executor(postgres.url, graphs=[GRAPH], archive=str(tmp_path)) as executor:
        for name in ("a", "b", "c"):
            await executor.start(GRAPH, name, run_id=name)
        move_calendar(monkeypatch, 1)
        done = await executor.archive(older_than=later())
        assert sorted(done.runs) == ["a", "b", "c"]
        assert partitions(postgres) == [record_partitions.name_of(now + 1)]
        assert (await executor.load("a")).status == "completed"  # from the archive
        await executor.restore("a")
        assert partitions(postgres) == [record_partitions.name_of(now), record_partitions.name_of(now + 1)]
        assert (await executor.load("a")).status == "completed"
        assert (await executor.fork("b", at=2, run_id="fork")).status == "completed"
        assert month_of_run(postgres, "fork") == now + 1
        assert month_of_run(postgres, "b") == now
    store = open_store(postgres.url)
    assert len(await store.read("a")) == (await store.info("a")).head
    with pytest.raises(RunArchived):
        await store.read("c")
    assert await store.check() == []
    await store.close()


async def test_a_run_without_records_gets_some_in_a_dropped_month(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres.url)
    names = ["a", "b"]
    for name in names:
        await store.create(NewRun(RunInfo(name, "essay", "running"), []))
    move_calendar(monkeypatch, 1)
    await store.compact()
    assert partitions(postgres) == [record_partitions.name_of(month(postgres, 1))]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(store.append, Append(name, events(1, 3), after=0))
    for name in names:
        assert await store.read(name) == events(1, 3)
    assert partitions(postgres)[0] == record_partitions.name_of(month(postgres))
    await store.close()


async def test_who_may_not_make_a_partition_is_told_who_may(
    postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner makes it with the first run of that month. Writes for other runs at the same time are made."""
    role = f"clerk_{postgres.name}"
    postgres.execute(f"CREATE ROLE {role}")
    try:
        postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        async with Executor(postgres.url, graphs=[GRAPH], archive=str(tmp_path)) as owner:
            for name in "ab":
                await owner.start(GRAPH, name, run_id=name)
            await owner.store.create(NewRun(RunInfo("empty", "essay", "running"), []))
            move_calendar(monkeypatch, 1)
            await owner.archive(older_than=later())
            async with Executor(
                postgres.url_with(options=f"-crole%3D{role}"), graphs=[GRAPH], archive=str(tmp_path)
            ) as clerk:
                with pytest.raises(StoreUnavailable, match="have the owner restore or continue a run of that month"):
                    await clerk.restore("a")
                names = [f"new {number}" for number in range(6)]
                for name in names:
                    await add_run(clerk.store, name)
                async with anyio.create_task_group() as tasks:
                    for name in names[:3]:
                        tasks.start_soon(clerk.store.append, Append(name, events(2), after=1))
                    tasks.start_soon(_is_refused, clerk.store)
                    for name in names[3:]:
                        tasks.start_soon(clerk.store.append, Append(name, events(2), after=1))
                assert await owner.restore("b")
                assert await clerk.restore("a")
                assert await clerk.store.append(Append("empty", events(1), after=0)) == 1
    finally:
        postgres.execute(f"DROP OWNED BY {role}")
        postgres.execute(f"DROP ROLE {role}")


async def _is_refused(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="only the tables' owner can make it"):
        await store.append(Append("empty", events(1), after=0))


async def test_a_month_that_is_read_is_dropped_later_and_nobody_waits_for_long(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres.url)
    await add_run(store, "a")
    await store.delete("a")
    await add_run(store, "b")
    name = record_partitions.name_of(month(postgres))
    with psycopg.connect(postgres.conninfo) as reader:
        reader.execute("SELECT count(*) FROM records")  # as a dump of the database does
        await store.delete("b")
        move_calendar(monkeypatch, 1)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.compact)
                for number in range(20):
                    with anyio.fail_after(60):
                        await add_run(store, f"r{number}")
        assert name in partitions(postgres)
    await store.compact()
    assert name in partitions(postgres), "it has the first of those runs"
    for number in range(20):
        await store.delete(f"r{number}")
    await store.compact()
    assert name not in partitions(postgres)
    await store.close()


async def test_a_month_that_cannot_be_dropped_keeps_no_other_from_it(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A view is made for it. What deletes runs does not fail, and tables are cleaned."""
    store, now = open_store(postgres.url), month(postgres)
    for number, name in enumerate("abc"):
        move_calendar(monkeypatch, number)
        await store.compact()
        await add_run(store, name)
    move_calendar(monkeypatch, 3)
    await store.compact()
    postgres.execute(f"CREATE VIEW last_month AS SELECT * FROM {record_partitions.name_of(now + 1)}")
    for name in "abc":
        await store.delete(name)
    assert await store.compact() > 0
    assert f"{record_partitions.name_of(now + 1)} cannot be dropped: cannot drop table" in caplog.text
    assert await store.compact() == 0
    assert partitions(postgres) == [record_partitions.name_of(now + 1), record_partitions.name_of(now + 3)]
    assert (
        postgres.execute(
            "SELECT relname FROM pg_stat_user_tables WHERE last_vacuum IS NULL"
            " AND relname IN ('runs', 'labels', 'payload_uses')"
        )
        == []
    )
    postgres.execute("DROP VIEW last_month")
    await store.compact()
    assert partitions(postgres) == [record_partitions.name_of(now + 3)]
    await store.close()


async def test_records_that_are_not_committed_yet_keep_their_month(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = month(postgres)
    with psycopg.connect(postgres.conninfo) as writer:
        writer.execute("INSERT INTO records VALUES (%s, 1, 0, 'x')", (record_partitions.first_number(now),))
        move_calendar(monkeypatch, 1)
        compacted(postgres)
        assert record_partitions.name_of(now) in partitions(postgres)
    compacted(postgres)
    assert postgres.execute("SELECT count(*) FROM records") == [(1,)]


def test_a_record_that_comes_between_the_look_and_the_lock_keeps_its_month(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, look = month(postgres), record_partitions._empty

    def looked(connection: Connection, before: int) -> list[int]:
        found = look(connection, before)
        postgres.execute(
            f"INSERT INTO records VALUES ({record_partitions.first_number(now)}, 1, 0, 'x') ON CONFLICT DO NOTHING"
        )
        return found

    monkeypatch.setattr(record_partitions, "_empty", looked)
    move_calendar(monkeypatch, 1)
    compacted(postgres)
    assert partitions(postgres) == [record_partitions.name_of(now), record_partitions.name_of(now + 1)]
    assert postgres.execute("SELECT count(*) FROM records") == [(1,)]


async def test_a_run_that_is_restored_while_its_month_is_dropped_waits(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round: its record comes when the partition is locked, or gone."""
    store, now = open_store(postgres.url), month(postgres)
    await store.create(NewRun(RunInfo("a", "essay", "running"), []))
    move_calendar(monkeypatch, 1)
    await store.compact()
    with closing(connect(address_of(postgres.url))) as connection:
        record_partitions.make(connection, now)
    with psycopg.connect(postgres.conninfo) as dropping:
        dropping.execute(f"LOCK TABLE {record_partitions.name_of(now)} IN ACCESS EXCLUSIVE MODE".encode())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.append, Append("a", events(1, 3), after=0))
            await anyio.sleep(0.1)
            assert (await store.info("a")).head == 0
            dropping.rollback()
    assert await store.read("a") == events(1, 3)
    await store.close()


def test_numbers_of_runs_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_MOST", 3)
    numbers = reads.RunNumbers()
    for number in range(5):
        numbers.keep(f"r{number}", number)
    numbers.keep("r4", 40)
    assert [numbers.get(f"r{number}") for number in range(5)] == [None, None, 2, 3, 40]


async def test_several_give_space_back_while_runs_are_archived_and_restored(
    postgres: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost: a run is whole in the store, or in the archive."""
    async with Executor(postgres.url, graphs=[GRAPH], archive=str(tmp_path)) as executor:
        for number in range(6):
            await executor.start(GRAPH, "x", run_id=f"r{number}")
        heads = {f"r{number}": (await executor.store.info(f"r{number}")).head for number in range(6)}
        move_calendar(monkeypatch, 1)
        await executor.store.compact()
        others = [open_store(postgres.url) for _ in range(2)]
        for _ in range(4):
            await executor.archive(older_than=later())
            async with anyio.create_task_group() as tasks:
                for other in others:
                    tasks.start_soon(other.compact)
                for name in heads:
                    tasks.start_soon(executor.restore, name)
            for name, head in heads.items():
                assert len(await others[0].read(name)) == head
        await executor.archive(older_than=later())
        assert record_partitions.name_of(month(postgres)) not in partitions(postgres)
        for other in others:
            await other.close()


def test_a_process_dies_while_it_gives_space_back(postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before any of its statements: the next one does the rest."""
    now, number = month(postgres), 0
    move_calendar(monkeypatch, 1)
    killed = True
    while killed:
        number += 1
        killed = killed_at(number, lambda: compacted(postgres))
        postgres.execute(
            f"INSERT INTO records VALUES ({record_partitions.first_number(now + 1)} + {number}, 1, 0, 'x')"
        ) if (record_partitions.name_of(now + 1) in partitions(postgres)) else None
    assert number > 25
    assert partitions(postgres) == [record_partitions.name_of(now + 1)]
    postgres.execute(_NEW_RUN)
    assert month_of_run(postgres, "new") == now + 1


_NEW_RUN = (
    "INSERT INTO runs (run_id, graph, status, labels, created, updated, head, structure, content, waiting)"
    " VALUES ('new', 'g', 'running', '{}', 1, 2, 0, 's', 'c', 0)"
)


@pytest.mark.peer
async def test_by_a_pooler_that_hands_out_connections_by_transaction(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = command()
    if program is None:
        pytest.skip("pgbouncer is not there: apt-get install pgbouncer")
    with bouncer(program, postgres.server) as port:
        store = open_store(f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{postgres.name}?prepare=0&listen=0")
        await add_run(store, "a")
        await store.delete("a")
        move_calendar(monkeypatch, 1)
        await store.compact()
        await add_run(store, "b")
        assert partitions(postgres) == [record_partitions.name_of(month(postgres, 1))]
        assert await store.read("b") == events(1)
        await store.close()


async def test_a_dump_has_the_months(postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored elsewhere, runs are read and continued, and new ones get numbers of their own in the same month."""
    store, copy, now = open_store(postgres.url), f"{postgres.name}_copy", month(postgres)
    for on in range(3):
        move_calendar(monkeypatch, on)
        await store.compact()
        await add_run(store, f"r{on}", 3)
    await store.delete("r1")
    await store.compact()
    await store.close()
    file = postgres.server.folder / f"{copy}.sql"
    postgres.server.run("pg_dump", "-h", str(postgres.server.folder), "-p", str(postgres.server.port), "-U", USER,
                        "-f", str(file), postgres.name)  # fmt: skip
    postgres.server.create_database(copy, tables=False)
    restored = PostgresDatabase(postgres.server, copy)
    try:
        postgres.server.run("psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", "-h", str(postgres.server.folder), "-p",
                            str(postgres.server.port), "-U", USER, "-f", str(file), copy)  # fmt: skip
        assert partitions(restored) == [record_partitions.name_of(now), record_partitions.name_of(now + 2)]
        store = open_store(restored.url)
        assert await store.append(Append("r0", events(4), after=3)) == 4
        assert await store.read("r0") == events(1, 4)
        await add_run(store, "new")
        assert month_of_run(restored, "new") == now + 2
        assert await store.check() == []
        await store.close()
    finally:
        postgres.server.drop_database(copy)


async def test_records_without_a_run_are_found_in_every_month(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres.url)
    for on in range(4):
        move_calendar(monkeypatch, on)
        await store.compact()
        await add_run(store, f"r{on}", 3)
    for on in (0, 1, 3):
        number = record_partitions.first_number(month(postgres, on)) + 77
        postgres.execute(f"INSERT INTO records VALUES ({number}, 1, 0, 'x'), ({number}, 2, 0, 'x')")
    (found,) = await store.check(repair=True)
    assert found.what == "records of 3 runs that do not exist"
    assert found.repaired == "deleted"
    assert await store.check() == []
    assert postgres.execute("SELECT count(*) FROM records") == [(12,)]
    await store.close()

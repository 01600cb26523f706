"""What is particular to the store in PostgreSQL: batches, and a password that nobody sees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import psycopg
import pytest

from orchestrator.errors import RunConflict, RunExists, StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.postgres import PostgresStore, changes, leases
from orchestrator.stores.postgres.changes import ChangeJob
from orchestrator.stores.postgres.related_rows import RelatedRows
from orchestrator.stores.postgres.statements import adapt
from orchestrator.stores.postgres.writes import AppendJob, CreateJob, append_all, create_all
from orchestrator.stores.requests import Append, NewRun
from orchestrator.stores.stored import rows_of
from orchestrator.testing.store_conformance.helpers import a_lease, created, event, events, new_run, started
from tests.support.postgres import PASSWORD, PostgresDatabase

pytestmark = pytest.mark.anyio


async def test_the_url_has_no_password(postgres: PostgresDatabase) -> None:
    store = open_store(postgres.url_with(password=True))
    try:
        assert PASSWORD not in f"{store.url} {store!r}"
    finally:
        await store.close()


async def test_a_wrong_password_is_told(postgres: PostgresDatabase) -> None:
    url = postgres.url_with(password=True).replace(PASSWORD, "wrong-sesame")
    with pytest.raises(StoreUnavailable, match="refuses this URL") as caught:
        open_store(url)
    assert "wrong-sesame" not in str(caught.value)


async def test_no_server_is_told_at_once(postgres: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_store("postgresql://me@127.0.0.1:1/runs")


async def test_workers_are_told_of_work(postgres: PostgresDatabase) -> None:
    store, other = PostgresStore(postgres.url), PostgresStore(postgres.url)
    try:
        with anyio.fail_after(30):
            seen = await _listens(store)
            for write in (partial(_enqueue, other), partial(_answer, other), partial(_give_back, other)):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.wait_for_alert, seen)
                    await anyio.sleep(0.05)
                    await write()
                after = store.alerts()
                assert after is not None
                assert after > seen
                seen = after
            # nothing is told by appends, nor of runs that are held from their beginning
            info, records = new_run()
            await other.create(NewRun(info, records, lease=a_lease(info.run_id, "t")))
            await other.append(Append(info.run_id, events(2), after=1, lease="t"))
            await anyio.sleep(0.1)
            assert store.alerts() == seen
    finally:
        await store.close()
        await other.close()


async def _listens(store: PostgresStore) -> int:
    while True:
        seen = store.alerts()
        if seen is not None:
            return seen
        await anyio.sleep(0.01)


async def _enqueue(store: PostgresStore) -> None:
    info, records = new_run()
    await store.create(NewRun(info, records))


async def _answer(store: PostgresStore) -> None:
    info, records = new_run()
    await store.create(NewRun(replace(info, status="paused"), records))
    await store.post(info.run_id, {"answer": 1})


async def _give_back(store: PostgresStore) -> None:
    info, records = new_run()
    await store.create(NewRun(info, records, lease=a_lease(info.run_id, "t")))
    await store.drop_lease(info.run_id, "t")


async def test_a_connection_that_listens_and_is_cut(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        with anyio.fail_after(30):
            seen = await _listens(store)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.wait_for_alert, seen)
                await anyio.sleep(0.05)
                postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE datname = '{postgres.name}' AND query LIKE 'LISTEN%'"
                )
            assert store.alerts() is None
    finally:
        await store.close()


async def test_a_store_that_may_not_listen(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url_with(listen=0))
    try:
        assert store.alerts() is None
    finally:
        await store.close()


async def test_an_append_before_a_take_over_is_seen_by_it(postgres: PostgresDatabase) -> None:
    """The old holder stands still between its append and its commit: the take-over waits for it, and sees its head."""
    store = PostgresStore(postgres.url)
    try:
        run_id = await _run_with_an_old_lease(store)
        heads: list[int] = []
        with psycopg.connect(postgres.conninfo) as connection:
            job = _an_append(run_id)
            adapt(connection)
            append_all(connection, [job])
            assert job.result() == 2
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_take_over, store, run_id, heads)
                await anyio.sleep(0.2)
                assert heads == []
                connection.commit()
        assert heads == [2]
    finally:
        await store.close()


async def test_an_append_behind_a_take_over_is_refused(postgres: PostgresDatabase) -> None:
    """The take-over stands still before its commit: the old holder's append waits for it, and is refused then."""
    store = PostgresStore(postgres.url)
    try:
        run_id = await _run_with_an_old_lease(store)
        refused: list[RunConflict] = []

        async def write() -> None:
            try:
                await store.append(Append(run_id, events(2), after=1, lease="old"))
            except RunConflict as error:
                refused.append(error)

        with psycopg.connect(postgres.conninfo) as connection:
            adapt(connection)
            assert leases.take(connection, a_lease(run_id, "new"), 60.0, None)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                await anyio.sleep(0.2)
                assert refused == []
                connection.commit()
        assert len(refused) == 1
        assert (await store.info(run_id)).head == 1
        assert len(await store.read(run_id)) == 1
    finally:
        await store.close()


async def _run_with_an_old_lease(store: PostgresStore) -> str:
    info, records = new_run()
    await store.create(NewRun(info, records))
    assert await store.take_lease(a_lease(info.run_id, "old"), ttl=0.0)
    return info.run_id


async def _take_over(store: PostgresStore, run_id: str, heads: list[int]) -> None:
    assert await store.take_lease(a_lease(run_id, "new"), ttl=60.0)
    heads.append((await store.info(run_id)).head)


def _an_append(run_id: str) -> AppendJob:
    return _append_job(Append(run_id, events(2), after=1, lease="old"))


def _append_job(append: Append) -> AppendJob:
    return AppendJob(append, RelatedRows(*rows_of(append.run_id, append.records)))


class Cut:
    """A connection that is cut when it commits: the server does it, and nobody hears of it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.closed = False

    def execute(self, query: Any, *arguments: Any, **named: Any) -> Any:
        cursor = self._connection.execute(query, *arguments, **named)
        if query == "COMMIT":
            self.closed = True
            raise psycopg.OperationalError("the connection is lost")
        return cursor


async def test_what_was_committed_when_the_connection_was_cut_is_not_done_twice(postgres: PostgresDatabase) -> None:
    """The server commits, and the answer never comes."""
    store = PostgresStore(postgres.url)
    try:
        info, records = new_run()
        await store.create(NewRun(info, records))
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            adapt(connection)
            cut = ChangeJob[int](partial(changes.post, run_id=info.run_id, body="{}", key=None))
            with pytest.raises(psycopg.OperationalError):
                changes.change_all(cast(Any, Cut(connection)), [cut])
            assert len(await store.inbox([info.run_id])) == 1
            changes.change_all(connection, [cut])
            (message,) = await store.inbox([info.run_id])
            assert cut.result() == message.id
    finally:
        await store.close()


async def test_appends_and_new_runs_are_asked_for_again(postgres: PostgresDatabase) -> None:
    """So they are after a connection was cut: those that had been made are recognised by their records."""
    store = PostgresStore(postgres.url)
    try:
        for lease in (None, "old"):
            info, records = new_run()
            new = NewRun(info, records, lease=a_lease(info.run_id, lease) if lease else None)
            change = Append(info.run_id, events(2), after=1, lease=lease)
            related = RelatedRows(*rows_of(info.run_id, records))
            await store.create(new)
            await store.append(change)
            with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
                adapt(connection)
                again, other = CreateJob(new, related), CreateJob(new, related)
                again.again = True
                create_all(connection, [again])
                assert again.error is None
                if lease is None:
                    create_all(connection, [other])
                    assert isinstance(other.error, RunExists)
                append = _append_job(change)
                append.again = True
                append_all(connection, [append])
                assert append.result() == 2
                wrong = _append_job(replace(change, records=[event(2, "other")]))
                wrong.again = True
                append_all(connection, [wrong])
                assert isinstance(wrong.error, RunConflict)
    finally:
        await store.close()


async def test_many_appends_share_statements(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        ids = []
        for _ in range(50):
            ids.append(new_run()[0].run_id)
        async with anyio.create_task_group() as tasks:
            for run_id in ids:
                tasks.start_soon(_create_and_append, store, run_id)
        statistics = store.statistics()
        assert statistics.jobs == 50 * 11
        assert statistics.batches < 100
        assert all(head == (11, "running") for head in (await store.heads(ids)).values())
    finally:
        await store.close()


async def _create_and_append(store: PostgresStore, run_id: str) -> None:
    info = replace(new_run()[0], run_id=run_id)
    await store.create(NewRun(info, [started(info)]))
    for after in range(1, 11):
        await store.append(Append(run_id, events(after + 1), after=after))


async def test_appends_find_their_runs_by_an_index_although_the_table_was_small_when_they_began(
    postgres: PostgresDatabase,
) -> None:
    store = PostgresStore(postgres.url)
    try:
        run_id = new_run()[0].run_id
        await _create_and_append(store, run_id)
        async with anyio.create_task_group() as tasks:
            for _ in range(1500):
                info, records = new_run()
                tasks.start_soon(store.create, NewRun(info, records))
        for after in range(11, 21):
            await store.append(Append(run_id, events(after + 1), after=after))
            await store.info(run_id)
    finally:
        await store.close()
    (read,) = postgres.execute("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'runs'")
    assert read[0] < 1500, f"rows of runs that were read by scans of the whole table: {read[0]}"


def test_several_threads_with_event_loops_of_their_own(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        ids = [new_run()[0].run_id for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            done = [
                pool.submit(anyio.run, _create_and_append, store, one, backend=("asyncio", "trio")[number % 2])
                for number, one in enumerate(ids)
            ]
            for one in done:
                one.result(60)
        assert {len(store.read_now(one)) for one in ids} == {11}
    finally:
        anyio.run(store.close)


async def test_a_change_that_the_server_cannot_have_committed_is_made(postgres: PostgresDatabase) -> None:
    """A standby that takes over without the last transactions has not come to their numbers yet."""
    store = PostgresStore(postgres.url)
    try:
        run_id = await created(store)
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            adapt(connection)
            with connection.transaction():
                connection.execute("SELECT pg_current_xact_id()")
                last = changes.transaction_of(connection)
            assert last is not None
            job = ChangeJob(partial(changes.post, run_id=run_id, body='{"type": "x"}', key=None))
            job.transaction, job.promised = replace(last, number=str(int(last.number) + 1_000_000)), -1
            changes.change_all(connection, [job])
        assert [message.id for message in await store.inbox([run_id])] == [job.result()]
    finally:
        await store.close()

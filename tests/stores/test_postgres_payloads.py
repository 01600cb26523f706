"""Payloads in PostgreSQL, when one transaction notes a use of one while another removes its last use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import anyio
import psycopg
import pytest

from orchestrator.errors import StoreCorrupt
from orchestrator.stores.postgres import PostgresStore, changes
from orchestrator.stores.postgres.connections import address_of, patiently, store_error
from orchestrator.stores.postgres.related_rows import keep, note
from orchestrator.stores.postgres.statements import adapt
from orchestrator.stores.requests import Append
from tests.stores.runs import add_run, event, events
from tests.support.postgres import PostgresDatabase

pytestmark = pytest.mark.anyio
LONG = "x" * 40_000


@contextmanager
def session(postgres: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose first statement begins a transaction."""
    with psycopg.connect(postgres.conninfo) as connection:
        adapt(connection)
        yield connection


def waits(postgres: PostgresDatabase, count: int = 1) -> None:
    """Wait until so many sessions wait for locks."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 60
    while postgres.execute(query) != [(count,)]:
        assert time.monotonic() < deadline, postgres.execute("SELECT state, wait_event, query FROM pg_stat_activity")
        time.sleep(0.01)


def counts(postgres: PostgresDatabase) -> tuple[int, int]:
    ((payloads,),) = postgres.execute("SELECT count(*) FROM payloads")
    ((uses,),) = postgres.execute("SELECT count(*) FROM payload_uses")
    return payloads, uses


async def add_two(store: PostgresStore) -> None:
    """One run has the payload; the other one is going to have it."""
    await add_run(store, "old", 1, LONG)
    await add_run(store, "new")


async def test_an_append_behind_the_removal_of_the_last_use_adds_the_payload_again(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        with session(postgres) as deleting:
            assert changes.delete(deleting, "old")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, Append("new", events(2, 1, LONG), after=1))
                await anyio.to_thread.run_sync(waits, postgres)
                deleting.commit()
        assert await store.read("new", after=1) == events(2, 1, LONG)
        assert counts(postgres) == (1, 1)
    finally:
        await store.close()


async def test_a_use_that_was_overtaken_is_noted_again_by_a_store_without_patience(postgres: PostgresDatabase) -> None:
    """The server is there, so nothing has to be waited for."""
    store = PostgresStore(postgres.url_with(patience=0))
    try:
        await add_two(store)
        with session(postgres) as deleting:
            deleting.execute("DELETE FROM payload_uses")
            deleting.execute("SELECT 1 FROM payloads FOR UPDATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, Append("new", events(2, 1, LONG), after=1))
                await anyio.to_thread.run_sync(waits, postgres)
                deleting.execute("DELETE FROM payloads")
                deleting.commit()
        assert await store.read("new", after=1) == events(2, 1, LONG)
    finally:
        await store.close()


def test_what_is_overtaken_without_end_is_given_up(postgres: PostgresDatabase) -> None:
    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise psycopg.errors.ForeignKeyViolation

    with pytest.raises(psycopg.errors.ForeignKeyViolation) as caught:
        patiently(fail, 0)
    assert tries == 6
    assert "keep removing the same long texts" in str(store_error(caught.value, address_of(postgres.url)))


async def test_a_removal_that_is_undone_leaves_the_payload_to_an_append_behind_it(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        with session(postgres) as deleting:
            assert changes.delete(deleting, "old")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, Append("new", events(2, 1, LONG), after=1))
                await anyio.to_thread.run_sync(waits, postgres)
                deleting.rollback()
        assert await store.read("new", after=1) == events(2, 1, LONG)
        assert await store.read("old") == events(1, 1, LONG)
        assert counts(postgres) == (1, 2)
    finally:
        await store.close()


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "undone"])
async def test_the_removal_of_a_use_sees_one_that_was_noted_meanwhile(postgres: PostgresDatabase, commit: bool) -> None:
    """A new run with the payload is not yet committed when the last other one is deleted."""
    store = PostgresStore(postgres.url)
    try:
        await add_run(store, "old", 1, LONG)
        digests = postgres.execute("SELECT digest FROM payloads")
        with session(postgres) as adding:
            adding.execute(
                "INSERT INTO payloads (digest, data) VALUES (%s, 'other') ON CONFLICT DO NOTHING", digests[0]
            )
            adding.execute("INSERT INTO payload_uses (digest, run) VALUES (%s, 99)", digests[0])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.delete, "old")
                await anyio.to_thread.run_sync(waits, postgres)
                if commit:
                    adding.commit()
                else:
                    adding.rollback()
        assert counts(postgres) == ((1, 1) if commit else (0, 0))
    finally:
        await store.close()


async def test_a_use_of_a_payload_that_was_removed_in_the_moment_before_is_noted_by_a_second_attempt(
    postgres: PostgresDatabase,
) -> None:
    """The append has found the payload there, and waits for something else, while the last other use is removed."""
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        ((number,),) = postgres.execute("SELECT id FROM runs WHERE run_id = 'new'")
        with session(postgres) as blocking, ThreadPoolExecutor(1) as pool:
            # the part of the append's statement that comes last has to wait for this row
            blocking.execute("INSERT INTO records VALUES (%s, 2, 0, '')", (number,))
            append: Future[int] = pool.submit(_append, postgres, event(2, LONG))
            waits(postgres)
            other = PostgresStore(postgres.url)
            assert await other.delete("old")
            await other.close()
            assert counts(postgres) == (0, 0)
            blocking.rollback()
            assert append.result(60) == 2
        assert await store.read("new", after=1) == events(2, 1, LONG)
        assert counts(postgres) == (1, 1)
        assert 'violates foreign key constraint "payload_uses_digest_fkey"' in postgres.server.log()
    finally:
        await store.close()


def _append(postgres: PostgresDatabase, record: Any) -> int:
    async def write() -> int:
        store = PostgresStore(postgres.url)
        try:
            return await store.append(Append("new", [record], after=1))
        finally:
            await store.close()

    return anyio.run(write)


async def test_two_last_uses_that_are_removed_at_once_remove_the_payload(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        await store.append(Append("new", events(2, 1, LONG), after=1))
        with session(postgres) as deleting:
            assert changes.delete(deleting, "old")
            assert counts(postgres) == (1, 2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.delete, "new")
                await anyio.to_thread.run_sync(waits, postgres)
                deleting.commit()
        assert counts(postgres) == (0, 0)
    finally:
        await store.close()


async def test_a_repair_leaves_what_gets_a_use_meanwhile(postgres: PostgresDatabase) -> None:
    """An append notes a use of an unused payload, and a use that was lost, while they are repaired."""
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        postgres.execute("DELETE FROM payload_uses")
        ((digest,),) = postgres.execute("SELECT digest FROM payloads")
        unused = b"y" * 40_000
        with session(postgres) as adding:
            keep(adding, 99, {sha256(unused).digest(): unused})
            adding.commit()
            adding.execute("DELETE FROM payload_uses WHERE run = 99")
            adding.commit()
            adding.execute("SELECT 1 FROM runs WHERE run_id = 'new' FOR NO KEY UPDATE")
            ((number,),) = adding.execute("SELECT id FROM runs WHERE run_id = 'new'").fetchall()
            note(adding, number, [sha256(unused).digest()])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(store.check, repair=True))
                await anyio.to_thread.run_sync(waits, postgres)
                adding.commit()
        assert {bytes(one) for (one,) in postgres.execute("SELECT digest FROM payloads")} == {
            bytes(digest), sha256(unused).digest(),
        }  # fmt: skip
        assert counts(postgres) == (2, 2)
        assert await store.read("old") == events(1, 1, LONG)
        assert await store.check() == []
    finally:
        await store.close()


async def test_payloads_are_locked_in_one_order(postgres: PostgresDatabase) -> None:
    """Appends and deletions of the same payloads, given in every order, never wait for each other in a circle."""
    stores = [PostgresStore(postgres.url) for _ in range(3)]
    texts = [letter * 40_000 for letter in "abcde"]
    try:

        async def come_and_go(at: int) -> None:
            store = stores[at % 3]
            for number in range(12):
                turned = texts[(at + number) % 5 :] + texts[: (at + number) % 5]
                await add_run(store, f"r{at}", 1, turned if at % 2 else turned[::-1])
                assert len(await store.read(f"r{at}")) == 1
                await store.delete(f"r{at}")

        async with anyio.create_task_group() as tasks:
            for at in range(12):
                tasks.start_soon(come_and_go, at)
        assert counts(postgres) == (0, 0)
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
            row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            assert row.fetchone() == (0,)
    finally:
        for store in stores:
            await store.close()


async def test_records_that_are_deleted_while_they_are_read_are_not_damaged(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their payloads are read by a statement of its own, and may be gone by then."""
    from orchestrator.errors import RunArchived, RunUnknown
    from orchestrator.stores.base import Archivable
    from orchestrator.testing.store_conformance.other_data import an_object, ended_run

    store, other = PostgresStore(postgres.url), PostgresStore(postgres.url)
    assert isinstance(store, Archivable)
    info, records = await ended_run(store)
    await store.append(Append(info.run_id, [event(3, LONG)], after=2))
    where = await store.note_object(info.run_id, an_object(info.run_id))
    execute: Any = psycopg.Connection.execute
    meanwhile: list[Any] = []

    def interrupted(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        if b"FROM payloads" in (query.encode() if isinstance(query, str) else bytes(query)) and meanwhile:
            meanwhile.pop(0)()
        return execute(self, query, *arguments, **named)

    def do(action: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(anyio.run, action).result(60)

    monkeypatch.setattr(psycopg.Connection, "execute", interrupted)
    try:
        out = partial(other.move_out, info.run_id, where, head=3)
        back = partial(other.move_back, info.run_id, [*records, event(3, LONG)], where)
        meanwhile.append(lambda: do(out))
        with pytest.raises(RunArchived):
            store.read_now(info.run_id)
        do(back)
        assert len(store.read_now(info.run_id)) == 3
        meanwhile.append(lambda: do(partial(other.delete, info.run_id)))
        with pytest.raises(RunUnknown):
            store.read_now(info.run_id)
    finally:
        await store.close()
        await other.close()


@pytest.mark.parametrize("how", ["append", "new run", "copy"])
async def test_a_damaged_payload_is_written_again_with_a_record_that_has_it(
    postgres: PostgresDatabase, how: str
) -> None:
    """So that what is acknowledged can be read; and by the same statement as ever."""
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        postgres.execute("UPDATE payloads SET data = overlay(data PLACING 'Y'::bytea FROM 100)")
        with pytest.raises(StoreCorrupt, match="does not have this digest"):
            await store.read("old")
        if how == "append":
            await store.append(Append("new", events(2, 1, LONG), after=1))
        elif how == "new run":
            await add_run(store, "third", 1, LONG)
        else:
            with session(postgres) as connection:
                keep(connection, 2, {sha256(LONG.encode()).digest(): LONG.encode()})
        assert await store.read("old") == events(1, 1, LONG)
        assert await store.check() == [] or how == "copy"
    finally:
        await store.close()


async def test_a_payload_that_is_sound_is_neither_written_nor_locked_by_another_use(postgres: PostgresDatabase) -> None:
    """Appends with a popular payload do not wait for each other, nor for those that note uses of it."""
    store = PostgresStore(postgres.url)
    try:
        await add_two(store)
        before = postgres.execute("SELECT ctid::text, xmin::text FROM payloads")
        with session(postgres) as other:
            other.execute("SELECT 1 FROM payloads FOR KEY SHARE")
            with anyio.fail_after(10):
                await store.append(Append("new", events(2, 1, LONG), after=1))
            digests = [digest for (digest,) in other.execute("SELECT digest FROM payloads")]
            keep(other, 99, {digests[0]: LONG.encode()})
            other.execute("SAVEPOINT mine")
            with session(postgres) as third:  # nothing but a use is locked
                third.execute("SET lock_timeout = 100")
                third.execute("SELECT 1 FROM payloads FOR NO KEY UPDATE")
        assert postgres.execute("SELECT ctid::text, xmin::text FROM payloads") == before
    finally:
        await store.close()

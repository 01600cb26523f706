"""A PostgreSQL server that has no room for a client, and clients that stand in the way of others."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import psycopg
import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.testing.store_conformance.helpers import append, created
from tests.support.postgres import PostgresDatabase, PostgresServer
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

T = TypeVar("T")

SLOTS = 8


@pytest.fixture(scope="module")
def narrow() -> Iterator[PostgresServer]:
    """A server with few connections."""
    found = PostgresServer.make(durable=False)
    try:
        found.make_template()
        found.execute(f"ALTER SYSTEM SET max_connections = {SLOTS}")
        found.execute("ALTER SYSTEM SET superuser_reserved_connections = 0")
        found.execute("ALTER SYSTEM SET max_wal_senders = 0")
        found.stop()
        found.start()
        found.create_database("narrow")
        yield found
    finally:
        found.remove()


def all_slots(server: PostgresServer, stack: ExitStack) -> None:
    """Take all connections that are left, until the stack is left."""
    error = None
    while error is None:
        try:
            stack.enter_context(closing(psycopg.connect(server.conninfo())))
        except psycopg.OperationalError as found:
            error = found
    assert re.search("too many clients|slots", str(error)), error


@pytest.mark.full
async def test_a_store_waits_for_a_connection_slot_and_goes_on_when_there_is_one(narrow: PostgresServer) -> None:
    store = open_store(narrow.url("narrow"))
    run_id = await created(store)
    with ExitStack() as stack:
        # its connections are gone, and others have taken their places
        narrow.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'narrow'")
        all_slots(narrow, stack)
        async with anyio.create_task_group() as tasks:
            heads: list[int] = []

            async def write() -> None:
                heads.append(await append(store, run_id, 1))

            tasks.start_soon(write)
            await anyio.sleep(0.5)
            assert heads == []
            stack.close()
            with anyio.fail_after(30):
                while not heads:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
    assert heads == [2]
    assert (await store.info(run_id)).head == 2
    await store.close()


async def test_a_store_that_is_not_patient_says_that_the_server_is_full_and_works_again_later(
    narrow: PostgresServer,
) -> None:
    store = open_store(f"{narrow.url('narrow')}&patience=0.2")
    run_id = await created(store)
    with ExitStack() as stack:
        narrow.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'narrow'")
        all_slots(narrow, stack)
        with pytest.raises(StoreUnavailable, match=r"too many clients|slots"):
            await append(store, run_id, 1)
        with pytest.raises(StoreUnavailable, match=r"too many clients|slots"):
            await store.info(run_id)
        with pytest.raises(StoreUnavailable, match=r"too many clients|slots"):
            open_store(narrow.url("narrow"))
    assert await append(store, run_id, 1) == 2
    assert (await store.info(run_id)).head == 2
    await store.close()


STOPS = """
import signal, sys, threading
from functools import partial
import anyio
from orchestrator.stores import open_store
from orchestrator.stores.postgres import changes

def post_and_stop(connection, run_id):
    number = changes.post(connection, run_id, '{"n": 1}', None)
    if not stopped:
        stopped.append(True)
        print("stops", flush=True)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # of the process, another thread might take it
    return number

async def main():
    store = open_store(sys.argv[1])
    number = await store._change(partial(post_and_stop, run_id=sys.argv[2]))
    print([message.id == number for message in await store.inbox([sys.argv[2]])], flush=True)
    await store.close()

stopped = []
anyio.run(main)
"""


STOPPED = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"


@pytest.mark.full
async def test_a_client_that_is_stopped_in_a_transaction_holds_up_one_run_for_a_while_and_no_other(
    postgres: PostgresDatabase,
) -> None:
    store = open_store(postgres.url)
    one, other = await created(store), await created(store)
    with closing(Piped([STOPS, postgres.url, one], module=CODE)) as stopped:
        assert stopped.line() == "stops\n"
        await aside(partial(until_stopped, postgres))
        assert await append(store, other, 1) == 2
        await store.post(other, {"n": 2})
        assert postgres.execute(STOPPED), "another run waited as well"
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.post, one, {"n": 3})  # waits, and so does what this store writes behind it
                assert await append(store, other, 2) == 3
        assert [message.body for message in await store.inbox([one])] == [{"n": 3}]
        stopped.signal(signal.SIGCONT)
        assert stopped.line() == "[False, True]\n"
        assert await aside(stopped.wait) == 0
    assert [message.body for message in await store.inbox([one])] == [{"n": 3}, {"n": 1}]
    await store.close()


def until_stopped(postgres: PostgresDatabase) -> None:
    """Wait until a client stands still in the middle of a transaction."""
    until = time.monotonic() + 60
    while not postgres.execute(STOPPED):
        assert time.monotonic() < until
        time.sleep(0.02)


async def aside(action: Callable[[], T]) -> T:
    """Do in a thread what waits for processes."""
    return await anyio.to_thread.run_sync(action)

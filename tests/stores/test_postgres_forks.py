"""A process with an open store in PostgreSQL that is forked: parent and child go on, each by connections of its own."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Awaitable, Callable

import anyio

from orchestrator.stores.postgres import PostgresStore
from orchestrator.stores.requests import Append, NewRun
from orchestrator.testing.store_conformance.helpers import events, new_run
from tests.support.pg_standby import wait_for
from tests.support.postgres import PostgresDatabase


def test_parent_and_child_go_on_after_a_fork(postgres: PostgresDatabase) -> None:
    store = PostgresStore(postgres.url)
    info, records = new_run()

    async def create() -> None:
        await store.create(NewRun(info, records))
        assert (await store.info(info.run_id)).head == 1
        store.alerts()

    async def append(after: int) -> None:
        assert await store.append(Append(info.run_id, events(after + 1), after=after)) == after + 1
        assert len(await store.read(info.run_id)) == after + 1
        await store.post(info.run_id, {})

    anyio.run(create)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_for(lambda: postgres.execute(sessions) == [(3,)])  # writes, reads, and, as the last, listens
    assert _in_a_child(lambda: append(1), store) == 0
    assert postgres.execute(sessions) == [(3,)], "the child ended sessions of its parent, or left some of its own"
    anyio.run(append, 2)
    assert _in_a_child(lambda: append(3), store) == 0
    anyio.run(append, 4)
    anyio.run(store.close)


def _in_a_child(act: Callable[[], Awaitable[None]], store: PostgresStore) -> int:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:

            async def go() -> None:
                await act()
                await store.close()

            anyio.run(go)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

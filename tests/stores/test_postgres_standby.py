"""Changes whose connection was cut by the end of the primary, asked again on the standby that took its place."""

from __future__ import annotations

from functools import partial

import anyio
import psycopg
import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.postgres import changes
from orchestrator.stores.postgres.changes import ChangeJob, Transaction, was_committed
from orchestrator.stores.postgres.connections import address_of, begin, connect
from orchestrator.stores.postgres.statements import Connection
from orchestrator.stores.requests import NewRun
from orchestrator.testing.store_conformance.helpers import new_run
from tests.support.pg_standby import wait_for, with_standby
from tests.support.postgres import PostgresServer


@pytest.mark.full
def test_a_number_that_the_standby_gave_to_another_transaction_does_not_pass_for_ours() -> None:
    with with_standby(synchronous=False) as (primary, standby):
        primary.create_database("runs")
        info, records = new_run()
        run_id = info.run_id

        async def create() -> None:
            store = open_store(primary.url("runs"))
            await store.create(NewRun(info, records))
            await store.close()

        anyio.run(create)
        with connect(address_of(primary.url("runs"))) as connection:
            had = posted(connection, run_id, '{"n":1}')
            wait_for(lambda: replayed(primary))
            standby.stop("immediate")
            lost = posted(connection, run_id, '{"n":2}')
        primary.kill()
        standby.start()
        standby.promote()
        with connect(address_of(standby.url("runs"))) as connection:
            while status(connection, lost) is None:
                connection.execute("SELECT pg_current_xact_id()")
            assert status(connection, had) == status(connection, lost) == "committed", "another one has its number"
            assert was_committed(connection, had)
            assert not was_committed(connection, lost)
            job = ChangeJob(partial(changes.post, run_id=run_id, body='{"n":2}', key=None))
            job.transaction, job.promised = lost, -1
            changes.change_all(connection, [job])
            assert job.result() != -1
            bodies = connection.execute("SELECT body FROM inbox ORDER BY id").fetchall()
            assert bodies == [('{"n":1}',), ('{"n":2}',)], "it was made once on this server"
        standby.stop()
        standby.start()
        with (
            connect(address_of(standby.url("runs"))) as connection,
            pytest.raises(StoreUnavailable, match="another server has taken over since"),
        ):
            was_committed(connection, had)


def posted(connection: Connection, run_id: str, body: str) -> Transaction:
    """Leave a message, as a store does; its transaction."""
    connection.execute(begin(), prepare=False)
    changes.post(connection, run_id, body, None)
    found = changes.transaction_of(connection)
    connection.execute("COMMIT")
    assert found is not None
    return found


def replayed(primary: PostgresServer) -> bool:
    """Whether the standby has all that the primary has."""
    return primary.execute("SELECT replay_lsn >= pg_current_wal_insert_lsn() FROM pg_stat_replication") == [(True,)]


def status(connection: Connection, transaction: Transaction) -> object:
    """What the server says of a number; None: it has not given it to any transaction."""
    try:
        row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (transaction.number,)).fetchone()
    except psycopg.errors.InvalidParameterValue:
        return None
    return row and row[0]

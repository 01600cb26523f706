"""A network that falls silent: a connection to PostgreSQL is given up in time to renew a lease by another one.

The server gives it up, too: it has room for so many, and cut-off clients come back with new ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psycopg
import pytest

from orchestrator import Executor
from orchestrator.stores.owner import Owner
from orchestrator.stores.postgres.connections import address_of, begin, connect_bare
from orchestrator.stores.rows import Lease
from tests.executor.errand_program import ERRAND
from tests.support.database_host import DatabaseHost
from tests.support.hosts import network
from tests.support.postgres import PostgresDatabase
from tests.support.programs import ROOT

pytestmark = pytest.mark.hosts

LEASE = 30.0
"""Seconds that a lease lasts by default; it is renewed every third of that."""
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE client_addr = %s::inet"
CLIENT = """
import sys, time
import psycopg
from orchestrator.stores.postgres.connections import connect_bare
from orchestrator.stores.postgres.connections import address_of
address = address_of(sys.argv[1])
connection = connect_bare(address)
print("ready", flush=True)
sys.stdin.readline()

def seconds(act):
    began = time.monotonic()
    try:
        act()
    except psycopg.Error:
        return time.monotonic() - began
    raise AssertionError("the network is not silent")

print(seconds(lambda: connection.execute("SELECT 1")), flush=True)
print(seconds(lambda: connect_bare(address)), flush=True)
"""


def test_a_connection_to_a_server_that_fell_silent_is_given_up_well_within_a_lease() -> None:
    with network() as net:
        database = DatabaseHost(net.host("database"))
        database.make()
        worker = net.host("worker")
        program = worker.run(
            [sys.executable, "-c", CLIENT, database.url()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert program.stdout.readline() == b"ready\n"
        worker.unplug()
        began = time.monotonic()
        program.say("go")
        given_up, not_made = (float(program.stdout.readline()) for _ in range(2))
        assert given_up < LEASE / 3, "the next beat comes then"
        assert not_made < LEASE / 4
        with psycopg.connect(database.url(), autocommit=True) as connection:
            while connection.execute(SESSIONS, (worker.address,)).fetchone() != (0,):
                assert time.monotonic() - began < LEASE, "the server keeps the sessions of a client that is gone"
                time.sleep(0.1)
        ended = time.monotonic() - began
    print(f"given up: a query after {given_up:.1f} s, connecting {not_made:.1f} s, by the server {ended:.1f} s at most")


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.anyio
async def test_who_falls_silent_in_the_middle_of_a_claim_holds_nobody_up_for_as_long_as_a_lease(
    postgres: PostgresDatabase,
) -> None:
    async with Executor(postgres.url, graphs=[ERRAND]) as executor:
        await executor.enqueue(ERRAND, 1, run_id="r")
        silent = connect_bare(address_of(postgres.url))
        try:
            silent.execute(begin(), prepare=False)
            silent.execute("SELECT 1 FROM runs FOR NO KEY UPDATE")
            owner = Owner.here()
            began = time.monotonic()
            lease = Lease("r", "token", owner.executor, owner.data())
            assert await executor.store.take_lease(lease, ttl=LEASE)
            waited = time.monotonic() - began
        finally:
            silent.close()
        await executor.store.drop_lease("r", "token")
    assert 1 < waited < LEASE / 3, "the next beat comes then"

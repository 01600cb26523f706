"""A network that falls silent: a connection to PostgreSQL is given up in time to renew a lease by another one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.database_host import DatabaseHost
from tests.support.hosts import network
from tests.support.programs import ROOT

pytestmark = pytest.mark.peer

LEASE = 30.0
"""Seconds that a lease lasts by default; it is renewed every third of that."""
CLIENT = """
import sys, time
import psycopg
from orchestrator.stores.postgres.connections import connect_bare
from orchestrator.stores.postgres.url import address_of
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
        database.host.unplug()
        program.say("go")
        given_up, not_made = (float(program.stdout.readline()) for _ in range(2))
        program.kill()
    assert given_up < LEASE / 3, "the next beat comes then"
    assert not_made < LEASE / 4
    print(f"a query was given up after {given_up:.1f} s, a new connection after {not_made:.1f} s")

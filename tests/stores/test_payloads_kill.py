"""A process that adds and deletes runs with payloads is killed at any statement: none is missing, and none is left."""

from __future__ import annotations

import signal

import anyio

from orchestrator.errors import RunUnknown
from orchestrator.stores import open_store
from tests.stores.runs import add_run, event
from tests.support.programs import run as run_program
from tests.support.sizes import sized
from tests.support.stores import Places, execute

LONG = ["a long text " * 4_000, "another one " * 5_000]
RUNS = ("a", "b")

_PROGRAM = """
import os, signal, sqlite3, sys

import anyio

from orchestrator.stores import Append, open_store
from tests.stores.runs import add_run, event
from tests.stores.test_payloads_kill import LONG, RUNS

url, left = sys.argv[1], int(sys.argv[2])

def pass_point(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

if url.startswith("sqlite"):
    connect = sqlite3.connect
    def traced(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(pass_point)
        return connection
    sqlite3.connect = traced
else:
    import psycopg
    run = psycopg.Connection.execute
    def execute(self, *args, **options):
        pass_point()
        found = run(self, *args, **options)
        pass_point()
        return found
    psycopg.Connection.execute = execute

async def work():
    store = open_store(url)
    for name in RUNS:
        await add_run(store, name)
        await store.append(Append(name, [event(2, LONG)], after=1))
        await store.append(Append(name, [event(3, LONG[0])], after=2))
    for name in RUNS:
        await store.delete(name)
    await store.close()

anyio.run(work)
print(-left)
"""


async def begin(url: str) -> None:
    """Make the tables of a store."""
    store = open_store(url)
    await add_run(store)
    await store.delete("r")
    await store.close()


async def look(url: str) -> None:
    """Check a store as the next process finds it."""
    store = open_store(url)
    records = [event(1), event(2, LONG), event(3, LONG[0])]
    held: set[str] = set()
    for name in RUNS:
        try:
            found = await store.read(name)
        except RunUnknown:
            continue
        assert found == records[: len(found)]
        if len(found) > 1:
            held.add(name)
    assert [one for one in await store.check() if not one.note] == []
    assert execute(url, "SELECT count(*) FROM payloads") == [(2 if held else 0,)]
    assert execute(url, "SELECT count(*) FROM payload_uses") == [(2 * len(held),)]
    for name in RUNS:
        await store.delete(name)
    assert execute(url, "SELECT count(*) FROM payloads") == [(0,)]
    await store.close()


def test_a_process_that_is_killed_leaves_payloads_and_records_that_belong_together(places: Places) -> None:
    url = places.new()
    anyio.run(begin, url)
    whole = run_program([_PROGRAM, url, 0])
    assert whole.code == 0, whole
    points, rounds = int(whole.out), sized(6, 20)
    for number in range(rounds):
        url = places.new()
        anyio.run(begin, url)
        killed = run_program([_PROGRAM, url, 1 + (points - 1) * (2 * number + 1) // (2 * rounds)])
        assert killed.code == -signal.SIGKILL, killed
        anyio.run(look, url)
        places.drop(url)

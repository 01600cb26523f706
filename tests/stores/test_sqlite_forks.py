"""Processes that are forked while a store is open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.programs import run

BEGIN = """
import os, signal, sys, threading, warnings
import anyio
from orchestrator.stores.requests import Append, RunQuery
from orchestrator.stores.sqlite import SQLiteStore
from tests.stores.runs import add_run, event

warnings.simplefilter("ignore")  # Python 3.12 warns of every fork while there are threads
BACKEND = sys.argv[1]


async def write(store, name):
    await add_run(store, name)
    for head in range(1, 20):
        await store.append(Append(name, [event(head + 1)], after=head))


async def heads(store):
    found = {info.run_id: info.head for info in (await store.runs(RunQuery())).runs}
    await store.close()
    return found


def told(path):
    return anyio.run(heads, SQLiteStore(path), backend=BACKEND)


store = SQLiteStore("runs.db")
anyio.run(write, store, "parent", backend=BACKEND)
"""

CHILDREN = {
    # the parent closes its store, and with it removes the log, before the child has written
    "goes on with the store": """
closed, ready = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(50)
    if "own" in sys.argv:
        store = SQLiteStore("runs.db")
        anyio.run(write, store, "early", backend=BACKEND)
    os.write(ready[1], b".")
    os.read(closed[0], 1)
    anyio.run(write, store, "child", backend=BACKEND)
    os._exit(0)  # as kill -9 ends it: nothing is closed
os.read(ready[0], 1)
anyio.run(store.close, backend=BACKEND)
os.write(closed[1], b".")
assert os.waitpid(child, 0)[1] == 0
expected = {"parent": 20, "child": 20} | ({"early": 20} if "own" in sys.argv else {})
assert told("runs.db") == expected, told("runs.db")
""",
    "leaves the parent alone": """
child = os.fork()
if child == 0:
    signal.alarm(50)
    anyio.run(store.close, backend=BACKEND)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
anyio.run(write, store, "after", backend=BACKEND)
assert told("runs.db") == {"parent": 20, "after": 20}
anyio.run(store.close, backend=BACKEND)
""",
    # somebody writes at the moment of the fork: the child gets no connection that is in use
    "while a write is under way": """
under_way, over = threading.Event(), threading.Event()


def slow(connection):
    under_way.set()
    over.wait(30)


other = threading.Thread(target=lambda: anyio.run(store._writer.write, slow, backend=BACKEND))
other.start()
under_way.wait(30)
child = os.fork()
if child == 0:
    signal.alarm(50)
    try:
        anyio.run(write, store, "child", backend=BACKEND)
    except Exception as error:
        os._exit(7 if "open it again" in str(error) else 8)
    os._exit(9)
over.set()
other.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
anyio.run(write, store, "after", backend=BACKEND)
assert told("runs.db") == {"parent": 20, "after": 20}
anyio.run(store.close, backend=BACKEND)
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize(
    ("child", "more", "backend"),
    [
        ("goes on with the store", "", "asyncio"),
        ("goes on with the store", "own", "trio"),
        ("leaves the parent alone", "", "asyncio"),
        ("while a write is under way", "", "trio"),
    ],
)
def test_of_a_forked_process_no_write_is_lost_and_none_hangs(
    tmp_path: Path, child: str, more: str, backend: str
) -> None:
    ran = run([BEGIN + CHILDREN[child], backend, more], cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")

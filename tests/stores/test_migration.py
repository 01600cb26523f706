"""Files of earlier schema versions become those of the newest, with rows and leases, wholly or not at all."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator import Executor
from orchestrator.kernel.records import encode
from orchestrator.stores import open_store
from orchestrator.stores.owner import Owner
from orchestrator.stores.requests import Append, RunQuery
from orchestrator.stores.sqlite.schema import MIGRATIONS, migrate, version_of
from orchestrator.stores.stored import checksum
from tests.data import totals4
from tests.stores.runs import events
from tests.support.programs import Ended
from tests.support.programs import run as run_program
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio
STORE = totals4.STORE.with_name("runs010.db.gz")
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of version 1, with runs of every strategy in every status."""
    path = tmp_path / "runs.db"
    path.write_bytes(gzip.decompress(STORE.read_bytes()))
    assert version(path) == 1
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return version_of(file)


@on_one_loop
async def test_a_file_of_version_1_opens_and_its_rows_say_what_happened(old: Path) -> None:
    async with Executor(f"sqlite:///{old}") as executor:
        listed = (await executor.runs(limit=1000)).runs
        assert len(listed) > 60
        for info in listed:
            run = await executor.load(info.run_id)
            assert info.status == run.status
            assert bool(info.error) == (run.error is not None), info
            assert info.error == str(run.error or "")
            assert bool(info.output) == (run.output not in (None, "")), info
            assert bool(info.question) == bool(run.waiting), info
            assert info.input, info
            assert (info.usage, info.steps, info.deaths) == (None, 0, 0)
            caller = run.machine.started.caller if run.machine.started is not None else None
            named = caller.run_id if caller is not None else run.labels.get("parent")
            assert (info.parent.run_id if info.parent is not None else None) == named
        children = [info for info in listed if info.parent is not None]
        assert children
        assert {info.parent.relation for info in children if info.parent is not None} == {"call"}
        assert (await executor.runs(search="87", status="completed")).runs
    assert version(old) == len(MIGRATIONS)


@on_one_loop
async def test_what_a_run_used_is_there_as_soon_as_it_is_written_again(old: Path) -> None:
    async with Executor(f"sqlite:///{old}") as executor:
        await executor.cancel("react-approval")
        (info,) = [one for one in (await executor.runs(limit=1000)).runs if one.run_id == "react-approval"]
        run = await executor.load("react-approval")
        assert (info.status, info.steps, info.usage) == ("cancelled", run.steps, run.usage)


@on_one_loop
async def test_a_living_lease_of_version_1_is_waited_for_and_a_dead_one_is_not(old: Path) -> None:
    elsewhere = {**Owner.here().data(), "host": "elsewhere", "boot": "another", "ttl": 1.5}
    dead = {**Owner.here().data(), "start": "1", "ttl": 30.0}
    with closing(sqlite3.connect(old, isolation_level=None)) as file:
        ids = [row[0] for row in file.execute("SELECT id FROM runs WHERE status = 'running' ORDER BY id LIMIT 3")]
        names = [file.execute("SELECT run_id FROM runs WHERE id = ?", (number,)).fetchone()[0] for number in ids]
        file.execute("DELETE FROM leases")
        for number, owner, expires in (
            (ids[0], elsewhere, time.time() + 1.5), (ids[1], dead, time.time() + 30), (ids[2], {}, time.time() + 30),
        ):  # fmt: skip
            file.execute("INSERT INTO leases VALUES (?, ?, ?, ?)", (number, f"t{number}", json.dumps(owner), expires))
    async with Executor(f"sqlite:///{old}") as executor:
        rows = {info.run_id: info for info in (await executor.runs(limit=1000)).runs}
        assert [rows[name].status for name in names] == ["running", "interrupted", "interrupted"]
        lease = await executor.store.lease(names[0])
        assert lease is not None
        assert 0 < lease.left <= 1.5
        time.sleep(1.6)  # noqa: ASYNC251  until it has expired, which nothing tells
        assert names[0] in await executor.workers.recoverable()


KILLED = """
import os, signal, sqlite3, sys
from orchestrator.stores.sqlite.schema import migrate

count, most = 0, int(sys.argv[2])

def trace(statement):
    global count
    count += 1
    if count == most:
        os.kill(os.getpid(), signal.SIGKILL)

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.set_trace_callback(trace)
migrate(connection, "url")
print(count)
"""


def test_a_migration_that_is_killed_happens_wholly_or_not_at_all(old: Path, tmp_path: Path) -> None:
    def told(path: Path) -> tuple[object, ...]:
        with closing(sqlite3.connect(path)) as file:
            tables = file.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
            return version_of(file), tables, file.execute("SELECT run_id, status, head FROM runs").fetchall()

    def run(path: Path, most: int) -> Ended:
        return run_program([KILLED, path, most])

    before, path = told(old), tmp_path / "killed.db"
    path.write_bytes(old.read_bytes())
    statements = int(run(path, 0).out)
    after = told(path)
    assert (before[0], after[0]) == (1, len(MIGRATIONS))
    points = sized([statements // 2, statements], [*range(1, statements, statements // 20), statements])
    for most in points:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
        path.write_bytes(old.read_bytes())
        killed = run(path, most)
        assert killed.code == -signal.SIGKILL, (most, killed)
        assert told(path) in (before, after), most
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            migrate(file, "url")
        assert told(path)[1:] == after[1:]


def test_a_new_file_is_as_one_that_went_through_every_version() -> None:
    def told(file: sqlite3.Connection) -> dict[str, tuple[object, ...]]:
        made = file.execute("SELECT name, type, tbl_name, sql FROM sqlite_schema").fetchall()
        tables = [name for name, kind, _, _ in made if kind == "table"]
        rows = {f"rows of {name}": (*file.execute(f"SELECT * FROM {name}"),) for name in tables if name != "clocks"}
        return {**rows, **{name: what for name, *what in made}}

    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as new,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as old,
    ):
        migrate(new, "url")
        for version in range(len(MIGRATIONS)):
            migrate(old, "url", MIGRATIONS[: version + 1])
        assert told(new) == told(old)
        assert version_of(new) == version_of(old) == len(MIGRATIONS)


@on_one_loop
async def test_a_damaged_file_of_version_1_is_opened_and_says_what_is_damaged(old: Path) -> None:
    with closing(sqlite3.connect(old, isolation_level=None)) as file:
        file.execute("UPDATE records SET data = x'ff00' WHERE id & 4294967295 = 1")
        file.execute("UPDATE graphs SET data = '{' WHERE rowid % 2 = 0")
        file.execute("UPDATE runs SET head = 9e99 WHERE id = 1")
    store = open_store(f"sqlite:///{old}")
    assert len((await store.runs(RunQuery(limit=1000))).runs) > 60
    await store.close()
    assert os.path.getsize(old)


def file_of_version_3(path: Path) -> None:
    """A file with runs, labels and a full-text index, as version 3 of the schema has them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        migrate(file, "url", MIGRATIONS[:3])
        for number, said in ((1, "roses are red"), (2, "violets are blue")):
            file.execute(
                "INSERT INTO runs (id, run_id, graph, status, labels, created, updated, head, structure, content,"
                " waiting) VALUES (?, ?, 'g', 'paused', ?, ?, ?, 0, '', '', ?)",
                (number, f"r{number}", json.dumps({"team": f"team{number}"}), number, number, number - 1),
            )
            file.execute("INSERT INTO labels VALUES ('team', ?, ?, ?)", (f"team{number}", number, number))
            file.execute(
                "INSERT INTO summaries (run, error, input, output, question, steps, usage, indexed)"
                " VALUES (?, '', ?, '', '', 0, NULL, 1)",
                (number, said),
            )
        file.execute("CREATE VIRTUAL TABLE search USING fts5 (words)")
        file.execute("INSERT INTO search (rowid, words) VALUES (1, 'roses are red'), (2, 'violets are blue')")


FINDS = """
import sys
import anyio
from orchestrator.stores import RunQuery, open_store
from tests.executor.program import powerless

async def work():
    store = open_store(sys.argv[1])
    for filters in ({"search": "violets"}, {"search": "team1"}, {"waiting": True}, {"failed_tool": ""}, {}):
        print([info.run_id for info in (await store.runs(RunQuery(**filters))).runs])
    await store.close()

powerless()
anyio.run(work)
"""
FOUND = "['r2']\n['r1']\n['r2']\n[]\n['r2', 'r1']\n"


def test_a_file_of_version_3_is_searched_by_its_labels_and_also_where_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "runs.db"
    path.parent.mkdir()
    file_of_version_3(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        ended = run_program([FINDS, f"sqlite:///{path}"])
        assert (ended.code, ended.out) == (0, FOUND), ended
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)
    assert version(path) == 3
    ended = run_program([FINDS, f"sqlite:///{path}"])
    assert (ended.code, ended.out) == (0, FOUND), ended
    assert version(path) == len(MIGRATIONS)


SAYS = """
import json, sys
from dataclasses import asdict
import anyio
from orchestrator import Executor
from tests.executor.program import powerless

async def work():
    async with Executor(sys.argv[1]) as executor:
        expected = json.load(open(sys.argv[2]))
        stats = {}
        for by in expected["stats"]:
            rows = await executor.stats(by.split(",") if by else ())
            stats[by] = [asdict(row) | {"group": dict(row.group)} for row in rows]
        ids = [info.run_id for info in (await executor.runs()).runs]
        totals = {run_id: await executor.store.totals(run_id) for run_id in ids}
        said = {run_id: None if one is None else asdict(one) for run_id, one in totals.items()}
        failed = {name: [info.run_id for info in (await executor.runs(failed_tool=name)).runs]
                  for name in expected["failed"]}
        found = json.loads(json.dumps({"stats": stats, "totals": said, "failed": failed}))
        for what, value in expected.items():
            assert found[what] == value, what
        print([one.run_id for one in (await executor.questions()).questions])

powerless()
anyio.run(work)
"""


def test_a_file_of_version_4_says_the_same_of_its_runs_also_where_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "runs.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(totals4.STORE.read_bytes()))
    assert version(path) == 4
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        ended = run_program([SAYS, f"sqlite:///{path}", totals4.EXPECTED])
        assert (ended.code, ended.out) == (0, "['r3', 'r4', 'asks']\n"), ended
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)
    assert version(path) == 4
    ended = run_program([SAYS, f"sqlite:///{path}", totals4.EXPECTED])
    assert (ended.code, ended.out) == (0, "['r3', 'r4', 'asks']\n"), ended
    assert version(path) == len(MIGRATIONS)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM unlisted").fetchone() == (0,)  # its questions are listed for good


def file_of_version_6(path: Path) -> None:
    """A file with two runs, whose records are whole, as version 6 of the schema has them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        migrate(file, "url", MIGRATIONS[:6])
        for number, name in ((1, "a"), (2, "b")):
            file.execute(
                "INSERT INTO runs (id, run_id, graph, status, labels, created, updated, head, structure, content,"
                " waiting) VALUES (?, ?, 'essay', 'running', '{}', 1.0, 1.0, 2, '', '', 0)",
                (number, name),
            )
            for record in events(1, 2, LONG):
                data = encode(record)
                row = (number << 32 | record.seq, checksum(name, record.seq, data), data)
                file.execute("INSERT INTO records VALUES (?, ?, ?)", row)


LONG = "a long text " * 20_000

READS = """
import sys
import anyio
from orchestrator.stores import RunQuery, open_store
from tests.executor.program import powerless
from tests.stores.runs import events
from tests.stores.test_migration import LONG

async def work():
    store = open_store(sys.argv[1])
    assert await store.read("a") == store.read_now("a") == events(1, 2, LONG)
    print([one.what for one in await store.check()])
    await store.close()

powerless()
anyio.run(work)
"""


def test_a_file_whose_records_are_whole_is_read_where_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "runs.db"
    path.parent.mkdir()
    file_of_version_6(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        ended = run_program([READS, f"sqlite:///{path}"])
        assert (ended.code, version(path)) == (0, 6), ended
        assert "payload" not in ended.out
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)


@on_one_loop
async def test_whole_records_of_version_6_stay_as_they_are_and_new_ones_have_payloads(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    file_of_version_6(path)
    store = open_store(f"sqlite:///{path}")
    assert await store.read("a") == events(1, 2, LONG)
    await store.append(Append("a", events(3, 1, LONG), after=2))
    await store.append(Append("b", events(3, 2, [LONG]), after=2))
    assert await store.read("a") == events(1, 3, LONG)
    assert await store.read("b") == [*events(1, 2, LONG), *events(3, 2, [LONG])]
    assert [one for one in await store.check() if not one.note] == []
    with closing(sqlite3.connect(path)) as file:
        assert version_of(file) == len(MIGRATIONS)
        lengths = [length for (length,) in file.execute("SELECT length(data) FROM records ORDER BY id")]
        assert [length > len(LONG) for length in lengths] == [True, True, False, True, True, False, False]
        assert file.execute("SELECT count(*), sum(length(data)) FROM payloads").fetchone() == (1, len(LONG))
        shown = file.execute("SELECT record FROM journal WHERE run_id = 'a'").fetchall()
        assert [json.loads(text)["data"].startswith("sha256:") for (text,) in shown] == [False, False, True]
    await store.delete("a")
    assert (await store.read("b"))[2:] == events(3, 2, [LONG])
    await store.close()

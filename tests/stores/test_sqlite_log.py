"""Logs that dead processes left, whose bits flipped: what was acknowledged is there, or its loss is told."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestrator import Executor
from orchestrator.errors import StoreError
from orchestrator.kernel.records import Record
from orchestrator.stores import open_store
from orchestrator.stores.requests import Append, RunQuery
from orchestrator.stores.sqlite.connections import LogSpace
from orchestrator.stores.sqlite.files import kept_log
from tests.stores.runs import add_run, events
from tests.support.executors import chain, says
from tests.support.programs import next_line, piped
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio
COMMITS = 8


async def left_behind(tmp_path: Path) -> Path:
    """A file and its log as a killed process leaves them: one append a commit."""
    store = open_store(f"sqlite:///{tmp_path}/live.db")
    await add_run(store)
    reader = sqlite3.connect(tmp_path / "live.db")  # keeps the log from being begun anew
    for seq in range(2, COMMITS + 2):
        await store.append(Append("r", events(seq, data="x" * 500), after=seq - 1))
    (tmp_path / "left").mkdir()
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"live.db{end}", tmp_path / "left" / f"runs.db{end}")
    reader.close()
    await store.close()
    return tmp_path / "left" / "runs.db"


def frames_of(log: Path) -> list[tuple[int, bool]]:
    """Where each page of a log begins, and whether a commit ends with it. Zeros behind them are room for others."""
    data = log.read_bytes()
    (page,) = struct.unpack(">I", data[8:12])
    places = [at for at in range(32, len(data) - 23, page + 24) if any(data[at : at + 24])]
    return [(at, struct.unpack(">I", data[at + 4 : at + 8])[0] != 0) for at in places]


def copied(path: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for end in ("", "-wal"):
        shutil.copy(path.with_name(path.name + end), to / f"runs.db{end}")
    return to / "runs.db"


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


async def records_of(path: Path) -> list[Record]:
    store = open_store(f"sqlite:///{path}")
    try:
        return await store.read("r")
    finally:
        await store.close()


async def test_a_whole_log_is_read_to_its_end(tmp_path: Path) -> None:
    path = await left_behind(tmp_path)
    assert len(await records_of(copied(path, tmp_path / "copy"))) == COMMITS + 1
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["runs.db"]


@quick_on("trio")
async def test_a_bit_that_flips_in_the_log_loses_the_last_commit_at_most_or_is_told(tmp_path: Path) -> None:
    path = await left_behind(tmp_path)
    log = path.with_name("runs.db-wal")
    frames = frames_of(log)
    commits = [at for at, ends in frames if ends]
    last = commits[-2]
    step = frames[1][0] - frames[0][0]
    random.seed(5)
    places = [*range(32), *(at + offset for at, _ in frames for offset in (0, 5, 9, 13, 17, 21, 24, step - 1))]
    places += random.sample(range(frames[-1][0] + step), 40)
    places = places[:: sized(7, 1)]  # of each frame other bytes
    told = 0
    for at in places:
        copy = copied(path, tmp_path / "copy")
        flip(copy.with_name("runs.db-wal"), at, random.randrange(8))
        try:
            found = await records_of(copy)
        except StoreError:
            told += 1
            assert kept_log(copy).exists()
        else:
            assert len(found) >= COMMITS if at >= last + step else len(found) == COMMITS + 1, at
    assert told > len(places) // 2


async def test_a_damaged_log_is_kept_and_told_until_it_is_deleted(tmp_path: Path) -> None:
    path = await left_behind(tmp_path)
    log = path.with_name("runs.db-wal")
    flip(log, [at for at, ends in frames_of(log) if ends][-4] + 100)
    damaged = log.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"runs\.db-wal was damaged.*commits that were acknowledged are lost"):
            open_store(f"sqlite:///{path}")
    assert kept_log(path).read_bytes() == damaged
    assert kept_log(path).stat().st_mode & 0o777 == 0o600
    kept_log(path).unlink()
    found = await records_of(path)
    assert found == [*events(1), *events(2, COMMITS, data="x" * 500)][: len(found)]


async def test_a_run_that_was_completed_does_not_come_back_as_interrupted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/live.db"
    graph = chain(says("a"), says("b"))
    async with Executor(url, graphs=[graph]) as executor:
        reader = sqlite3.connect(tmp_path / "live.db")
        await executor.start(graph, run_id="r")
        await executor.start(graph, run_id="later")
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"live.db{end}", tmp_path / f"runs.db{end}")
        reader.close()
    log = tmp_path / "runs.db-wal"
    flip(log, [at for at, ends in frames_of(log) if ends][-4] + 50)
    with pytest.raises(StoreError, match="was damaged"):
        Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph])


async def test_what_a_write_that_broke_off_or_an_older_log_left_is_no_damage(tmp_path: Path) -> None:
    path = await left_behind(tmp_path)
    log = path.with_name("runs.db-wal")
    whole, frames = log.read_bytes(), frames_of(log)
    ends = [at for at, commit in frames if commit]
    step = frames[1][0] - frames[0][0]
    for cut in (0, 31, 40, ends[0], ends[-2] + 10, ends[-1] + step - 1, len(whole) - 1):
        copy = copied(path, tmp_path / "copy")
        copy.with_name("runs.db-wal").write_bytes(whole[:cut])
        await count_of(copy)
    # the disk wrote the pages of the last commit in another order, and the power failed before all were there
    copy = copied(path, tmp_path / "copy")
    first = ends[-2] + step
    copy.with_name("runs.db-wal").write_bytes(whole[:first] + bytes(64) + whole[first + 64 :])
    assert len(await records_of(copy)) == COMMITS
    # a log that was begun anew over a longer one
    copy = copied(path, tmp_path / "copy")
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint")
        connection.execute("CREATE TABLE more (n)")
        again = copied(copy, tmp_path / "again")
    again.with_name("runs.db-wal").stat()
    assert len(await records_of(again)) == COMMITS + 1


@quick_on("asyncio")
async def test_commits_find_room_in_the_log_and_seldom_make_it_longer(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await add_run(store)
    sizes: list[int] = []
    for seq in range(2, 62):
        await store.append(Append("r", events(seq), after=seq - 1))
        sizes.append((tmp_path / "runs.db-wal").stat().st_size)
    assert len(set(sizes[8:])) < 10
    copy = copied(tmp_path / "runs.db", tmp_path / "left")  # as a process leaves it that is killed
    assert await records_of(copy) == events(1, 61)
    await store.close()


@quick_on("asyncio")
async def test_room_is_made_while_no_other_process_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await add_run(store)
    busy: list[bool] = []
    make = LogSpace.make

    def made(self: LogSpace) -> None:
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None, timeout=0.0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                busy.append(True)
            else:
                busy.append(False)
                other.execute("ROLLBACK")
        make(self)

    monkeypatch.setattr(LogSpace, "make", made)
    for seq in range(2, 30):
        await store.append(Append("r", events(seq), after=seq - 1))
    assert busy
    assert all(busy)
    await store.close()


async def test_a_log_that_cannot_get_room_takes_commits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.stores.sqlite.connections.open", refused, raising=False)
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await add_run(store)
    for seq in range(2, 30):
        await store.append(Append("r", events(seq), after=seq - 1))
    assert len(await store.read("r")) == 29
    await store.close()


def refused(*_: object, **__: object) -> None:
    raise PermissionError("no")


CHECKPOINTS = """
import fcntl, sys

with open(sys.argv[1], "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # WAL_CKPT_LOCK, see https://www.sqlite.org/walformat.html
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def emptying(path: Path) -> Iterator[None]:
    """Hold the lock of a process that empties the log of a file."""
    words = [sys.executable, "-c", CHECKPOINTS, f"{path}-shm"]
    with piped(words, stdin=subprocess.PIPE) as (_, said):
        assert next_line(said) == "ready\n"
        yield


@quick_on("asyncio")
async def test_a_store_is_whole_while_another_process_empties_its_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    await add_run(store)
    for seq in range(2, 10):
        await store.append(Append("r", events(seq), after=seq - 1))
    with emptying(tmp_path / "runs.db"):
        other = open_store(url)
        assert len(await other.read("r")) == 9
        await other.close()
    assert not kept_log(tmp_path / "runs.db").exists()
    await store.close()


async def count_of(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    await store.runs(RunQuery())
    await store.close()


@pytest.mark.full
@quick_on("asyncio")
async def test_a_store_that_others_write_to_is_opened_over_and_over(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = open_store(url)
    await add_run(store)
    for seq in range(2, 60):
        await store.append(Append("r", events(seq), after=seq - 1))
        other = open_store(url)
        assert len(await other.read("r")) == seq
        await other.close()
    await store.close()


def test_room_is_never_made_over_what_is_written_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process does whose store has taken the place of one that was moved away."""
    log, stat = tmp_path / "runs.db-wal", os.stat
    log.write_bytes(b"frame" * 10)

    def looked(path: str) -> os.stat_result:
        found = stat(path)
        with log.open("ab") as other:
            other.write(b"more")
        return found

    monkeypatch.setattr(os, "stat", looked)
    LogSpace(tmp_path / "runs.db").make()
    monkeypatch.undo()
    assert log.read_bytes() == b"frame" * 10 + b"more" + bytes(50)
    log.unlink()
    LogSpace(tmp_path / "runs.db").make()
    assert not log.exists()

"""Who reads: the task that asks, what is small and quick, and a thread as soon as anything has to be waited for."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from orchestrator.errors import RunUnknown, StoreCorrupt, StoreUnavailable
from orchestrator.stores.requests import Append
from orchestrator.stores.sqlite import SQLiteStore, connections
from orchestrator.stores.sqlite.reads import FEW_BYTES, FEW_RECORDS
from tests.stores.runs import add_run, event, events

pytestmark = pytest.mark.anyio


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is handed to a thread from now on, while every read is quick enough: this machine may be busy."""
    monkeypatch.setattr(connections, "QUICK", 60.0)
    found: list[str] = []
    run_sync: Callable[..., Any] = anyio.to_thread.run_sync

    async def counted(action: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        found.append(getattr(action, "__name__", "?"))
        return await run_sync(action, *args, **kw)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
    return found


async def opened(path: Path, count: int = 4) -> SQLiteStore:
    """A store with a run that was opened by its file, as by another process."""
    first = SQLiteStore(path / "runs.db")
    await add_run(first, "r")
    await first.append(Append("r", events(2, count - 1), after=1))
    await first.put_snapshot("r", count, b"folded")
    await first.close()
    return SQLiteStore(path / "runs.db")


async def test_the_row_the_snapshot_and_a_few_records_are_read_without_a_thread(
    tmp_path: Path, hops: list[str]
) -> None:
    store = await opened(tmp_path)
    hops.clear()
    assert (await store.info("r")).head == 4
    assert await store.snapshot("r") == (4, b"folded")
    assert [one.seq for one in await store.read("r")] == [1, 2, 3, 4]
    assert await store.lease("r") is None
    assert await store.inbox(["r"]) == []
    assert await store.heads(["r", "none"]) == {"r": (4, "running")}
    with pytest.raises(RunUnknown):
        await store.info("none")
    assert hops == []
    await store.close()


async def test_what_is_large_is_read_by_a_thread(tmp_path: Path, hops: list[str]) -> None:
    store = await opened(tmp_path, FEW_RECORDS + 1)
    await store.put_snapshot("r", 1, b"x" * FEW_BYTES)
    await store.put_snapshot("r", 2, b"x" * (FEW_BYTES + 1))
    hops.clear()
    assert len(await store.read("r", upto=FEW_RECORDS)) == FEW_RECORDS
    assert await store.snapshot("r", upto=1) == (1, b"x" * FEW_BYTES)
    assert hops == []
    assert len(await store.read("r")) == FEW_RECORDS + 1
    assert len(hops) == 1
    assert await store.snapshot("r", upto=2) == (2, b"x" * (FEW_BYTES + 1))
    assert len(hops) == 2
    await store.append(Append("r", [event(FEW_RECORDS + 2, "x" * FEW_BYTES)], after=FEW_RECORDS + 1))
    hops.clear()
    assert len(await store.read("r", after=FEW_RECORDS)) == 2
    assert len(hops) == 1
    hops.clear()
    assert len(await store.heads(["r", *(f"r{number}" for number in range(FEW_RECORDS))])) == 1
    assert len(hops) == 1
    await store.post("r", {"text": "x" * FEW_BYTES})
    hops.clear()
    assert len(await store.inbox(["r"])) == 1
    assert len(hops) == 1
    await store.close()


async def test_slow_reads_are_left_to_threads_until_they_are_quick_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    threads: list[int] = []

    def who(_: sqlite3.Connection) -> None:
        threads.append(threading.get_ident())

    async def read(times: int) -> list[bool]:
        threads.clear()
        for _ in range(times):
            await store._readers.read(who, small=who)
        return [one == threading.get_ident() for one in threads]

    monkeypatch.setattr(connections, "QUICK", 60.0)
    assert await read(3) == [True] * 3
    for limit in ("QUICK", "_QUICK_THERE"):
        monkeypatch.setattr(connections, limit, -1.0)  # every read takes a second longer than it may
    assert await read(4) == [True, False, False, False]  # that the first would be slow, nobody knew
    for limit in ("QUICK", "_QUICK_THERE"):
        monkeypatch.setattr(connections, limit, 60.0)
    assert await read(4) == [False, True, True, True]
    monkeypatch.setattr(connections, "QUICK", -0.6 * connections.MOST_DEBT)
    assert await read(1) == [True]
    monkeypatch.setattr(connections, "QUICK", 60.0)
    assert await read(2) == [True, True]  # now and then a read may be slow
    await store.close()


async def test_that_large_reads_take_long_makes_no_small_read_wait_for_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hops: list[str]
) -> None:
    store = await opened(tmp_path, FEW_RECORDS + 1)
    monkeypatch.setattr(connections, "_QUICK_THERE", -1.0)
    hops.clear()
    assert len(await store.read("r")) == FEW_RECORDS + 1
    assert len(hops) == 1
    assert (await store.info("r")).head == FEW_RECORDS + 1
    assert len(hops) == 1
    monkeypatch.setattr(connections, "QUICK", -1.0)
    await store.info("r")  # a slow one
    monkeypatch.setattr(connections, "_QUICK_THERE", 60.0)
    assert len(await store.read("r")) == FEW_RECORDS + 1  # says nothing of small ones
    hops.clear()
    await store.info("r")
    assert len(hops) == 1
    await store.close()


async def test_a_slow_disk_holds_up_the_event_loop_once(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    here: list[bool] = []

    def slow(_: sqlite3.Connection) -> None:
        here.append(threading.get_ident() == loop)
        time.sleep(connections.MOST_DEBT + 0.02)

    loop = threading.get_ident()
    for _ in range(3):
        await store._readers.read(slow, small=slow)
    assert here == [True, False, False]
    await store.close()


async def test_a_file_that_another_locks_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    made = await opened(tmp_path)
    await made.close()
    (tmp_path / "runs.db").rename(tmp_path / "later.db")
    store = SQLiteStore(tmp_path / "runs.db")
    (tmp_path / "later.db").rename(tmp_path / "runs.db")
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    heads: list[int] = []

    async def read() -> None:
        heads.append((await store.info("r")).head)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for _ in range(20):  # a loop that waited for the lock itself would not have so many turns
            await anyio.sleep(0.01)
        assert not heads
        other.close()
    assert heads == [4]
    await store.close()


async def test_a_read_that_meets_a_lock_is_made_again_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    monkeypatch.setattr(connections, "QUICK", 60.0)
    threads: list[int] = []

    def locked(connection: sqlite3.Connection) -> int:
        threads.append(threading.get_ident())
        if len(threads) < 4:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        found: int = connection.execute("SELECT head FROM runs").fetchone()[0]
        return found

    assert await store._readers.read(locked, small=locked) == 4
    assert [one == threading.get_ident() for one in threads] == [True, False, False, False]
    await store.close()


async def test_reads_of_the_task_let_others_run_and_hear_of_cancellation(tmp_path: Path, hops: list[str]) -> None:
    store = await opened(tmp_path)
    hops.clear()
    turns, reading = 0, True

    async def other() -> None:
        nonlocal turns
        while reading:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        for _ in range(50):
            await store.info("r")
        reading = False
    assert turns >= 40
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.info("r")
        pytest.fail("a cancelled task has read")
    assert hops == []
    await store.close()


async def test_what_is_wrong_with_the_file_is_told_as_by_a_thread(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.info("r")
    with sqlite3.connect(tmp_path / "runs.db") as other:
        other.execute("UPDATE records SET data = zeroblob(10) WHERE id & 0xffffffff = 3")
    other.close()
    with pytest.raises(StoreCorrupt, match="record 3"):
        await store.read("r")
    (tmp_path / "runs.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreUnavailable, match="removed or renamed"):
        await store.info("r")
    (tmp_path / "moved.db").rename(tmp_path / "runs.db")
    assert (await store.info("r")).head == 4
    await store.close()
    assert (await store.info("r")).head == 4  # by a connection for this read

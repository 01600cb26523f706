"""Who commits: the task that writes, while that is quick, and the thread as soon as anything has to be waited for."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator.errors import RunConflict, StoreError
from orchestrator.stores.sqlite import SQLiteStore, writes
from orchestrator.stores.sqlite.writer import Write, Writer
from tests.stores.runs import add_run, event, events

pytestmark = pytest.mark.anyio


async def warm(store: SQLiteStore, run_id: str = "r", count: int = 40) -> int:
    """Enough commits that the writer knows how quick they are."""
    await add_run(store, run_id)
    for seq in range(2, count + 2):
        await store.append(run_id, [event(seq)], after=seq - 1)
    return count + 1


async def test_a_lock_of_another_process_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    head = await warm(store)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    turns = 0

    async def write() -> None:
        await store.append("r", [event(head + 1)], after=head)
        written.set()

    written = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        began = time.monotonic()
        while time.monotonic() - began < 0.3:
            await anyio.sleep(0.01)
            turns += 1
        assert not written.is_set()
        other.execute("ROLLBACK")
        with anyio.fail_after(5):
            await written.wait()
    other.close()
    # A loop that waited for the lock itself would have had a turn or two.
    assert turns > 10
    assert [record.seq for record in await store.read("r")][-1] == head + 1
    await store.close()


async def test_tasks_that_are_ready_share_a_commit(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await warm(store)
    for number in range(50):
        await add_run(store, f"r{number}")
    heads = [1] * 50

    async def write(number: int) -> None:
        for _ in range(20):
            heads[number] = await store.append(f"r{number}", [event(heads[number] + 1)], after=heads[number])

    before = store.statistics()
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(write, number)
    after = store.statistics()
    assert heads == [21] * 50
    assert after.writes - before.writes == 1000
    assert after.commits - before.commits < 200
    for number in range(50):
        assert [record.seq for record in await store.read(f"r{number}")] == list(range(1, 22))
    await store.close()


async def test_of_two_appends_to_one_head_one_wins_wherever_they_are_committed(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    head = await warm(store)
    outcomes: list[str] = []

    async def write() -> None:
        try:
            await store.append("r", [event(head + 1)], after=head)
            outcomes.append("won")
        except RunConflict:
            outcomes.append("lost")

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(write)
    assert sorted(outcomes) == ["lost"] * 9 + ["won"]
    assert store.statistics().refused == 9
    await store.close()


async def test_a_cancelled_write_is_made_and_told_of(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    head = await warm(store)
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await store.append("r", [event(head + 1)], after=head) == head + 1
    assert len(await store.read("r")) == head + 1
    await store.close()


async def test_writes_of_several_event_loops_keep_their_order(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await warm(store)
    for name in "abcd":
        await add_run(store, name)

    def other_loop(name: str) -> None:
        async def write() -> None:
            for seq in range(2, 102):
                await store.append(name, [event(seq)], after=seq - 1)

        anyio.run(write)

    async with anyio.create_task_group() as tasks:
        for name in "abcd":
            tasks.start_soon(anyio.to_thread.run_sync, other_loop, name)
    for name in "abcd":
        assert [record.seq for record in await store.read(name)] == list(range(1, 102))
    await store.close()


async def test_a_file_that_is_replaced_is_noticed_by_the_next_commit(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await warm(store)
    for path in tmp_path.iterdir():
        path.unlink()
    await add_run(store, "new")
    await store.append("new", events(2, 1), after=1)
    again = SQLiteStore(tmp_path / "runs.db")
    assert len(await again.read("new")) == 2
    await again.close()
    await store.close()


async def test_who_shares_a_commit_that_is_interrupted_is_told_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "runs.db", "sqlite:///runs.db")
    graph = partial(writes.put_graph, digest="g", data="{}")
    for _ in range(15):  # so few that the next one waits for company
        await writer.write(graph)
    for _ in range(2000):  # the thread has its turn till all that it was told of is done
        await anyio.sleep(0.001)
        if writer._bell.empty() and not writer._turn.locked():
            break
    if not writer._here:
        pytest.skip("on so slow a disk a thread commits, which nobody interrupts")
    told: list[str] = []

    def interrupted(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt  # as Ctrl-C raises it, in the middle of whatever runs

    async def write(write: Write[None]) -> None:
        try:
            await writer.write(write)
        except (KeyboardInterrupt, StoreError) as error:
            told.append(type(error).__name__)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, partial(writes.put_graph, digest="lost", data="{}"))
            tasks.start_soon(write, interrupted)
            tasks.start_soon(write, graph)
        assert "KeyboardInterrupt" in told
        assert "StoreError" in told
        await writer.write(graph)
        stopped = writer.stop()
        assert stopped is not None
        await anyio.to_thread.run_sync(stopped.join)

"""Who commits: the task that writes, while that is quick, and the thread as soon as anything has to be waited for."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import anyio
import anyio.to_thread
import pytest

from orchestrator.errors import RunConflict, StoreError, StoreUnavailable
from orchestrator.stores import threads
from orchestrator.stores.requests import Append
from orchestrator.stores.sqlite import SQLiteStore, connections, writes
from orchestrator.stores.sqlite.connections import MOST_HERE, Write, Writer
from tests.stores.runs import add_run, event, events

pytestmark = pytest.mark.anyio


async def warm(store: SQLiteStore, run_id: str = "r", count: int = 40) -> int:
    """Enough commits that the writer knows how quick they are."""
    await add_run(store, run_id)
    for seq in range(2, count + 2):
        await store.append(Append(run_id, [event(seq)], after=seq - 1))
    return count + 1


async def test_a_lock_of_another_process_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    head = await warm(store)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        await store.append(Append("r", [event(head + 1)], after=head))
        written.set()

    written = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(20):  # a loop that waited for the lock itself would not have so many turns
            await anyio.sleep(0.01)
        assert not written.is_set()
        other.execute("ROLLBACK")
        with anyio.fail_after(60):
            await written.wait()
    other.close()
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
            heads[number] = await store.append(Append(f"r{number}", [event(heads[number] + 1)], after=heads[number]))

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
            await store.append(Append("r", [event(head + 1)], after=head))
            outcomes.append("won")
        except RunConflict:
            outcomes.append("lost")

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(write)
    assert sorted(outcomes) == ["lost"] * 9 + ["won"]
    assert store.statistics().refused == 9
    await store.close()


@pytest.mark.parametrize("data", [None, "large " * 100_000], ids=["small", "large"])
async def test_a_cancelled_write_is_made_and_told_of(data: object, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    head = await warm(store)
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await store.append(Append("r", [event(head + 1, data)], after=head)) == head + 1
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
                await store.append(Append(name, [event(seq)], after=seq - 1))

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
    again = SQLiteStore(tmp_path / "runs.db")
    await add_run(again, "new")
    with pytest.raises(StoreUnavailable, match="no longer the file that was opened"):
        await add_run(store, "new")
    await store.close()
    await again.append(Append("new", events(2, 1), after=1))
    await again.close()
    assert len(await SQLiteStore(tmp_path / "runs.db").read("new")) == 2


async def test_a_file_that_is_removed_in_the_middle_of_a_commit_has_not_made_it_durable(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await warm(store)

    def removed(connection: sqlite3.Connection) -> None:
        writes.put_graph(connection, digest="x", data="{}")
        (tmp_path / "runs.db").unlink()

    with pytest.raises(StoreUnavailable, match="was removed or renamed"):
        await store._writer.write(removed)
    await store.close()


async def test_who_shares_a_commit_that_is_interrupted_is_told_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "runs.db", "sqlite:///runs.db")
    graph = partial(writes.put_graph, digest="g", data="{}")
    for _ in range(15):  # so few that the next one waits for company
        await writer.write(graph)
    await until_idle(writer)
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


@pytest.mark.parametrize("where", ["_commit", "_decide", "tell"])
async def test_wherever_a_commit_is_interrupted_all_who_share_it_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    writing, _ = await quick_writer(tmp_path, monkeypatch)
    writing._debt = 0.001  # so that it is decided anew
    place = connections if where == "tell" else writing
    usual = getattr(place, where)
    interrupts = iter([True])

    def interrupted(*args: object) -> object:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return usual(*args)

    monkeypatch.setattr(place, where, interrupted)
    told: list[str] = []

    async def write(number: int) -> None:
        try:
            await writing.write(partial(writes.put_graph, digest=f"{number}", data="{}"))
        except (KeyboardInterrupt, StoreError) as error:
            told.append(type(error).__name__)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(write, number)
        assert sorted(told) == ["KeyboardInterrupt", "StoreError", "StoreError"]
        await writing.write(PUT)
        await end(writing)


PUT = partial(writes.put_graph, digest="g", data="{}")


class Bell(SimpleQueue[bool]):
    """Counts how often the thread is rung for."""

    rung = 0

    def put(self, item: bool, block: bool = True, timeout: float | None = None) -> None:
        self.rung += 1
        super().put(item, block, timeout)


async def quick_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Writer, Bell]:
    """One that takes any disk for quick, and whose tasks commit already."""
    monkeypatch.setattr(connections, "QUICK", 60.0)
    monkeypatch.setattr(connections, "_QUICK_THERE", 60.0)
    made = Writer(path / "runs.db", "sqlite:///runs.db")
    bell = made._bell = Bell()
    await made.write(PUT)
    await until_idle(made)
    assert made._here
    bell.rung = 0
    return made, bell


async def until_idle(writer: Writer) -> None:
    """The thread tells of a commit before it gives its turn back."""
    for _ in range(2000):
        if writer._bell.empty() and not writer._turn.locked():
            return
        await anyio.sleep(0.001)


async def end(writer: Writer) -> None:
    thread = writer.stop()
    assert thread is not None
    await anyio.to_thread.run_sync(thread.join)


async def test_a_crowd_commits_for_itself_some_at_a_time_and_wakes_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, bell = await quick_writer(tmp_path, monkeypatch)
    sizes: list[int] = []
    transaction = writer._transaction
    monkeypatch.setattr(
        writer,
        "_transaction",
        lambda connection, batch, begun: sizes.append(len(batch)) or transaction(connection, batch, begun),
    )
    woken: list[int] = []
    monkeypatch.setattr(threads, "_wake", lambda signals: woken.append(len(signals)))
    async with anyio.create_task_group() as tasks:
        for _ in range(3 * MOST_HERE + 8):
            tasks.start_soon(writer.write, PUT)
    assert sizes == [MOST_HERE] * 3 + [8]
    assert bell.rung == 0
    assert woken == []
    await end(writer)


async def test_who_waits_for_the_thread_is_woken_once_for_each_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, bell = await quick_writer(tmp_path, monkeypatch)
    woken: list[tuple[int, int]] = []
    usual = threads._wake

    def counted(signals: list[threads._AsyncioSignal | threads._TrioSignal]) -> None:
        woken.append((threading.get_ident(), len(signals)))
        usual(signals)

    monkeypatch.setattr(threads, "_wake", counted)

    async def write_all(count: int) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(writer.write, PUT)

    commits, rung = writer.statistics().commits, list[int]()
    writer._turn.acquire()  # as another event loop has it while it commits
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_all, 30)
        tasks.start_soon(anyio.to_thread.run_sync, lambda: anyio.run(write_all, 20))
        for _ in range(5000):
            if sum(job.signal is not None for job in tuple(writer._jobs)) == 50:
                break
            await anyio.sleep(0.001)
        rung.append(bell.rung)
        writer._turn.release()
    assert rung[0] <= 2  # the thread took the first from there, and waited for its turn
    assert writer.statistics().commits == commits + 1
    assert sorted(count for _, count in woken) == [20, 30]
    assert len({loop for loop, _ in woken}) == 2
    await end(writer)


async def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, _ = await quick_writer(tmp_path, monkeypatch)
    here = threading.get_ident()
    threads: list[int] = []

    def who(connection: sqlite3.Connection) -> None:
        PUT(connection)
        threads.append(threading.get_ident())

    await writing.write(who)
    assert threads == [here]
    for limit in ("QUICK", "_QUICK_THERE"):
        monkeypatch.setattr(connections, limit, -1.0)  # every commit takes a second longer than it may
    threads.clear()
    for _ in range(5):
        await writing.write(who)
    assert threads[0] == here  # the first slow one: that it would be slow, nobody knew
    assert here not in threads[1:]
    for limit in ("QUICK", "_QUICK_THERE"):
        monkeypatch.setattr(connections, limit, 60.0)
    threads.clear()
    for _ in range(5):
        await writing.write(who)
        await until_idle(writing)
    assert threads[0] != here
    assert threads[1:] == [here] * 4
    await end(writing)


async def test_what_is_large_is_left_to_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, _ = await quick_writer(tmp_path, monkeypatch)
    threads: list[bool] = []
    here = threading.get_ident()

    def who(connection: sqlite3.Connection) -> None:
        PUT(connection)
        threads.append(threading.get_ident() == here)

    for size, count in ((1, 4), (connections.BYTES_HERE + 1, 1), (connections.BYTES_HERE // 3, 4), (1, 1)):
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(partial(writing.write, who, size=size))
        await until_idle(writing)
    assert threads == [True] * 4 + [False] + [False] * 4 + [True]
    await end(writing)


async def test_now_and_then_a_commit_may_be_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, bell = await quick_writer(tmp_path, monkeypatch)
    for slow in (1, 0, 1, 0, 1, 0):
        monkeypatch.setattr(connections, "QUICK", -0.6 * connections.MOST_DEBT if slow else 60.0)
        await writing.write(PUT)
    assert bell.rung == 0
    monkeypatch.setattr(connections, "QUICK", -0.6 * connections.MOST_DEBT)
    for _ in range(3):
        await writing.write(PUT)
    assert bell.rung == 1  # for the third
    await end(writing)


async def test_one_bad_change_in_a_crowd_fails_alone_and_the_others_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    writer, _ = await quick_writer(tmp_path, monkeypatch)
    told: list[str] = []

    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM graphs")
        raise ZeroDivisionError

    async def write(number: int) -> None:
        try:
            await writer.write(bad if number % 20 == 7 else partial(writes.put_graph, digest=f"{number}", data="{}"))
            told.append("made")
        except ZeroDivisionError:
            told.append("failed")

    async with anyio.create_task_group() as tasks:
        for number in range(80):
            tasks.start_soon(write, number)
    assert sorted(told) == ["failed"] * 4 + ["made"] * 76
    assert (writer.statistics().writes, writer.statistics().failed) == (81, 4)
    connection = sqlite3.connect(tmp_path / "runs.db")
    made = [digest for (digest,) in connection.execute("SELECT digest FROM graphs ORDER BY rowid")]
    connection.close()
    await end(writer)
    assert len(made) == 77
    if anyio_backend_name == "asyncio":  # trio starts tasks in any order
        assert made == ["g", *(f"{number}" for number in range(80) if number % 20 != 7)]


async def test_a_reader_in_the_way_of_emptying_the_log_does_not_hold_up_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = await quick_writer(tmp_path, monkeypatch)
    reader = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM graphs").fetchall()
    await writer.write(partial(writes.put_graph, digest="h", data="{}"))
    turns = 0
    done = anyio.Event()

    async def write() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(writer.write, PUT)
            tasks.start_soon(partial(writer.write, PUT, checkpoint=True))
            for _ in range(5):
                tasks.start_soon(writer.write, PUT)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        while not done.is_set():
            await anyio.sleep(0.01)
            turns += 1
    assert turns > 3  # the log is tried for a second; a loop that waited itself would have had a turn or two
    reader.close()
    await end(writer)


@pytest.mark.parametrize("where", ["while others run", "while the thread works"])
async def test_a_scope_that_is_cancelled_in_the_middle_of_a_write_hears_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    writer, _ = await quick_writer(tmp_path, monkeypatch)
    heard: list[str] = []

    async def write(task_status: anyio.abc.TaskStatus[anyio.CancelScope] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            heard.append(await writer.write(lambda connection: PUT(connection) or "made"))
            await anyio.sleep(60)  # where the cancellation comes at last
        assert scope.cancelled_caught
        heard.append("cancelled")

    if where == "while the thread works":
        writer._turn.acquire()
    async with anyio.create_task_group() as tasks:
        scope = await tasks.start(write)
        scope.cancel()
        if where == "while the thread works":
            for _ in range(20):
                await anyio.sleep(0.001)
            assert heard == []
            writer._turn.release()
    assert heard == ["made", "cancelled"]
    await end(writer)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("held", [False, True])
async def test_a_bare_cancel_of_asyncio_breaks_the_wait_and_the_write_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    writer, _ = await quick_writer(tmp_path, monkeypatch)
    if held:
        writer._turn.acquire()
    task = asyncio.create_task(writer.write(partial(writes.put_graph, digest="h", data="{}")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if held:
        writer._turn.release()
    await writer.write(PUT)
    connection = sqlite3.connect(tmp_path / "runs.db")
    assert connection.execute("SELECT count(*) FROM graphs").fetchone() == (2,)
    connection.close()
    await end(writer)


@pytest.mark.full
def test_a_write_while_another_thread_imports_trio_waits_for_that(tmp_path: Path) -> None:
    (tmp_path / "trio").mkdir()
    (tmp_path / "trio" / "__init__.py").write_text(
        "import time; time.sleep(0.5)\nclass lowlevel:\n    in_trio_run = staticmethod(lambda: False)\n"
    )
    (tmp_path / "program.py").write_text(
        "import importlib, sys, threading, time, anyio\n"
        "from orchestrator.stores.sqlite import SQLiteStore\n"
        "async def main():\n"
        "    store = SQLiteStore('runs.db')\n"
        "    threading.Thread(target=importlib.import_module, args=['trio']).start()\n"
        "    while 'trio' not in sys.modules:\n"
        "        await anyio.sleep(0.001)\n"
        "    await store.put_graph('g', {})\n"
        "    await store.close()\n"
        "anyio.run(main)\n"
    )
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")

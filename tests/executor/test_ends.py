"""The two ends of a run in the store: one write begins and holds it, one write ends it and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Update
from orchestrator.errors import RunEnded, RunExists, RunUnknown, StoreUnavailable
from orchestrator.executor import lease as leases
from orchestrator.kernel.records import Ended
from orchestrator.stores.base import Store
from orchestrator.stores.owner import is_dead
from orchestrator.stores.requests import Append, NewRun
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.dying import DYING
from tests.support.executors import Log, chain, says, single
from tests.support.programs import run as run_program
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


class Counting:
    """Hands everything on to a store and notes what was asked of it, and what was held and left at each append."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if name == "url":
            return found

        def noted(*args: Any, **options: Any) -> Any:
            releases = any(isinstance(one, Append) and one.release for one in args)
            self.asked.append(f"{name}, release" if releases else name)
            return found(*args, **options)

        return noted


async def test_a_run_is_one_write_at_its_beginning_and_one_at_its_end(store: Store) -> None:
    counting = Counting(store)
    async with Executor(counting) as executor:  # type: ignore[arg-type]
        await executor.start(chain(says("a"), says("b")), run_id="r")
        assert counting.asked == ["create", "append, release"]
        assert await store.lease("r") is None
        assert not leases.keeps(executor._host.owner)


async def test_a_run_is_held_by_who_begins_it_from_its_first_moment(store: Store) -> None:
    gate = anyio.Event()

    async def waits(state: Log) -> Update:
        await gate.wait()
        return {"log": "went on"}

    graph = single(waits)
    async with Executor(store, graphs=[graph]) as first, Executor(store, graphs=[graph]) as second:
        await first.submit(graph, run_id="r")
        held = await store.lease("r")
        assert held is not None
        assert leases.is_held(held)
        assert await second.workers.recoverable() == []
        with pytest.raises(RunExists):
            await second.submit(graph, {"question": "another"}, run_id="r")
        assert await store.lease("r") == held  # who was refused has left the other's lease alone
        assert not leases.keeps(second._host.owner)
        gate.set()
        assert (await first.wait("r")).output == ["went on"]
        assert await store.lease("r") is None


async def test_a_run_that_could_not_be_begun_is_kept_by_nobody(tmp_path: Path) -> None:
    class Full(SQLiteStore):
        async def create(self, new: NewRun) -> None:
            raise StoreUnavailable("full")

    async with Executor(Full(tmp_path / "runs.db")) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(chain(says("a")), run_id="r")
        assert not leases.keeps(executor._host.owner)
        with pytest.raises(RunUnknown):
            await executor.load("r")
        await executor.store.close()


async def test_where_the_end_cannot_be_written_the_lease_is_given_back_all_the_same(tmp_path: Path) -> None:
    class Fails(SQLiteStore):
        broken = True

        async def append(self, append: Append) -> int:
            if append.release and self.broken:
                raise StoreUnavailable("full")
            return await super().append(append)

    store = Fails(tmp_path / "runs.db")
    graph = chain(says("a"))
    async with Executor(store, graphs=[graph]) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(graph, run_id="r")
        assert await store.lease("r") is None
        assert not leases.keeps(executor._host.owner)
        store.broken = False
        assert (await executor.resume("r")).output == ["a"]
    await store.close()


async def test_an_end_that_was_written_and_not_acknowledged_is_an_end(tmp_path: Path) -> None:
    class Lost(SQLiteStore):
        async def append(self, append: Append) -> int:
            head = await super().append(append)
            if append.release:
                raise StoreUnavailable("nobody knows")
            return head

    store = Lost(tmp_path / "runs.db")
    graph = chain(says("a"))
    async with Executor(store, graphs=[graph]) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(graph, run_id="r")
        assert (await executor.load("r")).status == "completed"
        assert await store.lease("r") is None
        assert not leases.keeps(executor._host.owner)
        with pytest.raises(RunEnded):
            await executor.resume("r")
    await store.close()


async def test_a_renewal_that_comes_behind_the_end_harms_nobody(store: Store) -> None:
    """The beat asks for all runs at once, and may be told that a run which ends just now has no lease any more."""

    class Slow(Counting):
        async def append(self, append: Append) -> int:
            head: int = await self.store.append(append)
            if append.release:
                await anyio.sleep(0.4)  # the beat comes, several times
            return head

    async with Executor(Slow(store), lease_ttl=0.3) as executor:  # type: ignore[arg-type]
        assert (await executor.start(chain(says("a")), run_id="r")).status == "completed"


async def test_messages_that_are_there_at_the_end_go_with_it(store: Store) -> None:
    class Late(Counting):
        async def append(self, append: Append) -> int:
            if append.release:
                await self.store.post("r", {"type": "pause"})
            head: int = await self.store.append(append)
            return head

    late = Late(store)
    async with Executor(late) as executor:  # type: ignore[arg-type]
        assert (await executor.start(chain(says("a")), run_id="r")).status == "completed"
        assert await store.inbox(["r"]) == []
        assert isinstance((await store.read("r"))[-1], Ended)
        for command in (executor.pause, executor.cancel):
            with pytest.raises(RunEnded):
                await command("r")
    assert "discard" not in late.asked


@pytest.mark.parametrize("act", ["pause", "cancel"])
async def test_who_asks_for_something_while_the_end_is_written_is_told_of_the_end(store: Store, act: str) -> None:
    class Waits(Counting):
        async def append(self, append: Append) -> int:
            while append.release and not await self.store.inbox(["r"]):
                ending.set()
                await anyio.sleep(0.01)
            head: int = await self.store.append(append)
            return head

    ending = anyio.Event()
    graph = chain(says("a"))
    async with Executor(Waits(store)) as first, Executor(store, graphs=[graph]) as second:  # type: ignore[arg-type]
        await first.submit(graph, run_id="r")
        with anyio.fail_after(60):
            await ending.wait()
            try:
                run = await (second.pause if act == "pause" else second.cancel)("r", by="ann")
            except RunEnded:  # the message was still there when the end was seen
                run = await first.load("r")
        assert (run.status, run.output) == ("completed", ["a"])
        assert await store.inbox(["r"]) == []
        assert [record.type for record in await store.read("r")] == ["run_started", "step_done", "ended"]


async def test_nothing_follows_the_end_of_a_run(store: Store) -> None:
    ended = anyio.Event()

    class Slow(Counting):
        async def append(self, append: Append) -> int:
            head: int = await self.store.append(append)
            if append.release:
                ended.set()
                await anyio.sleep(0.1)
            return head

    graph = chain(says("a"))
    async with Executor(Slow(store), graphs=[graph]) as executor:  # type: ignore[arg-type]
        await executor.submit(graph, run_id="r")
        await ended.wait()
        assert (await executor.resume("r")).status == "completed"  # asked while its end is being written
        assert [record.type for record in await store.read("r")] == ["run_started", "step_done", "ended"]


@quick_on("asyncio")
async def test_a_run_whose_creator_was_killed_before_its_first_step_is_interrupted_and_goes_on(
    tmp_path: Path, anyio_backend_name: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    words, module = [url, anyio_backend_name], "tests.executor.dying"
    ended = await anyio.to_thread.run_sync(lambda: run_program(words, module=module))
    assert ended.code == -signal.SIGKILL, ended.err
    async with Executor(url, graphs=[DYING]) as executor:
        held = await executor.store.lease("r")
        assert held is not None
        assert held.left > 0  # of a dead process, which holds nothing up
        assert is_dead(held.owner)
        run = await executor.load("r")
        assert (run.status, run.seq) == ("interrupted", 1)
        assert await executor.workers.recoverable() == ["r"]
        assert (await executor.resume("r")).output == ["first"]
        assert await executor.store.lease("r") is None


async def test_a_graph_is_in_the_file_that_is_there_though_it_was_in_the_one_before(tmp_path: Path) -> None:
    graph = chain(says("a"))
    for _ in range(3):
        async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
            run = await executor.start(graph)
            assert await executor.store.graph(graph.content) == graph.data()
            assert (await executor.load(run.run_id)).output == ["a"]
        (tmp_path / "runs.db").unlink()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_bare_cancellation_of_the_first_write_leaves_no_lease(tmp_path: Path) -> None:
    """As of `asyncio.wait_for`: it breaks the wait for the store, which makes the write all the same."""
    graph = chain(says("a"))
    begun = 0
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        await executor.start(graph)
        for turns in range(12):
            name = f"r{turns}"
            task = asyncio.create_task(executor.start(graph, run_id=name))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.cancel():
                break
            with pytest.raises(asyncio.CancelledError):
                await task
            with contextlib.suppress(RunUnknown):
                begun += (await executor.store.info(name)).status == "running"
            assert await executor.store.lease(name) is None
    assert begun

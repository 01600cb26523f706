"""Workers live on whatever ends a drive, and each drive without progress counts until its run is parked."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, node
from orchestrator.errors import RunUnknown
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.stores.rows import MAX_DEATHS, RunInfo
from orchestrator.testing import MockClock
from tests.support.executors import chain, says
from tests.support.programs import Piped
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio
LONG = "x" * 2000


def cancels() -> None:
    raise asyncio.CancelledError("its own")


def exits() -> None:
    sys.exit(2)


def closes() -> None:
    raise GeneratorExit("its own")


def is_wrong() -> None:
    raise KeyError("wrong")


OWN = {
    cancels: "CancelledError: its own",
    exits: "SystemExit: sys.exit(2)",
    closes: "GeneratorExit: its own",
    is_wrong: "KeyError: 'wrong'",
}


@pytest.fixture(params=OWN, ids=lambda one: one.__name__)
def end(request: pytest.FixtureRequest) -> Callable[[], None]:
    found: Callable[[], None] = request.param
    return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store that gives out again at once what failed."""
    monkeypatch.setattr("orchestrator.stores.memory.retry_delay", lambda deaths: 0.0)
    return MemoryStore()


GRAPH = chain(says("done"), name="fine")


async def enqueue(executor: Executor) -> None:
    for run_id in ("bad", "fine"):
        await executor.enqueue(GRAPH, run_id=run_id)


async def work_on(executor: Executor, store: MemoryStore) -> None:
    """A worker has much time for a run that ends its drives, and for another run."""
    with anyio.move_on_after(sized(60, 300)) as scope:
        await executor.work()
    assert scope.cancelled_caught
    assert (await store.info("fine")).status == "completed"


async def test_a_run_whose_context_cannot_be_made_is_parked(
    clock: MockClock, store: MemoryStore, end: Callable[[], None]
) -> None:
    tries: list[str] = []
    works: list[bool] = []

    def make(info: RunInfo) -> str:
        if info.run_id == "bad" and works:
            tries.append(info.run_id)
            end()
        return "context"

    async with Executor(store, clock=clock, graphs=[GRAPH], contexts=make) as executor:
        await enqueue(executor)
        works.append(True)
        await work_on(executor, store)
        info = await store.info("bad")
        assert (info.deaths, info.fault, len(tries)) == (MAX_DEATHS, OWN[end], MAX_DEATHS)


async def test_an_open_executor_lives_on_a_context_that_cannot_be_made(
    clock: MockClock, store: MemoryStore, end: Callable[[], None]
) -> None:
    def make(info: RunInfo) -> str:
        end()
        return "context"

    asking = chain(says("a"), name="asking")
    async with Executor(store, clock=clock, graphs=[asking]) as executor:
        await executor.enqueue(asking, run_id="bad")
    async with Executor(store, clock=clock, graphs=[asking], contexts=make) as executor:
        assert await executor.recover() == []
        await anyio.sleep(60)
        assert (await executor.start(GRAPH, context="given")).status == "completed"


async def test_a_run_whose_records_end_the_store_is_parked(
    clock: MockClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None]
) -> None:
    append, tries = MemoryStore.append, list[str]()

    async def ending(self: MemoryStore, request: Append) -> int:
        if request.run_id == "bad" and any(record.type == "step_done" for record in request.records):
            tries.append(request.run_id)
            end()
        return await append(self, request)

    monkeypatch.setattr(MemoryStore, "append", ending)
    async with Executor(store, clock=clock, graphs=[GRAPH]) as executor:
        await enqueue(executor)
        await work_on(executor, store)
        info = await store.info("bad")
        assert (info.deaths, info.fault) == (MAX_DEATHS, OWN[end])


async def test_a_run_that_cannot_be_made_ready_is_parked(
    clock: MockClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None]
) -> None:
    post = MemoryStore.post

    async def ending(self: MemoryStore, run_id: str, *given: Any, **options: Any) -> int:
        if run_id == "bad":
            end()
        return await post(self, run_id, *given, **options)

    monkeypatch.setattr(MemoryStore, "post", ending)
    async with Executor(store, clock=clock, graphs=[GRAPH], observers=[lambda run, seq: None]) as executor:
        await enqueue(executor)
        await work_on(executor, store)
        info = await store.info("bad")
        assert (info.deaths, info.fault) == (MAX_DEATHS, OWN[end])


async def test_a_worker_that_shuts_down_in_order_counts_nothing(store: MemoryStore) -> None:
    @node
    async def slow(state: Any) -> None:
        begun.set()
        await anyio.sleep(60)

    begun, stop, graph = anyio.Event(), anyio.Event(), chain(slow, name="slow")
    async with Executor(store, graphs=[graph]) as executor:
        await executor.enqueue(graph, run_id="r")
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def shut_down() -> None:
                    await begun.wait()
                    stop.set()

                tasks.start_soon(shut_down)
                await executor.work(stop=stop, grace=0.0)
        info = await store.info("r")
        assert (info.status, info.deaths, info.fault) == ("running", 0, "")


WORKER = """
import argparse, signal, sys, time
import anyio
from orchestrator import Executor, node, tool
from tests.contract.sample import single

@tool(risk="none", effect=sys.argv[2])
def convert(options: str) -> str:
    "Convert units."
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", choices=["km", "mi"])
    return str(parser.parse_args(options.split()))

@node
async def work(state, ctx):
    await ctx.tool("convert", {"options": "--to parsec"}, check=True)

def busy(state):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("busy", flush=True)
    for _ in range(3000):
        time.sleep(0.01)

@node(effect="pure")
def fine(state):
    pass

async def main():
    graphs = [single(work, name="exits"), single(node(effect="pure")(busy), name="busy"), single(fine, name="fine")]
    async with Executor(sys.argv[1], graphs=graphs, tools=[convert]) as executor:
        if sys.argv[2] != "pure":
            await executor.enqueue(graphs[0], run_id="exits")
        await executor.work(poll=0.05)

anyio.run(main)
"""


async def until(condition: Callable[[RunInfo], bool], executor: Executor, run_id: str) -> RunInfo:
    """The run as it is when this holds."""
    while True:
        with contextlib.suppress(RunUnknown):
            info = await executor.store.info(run_id)
            if condition(info):
                return info
        await anyio.sleep(0.02)


def row(name: str) -> Any:
    """A graph that only a worker has the code of."""
    from tests.contract.sample import single

    return single(node(effect="pure")(lambda state: None), name=name)


@pytest.mark.parametrize("effect", ["read", "irreversible"])
async def test_a_tool_that_exits_ends_its_run_and_not_its_worker(effect: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, idle="sleep") as executor:
        program = Piped([WORKER, url, effect], module="tests.support.script")
        try:
            with anyio.fail_after(60):
                info = await until(lambda one: one.status == "failed", executor, "exits")
                await executor.enqueue(row("fine"), run_id="fine")
                await until(lambda one: one.status == "completed", executor, "fine")
            assert not program.ended
            assert info.deaths == 0
            settled = [one for one in await executor.store.read("exits") if one.type == "effect_settled"]
            assert [one.unknown for one in settled] == [effect == "irreversible"]
            assert "sys.exit(2)" in str(info.error)
        finally:
            program.close()


async def test_a_handler_of_a_signal_that_exits_ends_the_worker_and_counts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, idle="sleep") as executor:
        await executor.enqueue(row("busy"), run_id="busy")
        program = Piped([WORKER, url, "pure"], module="tests.support.script")
        try:
            with anyio.fail_after(60):
                await until(lambda one: one.lease is not None, executor, "busy")
                await anyio.to_thread.run_sync(program.line)
                program.signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(program.wait) == 7
            info = await executor.store.info("busy")
            assert (info.status, info.lease, info.deaths) == ("running", None, 1)
            assert info.fault == "SystemExit: sys.exit(7)"
            assert info.retry_at is not None
            assert info.retry_at > time.time() - 60
        finally:
            program.close()

"""A store that refuses some appends of a run: its steps are not made again and again."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Graph
from orchestrator.errors import OrchestratorError, StoreError, StoreUnavailable
from orchestrator.kernel.records import encode
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.testing import MockClock
from tests.support.executors import chain, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

LONG = "x" * 40_000
REFUSAL = "store: the file is damaged"


class Step:
    """How often a step with a long result was made, and the graph of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.graph: Graph = chain(says(LONG, self._count, effect="idempotent"), says("b"))

    async def _count(self) -> None:
        self.calls += 1


def refuse_long(monkeypatch: pytest.MonkeyPatch, kind: type[Any], error: StoreError) -> None:
    """Have stores of a kind refuse records with long strings; everything else works."""
    append = kind.append

    async def refusing(self: Any, request: Append) -> int:
        if any(LONG in encode(record).decode() for record in request.records):
            raise error
        seq: int = await append(self, request)
        return seq

    monkeypatch.setattr(kind, "append", refusing)


async def test_a_worker_parks_the_run(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    step, store = Step(), MemoryStore()
    monkeypatch.setattr("orchestrator.stores.memory.retry_delay", lambda deaths: 0.0)
    refuse_long(monkeypatch, MemoryStore, StoreError(REFUSAL))
    async with Executor(store, clock=clock, graphs=[step.graph]) as executor:
        await executor.enqueue(step.graph, run_id="r")
        with anyio.move_on_after(300):
            await executor.work()
        info = await store.info("r")
        assert (step.calls, info.deaths) == (MAX_DEATHS, MAX_DEATHS)
        assert info.fault == f"StoreError: {REFUSAL}"
        monkeypatch.undo()
        assert (await executor.resume("r")).status == "completed"
        assert (await store.info("r")).deaths == 0


@pytest.mark.parametrize("how", ["recover", "submit"])
async def test_an_open_executor_does_so_too(clock: MockClock, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    step, store = Step(), MemoryStore()
    refuse_long(monkeypatch, MemoryStore, StoreError(REFUSAL))
    async with Executor(store, clock=clock, graphs=[step.graph]) as executor:
        if how == "recover":
            await executor.enqueue(step.graph, run_id="r")
            assert await executor.recover() == []
        else:
            await executor.submit(step.graph, run_id="r")
            with pytest.raises(OrchestratorError, match="the file is damaged"):
                await executor.wait("r")
        await anyio.sleep(24 * 3600)
        info = await store.info("r")
        assert (step.calls, info.deaths) == (MAX_DEATHS, MAX_DEATHS)
        assert await executor.recover() == []
        assert step.calls == MAX_DEATHS


async def test_a_worker_of_a_file_backs_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step()
    refuse_long(monkeypatch, SQLiteStore, StoreError(REFUSAL))
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[step.graph]) as executor:
        await executor.enqueue(step.graph, run_id="r")
        began = time.time()
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(executor.work, poll=0.05))
                while not (await executor.store.info("r")).fault:  # noqa: ASYNC110  the worker does it
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        info = await executor.store.info("r")
        assert info.fault == f"StoreError: {REFUSAL}"
        assert info.deaths >= 1
        assert info.retry_at is not None
        assert info.retry_at >= began + 2 ** (info.deaths - 1), "it waits for a second, then for two"


async def test_an_outage_that_only_long_records_meet_is_waited_for(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full may have room for claims. It is no fault of the run, which is tried until there is room."""
    step, store, seconds = Step(), MemoryStore(), sized(600, 3600)
    refuse_long(monkeypatch, MemoryStore, StoreUnavailable("the disk is full"))
    async with Executor(store, clock=clock, graphs=[step.graph]) as executor, anyio.create_task_group() as tasks:
        await executor.enqueue(step.graph, run_id="r")
        tasks.start_soon(executor.work)
        await anyio.sleep(seconds)
        info = await store.info("r")
        assert (info.deaths, info.retry_at, info.fault) == (0, None, "")
        assert seconds / 30 <= step.calls <= seconds / 15 + 10
        monkeypatch.undo()
        await anyio.sleep(60)
        assert (await executor.load("r")).status == "completed"
        tasks.cancel_scope.cancel()

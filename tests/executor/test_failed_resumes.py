"""A resume that fails leaves the run as it was: its lease is free, and the next resume takes it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from orchestrator import Executor, Graph
from orchestrator.errors import InvalidValue, StoreUnavailable
from orchestrator.kernel.records import Record
from orchestrator.nodes import Ask
from orchestrator.stores.memory import MemoryStore
from tests.support.executors import Log

pytestmark = pytest.mark.anyio
asks = Graph(name="asks", state=Log, nodes={"ask": Ask(prompt="What?", answer="answer")}, edges="START -> ask -> END")


class Failing(MemoryStore):
    """A store of which one read fails, some reads from now."""

    countdown: int | None = None

    async def read(self, run_id: str, **options: Any) -> Sequence[Record]:
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.countdown = None
                raise StoreUnavailable("the connection is gone")
        return await super().read(run_id, **options)


async def test_whichever_read_of_the_store_fails_the_next_resume_goes_on() -> None:
    failed = 0
    while True:
        store = Failing()
        async with Executor(store, graphs=[asks]) as executor:
            parent = await executor.start(asks)
            fork = await executor.fork(parent.run_id, at=parent.seq, start=False)
        async with Executor(store, graphs=[asks]) as executor:
            store.countdown = failed
            try:
                await executor.resume(fork.run_id)
            except StoreUnavailable:
                failed += 1
            else:
                break
            with anyio.fail_after(20):
                run = await executor.resume(fork.run_id)
                assert run.status == "paused"
                run = await executor.answer(run.run_id, run.waiting[0].id, "tea")
            assert run.status == "completed"
            assert run.values["answer"] == "tea"
    assert failed >= 2  # one of them after the run was taken up


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": {"steps": 3}}, r"limits is of type dict: give Limits\(\.\.\.\), or None"),
        ({"migrate": {"nodes": {"a": "b"}}}, r"migrate is of type dict: give Migration\(\.\.\.\), or None"),
        ({"wait": "x"}, "wait='x': give a number of seconds, 0 or more"),
        ({"wait": -1}, "wait=-1: give a number of seconds, 0 or more"),
    ],
)
async def test_a_resume_with_an_argument_of_another_type_changes_nothing(options: dict[str, Any], said: str) -> None:
    async with Executor(MemoryStore(), graphs=[asks]) as executor:
        run = await executor.start(asks)
        with pytest.raises(InvalidValue, match=said):
            await executor.resume(run.run_id, **options)
        with anyio.fail_after(20):
            assert (await executor.resume(run.run_id)).status == "paused"
            assert (await executor.answer(run.run_id, run.waiting[0].id, "tea")).status == "completed"


async def test_a_start_with_limits_of_another_type_is_refused() -> None:
    async with Executor(MemoryStore(), graphs=[asks]) as executor:
        with pytest.raises(InvalidValue, match="limits is of type dict"):
            await executor.start(asks, limits={"steps": 3})  # type: ignore[arg-type]  # what is refused
        assert (await executor.runs()).runs == ()

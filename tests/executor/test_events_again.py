"""An event that is delivered again, by senders that do not know of each other: it is one event, also at the end."""

from __future__ import annotations

import anyio
import pytest

from orchestrator import Executor, Run
from orchestrator.errors import Ambiguous, RunEnded
from orchestrator.nodes import Wait
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from tests.support.executors import chain, says
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio
GRAPH = chain(Wait(event="paid"), says("paid"))


class Held(MemoryStore):
    """A store whose next write waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.reached, self.let = anyio.Event(), anyio.Event()

    async def append(self, append: Append) -> int:
        if self.holds:
            self.reached.set()
            await self.let.wait()
        return await super().append(append)


async def test_an_event_that_is_sent_again_while_its_run_ends_is_the_same_event() -> None:
    store = Held()
    async with Executor(store, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, {}, run_id="r")
        found: list[Run] = []

        async def send() -> None:
            found.append(await executor.send("r", "paid", {}, id="e1"))

        store.holds = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await store.reached.wait()
            for _ in range(3):
                tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            store.holds = False
            store.let.set()
        assert [run.status for run in found] == ["completed"] * 4
        with pytest.raises(RunEnded):
            await executor.send("r", "paid", {}, id="e2")


async def test_an_event_that_is_sent_again_after_the_end_changes_nothing_also_by_labels(store: Store) -> None:
    async with Executor(store, graphs=[GRAPH]) as executor:
        await executor.start(GRAPH, {}, run_id="r", labels={"order": "7"})
        sent = await executor.send(labels={"order": "7"}, event="paid", data={}, id="e1")
        assert sent.status == "completed"
        again = await executor.send(labels={"order": "7"}, event="paid", data={}, id="e1")
        assert (again.run_id, again.seq) == (sent.run_id, sent.seq)
        for id_ in ("e2", None):
            with pytest.raises(Ambiguous, match="no unfinished run has the labels order=7"):
                await executor.send(labels={"order": "7"}, event="paid", data={}, id=id_)
        await executor.start(GRAPH, {}, run_id="s", labels={"order": "7"})
        sent = await executor.send(labels={"order": "7"}, event="paid", data={}, id="e2")
        assert (sent.run_id, sent.status) == ("s", "completed")


async def test_of_many_senders_of_one_event_all_get_the_run(store: Store) -> None:
    async with Executor(store, graphs=[GRAPH]) as one, Executor(store, graphs=[GRAPH]) as other:
        await one.start(GRAPH, {}, run_id="r")
        found: list[Run] = []

        async def send(executor: Executor) -> None:
            found.append(await executor.send("r", "paid", {}, id="e1"))

        async with anyio.create_task_group() as tasks:
            for _ in range(sized(4, 20)):
                tasks.start_soon(send, one)
                tasks.start_soon(send, other)
        assert {run.status for run in found} == {"completed"}
        assert len([record for record in found[0].records() if record.type == "event_received"]) == 1

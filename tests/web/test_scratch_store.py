"""The store of tries counts all that it keeps, and keeps nothing of runs that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from msgspec import structs

from orchestrator import Executor, Graph
from orchestrator.errors import GraphUnknown, StoreError
from orchestrator.kernel.records import Migrated, Record, Resumed, RunStarted
from orchestrator.stores.items import Item
from orchestrator.stores.requests import Append
from orchestrator.web.compose import scratch
from orchestrator.web.compose.scratch import Scratch, ScratchStore
from tests.web.api import GRAPHS, api, pay
from tests.web.test_compose_try import CALL, QUIET

OPTIONS: dict[str, Any] = {"model": None, "limits": None, "approve": None, "labels": {}}


def waiting(name: str = "g", prompt: str = "?") -> Graph:
    return Graph.from_data(
        {"name": name, "state": {"fields": {"x": "str"}}, "edges": "START -> a -> END",
         "nodes": {"a": {"kind": "ask", "prompt": prompt, "answer": "x"}}}, resolve=True,
    )  # fmt: skip


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
async def test_messages_for_runs_are_counted_and_end_the_run_that_has_most() -> None:
    async with Executor(graphs=GRAPHS, tools=[pay]) as outer:
        tries = Scratch(outer)
        store = tries.store
        other = await tries.start(waiting(), {"x": "a"}, **OPTIONS)
        run = await tries.start(waiting(), {"x": "a"}, **OPTIONS)
        await tries.executor.wait(run.run_id)
        store._most = store.size + 200_000
        for number in range(20):
            await store.post(run.run_id, {"type": "event", "data": "x" * 10_000}, key=str(number))
        with pytest.raises(StoreError, match="is full"):
            await store.post(run.run_id, {"type": "event", "data": "x" * 10_000})
        assert store.largest() == run.run_id
        for _ in range(100):
            if not store.full:
                break
            await anyio.sleep(0.1)
        assert [row.run_id for row in (await tries.executor.runs()).runs] == [other.run_id]
        assert await store.inbox([run.run_id]) == []


@pytest.mark.anyio
async def test_messages_that_were_taken_are_not_counted_any_more() -> None:
    store = ScratchStore()
    async with Executor(store, graphs=[waiting()]) as executor:
        await executor.start("g", {"x": "a"}, run_id="one")
        before = store.size
        ids = [await store.post("one", {"type": "event", "data": "x" * 1000}, key=str(number)) for number in range(20)]
        assert store.size > before + 20_000
        await store.post("one", {"type": "event", "data": "x" * 1000}, key="3")
        await store.discard(ids)
        assert store.size == before


@pytest.mark.anyio
async def test_graphs_are_counted_and_go_with_their_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_UNUSED", 0.0)
    async with Executor(graphs=GRAPHS, tools=[pay]) as outer:
        tries = Scratch(outer)
        store = tries.store
        first = await tries.start(waiting(prompt="?" * 100_000), {"x": "a"}, **OPTIONS)
        assert store.size > 100_000
        second = await tries.start(waiting(prompt="!" * 100_000), {"x": "a"}, **OPTIONS)
        contents = [(await store.info(run.run_id)).content for run in (first, second)]
        await tries.executor.wait(first.run_id)
        before = store.size
        await tries.executor.delete(first.run_id)
        store.drop_graphs()
        with pytest.raises(GraphUnknown):
            await store.graph(contents[0])
        assert await store.graph(contents[1])
        assert 100_000 < store.size < before - 100_000


@pytest.mark.anyio
async def test_the_graphs_that_a_run_has_gone_on_in_are_kept_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_UNUSED", 0.0)
    store = ScratchStore()
    async with Executor(store, graphs=[waiting()]) as executor:
        await executor.start("g", {"x": "a"}, run_id="one")
        other = waiting(prompt="what?")
        executor.add_graph(other)
        await executor.fork("one", at=1, graph=other, run_id="two")
        await executor.delete("one")
        store.drop_graphs()
        contents = [
            record.content for record in await store.read("two") if isinstance(record, RunStarted | Resumed | Migrated)
        ]
        assert other.content in contents
        for content in contents:
            assert content is None or await store.graph(content)
    async with Executor(store) as reader:
        assert (await reader.load("two")).seq == len(await store.read("two"))


@pytest.mark.anyio
async def test_a_store_that_is_full_takes_no_graph() -> None:
    store = ScratchStore(1_000)
    await store.put_graph("a" * 64, {"text": "x" * 2_000})
    with pytest.raises(StoreError, match="is full"):
        await store.put_graph("b" * 64, {"text": "x"})


class Counted(list[bytes]):
    """The records of a run, which count how many of them are looked at."""

    looked = 0

    def __iter__(self) -> Iterator[bytes]:
        Counted.looked += len(self)
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.looked += len(found) if isinstance(key, slice) else 1
        return found


@pytest.mark.anyio
async def test_an_append_looks_at_what_it_appends_and_no_more() -> None:
    store = ScratchStore()
    async with Executor(store, graphs=[waiting()]) as executor:
        await executor.start("g", {"x": "a"}, run_id="one")
    records = Counted(store._runs["one"].records)
    store._runs["one"].records = records
    last = (await store.read("one"))[-1]
    Counted.looked = 0
    for _ in range(100):
        head = len(records)
        following: list[Record] = [structs.replace(last, seq=head + 1)]
        await store.append(Append("one", following, after=head))
    assert store._journals["one"].records == len(records)
    assert Counted.looked <= 200


@pytest.mark.anyio
async def test_values_in_memory_and_in_the_cache_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_ITEMS", 10_000)
    store = ScratchStore()
    for number in range(100):
        item = Item(("a",), str(number), "x" * 1_000)
        await store.put_item("cache", item, evict=True)
    assert (await store.item_usage("cache")).bytes <= 10_000


@pytest.mark.full
def test_a_try_whose_messages_fill_the_store_is_deleted_and_others_can_be_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scratch, "_PAUSE", 0.1)
    with api(settings={"approve": "write"}) as server:
        found = server.post("graphs/try", 201, text=CALL, input="x", wait=True)
        statuses = []
        for number in range(80):
            body = {"event": "e", "data": "x" * 1_000_000, "id": str(number)}
            answer = server.client.post(f"/try/api/runs/{found['run_id']}/send", json=body)
            statuses.append(answer.status_code)
            if answer.status_code == 404:
                break
        assert statuses[-1] == 404, "it was deleted"
        assert server.post("graphs/try", 201, text=QUIET, input="x", wait=True)["status"] == "completed"

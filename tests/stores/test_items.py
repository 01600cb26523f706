"""Items of both stores do what a dict does, in every order of operations, and in files of several processes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import StoreError
from orchestrator.stores import Store, open_store
from orchestrator.stores.copying import copy_store
from orchestrator.stores.items import (
    Area,
    Item,
    ItemWrite,
    namespace_of,
    namespace_text,
    packed,
    prefix_range,
    unpacked,
)
from orchestrator.stores.requests import NewRun
from orchestrator.stores.sqlite import items as sqlite_items
from orchestrator.testing.store_conformance.helpers import new_run
from tests.support.programs import run as run_program
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio
on_one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

NAMES = st.sampled_from(["a", "b", "ab", "é", "a b", "日本", "a'b", "%", "_"])
SPACES = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "K", "1", "10", "🧭"])
AREA: st.SearchStrategy[Area] = st.sampled_from(["memory", "cache"])
TEXTS = st.text(max_size=12)


@dataclass(frozen=True)
class Put:
    area: Area
    space: tuple[str, ...]
    key: str
    data: str
    text: str
    lifetime: float | None
    call: int


@dataclass(frozen=True)
class Delete:
    area: Area
    space: tuple[str, ...]
    key: str
    call: int


@dataclass(frozen=True)
class Prune:
    area: Area
    prefix: tuple[str, ...]
    everything: bool


CALL = st.integers(0, 4)
"""0: outside of a run; others: the number of a call, which may be asked again."""
STEPS = st.lists(
    st.one_of(
        st.builds(
            Put, AREA, SPACES, KEYS, st.sampled_from(["1", '"two"', "{}"]), TEXTS,
            st.sampled_from([None, None, 1e-9, 1e6]), CALL,
        ),
        st.builds(Delete, AREA, SPACES, KEYS, CALL),
        st.builds(Prune, AREA, st.one_of(st.just(()), SPACES), st.booleans()),
    ),
    max_size=25,
)  # fmt: skip


@dataclass
class Model:
    """What the store is to hold: area, namespace and key -> data and text."""

    items: dict[tuple[str, tuple[str, ...], str], tuple[str, str]] = field(default_factory=dict)
    calls: dict[int, bool] = field(default_factory=dict)

    def listed(self, area: str, prefix: tuple[str, ...]) -> list[tuple[tuple[str, ...], str, str]]:
        found = [
            (space, key, data)
            for (of, space, key), (data, _) in self.items.items()
            if of == area and space[: len(prefix)] == prefix
        ]
        return sorted(found, key=lambda one: ("".join(f"{name}\x1f" for name in one[0]), one[1]))


async def follow(store: Store, steps: list[Put | Delete | Prune]) -> None:
    info, records = new_run()
    await store.create(NewRun(info, records))
    model = Model()
    for step in steps:
        if isinstance(step, Prune):
            await store.prune_items(step.area, step.prefix, older_than=0 if step.everything else None)
            if step.everything:
                for space, key, _ in model.listed(step.area, step.prefix):
                    del model.items[step.area, space, key]
        else:
            write = ItemWrite(info.run_id, f"{info.run_id} {step.call}") if step.call else None
            place = step.area, step.space, step.key
            if isinstance(step, Put):
                item = Item(step.space, step.key, step.data, step.text)
                await store.put_item(step.area, item, lifetime=step.lifetime, write=write)
                if step.call not in model.calls:
                    there = model.items.pop(place, None)
                    if step.lifetime != 1e-9:
                        model.items[place] = (step.data, step.text)
                    if step.call:
                        model.calls[step.call] = there is not None
            else:
                found = await store.delete_item(step.area, step.space, step.key, write=write)
                if step.call in model.calls:
                    assert found == model.calls[step.call], step
                else:
                    assert found == (model.items.pop(place, None) is not None), step
                    if step.call:
                        model.calls[step.call] = found
        for area in ("memory", "cache"):
            items = await store.items(area, limit=1000)  # type: ignore[arg-type]
            assert [(one.namespace, one.key, one.data) for one in items] == model.listed(area, ()), step
        prefix = step.prefix if isinstance(step, Prune) else step.space[:1]
        items = await store.items(step.area, prefix, limit=1000)
        assert [(one.namespace, one.key, one.data) for one in items] == model.listed(step.area, prefix), step


def followed(backend: str, url: str, steps: list[Put | Delete | Prune]) -> None:
    async def work() -> None:
        store = open_store(url)
        try:
            for area in ("memory", "cache"):
                await store.prune_items(area, older_than=0)  # type: ignore[arg-type]
            await follow(store, steps)
        finally:
            await store.close()

    anyio.run(work, backend=backend)


MANY = partial(settings, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.full
@MANY(max_examples=sized(60, 1000))
@given(STEPS)
def test_items_in_memory_are_those_of_a_dict(steps: list[Any]) -> None:
    followed("asyncio", "memory://", steps)


@pytest.mark.full
@MANY(max_examples=sized(15, 300))
@given(STEPS)
def test_items_in_a_file_are_those_of_a_dict(tmp_path: Path, steps: list[Any]) -> None:
    followed("trio", f"sqlite:///{tmp_path}/runs.db", steps)


@MANY(max_examples=sized(15, 300))
@given(st.lists(TEXTS, max_size=6), st.lists(st.one_of(TEXTS, st.text(), NAMES), max_size=4))
def test_both_stores_find_the_same_with_the_same_scores(tmp_path: Path, texts: list[str], queries: list[str]) -> None:
    async def work() -> None:
        stores = [open_store("memory://"), open_store(f"sqlite:///{tmp_path}/runs.db")]
        found: list[list[Any]] = []
        for store in stores:
            await store.prune_items("memory", older_than=0)
            for number, text in enumerate(texts):
                await store.put_item("memory", Item(("t", str(number % 2)), str(number), "1", text))
            results = [
                await store.search_items("memory", prefix, query, limit=3)
                for query in [*queries, *texts]
                for prefix in ((), ("t", "0"))
            ]
            found.append([[(one.item.key, one.score) for one in result] for result in results])
            await store.close()
        assert found[0] == found[1]

    anyio.run(work)


@given(st.lists(NAMES, min_size=1).map(tuple), st.lists(NAMES).map(tuple))
def test_the_text_of_a_namespace_begins_with_that_of_its_prefix_alone(
    names: tuple[str, ...], prefix: tuple[str, ...]
) -> None:
    low, high = prefix_range(prefix)
    assert namespace_of(namespace_text(names)) == names
    assert (low <= namespace_text(names) < high) == (names[: len(prefix)] == prefix)


def test_vectors_are_read_back_as_they_were() -> None:
    assert unpacked(packed([1.0, -0.5, 0.25])) == (1.0, -0.5, 0.25)
    assert unpacked(b"odd") == ()


WRITES = """
import sys
import anyio
from orchestrator.stores import open_store
from orchestrator.stores.items import Item

async def work():
    store = open_store(sys.argv[1])
    for number in range(40):
        await store.put_item("memory", Item(("shared",), str(number % 10), f'"{sys.argv[2]} {number}"', "tea"))
        await store.put_item("memory", Item(("own", sys.argv[2]), str(number), "1", "tea"))
        await store.search_items("memory", (), "tea", limit=1)
    await store.close()

anyio.run(work)
"""


@on_one_loop
async def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    ends = []
    async with anyio.create_task_group() as group:
        for name in ("one", "two"):

            async def begin(name: str = name) -> None:
                ends.append(await anyio.to_thread.run_sync(run_program, [WRITES, url, name]))

            group.start_soon(begin)
    assert [end.code for end in ends] == [0, 0], ends
    store = open_store(url)
    assert len(await store.items("memory", ("own",), limit=1000)) == 80
    shared = await store.items("memory", ("shared",))
    assert sorted(item.key for item in shared) == sorted(map(str, range(10)))
    assert {item.data.split()[1] for item in shared} == {f'{number}"' for number in range(30, 40)}
    assert len(await store.search_items("memory", (), "tea", limit=1000)) == 90
    assert await store.check() == []
    await store.close()


@on_one_loop
async def test_damaged_items_are_named_and_leave_the_others_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    for area in ("memory", "cache"):
        for key in ("good", "bad"):
            await store.put_item(area, Item(("a",), key, '{"tea": 1}', "tea"))  # type: ignore[arg-type]
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("""UPDATE items SET data = '{"tea": 2}' WHERE key = 'bad'""")
    with pytest.raises(StoreError, match="'bad' in a is damaged"):
        await store.item("memory", ("a",), "bad")
    assert [item.key for item in await store.items("memory")] == ["good"]
    assert [one.item.key for one in await store.search_items("memory", (), "tea", limit=9)] == ["good"]
    found = await store.check()
    assert sorted(one.what for one in found) == [
        "1 results of cached nodes are damaged",
        "memory item 'bad' in a is damaged; delete it, or put it again",
    ]
    assert sorted(one.repaired for one in await store.check(repair=True)) == ["", "deleted"]
    await store.put_item("memory", Item(("a",), "bad", "3"))
    assert await store.check() == []
    await store.close()


@on_one_loop
async def test_a_damaged_index_is_made_again_and_a_deleted_text_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    for number in range(3):
        await store.put_item("memory", Item(("a",), str(number), "1", f"secretword{number} tea"))
    assert len(await store.search_items("memory", (), "tea", limit=9)) == 3
    with closing(sqlite3.connect(path)) as file, file:
        assert sqlite_items.has_index(file)
        file.execute("UPDATE item_words_data SET block = x'00' WHERE id > 10")
    repaired = [one.repaired for one in await store.check(repair=True)]
    assert repaired == ["deleted; the next search makes it"]
    assert len(await store.search_items("memory", (), "tea", limit=9)) == 3
    await store.prune_items("memory", older_than=0)
    await store.compact()
    await store.close()
    assert b"secretword" not in path.read_bytes()


SEARCHES = """
import sys
import anyio
from orchestrator.stores import open_store
from tests.executor.program import powerless

async def work():
    store = open_store(sys.argv[1])
    print([one.item.key for one in await store.search_items("memory", (), "TEA", limit=9)])
    await store.close()

powerless()
anyio.run(work)
"""


@on_one_loop
async def test_a_file_that_cannot_be_written_is_searched_without_its_index(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "runs.db"
    store = open_store(f"sqlite:///{path}")
    await store.put_item("memory", Item(("a",), "1", "1", "green tea"))
    await store.close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        ended = run_program([SEARCHES, f"sqlite:///{path}"])
    finally:
        path.parent.chmod(0o755)
    assert (ended.code, ended.out) == (0, "['1']\n"), ended


@on_one_loop
async def test_copies_of_stores_have_the_memory_and_not_the_cache(tmp_path: Path) -> None:
    source, to = open_store("memory://"), open_store(f"sqlite:///{tmp_path}/copy.db")
    vector = packed([1.0])
    for key in ("a", "b"):
        await source.put_item("memory", Item(("x",), key, "1", "tea", vector), lifetime=1e6)
    await source.put_item("cache", Item(("x",), "a", "1"))
    await to.put_item("memory", Item(("x",), "b", "2"))
    copied = await copy_store(source, to)
    assert (copied.items, copied.differing_items) == (1, ("x b",))
    assert await to.item("memory", ("x",), "a") == await source.item("memory", ("x",), "a")
    assert await to.items("cache") == []
    again = await copy_store(source, to)
    assert (again.items, again.differing_items) == (0, ("x b",))
    await to.close()


@on_one_loop
async def test_which_items_a_run_wrote_is_forgotten_with_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    info, records = new_run()
    await store.create(NewRun(info, records))
    await store.put_item("memory", Item(("a",), "k", "1"), write=ItemWrite(info.run_id, "call"))
    with closing(sqlite3.connect(path)) as file, file:
        count = "SELECT count(*) FROM item_writes"
        assert file.execute(count).fetchone() == (1,)
        await store.delete(info.run_id)
        assert file.execute(count).fetchone() == (0,)
        file.execute("INSERT INTO item_writes VALUES ('lost', 77, 1)")
    assert [(one.what, one.repaired) for one in await store.check(repair=True)] == [
        ("item_writes of 1 runs that do not exist", "deleted")
    ]
    assert len(await store.items("memory")) == 1
    await store.close()

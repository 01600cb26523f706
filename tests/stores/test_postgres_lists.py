"""Lists and items in PostgreSQL: whatever texts, cursors and writers at the same time there are."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest

from orchestrator.errors import MemoryFull, StoreError
from orchestrator.stores import open_store
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.items import Item, ItemWrite
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import NewRun, QuestionQuery, RunQuery, StatsQuery
from orchestrator.stores.rows import OpenQuestion, RunTotals, Schedule, Total
from orchestrator.stores.shared import MAX_KEY_BYTES
from orchestrator.testing.store_conformance.helpers import new_run, started
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

TEXTS = ("", "a", "A", "Z", "ä", "é", "e\u0301", "\x00", "\x01", "\x00a", "a\x00", "a\x01", "\x1f", " ", "~", "\ufffd",
         "\uffff", "\ue000", "🧭", "\U0010ffff", "'; DROP TABLE runs; --", "%s", "%(x)s", "{a,b}", "NULL", "\\", '"',
         "--", "a" * 1000, "ä" * 3000, "\n", "\u2028")  # fmt: skip
"""Texts that a database may order in another way, or take for something else."""


LONG = "x" * 1_000_000


@pytest.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[Store]:
    store = open_store(postgres.url)
    yield store
    await store.close()


async def add(store: Store, **facts: object) -> RunInfo:
    info, _ = new_run()
    info = replace(info, **facts)  # type: ignore[arg-type]  facts of a run, by name
    await store.create(NewRun(info, [started(info)]))
    return info


async def ids(store: Store, **filters: object) -> list[str]:
    page = await store.runs(RunQuery(**filters))  # type: ignore[arg-type]  filters, by name
    return [info.run_id for info in page.runs]


async def test_any_text_is_a_label_a_tool_and_a_word(store: Store) -> None:
    memory = MemoryStore()
    for text in (*TEXTS, LONG):
        spent = RunTotals((Total("work", "tool", text, 1, 1),), 1.0)
        other = await add(store, labels={"team": f"{text}x", f"{text}y": "team"})
        mine = await add(store, labels={"team": text, text: "team"}, totals=spent, input=f"{text[:1900]} needle")
        for info in (other, mine):
            await memory.create(NewRun(info, [started(info)]))
    await expect_the_same(store, memory)
    assert await store.check() == []
    for info in (await store.runs(RunQuery(search="needle", limit=100))).runs[::2]:
        for one in (store, memory):
            await one.delete(info.run_id)
    await expect_the_same(store, memory)
    assert await store.check() == []


async def expect_the_same(store: Store, memory: Store) -> None:
    """All texts find the same runs in both stores, with the same sums."""
    for text in (*sized(TEXTS[::2], TEXTS), LONG):
        for filters in (
            {"labels": {"team": text}}, {"labels": {text: "team"}}, {"labels": {"team": text, text: "team"}},
            {"failed_tool": text}, {"search": text}, {"parent": text}, {"graph": text},
        ):  # fmt: skip
            found = (await store.runs(RunQuery(**filters, limit=100))).runs
            assert found == (await memory.runs(RunQuery(**filters, limit=100))).runs, (text[:20], [*filters])
        for by in ((), (f"label:{text or 'x'}", "tool")):
            there = await store.stats(StatsQuery(by=by, labels={"team": text}))
            assert there == await memory.stats(StatsQuery(by=by, labels={"team": text}))


CURSORS = ("nan_1", "inf_1", "-inf_1", "1e400_1", f"1_{9**30}", f"1_-{9**30}", "0_0", "1_1'; DROP TABLE runs; --", "_",
           "1_", "\x00_1", "1.5_1_2", "x" * 100_000, "1_" + "9" * 10_000)  # fmt: skip


async def test_a_cursor_of_any_form_is_a_place_or_refused(store: Store) -> None:
    memory = MemoryStore()
    info, _ = new_run()
    info = replace(info, waiting=1, questions=(OpenQuestion("q", 1.0, "input", {}),))

    async def told(one: Store, cursor: str) -> list[object]:
        found: list[object] = []
        for asked in (
            one.runs(RunQuery(after=cursor)),
            one.questions(QuestionQuery(after=cursor)),
            one.questions(QuestionQuery(after=f"{cursor}_q")),
        ):
            try:
                found.append(await asked)
            except StoreError as error:
                found.append(str(error))
        return found

    for one in (store, memory):
        await one.create(NewRun(info, [started(info)]))
    for cursor in CURSORS:
        assert await told(store, cursor) == await told(memory, cursor), cursor[:20]


async def test_lists_are_in_the_order_of_all_stores(store: Store) -> None:
    memory = MemoryStore()
    kinds = [one for one in {*TEXTS} - {""} if len(one.encode("utf-8", "surrogatepass")) <= MAX_KEY_BYTES]
    for one in (store, memory):
        for kind in kinds:
            await one.put_schedule(Schedule(kind, "g", "* * * * *", 1.0))
        questions = tuple(OpenQuestion(kind, 1.0, "input", {}) for kind in kinds)
        info, _ = new_run()
        info = replace(info, run_id="asks", waiting=len(kinds), questions=questions)
        await one.create(NewRun(info, [started(info)]))
        for name in ("a", "ä", "Z", "🧭", "a b", "\ue000", "x" * 200):
            for key in (*kinds, ""):
                await one.put_item("memory", Item((name, name), key, json.dumps(key), text=key))

    async def everything(one: Store) -> object:
        found: list[object] = [[schedule.name for schedule in await one.schedules()]]
        found.append([question.id for question in await one.open_questions("asks") or ()])
        cursor: str | None = None
        while True:
            page = await one.questions(QuestionQuery(after=cursor, limit=3))
            found += [asked.question.id for asked in page.questions]
            cursor = page.cursor
            if cursor is None:
                break
        place: tuple[str, str] | None = None
        while items := await one.items("memory", after=place, limit=7):
            found += [item.place for item in items]
            place = items[-1].place
        found.append(await one.item_namespaces("memory"))
        found.append([item.place for item in await one.items("memory", ("ä",), limit=1000)])
        hits = await one.search_items("memory", (), "drop é", limit=1000)
        return [*found, [(hit.item.place, hit.score) for hit in hits]]

    assert await everything(store) == await everything(memory)


async def test_writers_of_one_item_wait_for_each_other(postgres: PostgresDatabase, store: Store) -> None:
    """Two stores write the same items, with calls of runs that ask twice, and limits of the area."""
    other = open_store(postgres.url)
    run = await add(store)
    try:

        async def put(one: Store, number: int) -> None:
            item = Item(("n",), str(number % 3), json.dumps(number), text=f"word {number}")
            write = ItemWrite(run.run_id, f"call {number}")
            await one.put_item("memory", item, write=write, most=10_000)

        async with anyio.create_task_group() as group:
            for number in range(40):
                for one in (store, other):
                    group.start_soon(put, one, number)
        assert [item.key for item in await store.items("memory")] == ["0", "1", "2"]
        used = (await store.item_usage("memory")).bytes
        item = Item(("n",), "big", json.dumps("x" * 100))
        refused = 0

        async def fill(one: Store, number: int) -> None:
            nonlocal refused
            try:
                await one.put_item("memory", replace(item, key=f"{number:03}"), most=used + 5 * item.size)
            except MemoryFull:
                refused += 1

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(fill, (store, other)[number % 2], number)
        assert refused == 15
        assert (await store.item_usage("memory")).bytes == used + 5 * item.size
    finally:
        await other.close()


async def test_what_does_not_belong_together_is_found_and_repaired(postgres: PostgresDatabase, store: Store) -> None:
    kept = await add(store, labels={"a": "b", "c": "d"}, input="some words")
    await store.put_snapshot(kept.run_id, 1, b"fold")
    await store.put_item("cache", Item(("n",), "k", "1"))
    await store.put_item("memory", Item(("n",), "k", "1"))
    await store.put_schedule(Schedule("s", "g", "* * * * *", 1.0))
    for statement in (
        "INSERT INTO records VALUES (999, 1, 0, 'x'), (999, 2, 0, 'x'), (998, 1, 0, 'x')",
        "INSERT INTO snapshots VALUES (999, 1, 0, 'x')",
        "INSERT INTO inbox (run, body, notice) VALUES (999, '{}', FALSE)",
        "INSERT INTO failed_tools VALUES ('t', 999)",
        "INSERT INTO unlisted VALUES (997)",
        "DELETE FROM labels WHERE name = 'a'",
        "UPDATE summaries SET words = '{other}'",
        "UPDATE snapshots SET data = 'y' WHERE run <> 999",
        "UPDATE items SET data = '2'",
        "UPDATE schedules SET data = '{'",
    ):
        postgres.execute(statement)
    wrong = {
        "records of 2 runs that do not exist", "snapshots of 1 runs that do not exist",
        "inbox of 1 runs that do not exist", "failed_tools of 1 runs that do not exist",
        "unlisted of 1 runs that do not exist", "the index of labels differs from the rows of 1 runs",
        "the full-text index differs from the texts of 1 runs", "1 snapshots are damaged",
        "1 results of cached nodes are damaged",
    }  # fmt: skip
    beyond = {
        "schedule 's' is damaged; remove it and schedule it again",
        "memory item 'k' in n is damaged; delete it, or put it again",
    }
    found = await store.check()
    assert {one.what for one in found} == wrong | beyond
    assert not any(one.repaired for one in found)
    repaired = await store.check(repair=True)
    assert {one.what for one in repaired if one.repaired} == wrong
    assert {one.what for one in await store.check(repair=True)} == beyond
    assert await ids(store, labels={"a": "b"}) == await ids(store, search="words d") == [kept.run_id]
    assert len(await store.read(kept.run_id)) == 1


async def test_the_space_of_deleted_runs_is_given_back(store: Store) -> None:
    runs = [await add(store, input="x " * 900) for _ in range(3)]
    for info in runs:
        await store.put_snapshot(info.run_id, 1, random.Random(1).randbytes(5_000_000))
    for info in runs:
        await store.delete(info.run_id)
    assert await store.compact() > 10_000_000
    assert await store.compact() == 0

"""Stores are copied and checked as a whole, and give the space of deleted runs back."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from orchestrator import Executor
from orchestrator.kernel.records import Paused
from orchestrator.stores import Store, open_store
from orchestrator.stores.base import RunSummary, Schedule
from orchestrator.stores.copying import Copied, copy_store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.sqlite.files import PAGE_BYTES
from orchestrator.testing.store_conformance.helpers import a_lease, event, events, new_run
from tests.support.executors import chain, says
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

GRAPH = chain(says("a"), says("b"))


async def filled(url: str, count: int = 3) -> Store:
    """A store with runs that completed."""
    store = open_store(url)
    async with Executor(store, graphs=[GRAPH]) as executor:
        for number in range(count):
            await executor.start(GRAPH, run_id=f"r{number}", labels={"n": str(number)})
    return store


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in statements:
            file.execute(statement)


# -- copies ----------------------------------------------------------------------------------------------------------


async def test_a_copy_has_every_run_and_asked_again_only_what_is_new(tmp_path: Path) -> None:
    source, there = await filled(f"sqlite:///{tmp_path}/one.db"), open_store("memory://")
    said: list[tuple[int, int]] = []
    paused, records = new_run()
    await source.create(NewRun(replace(paused, status="paused", created=2e9), records))
    await source.post(paused.run_id, {"type": "pause"})
    ids = ("r0", "r1", "r2", paused.run_id)
    assert await copy_store(source, there, lambda *done: said.append(done)) == Copied(runs=ids)
    assert said == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert (await there.runs(RunQuery())).runs == (await source.runs(RunQuery())).runs
    for run_id in ids:
        assert await there.read(run_id) == await source.read(run_id)
    assert await there.graph(GRAPH.content) == GRAPH.data()
    assert [one.body for one in await there.inbox(ids)] == [{"type": "pause"}]
    await source.append(Append(paused.run_id, events(2), after=1, status="failed", summary=RunSummary(error="Boom")))
    await there.append(
        Append("r1", [Paused(seq=(await there.info("r1")).head + 1, ts=5.0)], after=(await there.info("r1")).head)
    )
    again = await copy_store(source, there)
    assert again == Copied(extended=(paused.run_id,), skipped=("r0", "r2"), differing=("r1",))
    assert await there.info(paused.run_id) == await source.info(paused.run_id)
    assert len(await there.inbox(ids)) == 1
    async with Executor(there, graphs=[GRAPH]) as executor:
        assert (await executor.load("r2")).output == ["a", "b"]
    back = open_store(f"sqlite:///{tmp_path}/two.db")
    assert (await copy_store(there, back)).runs == ids
    assert (await back.runs(RunQuery())).runs == (await there.runs(RunQuery())).runs
    for store in (source, back):
        await store.close()


@pytest.mark.parametrize("kinds", [("sqlite", "memory"), ("memory", "sqlite"), ("sqlite", "sqlite")])
async def test_a_copy_has_every_schedule_paused_unless_it_is_to_start_them(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    source, there = (
        open_store("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/{number}.db")
        for number, kind in enumerate(kinds)
    )
    daily = Schedule(
        name="daily", graph="g", cron="0 6 * * *", next_at=100.5, timezone="Europe/Vienna", catch_up="all",
        values={"n": [1, None]}, labels={"k": "v"}, approve="read",
    )  # fmt: skip
    idle = Schedule(name="idle", graph="g", cron="* * * * *", next_at=60.0, paused=True)
    other = Schedule(name="other", graph="g", cron="* * * * *", next_at=60.0)
    for one in (daily, idle, other):
        await source.put_schedule(one)
    await there.put_schedule(replace(other, cron="5 * * * *"))
    copied = await copy_store(source, there)
    assert copied == Copied(schedules=("daily", "idle"), differing_schedules=("other",))
    assert await there.schedules() == [replace(daily, paused=True), idle, replace(other, cron="5 * * * *")]
    assert await copy_store(source, there) == Copied(differing_schedules=("other",))
    await there.delete_schedule("other")
    await source.move_schedule("daily", at=100.5, to=200.5)
    started = await copy_store(source, there, start_schedules=True)
    assert started == Copied(schedules=("daily", "other"))
    assert await there.schedules() == await source.schedules() == [replace(daily, next_at=200.5), idle, other]
    await there.move_schedule("daily", at=200.5, to=300.5)  # a worker fired there
    assert await copy_store(source, there, start_schedules=True) == Copied()
    assert (await there.schedules())[0].next_at == 300.5
    for store in (source, there):
        await store.close()


COPIES = """
import sys, anyio
from orchestrator.stores import open_store
from orchestrator.stores.copying import copy_store

async def main():
    print("ready", flush=True)
    await copy_store(open_store(sys.argv[1]), open_store(sys.argv[2]))

anyio.run(main)
"""


def killed_while_it_copies(one: str, two: str, seconds: float) -> None:
    with closing(Piped([COPIES, one, two], module=CODE)) as process:
        process.line()
        time.sleep(seconds)
        process.signal(signal.SIGKILL)


@quick_on("asyncio")
async def test_a_copy_that_is_killed_left_whole_runs_and_goes_on(tmp_path: Path) -> None:
    one, two = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    source = open_store(one)
    for _ in range(sized(60, 500)):
        info, records = new_run()
        await source.create(
            NewRun(replace(info, head=21), [*records, *[event(seq, "x" * 2000) for seq in range(2, 22)]])
        )
    kills = sized(2, 8)
    for number in range(kills):
        killed_while_it_copies(one, two, 0.05 * (number + 1))
        there = open_store(two)
        for info in (await there.runs(RunQuery(limit=1000))).runs:
            assert len(await there.read(info.run_id)) == info.head == 21
        await there.close()
    there = open_store(two)
    done = await copy_store(source, there)
    assert done.differing == done.extended == ()
    assert len(done.runs) + len(done.skipped) == sized(60, 500)
    assert (await there.runs(RunQuery(limit=1000))).runs == (await source.runs(RunQuery(limit=1000))).runs
    for store in (source, there):
        await store.close()


# -- space -----------------------------------------------------------------------------------------------------------


@quick_on("asyncio")
async def test_the_space_of_deleted_runs_is_given_back_and_their_words_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    ids: list[str] = []
    count = sized(40, 120)
    for number in range(count):
        info, records = new_run()
        info = replace(info, input=f"confidential{number}x", head=21)
        await store.create(NewRun(info, [*records, *[event(seq, "y" * 4000) for seq in range(2, 22)]]))
        ids.append(info.run_id)
    assert [one.run_id for one in (await store.runs(RunQuery(search="confidential7x"))).runs] == [ids[7]]
    await store.compact()
    full = path.stat().st_size
    for run_id in ids[: -count // 10]:
        await store.delete(run_id)
    appends: list[float] = []
    given = 0

    async def append() -> None:
        for after in range(21, 41):
            begun = time.monotonic()
            await store.append(Append(ids[-1], [event(after + 1)], after=after))
            appends.append(time.monotonic() - begun)
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append)
        given = await store.compact()
    assert given > 0.7 * full
    assert path.stat().st_size < 0.25 * full
    assert len(appends) == 20
    assert sorted(appends)[10] < 0.25  # one waits for a step of 2 MiB at most; machines under load are slow
    content = path.read_bytes()
    assert b"confidential7x" not in content
    assert f"confidential{count - 1}x".encode() in content
    assert await store.compact() == 0
    assert await store.check() == []
    await store.close()


@quick_on("trio")
async def test_pruning_gives_space_back(tmp_path: Path) -> None:
    graph = chain(*[says("a" * 30_000)] * 7)  # texts that are in each record, and are not shared by runs
    count = sized(10, 20)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph]) as executor:
        for number in range(count):
            await executor.start(graph, run_id=f"r{number}")
        await executor.store.compact()
        await executor.delete("r0")
        full = (tmp_path / "runs.db").stat().st_size
        assert len((await executor.prune(keep=2)).runs) == count - 3
        assert (tmp_path / "runs.db").stat().st_size < 0.4 * full


# -- checks ----------------------------------------------------------------------------------------------------------


async def test_a_store_in_order_has_nothing_to_be_said_of(tmp_path: Path) -> None:
    store = await filled(f"sqlite:///{tmp_path}/runs.db")
    async with Executor(store) as executor:
        seen: list[int] = []
        found = await executor.check(repair=True, progress=seen.append)
        assert (found.findings, found.ok, found.runs, found.records, seen) == ([], True, 3, 12, [0, 1, 2])
    await store.close()
    async with Executor() as executor:
        assert (await executor.check(repair=True)).runs == 0


async def test_what_is_wrong_is_found_and_what_can_be_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    url = f"sqlite:///{path}"
    store = await filled(url, 6)
    assert (await store.runs(RunQuery(search="a"))).runs
    await store.take_lease(a_lease("r5", "t"), ttl=60.0)
    await store.close()
    change(
        path,
        "UPDATE runs SET status = 'paused', waiting = 3 WHERE run_id = 'r0'",
        "UPDATE summaries SET output = 'another', usage = NULL WHERE run = 2",
        "UPDATE records SET data = x'00' WHERE id = (3 << 32) | 2",
        "DELETE FROM labels WHERE run = 4",
        "INSERT INTO labels VALUES ('n', 'none', 1.0, 99)",
        "INSERT INTO records VALUES ((77 << 32) | 1, 0, x'00')",
        "INSERT INTO inbox (run, body) VALUES (78, '{}')",
        "INSERT INTO snapshots VALUES ((5 << 32) | 1, 0, x'00')",
        "UPDATE runs SET status = 'failed' WHERE run_id = 'r5'",
    )
    async with Executor(url) as executor:
        found = await executor.check()
        assert not found.ok
        told = {(one.run_id, one.what.split(",")[0]) for one in found.findings if not one.note}
        assert told >= {
            ("r0", "its row has status 'paused'"),
            ("r0", "its row has waiting 3"),
            ("", "records of 1 runs that do not exist"),
            ("", "inbox of 1 runs that do not exist"),
            ("", "labels of 1 runs that do not exist"),
            ("", "the index of labels differs from the rows of 1 runs"),
            ("", "1 snapshots are damaged"),
        }
        assert [one.run_id for one in found.findings if "record 2" in one.what] == ["r2"]
        assert "r5" not in {one.run_id for one in found.findings}  # it is driven, as far as its lease says
        assert not any(one.repaired for one in found.findings)

        found = await executor.check(repair=True)
        assert [one.run_id for one in found.findings if not one.note and not one.repaired] == ["r2"]
        again = await executor.check()
        assert [one.run_id for one in again.findings] == ["r2"]
        assert (await executor.load("r0")).status == "completed"
        assert (await executor.runs(status="paused")).runs == ()
        assert [info.run_id for info in (await executor.runs(labels={"n": "3"})).runs] == ["r3"]
        info = await executor.store.info("r1")
        assert (info.output, info.steps) == ('["a","b"]', 2)


async def test_a_check_says_what_stopped_and_repair_does_not_hide_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    store = await filled(url, 1)
    info, records = new_run()
    await store.create(NewRun(replace(info, run_id="gone", graph="g", structure="", content=""), [
        structs.replace(records[0], run_id="gone", graph="g", structure="", content="")
    ]))  # fmt: skip
    for number in range(5):
        await store.take_lease(a_lease("r0", f"t{number}"), ttl=60.0)
        await store.drop_lease("r0", f"t{number}", fault="no graph")
    await store.append(Append("r0", [], after=(await store.info("r0")).head, summary=RunSummary()))
    async with Executor(store) as executor:
        found = await executor.check(repair=True)
        told = {one.run_id: one for one in found.findings}
        assert told.keys() == {"gone", "r0"}
        assert "cannot be folded" in told["gone"].what
        assert told["r0"].repaired == "written again from the journal"
        assert (await store.info("r0")).deaths == 5
    await store.close()


async def test_a_file_that_is_damaged_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = await filled(f"sqlite:///{path}", 40)
    await store.close()
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as file:
        (page,) = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_by_created'").fetchone()
    content[(page - 1) * PAGE_BYTES + 8 : page * PAGE_BYTES] = bytes(PAGE_BYTES - 8)
    path.write_bytes(content)
    store = open_store(f"sqlite:///{path}")
    found = await store.check(repair=True)
    assert found
    assert all("the file is damaged" in one.what and not one.repaired for one in found)
    await store.close()
    assert path.read_bytes() == bytes(content)

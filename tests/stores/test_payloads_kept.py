"""Payloads of records in files and databases: stored once, freed with their last use, and damage told by name."""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from orchestrator import Context, Executor, Graph, Update, node, tool
from orchestrator.errors import RunArchived, RunExists, StoreCorrupt
from orchestrator.kernel.records import Ended, Record, decode, encode
from orchestrator.stores import RunInfo, Store, open_store
from orchestrator.stores.base import Archivable
from orchestrator.stores.codec import AESGCMCodec
from orchestrator.stores.payloads import LEAST, shown
from orchestrator.stores.requests import Append, NewRun
from orchestrator.stores.sqlite import writes
from orchestrator.testing.store_conformance.other_data import an_object
from tests.stores.runs import add_run, event, events
from tests.stores.test_payloads import named_often
from tests.support import stores
from tests.support.executors import Log, chain
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    """A store, and what is in its tables."""

    url: str
    store: Store

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return stores.execute(self.url, statement)

    @property
    def counts(self) -> tuple[int, int]:
        """How many payloads it has, and how many uses of them."""
        ((payloads,),) = self.execute("SELECT count(*) FROM payloads")
        ((uses,),) = self.execute("SELECT count(*) FROM payload_uses")
        return payloads, uses

    def number(self, run_id: str) -> int:
        """The number of a run."""
        ((number,),) = self.execute(f"SELECT id FROM runs WHERE run_id = '{run_id}'")
        return int(number)

    @property
    def size(self) -> int:
        """Bytes that its records and payloads take."""
        if self.url.startswith("sqlite"):
            path = Path(self.url.removeprefix("sqlite:///"))
            return path.stat().st_size
        tables = ", ".join(f"('{name}')" for name in ("records", "payloads", "payload_uses"))
        ((size,),) = self.execute(
            f"SELECT sum(pg_total_relation_size(name::regclass)) FROM (VALUES {tables}) AS t (name)"
        )
        return int(size)


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A store of each kind that keeps payloads."""
    url = f"sqlite:///{tmp_path}/runs.db"
    if request.param == "postgres":
        database: PostgresDatabase = request.getfixturevalue("postgres")
        url = database.url
    store = open_store(url)
    yield Place(url, store)
    await store.close()


def text(seed: int, size: int = 500_000) -> str:
    """A text that no store can compress to less than two thirds."""
    return random.Random(seed).randbytes(size * 3 // 4 + 1).hex()[:size]


def ended(run_id: str, records: Sequence[Record]) -> tuple[RunInfo, list[Record]]:
    """A run that has these records, and has ended."""
    head = len(records) + 1
    return RunInfo(run_id, "essay", "completed", head=head), [*records, Ended(seq=head, ts=9.0, status="completed")]


async def test_what_is_in_many_runs_is_stored_once(place: Place) -> None:
    long = text(1)
    records = [event(1, {"result": long}), event(2, {"state": {"document": long}}), event(3, "short")]
    for number in range(11):
        await place.store.create(NewRun(RunInfo(f"r{number}", "essay", "running", head=3), records))
    assert place.counts == (1, 11)
    for number in range(11):
        assert await place.store.read(f"r{number}") == records
    await place.store.close()
    assert place.size < 1.1 * len(long) + (300_000 if place.url.startswith("sqlite") else 150_000)  # with empty tables


async def test_short_texts_are_in_their_records(place: Place) -> None:
    await add_run(place.store, count=20, data="x" * (LEAST - 1))
    assert place.counts == (0, 0)
    assert {bytes(data)[:1] for (data,) in place.execute("SELECT data FROM records")} == {b"{"}


async def test_a_payload_goes_with_its_last_use(place: Place) -> None:
    """By deleting, by moving records to an archive, and by both together; it comes back with the records."""
    store, one, both = place.store, text(1), text(2)
    assert isinstance(store, Archivable)
    await add_run(store, "a", 2, both)
    await add_run(store, "b", 1, both)
    info, records = ended("c", [event(1, [one, both])])
    await store.create(NewRun(info, records))
    assert place.counts == (2, 4)
    await store.delete("a")
    assert place.counts == (2, 3)
    where = await store.note_object("c", an_object("c"))
    for _ in range(2):  # asked again, nothing is let go twice
        await store.move_out("c", where, head=2)
    assert place.counts == (1, 1)
    with pytest.raises(RunArchived):
        await store.read("c")
    assert await store.read("b") == [event(1, both)]
    await store.delete("b")
    assert place.counts == (0, 0)
    for _ in range(2):
        await store.move_back("c", records, where)
    assert place.counts == (2, 2)
    assert await store.read("c") == records
    await store.move_out("c", where, head=2)
    await store.delete("c")
    assert place.counts == (0, 0)
    assert await store.check() == []


async def test_an_append_that_is_refused_keeps_nothing(place: Place) -> None:
    await add_run(place.store)
    for _ in range(2):
        with pytest.raises(Exception, match="its head is 1, not 5"):
            await place.store.append(Append("r", events(6, 1, text(1)), after=5))
        with pytest.raises(Exception, match="taken over"):
            await place.store.append(Append("r", events(2, 1, text(1)), after=1, lease="none"))
        with pytest.raises(Exception, match="exists"):
            await add_run(place.store, data=text(2))
    assert place.counts == (0, 0)


async def test_appends_of_the_same_payload_at_once(place: Place) -> None:
    names, long = [f"r{number}" for number in range(30)], text(1, 40_000)
    for name in names:
        await add_run(place.store, name)
    other = open_store(place.url)

    async def write(name: str, store: Store) -> None:
        await store.append(Append(name, events(2, 1, [long, name + long]), after=1))

    async with anyio.create_task_group() as tasks:
        for at, name in enumerate(names):
            tasks.start_soon(write, name, (place.store, other)[at % 2])
    await other.close()
    assert place.counts == (31, 60)
    for name in names:
        assert await place.store.read(name, after=1) == events(2, 1, [long, name + long])


async def test_writers_and_deleters_of_one_payload(place: Place) -> None:
    """While it comes and goes all the time, every record that is there can be read."""
    other, long = open_store(place.url), [text(seed, 40_000) for seed in range(3)]
    rounds = sized(15, 60)

    async def come_and_go(name: str, store: Store) -> None:
        for number in range(rounds):
            mine = [*long[number % 3 :], *long[: number % 3]]
            await add_run(store, name)
            await store.append(Append(name, events(2, 1, mine), after=1))
            await store.append(Append(name, events(3, 1, mine[0]), after=2))
            assert await store.read(name, after=1) == [event(2, mine), event(3, mine[0])]
            await store.delete(name)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for at in range(6):
                tasks.start_soon(come_and_go, f"r{at}", (place.store, other)[at % 2])
    await other.close()
    assert place.counts == (0, 0)


async def test_records_with_payloads_are_read_by_few_statements(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [event(seq, [text(seq, LEAST), text(0, LEAST), "x"]) for seq in range(1, 81)]
    await place.store.create(NewRun(RunInfo("r", "essay", "running", head=80), records))
    said: list[str] = []
    if place.url.startswith("sqlite"):
        readers: Any = vars(place.store)["_readers"]
        place.store.read_now("r")
        connection: sqlite3.Connection = readers._idle[-1][0]
        connection.set_trace_callback(said.append)
    else:
        execute: Any = psycopg.Connection.execute

        def noted(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
            said.append(query if isinstance(query, str) else bytes(query).decode())
            return execute(self, query, *arguments, **named)

        monkeypatch.setattr(psycopg.Connection, "execute", noted)
    assert place.store.read_now("r") == records
    selects = [one for one in said if one.lstrip().startswith("SELECT")]
    assert len([one for one in selects if "FROM payloads" in one]) == 1
    assert len(selects) <= 5


# -- damage ------------------------------------------------------------------------------------------------------------


async def told(place: Place, run_id: str = "r") -> StoreCorrupt:
    with pytest.raises(StoreCorrupt) as caught:
        await place.store.read(run_id)
    with pytest.raises(StoreCorrupt) as now:
        place.store.read_now(run_id)
    assert str(now.value) == str(caught.value)
    return caught.value


DAMAGE = {
    "is missing": "DELETE FROM payloads WHERE digest = {digest}",
    "does not have this digest": "UPDATE payloads SET data = {other} WHERE digest = {digest}",
}


@pytest.mark.parametrize("why", [*DAMAGE, "does not have this digest, nor its length"])
async def test_a_damaged_payload_is_told_by_run_record_and_digest(place: Place, why: str) -> None:
    long, other = text(1, 40_000), text(2, 40_000)
    digest = sha256(long.encode()).digest()
    await place.store.create(
        NewRun(
            RunInfo("r", "essay", "running", head=4),
            [event(1), event(2, other), event(3, [other, long]), event(4, long)],
        )
    )
    await add_run(place.store, "whole", 2, other)
    change = DAMAGE[why.split(",", maxsplit=1)[0]]
    wrong = (other if "length" not in why else other[1:]).encode().hex()
    if place.url.startswith("sqlite"):
        place.execute(change.format(digest=f"x'{digest.hex()}'", other=f"x'{wrong}'"))
    else:
        place.execute("ALTER TABLE payload_uses DROP CONSTRAINT payload_uses_digest_fkey")
        place.execute(change.format(digest=f"'\\x{digest.hex()}'", other=f"'\\x{wrong}'"))
    error = await told(place)
    assert (error.run_id, error.seq) == ("r", 3)
    assert f"run 'r': record 3 is damaged (its payload {shown(digest)} {why.split(',')[0]});" in str(error)
    assert vars(error)["records"] == (event(1), event(2, other))
    assert await place.store.read("r", upto=2) == [event(1), event(2, other)]
    assert await place.store.read("whole") == events(1, 2, other)
    found = await place.store.check(repair=True)
    what = f"{shown(digest)} of run 'r' is missing" if why == "is missing" else f"{shown(digest)} is damaged"
    assert [one.repaired for one in found if what in one.what] == [""]
    assert len(found) == 1
    assert (await told(place)).seq == 3  # a repair makes nothing worse


async def test_skeletons_that_are_damaged_are_told(place: Place) -> None:
    long, other = text(1, 40_000), text(2, 40_000)
    await place.store.create(NewRun(RunInfo("r", "essay", "running", head=2), [event(1), event(2, long)]))
    await add_run(place.store, "other", 1, other)
    column = "CAST({} AS BLOB)" if place.url.startswith("sqlite") else "convert_to({}, 'UTF8')"
    as_text = "CAST(data AS TEXT)" if place.url.startswith("sqlite") else "convert_from(data, 'UTF8')"
    where = f"{'id >> 32' if place.url.startswith('sqlite') else 'run'} = {place.number('r')}"
    first, second = (sha256(one.encode()).hexdigest() for one in (long, other))
    for was, now, why in (
        (first, second, "its checksum does not match"),  # the payload of another record, of the same length
        (first, "0" * 64, "is missing"),
        ("sha256:", "sha257:", "there is no digest at"),
        ("+40000", "+40001", "has 40000 bytes, not 40001"),
        ("~", "}", "its checksum does not match"),
        ("~", "~,", "the places of its payloads cannot be read"),
    ):
        change = "UPDATE records SET data = " + column.format(f"replace({as_text}, '{{}}', '{{}}')")
        place.execute(f"{change.format(was, now)} WHERE {where}")
        error = await told(place)
        assert (error.seq, why in str(error)) == (2, True), error
        await place.store.check(repair=True)
        place.execute(f"{change.format(now, was)} WHERE {where}" if now != "}" else f"SELECT {1}")
        if now == "}":
            place.execute(f"UPDATE records SET data = {column.format(f_mark(as_text))} WHERE {where}")
        assert await place.store.read("r") == [event(1), event(2, long)]  # nor did a repair remove what it had


def f_mark(as_text: str) -> str:
    """A skeleton whose first character was replaced, as it was; a whole record as it is."""
    return f"CASE WHEN substr({as_text}, 1, 1) = '}}' THEN '~' || substr({as_text}, 2) ELSE {as_text} END"


@pytest.mark.full
@quick_on("asyncio")
async def test_reading_takes_as_much_memory_as_is_stored(place: Place) -> None:
    """However often records have a payload: here 80 MB, of one text of 1 MB."""
    long = text(1, 1_000_000)
    records = [event(1), event(2, [long] * 40), event(3, {"again": [long] * 40})]
    await place.store.create(NewRun(RunInfo("r", "essay", "running", head=3), records))
    await place.store.read("r", upto=1)  # opened, and what that takes is not counted
    tracemalloc.start()
    try:
        read = await place.store.read("r")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert read == records


async def test_a_record_that_names_a_payload_too_often_is_damaged_at_every_door(place: Place, tmp_path: Path) -> None:
    """A store of 1 MB that stands for 2 GB; nothing of it is put together."""
    payload = "x" * (1 << 20)
    skeleton, _ = named_often(payload, 2_000)
    await place.store.create(NewRun(RunInfo("r", "essay", "running", head=1), [event(1, [payload])]))
    sqlite = place.url.startswith("sqlite")
    forged = f"x'{skeleton.hex()}'" if sqlite else f"'\\x{skeleton.hex()}'"
    place.execute(f"UPDATE records SET data = {forged} WHERE {'id >> 32' if sqlite else 'run'} = {place.number('r')}")
    told_so = r"run 'r': record 1 is damaged \(it has 2,097,\d{3},\d{3} bytes .* limit for a record is 603,979,776\)"
    tracemalloc.start()
    try:
        async with Executor(place.store, graphs=[GRAPH], tools=[fetch], archive=str(tmp_path / "archive")) as executor:
            for door in (executor.load, executor.history, executor.fork, executor.resume):
                with pytest.raises(StoreCorrupt, match=told_so):
                    await door("r")
            with pytest.raises(StoreCorrupt, match=told_so):
                _ = [line async for line in executor.export("r")]
            with pytest.raises(StoreCorrupt, match=told_so):
                await place.store.copy("r", open_store("memory://"))
            assert [info.run_id for info in (await executor.runs()).runs] == ["r"]
            assert "".join(one.what for one in await place.store.check(repair=True)) == ""
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert place.counts == (1, 1)


async def test_what_is_noted_wrongly_is_found_and_repaired(place: Place) -> None:
    long, other = text(1, 40_000), text(2, 40_000)
    await add_run(place.store, "a", 1, long)
    await add_run(place.store, "b", 2, [long, other])
    info, records = ended("c", [event(1, other)])
    await place.store.create(NewRun(info, records))
    hexed = "x'{}'" if place.url.startswith("sqlite") else "'\\x{}'"
    digest, nowhere = (hexed.format(sha256(one.encode()).hexdigest()) for one in (long, "nowhere"))
    place.execute(f"DELETE FROM payload_uses WHERE digest = {digest} AND run = {place.number('b')}")
    place.execute(f"INSERT INTO payloads (digest, data) VALUES ({nowhere}, {hexed.format(b'nowhere'.hex())})")
    place.execute(f"INSERT INTO payload_uses (digest, run) VALUES ({nowhere}, 99), ({digest}, {place.number('c')})")
    wrong = {"the payloads that are noted differ from the records of 2 runs", "1 payloads that no record refers to"}
    assert {one.what for one in await place.store.check()} == wrong
    found = await place.store.check(repair=True)
    assert {one.what for one in found if one.repaired} == wrong
    assert await place.store.check() == []
    assert place.counts == (2, 5)  # one too many for run c, in which a damaged record may have had it
    await place.store.delete("a")
    assert await place.store.read("b") == events(1, 2, [long, other])
    for run_id in "bc":
        await place.store.delete(run_id)
    assert place.counts == (0, 0)


async def test_an_append_is_readable_although_the_payload_that_was_there_is_damaged(tmp_path: Path) -> None:
    path, long = tmp_path / "runs.db", text(1)
    place = Place(f"sqlite:///{path}", open_store(f"sqlite:///{path}"))
    await add_run(place.store, "a", 1, long)
    place.execute("UPDATE payloads SET data = x'00'")
    await add_run(place.store, "b", 1, long)
    assert await place.store.read("b") == events(1, 1, long) == await place.store.read("a")
    await place.store.close()


@pytest.mark.parametrize("returns", [True, False])
async def test_a_run_has_no_payloads_of_one_that_had_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    """A process of an earlier version, which has the file open, deletes a run and knows nothing of payloads."""
    monkeypatch.setattr(writes, "_RETURNS", returns)  # by each kind of statement, whatever this SQLite knows
    place = Place(f"sqlite:///{tmp_path}/runs.db", open_store(f"sqlite:///{tmp_path}/runs.db"))
    mine, shared = text(1, 40_000), text(2, 40_000)
    await add_run(place.store, "other", 1, shared)
    await add_run(place.store, "gone", 1, [mine, shared])
    number = place.number("gone")
    place.execute(f"DELETE FROM records WHERE id >> 32 = {number}")
    place.execute(f"DELETE FROM runs WHERE id = {number}")
    assert place.counts == (2, 3)
    with pytest.raises(RunExists):
        await add_run(place.store, "other")
    await add_run(place.store, "new", 1, "short")
    assert place.number("new") == number
    assert place.counts == (1, 1)
    assert await place.store.read("other") == events(1, 1, shared)
    assert await place.store.read("new") == events(1, 1, "short")
    await place.store.close()


# -- above the store ---------------------------------------------------------------------------------------------------


@tool
async def fetch(place: str) -> str:
    """Return a document."""
    return text(7)


@node
async def search(state: Log, ctx: Context) -> Update:
    """Call a tool with a long result."""
    return {"log": (await ctx.tool("fetch", place="library")).text}


@node
async def judge(state: Log) -> Update:
    """A node after it."""
    return {"log": "good"}


GRAPH: Graph[Any] = chain(search, judge)


@pytest.mark.full
@quick_on("asyncio")
async def test_a_run_and_its_forks_take_the_room_of_one(place: Place) -> None:
    async with Executor(place.store, graphs=[GRAPH], tools=[fetch]) as executor:
        await executor.start(GRAPH, "q", run_id="r")
        produced = sum(len(encode(one)) for one in await place.store.read("r"))
        before = place.size
        for number in range(10):
            fork = await executor.fork("r", at=3, run_id=f"f{number}")
            assert fork.status == "completed"
        assert place.counts[0] == 1
        assert produced > 3 * 500_000  # in the effect, the step and the end of the run
        assert place.size < 1.3 * 500_000 + 300_000  # with empty tables
        assert place.size - before < 0.1 * produced
        whole = {name: [encode(one) for one in await place.store.read(name)] for name in ("r", "f0", "f9")}
        assert any(len(one) > 500_000 for one in whole["f9"])
        assert (await executor.check()).ok
        assert len((await executor.prune(older_than=timedelta(0))).runs) == 11
        assert place.counts == (0, 0)


@pytest.mark.full
@quick_on("trio")
async def test_exports_copies_and_archives_have_the_same_bytes(place: Place, tmp_path: Path) -> None:
    """As a store that keeps records whole: the one in memory."""
    archive = (tmp_path / "archive").as_uri()
    async with Executor(open_store(place.url, archive=archive), graphs=[GRAPH], tools=[fetch]) as executor:
        await executor.start(GRAPH, "q", run_id="r")
        lines = [line async for line in executor.export("r")]
        memory = open_store("memory://")
        await place.store.copy("r", memory)
        records = [encode(one) for one in await memory.read("r")]
        assert records == [encode(one) for one in await place.store.read("r")]
        async with Executor(memory, graphs=[GRAPH], tools=[fetch]) as other:
            assert [line async for line in other.export("r")] == lines
            await other.delete("r")
            assert (await other.import_(lines)).runs == ("r",)
            assert [encode(one) for one in await memory.read("r")] == records
        await executor.archive(older_than=timedelta(0))
        assert place.counts == (0, 0)
        (found,) = (one for one in (tmp_path / "archive").rglob("*.jsonl*") if one.is_file())
        stored = found.read_bytes().split(b"\n")
        assert [line for line in stored if line in records] == records
        assert [line async for line in executor.export("r")] == lines
        assert await executor.restore("r")
        assert place.counts == (1, 1)
        assert [encode(one) for one in await place.store.read("r")] == records


@quick_on("asyncio")
async def test_encrypted_values_are_payloads_like_others(place: Place) -> None:
    store = open_store(place.url, codec=AESGCMCodec({"k": bytes(32)}))
    try:
        for name in ("a", "b"):
            await add_run(store, name, 2, text(1))
        for name in ("a", "b"):
            assert await store.read(name) == events(1, 2, text(1))
        assert place.counts == (4, 4)
    finally:
        await store.close()


async def test_the_view_for_people_shows_a_record_with_readable_holes(place: Place) -> None:
    long = text(1, 40_000)
    await place.store.create(
        NewRun(RunInfo("r", "essay", "running", head=2), [event(1, "short"), event(2, {"a": long})])
    )
    rows = place.execute("SELECT run_id, seq, record FROM journal ORDER BY seq")
    shown_records: list[Record] = [decode(record) for _, _, record in rows]
    assert [row[:2] for row in rows] == [("r", 1), ("r", 2)]
    assert shown_records == [event(1, "short"), event(2, {"a": shown(sha256(long.encode()).digest())})]

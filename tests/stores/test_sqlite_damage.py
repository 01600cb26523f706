"""Files that are damaged, cut short, or of another version."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from orchestrator.errors import OrchestratorError, RunUnknown, StoreCorrupt, StoreError, StoreTooNew
from orchestrator.kernel.records import RunStarted
from orchestrator.stores import RunInfo, open_store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.sqlite.files import PAGE_BYTES
from orchestrator.stores.sqlite.schema import VERSION, check_version, make_tables
from orchestrator.stores.stored import checksum
from tests.stores.runs import add_run, event, events
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio


async def store_file(tmp_path: Path, count: int = 10, data: object = None) -> Path:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    await add_run(store, count=count, data=data)
    await store.close()
    return path


def execute(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


async def damaged(path: Path) -> StoreCorrupt:
    store = open_store(f"sqlite:///{path}")
    try:
        with pytest.raises(StoreCorrupt) as now:
            store.read_now("r")
        with pytest.raises(StoreCorrupt) as caught:
            await store.read("r")
        assert str(now.value) == str(caught.value)
        return caught.value
    finally:
        await store.close()


async def test_a_changed_byte_is_found_and_what_precedes_it_is_readable(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(
        path, "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), 'event', 'evert') AS BLOB) WHERE id & 15 = 7"
    )
    error = await damaged(path)
    assert (error.run_id, error.seq) == ("r", 7)
    assert str(error) == (
        "run 'r': record 7 is damaged (its checksum does not match); records before it are readable "
        "(`orchestrator show r --at 6`, `load('r', at=6)`); to continue, restore the store from a copy"
    )
    assert [record.seq for record in vars(error)["records"]] == [1, 2, 3, 4, 5, 6]
    store = open_store(f"sqlite:///{path}")
    assert await store.read("r", upto=6) == events(1, 6)
    assert await store.read("r", after=7) == events(8, 3)
    await store.close()


async def test_bytes_changed_in_the_file_itself(tmp_path: Path) -> None:
    path = await store_file(tmp_path, data="a text to find")
    content = bytearray(path.read_bytes())
    at = content.rindex(b"a text to find", 0, content.rindex(b"a text to find"))
    content[at] ^= 0x20
    path.write_bytes(content)
    error = await damaged(path)
    assert "checksum" in str(error)
    assert [record.seq for record in vars(error)["records"]] == list(range(1, error.seq))


@pytest.mark.parametrize("seq", [1, 5, 10])
async def test_a_missing_record_is_found(tmp_path: Path, seq: int) -> None:
    path = await store_file(tmp_path)
    execute(path, f"DELETE FROM records WHERE id = (1 << 32) | {seq}")
    error = await damaged(path)
    assert (error.seq, len(vars(error)["records"])) == (seq, seq - 1)
    assert "it is missing" in str(error)


async def test_a_record_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(
        path,
        "UPDATE records SET (crc, data) = (SELECT crc, data FROM records WHERE id & 15 = 8) WHERE id & 15 = 3",
    )
    assert (await damaged(path)).seq == 3


async def test_a_record_of_another_run_is_found(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await add_run(store, "other", 10)
    await store.close()
    row = "SELECT crc, data FROM records WHERE id = (2 << 32) | 5"
    execute(path, f"UPDATE records SET (crc, data) = ({row}) WHERE id = (1 << 32) | 5")
    assert (await damaged(path)).seq == 5


async def test_rows_that_changed_places_are_found(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    for change in (
        "id = -1 WHERE id & 15 = 4",
        "id = (1 << 32) | 4 WHERE id & 15 = 6",
        "id = (1 << 32) | 6 WHERE id < 0",
    ):
        execute(path, f"UPDATE records SET {change}")
    assert (await damaged(path)).seq == 4


@pytest.mark.parametrize("bit", [0, 1, 3, 4, 31, 32, 40, 62, 63])
async def test_a_head_with_a_flipped_bit_is_found(tmp_path: Path, bit: int) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await add_run(store, "behind", 10)
    await store.close()
    head = 10 ^ (1 << bit)
    if bit == 63:
        head -= 1 << 64
    execute(path, "UPDATE runs SET head = ? WHERE run_id = 'r'", head)
    error = await damaged(path)
    outside = not 0 <= head < 1 << 32
    assert error.seq == (0 if outside else min(head, 10) + 1)
    if not outside:
        assert [record.seq for record in vars(error)["records"]] == list(range(1, error.seq))
        assert (f"the run's row says that {head} is the last one" in str(error)) == (head < 10)
        store = open_store(f"sqlite:///{path}")
        assert len(await store.read("r", upto=error.seq - 1)) == error.seq - 1
        with pytest.raises(StoreCorrupt):
            await store.read("r", upto=error.seq)
        await store.close()


async def test_rows_behind_the_head_are_found_by_whoever_reads_on_from_there(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(path, "UPDATE runs SET head = 8")
    store = open_store(f"sqlite:///{path}")
    for after in (0, 3, 8):
        with pytest.raises(StoreCorrupt, match="record 9 is damaged"):
            await store.read("r", after=after)
    assert await store.read("r", after=2, limit=3) == events(3, 3)
    await store.close()


ROW = {
    "graph": "essbx", "status": "runninf", "labels": "[]", "structure": "other", "content": "other",
    "created": "x", "updated": None, "due": "x", "waiting": "x",
}  # fmt: skip


@pytest.mark.parametrize("column", [*ROW, "labels as text", "graph as bytes"])
async def test_a_damaged_row_of_a_run_is_named_and_leaves_the_others(tmp_path: Path, column: str) -> None:
    path = tmp_path / "runs.db"
    store = open_store(f"sqlite:///{path}")
    for name in ("a", "r", "z"):
        started = RunStarted(
            seq=1,
            ts=1.0,
            run_id=name,
            graph="essay",
            structure="s",
            content="c",
            values={},
            labels={"user": "u"},
            rules=2,
        )
        info = RunInfo(name, "essay", "running", {"user": "u"}, 1.0, 1.0, 1, "s", "c")
        await store.create(NewRun(info, [started]))
    await store.close()
    name, _, kind = column.partition(" as ")
    value: object = {"text": '{"user": "\\ud8', "bytes": b"\xff\x00"}.get(kind, ROW[name])
    with without_rules(path):
        execute(path, f"UPDATE runs SET {name} = ? WHERE run_id = 'r'", value)
    store = open_store(f"sqlite:///{path}")

    async def look() -> None:
        await store.info("r")
        await store.read("r")

    with pytest.raises(StoreCorrupt) as caught:
        await look()
    assert (caught.value.run_id, caught.value.seq) == ("r", 0)
    assert "run 'r': its row in the list of runs is damaged (" in str(caught.value)
    assert "restore the store from a copy" in str(caught.value)
    for other in "az":
        assert (await store.info(other)).labels == {"user": "u"}
        assert len(await store.read(other)) == 1
    assert {info.run_id for info in (await store.runs(RunQuery())).runs} == {"a", "r", "z"}
    await store.close()


@contextmanager
def without_rules(path: Path) -> Iterator[None]:
    """Meanwhile a column may be NULL: what damages a file does not ask SQLite."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        before = connection.execute("SELECT rowid, sql FROM sqlite_schema").fetchall()
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
        connection.commit()
    yield
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("UPDATE sqlite_schema SET sql = ?2 WHERE rowid = ?1", before)
        connection.commit()


@pytest.mark.full
@quick_on("trio")
async def test_bits_that_flip_anywhere_in_the_file(tmp_path: Path) -> None:
    """What is read is what was written, or the damage is told; never another error, never other records."""
    await flip(tmp_path, range(sized(40, 100)))


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_storm_of_bits_that_flip(tmp_path: Path, scale: int) -> None:
    await flip(tmp_path, range(100, 100 + 300 * scale))


@pytest.mark.full
@quick_on("asyncio")
async def test_bits_that_flip_in_a_file_that_is_mostly_payloads(tmp_path: Path) -> None:
    """Two of the runs share them, so damage to one may be told of both."""
    told = await flip(tmp_path, range(1000, 1000 + sized(40, 150)), ["a long text " * 4_000, "another one " * 5_000])
    assert told > sized(40, 150) * 0.9


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_storm_of_bits_that_flip_in_payloads(tmp_path: Path, scale: int) -> None:
    await flip(tmp_path, range(2000, 2000 + 300 * scale), ["a long text " * 4_000, "another one " * 5_000])


async def flip(tmp_path: Path, seeds: range, long: Sequence[str] = ()) -> int:
    """How many of the flips were told. `long`: texts of the records of the first two runs."""
    path = tmp_path / "whole.db"
    names = ("a", "r", "z")
    store = open_store(f"sqlite:///{path}")
    for name in names:
        begin = RunStarted(
            seq=1, ts=1.0, run_id=name, graph="essay", structure="s", content="c", values={"x": "text"}, rules=2
        )
        records = [begin, *events(2, 20, "text " * 20)]
        if name != "z":
            records += [event(22 + at, text) for at, text in enumerate(long)]
        await store.create(NewRun(RunInfo(name, "essay", "running", {}, 1.0, 1.0, len(records), "s", "c"), records))
        await store.put_graph("c", {"graph": "data"})
        await store.put_snapshot(name, 3, b"fold")
    await store.close()
    expected = {name: open_store(f"sqlite:///{path}").read_now(name) for name in names}
    whole = path.read_bytes()
    # where there is something: a bit that flips in free space is no damage
    used = [at for at in range(len(whole)) if whole[at]]
    told = 0
    for seed in seeds:
        chance = random.Random(seed)
        at, bit = chance.choice(used), chance.randrange(8)
        content = bytearray(whole)
        content[at] ^= 1 << bit
        damaged = tmp_path / f"{seed}.db"
        damaged.write_bytes(content)
        faults: list[str] = []
        try:
            store = open_store(f"sqlite:///{damaged}")
        except StoreError as error:
            faults.append(str(error))
        else:
            for name in names:
                try:
                    assert store.read_now(name) == expected[name], f"seed {seed}: {name}"
                except (StoreError, RunUnknown) as error:
                    faults.append(str(error))
                    before = list(vars(error).get("records", ()))
                    assert before == expected[name][: len(before)], f"seed {seed}: {name}"
            for looked in (
                store.info("r"),
                store.runs(RunQuery()),
                store.graph("c"),
                store.snapshot("r"),
                store.lease("r"),
            ):
                try:
                    await looked
                except OrchestratorError as error:
                    faults.append(str(error))
            await store.close()
        told += bool(faults)
        damaged.unlink()
    assert told > len(seeds) / 3
    return told


async def test_text_that_is_no_record_is_found(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(path, "UPDATE records SET data = 'x' WHERE id & 15 = 2")
    assert (await damaged(path)).seq == 2


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
async def test_a_file_cut_short(tmp_path: Path, kept: float) -> None:
    path = await store_file(tmp_path, count=1000, data="x" * 500)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(StoreError) as raised:
        await open_store(f"sqlite:///{path}").read("r")
    error = raised.value
    if isinstance(error, StoreCorrupt):
        assert 0 < error.seq <= 1000
        assert [record.seq for record in vars(error)["records"]] == list(range(1, error.seq))
    else:
        assert "damaged" in str(error)  # not even the run's row could be read


async def test_a_page_of_zeros_in_the_middle(tmp_path: Path) -> None:
    path = await store_file(tmp_path, count=1000, data="x" * 500)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // PAGE_BYTES * PAGE_BYTES
    content[middle : middle + PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)
    error = await damaged(path)
    assert 100 < error.seq < 900
    assert len(vars(error)["records"]) == error.seq - 1


@pytest.mark.parametrize("damage", [b"\xff" * 4, bytes(4), bytes(PAGE_BYTES)], ids=["no page", "end", "zeros"])
async def test_pages_of_a_payload_that_are_damaged_are_told_by_the_first_record_that_has_it(
    tmp_path: Path, damage: bytes
) -> None:
    """Each such page begins with the number of the next one. Payloads of other records are read."""
    path = tmp_path / "runs.db"
    texts = [f"{letter} long text {number}" for letter in "ab" for number in range(3000)]
    first, second = "".join(texts[:3000]), "".join(texts[3000:])
    store = open_store(f"sqlite:///{path}")
    await store.create(
        NewRun(RunInfo("r", "essay", "running", head=3), [event(1, first), event(2, [second]), event(3, first)])
    )
    await add_run(store, "other", 2, first)
    await add_run(store, "more", 1, second)
    await store.close()
    content = bytearray(path.read_bytes())
    page = content.index(b"b long text 1500") // PAGE_BYTES * PAGE_BYTES
    content[page : page + len(damage)] = damage
    path.write_bytes(content)
    error = await damaged(path)
    assert error.seq == 2
    assert f"payload sha256:{sha256(second.encode()).hexdigest()}" in str(error)
    assert vars(error)["records"] == (event(1, first),)
    store = open_store(f"sqlite:///{path}")
    assert await store.read("other") == events(1, 2, first)
    assert await store.read("r", after=2) == [event(3, first)]
    with pytest.raises(StoreCorrupt, match="run 'more': record 1 is damaged"):
        await store.read("more")
    assert await store.check() != []
    await store.close()


@pytest.mark.parametrize("shrinks", [True, False], ids=["", "recovered"])
@pytest.mark.parametrize("damage", [b"\xff" * 4, bytes(4), bytes(PAGE_BYTES)], ids=["no page", "end", "zeros"])
async def test_who_appends_a_payload_that_is_damaged_writes_it_again_and_leaves_others_alone(
    tmp_path: Path, damage: bytes, shrinks: bool
) -> None:
    path, long = tmp_path / "runs.db", "".join(f"long text {number}" for number in range(6000))
    store = open_store(f"sqlite:///{path}")
    names = [f"r{number}" for number in range(9)]
    await add_run(store, "first", 1, long)
    for name in names:
        await add_run(store, name)
    await store.close()
    if not shrinks:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA auto_vacuum = NONE")
            connection.execute("VACUUM")
    content = bytearray(path.read_bytes())
    page = content.index(b"long text 3000") // PAGE_BYTES * PAGE_BYTES
    content[page : page + len(damage)] = damage
    path.write_bytes(content)
    store = open_store(f"sqlite:///{path}")
    await store.append(Append("r0", [event(2)], after=1))
    failed: dict[str, str] = {}

    async def put(name: str, after: int, data: object) -> None:
        try:
            await store.append(Append(name, [event(after + 1, data)], after=after))
        except StoreError as error:
            failed[name] = str(error)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(put, name, 2 if name == "r0" else 1, [long] if name in ("r4", "r5") else "short")
    if shrinks:
        assert failed == {}
        assert await store.read("first") == [event(1, long)]
        assert await store.read("r4") == [event(1), event(2, [long])]
        assert await store.check() == []
    else:
        said = f"the file is damaged at payload sha256:{sha256(long.encode()).hexdigest()}; restore it"
        assert failed.keys() == {"r4", "r5"}
        assert all(said in one for one in failed.values())
        assert await store.read("r4") == [event(1)]
    assert await store.read("r8") == [event(1), event(2, "short")]
    await store.close()


async def test_a_damaged_snapshot_is_no_snapshot(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await store.put_snapshot("r", 4, b"four")
    await store.put_snapshot("r", 8, b"eight")
    await store.close()
    execute(path, "UPDATE snapshots SET data = x'00' WHERE id & 15 = 8")
    store = open_store(f"sqlite:///{path}")
    assert await store.snapshot("r") == (4, b"four")
    await store.close()


async def test_damage_to_one_run_leaves_others(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await add_run(store, "other", 3)
    execute(path, "UPDATE records SET crc = 0 WHERE id = (1 << 32) | 1")
    with pytest.raises(StoreCorrupt):
        await store.read("r")
    assert await store.append(Append("other", events(4), after=3)) == 4
    assert len(await store.read("other")) == 4
    await store.close()


# --------------------------------------------------------------------------------- versions


async def test_a_file_of_a_newer_version_is_refused_and_left(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"schema version 99, .* supports 8 at most; update the library"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


async def test_a_store_that_became_newer_meanwhile_is_refused(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await store.close()
    store = open_store(f"sqlite:///{path}")
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew):
        await store.append(Append("r", events(11), after=10))
    await store.close()


async def test_a_record_of_a_newer_version_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    data = b'{"seq":5,"ts":5.0,"v":2,"name":"event","novelty":1,"type":"event_received"}'
    execute(path, "UPDATE records SET data = ?, crc = ? WHERE id & 15 = 5", data, checksum("r", 5, data))
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreTooNew, match="record 5 was written by a newer version"):
        await store.read("r")
    await store.close()


def test_a_file_whose_tables_another_process_makes_just_now_is_no_other_programs(tmp_path: Path) -> None:
    looking, making = (sqlite3.connect(tmp_path / "runs.db", isolation_level=None) for _ in range(2))
    making.execute("PRAGMA journal_mode = WAL")

    def meanwhile(statement: str) -> None:
        if "sqlite_schema" in statement:
            make_tables(making, "sqlite:///runs.db")

    looking.set_trace_callback(meanwhile)
    assert check_version(looking, "sqlite:///runs.db") == 0
    looking.set_trace_callback(None)
    assert check_version(looking, "sqlite:///runs.db") == VERSION
    looking.close()
    making.close()

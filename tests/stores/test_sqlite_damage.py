"""Files that are damaged, cut short, or of another version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreCorrupt, StoreError, StoreTooNew
from orchestrator.stores import open_store
from orchestrator.stores.sqlite.schema import MIGRATIONS, migrate, version_of
from tests.stores.runs import add_run, events

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
    assert str(error) == "run 'r': record 7 is damaged (its checksum does not fit); records before it are readable"
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
    middle = len(content) // 2 // 8192 * 8192
    content[middle : middle + 8192] = bytes(8192)
    path.write_bytes(content)
    error = await damaged(path)
    assert 100 < error.seq < 900
    assert len(vars(error)["records"]) == error.seq - 1


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
    assert await store.append("other", events(4), after=3) == 4
    assert len(await store.read("other")) == 4
    await store.close()


# --------------------------------------------------------------------------------- versions


async def test_a_file_of_a_newer_version_is_refused_and_left(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    execute(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=r"schema version 99, .* knows up to 1; update graph-orchestrator"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


async def test_a_store_that_became_newer_meanwhile_is_refused(tmp_path: Path) -> None:
    path = await store_file(tmp_path)
    store = open_store(f"sqlite:///{path}")
    await store.close()
    store = open_store(f"sqlite:///{path}")
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew):
        await store.append("r", events(11), after=10)
    await store.close()


async def test_a_record_of_a_newer_version_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    import zlib

    path = await store_file(tmp_path)
    data = b'{"seq":5,"ts":5.0,"v":2,"name":"event","novelty":1,"type":"event_received"}'
    execute(path, "UPDATE records SET data = ?, crc = ? WHERE id & 15 = 5", data, zlib.crc32(data, 5))
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreTooNew, match="record 5 was written by a newer version"):
        await store.read("r")
    await store.close()


def test_migrations_happen_wholly_or_not_at_all(tmp_path: Path) -> None:
    def second(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE runs ADD COLUMN colour TEXT")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE runs ADD COLUMN size TEXT")
        connection.execute("ALTER TABLE nothing ADD COLUMN x")

    def columns(connection: sqlite3.Connection) -> set[str]:
        return {row[1] for row in connection.execute("PRAGMA table_info(runs)")}

    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
        migrate(connection, "url", MIGRATIONS)
        assert version_of(connection) == len(MIGRATIONS)
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, "url", [*MIGRATIONS, second, broken])
        assert version_of(connection) == len(MIGRATIONS)
        assert not columns(connection) & {"colour", "size"}
        migrate(connection, "url", [*MIGRATIONS, second])
        assert version_of(connection) == len(MIGRATIONS) + 1
        assert "colour" in columns(connection)
        with pytest.raises(StoreTooNew):
            migrate(connection, "url", MIGRATIONS)

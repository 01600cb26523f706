"""URLs of stores, and what is made on the disk, when, and for whom."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import RunUnknown, StoreError, StoreUnavailable
from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append, RunQuery
from orchestrator.stores.sqlite import SQLiteStore
from tests.stores.runs import add_run, events


def test_memory_stores_share_nothing() -> None:
    one, two = open_store("memory://"), open_store("memory://")
    assert isinstance(one, MemoryStore)
    assert one is not two
    assert one.url == "memory://"


def test_three_slashes_are_relative_and_four_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = open_store("sqlite:///a/runs.db"), open_store(f"sqlite:///{tmp_path}/b/runs.db")
    assert isinstance(relative, SQLiteStore)
    assert isinstance(absolute, SQLiteStore)
    assert relative.path == tmp_path / "a" / "runs.db"
    assert absolute.path == tmp_path / "b" / "runs.db"
    assert relative.url == "sqlite:///a/runs.db"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://localhost/runs", "'mysql' is not among the schemes of this version"),
        ("runs.db", "has no scheme; write `sqlite:///runs.db` for a file"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://runs.db", "names no file"),
        ("sqlite:///:memory:", "write `memory://`"),
    ],
)
def test_other_urls_are_refused_with_the_mend(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_store(url)


@pytest.mark.anyio
async def test_both_are_stores(tmp_path: Path) -> None:
    for store in (open_store("memory://"), open_store(f"sqlite:///{tmp_path}/runs.db")):
        assert isinstance(store, Store)
        await store.close()


@pytest.mark.anyio
async def test_reading_makes_no_file_and_writing_makes_private_ones(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "runs.db"
    store = open_store(f"sqlite:///{path}")
    assert (await store.runs(RunQuery())).runs == ()
    assert await store.inbox(["r"]) == []
    with pytest.raises(RunUnknown):
        await store.read("r")
    assert not (tmp_path / "new").exists()
    await add_run(store)
    assert await store.inbox(["r"]) == []
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path.parent.parent).st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600, file
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


@pytest.mark.anyio
async def test_a_change_of_directory_leads_to_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///runs.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await add_run(store)
    await store.close()
    assert (tmp_path / "runs.db").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "a%20b", "ä"])
async def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/{name}.db")
    await add_run(store)
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == [f"{name}.db"]
    assert len(open_store(f"sqlite:///{tmp_path}/{name}.db").read_now("r")) == 1


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 500)
    with pytest.raises(StoreError, match=r"notes\.txt: the file is not an SQLite database; name another file"):
        open_store(f"sqlite:///{path}")
    assert path.read_text().startswith("Dear diary")


def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}")


@pytest.mark.anyio
async def test_a_file_in_the_way_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = open_store(f"sqlite:///{tmp_path}/file/runs.db")
    with pytest.raises(StoreUnavailable, match="name a file in a directory where this user may write"):
        await add_run(store)
    await store.close()


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (id)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program; name another file"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.anyio
async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    store = open_store(f"sqlite:///{path}")
    assert (await store.runs(RunQuery())).runs == ()
    await add_run(store)
    await store.close()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["removed", "renamed", "directory removed", "replaced", "replaced by a store"])
async def test_a_file_that_is_gone_is_named_and_none_is_made_in_its_place(how: str, tmp_path: Path) -> None:
    path = tmp_path / "dir" / "runs.db"
    store = open_store(f"sqlite:///{path}")
    await add_run(store, "old")
    assert len(await store.read("old")) == 1
    for file in path.parent.iterdir():
        file.rename(tmp_path / file.name) if how != "removed" else file.unlink()
    if how == "directory removed":
        path.parent.rmdir()
    elif how == "replaced":
        path.write_bytes(b"")
    elif how == "replaced by a store":
        other = open_store(f"sqlite:///{path}")
        await add_run(other, "other")
        await other.close()
    left = sorted(path.parent.iterdir()) if path.parent.exists() else None
    words = "is no longer the file that was opened" if "replaced" in how else "was removed or renamed"
    for action in (
        lambda: store.append(Append("old", events(2), after=1)),
        lambda: add_run(store, "old"), lambda: add_run(store, "new"),
        lambda: store.read("old"), lambda: store.info("old"), lambda: store.runs(RunQuery()),
        lambda: store.inbox(["old"]), lambda: store.lease("old"), lambda: store.post("old", {}),
        lambda: store.delete("old"),
    ):  # fmt: skip
        with pytest.raises(StoreUnavailable, match=f"runs.db.*{words}"):
            await action()
    assert (sorted(path.parent.iterdir()) if path.parent.exists() else None) == left
    if how == "renamed":
        for file in tmp_path.glob("runs.db*"):
            file.rename(path.parent / file.name)
        assert len(await store.read("old")) == 1
        await store.append(Append("old", events(2), after=1))
    await store.close()
    anew = open_store(f"sqlite:///{path}")
    known = {"renamed": ["old"], "replaced by a store": ["other"]}.get(how, [])
    assert [info.run_id for info in (await anew.runs(RunQuery())).runs] == known
    await add_run(anew, "new")
    await anew.close()


@pytest.mark.anyio
async def test_a_closed_store_reads_on(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    await add_run(store)
    await store.close()
    assert len(await store.read("r")) == 1
    assert len(store.read_now("r")) == 1
    assert await store.inbox(["r"]) == []
    assert [file.name for file in tmp_path.iterdir()] == ["runs.db"]
    with pytest.raises(StoreError, match="is closed; open it again to write"):
        await store.append(Append("r", events(2), after=1))


@pytest.mark.anyio
async def test_a_file_whose_tables_are_being_made_reads_as_a_store_without_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY)")
        store = open_store(f"sqlite:///{path}")
        assert (await store.runs(RunQuery())).runs == ()  # it does not wait for the other's lock, which stays
        other.execute("ROLLBACK")
    await store.put_graph("g", {})
    assert await store.graph("g") == {}
    await store.close()

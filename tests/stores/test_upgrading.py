"""A store of an earlier version is upgraded: after a backup, wholly or not at all, and under no process that works."""

from __future__ import annotations

import lzma
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError, StoreTooNew, StoreUnavailable
from orchestrator.stores import open_store
from orchestrator.stores.owner import Owner
from orchestrator.stores.postgres import schema as database_schema
from orchestrator.stores.sqlite import schema
from orchestrator.stores.upgrading import back_up, tables_of, upgrade
from orchestrator.testing.store_conformance.helpers import created
from tests.data.kept_runs import DATABASE, STORE
from tests.support.disks import KINDS, Disk, disk_of
from tests.support.postgres import PostgresDatabase
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio

RUN = "react-completed"
KILLED_IN_A_STEP = """
import os, signal, sys
from orchestrator.stores.postgres import schema
from orchestrator.stores.upgrading import upgrade

class Last(str):
    def encode(self, *given):
        os.kill(os.getpid(), signal.SIGKILL)

schema.STEPS[schema.VERSION] = Last("CREATE TABLE more (id bigint)")
schema.VERSION += 1
upgrade(sys.argv[1])
"""
KILLED_IN_A_BACKUP = """
import os, signal, sys
from pathlib import Path
from orchestrator.stores import upgrading

upgrading._PAGES = 50
done = lambda pages, of: pages > 100 and os.kill(os.getpid(), signal.SIGKILL)
upgrading.back_up(sys.argv[1], Path(sys.argv[2]), done)
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file of an earlier version."""
    path = tmp_path / "kept.db"
    path.write_bytes(lzma.decompress(STORE.read_bytes()))
    return path


@pytest.fixture
def database(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database of an earlier version."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    postgres.execute(lzma.decompress(DATABASE.read_bytes()).decode())
    return postgres


async def test_a_file_says_its_version_and_is_upgraded_once(kept: Path) -> None:
    url, before = f"sqlite:///{kept}", kept.read_bytes()
    found = tables_of(url)
    assert (found.version, found.newest) == (schema.OLDEST, schema.VERSION)
    assert found.steps[0] == "CREATE TABLE notes"
    assert found.workers == ()
    assert kept.read_bytes() == before
    for _ in range(2):
        upgrade(url)
        assert (tables_of(url).version, tables_of(url).steps) == (schema.VERSION, ())
    store = open_store(url)
    assert await store.read(RUN)
    assert await store.check() == []
    await store.close()


def test_a_step_that_fails_changes_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(f"sqlite:///{kept}")
    monkeypatch.setitem(schema.STEPS, schema.VERSION, "CREATE TABLE more (id INTEGER)")
    monkeypatch.setitem(schema.STEPS, schema.VERSION + 1, "CREATE TABLE runs (id INTEGER)")
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)
    schema._definitions.cache_clear()
    try:
        with pytest.raises(StoreError, match="table runs already exists"):
            upgrade(f"sqlite:///{kept}")
    finally:
        schema._definitions.cache_clear()
    with closing(sqlite3.connect(kept)) as file:
        assert schema.version_of(file) == schema.VERSION - 2
        assert file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'more'").fetchall() == []


async def test_a_backup_is_the_store_at_one_moment_while_others_write(kept: Path, tmp_path: Path) -> None:
    url, to = f"sqlite:///{kept}", tmp_path / "backup.db"
    shown: list[tuple[int, int]] = []
    with closing(sqlite3.connect(kept)) as other:

        def write(done: int, pages: int) -> None:
            shown.append((done, pages))
            with other:
                other.execute("UPDATE runs SET fault = 'changed since'")

        back_up(url, to, write)
    assert shown
    assert shown[-1][0] == shown[-1][1]
    assert (to.stat().st_mode & 0o777, sorted(one.name for one in tmp_path.glob("backup*"))) == (0o600, ["backup.db"])
    with closing(sqlite3.connect(to)) as file:
        assert schema.version_of(file) == schema.OLDEST
        assert file.execute("SELECT count(*) FROM runs WHERE fault <> ''").fetchone() == (0,)
    copy, store = open_store(f"sqlite:///{to}"), open_store(url)
    assert await copy.read(RUN) == await store.read(RUN)
    await copy.close()
    await store.close()


def test_a_backup_replaces_no_file_and_is_not_made_of_a_damaged_one(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="name another one"):
        back_up(f"sqlite:///{kept}", tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "other.part").write_text("mine")
    with pytest.raises(FileExistsError, match="name another one"):
        back_up(f"sqlite:///{kept}", tmp_path / "link")
    for end in ("wal", "shm", "journal"):
        with pytest.raises(StoreError, match="name another file"):
            back_up(f"sqlite:///{kept}", tmp_path / f"kept.db-{end}")
    back_up(f"sqlite:///{kept}", tmp_path / "other")
    assert (tmp_path / "other.part").read_text() == "mine"
    data = bytearray(kept.read_bytes())
    data[20 * 4096 : 60 * 4096] = os.urandom(40 * 4096)
    kept.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        back_up(f"sqlite:///{kept}", tmp_path / "backup.db")
    assert [*tmp_path.glob("backup*")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_on_a_disk_that_is_full_names_that_disk_and_leaves_nothing(
    kept: Path, tmp_path: Path, kind: type[Disk]
) -> None:
    (place := tmp_path / "small").mkdir()
    with disk_of(kind, place) as disk:
        disk.leave(8192)
        with pytest.raises(StoreUnavailable, match=f"^backup {place}/backup.db: .* free some space there"):
            back_up(f"sqlite:///{kept}", place / "backup.db")
        assert [*place.glob("backup*")] == []


@pytest.mark.full
def test_a_backup_that_is_killed_leaves_no_file_of_its_name_and_is_made_again(kept: Path, tmp_path: Path) -> None:
    before, to = kept.read_bytes(), tmp_path / "backup.db"
    assert run_program([KILLED_IN_A_BACKUP, f"sqlite:///{kept}", to]).code == -signal.SIGKILL
    assert not to.exists()
    assert kept.read_bytes() == before
    back_up(f"sqlite:///{kept}", to)
    assert all(".part" in one.name for one in tmp_path.glob("backup*") if one != to)
    assert to.exists()


def test_of_two_processes_that_make_a_backup_of_one_name_one_makes_it_and_the_other_says_so(
    kept: Path, tmp_path: Path
) -> None:
    to, url = tmp_path / "backup.db", f"sqlite:///{kept}"
    made: list[bytes] = []

    def other(_pages: int, _of: int) -> None:
        if not to.exists():
            back_up(url, to)
            made.append(to.read_bytes())

    with pytest.raises(FileExistsError):
        back_up(url, to, other)
    assert to.read_bytes() == made[0]
    assert [one.name for one in tmp_path.glob("backup*")] == ["backup.db"]


@pytest.mark.parametrize("ended", [False, True], ids=["alive", "ended"])
def test_processes_that_may_work_on_the_store_are_named(kept: Path, ended: bool) -> None:
    owner = Owner.here().data() | ({"start": "1"} if ended else {})
    row = ("h1", str(owner).replace("'", '"'), 60.0, 1e12)
    with closing(sqlite3.connect(kept)) as file, file:
        file.execute("INSERT INTO holders (holder, owner, ttl, expires, robbed) VALUES (?, ?, ?, ?, 0)", row)
    named = () if ended else (f"process {os.getpid()} on {owner['host']}",)
    assert tables_of(f"sqlite:///{kept}").workers == named


async def test_a_file_of_a_newer_version_is_refused_and_not_a_byte_of_it_changes(kept: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(kept)) as file:
        file.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    before, url = kept.read_bytes(), f"sqlite:///{kept}"
    with pytest.raises(StoreTooNew, match="update the library"):
        tables_of(url)
    with pytest.raises(StoreTooNew, match="update the library"):
        upgrade(url)
    with pytest.raises(StoreTooNew, match="update the library"):
        await created(open_store(url))
    assert kept.read_bytes() == before


async def test_a_database_says_its_version_and_is_upgraded_once(database: PostgresDatabase) -> None:
    found = tables_of(database.url)
    assert (found.version, found.newest) == (database_schema.OLDEST, database_schema.VERSION)
    assert found.steps[0] == "CREATE TABLE notes"
    assert database.execute("SELECT version FROM orchestrator_schema") == [(database_schema.OLDEST,)]
    for _ in range(2):
        upgrade(database.url)
        assert (tables_of(database.url).version, tables_of(database.url).steps) == (database_schema.VERSION, ())
    store = open_store(database.url)
    assert await store.read(RUN)
    assert await store.check() == []
    await store.close()


async def test_an_upgrade_of_a_database_that_is_killed_in_its_last_step_changes_nothing(
    database: PostgresDatabase,
) -> None:
    assert run_program([KILLED_IN_A_STEP, database.url]).code == -signal.SIGKILL
    assert tables_of(database.url).version == database_schema.OLDEST
    assert database.execute("SELECT to_regclass('notes') IS NULL") == [(True,)]
    upgrade(database.url)
    assert tables_of(database.url).version == database_schema.VERSION


async def test_a_database_of_a_newer_version_is_refused_and_left(database: PostgresDatabase) -> None:
    newer = database_schema.VERSION + 1
    database.execute(f"UPDATE orchestrator_schema SET version = {newer}")
    rows = (
        "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM records), (SELECT version FROM orchestrator_schema)"
    )
    before = database.execute(rows)
    for use in (tables_of, upgrade, open_store):
        with pytest.raises(StoreTooNew, match=f"schema version {newer}"):
            use(database.url)  # type: ignore[operator]
    assert database.execute(rows) == before

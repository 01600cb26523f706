"""Stores that were written before there were notes: they are read as they are, and the first write gives them notes."""

from __future__ import annotations

import lzma
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.stores import open_store
from orchestrator.stores.postgres.connections import address_of, connect
from orchestrator.stores.postgres.schema import OLDEST as OLDEST_TABLES
from orchestrator.stores.postgres.schema import VERSION as TABLES
from orchestrator.stores.postgres.schema import version_of as tables_of
from orchestrator.stores.requests import NewRun
from orchestrator.stores.rows import Note
from orchestrator.stores.sqlite.schema import OLDEST, VERSION, check_tables, make_tables, version_of
from orchestrator.testing.store_conformance.helpers import new_run
from tests.data.kept_runs import DATABASE, STORE
from tests.stores.test_sqlite_schema import KILLED
from tests.support.postgres import PostgresDatabase
from tests.support.programs import run as run_program

pytestmark = pytest.mark.anyio

RUN = "react-completed"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file of the version before."""
    path = tmp_path / "kept.db"
    path.write_bytes(lzma.decompress(STORE.read_bytes()))
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return version_of(file)


async def test_a_file_without_notes_is_read_as_it_is_and_gets_them_with_the_first_write(kept: Path) -> None:
    assert version(kept) == OLDEST
    store = open_store(f"sqlite:///{kept}")
    assert await store.notes(RUN) == []
    records = await store.read(RUN)
    assert await store.check() == []
    assert version(kept) == OLDEST
    note = Note(RUN, 2, "good", 1.0, "quality", "ann", 5.0, "n1")
    await store.add_note(note, most=3)
    assert await store.notes(RUN) == [note]
    assert await store.read(RUN) == records
    assert await store.check() == []
    await store.close()
    assert version(kept) == VERSION


def test_a_migration_that_is_killed_is_made_wholly_or_not_at_all(kept: Path) -> None:
    before = kept.read_bytes()
    statements = int(run_program([KILLED, kept, 0]).out)
    for most in range(1, statements + 1):
        kept.write_bytes(before)
        assert run_program([KILLED, kept, most]).code == -signal.SIGKILL
        with closing(sqlite3.connect(kept, isolation_level=None)) as file:
            assert version_of(file) in (OLDEST, VERSION)
            check_tables(file, "url")
            make_tables(file, "url")
            check_tables(file, "url")
            assert version_of(file) == VERSION


async def test_notes_that_a_process_of_the_version_before_left_behind_are_not_those_of_a_new_run(kept: Path) -> None:
    """Its deletions know no notes, and a file gives the number of the last run that was deleted to the next one."""
    store = open_store(f"sqlite:///{kept}")
    info, records = new_run()
    await store.create(NewRun(info, records))
    with closing(sqlite3.connect(kept)) as file:
        (number,) = file.execute("SELECT id FROM runs WHERE run_id = ?", (info.run_id,)).fetchone()
    await store.delete(info.run_id)
    with closing(sqlite3.connect(kept)) as file, file:
        file.execute("INSERT INTO notes (run, id, at, data) VALUES (?, 'a', 1.0, '{}')", (number,))
    assert [one.what for one in await store.check()] == ["notes of 1 runs that do not exist"]
    again, records = new_run()
    await store.create(NewRun(again, records))
    assert await store.notes(again.run_id) == []
    await store.close()


async def test_a_damaged_note_is_shown_as_one_and_found(kept: Path) -> None:
    store = open_store(f"sqlite:///{kept}")
    for name in ("a", "b"):
        await store.add_note(Note(RUN, text="good", at=1.0, id=name), most=3)
    with closing(sqlite3.connect(kept)) as file, file:
        file.execute("UPDATE notes SET data = '{\"id\": 7}' WHERE id = 'a'")
    assert [note.text for note in await store.notes(RUN)] == ["(damaged)", "good"]
    assert [one.what for one in await store.check()] == [f"run '{RUN}': note 'a' is damaged; delete it"]
    assert await store.delete_note(RUN, "a")
    await store.close()


@pytest.fixture
def database(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database of the version before."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    postgres.execute(lzma.decompress(DATABASE.read_bytes()).decode())
    return postgres


async def test_a_database_without_notes_gets_them_when_it_is_opened(database: PostgresDatabase) -> None:
    store = open_store(database.url)
    note = Note(RUN, 2, "good", 1.0, "quality", "ann", 5.0, "n1")
    await store.add_note(note, most=3)
    assert await store.notes(RUN) == [note]
    assert await store.check() == []
    await store.close()
    with closing(connect(address_of(database.url))) as connection:
        assert tables_of(connection) == TABLES


async def test_a_database_that_cannot_be_written_is_read_as_it_is(database: PostgresDatabase) -> None:
    store = open_store(database.url_with(options="-cdefault_transaction_read_only%3Don"))
    assert await store.notes(RUN) == []
    assert await store.read(RUN)
    with pytest.raises(StoreError):
        await store.add_note(Note(RUN, text="good", id="n1"), most=3)
    await store.close()
    assert database.execute("SELECT version FROM orchestrator_schema") == [(OLDEST_TABLES,)]


async def test_who_may_change_questions_may_change_notes(database: PostgresDatabase) -> None:
    role = f"clerk_{database.name}"
    database.server.execute(f"CREATE ROLE {role}")
    try:
        database.execute(f"GRANT SELECT, INSERT, DELETE ON questions TO {role}")
        connect(address_of(database.url)).close()
        granted = database.execute(
            "SELECT privilege_type FROM information_schema.role_table_grants"
            f" WHERE grantee = '{role}' AND table_name = 'notes' ORDER BY 1"
        )
        assert {("DELETE",), ("INSERT",), ("SELECT",)} <= {*granted}
    finally:
        database.execute(f"DROP OWNED BY {role} CASCADE")
        database.server.execute(f"DROP ROLE {role}")

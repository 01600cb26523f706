"""The tables of a SQLite file: made whole or not at all, and those of other versions refused by name."""

from __future__ import annotations

import lzma
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.stores import open_store
from orchestrator.stores.sqlite.schema import OLDEST, VERSION, check_tables, make_tables, version_of
from tests.data.kept_runs import STORE
from tests.support.programs import Ended
from tests.support.programs import run as run_program
from tests.support.sizes import sized

KILLED = """
import os, signal, sqlite3, sys
from orchestrator.stores.sqlite.schema import make_tables

count, most = 0, int(sys.argv[2])

def trace(statement):
    global count
    count += 1
    if count == most:
        os.kill(os.getpid(), signal.SIGKILL)

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.set_trace_callback(trace)
make_tables(connection, "url")
print(count)
"""


def made(file: sqlite3.Connection) -> tuple[object, ...]:
    """What is in a file."""
    return version_of(file), file.execute("SELECT name, type FROM sqlite_schema ORDER BY name").fetchall()


def test_making_the_tables_is_killed_and_they_are_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    def run(path: Path, most: int) -> Ended:
        return run_program([KILLED, path, most])

    def told(path: Path) -> tuple[object, ...]:
        with closing(sqlite3.connect(path)) as file:
            return made(file)

    statements = int(run(tmp_path / "whole.db", 0).out)
    whole = told(tmp_path / "whole.db")
    for most in sized([statements // 2, statements], [*range(1, statements, statements // 20), statements]):
        path = tmp_path / f"{most}.db"
        killed = run(path, most)
        assert killed.code == -signal.SIGKILL, (most, killed)
        assert told(path) in ((0, []), whole), most
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            make_tables(file, "url")
        assert told(path) == whole


def test_a_kept_file_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    """Columns that ALTER TABLE added stand elsewhere in the texts of its tables."""
    (tmp_path / "kept.db").write_bytes(lzma.decompress(STORE.read_bytes()))
    with (
        closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as kept,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as new,
    ):
        check_tables(kept, "url")
        make_tables(kept, "url")
        make_tables(new, "new")
        for file in (kept, new):
            check_tables(file, "url")
        assert version_of(kept) == version_of(new) == VERSION
        for (name,) in new.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall():
            columns = f"PRAGMA table_xinfo({name})"
            assert kept.execute(columns).fetchall() == new.execute(columns).fetchall()


@pytest.mark.parametrize("version", range(1, OLDEST))
def test_a_file_from_before_the_first_release_is_refused_by_name(tmp_path: Path, version: int) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(lzma.decompress(STORE.read_bytes()))
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=f"schema version {version}, from before the first release.* reads versions 7 to 8. Export"
        ):
            open_store(f"sqlite:///{path}").read_now("react-completed")  # type: ignore[attr-defined]
    assert path.read_bytes() == before

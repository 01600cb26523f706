"""Commands about whole stores: store copy, check, upgrade."""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestrator.stores.owner import Owner
from tests.data.kept_runs import STORE as KEPT
from tests.support.postgres import PASSWORD, PostgresDatabase
from tests.support.programs import CODE
from tests.support.shell import Done, Shell
from tests.support.sizes import sized


@pytest.fixture(scope="module")
def ran(shared: Shell) -> Shell:
    """A place with a run in it."""
    shared("run", "trial:two", "roses", "--run-id", "two")
    return shared


def test_a_store_is_copied_and_copied_again(ran: Shell) -> None:
    there = f"sqlite:///{ran.place}/copy.db"
    first = ran("store", "copy", "sqlite:///.orchestrator/runs.db", there)
    assert (first.code, first.out.split()) == (0, ["two"])
    assert "1 runs copied" in first.err
    again = ran("store", "copy", "sqlite:///.orchestrator/runs.db", there, "--json")
    assert again.json == {
        "runs": [], "extended": [], "skipped": ["two"], "differing": [], "schedules": [], "differing_schedules": [],
        "items": 0, "differing_items": [],
    }  # fmt: skip
    assert ran("show", "two", "--store", there, "--json").json == ran("show", "two", "--json").json
    ran("cancel", "two", "--store", there)
    differs = ran("store", "copy", "sqlite:///.orchestrator/runs.db", there)
    assert differs.code == 1
    assert "two: " in differs.err


def test_copied_schedules_are_paused_or_started(shell: Shell) -> None:
    there = f"sqlite:///{shell.place}/copy.db"
    shell("schedule", "trial:two", "30 6 * * *", "roses")
    first = shell("store", "copy", "sqlite:///.orchestrator/runs.db", there)
    assert first.code == 0, first.err
    assert "1 schedules copied, paused; `schedule --resume NAME`" in first.err
    assert shell("schedule", "--list", "--store", there).out.endswith("UTC       paused\n")
    started = shell("store", "copy", "sqlite:///.orchestrator/runs.db", there, "--start-schedules", "--json")
    assert started.json["schedules"] == ["two"]
    assert "  20" in shell("schedule", "--list", "--store", there).out
    shell("schedule", "trial:two", "31 6 * * *", "roses")
    differs = shell("store", "copy", "sqlite:///.orchestrator/runs.db", there)
    assert differs.code == 1
    assert "schedule two: " in differs.err


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        (("memory://", "sqlite:///a.db"), "name two files"),
        (("sqlite:///a.db", "sqlite:///a.db"), "the same store"),
        (("sqlite:///none.db", "sqlite:///a.db"), "there is no store"),
        (("a.db", "sqlite:///b.db"), "has no scheme"),
    ],
)
def test_a_copy_of_nothing_is_refused(ran: Shell, urls: tuple[str, str], said: str) -> None:
    refused = ran("store", "copy", *urls)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err


def test_a_store_is_checked_and_repaired(ran: Shell) -> None:
    path = ran.place / "checked.db"
    url = f"sqlite:///{path}"
    ran("store", "copy", "sqlite:///.orchestrator/runs.db", url)
    whole = ran("store", "check", "--store", url)
    assert (whole.code, whole.out) == (0, "")
    assert "1 runs with" in whole.err
    assert "in order" in whole.err
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE runs SET status = 'failed' WHERE run_id = 'two'")
    wrong = ran("store", "check", "--store", url)
    assert wrong.code == 1
    assert wrong.out.startswith("wrong: run two: its row has status 'failed', and its journal 'paused'")
    repaired = ran("store", "check", "--store", url, "--repair", "--json")
    assert (repaired.code, repaired.json["ok"]) == (0, True)
    assert repaired.json["findings"][0]["repaired"] == "written again from the journal"
    assert ran("store", "check", "--store", url).out == ""
    missing = ran("store", "check", "--store", f"sqlite:///{ran.place}/missing.db")
    assert (missing.code, "there is no store" in missing.err) == (2, True)
    assert not (ran.place / "missing.db").exists()


# -- what is no store, or cannot be read -------------------------------------------------------------------------------


def directory(path: Path, store: bytes) -> None:
    path.mkdir()


def text(path: Path, store: bytes) -> None:
    path.write_text("Dear diary, " * 1000)


def other(path: Path, store: bytes) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE runs (id, run_id, head)")


def newer(path: Path, store: bytes) -> None:
    path.write_bytes(store)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")


def empty(path: Path, store: bytes) -> None:
    path.touch()


def pipe(path: Path, store: bytes) -> None:
    os.mkfifo(path)


def cut(path: Path, store: bytes) -> None:
    path.write_bytes(store[: len(store) // 2])


def cut_short(path: Path, store: bytes) -> None:
    path.write_bytes(store[:50])


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (directory, 1, "error: store {url}: it is a directory, which cannot be opened as a store"),
        (pipe, 1, "error: store {url}: it is a pipe, socket or device, which cannot be opened as a store"),
        (newer, 1, "error: store {url} has schema version 99"),
        (text, 1, "wrong: store {url}: the file is not an SQLite database"),
        (cut_short, 1, "wrong: store {url}: the file is not an SQLite database"),
        (other, 1, "wrong: store {url} is the SQLite database of another program"),
        (cut, 1, "wrong: store {url}: the file is damaged"),
        (empty, 0, "0 runs with 0 records checked: in order"),
    ],
)
def test_a_check_says_what_is_wrong_with_a_file_and_changes_nothing(
    ran: Shell, tmp_path: Path, make: Callable[[Path, bytes], None], code: int, said: str
) -> None:
    path = tmp_path / "file.db"
    make(path, (ran.place / ".orchestrator" / "runs.db").read_bytes())
    before = path.read_bytes() if path.is_file() else b""
    url = f"sqlite:///{path}"
    for words in ((), ("--repair",)) if make is not empty else ((),):
        done = ran("store", "check", "--store", url, *words)
        assert done.code == code
        assert (done.out + done.err).startswith(said.format(url=url))
    if said.startswith("wrong"):
        found = ran("store", "check", "--store", url, "--json")
        assert (found.code, found.json["ok"], len(found.json["findings"])) == (1, False, 1)
    assert before == (path.read_bytes() if path.is_file() else b"")


def test_a_store_in_memory_is_not_checked(ran: Shell) -> None:
    refused = ran("store", "check", "--store", "memory://")
    assert (refused.code, "memory:// store ends with this command" in refused.err) == (2, True)


POWERLESS = """
import runpy, sys
from tests.executor.program import powerless

powerless()
runpy.run_module("orchestrator", run_name="__main__")
"""


def powerless(shell: Shell, *words: str) -> Done:
    """Run a command in a process that may do no more than the owner of its files."""
    return shell.process(POWERLESS, *words, module=CODE, loads=["tests.executor.program"])


def test_a_file_that_may_only_be_read_is_read_as_it_is(ran: Shell, tmp_path: Path) -> None:
    path = tmp_path / "store" / "runs.db"
    url = f"sqlite:///{path}"
    ran("store", "copy", "sqlite:///.orchestrator/runs.db", url)
    before = path.read_bytes()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        shown = [
            powerless(ran, *command, "--store", url)
            for command in (("runs",), ("show", "two"), ("store", "check"), ("memory", "list"), ("cache", "list"))
        ]
        searched = powerless(ran, "memory", "search", "tea", "--store", url)
        refused = powerless(ran, "memory", "put", "a", "k", "v", "--store", url)
    finally:
        path.parent.chmod(0o755)
    assert [done.code for done in shown] == [0] * 5, shown
    assert "two" in shown[0].out
    assert (searched.code, searched.out) == (0, "")
    assert "read-only" in refused.err
    assert path.read_bytes() == before
    path.chmod(0o644)
    assert ran("memory", "put", "a", "k", "v", "--store", url).code == 0
    assert ran("memory", "get", "a", "k", "--store", url).out == '"v"\n'


def test_a_file_that_may_only_be_read_is_checked_and_not_repaired(ran: Shell, tmp_path: Path) -> None:
    path = tmp_path / "store" / "runs.db"
    url = f"sqlite:///{path}"
    ran("store", "copy", "sqlite:///.orchestrator/runs.db", url)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE runs SET status = 'failed' WHERE run_id = 'two'")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    words = ("store", "check", "--store", url)
    try:
        found, refused = powerless(ran, *words), powerless(ran, *words, "--repair")
    finally:
        path.parent.chmod(0o755)
    assert (found.code, refused.code) == (1, 1)
    assert found.out.startswith("wrong: run two: its row has status 'failed'")
    assert "the file or its directory is read-only; make both writable" in refused.err
    path.chmod(0o644)
    assert ran("store", "check", "--store", url, "--repair").code == 0


WRITES = """
import itertools, sys, anyio
from orchestrator import Executor
from tests.support.executors import chain, says

async def main():
    graph = chain(*(says(f"{number} " * 50) for number in range(5)))
    async with Executor(sys.argv[1], graphs=[graph]) as executor:
        async def work(name):
            for number in itertools.count():
                await executor.start(graph, run_id=f"{name}{number}")
                old = number - 12 if (number - 12) % 3 else number  # the store stays small
                if old >= 0:
                    await executor.delete(f"{name}{old}")
                if number == 3:
                    print("ready", flush=True)
        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(work, name)

anyio.run(main)
"""


@contextmanager
def written_to(shell: Shell, url: str) -> Iterator[None]:
    """Have another process write to a store."""
    with shell.begin(WRITES, url, module=CODE, loads=["tests.support.executors"]) as process:
        assert process.line() == "ready\n"
        yield
        assert not process.ended


@pytest.mark.full
def test_a_store_that_another_process_writes_to_is_in_order(shell: Shell) -> None:
    url = f"sqlite:///{shell.place}/busy.db"
    with written_to(shell, url):
        for words in [(), ("--repair",)] * sized(2, 10):
            done = shell("store", "check", "--store", url, *words)
            assert (done.code, "wrong" in done.out) == (0, False), done
            assert "in order" in done.err
    after = shell("store", "check", "--store", url)
    assert (after.code, "wrong" in after.out) == (0, False), after


_ASKING = """
name: asking
state: {fields: {topic: str}}
input: topic
nodes:
  send: {kind: confirm, prompt: "Send this?", show: [topic]}
edges: |
  START -> send
  send -> END : approved
  send -> END : denied
"""


def test_a_database_is_no_store_in_memory_and_its_password_is_not_shown(
    shell: Shell, postgres: PostgresDatabase
) -> None:
    url = postgres.url_with(password=True)
    none = shell("runs", "--store", url)
    assert (none.code, none.err.count("no runs in postgresql://orchestrator@127.0.0.1:")) == (0, 1)
    shell.place.joinpath("asking.yaml").write_text(_ASKING)
    paused = shell("run", "asking.yaml", "roses", "--run-id", "r", "--store", url)
    assert (paused.code, paused.err.count("--store")) == (3, 1)
    assert "lost" not in paused.err
    again = shell("runs", "--store", url)
    shown = shell("show", "r", "--store", url)
    unknown = shell("show", "other", "--store", url)
    checked = shell("store", "check", "--store", url)
    for done in (none, paused, again, shown, unknown, checked):
        assert PASSWORD not in done.out + done.err
    wrong = shell("runs", "--store", f"mysql://me:{PASSWORD}@host/db")
    assert wrong.code == 2
    assert PASSWORD not in wrong.err


@pytest.fixture
def old(shell: Shell) -> str:
    """A store of an earlier version."""
    (shell.place / "old.db").write_bytes(lzma.decompress(KEPT.read_bytes()))
    return "sqlite:///old.db"


def test_a_store_of_an_earlier_version_is_backed_up_and_upgraded_once(shell: Shell, old: str) -> None:
    before = (shell.place / "old.db").read_bytes()
    dry = shell("store", "upgrade", old, "--dry-run", "--json")
    assert (dry.code, dry.json["upgraded"], dry.json["steps"]) == (0, False, ["CREATE TABLE notes"])
    assert (shell.place / "old.db").read_bytes() == before
    done = shell("store", "upgrade", old)
    assert (done.code, "upgraded to schema version" in done.err) == (0, True), done.err
    (backup,) = shell.place.glob("old.db.schema7-*")
    assert f"backup: {backup}" in done.err
    again = shell("store", "upgrade", old, "--json")
    assert (again.code, again.json["steps"], again.json["upgraded"], again.json["backup"]) == (0, [], False, None)
    assert [*shell.place.glob("old.db.schema7-*")] == [backup]
    for store in (old, f"sqlite:///{backup}"):
        assert shell("show", "react-completed", "--store", store, "--json").json["status"] == "completed"


def test_a_backup_has_the_name_that_is_given_and_replaces_no_file(shell: Shell, old: str) -> None:
    before = (shell.place / "old.db").read_bytes()
    (shell.place / "there.db").write_text("mine")
    refused = shell("store", "upgrade", old, "--backup", "there.db")
    assert (refused.code, "there.db exists; name another file" in refused.err) == (2, True)
    assert (shell.place / "old.db").read_bytes() == before
    assert shell("store", "upgrade", old, "--backup", "before.db").code == 0
    assert (shell.place / "before.db").exists()
    assert shell("store", "upgrade", "sqlite:///nothing.db").code == 2
    assert shell("store", "upgrade", "memory://").code == 2
    assert shell("store", "upgrade", old, "--backup", "a.db", "--no-backup").code == 2


def test_a_store_is_not_upgraded_under_a_process_that_works_on_it_unless_told(shell: Shell, old: str) -> None:
    owner = json.dumps(Owner.here().data())
    with closing(sqlite3.connect(shell.place / "old.db")) as file, file:
        file.execute("INSERT INTO holders VALUES ('h1', ?, 60.0, 1e12, 0)", (owner,))
    refused = shell("store", "upgrade", old, "--json")
    assert (refused.code, refused.json["upgraded"]) == (7, False)
    assert f"process {os.getpid()} on " in refused.err
    assert [*shell.place.glob("old.db.*")] == []
    forced = shell("store", "upgrade", old, "--force", "--no-backup", "--json")
    assert (forced.code, forced.json["upgraded"], forced.json["backup"]) == (0, True, None)


def test_the_backup_of_a_database_is_made_by_its_own_tools(shell: Shell, postgres: PostgresDatabase) -> None:
    postgres.execute("DROP TABLE notes; UPDATE orchestrator_schema SET version = 4")
    refused = shell("store", "upgrade", postgres.url)
    assert (refused.code, "pg_dump --format=custom" in refused.err) == (2, True)
    assert shell("store", "upgrade", postgres.url, "--dry-run").code == 0
    assert postgres.execute("SELECT version FROM orchestrator_schema") == [(4,)]
    done = shell("store", "upgrade", postgres.url, "--no-backup", "--json")
    assert (done.code, done.json["upgraded"]) == (0, True), done.err
    assert shell("store", "upgrade", postgres.url, "--json").json["steps"] == []


def test_a_damaged_run_is_taken_from_a_backup(ran: Shell) -> None:
    here, backup = (f"sqlite:///{ran.place}/{name}.db" for name in ("damaged", "backup"))
    for url in (here, backup):
        assert ran("store", "copy", "sqlite:///.orchestrator/runs.db", url).code == 0
    with closing(sqlite3.connect(ran.place / "damaged.db")) as file, file:
        file.execute("UPDATE records SET data = substr(data, 1, 20) WHERE rowid = (SELECT max(rowid) FROM records)")
    checked = ran("store", "check", "--store", here)
    assert (checked.code, "wrong: run two: " in checked.out) == (1, True)
    assert ran("export", "two", "-o", "two.jsonl", "--store", backup).code == 0
    assert ran("delete", "two", "--store", here).code == 0
    assert ran("import", "two.jsonl", "--store", here).out == "two\n"
    assert ran("store", "check", "--store", here).code == 0

"""Commands about whole stores: store copy, store check."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.support.shell import Shell


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
    assert shell("schedule", "--list", "--store", there).out.endswith("UTC  paused\n")
    started = shell("store", "copy", "sqlite:///.orchestrator/runs.db", there, "--start-schedules", "--json")
    assert started.json["schedules"] == ["two"]
    assert "  next 20" in shell("schedule", "--list", "--store", there).out
    shell("schedule", "trial:two", "31 6 * * *", "roses")
    differs = shell("store", "copy", "sqlite:///.orchestrator/runs.db", there)
    assert differs.code == 1
    assert "schedule two: " in differs.err


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        (("memory://", "sqlite:///a.db"), "name two files"),
        (("sqlite:///a.db", "sqlite:///a.db"), "the same file"),
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
    assert wrong.out.startswith("wrong: run two: its row says status 'failed', its journal 'paused'")
    repaired = ran("store", "check", "--store", url, "--repair", "--json")
    assert (repaired.code, repaired.json["ok"]) == (0, True)
    assert repaired.json["findings"][0]["repaired"] == "written again from the journal"
    assert ran("store", "check", "--store", url).out == ""
    missing = ran("store", "check", "--store", f"sqlite:///{ran.place}/missing.db")
    assert (missing.code, "there is no store" in missing.err) == (2, True)
    assert not (ran.place / "missing.db").exists()

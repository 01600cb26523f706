"""The first characters of a run's id stand for it, wherever a command takes a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.table import FILES
from tests.support.shell import Shell

RUNS = {
    "waits-for-event-0": ("shop.yaml", "19"),
    "waits-to-be-asked": ("approval.yaml", "19"),
    "failed-0123456789": ("fails.py:fails", "x"),
    "done-0123456789ab": ("fails.py:hello", "x"),
    "done-too-89abcdef": ("fails.py:hello", "y"),
    "done": ("fails.py:hello", "z"),
}


@pytest.fixture
def some(shell: Shell) -> Shell:
    for name, text in FILES.items():
        (shell.place / name).write_text(text)
    for name, words in RUNS.items():
        shell("run", *words, "--run-id", name)
    return shell


def test_each_command_takes_short_ids(some: Shell) -> None:
    """Those that change something come last."""
    file = some.place / "two.html"
    for words, code, told in (
        (("show", "done-0"), 0, "done-0123456789ab"),
        (("show", "done-0", "--store", f"sqlite:///{some.place}/.orchestrator/runs.db"), 0, "done-0123456789ab"),
        (("why", "waits-for"), 0, "waits-for-event-0"),
        (("events", "done-0"), 0, "done-0123456789ab"),
        (("watch", "done-0"), 0, "hello"),
        (("render", "done-0"), 0, "greet"),
        (("render", "done-0", "done-t", "-o", str(file)), 0, ""),
        (("diff", "done-0", "done-t"), 0, "done-too-89abcdef"),
        (("export", "done-0", "done-t"), 0, "done-too-89abcdef"),
        (("replay", "done-0", "done-t"), 0, "done-too-89abcdef"),
        (("fork", "done-0", "--at", "1"), 0, "hello"),
        (("resume", "waits-to"), 3, ""),
        (("resume", "fail", "--retry"), 1, ""),
        (("approve", "waits-to", "--no-resume"), 0, ""),
        (("answer", "waits-to", "x"), 1, ""),
        (("deny", "waits-to"), 1, ""),
        (("send", "waits-for", "paid", '{"order": "19"}', "--no-resume"), 0, ""),
        (("pause", "waits-for"), 0, "waits-for-event-0"),
        (("cancel", "waits-for"), 0, "waits-for-event-0"),
        (("delete", "done-0", "done-t"), 0, "done-too-89abcdef"),
    ):
        done = some(*words)
        assert (done.code, "no run" in done.err) == (code, False), (words, done)
        assert told in done.out, (words, done)
    assert Path(file).exists()


def test_a_whole_id_is_that_run_though_others_begin_with_it(some: Shell) -> None:
    assert some("show", "done", "--json").json["run_id"] == "done"


def test_an_ambiguous_id_lists_the_candidates(some: Shell) -> None:
    done = some("delete", "waits-")
    assert done.code == 2
    assert "the ids of 2 runs begin with 'waits-': give more characters" in done.err
    assert {"waits-for-event-0", "waits-to-be-asked"} <= {*done.err.split()}


@pytest.mark.parametrize("typed", ["don", "nothing", ""])
def test_too_few_characters_and_others_are_unknown(some: Shell, typed: str) -> None:
    done = some("show", typed)
    assert (done.code, f"no run {typed!r} in this store" in done.err) == (4, True)


def test_failed_runs_print_the_command_that_retries(some: Shell) -> None:
    run, show = some("run", "fails.py:fails", "x", "--run-id", "again"), some("show", "again")
    for told in (run.err, show.out):
        assert "to run the failed step again:" in told
        assert "orchestrator resume again --retry" in told
    (replayed,) = some("replay", "again", "--json").json["replays"]
    assert "--retry" not in some("show", replayed["run_id"]).out, "a replay is made again, not retried"


def test_the_list_says_what_is_a_replay_and_a_fork(some: Shell) -> None:
    (replayed,) = some("replay", "done", "--json").json["replays"]
    some("fork", "done", "--at", "1", "--run-id", "forked")
    rows = {line.split()[0]: line for line in some("runs").out.splitlines()}
    assert "replay of done: " in rows[replayed["run_id"]]
    assert "fork of done: " in rows["forked"]
    assert "of done" not in rows["done"]

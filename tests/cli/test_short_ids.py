"""The first characters of a generated id stand for it, wherever a command takes a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.table import FILES
from tests.support.shell import Shell

RUNS = {
    "a0e0f00000000001": ("shop.yaml", "19"),
    "a0e0a00000000002": ("approval.yaml", "19"),
    "fa11ed0000000003": ("fails.py:fails", "x"),
    "d0e0123456789abc": ("fails.py:hello", "x"),
    "d0e189abcdef0123": ("fails.py:hello", "y"),
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
        (("show", "d0e0"), 0, "d0e0123456789abc"),
        (("show", "d0e0", "--store", f"sqlite:///{some.place}/.orchestrator/runs.db"), 0, "d0e0123456789abc"),
        (("why", "a0e0f"), 0, "a0e0f00000000001"),
        (("events", "d0e0"), 0, "d0e0123456789abc"),
        (("watch", "d0e0"), 0, "hello"),
        (("render", "d0e0"), 0, "greet"),
        (("render", "d0e0", "d0e1", "-o", str(file)), 0, ""),
        (("diff", "d0e0", "d0e1"), 0, "d0e189abcdef0123"),
        (("export", "d0e0", "d0e1"), 0, "d0e189abcdef0123"),
        (("replay", "d0e0", "d0e1"), 0, "d0e189abcdef0123"),
        (("fork", "d0e0", "--at", "1"), 0, "hello"),
        (("resume", "a0e0a"), 3, ""),
        (("resume", "fa11", "--retry"), 1, ""),
        (("approve", "a0e0a", "--no-resume"), 0, ""),
        (("answer", "a0e0a", "x"), 1, ""),
        (("deny", "a0e0a"), 1, ""),
        (("send", "a0e0f", "paid", '{"order": "19"}', "--no-resume"), 0, ""),
        (("pause", "a0e0f"), 0, "a0e0f00000000001"),
        (("cancel", "a0e0f"), 0, "a0e0f00000000001"),
        (("delete", "d0e0", "d0e1"), 0, "d0e189abcdef0123"),
    ):
        done = some(*words)
        assert (done.code, "no run" in done.err) == (code, False), (words, done)
        assert told in done.out, (words, done)
    assert Path(file).exists()


def test_a_whole_id_is_that_run_though_others_begin_with_it(some: Shell) -> None:
    assert some("show", "done", "--json").json["run_id"] == "done"


def test_an_ambiguous_id_lists_the_candidates(some: Shell) -> None:
    done = some("delete", "a0e0")
    assert done.code == 2
    assert "the ids of 2 runs begin with 'a0e0': give more characters" in done.err
    assert {"a0e0f00000000001", "a0e0a00000000002"} <= {*done.err.split()}


def test_an_id_that_a_user_chose_is_typed_whole(some: Shell) -> None:
    some("run", "fails.py:hello", "x", "--run-id", "order-12")
    for command in ("show", "delete", "approve", "cancel", "send"):
        done = some(command, "order-1", *(["paid"] if command == "send" else []))
        assert done.code == 2, done
        assert "no run 'order-1'; give the whole id if you mean this run\n  order-12" in done.err
    assert some("show", "order-12", "--json").json["status"] == "completed"


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

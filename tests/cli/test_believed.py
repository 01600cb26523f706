"""What a stored run says was approved counts only if this user's command line wrote it, here and in this order."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell

CODE = ("--graph", "trial:noted", "--tools", "trial:note", "--model", "offline")


@pytest.mark.full
def test_what_a_stranger_approved_is_shown_and_asked_for_again(shell: Shell) -> None:
    stranger = {"HOME": str(shell.place / "stranger")}
    run = ("run", "trial:noted", "--tools", "trial:note", "--run-id", "n")
    assert shell(*run, env=stranger).code == 3
    assert shell("approve", "n", "--no-resume", env=stranger).code == 0
    shown = shell("show", "n")
    assert 'pending  3  approve note {"text": "hello"}' in shown.out
    assert "not from your command line: asked again" in shown.out

    refused = shell("resume", "n")
    assert refused.code == 2
    assert 'Its recorded approvals:\n  pending  3  approve note {"text": "hello"}' in refused.err
    paused = shell("resume", "n", *CODE)
    assert (paused.code, (shell.place / "notes.txt").exists()) == (3, False)
    done = shell.go_on(paused)
    assert done.code == 0, done.err
    assert shell.read("notes.txt") == ["hello"]


def test_a_policy_that_a_stranger_kept_approves_nothing(shell: Shell) -> None:
    stranger = {"HOME": str(shell.place / "stranger")}
    run = ("run", "trial:asked_first", "--tools", "trial:note", "--run-id", "n", "--approve", "dangerous")
    assert shell(*run, env=stranger).code == 3
    assert "policy  calls up to risk dangerous are approved without asking  (not from your" in shell("show", "n").out
    code = ("--graph", "trial:asked_first", *CODE[2:])
    paused = shell("answer", "n", "hello", *code)
    assert (paused.code, (shell.place / "notes.txt").exists()) == (3, False)
    assert "approval at confirm" in paused.err


def test_what_the_user_approved_is_believed_when_the_run_goes_on_later(shell: Shell) -> None:
    assert shell("run", "trial:noted", "--tools", "trial:note", "--run-id", "n").code == 3
    assert shell("approve", "n", "--no-resume").code == 0
    shown = shell("show", "n").out
    assert 'pending  3  approve note {"text": "hello"}' in shown
    assert "asked again" not in shown
    done = shell("resume", "n")
    assert done.code == 0, done.err
    assert shell.read("notes.txt") == ["hello"]


def test_names_with_ends_of_lines_make_no_lines(shell: Shell) -> None:
    """Of people who answered in a store, and of variables in `.env`."""
    stranger = {"HOME": str(shell.place / "stranger")}
    assert shell("run", "trial:noted", "--tools", "trial:note", "--run-id", "n", env=stranger).code == 3
    by = ("--by", "you\npolicy  none is kept")
    assert shell("approve", "n", "--question", _open(shell), "--no-resume", *by, env=stranger).code == 0
    (shell.place / ".env").write_text("'x\nerror: fake'=1\n")
    shown, refused = shell.all(("show", "n"), ("resume", "n"))
    assert "by you policy  none is kept  (not from" in shown.out
    for done in (shown, refused):
        lines = f"{done.out}\n{done.err}".splitlines()
        assert not [line for line in lines if line.startswith(("policy", "error: fake"))]


def _open(shell: Shell) -> str:
    """The id of the question that the run `n` waits for."""
    return str(shell("show", "n", "--json").json["waiting"][0]["id"])

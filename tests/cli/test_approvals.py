"""What a person is asked at the terminal, and what becomes of the answer."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import anyio
import pytest

from orchestrator.cli.terminal_questions import denial_of, edited
from orchestrator.kernel.question import Deny
from tests.support.shell import Shell, Terminal

PLAIN = {"NO_COLOR": "1"}
EDITOR = """#!/bin/sh
stat -c %a "$(dirname "$1")" > mode.txt
echo "$1" > file.txt
cp "$1" before.json
printf '%s' '{words}' > "$1"
exit {code}
"""


def editor(shell: Shell, words: str, code: int = 0) -> dict[str, str]:
    """An environment in which a program writes these words into what it is to edit."""
    path = shell.place / "edit.sh"
    path.write_text(EDITOR.replace("{words}", words).replace("{code}", str(code)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**PLAIN, "EDITOR": f"sh {path}"}


def begun(shell: Shell, terminal: Terminal) -> None:
    assert 'args  {"text": "hello"}' in terminal.wait_for("Approve? [y/n/e] ")


RUN = ("run", "trial:writer", "x", "--tools", "trial", "--run-id", "w")


def notes(shell: Shell) -> list[str]:
    file = shell.place / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_arguments_are_changed_in_an_editor_and_asked_about_again(shell: Shell) -> None:
    with shell.terminal(*RUN, env=editor(shell, '{"text": "hullo \\u001b[31m"}')) as terminal:
        begun(shell, terminal)
        terminal.type("e\r")
        changed = terminal.wait_for("Approve? [y/n/e] ")
        assert '~ text  "hello" -> "hullo \\u001b[31m"' in changed
        assert notes(shell) == []
        terminal.type("y\r")
        assert terminal.end() == 0
    assert notes(shell) == ["hullo \x1b[31m"]
    assert json.loads((shell.place / "before.json").read_text()) == {"text": "hello"}
    assert (shell.place / "mode.txt").read_text() == "700\n"
    assert not Path((shell.place / "file.txt").read_text().strip()).parent.exists()
    assert "\x1b" not in terminal.shown


def test_a_key_that_was_pressed_before_approves_nothing(shell: Shell) -> None:
    with shell.terminal(*RUN, env=PLAIN) as terminal:
        terminal.type("y\ry\ry\r")
        begun(shell, terminal)
        terminal.type("n\r")
        assert terminal.end() == 0
    assert notes(shell) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ('{"text": ', 0, "this is not JSON"),
        ('["text"]', 0, "as a JSON object"),
        ('{"text": "hullo"}', 3, "exited with code 3: nothing is changed"),
        ('{"text": "hello"}', 0, "nothing is changed"),
    ],
)
def test_what_cannot_be_used_changes_nothing(
    shell: Shell, words: str, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITOR", editor(shell, words, code)["EDITOR"])
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.chdir(shell.place)

    async def line(prompt: str) -> str:
        raise AssertionError("there is an editor")

    with (shell.place / "edit.sh").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert anyio.run(edited, {"text": "hello"}, line) is None
    assert says in capfd.readouterr().err


def test_arguments_that_do_not_fit_are_refused_and_can_be_mended(shell: Shell) -> None:
    with shell.terminal(*RUN, env=PLAIN) as terminal:
        begun(shell, terminal)
        terminal.type("e\r")
        terminal.wait_for("> ")
        terminal.type('{"txet": 3}\r')
        changed = terminal.wait_for("Approve? [y/n/e] ")
        assert '- text  "hello"' in changed
        assert "+ txet  3" in changed
        terminal.type("y\r")
        assert "error: question" in terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("e\r")
        terminal.wait_for("> ")
        terminal.type('{"text": "third"}\r')
        terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("y\r")
        assert terminal.end() == 0
    assert notes(shell) == ["third"]


def test_an_editor_that_is_not_there_is_named(shell: Shell) -> None:
    with shell.terminal(*RUN, env={**PLAIN, "VISUAL": "nosuch-editor --wait"}) as terminal:
        begun(shell, terminal)
        terminal.type("e\r")
        assert "nosuch-editor cannot be started" in terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("n the wrong file\r")
        assert terminal.end() == 0
    answered = [one for one in shell("events", "w").lines if one.get("type") == "answered"]
    assert [one["answer"] for one in answered] == [{"type": "deny", "reason": "the wrong file"}]
    assert notes(shell) == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("n", ""),
        ("", ""),
        ("yeah", ""),
        ("no", ""),
        ("n, too late", "too late"),
        ("No: never", "never"),
        ("not now", ""),
    ],
)
def test_anything_else_is_no(said: str, reason: str) -> None:
    assert denial_of(said) == Deny(reason=reason)

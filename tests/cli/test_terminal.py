"""What a person at a terminal sees and types."""

from __future__ import annotations

import re

from tests.support.shell import Shell

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_each_question_is_asked_with_all_that_it_is_about(shell: Shell) -> None:
    with shell.terminal("run", "tool_user", "What is 20+(2*4)?", env={"NO_COLOR": "1"}) as terminal:
        asked = terminal.wait_for("Approve? [y/n/e] ")
        assert "Call multiply?" in asked
        assert 'args  {"a": 2, "b": 4}' in asked
        terminal.type("y\r")
        assert 'args  {"a": 20, "b": 8}' in terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("YES\r")
        assert terminal.end() == 0
    assert terminal.shown.rstrip().endswith("28")
    assert not COLOUR.search(terminal.shown)


def test_anything_but_yes_is_no(shell: Shell) -> None:
    with shell.terminal("run", "tool_user", "What is 1+1?", env={"TERM": "dumb"}) as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("yeah\r")
        assert terminal.end() == 1
    assert "UserDenied" in terminal.shown
    assert "\x1b" not in terminal.shown


def test_an_answer_that_does_not_fit_is_asked_for_again(shell: Shell) -> None:
    with shell.terminal("run", "trial:two", "roses", "--run-id", "two") as terminal:
        terminal.wait_for("> ")
        terminal.type("Dörte\r")
        terminal.wait_for("> ")
        terminal.type("sideways\r")
        assert "up, down" in terminal.wait_for("> ")
        terminal.type("\x04")  # end of input: not now
        assert terminal.end() == 3
    assert "is paused and waits for" in terminal.shown
    with shell.terminal("resume", "two") as terminal:
        terminal.wait_for("> ")
        terminal.type("\x03")  # Ctrl-C
        assert terminal.end() == 130
    done = shell("answer", "two", "up")
    assert (done.code, done.out) == (0, "Dörte\n")


def test_no_text_commands_the_terminal(shell: Shell) -> None:
    with shell.terminal("run", "trial:writer", "x", "--tools", "trial") as terminal:
        terminal.wait_for("Approve? [y/n/e] ")
        terminal.type("y\r")
        assert terminal.end() == 0
    for sign in ("\x1b]0;", "\x1b[31m", "\u202e", "\x9b", "\x07"):
        assert sign not in terminal.shown
    assert "\\u001b]0;owned\\u0007" in terminal.shown


def test_an_export_on_a_terminal_does_not_command_it(shell: Shell) -> None:
    assert shell("run", "trial:writer", "x", "--tools", "trial", "--run-id", "one").code == 3
    raw = shell("export", "one").out
    with shell.terminal("export", "one") as terminal:
        assert terminal.end() == 0
    for sign in ("\u202e", "\x9b"):
        assert sign in raw
        assert sign not in terminal.shown
    assert '"type":"run","run_id":"one"' in terminal.shown


def test_a_list_is_cut_and_coloured_on_a_terminal_only(shell: Shell) -> None:
    with shell.terminal("tools", "terminal", env={"COLUMNS": "80"}) as terminal:
        assert terminal.end() == 0
    heading, group, row = (COLOUR.sub("", line).rstrip() for line in terminal.shown.splitlines()[:3])
    assert heading.split("  ")[1] == "TOOL"
    assert (group, row.endswith("…"), len(row) <= 80) == ("terminal", True, True)
    assert "\x1b[31mdangerous\x1b[0m" in terminal.shown
    piped = shell("tools", "terminal", env={"COLUMNS": "80"})
    assert "\x1b" not in piped.out
    assert "…" not in piped.out
    assert piped.out.split()[:2] == ["TOOL", "RISK"]

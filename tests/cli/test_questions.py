"""Answering what a run waits for."""

from __future__ import annotations

import re

import pytest

from tests.support.shell import Shell


@pytest.mark.full
def test_of_several_questions_one_is_named(shell: Shell) -> None:
    begun = shell("run", "trial:two", "roses", "--run-id", "two")
    assert begun.code == 3
    unnamed, unknown, show = shell.all(
        ("approve", "two"),
        ("answer", "two", "x", "--question", "nosuch"),
        ("show", "two", "--json"),
    )
    left, right = (question["id"] for question in show.json["waiting"])
    assert (unnamed.code, unnamed.out) == (2, "")
    assert all(text in unnamed.err for text in (left, right, "Left of roses?", "Right?", "choices  up, down"))
    assert (unknown.code, "nosuch" in unknown.err) == (4, True)
    assert all(f"--question {name}" in begun.err for name in (left, right))

    recorded = shell("answer", "two", "up", "--question", right, "--no-resume", "--by", "ann", "--json")
    assert (recorded.code, recorded.json["waiting"][0]["id"], len(recorded.json["waiting"])) == (0, left, 1)
    stale = shell("answer", "two", "down", "--question", right)
    assert stale.code == 1
    assert "each question is answered once" in stale.err
    last = shell("answer", "two", "a thorn")  # one is left: it needs no name
    assert (last.code, last.out) == (0, "a thorn\n")
    late, events = shell.all(("answer", "two", "x"), ("events", "two"))
    assert (late.code, "has no open question" in late.err) == (1, True)
    answered = [one for one in events.lines if one.get("type") == "answered"]
    assert [one["by"] == "ann" for one in answered] == [True, False]


@pytest.mark.full
def test_a_value_is_json_where_the_question_wants_it(shell: Shell) -> None:
    assert shell("run", "trial:number", "--run-id", "n").code == 3
    paused = shell("pause", "n", "--reason", "lunch", "--by", "ann")
    assert (paused.code, paused.out) == (0, "n  number  paused\n")
    lifted = shell("resume", "n", "--json")
    assert (lifted.code, [question["kind"] for question in lifted.json["waiting"]]) == (3, ["input"])
    text = shell("answer", "n", "four")
    assert (text.code, "the answer" in text.err) == (2, True)
    assert shell("answer", "n", "--", "-4").out == "-4\n"
    ended = shell("resume", "n")
    assert (ended.code, "has ended (completed)" in ended.err) == (1, True)


def test_what_is_approved_can_be_changed_first(shell: Shell) -> None:
    assert shell("run", "tool_user", "What is 3+4?", "--run-id", "sum").code == 3
    unfit, value = shell.all(
        ("approve", "sum", "--args", '{"a": "many", "b": 4}'),
        ("answer", "sum", "yes"),
    )
    assert (unfit.code, value.code) == (2, 2)
    assert "takes approve or deny, not a value: use `orchestrator approve " in value.err
    done = shell("approve", "sum", "--args", '{"a": 30, "b": 4}')
    assert done.code == 0
    assert "add(a=30, b=4) = 34" in done.err


def test_the_same_command_again_does_not_approve_the_next_call_unread(shell: Shell) -> None:
    run = ("run", "trial:noted_twice", "--tools", "trial:note", "--run-id", "n")
    assert shell(*run).code == 3
    first = shell("approve", "n")
    assert (first.code, "And again?" in first.err, "--question" in first.command) == (3, True, True)
    again = shell("approve", "n")
    assert (again.code, shell.read("notes.txt")) == (2, ["hello"])
    said = re.fullmatch(
        r"error: run 'n' asks a different question .*:\n(.*)\n  (.* approve n --question .*)\n", again.err, re.S
    )
    assert said is not None, again.err
    assert "And again?" in said[1]
    assert shell("deny", "n", "--question", "nosuch").code == 4
    done = shell.go_on(again)
    assert (done.code, shell.read("notes.txt")) == (0, ["hello", "hello"])


def test_a_question_that_was_printed_as_json_was_looked_at(shell: Shell) -> None:
    run = ("run", "trial:noted_twice", "--tools", "trial:note", "--run-id", "n", "--json")
    assert shell(*run).code == 3
    assert shell("approve", "n").code == 3
    assert shell("show", "n", "--json").code == 0
    assert shell("approve", "n").code == 0
    assert not list((shell.place / "home/.local/state/orchestrator/shown").iterdir())


def test_a_question_that_only_someone_else_saw_is_named(shell: Shell) -> None:
    assert (
        shell("run", "trial:noted", "--tools", "trial:note", "--run-id", "n", env={"HOME": str(shell.place)}).code == 3
    )
    refused = shell("approve", "n", "--no-resume")
    assert (refused.code, 'args  {"text": "hello"}' in refused.err) == (2, True)


@pytest.mark.full
def test_like_errors_have_one_exit_code(shell: Shell) -> None:
    """The table of docs/cli.md: 1 the question is closed, 2 what was given does not fit, 4 there is no such thing."""
    shell("run", "tool_user", "What is 3+4?", "--run-id", "sum")
    question = shell("show", "sum", "--json").json["waiting"][0]["id"]
    shell("run", "trial:bad", "x", "--run-id", "bad")
    for words, code in (
        (("approve", "sum", "--args", "[]"), 2),
        (("approve", "sum", "--args", '{"a": "many"}'), 2),
        (("answer", "sum", "perhaps"), 2),
        (("answer", "sum", "perhaps", "--question", "nosuch"), 4),
        (("answer", "bad", "perhaps"), 4),
        (("answer", "bad", "perhaps", "--question", "nosuch"), 4),
        (("answer", "nosuch", "perhaps"), 4),
        (("fork", "sum", "--at", "1", "--result", "1"), 2),
        (("fork", "sum", "--at", "1", "--answer", "1"), 2),
        (("fork", "sum", "--answer", "nosuch=1"), 2),
        (("fork", "sum", "--at", "99"), 2),
        (("show", "sum", "--at", "99"), 2),
        (("why", "sum", "99"), 2),
        (("render", "sum", "--at", "99"), 2),
        (("run", "tool_user", "--input", "@nosuch.json"), 2),
        (("import", "nosuch.jsonl"), 2),
        (("export", "nosuch"), 4),
        (("delete", "nosuch"), 4),
        (("diff", "sum", "nosuch"), 4),
        (("replay", "nosuch"), 4),
        (("fork", "nosuch"), 4),
        (("send", "nosuch", "paid"), 4),
        (("events", "nosuch"), 4),
        (("watch", "nosuch"), 4),
        (("pause", "nosuch"), 4),
        (("cancel", "bad"), 1),
        (("resume", "bad"), 1),
        (("send", "bad", "paid"), 1),
    ):
        done = shell(*words)
        assert (done.code, done.out) == (code, ""), (words, done.err)
    assert shell("approve", "sum").code == 0
    for words in (("answer", "sum", "yes"), ("approve", "sum"), ("deny", "sum", "--question", question)):
        assert shell(*words).code == 1, words

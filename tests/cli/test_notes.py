"""The command `note`, and notes in what `show` prints."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell


@pytest.fixture
def ran(shell: Shell) -> Shell:
    """A place with a run in it, whose code is gone."""
    shell("run", "trial:bad", "roses", "--run-id", "two")
    (shell.place / "trial.py").unlink()
    return shell


def test_a_note_and_a_score_are_written_listed_shown_and_deleted(ran: Shell) -> None:
    step = ran("show", "two", "--json").json["history"][0]["seq"]
    wrote = ran("note", "two", "wrong\x1b[31m city", "--step", step, "--by", "ann", "--json")
    scored = ran("note", "two", "--score", "0.5", "--name", "quality")
    assert (wrote.code, scored.code) == (0, 0)
    (note,) = wrote.json
    assert (note["step"], note["by"]) == (step, "ann")
    listed, of_step = ran("note", "two"), ran("note", "two", "--step", step, "--json")
    assert "quality  0.5" in listed.out
    assert note["id"] in listed.out
    assert [one["id"] for one in of_step.json] == [note["id"]]
    shown = ran("show", "two")
    assert f"notes\n  record {step}  ann" in shown.out
    assert "\x1b" not in shown.out + listed.out
    assert len(ran("show", "two", "--json").json["notes"]) == 2
    assert ran("note", "two", "--delete", note["id"]).code == 0
    assert [one["name"] for one in ran("note", "two", "--json").json] == ["quality"]


def test_what_cannot_be_written_is_refused_with_the_exit_code_of_its_kind(ran: Shell) -> None:
    for words, code, said in (
        (("nosuch", "x"), 4, "no run 'nosuch'"),
        (("two", " "), 2, "a text or a score"),
        (("two", "--score", "nan"), 2, "finite"),
        (("two", "x", "--step", "1"), 2, "ends no step"),
        (("two", "x" * 4001), 2, "limit is 4,000"),
        (("two", "--name", "quality"), 2, "--name belongs to a note"),
        (("two", "--delete", "nosuch"), 2, "has no note nosuch"),
        (("two", "x", "--delete", "nosuch"), 2, "--delete takes no text"),
    ):
        found = ran("note", *words)
        assert (found.code, found.out) == (code, ""), found
        assert said in found.err
    assert ran("note", "two").err.endswith("has no notes\n")

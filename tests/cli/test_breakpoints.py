"""Breakpoints on the command line."""

from __future__ import annotations

from tests.support.shell import Shell

SUM = "What is 20+(2*4)?"


def test_a_run_pauses_at_a_node_and_the_printed_command_goes_on(shell: Shell) -> None:
    words = ("run", "tool_user", SUM, "--approve", "none", "--run-id", "r", "--json")
    first, wrong = shell.all((*words, "--pause-before", "execute"), (*words, "--pause-after", "exekute"))
    assert (first.code, first.json["status"]) == (3, "paused")
    (question,) = first.json["waiting"]
    assert (question["kind"], question["node"], question["prompt"]) == ("pause", "execute", "paused before execute")
    assert wrong.code == 2
    assert "has no node 'exekute'; did you mean 'execute'?" in wrong.err
    second = shell("resume", "r", "--pause-before", "", "--pause-after", "execute", "--json")
    assert [one["prompt"] for one in second.json["waiting"]] == ["paused after execute"]
    done = shell("resume", "r", "--pause-after", "")
    assert (done.code, done.out) == (0, "28\n")

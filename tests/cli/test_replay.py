"""`orchestrator replay`."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.shell import Shell

NEW = """
from orchestrator.strategies.tool_user import graph as old
graph = old.model_copy(update={"nodes": {**old.nodes, "think": old.nodes["think"].with_(prompt="Think: {question}")}})
"""


@pytest.mark.full
def test_runs_are_replayed_without_a_model_and_a_table_says_what_changed(shell: Shell) -> None:
    results = shell.all(
        ("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "one", "--label", "kind=test"),
        ("run", "react", "What is 2+5?", "--approve", "none", "--run-id", "two"),
        ("replay", "one"),
        ("replay", "--all", "--json"),
        ("replay", "--all", "--label", "kind=test", "--status", "completed", "--json"),
        ("replay", "--all", "--graph-name", "react", "--json"),
        ("replay", "one", "--set", 'question="What is 4+5?"'),
        ("replay", "one", "--set", 'question="What is 4+5?"', "--live", "always", "--approve", "none", "--json"),
    )
    one, every, labelled, named, other, live = results[2:]
    assert (one.code, one.err) == (0, "")
    assert one.out.splitlines()[1].split()[:5] == ["one", "tool_user", "same", "5", "5"]
    assert every.code == 0
    assert [(row["parent"], row["same"], row["made"]) for row in every.json["replays"]] == [
        ("one", True, 0), ("two", True, 0),
    ]  # fmt: skip
    assert [row["parent"] for row in labelled.json["replays"]] == ["one"]
    assert [row["parent"] for row in named.json["replays"]] == ["two"]
    assert other.code == 1
    assert "diverged at choose_tool: model offline" in other.out
    assert "-Question: What is 2+3?" in other.out
    assert live.code == 1
    assert (live.json["replays"][0]["before"], live.json["replays"][0]["after"]) == ("5", "9")
    assert live.json["replays"][0]["made"] > 0


@pytest.mark.full
def test_a_changed_graph_is_told_and_wrong_options_are_refused(shell: Shell) -> None:
    (shell.place / "new.py").write_text(NEW)
    results = shell.all(
        ("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "one"),
        ("replay", "one", "--graph", "new.py:graph"),
        ("replay", "one", "--graph", "new.py:graph", "--live", "ask"),
        ("replay", "nothing"),
        ("replay",),
        ("replay", "one", "--all"),
        ("replay", "one", "--live", "sometimes"),
        ("replay", "one", "--label", "a=b"),
        ("replay", "--all", "--status", "finished"),
        ("replay", "one", "--set", "nothing"),
    )
    changed, asked, unknown, *wrong = results[1:]
    assert changed.code == 1
    assert "diverged at think: model offline" in changed.out
    assert asked.code == 1
    assert "Call offline?" in asked.err
    assert "approve" in asked.err
    assert unknown.code == 4
    assert [one.code for one in wrong] == [2] * len(wrong)


def test_a_run_that_another_user_stored_needs_its_graph(shell: Shell) -> None:
    (made,) = shell.all(("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "one", "--json"))
    assert json.loads(made.out)["output"] == "5"
    shell.env["XDG_STATE_HOME"] = str(shell.place / "another")
    refused, given = shell.all(("replay", "one"), ("replay", "one", "--graph", "tool_user", "--tools", "arithmetic"))
    assert refused.code == 2
    assert "add --graph" in refused.err
    assert given.code == 0


def test_a_replay_that_diverged_says_so_in_the_list_and_where_it_is_shown(shell: Shell) -> None:
    (shell.place / "new.py").write_text(NEW)
    ran, replayed, listed, rows, diverged, others = shell.all(
        ("run", "tool_user", "What is 2+3?", "--approve", "none", "--run-id", "one"),
        ("replay", "one", "--graph", "new.py:graph", "--json"),
        ("runs",),
        ("runs", "--json"),
        ("runs", "--json", "--diverged", "--sort", "cost"),
        ("runs", "--json", "--no-replays"),
    )
    assert (ran.code, replayed.json["replays"][0]["status"]) == (0, "diverged")
    assert "replay of one: diverged: model offline: the replayed run did not ask this" in listed.out
    row = rows.json[0]
    assert (row["status"], row["diverged"], row["error"].partition(": ")[0]) == ("cancelled", True, "diverged")
    assert f"{row['run_id']}  tool_user  diverged " in listed.out
    assert [one["run_id"] for one in diverged.json] == [row["run_id"]]
    assert [one["run_id"] for one in others.json] == ["one"]
    shown = shell("show", row["run_id"])
    assert re.search(r"it diverged \(record \d+\): model offline: the replayed run did not ask this", shown.out)
    assert "the run was cancelled" not in shell("why", row["run_id"]).out
    assert "[diverged]" in shell("render", row["run_id"]).out

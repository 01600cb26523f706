"""Runs from beginning to end: what `run` takes, what it prints, and with which code it exits."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.shell import Shell

SUM = "What is (3+4)*(10-2)/7?"
RESULT = {
    "run_id", "graph", "status", "output", "waiting", "steps", "usage", "seconds", "error", "seq", "labels", "parent",
    "diverged", "inherited", "queued", "standby", "archived",
}  # fmt: skip


@pytest.mark.full
def test_each_printed_command_goes_on_until_the_answer(shell: Shell) -> None:
    done = shell("run", "tool_user", SUM, "--json", "--run-id", "sum")
    asked = done.json
    assert (done.code, asked["status"], asked["run_id"], asked["graph"]) == (3, "paused", "sum", "tool_user")
    assert set(asked) == RESULT
    assert [(q["kind"], q["payload"]["tool"], q["payload"]["args"]) for q in asked["waiting"]] == [
        ("approval", "add", {"a": 3, "b": 4})
    ]
    assert "tool  add" in done.err
    assert 'args  {"a": 3, "b": 4}' in done.err
    for tool in ("subtract", "multiply", "divide"):
        done = shell.sh(done.command) if tool == "subtract" else shell.go_on(done)
        assert (done.code, done.out) == (3, "")
        assert f"tool  {tool}" in done.err
    done = shell.go_on(done)
    assert (done.code, done.out) == (0, "8\n")


def test_a_denial_fails_the_run(shell: Shell) -> None:
    assert shell("run", "tool_user", SUM, "--run-id", "sum").code == 3
    done = shell("deny", "sum", "--reason", "not today", "--json", "--by", "ann")
    error = done.json["error"]
    assert (done.code, done.json["status"], error["type"], error["node"]) == (1, "failed", "UserDenied", "confirm")
    assert "not today" in error["message"]
    assert "sum failed at confirm: UserDenied" in done.err


def test_the_result_and_nothing_else_is_on_stdout(shell: Shell) -> None:
    lines, short, late = shell.all(
        ("run", "tool_user", "What is 20+(2*4)?", "--approve", "none", "--events", "--run-id", "lines"),
        ("run", "tool_user", "What is 20+(2*4)?", "--approve", "none", "--max-steps", 4, "--json"),
        ("run", "trial:waits", "x", "--max-seconds", 0.5, "--json"),
    )
    *events, result = lines.lines
    journaled = [event["seq"] for event in events if event["seq"] is not None]
    assert journaled == list(range(1, len(journaled) + 1))
    assert [events[0]["type"], events[-1]["type"]] == ["run_started", "ended"]
    assert "step_started" in {event["type"] for event in events if event["seq"] is None}
    assert all({"type", "seq", "ts", "run_id"} <= set(event) for event in events)
    assert (set(result), result["output"], lines.code) == (RESULT, "28", 0)
    assert lines.err.startswith("model: offline")

    assert (short.code, short.json["status"], short.json["steps"]) == (5, "exhausted", 5)
    assert "is exhausted: steps=4 are spent before 'think'" in short.err
    assert (late.code, late.json["status"], late.json["output"]) == (5, "exhausted", ["one"])


def test_input_is_taken_from_everywhere(shell: Shell) -> None:
    given = json.dumps({"topic": "roses"})
    (shell.place / "topic.json").write_text(given)
    words = ("run", "trial:two", "--events")
    ways = [("roses",), ("--input", given), ("--input", "@topic.json"), ("--input", '"roses"')]
    for done in (*(shell(*words, *way) for way in ways), shell(*words, "--input", "-", stdin=given)):
        assert done.code == 3
        assert {name: done.lines[0]["values"][name] for name in ("topic", "count")} == {"topic": "roses", "count": 0}


def test_input_sets_no_field_that_the_graph_does_not_take(shell: Shell) -> None:
    both = shell("run", "trial:two", "roses", "--input", '{"count": 3}')
    assert (both.code, "the one input of the graph: give one of them" in both.err) == (2, True)
    other = shell("run", "trial:two", "--input", '{"topic": "roses", "count": 3}')
    assert other.code == 2
    assert "takes one input, 'topic': a mapping is its value, unless 'topic' is its only key" in other.err


def test_a_run_id_runs_once(shell: Shell) -> None:
    (shell.place / "go").touch()
    words = ("run", "trial:waits", "x", "--run-id", "once", "--label", "user=ann", "--label", "eq=a=b")
    first, second = shell.all(words, words)  # at the same time
    assert first.code == second.code == 0
    assert first.out == second.out
    again, other = shell.all((*words, "--events"), ("run", "trial:waits", "y", "--run-id", "once"))
    assert again.lines[-1]["output"] == ["one", "slow", "last"]
    assert "run once exists already: it is shown from its beginning" in again.err
    assert again.lines[0]["labels"] == {"user": "ann", "eq": "a=b"}
    assert (other.code, "another input" in other.err) == (1, True)
    assert len(shell.read("last.txt")) == 1


def test_calls_up_to_a_risk_are_approved_at_once(shell: Shell) -> None:
    words = ("run", "trial:writer", "x", "--tools", "trial", "--tools", "arithmetic", "--run-id")
    low, high = shell.all((*words, "low", "--approve", "read"), (*words, "high", "--approve", "write"))
    assert (low.code, high.code) == (3, 0)
    assert shell.read("notes.txt") == ["hello"]
    assert "approved by policy" in high.err
    assert shell("resume", "low", "--approve", "write").code == 0
    assert len(shell.read("notes.txt")) == 2


BAD = [
    (("run", "tool_usr", "x"), "did you mean 'tool_user'?"),
    (("run", "tool_user", "x", "--tools", "arithmetc"), "a shipped group (arithmetic, ask_human, "),
    (("run", "tool_user"), "needs an input, question: give QUESTION"),
    (("run", "tool_user", "x", "--run-id", "a b"), "printable characters without spaces"),
    (("run", "boom:graph", "x"), "boom cannot be imported: ZeroDivisionError"),
]


@pytest.fixture(scope="module")
def refused(shared: Shell) -> Shell:
    (shared.place / "boom.py").write_text("1 / 0")
    shared.look(*(words for words, _ in BAD))
    return shared


@pytest.mark.parametrize(("words", "says"), BAD)
def test_what_cannot_be_is_refused_with_what_could(refused: Shell, words: tuple[str, ...], says: str) -> None:
    (done,) = refused.look(words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not (refused.place / ".orchestrator").exists()


def test_where_a_module_failed_is_said(refused: Shell) -> None:
    (done,) = refused.look(BAD[-1][0])
    assert done.err.count("File ") == 1
    assert 'boom.py", line 1' in done.err


def test_no_model_is_chosen_because_a_key_exists(shell: Shell) -> None:
    named = {"ORCHESTRATOR_MODEL": "trial.py:model", "OPENAI_API_KEY": "sk-none"}
    words = ("run", "tool_user", "What is 1+1?", "--approve", "none")
    for env, said in (({"OPENAI_API_KEY": "sk-none"}, True), (named, False)):
        done = shell(*words, env=env)
        assert (done.out, "model: offline" in done.err) == ("2\n", said)
    keyless = shell(*words, "--model", "openai:gpt-4o-mini")
    assert (keyless.code, "OPENAI_API_KEY" in keyless.err) == (1, True)


def test_a_command_line_that_no_shell_finds_is_printed_with_its_path(shell: Shell) -> None:
    done = shell("run", "trial:number", "--store", "sqlite:///my runs.db", env={"PATH": "/usr/bin:/bin"})
    assert done.command.startswith(sys.executable)
    assert done.command.endswith("--store 'sqlite:///my runs.db'")


def test_what_was_in_memory_is_not_promised(shell: Shell) -> None:
    done = shell("run", "trial:number", "--store", "memory://")
    assert done.code == 3
    assert "is lost: its store was in memory" in done.err
    assert "orchestrator answer" not in done.err


FAILS = """
from pydantic import BaseModel
from orchestrator import Graph, node

class State(BaseModel):
    question: str = ""

@node
def look_up(state):
    return {"question": {}["tea"]}

graph = Graph(name="fails", state=State, input="question", nodes={"look_up": look_up}, edges="START -> look_up -> END")
"""


@pytest.mark.full
def test_traceback_prints_where_a_node_failed_to_stderr_and_only_then(shell: Shell) -> None:
    (shell.place / "fails.py").write_text(FAILS)
    plain, told = shell.all(
        ("run", "fails.py:graph", "?", "--run-id", "one"),
        ("run", "fails.py:graph", "?", "--run-id", "two", "--traceback"),
    )
    shown = shell("show", "one", "--traceback")
    assert (plain.code, told.code, shown.code) == (1, 1, 0)
    assert "Traceback" not in plain.err + plain.out
    for done in (told, shown):
        assert 'fails.py", line 10, in look_up\n    return {"question": {}["tea"]}\nKeyError: \'tea\'' in done.err
        assert "Traceback" not in done.out


ENDING = """
from orchestrator import ToolCall
from orchestrator.models import Reply
from orchestrator.testing import ScriptedModel

def model():
    call = ToolCall(id="1", name="terminate", arguments={"status": "success"})
    return ScriptedModel([Reply(text="The answer is 5.", tool_calls=(call,))])
"""


@pytest.mark.parametrize("strategy", ["function_call_agent", "react"])
def test_the_answer_beside_a_call_that_ends_the_work_is_printed(shell: Shell, strategy: str) -> None:
    (shell.place / "ending.py").write_text(ENDING)
    done = shell("run", strategy, "q", "--tools", "terminate", "--model", "ending.py:model")
    assert (done.code, done.out) == (0, "The answer is 5.\n")

"""`--model NAME=REF`: models that nodes name, kept with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import Shell

GRAPH = """
name: two
state: {name: S, fields: {question: str, reply: {type: str, default: ""}, more: {type: str, default: ""}}}
input: question
output: more
nodes:
  first: {kind: complete, model: cheap}
  ask: {kind: confirm, prompt: Go on}
  second: {kind: complete, model: clever, prompt: "{reply}", result: more}
edges: |
  START -> first -> ask
  ask -> second : approved
  ask -> END : denied
  second -> END
"""
MODELS = """
from orchestrator.testing import ScriptedModel

cheap = ScriptedModel(lambda request: f"cheap({request.messages[-1].content})", name="cheap")
clever = ScriptedModel(lambda request: f"clever({request.messages[-1].content})", name="clever")
other = ScriptedModel(lambda request: f"other({request.messages[-1].content})", name="other")
"""
NAMED = ("--model", "cheap=named.py:cheap", "--model", "clever=named.py:clever")


def begun(shell: Shell) -> None:
    (shell.place / "two.yaml").write_text(GRAPH)
    (shell.place / "named.py").write_text(MODELS)
    done = shell("run", "two.yaml", "hi", "--run-id", "r", *NAMED)
    assert done.code == 3, done.err


def test_the_run_keeps_its_models_by_their_names(shell: Shell) -> None:
    begun(shell)
    done = shell("approve", "r")
    assert (done.code, done.out) == (0, "clever(cheap(hi))\n"), done.err


def test_one_of_them_is_replaced_and_the_others_stay(shell: Shell) -> None:
    begun(shell)
    done = shell("approve", "r", "--model", "clever=named.py:other")
    assert (done.code, done.out) == (0, "other(cheap(hi))\n"), done.err


def test_a_node_without_its_model_is_told_by_name(shell: Shell) -> None:
    (shell.place / "two.yaml").write_text(GRAPH)
    done = shell("run", "two.yaml", "hi", "--run-id", "r")
    assert done.code != 0
    assert "cheap" in done.err


def test_a_name_that_is_given_twice_is_a_usage_error(shell: Shell) -> None:
    begun(shell)
    done = shell("run", "two.yaml", "hi", "--model", "cheap=named.py:cheap", "--model", "cheap=named.py:other")
    assert (done.code, done.err) == (2, "error: --model cheap=named.py:other: 'cheap' is given twice\n")
    done = shell("run", "two.yaml", "hi", "--model", "offline", "--model", "named.py:other")
    assert (done.code, done.err) == (2, "error: --model named.py:other: the default model is given twice\n")


def test_a_name_without_a_model_says_which_option_names_it(shell: Shell) -> None:
    begun(shell)
    done = shell("run", "two.yaml", "hi", "--model", "clever=named.py:other")
    assert done.code == 2
    assert "uses the model named 'cheap', and --model names clever: add --model cheap=REF" in done.err


def test_a_run_of_others_needs_each_of_them_again(shell: Shell, tmp_path: Path) -> None:
    begun(shell)
    exported = shell("export", "r", "-o", "run.jsonl")
    assert exported.code == 0, exported.err
    imported = shell("import", "run.jsonl", "--store", "sqlite:///other.db")
    assert imported.code == 0, imported.err
    other = ("--store", "sqlite:///other.db")
    done = shell("resume", "r", *other, "--graph", "two.yaml", "--tools", "arithmetic", "--model", "offline")
    assert done.code == 2
    assert "add --model cheap=REF, --model clever=REF" in done.err
    assert "--model cheap=" in done.err.partition("It refers to")[2]


@pytest.mark.full
def test_a_replay_needs_no_model_and_replaces_named_ones(shell: Shell) -> None:
    begun(shell)
    assert shell("approve", "r").code == 0
    (shell.place / "named.py").unlink()
    done = shell("replay", "r")
    assert done.code == 0, done.err
    (shell.place / "named.py").write_text(MODELS)
    done = shell("replay", "r", "--live", "always", "--model", "clever=named.py:other", "--json")
    assert "other(cheap(hi))" in done.out, done.err


def test_the_offline_model_is_announced_only_if_some_node_asks_it(shell: Shell) -> None:
    (shell.place / "two.yaml").write_text(GRAPH)
    (shell.place / "named.py").write_text(MODELS)
    assert "only does arithmetic" not in shell("run", "two.yaml", "hi", *NAMED).err
    (shell.place / "two.yaml").write_text(GRAPH.replace("model: clever, ", ""))
    assert "model: offline, which only does arithmetic" in shell("run", "two.yaml", "hi", *NAMED).err

"""The command `fork`: a new run from a moment of another one."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.shell import Shell

PAYING = '''
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, append, node, tool
from orchestrator.nodes import Ask


class Bill(BaseModel):
    amount: int = 1
    note: str = ""
    log: Annotated[list[str], append] = []


@tool(effect="irreversible", risk="write")
async def pay(amount: int) -> str:
    """Pay."""
    with open("paid.txt", "a") as file:
        file.write(f"{amount}\\n")
    return f"paid {amount}"


@node
async def first():
    return {"log": "first"}


@node
async def pays(state: Bill, ctx):
    return {"log": str((await ctx.tool("pay", amount=state.amount)).output)}


graph = Graph(name="bill", state=Bill, nodes={"first": first, "pays": pays},
              edges="START -> first -> pays -> END", output="log")
asks = Graph(name="asks", state=Bill, nodes={"ask": Ask(prompt="Which?", answer="note"), "pays": pays},
             edges="START -> ask -> pays -> END", output="note")
'''


@pytest.fixture
def paid(shell: Shell) -> Shell:
    """A directory with a run `r` of the graph."""
    (shell.place / "paying.py").write_text(PAYING)
    done = shell("run", "paying:graph", "--tools", "paying:pay", "--run-id", "r")
    assert done.code == 0, done.err
    return shell


def payments(shell: Shell) -> list[str]:
    return (shell.place / "paid.txt").read_text().split()


def test_a_fork_asks_before_it_pays_again_and_the_printed_command_goes_on(paid: Shell) -> None:
    done = paid("fork", "r", "--at", 2, "--run-id", "f", "--label", "try=2")
    assert done.code == 3, done.err
    assert "f is a fork of r, from its record 2 on" in done.err
    assert "In run r it was called with the same arguments and returned" in done.err
    assert payments(paid) == ["1"]
    done = paid.go_on(done)
    assert (done.code, json.loads(done.out)) == (0, ["first", "paid 1"])
    assert payments(paid) == ["1", "1"]
    shown = paid("show", "f")
    assert "parent  r, record 2  (fork)" in shown.out
    assert "labels  try=2" in shown.out
    assert "----- forked from r at record 2" in shown.out


def test_the_error_of_a_completed_run_names_a_command_that_forks_it(paid: Shell) -> None:
    done = paid("resume", "r")
    assert done.code == 1
    assert paid.typed(re.findall("`(.+)`", done.err)[0]).code == 3


def test_the_recorded_result_is_taken_as_an_answer(paid: Shell) -> None:
    paid("fork", "r", "--at", 2, "--run-id", "f")
    done = paid("answer", "f", "recorded")
    assert (done.code, json.loads(done.out)) == (0, ["first", "paid 1"])
    assert payments(paid) == ["1"]


def test_values_results_and_the_place_are_given_as_options(paid: Shell) -> None:
    done = paid("fork", "r", "--at", 4, "--result", '"paid nothing"', "--set", 'log=["set"]', "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["output"] == ["set", "paid nothing"]
    assert found["parent"] == {"run_id": "r", "seq": 4, "relation": "fork"}
    assert found["inherited"]["calls"] == 1
    assert payments(paid) == ["1"]


def test_a_fork_that_is_not_started_goes_on_by_the_printed_command(paid: Shell) -> None:
    done = paid("fork", "r", "--at", 2, "--run-id", "f", "--no-start", "--set", "amount=3")
    assert done.code == 0, done.err
    assert "the fork is not started" in done.err
    assert json.loads(paid("show", "f", "--json").out)["status"] == "paused"
    assert paid("recover").code == 0
    assert json.loads(paid("show", "f", "--json").out)["status"] == "paused"
    done = paid.go_on(done)
    assert done.code == 3
    assert "with other arguments" in done.err


@pytest.mark.full
def test_a_run_that_waits_gets_another_answer_in_a_fork(paid: Shell) -> None:
    done = paid("run", "paying:asks", "--tools", "paying:pay", "--run-id", "a")
    assert done.code == 3
    question = json.loads(paid("show", "a", "--json").out)["waiting"][0]["id"]
    done = paid("fork", "a", "--answer", f"{question}=blue", "--run-id", "f")
    assert done.code == 3, done.err
    assert json.loads(paid("show", "f", "--json").out)["state"]["note"] == "blue"
    assert paid("answer", "a", "red").code == 0
    at = next(number for number, kind in enumerate(paid.journal("a"), 1) if kind == "answered")
    done = paid("fork", "a", "--at", at, "--answer", "green", "--run-id", "g")
    assert json.loads(paid("show", "g", "--json").out)["state"]["note"] == "green"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("r",), 2, "completed: name the record"),
        (("r", "--at", "99"), 2, "has no record 99"),
        (("r", "--at", "2", "--set", "amount"), 2, "FIELD=JSON"),
        (("r", "--at", "2", "--set", "note=hello"), 2, "--set 'note=\"hello\"'"),
        (("r", "--at", "2", "--set", "nothing=1"), 2, "no field 'nothing'"),
        (("r", "--at", "2", "--branch", "x", "--set", "amount=1"), 2, "no branch 'x'"),
        (("r", "--at", "2", "--result", "1"), 2, "--result replaces the result of a settled call: record 2"),
        (("r", "--at", "2", "--answer", "1"), 2, "--answer replaces an answer: record 2"),
        (("r", "--at", "2", "--result", "1", "--answer", "1"), 2, "give --result or --answer, not both"),
        (("r", "--at", "2", "--branch", ""), 2, "--branch  needs --set"),
        (("r", "--at", "2", "--rename", "first=second"), 1, "the new version has no node 'second'"),
        (("r", "--at", "2", "--run-id", "r"), 1, "exists already"),
        (("nothing", "--at", "2"), 4, "no run 'nothing'"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_run(
    paid: Shell, words: tuple[str, ...], code: int, said: str
) -> None:
    done = paid("fork", *words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert len(json.loads(paid("runs", "--json").out)) == 1

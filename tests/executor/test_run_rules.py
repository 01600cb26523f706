"""The rules that a run follows: named in its journal, and what they decide about order and conflicts."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, Update, add, append, node, replace
from orchestrator.kernel.records import RunStarted, decode, encode

pytestmark = pytest.mark.anyio


class Log(BaseModel):
    log: Annotated[list[str], append] = []
    n: Annotated[int, add] = 0
    xs: list[int] = []


def says(word: str, join: Any = None, value: object = None) -> Any:
    """A node that logs one word, or gives the log a value."""

    @node(join=join)
    def say(state: Log) -> Update:
        return {"log": word if value is None else value}

    return say


@node
def begin(state: Log) -> Update:
    return {"n": 1}


@node
def work(state: Log) -> Update:
    return {"n": 0}


@node
def note(state: Log) -> Update:
    return {"log": f"round {state.n}"}


@node(join="all", outcomes=("again", "ok"))
def check(state: Log) -> Outcome:
    return Outcome("again" if state.n < 4 else "ok")


ROUNDS = """
    START -> begin -> work, note
    work -> check
    note -> END
    check -> begin : again
"""


def rounds() -> Graph:
    """Rounds of a loop, each of which leaves a branch that ended: their notes are in the order of the rounds."""
    nodes = {"begin": begin, "work": work, "note": note, "check": check}
    return Graph(name="rounds", state=Log, nodes=nodes, edges=f"{ROUNDS}\ncheck -> END : ok", output="log")


def replaced() -> Graph:
    """One branch appends, the other one replaces."""
    nodes = {"begin": begin, "one": says("one"), "two": says("two", value=replace(["TWO"])), "end": says("end", "all")}
    return Graph(
        name="replaced", state=Log, nodes=nodes, edges="START -> begin -> one, two -> end -> END", output="log"
    )


def together() -> Graph:
    """Two joins that one step completes, and one step left for them."""
    nodes = {"begin": begin, "b": says("b"), "c": says("c"), "one": says("one", "all"), "two": says("two", "all")}
    edges = "START -> begin -> b, c\nb -> one, two\nc -> one, two\none -> END\ntwo -> END"
    return Graph(name="together", state=Log, nodes=nodes, edges=edges, output="log", limits=Limits(steps=4))


GRAPHS = {"rounds": rounds(), "replaced": replaced(), "together": together()}
EXPECTED = {
    "rounds": ("completed", '["round 1", "round 2", "round 3", "round 4"]'),
    "replaced": ("failed", "null"),
    "together": ("exhausted", '["b", "c", "one"]'),
}


@pytest.mark.parametrize("name", GRAPHS)
async def test_the_outcome_of_a_run_does_not_depend_on_its_id(name: str) -> None:
    outputs = set()
    async with Executor(graphs=[*GRAPHS.values()]) as executor:
        for number in range(4):
            run = await executor.start(GRAPHS[name], {}, run_id=f"new-{number}")
            outputs.add((run.status, json.dumps(run.output)))
    assert outputs == {EXPECTED[name]}


def test_a_journal_names_the_rules_that_it_follows() -> None:
    fields: Any = {"seq": 1, "ts": 1.0, "run_id": "r", "graph": "g", "structure": "s", "content": "c", "values": {}}
    written = encode(RunStarted(**fields, rules=2))
    assert b'"rules":2' in written
    assert decode(written) == RunStarted(**fields, rules=2)
    with pytest.raises(ValueError, match=r"'rules': this version knows only rules 2 \(update .*, and it is 3$"):
        decode(written.replace(b'"rules":2', b'"rules":3'))
    with pytest.raises(ValueError, match="'rules' is missing"):
        decode(written.replace(b',"rules":2', b""))

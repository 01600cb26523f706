"""Runs that follow rules 1: what an older version made of a journal, this version makes of it, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Executor, Value
from orchestrator.kernel.machine import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.records import RunStarted, decode, encode
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from tests.executor.old_runs import EXPECTED, STORE, graphs

pytestmark = pytest.mark.anyio

RUNS: dict[str, Any] = json.loads(EXPECTED.read_text())
GRAPHS = {graph.name: graph for graph in graphs()}
WAITING = [name for name, run in RUNS.items() if "output" in run]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A copy of the old store."""
    shutil.copy(STORE, tmp_path / "runs.db")
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize("name", RUNS)
async def test_an_old_journal_folds_to_the_states_that_it_had(store: str, name: str) -> None:
    async with Executor(store, graphs=[*GRAPHS.values()]) as executor:
        info = await executor.store.info(name)
        machine = RunState(Plan.of(GRAPHS[info.graph]))
        states = []
        for record in await executor.store.read(name):
            apply(machine, record)
            states.append([machine.status, state_values(machine)])
            if machine.ended is None:  # a new snapshot of an old run keeps its rules
                machine = load(machine.plan, json.loads(json.dumps(dump(machine))))
        assert states == RUNS[name]["states"]
        assert info.status == (await executor.load(name)).status == states[-1][0]


@pytest.mark.parametrize("name", WAITING)
async def test_an_old_run_that_waits_goes_on_under_its_rules(store: str, name: str) -> None:
    """Its snapshot has an older format; its branches do what is a conflict in a new run."""
    async with Executor(store, graphs=[*GRAPHS.values()]) as executor:
        assert await executor.store.snapshot(name) is not None
        run = await executor.load(name)
        done = await executor.answer(name, run.waiting[0].id, Value(value="yes"))
        assert (done.status, done.output) == (RUNS[name]["status"], RUNS[name]["output"])


@pytest.mark.parametrize("name", ["rounds", "replaced", "together"])
async def test_a_new_run_of_the_same_graph_follows_the_new_rules(name: str) -> None:
    outputs = set()
    async with Executor(graphs=[*GRAPHS.values()]) as executor:
        for number in range(4):
            run = await executor.start(GRAPHS[name], {}, run_id=f"new-{number}")
            outputs.add((run.status, json.dumps(run.output)))
    expected = {
        "rounds": ("completed", '["round 1", "round 2", "round 3", "round 4"]'),
        "replaced": ("failed", "null"),
        "together": ("exhausted", '["b", "c", "one"]'),
    }
    assert outputs == {expected[name]}


def test_a_journal_names_the_rules_that_it_follows() -> None:
    fields = {"seq": 1, "ts": 1.0, "run_id": "r", "graph": "g", "structure": "s", "content": "c", "values": {}}
    assert RunStarted(**fields).rules == 1
    assert b"rules" not in encode(RunStarted(**fields))
    assert decode(encode(RunStarted(**fields, rules=2))) == RunStarted(**fields, rules=2)
    with pytest.raises(ValueError, match="follows rules 3, and this version knows rules 1 to 2; update the library"):
        RunStarted(**fields, rules=3)

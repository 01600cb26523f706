"""The runs of every strategy in every status, as version 0.1.0 left them: they open, list, fold and go on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from orchestrator import Executor, Run
from orchestrator.kernel.machine import apply
from orchestrator.kernel.queries import state_values
from orchestrator.kernel.records import FINAL
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import dump, load
from tests.data.runs010 import ANSWER, CALLING, INSIDE, STORE, STRATEGIES, answer_to, graph_named, opened
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio

PAUSED = ("approval", "input", "unknown")
GOING_ON = [
    *(f"{name}-{status}" for name in CALLING for status in (*PAUSED, "interrupted", "answered", "message")),
    *(
        f"{name}-{status}"
        for name in INSIDE
        for status in ("approval", "unknown", "interrupted", "answered", "message")
    ),
    "plan_and_solve_prompt-interrupted",
]
OVER = [
    *(f"{name}-{status}" for name in STRATEGIES for status in ("completed", "failed", "exhausted")),
    *(f"{name}-cancelled" for name in (*CALLING, *INSIDE)),
    *(f"{name}-completed" for name in INSIDE),
    "over_words-exhausted",
]


@pytest.fixture(scope="module")
def unpacked() -> bytes:
    """The store's file."""
    return gzip.decompress(STORE.read_bytes())


@pytest.fixture
def store(unpacked: bytes, tmp_path: Path) -> str:
    """A copy of it."""
    (tmp_path / "runs.db").write_bytes(unpacked)
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_all_runs_are_listed_loaded_folded_and_drawn_without_code(store: str) -> None:
    async with Executor(store) as executor:
        listed = {info.run_id: info for info in (await executor.runs(limit=1000)).runs}
        assert {*GOING_ON, *OVER} <= listed.keys()
        for number, (run_id, info) in enumerate(listed.items()):
            run = await executor.load(run_id)
            status = run_id.rpartition("-")[2]
            assert status not in FINAL or run.status == status
            assert status not in PAUSED or (run.status, bool(run.waiting)) == ("paused", True)
            assert status not in ("interrupted", "message", "answered") or run.status == "interrupted"
            whole = RunState(run.machine.plan)
            for record in await executor.store.read(run_id):
                apply(whole, record)
                if whole.ended is None and number % sized(4, 1) == 0:
                    whole = load(whole.plan, json.loads(json.dumps(dump(whole))))
            assert (whole.status, state_values(whole)) == (run.machine.status, run.values)
            assert run.to_mermaid().startswith("flowchart"), info
            assert (await executor.history(run_id)) or not run.steps


@pytest.mark.parametrize("run_id", GOING_ON[:: sized(10, 1)])
async def test_a_run_goes_on_to_its_end(store: str, run_id: str) -> None:
    name, _, status = run_id.rpartition("-")
    async with opened(store, status) as executor:
        run: Run = await executor.load(run_id)
        if status not in PAUSED:
            run = await executor.resume(run_id, wait=5)
        if run.status == "paused" and not run.waiting:  # the message was read before the run was over
            run = await executor.resume(run_id)
        while run.waiting:
            question = run.waiting[0]
            run = await executor.answer(run_id, question.id, answer_to(question.kind))
        assert await executor.store.inbox([run_id]) == []
    assert run.status == "completed", run.error
    if name in STRATEGIES:
        assert name == "function_call" or ANSWER in str(run.output)
    else:
        assert "42" in str(run.output)


@pytest.mark.parametrize("name", [*STRATEGIES, *INSIDE])
async def test_graphs_have_the_structure_that_they_had_or_say_how_runs_continue(store: str, name: str) -> None:
    async with Executor(store) as executor:
        same = (await executor.store.info(f"{name}-completed")).structure == graph_named(name).structure
        assert same or graph_named(name).migrations

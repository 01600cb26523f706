"""Runs of every strategy that earlier code left standing go on, and their journals read as they always did."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from orchestrator import Approve, Executor, Run
from orchestrator.models import OfflineModel
from tests.graphs.stopped import ANSWER, NAMES, QUESTION, STORE, add, graph_named, multiply

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A copy of the store that the earlier code wrote."""
    (tmp_path / "stopped.db").write_bytes(lzma.decompress(STORE.read_bytes()))
    return f"sqlite:///{tmp_path}/stopped.db"


async def _answered(executor: Executor, run: Run) -> Run:
    """Allow every call; end a chat."""
    while run.status == "paused":
        question = run.waiting[0]
        if question.kind == "input":
            run = await executor.answer(run.run_id, question.id, "/bye")
        else:
            run = await executor.answer(run.run_id, question.id, Approve())
    return run


@pytest.mark.parametrize("name", NAMES)
async def test_a_run_that_earlier_code_left_waiting_goes_on(store: str, name: str) -> None:
    async with Executor(store, graphs=[graph_named(name)], model=OfflineModel(), tools=[multiply, add]) as executor:
        run = await executor.load(f"{name}-asks")
        assert run.status == "paused"
        run = await _answered(executor, run)
    assert run.status == "completed", run.error
    assert name == "function_call" or ANSWER in str(run.output)


@pytest.mark.parametrize("name", NAMES)
async def test_a_run_that_earlier_code_left_in_the_middle_of_a_call_goes_on(store: str, name: str) -> None:
    async with Executor(store, graphs=[graph_named(name)], model=OfflineModel(), tools=[multiply, add]) as executor:
        assert [record.type for record in await executor.store.read(f"{name}-gone")][-1] == "effect_intended"
        run = await _answered(executor, await executor.resume(f"{name}-gone"))
    assert run.status == "completed", run.error
    assert name == "function_call" or ANSWER in str(run.output)


async def test_graphs_of_earlier_code_have_the_structure_that_they_had(store: str) -> None:
    async with Executor(store=store) as executor:
        for name in NAMES:
            if graph_named(name).migrations:  # it was redrawn since, and says how its runs continue
                continue
            run = await executor.load(f"{name}-asks")
            started = run.machine.started
            assert started is not None
            assert started.structure == graph_named(name).structure, name
            assert started.values["question"] == QUESTION

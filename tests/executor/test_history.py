"""The steps of a run, one by one, and the state after each."""

from __future__ import annotations

import random
from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, append, node
from orchestrator.kernel import machine
from orchestrator.kernel.run_state import Delta
from tests.support.sizes import quick_on


class Log(BaseModel):
    log: Annotated[list[int], append] = []


@node(effect="pure", outcomes=("again", "enough"))
def count(state: Log, ctx: object) -> Outcome[str]:
    return Outcome("again" if len(state.log) < rounds[0] - 1 else "enough", log=len(state.log))


rounds = [0]
counting = Graph(
    name="counting",
    state=Log,
    nodes={"count": count},
    edges="START -> count\ncount -> count : again\ncount -> END : enough",
    limits=Limits(steps=None),
)


@quick_on("asyncio")
@pytest.mark.anyio
async def test_the_state_after_each_step_is_the_same_in_any_order_of_reading() -> None:
    rounds[0] = 2500  # more than the distance of the copies that are kept
    async with Executor(graphs=[counting]) as executor:
        run = await executor.start(counting)
        forwards = await executor.history(run.run_id)
        anyhow = await executor.history(run.run_id)
        part = await executor.history(run.run_id, at=11)
    assert [len(point.values["log"]) for point in forwards] == list(range(1, 2501))
    for position in random.Random(0).sample(range(2500), 20):
        assert anyhow[position].values == {"log": list(range(position + 1))}
    assert [point.values["log"][-1] for point in part] == list(range(10))
    assert part[3].values["log"] == [0, 1, 2, 3]


@pytest.mark.anyio
async def test_listing_folds_nothing_and_reading_in_order_folds_each_record_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds[0] = 300
    async with Executor(graphs=[counting]) as executor:
        run = await executor.start(counting)
        folds = [0]

        def begun() -> Delta:  # each fold of a record makes one
            folds[0] += 1
            return Delta()

        monkeypatch.setattr(machine, "Delta", begun)
        points = await executor.history(run.run_id)
        assert (len(points), folds[0]) == (300, 0)
        assert all(point.values for point in points)
        assert folds[0] <= run.seq

"""The steps of a run, one by one, and the state after each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, Limits, Outcome, append, node
from orchestrator.errors import InvalidValue
from orchestrator.executor import Point, loader
from orchestrator.kernel import fold
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import Delta
from orchestrator.stores.sqlite import SQLiteStore
from tests.support.sizes import quick_on, sized
from tests.testing.acting import drawn_graph, said
from tests.testing.acting import tools as acting_tools
from tests.testing.shop import Echo


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


@pytest.mark.full
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

        monkeypatch.setattr(fold, "Delta", begun)
        points = await executor.history(run.run_id)
        assert (len(points), folds[0]) == (300, 0)
        assert all(point.values for point in points)
        assert folds[0] <= run.seq


class Counting(SQLiteStore):
    """A store that counts the records that are read from it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.records = 0

    async def read(self, *args: Any, **kw: Any) -> list[Record]:
        found = await super().read(*args, **kw)
        self.records += len(found)
        return found


@quick_on("trio")
@pytest.mark.anyio
async def test_pages_that_follow_each_other_read_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "PART", 10)
    rounds[0] = 200
    store = Counting(f"{tmp_path}/runs.db")
    async with Executor(store, graphs=[counting]) as executor:
        run = await executor.start(counting)
        whole = await executor.history(run.run_id)
        for limit in (1, 7, 30):
            store.records, found, most = 0, list[Point](), 0
            while page := await executor.history(run.run_id, after=found[-1].seq if found else 0, limit=limit):
                assert len(page) <= limit
                found += page
                most = max(most, store.records - sum(point.seq < page[0].seq for point in whole))
            assert store.records == run.seq
            assert most <= limit + 20  # a part, and what of it the page before had
            assert [(one.to_json(), one.unasked) for one in found] == [(one.to_json(), one.unasked) for one in whole]
            assert [one.values for one in found[::50]] == [one.values for one in whole[::50]]


@pytest.mark.anyio
async def test_any_page_is_a_part_of_the_whole_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "PART", 4)
    draw = random.Random(1)
    for seed in range(300, sized(304, 330)):
        drawn = drawn_graph("structured", seed)
        if drawn is None:
            continue
        async with Executor(tools=acting_tools(), model=Echo()) as executor:
            run = await executor.start(*drawn, run_id="r")
            for _ in range(3):
                whole = await executor.history("r")
                for _ in range(6):
                    after, limit = draw.randint(0, run.seq), draw.choice([None, 1, 3])
                    at = draw.choice([None, draw.randint(1, run.seq)])
                    page = await executor.history("r", at, after=after, limit=limit)
                    wanted = [one for one in whole if one.seq > after and (at is None or one.seq <= at)][:limit]
                    assert [(p.to_json(), p.unasked, p.values) for p in page] == [
                        (p.to_json(), p.unasked, p.values) for p in wanted
                    ], (seed, at, after, limit)
                answer = said(run.waiting[0]) if run.waiting else None
                if answer is None:
                    break
                run = await executor.answer("r", run.waiting[0].id, answer)


@pytest.mark.anyio
async def test_a_page_of_a_run_that_was_deleted_and_begun_again_is_of_the_new_one() -> None:
    rounds[0] = 20
    async with Executor(graphs=[counting]) as executor:
        await executor.start(counting, run_id="r")
        first = await executor.history("r", limit=5)
        await executor.delete("r")
        rounds[0] = 3
        await executor.start(counting, run_id="r")
        assert await executor.history("r", after=first[-1].seq) == []
        assert len(await executor.history("r", limit=5)) == 3


@pytest.mark.anyio
async def test_a_page_of_a_run_that_was_deleted_and_imported_as_it_was_earlier_is_of_that_one() -> None:
    rounds[0] = 20
    async with Executor(graphs=[counting]) as executor:
        await executor.start(counting, limits=Limits(steps=5), run_id="r")
        lines = [line async for line in executor.export("r")]
        await executor.resume("r", retry=True, limits=Limits(steps=100))
        first = await executor.history("r", limit=2)
        assert len(await executor.history("r", after=first[-1].seq)) == 18
        await executor.history("r", after=first[-1].seq, limit=15)
        await executor.delete("r")
        await executor.import_(lines)
        assert len(await executor.history("r", after=first[-1].seq, limit=50)) == 3


@pytest.mark.anyio
async def test_steps_that_no_page_will_ask_for_are_not_kept() -> None:
    rounds[0] = 200
    async with Executor(graphs=[counting]) as executor:
        await executor.start(counting, run_id="r")
        assert len(await executor.history("r", after=1)) == 200
        (reading,) = executor._host.histories._readings.values()
        assert not reading.points
        assert len(await executor.history("r", after=1)) == 200


@pytest.mark.parametrize(
    "odd", [{"after": -1}, {"after": True}, {"after": "3"}, {"limit": -1}, {"limit": 1.5}, {"limit": True}]
)
@pytest.mark.anyio
async def test_odd_bounds_of_a_page_are_refused(odd: dict[str, Any]) -> None:
    rounds[0] = 3
    async with Executor(graphs=[counting]) as executor:
        await executor.start(counting, run_id="r")
        assert await executor.history("r", limit=0) == []
        assert len(await executor.history("r", limit=10**30)) == 3
        with pytest.raises(InvalidValue, match=next(iter(odd))):
            await executor.history("r", **odd)

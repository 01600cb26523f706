"""One reader feeds any number of views, each of which is the same as if it were read alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import StoreCorrupt
from orchestrator.executor import Run
from orchestrator.kernel.plan import Plan
from orchestrator.views.causes import Causes
from orchestrator.views.events import Event, event_of
from orchestrator.views.history import States, states
from orchestrator.views.reader import Fold, Reader, read
from orchestrator.views.step_tree import StepTree
from orchestrator.views.timeline import Timeline, timeline
from orchestrator.views.trace import Trace, overlay_of
from tests.render.html.sample import run_tour

pytestmark = pytest.mark.anyio


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    return await run_tour(f"sqlite:///{tmp_path}/runs.db")


async def test_views_that_are_read_together_are_those_that_are_read_alone(run: Run) -> None:
    plan, records = Plan.of(run.definition), run.records()
    causes, trace, kept = Causes(), Trace(), States()
    rows = Timeline(causes)
    state = read(plan, records, causes, rows, kept, trace, StepTree())
    assert state.status == run.status
    assert trace.overlay() == overlay_of(run.plan, records)
    assert rows.rows == timeline(plan, records).rows
    alone = states(plan, records)
    assert (kept.whole, kept.steps) == (alone.whole, alone.steps)


async def test_a_record_that_does_not_follow_changes_nothing(run: Run) -> None:
    records = run.records()
    trace = Trace()
    reader = Reader(Plan.of(run.definition), trace, StepTree())
    for record in records[:10]:
        reader.read(record)
    before = trace.overlay()
    with pytest.raises(StoreCorrupt, match="it follows record 10"):
        reader.read(records[11])
    assert trace.overlay() == before
    for record in records[10:]:
        reader.read(record)
    assert trace.overlay() == overlay_of(run.plan, records)


async def test_a_live_event_reaches_every_view_and_no_state(run: Run) -> None:
    class Heard(Fold):
        def __init__(self) -> None:
            self.events: list[Event] = []

        def live_event(self, event: Event) -> None:
            self.events.append(event)

    one, other = Heard(), Heard()
    reader = Reader(Plan.of(run.definition), one, other)
    live = Event(type="token", seq=None, ts=0.0, run_id=run.run_id, data={"text": "a"})
    reader.take(event_of(run.run_id, run.records()[0]))
    reader.take(live)
    assert one.events == other.events == [live]
    assert reader.run.head == 1

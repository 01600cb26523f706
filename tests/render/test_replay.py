"""A picture at every moment: what records change, added up, is the picture that is drawn at that moment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from orchestrator import Graph
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import edges_taken
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase
from orchestrator.render.build import draw
from orchestrator.render.moments import RUN, Live, replay
from orchestrator.render.overlaid import Mark, plan_marks
from orchestrator.views.overlay import NodeKey, Overlay
from orchestrator.views.trace import enclosing_nodes, overlay_of
from tests.kernel.harness import TooLongError
from tests.kernel.orders import Order
from tests.kernel.test_laws import KINDS, Trial
from tests.support.sizes import sized

some = settings(derandomize=True, suppress_health_check=list(HealthCheck), max_examples=sized(5, 12))


def marks(graph: Graph, run: Overlay) -> dict[str, Mark]:
    """What a picture of this moment has, by ids."""
    drawing = draw(graph, run)
    found = {mark.id: mark.mark for mark in (*drawing.by_key.values(), *drawing.edges)}
    found[RUN] = drawing.status
    for number, plan in enumerate(drawing.planned, 1):
        found.update(plan_marks(number, plan))
    return {part: mark for part, mark in found.items() if mark != Mark()}


def busy(machine: RunState) -> tuple[set[NodeKey], set[NodeKey]]:
    """Where a machine works, and where it asks."""
    running: set[NodeKey] = set()
    for activation in machine.running.values():
        running.update(enclosing_nodes(activation.frame.place, activation.node))
    waiting: set[NodeKey] = set()
    for frame in machine.frames():
        for token in frame.live.values():
            if token.phase is Phase.ASKING:
                waiting.update(enclosing_nodes(frame.place, token.node))
    return running, waiting


def check(graph: Graph, records: list[r.Record]) -> None:
    """Every moment of a run."""
    live, machine, shown = Live(graph), RunState(Plan.of(graph)), dict[str, Mark]()
    visits: Counter[NodeKey] = Counter()
    for number, record in enumerate(records, 1):
        landing = machine.running.get(getattr(record, "activation", ""))
        if landing is not None and isinstance(record, r.StepDone):
            visits[landing.frame.place, landing.node] += 1
        apply(machine, record)
        moment = live.apply(record)
        assert moment.seq == number
        shown.update(moment.changes)
        overlay = overlay_of(Plan.of(graph), records[:number])
        assert (set(overlay.running), set(overlay.waiting)) == busy(machine)
        assert overlay.visits == visits
        assert all(overlay.taken.get(way, 0) == n for way, n in edges_taken(machine).items() if not _maps(machine, way))
        assert {part: mark for part, mark in shown.items() if mark != Mark()} == marks(graph, overlay)
    whole = replay(graph, records)
    assert whole.at(len(records)) == shown
    assert set(shown) <= {mark.id for mark in (*whole.drawing.by_key.values(), *whole.drawing.edges)} | {RUN} | {
        part for n, plan in enumerate(whole.last.planned, 1) for part in plan_marks(n, plan)
    }


def _maps(machine: RunState, way: tuple[str, int]) -> bool:
    plan = machine.plan
    for name in filter(None, way[0].split("/")):
        plan = plan.sub[name]
    return plan.edges[way[1]].each is not None


def drawn(kind: str, seed: int) -> None:
    trial = Trial.draw(kind, seed)
    assume(trial is not None)
    assert trial is not None
    try:
        trace = trial.run(Order("last"), seed, pauses=0.1, most_steps=60)
    except TooLongError:
        assume(False)
    assert trial.plan.graph is not None
    check(trial.plan.graph, trace.records)


@pytest.mark.full
@some
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 1_000_000))
def test_any_run_at_any_moment(kind: str, seed: int) -> None:
    drawn(kind, seed)


@pytest.mark.storm
def test_many_runs_at_any_moment(scale: int) -> None:
    settings(some, max_examples=150 * scale)(given(st.sampled_from(sorted(KINDS)), st.integers(0, 1_000_000))(drawn))()

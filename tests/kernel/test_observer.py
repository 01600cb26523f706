"""An observer is told what a fold does, in balanced spans, and changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from orchestrator.errors import InvalidGraph
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply, fold
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import edges_taken
from orchestrator.kernel.run_state import Observer, RunState
from orchestrator.kernel.snapshot import dump
from orchestrator.kernel.state import Activation, FrameResult, FrameState, MapItem
from orchestrator.kernel.version import Version
from tests.support.sizes import sized

from .behave import Seeded
from .build import joins, plan
from .harness import Simulation, TooLongError, Trace
from .orders import orders
from .sketches import Sketch, limited, mutated, settle, structured, unstructured, values_for

KINDS: tuple[Callable[[int], Sketch], ...] = (structured, unstructured, mutated, limited)


class Watch(Observer):
    """Counts what it is told and follows which tokens are live."""

    def __init__(self) -> None:
        self.open: list[str] = []
        """Spans that are not done, innermost last."""
        self.count: Counter[str] = Counter()
        self.taken: Counter[tuple[str, int]] = Counter()
        self.results: dict[str, str] = {}
        """Key of a graph -> the status it ended with."""

    def _begin(self, span: str) -> None:
        self.open.append(span)
        self.count[span] += 1

    def applying(self, record: r.Record) -> None:
        assert not self.open, f"{self.open} are not done before record {record.seq}"
        self.count["records"] += 1

    def sending(self, source: Activation, version: Version, outcome: str, error: r.Failure | None) -> None:
        self._begin("sending")

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        assert arrivals
        assert {token.node for token in arrivals} == {join}
        self._begin("joining")

    def collapsing(self, frame: FrameState) -> None:
        assert frame.exhausting is not None
        self._begin("collapsing")

    def ending(self, frame: FrameState) -> None:
        assert not frame.live
        self._begin("ending")

    def done(self) -> None:
        self.open.pop()

    def edge_taken(self, frame: FrameState, index: int) -> None:
        assert self.open[-1] in ("sending", "collapsing")
        self.taken[frame.place, index] += 1

    def added(self, token: Activation) -> None:
        assert token.key not in token.frame.live
        self.count["added"] += 1

    def item_ready(self, item: MapItem) -> None:
        assert not item.missing
        self.count["item_ready"] += 1

    def dropped(self, token: Activation) -> None:
        assert token.key not in token.frame.live
        self.count["dropped"] += 1

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        assert frame.key not in self.results, "a graph ended twice"
        self.results[frame.key] = result.status


def runs(make: Callable[[int], Sketch], seeds: range) -> Iterator[Trace]:
    for seed in seeds:
        dice = random.Random(seed)
        try:
            drawn = settle(make(seed)).plan()
        except InvalidGraph:
            continue
        behaviour = Seeded(seed, asks=0.1, retries=0.1, silent=0.1)
        order = orders(drawn, 4, seed)[seed % 4]
        simulation = Simulation(
            drawn, behaviour, order=order, seed=seed, values=values_for(dice), most_steps=100, pauses=0.03
        )
        try:
            yield simulation.run()
        except TooLongError:
            continue


def watched(graph: Plan, records: list[r.Record]) -> tuple[RunState, Watch]:
    watch = Watch()
    run = RunState(graph, (watch,))
    for record in records:
        apply(run, record)
    return run, watch


@pytest.mark.full
def test_spans_balance_and_a_watched_fold_gives_the_same_state() -> None:
    seen: Counter[str] = Counter()
    for trace in (trace for make in KINDS for trace in runs(make, sized(range(8, 13), range(25)))):
        run, watch = watched(trace.plan, trace.records)
        assert dump(run) == dump(trace.machine)
        assert not watch.open
        assert watch.count["records"] == len(trace.records)
        assert dict(watch.taken) == edges_taken(run)
        assert run.root is not None
        assert run.root.result is not None
        assert watch.results[run.root.key] == run.root.result.status
        seen += watch.count
    spans = ("sending", "joining", "collapsing", "ending", "added", "dropped", "item_ready")
    assert min(seen[name] for name in spans) > 3, seen


def test_a_copy_and_a_fold_leave_the_observer_behind() -> None:
    trace = Simulation(plan("a -> b, c -> j", joins("j"))).run()
    first, *rest = trace.records
    run, watch = watched(trace.plan, [first])
    for record in rest:
        run = fold(run, record)
    assert not run.observers
    assert watch.count["records"] == 1
    assert dump(run) == dump(trace.machine)

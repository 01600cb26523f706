"""The laws, on generated graphs under many interleavings.

Confluence; an independent reading of the rules; any prefix of a journal can be folded and gone on from, in any order;
a snapshot and the tail are the whole; no update is lost or comes in twice; nothing waits for ever; every run has one
end record, the last. `harness.Simulation` checks on the way what must hold after every single record.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from orchestrator.errors import InvalidGraph
from orchestrator.graph.limits import Limits
from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.frame import SPENT
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import RunState
from tests.support.sizes import sized

from .behave import Seeded
from .harness import Simulation, TooLongError, Trace, agree, many, observe
from .orders import Order, orders
from .reference import Reference
from .sketches import Sketch, limited, mutated, settle, structured, unstructured, values_for

KINDS: dict[str, Callable[[int], Sketch]] = {
    "structured": structured,
    "unstructured": unstructured,
    "mutated": mutated,
}
DRAWN = {**KINDS, "limited": limited}
"""All kinds of graphs; those with limits inside have laws of their own."""
MOST = 150
"""Records of a run. Longer ones say no more and take their time."""
quick = settings(
    deadline=None,
    derandomize=True,
    max_examples=sized(4, 10),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
LAWS: dict[str, Callable[[int], None]] = {}
"""Each law, on as many drawn graphs as it is given."""
seeds = st.integers(0, 1_000_000)
kinds = st.sampled_from(sorted(KINDS))


def drawn(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """A law as a test of a few graphs, and for its storm, see `LAWS`."""

    def decorate(law: Callable[..., None]) -> Callable[[], None]:
        @wraps(law)
        def on(graphs: int) -> None:
            settings(quick, max_examples=graphs)(given(**strategies)(law))()

        LAWS[law.__name__.removeprefix("test_")] = on
        return quick(given(**strategies)(law))

    return decorate


@dataclass
class Trial:
    """A graph, what its nodes do, and what they start from."""

    name: str
    plan: Plan
    behaviour: Seeded
    values: dict[str, Any]
    races: bool

    @classmethod
    def draw(cls, kind: str, seed: int, limits: Limits | None = None, **behaviour: float) -> Trial | None:
        """One that the checks accept, or None."""
        sketch = settle(DRAWN[kind](seed))
        if limits is not None:
            sketch.limits = limits
        try:
            plan = sketch.plan()
        except InvalidGraph:
            return None
        values = values_for(random.Random(f"{kind} {seed}"))
        return cls(sketch.text, plan, Seeded(seed, **behaviour), values, sketch.races)

    def run(self, order: Order, seed: int = 0, **options: Any) -> Trace:
        """One interleaving."""
        options.setdefault("most_steps", MOST)
        return Simulation(self.plan, self.behaviour, order=order, seed=seed, values=self.values, **options).run()

    def many(self, count: int, seed: int = 0, **options: Any) -> list[Trace]:
        """Several."""
        options.setdefault("most_steps", MOST)
        return many(self.plan, self.behaviour, values=self.values, count=count, seed=seed, **options)


def trial_of(kind: str, seed: int, *, races: bool = False, **behaviour: float) -> Trial:
    """One that the checks accept, and in which nothing, or something, is a race."""
    trial = Trial.draw(kind, seed, **behaviour)
    assume(trial is not None and trial.races == races)
    assert trial is not None
    return trial


def ends_once(trace: Trace) -> None:
    """One end record, and it is the last."""
    assert [record.seq for record in trace.records if isinstance(record, r.Ended)] == [len(trace.records)]
    assert trace.machine.status in ("completed", "failed", "exhausted")


def confluent(trial: Trial, count: int, seed: int = 0) -> Trace:
    """Every interleaving tells the same, copied, dumped and loaded on its way, paused or not."""
    trial.run(Order("first"))  # one that is too long says so at once
    traces = trial.many(count, seed, pauses=0.02, late=0.5)
    for trace in traces:
        ends_once(trace)
    return agree(traces)


def as_read(trial: Trial, trace: Trace, seed: int = 0) -> None:
    """The machine came to what a second implementation of the rules comes to."""
    told = Reference(trial.plan, trial.behaviour, trial.values, most=100).run(random.Random(seed))
    assert trace.status == told.status
    if told.status == "failed":
        return
    ours, theirs = dict(trace.values), dict(told.values)
    assert len(ours.pop("trail")) == len(theirs.pop("trail"))
    if told.several:
        del ours["mine"], theirs["mine"]
    assert ours == theirs
    if not trial.plan.sub:
        assert Counter(map(seen_of, trace.seen.values())) == Counter(told.seen)


def seen_of(seen: Any) -> tuple[str, str, str]:
    state = {name: value for name, value in seen.state.items() if name != "trail"}
    return seen.node, seen.items, canonical(state)


def gone_on(trial: Trial, trace: Trace, at: int, order: Order) -> Trace:
    """The run from record `at` on, in a process that knows the journal only, and in another order."""
    simulation = Simulation(trial.plan, trial.behaviour, order=order, seed=at, values=trial.values, most_steps=2 * MOST)
    for record in trace.records[:at]:
        apply(simulation.machine, r.decode(r.encode(record)))
        simulation.trace.records.append(record)
        if isinstance(record, r.Asked):
            simulation.asked[record.activation] += 1
    for activation in simulation.machine.running.values():
        simulation._see(activation)
    while simulation.machine.result is None or simulation.machine.ended is None:
        simulation.advance()
    simulation.trace.seen = {**trace.seen, **simulation.trace.seen}
    return simulation.trace


@drawn(kind=kinds, seed=seeds)
def test_results_do_not_depend_on_timing(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, writes=0.05, replaces=0.02)
    try:
        trace = confluent(trial, 8)
        as_read(trial, trace)
    except TooLongError:
        assume(False)


@drawn(kind=kinds, seed=seeds)
def test_nor_do_they_where_steps_fail_ask_and_are_retried(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, writes=0.1, asks=0.15, retries=0.15, fails=0.02)
    try:
        confluent(trial, 6)
    except TooLongError:
        assume(False)


@drawn(kind=kinds, seed=seeds, where=st.floats(0, 1))
def test_any_prefix_of_a_journal_can_be_gone_on_from(kind: str, seed: int, where: float) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        whole = trial.run(Order("random", 1))
        for order in (Order("first"), Order("last"), Order("random", 7)):
            rest = gone_on(trial, whole, 1 + round(where * (len(whole.records) - 2)), order)
            ends_once(rest)
            assert (rest.status, rest.values) == (whole.status, whole.values)
    except TooLongError:
        assume(False)


@drawn(kind=kinds, seed=seeds)
def test_a_snapshot_at_any_record_and_the_tail_are_the_whole(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        trace = trial.run(Order("random", 3), probability=sized(0.4, 1.0), most_steps=120)
    except TooLongError:
        assume(False)
        return
    folded = RunState(trial.plan)
    for record in trace.records:
        apply(folded, record)
    assert observe(folded) == observe(trace.machine)


@drawn(kind=kinds, seed=seeds)
def test_races_end_too_and_their_journal_decides(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, races=True, writes=0.05, asks=0.1, retries=0.1)
    try:
        for order in orders(trial.plan, 6):
            trace = trial.run(order, probability=0.1, late=0.5)
            ends_once(trace)
            again = RunState(trial.plan)
            for record in trace.records:
                apply(again, record)
            assert observe(again) == observe(trace.machine)
    except TooLongError:
        assume(False)


@drawn(kind=kinds, seed=seeds, steps=st.integers(1, 12), concurrency=st.none() | st.integers(1, 3))
def test_limits_end_every_run(kind: str, seed: int, steps: int, concurrency: int | None) -> None:
    sketch = settle(KINDS[kind](seed))
    sketch.limits = Limits(steps=steps, concurrency=concurrency)
    try:
        plan = sketch.plan()
    except InvalidGraph:
        assume(False)
        return
    for order in orders(plan, 5):
        trace = Simulation(
            plan, Seeded(seed), order=order, values=values_for(random.Random(seed)), probability=0.1
        ).run()
        ends_once(trace)
        assert trace.machine.usage.steps <= steps
        assert concurrency is None or trace.most <= concurrency


@drawn(seed=seeds)
def test_limits_of_graphs_inside_are_no_race_where_one_token_can_spend_them(seed: int) -> None:
    trial = trial_of("limited", seed, writes=0.02)
    try:
        as_read(trial, confluent(trial, 4, seed), seed)
    except TooLongError:
        assume(False)


def test_graphs_inside_spend_their_limits_at_all_levels_with_an_edge_for_it_and_without() -> None:
    met = Counter[str]()
    for seed in range(sized(15, 30)):
        trial = Trial.draw("limited", seed)
        if trial is None or trial.races:
            continue
        trace = trial.run(Order("first"), most_steps=1_000)
        for record in trace.records:
            if isinstance(record, r.StepDone) and record.error is not None and record.error.type == SPENT:
                met["with an edge" if record.outcome == "exhausted" else "without"] += 1
                met["deep inside"] += record.node not in trial.plan.nodes
        met["late"] += any(seen.node.endswith("late") for seen in trace.seen.values())
    assert min(met[name] for name in ("with an edge", "without", "deep inside", "late")) > 1, met


def test_the_generators_draw_what_they_are_for() -> None:
    """Else the laws above would hold of nothing."""
    accepted = Counter[str]()
    met = Counter[str]()
    for kind in KINDS:
        for seed in range(sized(30, 100)):
            trial = Trial.draw(kind, seed)
            if trial is None:
                continue
            accepted[kind] += 1
            plan = trial.plan
            met["join"] += any(shape.join == "all" for shape in plan.nodes.values())
            met["map"] += any(edge.each for edge in plan.edges)
            met["needs"] += any(edge.each == "tasks" for edge in plan.edges)
            met["labels"] += any(edge.outcome for edge in plan.edges)
            met["graphs inside"] += bool(plan.sub)
            met["races"] += trial.races
    assert min(accepted[kind] for kind in KINDS) > sized(15, 50), accepted
    assert min(met.values()) > sized(1, 5), met
    assert len(met) == 6


@pytest.mark.storm
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_graphs(kind: str, scale: int) -> None:
    """`--storm-scale N`: N times 50 graphs of each kind, eight interleavings each."""
    told = Counter[str]()
    for seed in range(50 * scale):
        asks = 0.1 if seed % 2 else 0.0
        trial = Trial.draw(kind, seed, writes=0.05 * (seed % 3 == 0), replaces=0.02 * (seed % 4 == 0), asks=asks)
        if trial is None:
            told["refused"] += 1
            continue
        try:
            told[storm_on(trial, seed)] += 1
        except TooLongError:
            told["too long"] += 1
        except AssertionError as error:
            raise AssertionError(f"{trial.name}: {error}") from error
    print(f"\n{kind}: {dict(told)}")
    assert told["agreed"] > 8 * scale


def storm_on(trial: Trial, seed: int) -> str:
    """All laws on one graph."""
    if trial.races:
        for order in orders(trial.plan, 8, seed):
            ends_once(trial.run(order, probability=0.05, late=0.5))
        return "ended"
    trace = confluent(trial, 8, seed)
    if not trial.behaviour.asks:
        as_read(trial, trace, seed)
    at = random.Random(seed).randrange(1, len(trace.records))
    rest = gone_on(trial, trace, at, Order("random", seed))
    assert (rest.status, rest.values) == (trace.status, trace.values)
    return "agreed"

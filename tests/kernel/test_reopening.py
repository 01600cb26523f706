"""Runs that failed, were cancelled or spent a limit, and were reopened: nothing shows in what they come to.

`Broken` breaks a drawn run off at drawn records, any number of times: a step fails for good, the run is cancelled, or
its limit is spent. Steps that were stopped may land even so. After each end the run is reopened. Its final status and
state, and what each step saw, are those of a run that never broke off.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from msgspec import structs

from orchestrator.graph.limits import Limits
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.kernel.state import Activation
from tests.support.sizes import rounds

from .audit import recount
from .harness import FINAL, Simulation, TooLongError, Trace, observe, told
from .orders import Order, orders
from .reopening import reopen
from .test_laws import MOST, Trial, drawn, kinds, seeds
from .test_snapshots import differences


class Broken(Simulation):
    """A run that breaks off and is reopened. `at` says at which records, `how` in which way."""

    def __init__(self, plan: Plan, behaviour: Any, *, at: Sequence[int], how: str, **options: Any) -> None:
        super().__init__(plan, behaviour, **options)
        self.at, self.how = sorted(at), how
        self.met: Counter[str] = Counter()
        self.lost: set[str] = set()
        """Activations that came after a spent limit, and do not count."""

    def run(self) -> Trace:
        self.begin()
        while self.machine.status not in FINAL or self.machine.status == "exhausted" or self.at_end():
            if self.machine.status in FINAL:
                self.reopen()
            else:
                self.advance()
        return self.trace

    def at_end(self) -> bool:
        """Whether it ended only because it was broken off."""
        return bool(self.met[f"broken {self.machine.head - 1}"])

    def advance(self) -> None:
        if self.at and self.machine.head >= self.at[0] and self.machine.result is None:
            self.break_off()
        else:
            super().advance()

    def break_off(self) -> None:
        how = self.how if self.how != "any" else self.dice.choice(("fail", "cancel"))
        if how == "cancel":
            self.at.pop(0)
            self._land_truly(self.land(r.Cancelled(**self.head(), by="test")))
            return
        # A graph inside that is begun again by a later attempt of its node has other keys: not comparable.
        running = [
            a for a in self.machine.running.values()
            if not handled(a) and a.node not in a.frame.plan.sub and not self.is_retried(a.frame.parent)
        ]  # fmt: skip
        if not running:
            if self.machine.head > self.at[0] + 12:
                self.at.pop(0)
            super().advance()
            return
        self.at.pop(0)
        a = self.dice.choice(running)
        self.met["deep" if a.frame.parent is not None else "flat"] += 1
        self._fail(a, r.Failure(type="Bug", message="a bug", node=a.node, path=a.path))

    def is_retried(self, a: Activation | None) -> bool:
        """Whether a step would be retried if the graph inside it failed now, or one around it."""
        while a is not None:
            if self.behaviour(a.frame.plan, self.sight(a)).retries >= a.attempt:
                return True
            a = a.frame.parent
        return False

    def _land_late(self, delta: Delta) -> None:
        self._land_truly(delta)

    def _land_truly(self, delta: Delta) -> None:
        """Steps that were stopped may have ended already, with what they would have come to."""
        frozen = self.machine.result is not None or self.machine.inner_frames
        for a in delta.cancelled:
            if not frozen or self.dice.random() >= 0.3 or a.key not in self.machine.stopped:
                continue
            if a.fault is not None or a.node in a.frame.plan.sub:
                continue
            act = self.acts.get(a.key) or self.behaviour(a.frame.plan, self.sight(a))
            if act.asks or act.retries or act.fail:
                continue
            update, ops = a.frame.plan.schema.encode_update({**act.update, **({"trail": a.key} if act.update else {})})
            at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node, "attempt": a.attempt}
            before = self.machine.status, list(self.machine.running)
            self.land(r.StepDone(**at, outcome=act.outcome, update=dict(update), ops=ops))
            assert before == (self.machine.status, list(self.machine.running))
            self.trace.landed.append(a.key)
            self.met["late"] += 1

    def end(self) -> None:
        super().end()
        self.met[f"broken {self.machine.head - 1}"] += self.machine.ended is not None and (
            self.machine.status == "cancelled" or "Bug" in str(self.machine.ended.error)
        )

    def reopen(self) -> None:
        """Go on with the ended run."""
        machine = self.machine
        loaded = load(self.plan, json.loads(json.dumps(dump(machine))))
        found = list(differences(machine, loaded))
        assert not found, f"the snapshot of an ended run: {found[:3]}"
        limits = None
        if machine.status == "exhausted":
            steps = machine.root.steps + 1 if machine.root is not None else 0
            limits = Limits(steps=steps + self.dice.choice((0, 1, 4, 1000)))
            self.lost |= {key for key, seen in self.trace.seen.items() if seen.node == "rescue"}
        self.met[machine.status] += 1
        reopen(self, limits=limits)
        assert not machine.questions

    def land(self, record: r.Record) -> Delta:
        if isinstance(record, r.Asked):  # what is asked again has another id
            question = record.question.model_copy(update={"id": f"{record.question.id}/{self.machine.head}"})
            record = structs.replace(record, question=question)
        return super().land(record)


def handled(a: Activation) -> bool:
    """Whether the graphs around a step do something else with its failure than to fail."""
    step: Activation | None = a
    while step is not None:
        if step.frame.plan.topology.has_route(step.node, "error"):
            return True
        step = step.frame.parent
    return False


def audited(machine: RunState, record: r.Record, delta: Delta) -> None:
    """All counters are right after every record."""
    for frame in machine.frames():
        if frame.result is None:
            recount(machine, frame)


def as_if_unbroken(trial: Trial, whole: Trace, run: Broken) -> None:
    trace = run.run()
    expected, got = told(whole), told(trace)
    assert got["status"] == expected["status"], (trial.name, run.order.name)
    assert got.get("values") == expected.get("values"), (trial.name, run.order.name)
    seen = {key: seen for key, seen in got.get("seen", {}).items() if key not in run.lost}
    if expected["status"] == "completed":
        assert seen == expected["seen"], (trial.name, run.order.name)
    folded = RunState(trial.plan)
    for record in trace.records:
        apply(folded, r.decode(r.encode(record)))
    assert observe(folded) == observe(trace.machine)
    assert not trace.machine.stopped or trace.status != "completed"


def broken(trial: Trial, how: str, count: int, dice: random.Random, **options: Any) -> Counter[str]:
    """Break runs of a graph off, in several orders, and compare what they come to."""
    whole = trial.run(Order("first"))
    if whole.status != "completed":
        return Counter()
    length = len(whole.records)
    met: Counter[str] = Counter()
    for number, order in enumerate(orders(trial.plan, count, dice.randrange(1000))):
        at = sorted(dice.randrange(1, max(2, length)) for _ in range(dice.choice((1, 1, 2, 3))))
        run = Broken(
            trial.plan, trial.behaviour, at=at, how=how, order=order, seed=number, values=trial.values,
            most_steps=3 * MOST, probability=0.1, observers=[audited], **options,
        )  # fmt: skip
        as_if_unbroken(trial, whole, run)
        met += run.met
    return met


def trial_of(kind: str, seed: int, **behaviour: float) -> Trial:
    trial = Trial.draw(kind, seed, **behaviour)
    assume(trial is not None and not trial.races)
    assert trial is not None
    return trial


@pytest.mark.full
@drawn(kind=kinds, seed=seeds)
def test_a_failure_that_is_reopened_leaves_no_trace(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        broken(trial, "fail", 4, random.Random(seed))
    except TooLongError:
        assume(False)


@pytest.mark.full
@drawn(kind=kinds, seed=seeds)
def test_nor_does_a_cancel_that_is_reopened(kind: str, seed: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        broken(trial, "cancel", 4, random.Random(seed))
    except TooLongError:
        assume(False)


@pytest.mark.full
@drawn(kind=kinds, seed=seeds, steps=st.integers(1, 12))
def test_nor_does_a_spent_limit_that_is_raised(kind: str, seed: int, steps: int) -> None:
    trial = trial_of(kind, seed, asks=0.1, retries=0.1)
    try:
        whole = trial.run(Order("first"))
        assume(whole.status == "completed")
        tight = Trial.draw(kind, seed, limits=Limits(steps=steps), asks=0.1, retries=0.1)
        assert tight is not None
        for number, order in enumerate(orders(tight.plan, 4, seed)):
            run = Broken(
                tight.plan, tight.behaviour, at=(), how="", order=order, seed=number, values=tight.values,
                most_steps=5 * MOST, probability=0.1, observers=[audited],
            )  # fmt: skip
            as_if_unbroken(tight, whole, run)
            assert run.met["exhausted"] or steps >= whole.machine.steps
    except TooLongError:
        assume(False)


@pytest.mark.storm
@pytest.mark.parametrize("how", ["fail", "cancel", "any"])
@pytest.mark.parametrize("kind", ["structured", "unstructured", "mutated"])
def test_a_storm_of_reopened_runs(kind: str, how: str, scale: int) -> None:
    """`--storm-scale N`: N times 40 graphs of each kind, six interleavings each; 20 graphs at scale 1."""
    met: Counter[str] = Counter()
    for seed in range(7_000, 7_000 + rounds(20, 40, scale)):
        trial = Trial.draw(kind, seed, asks=0.1, retries=0.1)
        if trial is None or trial.races:
            continue
        try:
            met += broken(trial, how, 6, random.Random(seed))
        except TooLongError:
            continue
    print(f"\n{kind} {how}: {[(name, n) for name, n in met.items() if not name.startswith('broken')]}")
    assert met["failed" if how == "fail" else "cancelled"] > (2 if scale == 1 else 5 * scale)

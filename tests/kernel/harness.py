"""Drives a machine as an executor would, in any order of landing, and checks what must always hold.

`Simulation(plan, behaviour, order=...).run()` gives a `Trace`: what every activation saw, the final status and
state, the records. `many` runs one graph under many orders, `agree` demands that all of them tell the same.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.graph.isolation import listed
from orchestrator.json import canonical
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply, fold
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import branches, edges_taken, node_visits, state_values, validate_outcome
from orchestrator.kernel.question import PAUSE, Approve, Question
from orchestrator.kernel.records import RULES
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.snapshot import dump, load
from orchestrator.kernel.state import Activation
from tests.support.sizes import sized

from .behave import Act, Behaviour, Script, Sight
from .orders import Order, orders

THOROUGH = int(os.environ.get("EXAMPLES", "0")) >= 100
"""Whether this is a storm."""
FINAL = ("completed", "failed", "cancelled", "exhausted")


class TooLongError(Exception):
    """A generated graph that runs on and on: of no use, not wrong."""


@dataclass(frozen=True)
class Seen:
    """What one activation was, and what it saw."""

    node: str
    path: str
    values: str
    """Canonical JSON of the state."""
    items: str
    fault: str | None

    @property
    def state(self) -> dict[str, Any]:
        """The state as it was seen."""
        found: dict[str, Any] = json.loads(self.values)
        return found


@dataclass
class Trace:
    """What became of a run."""

    order: str
    plan: Plan
    machine: RunState
    records: list[r.Record] = field(default_factory=list)
    deltas: list[tuple[list[str], list[str]]] = field(default_factory=list)
    """Per record the keys that were started, and those cancelled."""
    seen: dict[str, Seen] = field(default_factory=dict)
    """Activation -> what it saw."""
    landed: list[str] = field(default_factory=list)
    """Activations in the order in which they landed with an outcome."""
    dropped: set[str] = field(default_factory=set)
    most: int = 0
    """The most activations that ran at once."""
    paused: list[int] = field(default_factory=list)
    """Positions at which the run was paused."""

    @property
    def status(self) -> str:
        return self.machine.status

    @property
    def values(self) -> dict[str, Any]:
        return dict(state_values(self.machine))

    @property
    def log(self) -> str:
        """The transcript, words parted by spaces."""
        return " ".join(self.values["log"])

    @property
    def error(self) -> str:
        assert self.machine.ended is not None
        return str(self.machine.ended.error)

    def count(self, node: str) -> int:
        """How many activations a node had."""
        return sum(seen.node == node for seen in self.seen.values())

    def counts(self) -> Counter[str]:
        """The same for all nodes."""
        return Counter(seen.node for seen in self.seen.values())

    def saw(self, node: str) -> list[dict[str, Any]]:
        """The states that a node saw, those with the shortest transcript first."""
        found = [seen.state for seen in self.seen.values() if seen.node == node]
        return sorted(found, key=lambda state: (len(state["log"]), canonical(state)))

    def items(self, node: str) -> list[Any]:
        """The items that a node was given."""
        found = [json.loads(seen.items) for seen in self.seen.values() if seen.node == node]
        return sorted(found, key=canonical)


def observe(machine: RunState) -> dict[str, Any]:
    """All that can be asked of a machine, as plain data."""
    return {
        "head": machine.head,
        "run_id": machine.run_id,
        "status": machine.status,
        "running": [
            (a.key, a.node, a.path, machine.plan and dict(a.frame.plan.schema.dump(a.values)), canonical(a.items),
             a.attempt, a.not_before, sorted(a.answers), a.opened, str(a.error), str(a.fault),
             a.child and (a.child.status, str(a.child.error)))
            for a in machine.running.values()
        ],
        "questions": [question.model_dump() for question in machine.questions.values()],
        "result": machine.result and machine.result.status,
        "usage": machine.usage.model_dump(),
        "visits": dict(node_visits(machine)),
        "taken": dict(edges_taken(machine)),
        "values": state_values(machine),
        "branches": [(b.path, b.node, b.phase, b.values) for b in branches(machine)],
    }  # fmt: skip


Inputs = Callable[[Plan, Sight], Mapping[str, Any]]


def same_lists(plan: Plan, sight: Sight) -> Mapping[str, Any]:
    """A subgraph is handed the lists that its graph maps over."""
    return {name: sight.values[name] for name in ("xs", "ys", "tasks") if name in sight.values}


class Simulation:
    """One run. `order` chooses which activation lands next; `probability` how often the costly laws are tried."""

    def __init__(
        self,
        plan: Plan,
        behaviour: Behaviour | None = None,
        *,
        order: Order | None = None,
        run_id: str = "run",
        lean: bool = False,
        seed: int = 0,
        values: Mapping[str, Any] | None = None,
        inputs: Inputs = same_lists,
        probability: float = 0.0,
        pauses: float = 0.0,
        late: float = 0.0,
        overdue: Collection[str] = (),
        pause_before: Collection[str] = (),
        pause_after: Collection[str] = (),
        most_steps: int = 5_000,
        observers: Sequence[Callable[[RunState, r.Record, Delta], None]] = (),
    ) -> None:
        self.plan, self.behaviour, self.inputs = plan, behaviour or Script(), inputs
        self.order = order or orders(plan, 1)[0]
        self.run_id = run_id
        self.dice = random.Random(seed)
        self.start = plan.schema.initial(values or {})
        self.probability, self.pauses, self.late, self.most_steps = probability, pauses, late, most_steps
        self.observers = observers
        self.overdue = frozenset(overdue)
        """Subgraph nodes whose time is up when the first step inside would land."""
        self.stops = {"pause_before": tuple(pause_before), "pause_after": tuple(pause_after)}
        self.machine = RunState(plan)
        self.trace = Trace(self.order.name, plan, self.machine)
        self.shadows: list[RunState] = []
        self.acts: dict[str, Act] = {}
        self.asked: Counter[str] = Counter()
        self.done: set[str] = set()
        self.lean = lean or "log" not in plan.schema.fields
        """Without what is checked of each activation: what it saw, and the trail of updates."""

    # -- records ------------------------------------------------------------------------------------------------

    def head(self) -> dict[str, Any]:
        """What every record begins with."""
        return {"seq": self.machine.head + 1, "ts": 1_000.0 + self.machine.head}

    def land(self, record: r.Record) -> Delta:
        """Apply a record, and check what must hold after it."""
        machine, trace = self.machine, self.trace
        tried = machine.head > 0 and self.dice.random() < self.probability
        if tried:
            before, snapshot = observe(machine), dump(machine)
            following = fold(machine, record)
            assert observe(machine) == before, "fold changed the machine that it was given"
            loaded = load(self.plan, json.loads(json.dumps(snapshot)))
            assert observe(loaded) == before, "a snapshot does not load as what it was"
            self.shadows = [*self.shadows[-4:], machine.copy(), loaded]
        record = r.decode(r.encode(record))
        delta = apply(machine, record)
        keys = [a.key for a in delta.started], [a.key for a in delta.cancelled]
        for shadow in self.shadows:
            other = apply(shadow, record)
            assert ([a.key for a in other.started], [a.key for a in other.cancelled]) == keys, "a copy went astray"
        if tried:
            now = observe(machine)
            assert observe(following) == now, "fold and apply differ"
            assert all(observe(shadow) == now for shadow in self.shadows), "a copy or snapshot went astray"
        trace.records.append(record)
        trace.deltas.append(keys)
        self._check(record, delta)
        for observer in self.observers:
            observer(machine, record, delta)
        return delta

    def _check(self, record: r.Record, delta: Delta) -> None:
        machine, trace = self.machine, self.trace
        trace.most = max(trace.most, len(machine.running))
        most = self.plan.limits.concurrency
        assert most is None or len(machine.running) <= most, f"{len(machine.running)} run at once"
        for activation in delta.started:
            key = activation.key
            assert machine.running.get(key) is activation, f"{activation} began and is not among what runs"
            assert key not in self.done, f"{activation} begins again"
            if not self.lean:
                self._see(activation)
        for activation in delta.cancelled:
            assert activation.key not in machine.running, f"{activation} was cancelled and runs"
            trace.dropped.add(activation.key)
            self.done.add(activation.key)
        if machine.result is None and machine.status not in FINAL:
            alive = machine.running or machine.questions
            assert alive, f"deadlock: {[(b.node, b.phase) for b in branches(machine)]}"
            assert (machine.status == "running") == bool(machine.running), machine.status

    def _see(self, a: Activation) -> None:
        values = canonical(a.frame.plan.schema.dump(a.values))
        fault = None if a.fault is None else a.fault.type
        seen = Seen(a.node, a.path, values, canonical([a.item, list(a.items)]), fault)
        known = self.trace.seen.setdefault(a.key, seen)
        assert known == seen, f"{a} sees something else than before"

    # -- driving ------------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Drive the run to its end."""
        self.begin()
        while self.machine.status not in FINAL:
            self.advance()
        return self.finish()

    def begin(self) -> None:
        """Land the first record."""
        self.land(
            r.RunStarted(
                **self.head(),
                run_id=self.run_id,
                graph=self.plan.name,
                structure="s",
                content="c",
                values=dict(self.start),
                rules=RULES,
                **self.stops,
            )
        )

    def advance(self) -> None:
        """Land one record: a step, an answer, a pause, or the end."""
        machine = self.machine
        if machine.head > self.most_steps:
            raise TooLongError(self.plan.name)
        running = list(machine.running.values())
        if machine.result is not None and not running:
            self.end()
        elif running and self.pauses and PAUSE not in machine.questions and self.dice.random() < self.pauses:
            self.land(r.Paused(**self.head(), by="test"))
        elif machine.questions and (not running or self.dice.random() < 0.15):
            if not running:
                assert machine.status == "paused"
                self.trace.paused.append(machine.head)
            self.answer(self.dice.choice(list(machine.questions)))
        else:
            self.step(running[self.order(running)])

    def answer(self, question: str) -> None:
        """Answer an open question."""
        self.land(r.Answered(**self.head(), question=question, answer=Approve(), by="test"))

    def step(self, a: Activation) -> None:
        """Land the next record of an activation."""
        at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node}
        around = a.frame.parent
        if around is not None and around.node in self.overdue:
            self.time_out(around)
            return
        if a.fault is not None:
            self._fail(a, a.fault)
            return
        inner = a.frame.plan.sub.get(a.node)
        if inner is not None and a.child is None:
            given = inner.schema.initial(self.inputs(a.frame.plan, self.sight(a)))
            self.land(r.GraphOpened(**at, attempt=a.attempt, values=dict(given)))
            return
        act = self.acts.get(a.key)
        if act is None or a.child is not None:
            act = self.acts[a.key] = self.behaviour(a.frame.plan, self.sight(a))
        if self.asked[a.key] < act.asks:
            self.asked[a.key] += 1
            name = f"{a.key}:{self.asked[a.key]}"
            self.land(r.Asked(**at, question=Question(id=name, kind="input", node=a.node, path=a.path)))
        elif a.attempt <= act.retries:
            error = r.Failure(type="Flaky", message="drawn")
            self.land(r.StepRetried(**at, attempt=a.attempt, error=error, next_at=0.0))
        else:
            self._end_step(a, act)

    def time_out(self, a: Activation) -> None:
        """Land the time-out of a subgraph's activation."""
        error = r.Failure(type="StepTimeout", message=f"{a.node} took too long", node=a.node, path=a.path)
        at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node}
        delta = self.land(r.TimerFired(**at, name=r.TIMEOUT, error=error))
        assert [begun.key for begun in delta.started] == [a.key], "the node around it goes on, and nothing else"
        self._land_late(delta)

    def _end_step(self, a: Activation, act: Act) -> None:
        if a.child is not None and a.child.status in ("failed", "cancelled"):
            error = a.child.error or r.Failure(type="Inner", message=a.child.status)
        elif act.fail is not None:
            error = r.Failure(type="Broken", message=act.fail, node=a.node, path=a.path)
        else:
            spent = a.child is not None and a.child.status == "exhausted"
            named = spent and a.frame.plan.topology.has_route(a.node, "exhausted")
            outcome = "exhausted" if named else act.outcome
            given = act.update if self.lean else {**act.update, **({"trail": a.key} if act.update else {})}
            update, ops = a.frame.plan.schema.encode_update(given)
            fault = validate_outcome(a, outcome, update, ops)
            if fault is not None:
                self._fail(a, fault)
            else:
                self._done(a, outcome, dict(update), ops, a.child.error if a.child is not None and spent else None)
            return
        topology = a.frame.plan.topology
        if error.type == "StepTimeout" and topology.has_route(a.node, "timeout"):
            self._done(a, "timeout", {}, {}, error)
        elif topology.has_route(a.node, "error"):
            self._done(a, "error", {}, {}, error)
        else:
            self._fail(a, error)

    def _done(
        self, a: Activation, outcome: str, update: dict[str, Any], ops: dict[str, str], error: r.Failure | None = None
    ) -> None:
        at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node, "attempt": a.attempt}
        self.done.add(a.key)
        self.trace.landed.append(a.key)
        delta = self.land(r.StepDone(**at, outcome=outcome, update=update, ops=ops, error=error))
        self._land_late(delta)

    def _fail(self, a: Activation, error: r.Failure) -> None:
        self.done.add(a.key)
        at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node}
        self._land_late(self.land(r.StepFailed(**at, attempt=a.attempt, error=error)))

    def _land_late(self, delta: Delta) -> None:
        """A cancelled step may have ended already: its record changes nothing but the count of steps."""
        for a in delta.cancelled:
            if self.dice.random() < self.late:
                before = state_values(self.machine), self.machine.status, list(self.machine.running)
                at = {**self.head(), "activation": a.key, "path": a.path, "node": a.node}
                found = self.land(r.StepDone(**at, outcome="done", update={}))
                assert not found.started
                assert not found.cancelled
                assert before == (state_values(self.machine), self.machine.status, list(self.machine.running))

    def end(self) -> None:
        """Land the end record."""
        result = self.machine.result
        assert result is not None
        assert not self.machine.questions, "a run that ended asks nothing"
        assert result.status in FINAL
        self.land(r.Ended(**self.head(), status=result.status, error=result.error))
        assert self.machine.status == result.status
        assert not self.machine.running
        assert not branches(self.machine), "a run that ended has no live tokens"

    def finish(self) -> Trace:
        """What must hold of a whole run."""
        trace = self.trace
        if not self.lean and not self.plan.sub:
            whole_order(trace)
        now = observe(self.machine)
        assert all(observe(shadow) == now for shadow in self.shadows), "a snapshot and the tail differ from the whole"
        return trace

    def sight(self, a: Activation) -> Sight:
        """What the node sees, as plain data."""
        schema = a.frame.plan.schema
        child = None
        if a.child is not None:
            child = dict(a.frame.plan.sub[a.node].schema.dump(a.child.values))
        item = json.loads(canonical(a.item)) if not isinstance(a.item, int) else a.item
        return Sight(
            a.node,
            {name: listed(value) for name, value in a.values.items()} if self.lean else dict(schema.dump(a.values)),
            item,
            tuple(a.items),
            a.attempt,
            None if a.error is None else a.error.type,
            len(a.answers),
            child,
        )


def whole_order(trace: Trace) -> None:
    """No update is lost or comes in twice, and what every node saw is in the order of the final state (R6)."""
    final = {key: place for place, key in enumerate(trace.values["trail"])}
    assert len(final) == len(trace.values["trail"]), "an update came in twice"
    assert len(trace.values["log"]) == len(final)
    for seen in trace.seen.values():
        trail = seen.state["trail"]
        assert len(set(trail)) == len(trail), f"{seen.node} saw an update twice"
    if trace.status != "completed" or trace.dropped:
        return
    wrote = {r_.activation for r_ in trace.records if isinstance(r_, r.StepDone) and r_.update}
    stopped = any(edge.target == "STOP" for edge in trace.plan.edges)
    some = any(isinstance(shape.join, int) for shape in trace.plan.nodes.values())
    if not stopped and not some:
        assert wrote == set(final), f"lost updates: {[trace.seen[key].node for key in wrote - set(final)]}"
    for seen in trace.seen.values():
        places = [final[key] for key in seen.state["trail"] if key in final]
        if not stopped and not some:
            assert len(places) == len(seen.state["trail"])
        assert places == sorted(places), f"{seen.node} saw updates in another order than the final state has"


def many(
    plan: Plan,
    behaviour: Behaviour | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    count: int = 14,
    seed: int = 0,
    **options: Any,
) -> list[Trace]:
    """The same run under many interleavings; a part of each is also copied, dumped and loaded on the way.

    The storm runs `count` of them, full runs a third, and at least eight: each node is starved by then, as a rule. On
    every change five: first, last, by chance, by branches and by nodes.
    """
    if not THOROUGH:
        count = min(count, sized(5, max(8, count // 3)))
    options.setdefault("probability", 0.1 if THOROUGH else sized(0.05, 0.1))
    return [
        Simulation(plan, behaviour, order=order, seed=seed + number, values=values, **options).run()
        for number, order in enumerate(orders(plan, count, seed))
    ]


def told(trace: Trace) -> dict[str, Any]:
    """What must not depend on timing. Of failed runs: that they failed."""
    if trace.status == "failed":
        return {"status": "failed"}
    return {"status": trace.status, "values": trace.values, "seen": trace.seen}


def agree(traces: Iterable[Trace]) -> Trace:
    """Demand that all interleavings tell the same, and give the first."""
    found = list(traces)
    first = found[0]
    expected = told(first)
    for trace in found[1:]:
        got = told(trace)
        pair = f"{first.order}: {expected['status']}, {trace.order}: {got['status']}"
        assert got["status"] == expected["status"], pair
        assert got == expected, f"{first.order} and {trace.order} differ:\n{difference(expected, got)}"
    coherent(found)
    return first


def coherent(traces: Iterable[Trace]) -> None:
    """An activation's key tells all of it: in every interleaving that has it, it is and sees the same."""
    known: dict[str, Seen] = {}
    for trace in traces:
        for key, seen in trace.seen.items():
            assert known.setdefault(key, seen) == seen, f"{key} of {seen.node} differs between interleavings"


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The parts in which two tellings differ, for a person to read."""
    lines = []
    if one.get("values") != other.get("values"):
        lines += [f"  log {one['values']['log']}", f"  log {other['values']['log']}"]
    seen, also = one.get("seen", {}), other.get("seen", {})
    for key in [*seen, *(key for key in also if key not in seen)]:
        if seen.get(key) != also.get(key):
            pair = [s and (s.node, s.path, s.state["log"]) for s in (seen.get(key), also.get(key))]
            lines.append(f"  {key}: {pair[0]} / {pair[1]}")
    return "\n".join(lines[:20])

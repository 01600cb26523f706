"""The fold: what a run is, after the records so far.

`fold(machine, record)` is pure: it gives a new machine and leaves the old one as it was. `Machine.apply` does
the same in place and says what began and what must stop; an executor owns one machine per run and only ever
applies. Nothing here does input or output, reads a clock or draws a random number: time and ids come in
through the records, so the same records always give the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from orchestrator.errors import StoreCorrupt
from orchestrator.graph.limits import Limits, LimitsLeft, Usage
from orchestrator.graph.topology import RESERVED
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel import records as r
from orchestrator.kernel.frame import Frame, FrameResult
from orchestrator.kernel.ledger import EffectEntry, Ledger
from orchestrator.kernel.needs import fault_of, wants_order
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.token import Activation, Phase, mix

PAUSE = "pause"
"""The id of the question that an outside pause puts."""


@dataclass(slots=True)
class Delta:
    """What a record brought about."""

    started: list[Activation] = field(default_factory=list)
    """Newly admitted: run them."""
    cancelled: list[Activation] = field(default_factory=list)
    """No longer part of the run: stop them."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A live token."""

    path: str
    node: str
    phase: str
    values: JsonObject


class Machine:
    """One run, folded up to `head`. Read its attributes, change it by `apply` only."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.head: int = 0
        """`seq` of the last record."""
        self.started: r.RunStarted | None = None
        self.ended: r.Ended | None = None
        self.running: dict[str, Activation] = {}
        """Every admitted activation, in the order of admission."""
        self.questions: dict[str, Question] = {}
        self.result: FrameResult | None = None
        """Set when nothing is left to do but to journal the end."""
        self.approve: str | None = None
        self.paused = self.cancelled = False
        self.steps: int = 0
        """Steps that landed."""
        self.visits: dict[tuple[str, str], int] = {}
        """(place of the graph, node) -> admissions."""
        self.taken: dict[tuple[str, int], int] = {}
        """(place of the graph, number of the edge) -> how often it was taken."""
        self.busy: dict[tuple[str, str], float] = {}
        """(place of the graph, node) -> seconds its steps took."""
        self.seconds: float = 0.0
        """Time alive: pauses, and the gaps that a crash left, do not count."""
        self.updated: float = 0.0
        self.content: str = ""
        self.ledger = Ledger()
        self.root: Frame | None = None
        self._calls = self._input_tokens = self._output_tokens = 0
        self._cost = 0.0
        self._asked: dict[str, Activation] = {}
        self._inner: dict[str, Frame] = {}
        self._ready: dict[int, Frame] = {}
        self._spent: list[Frame] = []
        self._awake = False
        self._delta = Delta()

    # -- the fold ---------------------------------------------------------------------------------------------

    def apply(self, record: r.Record) -> Delta:
        """Fold one record in, in place.

        Raises:
            StoreCorrupt: the record does not follow the ones before it; nothing was changed.
        """
        if record.seq != self.head + 1:
            raise StoreCorrupt(self.run_id, record.seq, f"it follows record {self.head}")
        if (self.root is None) != (record.type == "run_started"):
            raise StoreCorrupt(self.run_id, record.seq, f"a journal begins with run_started, this is {record.type}")
        delta = self._delta = Delta()
        if self._awake and record.type != "resumed":
            self.seconds += max(0.0, record.ts - self.updated)
        self.head, self.updated = record.seq, record.ts
        handler = _HANDLERS.get(record.type)
        if handler is not None:
            handler(self, record)
        if self._ready or self._spent:
            self._admit()
        self._awake = bool(self.running)
        return delta

    def copy(self) -> Machine:
        """An independent machine in the same place. Versions, plans and records are shared: they never change."""
        return deepcopy(self)

    def _run_started(self, record: r.RunStarted) -> None:
        self.started, self.approve, self.content = record, record.approve, record.content
        values = self.plan.schema.decode(record.values)
        self.root = Frame(self.plan, mix(record.run_id), values, self)
        if record.limits is not None:
            self.root.limits = record.limits
        self._begin(self.root)

    def _begin(self, frame: Frame) -> None:
        frame.began = self.seconds
        frame.start()
        self._mark(frame)

    def _step_done(self, record: r.StepDone) -> None:
        activation = self._leave(record)
        if activation is None:
            return
        frame = activation.frame
        frame.land(activation, record.outcome, record.update, record.ops, record.reduced, record.error)
        self._mark(frame)

    def _step_failed(self, record: r.StepFailed) -> None:
        activation = self._leave(record)
        if activation is not None:
            frame = activation.frame
            frame.finish(FrameResult("failed", frame.trunk().values, record.error))

    def _leave(self, record: r.StepDone | r.StepFailed) -> Activation | None:
        """Take a landed activation out of what runs. None if it was dropped before it landed."""
        self.steps += 1
        self.ledger.forget(record.activation)
        activation = self.running.get(record.activation)
        if activation is None:
            return None
        self._stop(activation)
        key = (activation.frame.place, record.node)
        self.busy[key] = self.busy.get(key, 0.0) + record.ended - record.started
        return activation

    def _step_retried(self, record: r.StepRetried) -> None:
        activation = self.running.get(record.activation)
        if activation is not None:
            activation.attempt = record.attempt + 1
            activation.not_before = record.next_at
            activation.child = None
            activation.opened = False

    def _graph_opened(self, record: r.GraphOpened) -> None:
        activation = self.running.get(record.activation)
        plan = None if activation is None else activation.frame.plan.sub.get(activation.node)
        if activation is None or plan is None:
            return
        self._stop(activation)
        activation.phase, activation.opened = Phase.INSIDE, True
        key = mix(activation.key, str(activation.attempt), "inside")
        frame = Frame(plan, key, plan.schema.decode(record.values), self, activation)
        self._inner[activation.key] = frame
        self._begin(frame)

    def _effect_intended(self, record: r.EffectIntended) -> None:
        if not self.ledger.intend(record) or record.kind == "effect":
            return
        self._calls += 1
        for frame in self._chain_of(record.activation):
            frame.calls += 1

    def _effect_settled(self, record: r.EffectSettled) -> None:
        self.ledger.settle(record)
        usage = record.usage
        if usage is not None:
            self._input_tokens += usage.input_tokens
            self._output_tokens += usage.output_tokens
            self._cost += usage.cost
            for frame in self._chain_of(record.activation):
                frame.tokens += usage.tokens
                frame.cost += usage.cost

    def _asked_record(self, record: r.Asked) -> None:
        activation = self.running.get(record.activation)
        if activation is None:
            return
        self._stop(activation)
        activation.phase = Phase.ASKING
        self.questions[record.question.id] = record.question
        self._asked[record.question.id] = activation

    def _answered(self, record: r.Answered) -> None:
        if self.questions.pop(record.question, None) is None:
            return
        if record.question == PAUSE:
            self._unpause()
            return
        activation = self._asked.pop(record.question)
        activation.answers[record.question] = record
        activation.phase = Phase.QUEUED
        activation.frame.queue.append(activation)
        self._mark(activation.frame)

    def _paused(self, record: r.Paused) -> None:
        if self.result is not None:
            return
        self.paused = True
        prompt = f"paused{f' by {record.by}' if record.by else ''}{f': {record.reason}' if record.reason else ''}"
        self.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=prompt)

    def _resumed(self, record: r.Resumed) -> None:
        if record.content is not None:
            self.content = record.content
        if record.approve is not None:
            self.approve = record.approve
        if record.unpause:
            self._unpause()

    def _unpause(self) -> None:
        self.paused = False
        self.questions.pop(PAUSE, None)
        for frame in self.frames():
            self._mark(frame)

    def _cancelled(self, record: r.Cancelled) -> None:
        if self.root is not None and self.result is None:
            self.cancelled = True
            self.root.finish(FrameResult("cancelled", self.root.trunk().values))

    def _limit_spent(self, record: r.LimitSpent) -> None:
        refused = self.running.get(record.activation) if record.activation is not None else None
        frames = self._chain(refused) if refused is not None else self.frames()
        frame = next((f for f in frames if f.path == record.frame), None)
        if frame is None or frame.result is not None:
            return
        if refused is not None:
            self._set_aside(refused)
        elif record.limit == "seconds":
            # Time is up now, not when the slowest step pleases to end.
            for activation in [a for a in self.running.values() if frame in self._chain(a)]:
                self._set_aside(activation)
                self._delta.cancelled.append(activation)
        frame.exhaust(record.limit)
        self._spent.append(frame)

    def _set_aside(self, activation: Activation) -> None:
        self._stop(activation)
        activation.phase = Phase.PARKED

    def _limits_changed(self, record: r.LimitsChanged) -> None:
        if self.root is not None:
            self.root.limits = record.limits
            self._mark(self.root)

    def _forked(self, record: r.Forked) -> None:
        assert self.started is not None
        self.started = self.started.model_copy(update={"run_id": record.run_id})
        if not record.update or self.root is None:
            return
        for token in self.root.live.values():
            if record.branch is None or token.path == record.branch:
                token.version = self.root.stepped(token, record.update, record.ops)

    def _migrated(self, record: r.Migrated) -> None:
        self.content = record.content
        for frame in self.frames():
            for token in frame.live.values():
                token.node = record.nodes.get(token.node, token.node)

    def _ended_record(self, record: r.Ended) -> None:
        self.ended = record
        if self.root is not None and self.result is None:
            self.root.finish(FrameResult(record.status, self.root.trunk().values, record.error))
        self.questions.clear()

    # -- admission: what may run now (R13, R14) -----------------------------------------------------------------

    def _mark(self, frame: Frame) -> None:
        if frame.queue:
            self._ready[id(frame)] = frame
        if frame.exhausting is not None:
            self._spent.append(frame)

    def _admit(self) -> None:
        while True:
            if not self.paused:
                for key, frame in list(self._ready.items()):
                    if frame.result is None:
                        while frame.queue and self._admit_one(frame, frame.queue[0]):
                            pass
                    if not frame.queue or frame.result is not None:
                        self._ready.pop(key, None)
                    elif self._full(self.root):
                        break
            if not self._spent:
                return
            spent, self._spent = self._spent, []
            for frame in spent:
                if frame.result is not None or frame.exhausting is None:
                    continue
                if frame.active:
                    self._spent.append(frame)
                else:
                    frame.collapse()
                    self._mark(frame)
            if len(self._spent) == len(spent):
                return

    def _full(self, frame: Frame | None) -> bool:
        if frame is None:
            return True
        most = frame.limits.concurrency
        return most is not None and frame.active >= most

    def _admit_one(self, frame: Frame, activation: Activation) -> bool:
        chain = self._chain(activation)
        for outer in chain:
            if outer.exhausting is not None or outer.result is not None or self._full(outer):
                return False
        if not activation.counted and not self._reserve(frame, activation, chain):
            return False
        frame.queue.popleft()
        activation.phase = Phase.RUNNING
        for outer in chain:
            outer.active += 1
        self.running[activation.key] = activation
        self._delta.started.append(activation)
        return True

    def _reserve(self, frame: Frame, activation: Activation, chain: list[Frame]) -> bool:
        """Take a step, and a visit, from the limits; false when one is spent."""
        node = activation.node
        if frame.after:
            if node in frame.once:
                return self._exhaust(frame, "visits")
            frame.once.add(node)
        else:
            most = frame.limits.visits.get(node)
            if most is not None and frame.visits.get(node, 0) >= most:
                return self._exhaust(frame, "visits")
        for outer in chain:
            most = outer.limits.steps
            if not outer.after and most is not None and outer.steps >= most:
                return self._exhaust(outer, "steps")
        for outer in chain:
            if not outer.after:
                outer.steps += 1
        if not frame.after and frame.limits.visits:
            frame.visits[node] = frame.visits.get(node, 0) + 1
        key = (frame.place, node)
        self.visits[key] = self.visits.get(key, 0) + 1
        activation.counted = True
        return True

    def _exhaust(self, frame: Frame, limit: str) -> bool:
        frame.exhaust(limit)
        self._spent.append(frame)
        return False

    def _stop(self, activation: Activation) -> None:
        """It no longer runs: give its place back."""
        if self.running.pop(activation.key, None) is not None:
            for frame in self._chain(activation):
                frame.active -= 1

    # -- what frames tell ---------------------------------------------------------------------------------------

    def dropped(self, activation: Activation) -> None:
        """A live token is gone: stop it, and all that runs inside it."""
        if activation.key in self.running:
            self._stop(activation)
            self._delta.cancelled.append(activation)
        inner = self._inner.pop(activation.key, None)
        if inner is not None:
            inner.parent_gone = True
            inner.finish(FrameResult("cancelled", inner.trunk().values))
        if activation.phase is Phase.ASKING:
            for question in [q for q, asker in self._asked.items() if asker is activation]:
                del self._asked[question]
                self.questions.pop(question, None)

    def ended_frame(self, frame: Frame) -> None:
        """The frame has a result: the run's, or that of the subgraph's activation around it."""
        parent = frame.parent
        if parent is None:
            self.result = frame.result
            self.questions.clear()
            return
        if frame.parent_gone or self._inner.pop(parent.key, None) is None:
            return
        parent.child = frame.result
        parent.phase = Phase.RUNNING
        for outer in self._chain(parent):
            outer.active += 1
        self.running[parent.key] = parent
        self._delta.started.append(parent)

    def took(self, frame: Frame, index: int) -> None:
        """An edge was taken."""
        key = (frame.place, index)
        self.taken[key] = self.taken.get(key, 0) + 1

    # -- what an executor asks ------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """The run's id, empty before its first record."""
        return self.started.run_id if self.started is not None else ""

    @property
    def labels(self) -> dict[str, str]:
        """What the run was labelled with."""
        return self.started.labels if self.started is not None else {}

    @property
    def status(self) -> str:
        """`running`, `paused`, or how it ended. Whether somebody drives a running one, only its lease tells."""
        if self.ended is not None:
            return self.ended.status
        if self.running or self.result is not None:
            return "running"
        if self.paused or self.questions:
            return "paused"
        return "running"

    @property
    def usage(self) -> Usage:
        """What the run has spent."""
        return Usage(
            steps=self.steps,
            calls=self._calls,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            cost=self._cost,
            seconds=self.seconds,
        )

    def probe(
        self, activation: Activation, outcome: str, update: JsonObject, ops: Mapping[str, str]
    ) -> r.Failure | None:
        """Why this end of an activation would not be legal, or None. To be asked before it is journaled."""
        frame = activation.frame
        topology = frame.plan.topology
        routes = topology.routes(activation.node, outcome)
        if not routes and outcome != "exhausted":
            declared = frame.plan.nodes[activation.node].outcomes
            why = "has no edge" if outcome in declared or outcome in RESERVED else "is not declared"
            return self._fault(
                activation,
                f"{activation.node} returned outcome {outcome!r}, which {why}; it has {', '.join(map(repr, declared))}",
            )
        fields = [route.each for route in routes if route.each is not None]
        if fields:
            values = frame.stepped(activation, update, ops).values if update else activation.values
            for name in fields:
                items = values.get(name)
                if not isinstance(items, (list, tuple)):
                    kind = type(items).__name__
                    return self._fault(
                        activation, f"{activation.node} maps over {name!r}, which is no list: {kind}"
                    )
                if wants_order(items):
                    fault = fault_of(items)
                    if fault is not None:
                        return self._fault(activation, f"{activation.node} maps over {name!r}: {fault}")
        return None

    def _fault(self, activation: Activation, message: str) -> r.Failure:
        return r.Failure(type="InvalidOutcome", message=message, node=activation.node, path=activation.path)

    def reduced_for(
        self, activation: Activation, update: JsonObject, ops: Mapping[str, str]
    ) -> JsonObject | None:
        """`StepDone.reduced` for an update: what a fold without the reducers' code could not compute."""
        schema = activation.frame.plan.schema
        names = [
            name
            for name, entry in schema.fields.items()
            if not entry.portable and (activation.merged or name in update)
        ]
        if not names:
            return None
        return schema.reduced(activation.frame.stepped(activation, update, ops).values, names)

    def refuse(self, activation: Activation) -> tuple[str, str] | None:
        """The limit (name, path of its graph) that forbids this activation a further call, if any does."""
        for frame in self._chain(activation):
            if frame.after:
                continue
            limits = frame.limits
            if limits.calls is not None and frame.calls >= limits.calls:
                return "calls", frame.path
            if limits.tokens is not None and frame.tokens >= limits.tokens:
                return "tokens", frame.path
            if limits.cost is not None and frame.cost >= limits.cost:
                return "cost", frame.path
        return None

    def limits_left(self, activation: Activation) -> LimitsLeft:
        """What is left for this activation: of each limit, the least of all graphs around it."""
        left: dict[str, float] = {}

        def note(name: str, most: float | None, spent: float) -> None:
            if most is not None:
                left[name] = min(left.get(name, most), max(0, most - spent))

        for frame in self._chain(activation):
            limits: Limits = frame.limits
            note("steps", limits.steps, frame.steps)
            note("seconds", limits.seconds, self.seconds - frame.began)
            note("tokens", limits.tokens, frame.tokens)
            note("cost", limits.cost, frame.cost)
            note("calls", limits.calls, frame.calls)
        return LimitsLeft.model_validate(left)

    def seconds_left(self) -> list[tuple[str, float]]:
        """(path of a graph, seconds alive that are left to it) for graphs that have such a limit and still count."""
        found = []
        for frame in self.frames():
            most = frame.limits.seconds
            if most is not None and not frame.after and frame.exhausting is None and frame.result is None:
                found.append((frame.path, most - (self.seconds - frame.began)))
        return found

    def effects(self, activation: str) -> tuple[EffectEntry, ...]:
        """The effects of an activation that is not done, of all its attempts."""
        return self.ledger.of(activation)

    def knows_message(self, digest: str) -> bool:
        """Whether the journal holds this message already."""
        return self.ledger.knows_message(digest)

    def frames(self) -> Iterator[Frame]:
        """The graphs that run, the outermost first."""
        if self.root is not None:
            yield self.root
        yield from list(self._inner.values())

    def values(self) -> JsonObject:
        """The trunk's state as plain JSON; of an ended run its final state."""
        if self.root is None:
            return {}
        values = self.root.result.values if self.root.result is not None else self.root.trunk().values
        return self.plan.schema.dump(values)

    def branches(self) -> list[Branch]:
        """All live tokens, those of nested graphs after the ones of the graph around them."""
        return [
            Branch(token.path, token.node, token.phase.value, frame.plan.schema.dump(token.version.values))
            for frame in self.frames()
            for token in frame.live.values()
        ]

    def _chain(self, activation: Activation) -> list[Frame]:
        """The graphs around an activation, its own first."""
        frame = activation.frame
        if frame.parent is None:
            return [frame]
        chain = [frame]
        while frame.parent is not None:
            frame = frame.parent.frame
            chain.append(frame)
        return chain

    def _chain_of(self, key: str) -> list[Frame]:
        activation = self.running.get(key)
        if activation is not None:
            return self._chain(activation)
        return [self.root] if self.root is not None else []


_HANDLERS: dict[str, Callable[[Machine, object], None]] = {
    "run_started": Machine._run_started,  # type: ignore[dict-item]
    "step_done": Machine._step_done,  # type: ignore[dict-item]
    "step_failed": Machine._step_failed,  # type: ignore[dict-item]
    "step_retried": Machine._step_retried,  # type: ignore[dict-item]
    "graph_opened": Machine._graph_opened,  # type: ignore[dict-item]
    "effect_intended": Machine._effect_intended,  # type: ignore[dict-item]
    "effect_settled": Machine._effect_settled,  # type: ignore[dict-item]
    "asked": Machine._asked_record,  # type: ignore[dict-item]
    "answered": Machine._answered,  # type: ignore[dict-item]
    "paused": Machine._paused,  # type: ignore[dict-item]
    "resumed": Machine._resumed,  # type: ignore[dict-item]
    "cancelled": Machine._cancelled,  # type: ignore[dict-item]
    "limit_spent": Machine._limit_spent,  # type: ignore[dict-item]
    "limits_changed": Machine._limits_changed,  # type: ignore[dict-item]
    "forked": Machine._forked,  # type: ignore[dict-item]
    "migrated": Machine._migrated,  # type: ignore[dict-item]
    "ended": Machine._ended_record,  # type: ignore[dict-item]
}


def fold(machine: Machine, record: r.Record) -> Machine:
    """The machine after one more record; the one given stays as it is.

    Raises:
        StoreCorrupt: the record does not follow the ones before it.
    """
    following = machine.copy()
    following.apply(record)
    return following

"""The fold: what a run is, after the records so far.

`fold(machine, record)` is pure: it gives a new machine and leaves the old one as it was. `Machine.apply` does
the same in place and says what began and what must stop; an executor owns one machine per run and only ever
applies. Nothing here does input or output, reads a clock or draws a random number: time and ids come in
through the records, so the same records always give the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

from orchestrator.errors import OrchestratorError, StoreCorrupt
from orchestrator.graph.limits import Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.admission import Delta
from orchestrator.kernel.frame import Frame, FrameResult
from orchestrator.kernel.inquiry import Branch, Inquiry
from orchestrator.kernel.ledger import LASTING
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Question
from orchestrator.kernel.token import Activation, Phase, mix

__all__ = ["PAUSE", "Branch", "Delta", "Machine", "fold"]

PAUSE = "pause"
"""The id of the question that an outside pause puts."""

_NO_USAGE = Usage()


class Machine(Inquiry):
    """One run, folded up to `head`. Read its attributes, change it by `apply` only."""

    frame_type: ClassVar[type[Frame]] = Frame
    """What its graphs run in."""

    # -- the fold ---------------------------------------------------------------------------------------------

    def apply(self, record: r.Record) -> Delta:
        """Fold one record in, in place.

        Raises:
            StoreCorrupt: the record does not follow the ones before it; nothing was changed.
        """
        kind, seq, ts = record.type, record.seq, record.ts
        if seq != self.head + 1:
            raise StoreCorrupt(self.run_id, seq, f"it follows record {self.head}")
        if (self.root is None) != (kind == "run_started"):
            raise StoreCorrupt(self.run_id, seq, f"a journal begins with run_started, this is {kind}")
        delta = self._delta = Delta()
        if self._awake and ts > self.updated and kind != "resumed":
            self.seconds += ts - self.updated
        self.head, self.updated = seq, ts
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, record)
        if self._ready or self._spent:
            self._admit()
        self._awake = bool(self.running)
        return delta

    def copy(self) -> Machine:
        """An independent machine in the same place. Versions, plans and records are shared: they never change."""
        return deepcopy(self)

    def dump(self) -> dict[str, Any]:
        """A snapshot of this machine as plain JSON (see `orchestrator.kernel.snapshot`)."""
        from orchestrator.kernel.snapshot import snapshot

        return snapshot(self)

    @classmethod
    def load(cls, plan: Plan, data: Mapping[str, Any]) -> Machine:
        """The machine of a snapshot.

        Raises:
            ValueError: the snapshot has another format; fold the records instead.
        """
        from orchestrator.kernel.snapshot import restore

        return restore(plan, data)

    def _run_started(self, record: r.RunStarted) -> None:
        self.started, self.approve, self.content = record, record.approve, record.content
        self.tools = record.tools
        values = self.plan.schema.decode(record.values)
        self.root = self.frame_type(self.plan, mix(record.run_id), values, self)
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
        if self._held:
            held = self.running.get(record.activation)
            if held is not None:
                self._release(held)
        self.ledger.forget(record.activation)
        activation = self._stop(record.activation)
        if activation is None:
            return None
        activation.frame.tally.busy[record.node] += record.ended - record.started
        return activation

    def _step_retried(self, record: r.StepRetried) -> None:
        activation = self.running.get(record.activation)
        if activation is not None:
            activation.attempt = record.attempt + 1
            activation.not_before = record.next_at
            activation.pause = max(0.0, record.next_at - record.ended)
            activation.child = None
            activation.opened = False

    def _graph_opened(self, record: r.GraphOpened) -> None:
        activation = self.running.get(record.activation)
        plan = None if activation is None else activation.frame.plan.sub.get(activation.node)
        if activation is None or plan is None:
            return
        self._stop(activation.key)
        activation.phase, activation.opened = Phase.INSIDE, True
        key = mix(activation.key, str(activation.attempt), "inside")
        frame = self.frame_type(plan, key, plan.schema.decode(record.values), self, activation)
        self._inner[activation.key] = frame
        self._begin(frame)

    def _effect_intended(self, record: r.EffectIntended) -> None:
        if record.effect == "irreversible":
            self._lasts(record.key, record.activation, True)
        new = self.ledger.intend(record)
        if record.reserve is not None:
            self._hold(record.key, self._line_of(record.activation), record.reserve)
        if not new or record.kind == "effect":
            return
        self._calls += 1
        for frame in self._chain_of(record.activation):
            frame.calls += 1

    def _effect_settled(self, record: r.EffectSettled) -> None:
        if self.ledger.entry(record.key) is not None:
            self._lasts(record.key, record.activation, record.ok or record.unknown)
            if _tells_of_lasting(record):
                for frame in self._chain_of(record.activation):
                    frame.lasting += 1
        self.ledger.settle(record)
        if record.key in self._held:
            self._hold(record.key, self._line_of(record.activation), None)
        usage = record.usage
        if usage is not None:
            self._longest = max(self._longest, usage.output_tokens)
            self._dearest = max(self._dearest or 0.0, usage.cost)
            self._input_tokens += usage.input_tokens
            self._output_tokens += usage.output_tokens
            self._cost += usage.cost
            self._estimated = self._estimated or usage.estimated
            for frame in self._chain_of(record.activation):
                frame.tokens += usage.tokens
                frame.cost += usage.cost

    def _spent_inside(self, record: r.Spent) -> None:
        entry = self.ledger.entry(record.key)
        if entry is None:  # the step that called it is over: what its run does now is not shared any more
            return
        before, now = entry.inside or _NO_USAGE, record.usage
        entry.inside = now
        calls, tokens, cost = now.calls - before.calls, now.tokens - before.tokens, now.cost - before.cost
        self._calls += calls
        self._input_tokens += now.input_tokens - before.input_tokens
        self._output_tokens += now.output_tokens - before.output_tokens
        self._cost += cost
        self._estimated = self._estimated or now.estimated
        line = self._line_of(record.activation)
        for frame in line or self._chain_of(record.activation):
            frame.calls += calls
            frame.tokens += tokens
            frame.cost += cost
        self._hold(record.key, line, record.reserve)

    def _lasts(self, key: str, activation: str, lasts: bool) -> None:
        """Count an irreversible effect that may have happened from now on, or one that is known not to have."""
        known = self.ledger.entry(key)
        if known is not None and known.intended.effect != "irreversible":
            return
        before = known is not None and known.may_have_happened
        if lasts != before:
            for frame in self._chain_of(activation):
                frame.lasting += 1 if lasts else -1

    def _asked_record(self, record: r.Asked) -> None:
        activation = self.running.get(record.activation)
        if activation is None:
            return
        self._stop(activation.key)
        activation.phase = Phase.ASKING
        self.questions[record.question.id] = record.question
        if record.question.deadline is not None:
            self.asked_at[record.question.id] = record.ts
        self._asked[record.question.id] = activation

    def _answered(self, record: r.Answered) -> None:
        if self.questions.pop(record.question, None) is None:
            return
        self.asked_at.pop(record.question, None)
        if record.question == PAUSE:
            self._unpause()
            return
        activation = self._asked.pop(record.question)
        activation.answers = {**activation.answers, record.question: record}
        activation.phase = Phase.QUEUED
        activation.frame.queue.append(activation)
        self._mark(activation.frame)

    def _answers_withdrawn(self, record: r.AnswersWithdrawn) -> None:
        if record.policy:
            self.approve = None
        withdrawn = frozenset(record.questions)
        for frame in self.frames():
            for token in frame.live.values():
                kept = {name: answer for name, answer in token.answers.items() if name not in withdrawn}
                if len(kept) < len(token.answers):
                    token.answers = kept
                    token.withdrawn += 1

    def _paused(self, record: r.Paused) -> None:
        if self.result is not None:
            return
        self.paused = True
        prompt = f"paused{f' by {record.by}' if record.by else ''}{f': {record.reason}' if record.reason else ''}"
        self.questions[PAUSE] = Question(id=PAUSE, kind="pause", node="", prompt=prompt)

    def _resumed(self, record: r.Resumed) -> None:
        self._release_all()
        if record.content is not None:
            self.content = record.content
        if record.tools is not None:
            self.tools = record.tools
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
        frames = refused.frame.line if refused is not None else self.frames()
        frame = next((f for f in frames if f.path == record.frame), None)
        if frame is None or frame.result is not None:
            return
        if refused is not None:
            self._set_aside(refused)
        elif record.limit == "seconds":
            # Time is up now, not when the slowest step pleases to end.
            for activation in [a for a in self.running.values() if frame in a.frame.line]:
                self._set_aside(activation)
                self._delta.cancelled.append(activation)
        frame.exhaust(record.limit, "" if refused is None else refused.node)
        self._spent.append(frame)

    def _timer_fired(self, record: r.TimerFired) -> None:
        frame = self._inner.get(record.activation)
        if record.name == r.TIMEOUT and frame is not None:
            # Time is up now, as for a limit in seconds: what runs inside is stopped, questions inside are withdrawn.
            frame.finish(FrameResult("failed", frame.trunk().values, record.error))

    def _set_aside(self, activation: Activation) -> None:
        self._stop(activation.key)
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
        if self.root is not None and self.root.result is not None and record.reduced:
            values = {**self.root.result.values, **self.plan.schema.decode(record.reduced)}
            self.root.result = replace(self.root.result, values=values)
        self.questions.clear()


_HANDLERS: dict[str, Callable[[Machine, Any], None]] = {
    "run_started": Machine._run_started,
    "step_done": Machine._step_done,
    "step_failed": Machine._step_failed,
    "step_retried": Machine._step_retried,
    "graph_opened": Machine._graph_opened,
    "effect_intended": Machine._effect_intended,
    "effect_settled": Machine._effect_settled,
    "asked": Machine._asked_record,
    "answered": Machine._answered,
    "answers_withdrawn": Machine._answers_withdrawn,
    "timer_fired": Machine._timer_fired,
    "paused": Machine._paused,
    "resumed": Machine._resumed,
    "cancelled": Machine._cancelled,
    "limit_spent": Machine._limit_spent,
    "spent": Machine._spent_inside,
    "limits_changed": Machine._limits_changed,
    "forked": Machine._forked,
    "migrated": Machine._migrated,
    "ended": Machine._ended_record,
}


def fold(machine: Machine, record: r.Record) -> Machine:
    """The machine after one more record; the one given stays as it is.

    Raises:
        StoreCorrupt: the record does not follow the ones before it.
    """
    following = machine.copy()
    following.apply(record)
    return following


_MISFITS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def apply_stored(machine: Machine, record: r.Record) -> Delta:
    """Fold in a record that was read from a store, and that any program may have written.

    Raises:
        StoreCorrupt: the record does not fit the run, so no executor wrote it.
    """
    try:
        return machine.apply(record)
    except OrchestratorError:
        raise
    except _MISFITS as error:
        why = f"it does not fit the run: {type(error).__name__}: {str(error)[:200]}"
        raise StoreCorrupt(machine.run_id, record.seq, why) from error


def _tells_of_lasting(record: r.EffectSettled) -> bool:
    """Whether a graph that was called as a tool did something irreversible in its own run."""
    told = record.result.get("metadata") if isinstance(record.result, Mapping) else None
    return isinstance(told, Mapping) and bool(told.get(LASTING))

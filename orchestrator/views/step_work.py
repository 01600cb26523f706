"""Work of steps that several folds count: calls with results, questions, and working time.

A kind of node declares what its steps ask (`Node.asks`). A step of it may have nothing to ask: the risk of a call needs
no approval, or there is only one tool to choose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.graph.model import Asked
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import EffectIntended, EffectSettled, failed_result

CallState: TypeAlias = Literal["running", "retrying", "done", "failed", "unknown"]
NO_USAGE = Usage()


@dataclass(slots=True)
class JournaledCall:
    """A call of a model, a tool or a function."""

    intended: EffectIntended
    """The first intent."""
    begun: float
    """Unix seconds of the last intent: a call that a crash cut off is intended again."""
    settled: EffectSettled | None = None
    """The last result; for an active call that of the previous attempt, if any."""
    running: bool = True
    usage: Usage = NO_USAGE
    """Usage of the last attempt with a usage."""

    def begin(self, ts: float) -> None:
        """Record a new intent, after a crash or for another attempt."""
        self.begun, self.running = ts, True

    def settle(self, record: EffectSettled) -> None:
        """Record the result."""
        self.settled, self.running, self.usage = record, False, record.usage or self.usage

    @property
    def started(self) -> float:
        """Start time in Unix seconds."""
        return self.settled.started if self.settled is not None and self.settled.started else self.intended.ts

    @property
    def ended(self) -> float | None:
        """End time in Unix seconds; None if it has not ended."""
        settled = self.settled
        return None if settled is None or settled.next_at is not None else settled.ended or settled.ts

    @property
    def fault(self) -> str:
        """Error of a failed call; empty otherwise."""
        settled = self.settled
        if settled is None:
            return ""
        failure = failed_result(settled.result) if self.intended.kind == "tool" and settled.ok else None
        return failure or ("" if settled.error is None else str(settled.error))

    @property
    def state(self) -> CallState:
        """State of the call."""
        settled = self.settled
        if self.running or settled is None or settled.secret:
            return "running"
        if settled.next_at is not None:
            return "retrying"
        return "unknown" if settled.unknown else "failed" if self.fault or not settled.ok else "done"


Unasked: TypeAlias = Literal["passed", "reviewed", "no call", ""]
"""State of a step that ended without asking; empty: it asked, or its kind asks nothing. `reviewed`: a model decided
where a person is asked.
"""
_WORDS: dict[Asked, Unasked] = {"person": "passed", "model": "no call"}
_BY_A_PERSON = ("approval", "input")
"""Kinds of questions that a node of a kind with `asks = "person"` asks."""


def asked_at(plan: Plan | None, node: str) -> Asked | None:
    """Return `Node.asks` of a node, if it is known; the node's code is not needed."""
    found = None if plan is None or plan.graph is None else plan.graph.nodes.get(node)
    return None if found is None else found._asks


class AskTracker:
    """Counts the requests of each step, from its records: calls of models, and questions that no rule answered.

    A call that a crash cut off and that was made again is one call. Calls inside tool calls do not count.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[Asked, set[str]]] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self._asked: set[str] = set()
        """Steps that asked what their kind asks, also in failed attempts."""
        self._reviewed: set[str] = set()
        """Steps of a kind that asks a person, in which a model was called and no question was asked."""
        self._askers: dict[str, str] = {}

    def note(self, record: r.Record) -> None:
        """Take a record into account."""
        if isinstance(record, r.EffectIntended):
            if record.kind == "model" and not record.inside and not record.again:
                self._add(record, "model", record.key)
        elif isinstance(record, r.Asked):
            if record.question.kind in _BY_A_PERSON:
                self._add(record, "person", record.question.id)
                self._askers[record.question.id] = record.activation
        elif isinstance(record, r.Answered):
            asker = self._askers.pop(record.question, None)
            if asker is not None and record.policy and isinstance(record.answer, Approve):
                self._found.get(asker, {}).get("person", set()).discard(record.question)

    def settle(self, activation: str, asks: Asked | None) -> int:
        """Return how often a step has asked since its start, or since the previous call; `asks`: what its kind asks."""
        found = self._found.pop(activation, {})
        self._places.pop(activation, None)
        asked = 0 if asks is None else len(found.get(asks, ()))
        if asks == "person" and found.get("model") and "person" not in found:
            self._reviewed.add(activation)
        if asked:
            self._asked.add(activation)
        return asked

    def unasked(self, activation: str, asks: Asked | None) -> Unasked:
        """Return the `Unasked` of an ended step; `asks`: what its kind asks."""
        self.settle(activation, asks)
        if asks is None or activation in self._asked:
            return ""
        return "reviewed" if activation in self._reviewed else _WORDS[asks]

    def open(self) -> list[tuple[str, tuple[str, str]]]:
        """Return the steps that asked and were not settled: activation, and its path and node."""
        return list(self._places.items())

    def _add(self, record: r.EffectIntended | r.Asked, asked: Asked, key: str) -> None:
        self._found.setdefault(record.activation, {}).setdefault(asked, set()).add(key)
        self._places[record.activation] = record.path, record.node


def working_time(start: float, end: float, idle: Iterable[tuple[float, float]]) -> float:
    """Return the seconds from start to end that no idle span covers. Idle spans may overlap."""
    total, reached = end - start, start
    for began, ended in sorted(idle):
        began, ended = max(began, reached), min(ended, end)
        if ended > began:
            total, reached = total - (ended - began), ended
    return max(0.0, total)


class WorkTime:
    """Records when a run was idle: paused, crashed, or only waiting for answers."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []
        self._waits: dict[str, list[tuple[float, float]]] = {}

    def gap(self, begin: float, end: float) -> None:
        """Add a gap between the times of two records, in which the run was idle. Gaps are added in order."""
        if end > begin:
            self._gaps.append((begin, end))

    def waited(self, activation: str, begin: float, end: float) -> None:
        """Add a time in which an activation waited for an answer."""
        self._waits.setdefault(activation, []).append((begin, end))

    def forget(self, activation: str) -> Sequence[tuple[float, float]]:
        """Forget an activation that ended. Returns its waits."""
        return self._waits.pop(activation, ())

    def worked(self, activation: str, started: float, ended: float) -> float:
        """Return the seconds that an ended activation worked. Its waits are forgotten."""
        first = bisect_left(self._gaps, started, key=lambda gap: gap[1])
        return working_time(started, ended, (*self.forget(activation), *self._gaps[first:]))

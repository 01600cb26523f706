"""A step as data of a page. Other steps in it are named by the numbers of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.kernel.question import parts_of
from orchestrator.render.html.call_data import CallData, usage_data
from orchestrator.render.html.clean_data import clean, clean_patch
from orchestrator.render.html.transitions import TransitionEdges
from orchestrator.views.call_questions import outcome_choices, outcome_title
from orchestrator.views.explainer import Explainer
from orchestrator.views.safe_text import told
from orchestrator.views.states import States
from orchestrator.views.step_names import MapGroups, step_name
from orchestrator.views.step_work import JournaledCall
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow

_NUMBERS = ("up", "base")
"""Parts that name another step: they are there also if they are 0."""


class StepData:
    """Writes steps as plain JSON, without their working time and their calls.

    Args:
        rows: the run's timeline.
        states: its states.
        edges: names its edges.
        maps: its maps.
        parts: (place, node) -> id of the node in the picture.
        at: a moment in Unix seconds as milliseconds since the run's start.
    """

    def __init__(
        self,
        rows: Timeline,
        states: States,
        edges: TransitionEdges,
        maps: MapGroups,
        parts: Mapping[tuple[str, str], str],
        at: Callable[[float], int],
    ) -> None:
        self._rows, self._states, self._edges, self._maps = rows, states, edges, maps
        self._parts, self._at = parts, at

    def write(self, row: TimelineRow, explainer: Explainer) -> dict[str, Any]:
        """One step."""
        why, name = explainer.why(row), step_name(row)
        step: dict[str, Any] = {
            "node": told(row.node, 80),
            "name": [name.what, name.about, name.where],
            "part": self._parts.get((row.place, row.node), ""),
            "began": row.began,
            "t": [self._at(row.started), None if row.ended is None else self._at(row.ended)],
            "status": why.status,
            "came": why.came,
        }
        optional: dict[str, Any] = {
            "path": told(row.path, 200),
            "seq": row.seq,
            "up": row.parent,
            "depth": row.depth,
            "outcome": told(row.outcome, 80),
            "went": why.went,
            "map": self._maps.places.get(row.activation),
            "attempt": row.attempt if row.attempt > 1 else None,
            "failed": row.failed,
            "cached": row.cached or None,
            "unasked": row.unasked,
            "error": told(str(row.error), 2000) if row.error is not None else None,
            "retries": [[one.attempt, told(str(one.error), 1000)] for one in row.failures],
            "waits": [[w.why, self._at(w.start), None if w.end is None else self._at(w.end)] for w in row.waits],
            "asked": [self._asked(one) for one in row.asked],
            "usage": usage_data(row.usage),
        } | self._edges.of(row)
        state = self._states.steps.get(row.activation)
        if state is not None:
            base = -1 - state.base if isinstance(state.base, int) else self._number(state.base)
            optional |= {"base": base, "merged": clean_patch(state.merged), "patch": clean_patch(state.patch)}
        return step | {
            name: value for name, value in optional.items() if value or (name in _NUMBERS and value is not None)
        }

    def _number(self, activation: str) -> int | None:
        row = self._rows.by_activation.get(activation)
        return None if row is None else row.number

    def _asked(self, one: AskedQuestion) -> dict[str, object]:
        question = one.question
        said: dict[str, object] = {
            "seq": one.seq,
            "kind": question.kind,
            "prompt": clean(question.prompt),
        }
        call, shown = parts_of(question.kind, question.match if question.kind == "event" else question.payload)
        said |= {name: clean(part) for name, part in (("call", call), ("shown", shown)) if part}
        outcomes = outcome_choices(question)
        if outcomes:
            said |= {
                "title": told(outcome_title(question.payload), 80),
                "outcomes": {way.choice: way.label for way in outcomes},
            }
        if one.answer is not None:
            said["answer"] = clean(one.answer.model_dump(mode="json"))
            said |= {"by": "a rule" if one.policy else told(one.by, 80), "answered": one.answered}
        return said


class StepCalls:
    """The calls of one step as plain JSON, with the version in which each changed last."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._versions: list[int] = []
        self._settled: list[object] = []

    def update(self, calls: list[JournaledCall], data: CallData, version: int) -> bool:
        """Write calls that are new, or that have another result than before. Returns whether there are any."""
        changed = False
        for number, call in enumerate(calls):
            if number < len(self.written):
                if self._settled[number] is call.settled:
                    continue
                self.written[number], self._settled[number] = data.write(call), call.settled
                self._versions[number] = version
            else:
                self.written.append(data.write(call))
                self._settled.append(call.settled)
                self._versions.append(version)
            changed = True
        return changed

    def since(self, version: int) -> tuple[int, list[dict[str, Any]]]:
        """How many calls a reader of a version has as they are, and those behind them."""
        first = next((at for at, changed in enumerate(self._versions) if changed > version), len(self.written))
        return first, self.written[first:]

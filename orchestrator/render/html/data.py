"""A run as the one JSON document that a page is made from. Whatever strangers said in it is blanked and bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.kernel.records import Record, Resumed, RunStarted
from orchestrator.render.html.call_data import CallData, usage_data
from orchestrator.render.html.clean_data import clean, clean_patch
from orchestrator.render.html.transitions import TransitionEdges
from orchestrator.render.moments import RUN, Moment, Replay, mark_json, replay
from orchestrator.render.overlaid import CLASSES, STATUSES, Mark, node_mark, status_mark
from orchestrator.views.activity import idle_spans, nested, working_seconds
from orchestrator.views.causes import Causes
from orchestrator.views.explainer import Explainer
from orchestrator.views.map_groups import MapGroup, MapGroups
from orchestrator.views.run import Run
from orchestrator.views.safe_text import told
from orchestrator.views.states import StateDelta, States
from orchestrator.views.step_names import item_name, step_name
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow


def run_data(run: Run) -> tuple[dict[str, Any], Replay]:
    """What a page shows of a run, and its pictures. Reads the run's records, and blocks meanwhile."""
    records = run.records()
    causes, kept = Causes(), States()
    rows = Timeline(causes)
    replayed = replay(run.definition, records, causes, rows, kept, plan=run.plan)
    if run.status == "interrupted":
        replayed = _abandoned(replayed, run)
    return _PageWriter(run, records, rows, replayed).data(kept), replayed


def _abandoned(replayed: Replay, run: Run) -> Replay:
    """The pictures of a run that nobody drives: its journal does not say so, its lease does. It is so at its end."""
    last = replace(replayed.last, status=run.status)
    before = replayed.at(run.seq)
    marks = {RUN: status_mark(last)}
    for part in replayed.drawing.by_key.values():
        if not part.terminal:
            marks[part.id] = node_mark(last, part.path, part.name, part.asks)
    changed = {part: mark for part, mark in marks.items() if before.get(part, Mark()) != mark}
    end = Moment(run.seq, run.machine.updated, changed)
    return replace(replayed, last=last, moments=(*replayed.moments, end))


class _PageWriter:
    def __init__(self, run: Run, records: Sequence[Record], rows: Timeline, replayed: Replay) -> None:
        self.run, self.records, self.rows, self.replayed = run, records, rows, replayed
        self.explainer = Explainer(rows, run)
        self.calls = CallData(self._at)
        self.edges = TransitionEdges(run.definition, replayed.drawing, rows.causes)
        self.maps = MapGroups(rows)
        self.worked = working_seconds(rows)

    def data(self, kept: States) -> dict[str, Any]:
        run, rows = self.run, self.rows
        ordered = nested(rows.rows)
        numbers = {row.activation: number for number, row in enumerate(ordered)}
        parts = {(mark.path, mark.name): mark.id for mark in self.replayed.drawing.by_key.values()}
        kinds = {mark.id: mark.kind for mark in self.replayed.drawing.by_key.values()}
        steps = [self._step(row, kept.steps.get(row.activation), numbers, parts) for row in ordered]
        types = list(dict.fromkeys(record.type for record in self.records))
        return {
            "run": told(run.run_id, 200),
            "graph": told(run.graph, 80),
            "status": run.status,
            "why": self.explainer.run_reason(),
            "head": run.seq,
            "start": rows.start,
            "seconds": round(run.seconds, 6),
            "counted": run.steps,
            "usage": usage_data(run.usage),
            "labels": clean(dict(run.labels)),
            "output": clean(run.output),
            "error": told(str(run.error), 2000) if run.error is not None else None,
            "question": self._question(),
            "driver": self._driver(),
            "limits": self._limits(),
            "waiting": [told(f"{one.kind}: {one.prompt}", 300) for one in run.waiting],
            "final": clean(run.values),
            "types": types,
            "records": [[self._at(one.ts), types.index(one.type)] for one in self.records],
            "steps": steps,
            "kinds": kinds,
            "edges": self.edges.texts,
            "began": self.edges.beginnings(),
            "maps": [self._map(group, numbers) for group in self.maps.groups],
            "whole": [clean(state) for state in kept.whole],
            "messages": self.calls.messages,
            "offers": self.calls.offers,
            "idle": [[self._at(start), self._at(end)] for start, end in idle_spans(rows)],
            "picture": {
                "classes": [*CLASSES, *STATUSES],
                "start": {part: mark_json(mark) for part, mark in self.replayed.start.items()},
                "moments": [moment.to_json() for moment in self.replayed.moments],
            },
        }

    def _at(self, ts: float) -> int:
        """A moment as whole milliseconds since the run's start."""
        return round((ts - self.rows.start) * 1000)

    def _step(
        self,
        row: TimelineRow,
        state: StateDelta | None,
        numbers: Mapping[str, int],
        parts: Mapping[tuple[str, str], str],
    ) -> dict[str, object]:
        why, name = self.explainer.why(row), step_name(row)
        step: dict[str, object] = {
            "node": told(row.node, 80),
            "name": [name.what, name.about, name.where],
            "part": parts.get((row.place, row.node), ""),
            "began": row.began,
            "t": [self._at(row.started), None if row.ended is None else self._at(row.ended)],
            "work": round(self.worked[row.number], 6),
            "status": why.status,
            "came": why.came,
        }
        optional = {
            "path": told(row.path, 200),
            "seq": row.seq,
            "up": None if row.parent is None else numbers[self.rows.rows[row.parent].activation],
            "depth": row.depth,
            "outcome": told(row.outcome, 80),
            "went": why.went,
            "map": self.maps.places.get(row.activation),
            "attempt": row.attempt if row.attempt > 1 else None,
            "failed": row.failed,
            "cached": row.cached or None,
            "unasked": row.unasked,
            "error": told(str(row.error), 2000) if row.error is not None else None,
            "retries": [[one.attempt, told(str(one.error), 1000)] for one in row.failures],
            "waits": [[w.why, self._at(w.start), None if w.end is None else self._at(w.end)] for w in row.waits],
            "asked": [self._asked(one) for one in row.asked],
            "calls": [self.calls.write(one) for one in row.calls],
            "usage": usage_data(row.usage),
        } | self.edges.of(row)
        if state is not None:
            base = numbers.get(state.base) if isinstance(state.base, str) else -1 - state.base
            optional |= {"base": base, "merged": clean_patch(state.merged), "patch": clean_patch(state.patch)}
        return step | {
            name: value for name, value in optional.items() if value or (name in ("up", "base") and value == 0)
        }

    def _map(self, group: MapGroup, numbers: Mapping[str, int]) -> dict[str, object]:
        return {
            "source": numbers.get(group.source),
            "each": told(group.each, 80),
            "target": told(group.target, 80),
            "count": group.count,
            "around": group.around,
            "items": {number: item_name(item) for number, item in group.items.items()},
        }

    def _question(self) -> object:
        """The run's input: the value of its input field, or the fields that it began with."""
        first = next((one for one in self.records if isinstance(one, RunStarted)), None)
        if first is None:
            return None
        given, names = first.values, self.run.definition.input
        if isinstance(names, str):
            return clean({names: given[names]})[names] if names in given else None
        found = given if names is None else {name: given[name] for name in names if name in given}
        return clean({name: value for name, value in found.items() if value not in (None, "", [], {})}) or None

    def _driver(self) -> str:
        """The process that drives the run, as far as its journal says."""
        if self.run.status != "running":
            return ""
        drives = [one.holder for one in self.records if isinstance(one, RunStarted | Resumed) and one.holder]
        return told(drives[-1], 80) if drives else ""

    def _limits(self) -> dict[str, object]:
        root = self.run.machine.root
        given = {} if root is None else root.limits.model_dump(mode="json", exclude_none=True)
        return {name: given[name] for name in ("steps", "seconds", "tokens", "cost", "calls") if name in given}

    def _asked(self, one: AskedQuestion) -> dict[str, object]:
        question = one.question
        said: dict[str, object] = {
            "seq": one.seq,
            "kind": question.kind,
            "prompt": clean(question.prompt),
            "payload": clean((question.match or None) if question.kind == "event" else question.payload),
        }
        if one.answer is not None:
            said["answer"] = clean(one.answer.model_dump(mode="json"))
            said |= {"by": "a rule" if one.policy else told(one.by, 80), "answered": one.answered}
        return said

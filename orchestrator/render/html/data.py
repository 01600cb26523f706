"""A run as the one JSON document that a page is made from. Whatever strangers said in it is blanked and bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.graph.limits import Usage
from orchestrator.jsontypes import digest
from orchestrator.kernel.records import Record, failed_result
from orchestrator.redaction import redact, redacted
from orchestrator.render.moments import RUN, Moment, Replay, mark_json, replay
from orchestrator.render.overlaid import Mark, node_mark, status_mark
from orchestrator.views.activity import idle_spans, nested, working_seconds
from orchestrator.views.calls import JournaledCall
from orchestrator.views.causes import Causes
from orchestrator.views.explainer import Explainer
from orchestrator.views.run import Run
from orchestrator.views.safe_text import BEHIND, told
from orchestrator.views.states import StateDelta, States
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow

LONGEST = 50_000
"""Characters of one text that a page keeps."""
_EXACT = 2**53
"""Above it numbers lose digits in a browser."""


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
        self.messages: dict[str, object] = {}
        """Digest -> message: each is told once, as in the journal."""
        self.offers: dict[str, object] = {}
        """Digest -> tools that a model was offered."""
        self.worked = working_seconds(rows)
        self.kinds: dict[str, str] = {}
        """Key of a call's record -> its name, for calls inside calls."""

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
            "usage": _usage(run.usage),
            "labels": clean(dict(run.labels)),
            "output": clean(run.output),
            "error": told(str(run.error), 2000) if run.error is not None else None,
            "waiting": [told(f"{one.kind}: {one.prompt}", 300) for one in run.waiting],
            "final": clean(run.values),
            "types": types,
            "records": [[self._at(one.ts), types.index(one.type)] for one in self.records],
            "steps": steps,
            "kinds": kinds,
            "whole": [clean(state) for state in kept.whole],
            "messages": self.messages,
            "offers": self.offers,
            "idle": [[self._at(start), self._at(end)] for start, end in idle_spans(rows)],
            "picture": {
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
        why = self.explainer.why(row)
        step: dict[str, object] = {
            "node": told(row.node, 80),
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
            "left": list(why.not_taken),
            "attempt": row.attempt if row.attempt > 1 else None,
            "failed": row.failed,
            "cached": row.cached or None,
            "unasked": row.unasked,
            "error": told(str(row.error), 2000) if row.error is not None else None,
            "retries": [[one.attempt, told(str(one.error), 1000)] for one in row.failures],
            "waits": [[w.why, self._at(w.start), None if w.end is None else self._at(w.end)] for w in row.waits],
            "asked": [self._asked(one) for one in row.asked],
            "calls": [self._call(one) for one in row.calls],
            "usage": _usage(row.usage),
        }
        if state is not None:
            base = numbers.get(state.base) if isinstance(state.base, str) else -1 - state.base
            optional |= {"base": base, "merged": clean_patch(state.merged), "patch": clean_patch(state.patch)}
        return step | {
            name: value for name, value in optional.items() if value or (name in ("up", "base") and value == 0)
        }

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

    def _call(self, call: JournaledCall) -> dict[str, Any]:
        asked, settled = call.intended, call.settled
        said: dict[str, Any] = {
            "kind": asked.kind,
            "name": told(asked.name, 120),
            "seq": asked.seq,
            "effect": asked.effect,
            "t": [self._at(call.started), None if call.ended is None else self._at(call.ended)],
        }
        self.kinds[asked.key] = said["name"]
        if asked.inside:
            said["inside"] = self.kinds.get(asked.inside, "a call")
        request = dict(asked.request)
        if asked.kind == "model":
            said["messages"] = [self._message(one) for one in _list(request.pop("messages", ()))]
            offered = _list(request.pop("tools", ()))
            if offered:
                name = digest(offered)[:12]
                self.offers.setdefault(name, clean(offered))
                said["offer"] = name
            said["options"] = clean({key: value for key, value in request.items() if value not in (None, {}, [])})
        else:
            said["args"] = clean(request.get("args", request))
        if settled is not None:
            said |= {"settled": settled.seq, "ok": settled.ok}
            if asked.kind == "tool" and settled.ok and failed_result(settled.result) is not None:
                said["failed"] = True
            if settled.result is not None:
                said["result"] = clean(settled.result)
            if settled.error is not None:
                said["error"] = told(str(settled.error), 2000)
            if settled.tries != 1:
                said["tries"] = settled.tries
            if settled.unknown:
                said["unknown"] = True
            if settled.usage is not None:
                said["usage"] = _usage(settled.usage)
        return {name: value for name, value in said.items() if value not in ("", [], {}, None)}

    def _message(self, message: object) -> str:
        if not isinstance(message, Mapping):
            return ""
        name = str(message.get("ref") or message.get("digest") or digest(dict(message)))[:12]
        if "ref" not in message:
            self.messages[name] = clean({key: value for key, value in message.items() if key != "digest" and value})
        return name


def clean(value: object) -> Any:
    """Plain JSON for a page: secrets blanked, texts bounded, numbers that a browser would change written out."""
    return _plain(redacted(value, _text))


def clean_patch(patch: Mapping[str, list[object]]) -> dict[str, Any]:
    """The same of a patch: what a field is called counts for what is put into it."""
    found: dict[str, object] = {}
    for name, (kind, value, *rest) in patch.items():
        said = clean({name: value})
        found[name] = [kind, said[name], *(clean(one) for one in rest)]
    return found


def _text(text: str) -> str:
    if text.startswith("data:") and len(text) > 1000:
        return f"[{told(text[:40].partition(',')[0], 40)}, {len(text):,} characters]"
    if len(text) <= LONGEST:
        return redact(text)
    # Cut first, with what a secret at the cut needs to be known as one.
    start = redact(text[: LONGEST + BEHIND])[:LONGEST]
    return f"{start}… [{len(text) - LONGEST:,} characters more]"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        return str(value)
    return value


def _usage(usage: Usage) -> dict[str, object]:
    found = {"calls": usage.calls, "in": usage.input_tokens, "out": usage.output_tokens, "cost": usage.cost}
    if usage.estimated:
        found["estimated"] = True
    return {name: value for name, value in found.items() if value}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()

"""A run as the data of a page, kept up to date record by record.

    writer = RunWriter(run, records)
    writer.document()               # all of it, as a page that is mailed has it
    version = writer.version
    writer.take(more, now)          # further records, and how the run is loaded behind them
    writer.since(version)           # what is different: costs what these records touched

Whatever strangers said in it is blanked and bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from orchestrator.kernel.records import Migrated, Record, Resumed, RunStarted
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase
from orchestrator.render.html.call_data import CallData, usage_data
from orchestrator.render.html.change_log import ChangeLog, GrowingList, TailList
from orchestrator.render.html.clean_data import LONGEST, clean, clean_patch
from orchestrator.render.html.step_data import StepCalls, StepData
from orchestrator.render.html.touched_rows import TouchedRows
from orchestrator.render.html.transitions import TransitionEdges
from orchestrator.render.html.work_times import IdleSpans, WorkingSeconds
from orchestrator.render.moments import RUN, Live, mark_json
from orchestrator.render.overlaid import CLASSES, STATUSES, Mark, node_mark, status_mark
from orchestrator.values import shown_labels
from orchestrator.views.causes import Causes
from orchestrator.views.overlay import Overlay
from orchestrator.views.run import Run, explainer_of
from orchestrator.views.safe_text import told
from orchestrator.views.states import States, patch_of
from orchestrator.views.step_names import MapGroups, item_name
from orchestrator.views.timeline import Timeline, nested

_FACTS = ("status", "queued", "standby", "archived")
"""What may change of a run without a record."""


class RunWriter:
    """Writes one run.

    Args:
        run: the run.
        records: all its records.

    Attributes:
        run: the run as it was last given.
        version: counts up with each change.
    """

    def __init__(self, run: Run, records: Sequence[Record]) -> None:
        self.run, self.version = run, 0
        causes, self._states = Causes(), States()
        self._rows = Timeline(causes)
        self._touched = TouchedRows(self._rows)
        self._live = Live(run.definition, causes, self._rows, self._states, self._touched, plan=run.plan)
        self._live.expect([record for record in records if isinstance(record, Migrated)])
        drawing = self._live.drawing
        self._calls = CallData(self._at)
        self._edges = TransitionEdges(run.definition, drawing, causes)
        self._maps = MapGroups(self._rows)
        parts = {(mark.path, mark.name): mark.id for mark in drawing.by_key.values()}
        self._data = StepData(self._rows, self._states, self._edges, self._maps, parts, self._at)
        self._worked, self._idle_spans = WorkingSeconds(self._rows), IdleSpans(self._rows)
        self._steps: list[dict[str, Any]] = []
        """By the number of the row, without working times and calls."""
        self._step_calls: list[StepCalls] = []
        self._changes: ChangeLog[int] = ChangeLog()
        self._types: dict[str, int] = {}
        self._records: GrowingList[list[int]] = GrowingList()
        self._moments: GrowingList[list[object]] = GrowingList()
        self._whole: GrowingList[Any] = GrowingList()
        self._messages: GrowingList[str] = GrowingList()
        self._offers: GrowingList[str] = GrowingList()
        self._texts: GrowingList[str] = GrowingList()
        self._items: GrowingList[tuple[int, int]] = GrowingList()
        self._idle: TailList[list[int]] = TailList()
        self._began: dict[str, TailList[int]] = {}
        self._drawn: GrowingList[int] = GrowingList()
        """Plans that the picture has."""
        self._patches: GrowingList[dict[str, Any]] = GrowingList()
        """How the run's state changed."""
        self._values: Mapping[str, object] = {}
        self._output: tuple[int, Any] = 0, None
        self._question: Any = None
        self._holder = ""
        self.take(records, lambda _: run)

    @property
    def machine(self) -> RunState:
        """The run's state after the last record. Only to be read."""
        return self._rows.run

    def overlay(self) -> Overlay:
        """The run as it is, to be laid over a picture of its graph."""
        return self._live.trace.overlay("interrupted" if self.run.status == "interrupted" else None)

    # -- reading --------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record], now: Callable[[RunState], Run]) -> None:
        """Take further records.

        Args:
            records: those behind the ones that it has.
            now: makes a view of the run from its state behind them.

        Raises:
            StoreCorrupt: the records do not follow the ones before.
        """
        before, version = self.run, self.version + 1
        for record in records:
            self._take(record, version)
        first, self.run = not self._steps, now(self.machine)
        moved = any(getattr(before, name) != getattr(self.run, name) for name in _FACTS)
        if not records and not moved and self.version:
            return
        self.version = version
        if moved:
            self._touched.touch(self._rows.live)
        self._settle(self._rows.run.live_tokens() if first else ())
        self._write(version)

    def _take(self, record: Record, version: int) -> None:
        moment = self._live.apply(record)
        if moment.changes:
            self._moments.extend([moment.to_json()], version)
        number = self._types.setdefault(record.type, len(self._types))
        self._records.extend([[self._at(record.ts), number]], version)
        if isinstance(record, RunStarted):
            self._question = self._asked(record)
        if isinstance(record, RunStarted | Resumed) and record.holder:
            self._holder = told(record.holder, 80)

    def _settle(self, tokens: Iterable[Any]) -> None:
        """Rows of steps that wait for answers say so."""
        for token in tokens:
            row = self._rows.live.get(token.key)
            if row is not None and token.phase is Phase.ASKING:
                row.status = "waiting"

    def _write(self, version: int) -> None:
        rows = self._rows
        for row in rows.rows[len(self._steps) :]:
            self._maps.add(row)
            self._steps.append({})
            self._step_calls.append(StepCalls())
            place = self._maps.places.get(row.activation)
            if place is not None and row.item:
                self._items.extend([place], version)
        touched = self._touched.take()
        for number in touched:
            activation = rows.rows[number].activation
            token = self.machine.activation(activation) if activation in rows.live else None
            if token is not None:
                self._settle((token,))
                self._states.before(token)  # a step that has not ended has a state, too
        self._worked.update(touched | {row.number for row in rows.live.values()})
        self._idle_spans.update(touched)
        explainer = explainer_of(self.run, rows)
        for number in sorted(touched):
            row = rows.rows[number]
            step = self._data.write(row, explainer)
            called = self._step_calls[number].update(row.calls, self._calls, version)
            if called or step != self._steps[number]:
                self._steps[number] = step
                self._changes.note(number, version)
        self._why = explainer.run_reason()
        self._note(version)

    def _note(self, version: int) -> None:
        """Take what grew beside the steps."""
        self._whole.extend((clean(state) for state in self._states.whole[len(self._whole.items) :]), version)
        for known, found in (
            (self._messages, self._calls.messages), (self._offers, self._calls.offers), (self._texts, self._edges.texts)
        ):  # fmt: skip
            known.extend(islice(found, len(known.items), None), version)
        self._idle.put([[self._at(start), self._at(end)] for start, end in self._idle_spans.spans()], version)
        for edge, seqs in self._edges.beginnings().items():
            self._began.setdefault(edge, TailList()).put(seqs, version)
        self._drawn.extend(range(len(self._drawn.items), self._live.trace.plans), version)
        root = self.machine.root
        if root is not None:
            values = root.trunk.values if root.result is None else root.result.values
            if self._values is not values:
                patch = patch_of(self.machine.plan.schema, self._values, values) if self.version > 1 else {}
                self._patches.extend([self._state_patch(patch)] if patch else (), version)
                self._values = values
        if self._output[1] is not self.run.output:
            self._output = version, self.run.output

    def _state_patch(self, patch: Mapping[str, list[object]]) -> dict[str, Any]:
        """A change of the run's state. A text is there as a whole: what is cut, or blanked, may begin in its middle."""
        values = self._values
        found = clean_patch({name: part for name, part in patch.items() if part[0] != "+" or not _is_text(part[1])})
        for name, part in patch.items():
            if name not in found:
                text = f"{values[name]}{part[1]}"
                found |= clean_patch({name: ["=", text[: LONGEST * 2]]})
        return found

    # -- writing --------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The whole run. Steps stand in the order of a tree, and are named by their places in it.

        Parts of it are the writer's own: write it down before the writer takes more.
        """
        order = self.order()
        places = {number: place for place, number in enumerate(order)}
        end = self._end()
        return self._head() | {
            "output": clean(self.run.output),
            "question": self._question,
            "final": clean(self.run.values),
            "types": list(self._types),
            "records": self._records.items,
            "steps": [self._placed(number, places) for number in order],
            "kinds": {mark.id: mark.kind for mark in self._live.drawing.by_key.values()},
            "edges": self._edges.texts,
            "began": {edge: found.items for edge, found in self._began.items()},
            "maps": [self._map(number, places) for number in range(len(self._maps.groups))],
            "whole": self._whole.items,
            "messages": self._calls.messages,
            "offers": self._calls.offers,
            "idle": self._idle.items,
            "picture": {
                "classes": [*CLASSES, *STATUSES],
                "start": {},
                "moments": [*self._moments.items, *([end] if end else [])],
                "end": end is not None,
            },
        }

    def order(self) -> list[int]:
        """The numbers of the rows in the order of a tree."""
        return [row.number for row in nested(self._rows.rows)]

    def since(self, version: int) -> dict[str, Any]:
        """What changed behind a version. Steps are named by the numbers of their rows."""
        steps = sorted(self._changes.since(version))
        there, working = set(steps), [row.number for row in self._rows.live.values()]
        items: dict[int, dict[int, str]] = {}
        for group, item in self._items.since(version)[1]:
            items.setdefault(group, {})[item] = item_name(self._maps.groups[group].items[item])
        found: dict[str, Any] = {
            "head": self._head(),
            "types": list(self._types),
            "records": self._records.since(version),
            "steps": [[number, *self._step(number, version)] for number in steps],
            "work": [[number, self._work(number)] for number in working if number not in there],
            "edges": {name: self._edges.texts[name] for name in self._texts.since(version)[1]},
            "began": {edge: tail for edge, one in self._began.items() if (tail := one.since(version))[1]},
            "maps": [[number, self._map(number, None) | {"items": found}] for number, found in items.items()],
            "whole_states": self._whole.since(version),
            "messages": {name: self._calls.messages[name] for name in self._messages.since(version)[1]},
            "offers": {name: self._calls.offers[name] for name in self._offers.since(version)[1]},
            "idle": self._idle.since(version),
            "moments": self._moments.since(version)[1],
            "end": self._end(),
            "final": self._patches.since(version)[1],
        }
        if self._output[0] > version:
            found["output"] = clean(self.run.output)
        return found

    def redrawn(self, version: int) -> bool:
        """Whether the picture has parts that it did not have in a version: the run planned something since."""
        return bool(self._drawn.since(version)[1])

    @property
    def parts(self) -> int:
        """How many plans the picture has."""
        return len(self._drawn.items)

    def _head(self) -> dict[str, Any]:
        """What is small and may change with any record."""
        run = self.run
        return {
            "run": told(run.run_id, 200),
            "graph": told(run.graph, 80),
            "status": run.status,
            "why": self._why,
            "head": run.seq,
            "start": self._rows.start,
            "seconds": round(run.seconds, 6),
            "counted": run.steps,
            "usage": usage_data(run.usage),
            "labels": clean(shown_labels(run.labels)),
            "archived": None if run.archived is None else told(run.archived.line(), 400),
            "error": told(str(run.error), 2000) if run.error is not None else None,
            "driver": self._holder if run.status == "running" else "",
            "limits": self._limits(),
            "waiting": [told(f"{one.kind}: {one.prompt}", 300) for one in run.waiting],
        }

    def _placed(self, number: int, places: Mapping[int, int]) -> dict[str, Any]:
        step, calls = self._steps[number], self._step_calls[number].written
        found = step | {"work": self._work(number)} | ({"calls": calls} if calls else {})
        if "up" in step:
            found["up"] = places[step["up"]]
        if step.get("base", -1) >= 0:
            found["base"] = places[step["base"]]
        return found

    def _step(self, number: int, version: int) -> tuple[int, dict[str, Any]]:
        """A step, and how many of its calls a reader of a version has."""
        kept, calls = self._step_calls[number].since(version)
        return kept, self._steps[number] | {"work": self._work(number)} | ({"calls": calls} if calls else {})

    def _work(self, number: int) -> float:
        return round(self._worked.found[number], 6)

    def _map(self, number: int, places: Mapping[int, int] | None) -> dict[str, Any]:
        group = self._maps.groups[number]
        source = self._rows.by_activation.get(group.source)
        named = None if source is None else source.number if places is None else places[source.number]
        return {
            "source": named,
            "each": told(group.each, 80),
            "target": told(group.target, 80),
            "count": group.count,
            "around": group.around,
            "items": {} if places is None else {at: item_name(item) for at, item in group.items.items()},
        }

    def _end(self) -> list[object] | None:
        """What the picture has of a run that no process drives: its lease says so, and its journal does not."""
        if self.run.status != "interrupted":
            return None
        last, before = replace(self._live.trace.overlay(), status=self.run.status), self._live.marks
        marks = {RUN: status_mark(last)}
        for part in self._live.drawing.by_key.values():
            if not part.terminal:
                marks[part.id] = node_mark(last, part.path, part.name, part.asks)
        changed = {part: mark_json(mark) for part, mark in marks.items() if before.get(part, Mark()) != mark}
        return [self.run.seq, changed] if changed else None

    def _at(self, ts: float) -> int:
        """A moment as whole milliseconds since the run's start."""
        return round((ts - self._rows.start) * 1000)

    def _asked(self, first: RunStarted) -> Any:
        """The run's input: the value of its input field, or the fields that it began with."""
        given, names = first.values, self.run.definition.input
        if isinstance(names, str):
            return clean({names: given[names]})[names] if names in given else None
        found = given if names is None else {name: given[name] for name in names if name in given}
        return clean({name: value for name, value in found.items() if value not in (None, "", [], {})}) or None

    def _limits(self) -> dict[str, object]:
        root = self.machine.root
        given = {} if root is None else root.limits.model_dump(mode="json", exclude_none=True)
        return {name: given[name] for name in ("steps", "seconds", "tokens", "cost", "calls") if name in given}


def _is_text(value: object) -> bool:
    return isinstance(value, str)

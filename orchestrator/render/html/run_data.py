"""A run as the data of a page, kept up to date record by record.

    writer = RunWriter(run, records)
    writer.document()               # the whole run, as in a mailed page
    version = writer.version
    writer.take(more, now)          # further records, and the function that loads the run after them
    writer.since(version)           # the changes: the cost depends only on these records

Untrusted texts are redacted and bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Generic, TypeVar

from orchestrator.kernel import records as r
from orchestrator.kernel.records import Migrated, Record, Resumed, RunStarted
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.state import Phase
from orchestrator.render.html.step_data import (
    LONGEST,
    CallData,
    StepCalls,
    StepData,
    Tracebacks,
    TransitionEdges,
    asked_data,
    clean,
    clean_patch,
    message_data,
    usage_data,
)
from orchestrator.render.moments import RUN, Live, mark_json
from orchestrator.render.overlaid import CLASSES, STATUSES, Mark, node_mark, status_mark
from orchestrator.values import shown_labels
from orchestrator.views.causes import Causes
from orchestrator.views.history import States, patch_of
from orchestrator.views.overlay import Overlay
from orchestrator.views.reader import Fold
from orchestrator.views.run import Run, explainer_of
from orchestrator.views.safe_text import told
from orchestrator.views.step_names import MapGroups, item_name
from orchestrator.views.step_work import NO_USAGE
from orchestrator.views.timeline import Timeline, TimelineRow, nested
from orchestrator.views.tracebacks import trace_data
from orchestrator.views.transcript import Entry, Transcript

_FACTS = ("status", "queued", "standby", "archived")
"""Facts of a run that may change without a record."""


class RunWriter:
    """Writes one run as data of a page.

    Args:
        run: the run.
        records: all its records.

    Attributes:
        run: the run as last passed.
        version: a number that increases with each change.
    """

    def __init__(self, run: Run, records: Sequence[Record]) -> None:
        self.run, self.version = run, 0
        causes, self._states = Causes(), States()
        self._rows = Timeline(causes)
        self._touched = TouchedRows(self._rows)
        self._transcript = Transcript(self._rows)
        folds = self._states, self._touched, self._transcript
        self._live = Live(run.definition, causes, self._rows, *folds, plan=run.plan)
        self._live.expect([record for record in records if isinstance(record, Migrated)])
        drawing = self._live.drawing
        self._traces = Tracebacks()
        self._calls = CallData(self._at, self._rows.requests, self._traces)
        self._edges = TransitionEdges(run.definition, drawing, causes)
        self._maps = MapGroups(self._rows)
        parts = {(mark.path, mark.name): mark.id for mark in drawing.by_key.values()}
        self._data = StepData(self._rows, self._states, self._edges, self._maps, parts, self._at, self._traces)
        self._worked, self._idle_spans = WorkingSeconds(self._rows), IdleSpans(self._rows)
        self._steps: list[dict[str, Any]] = []
        """By row number, without working times and calls."""
        self._step_calls: list[StepCalls] = []
        self._changes: ChangeLog[int] = ChangeLog()
        self._types: dict[str, int] = {}
        self._records: GrowingList[list[int]] = GrowingList()
        self._moments: GrowingList[list[object]] = GrowingList()
        self._whole: GrowingList[Any] = GrowingList()
        self._messages: GrowingList[str] = GrowingList()
        self._offers: GrowingList[str] = GrowingList()
        self._texts: GrowingList[str] = GrowingList()
        self._talk: GrowingList[list[object]] = GrowingList()
        self._items: GrowingList[tuple[int, int]] = GrowingList()
        self._idle: TailList[list[int]] = TailList()
        self._began: dict[str, TailList[int]] = {}
        self._drawn: GrowingList[int] = GrowingList()
        """Plans in the picture."""
        self._patches: GrowingList[dict[str, Any]] = GrowingList()
        """Changes of the run's state."""
        self._values: Mapping[str, object] = {}
        self._output: tuple[int, Any] = 0, None
        self._question: Any = None
        self._holder = ""
        self.take(records, lambda _: run)

    @property
    def machine(self) -> RunState:
        """The run's state after the last record. Read-only."""
        return self._rows.run

    def overlay(self) -> Overlay:
        """Overlay of the run's current state for a picture of its graph."""
        return self._live.trace.overlay("interrupted" if self.run.status == "interrupted" else None)

    # -- reading --------------------------------------------------------------------------------------------------

    def take(self, records: Sequence[Record], now: Callable[[RunState], Run]) -> None:
        """Take further records.

        Args:
            records: the records after those already taken.
            now: makes a view of the run from its state after them.

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
        if isinstance(record, r.Forked) and record.asked is not None:
            self._calls.replaced[record.asked.seq] = record.asked.reply
        if isinstance(record, RunStarted | Resumed) and record.holder:
            self._holder = told(record.holder, 80)

    def _settle(self, tokens: Iterable[Any]) -> None:
        """Mark rows of steps that wait for answers as waiting."""
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
                self._states.before(token)  # a step that has not ended also has a state
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
        """Add new data other than steps to the page's lists: states, messages, texts of edges, idle times, plans."""
        self._whole.extend((clean(state) for state in self._states.whole[len(self._whole.items) :]), version)
        for known, found in (
            (self._messages, self._calls.messages),
            (self._offers, self._calls.offers),
            (self._texts, self._edges.texts),
        ):
            known.extend(islice(found, len(known.items), None), version)
        self._talk.extend(map(_talk, self._transcript.entries[len(self._talk.items) :]), version)
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
        """Return a change of the run's state, cleaned.

        Texts are included whole, as a cut or redaction may start in their middle.
        """
        values = self._values
        found = clean_patch({name: part for name, part in patch.items() if part[0] != "+" or not _is_text(part[1])})
        for name, part in patch.items():
            if name not in found:
                text = f"{values[name]}{part[1]}"
                found |= clean_patch({name: ["=", text[: LONGEST * 2]]})
        return found

    # -- writing --------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return the whole run. Steps are in the order of a tree, and are identified by their position in it.

        It shares data with the writer: serialize it before the writer takes more records.
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
            "talk": self._talk.items,
            "idle": self._idle.items,
            "picture": {
                "classes": [*CLASSES, *STATUSES],
                "start": {},
                "moments": [*self._moments.items, *([end] if end else [])],
                "end": end is not None,
            },
        }

    def order(self) -> list[int]:
        """Return the numbers of the rows in tree order."""
        return [row.number for row in nested(self._rows.rows)]

    def since(self, version: int) -> dict[str, Any]:
        """Return the changes after a version. Steps are identified by their row numbers."""
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
            "talk": self._talk.since(version),
            "idle": self._idle.since(version),
            "moments": self._moments.since(version)[1],
            "end": self._end(),
            "final": self._patches.since(version)[1],
        }
        if self._output[0] > version:
            found["output"] = clean(self.run.output)
        return found

    @property
    def transcript(self) -> list[Entry]:
        """The entries of the transcript by the records that were taken. Read-only."""
        return self._transcript.entries

    def entries(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Return entries of the run's transcript, also of records that were not taken yet.

        Each has what the page shows of it, which the document has at the step and under `messages`.
        """
        calls = CallData(self._at, self._rows.requests, Tracebacks())
        return [_entry(entry, calls) for entry in entries]

    def redrawn(self, version: int) -> bool:
        """Return True if the picture has parts that it did not have in a version, because the run made another plan."""
        return bool(self._drawn.since(version)[1])

    @property
    def parts(self) -> int:
        """Number of plans in the picture."""
        return len(self._drawn.items)

    def _head(self) -> dict[str, Any]:
        """Return data that is small and may change with any record."""
        run = self.run
        return {
            "run": told(run.run_id, 200),
            "graph": told(run.graph, 80),
            "status": run.status,
            **({"ended_diverged": True} if run.ended_diverged else {}),
            "why": self._why,
            "head": run.seq,
            "start": self._rows.start,
            **({"forked": self._at(run.machine.created)} if run.machine.fork is not None else {}),
            "seconds": round(run.seconds, 6),
            "counted": run.steps,
            "usage": usage_data(run.usage),
            "labels": clean(shown_labels(run.labels)),
            "archived": None if run.archived is None else told(run.archived.line(), 400),
            "error": told(str(run.error), 2000) if run.error is not None else None,
            "trace": None if run.error is None else trace_data(run.error.traceback),
            **({"traces_left_out": self._traces.left_out} if self._traces.left_out else {}),
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
        """Return how many calls of a step a reader of a version has, and the step with its other calls."""
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
        """Return the marks that change because no process drives the run, by its lease, if there are any."""
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
        """Return a time as whole milliseconds since the run's start."""
        return round((ts - self._rows.start) * 1000)

    def _asked(self, first: RunStarted) -> Any:
        """Return the run's input: the value of its input field, or its initial fields."""
        given, names = first.values, self.run.definition.input
        if isinstance(names, str):
            return clean({names: given[names]})[names] if names in given else None
        found = given if names is None else {name: given[name] for name in names if name in given}
        return clean({name: value for name, value in found.items() if value not in (None, "", [], {})}) or None

    def _limits(self) -> dict[str, object]:
        root = self.machine.root
        given = {} if root is None else root.limits.model_dump(mode="json", exclude_none=True)
        return {name: given[name] for name in ("steps", "seconds", "tokens", "cost", "calls") if name in given}


def _talk(entry: Entry) -> list[object]:
    """Return an entry of the transcript for a page, which has its message, call or question under its record."""
    more: list[object] = [entry.digest[:12]] if entry.kind == "message" else [entry.replaced] if entry.replaced else []
    return [entry.kind, entry.seq, *more]


def _entry(entry: Entry, calls: CallData) -> dict[str, Any]:
    found: dict[str, Any] = {"number": entry.number, "said": _talk(entry), "node": told(entry.node, 80)}
    if entry.message is not None:
        found["message"] = message_data(entry.message)
    if entry.call is not None:
        found["call"] = calls.brief(entry.call)
    if entry.question is not None:
        found["asked"] = asked_data(entry.question)
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


RESTARTS = (r.Migrated, r.Forked, r.Reopened)
"""Records that change earlier steps: after one, a run is read again from the start."""


class TouchedRows(Fold):
    """Remembers the rows that records changed, and adds up the usage of graphs.

    Args:
        rows: a fold that is read before this one.
    """

    def __init__(self, rows: Timeline) -> None:
        self._rows = rows
        self._keys: set[str] = set()
        self._askers: dict[str, str] = {}

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        if isinstance(record, r.Ended | r.Resumed | r.Cancelled):
            self._keys.update(self._rows.live)

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        activation = getattr(record, "activation", "") or ""
        if isinstance(record, r.Asked | r.TimerSet):
            self._askers[record.question.id if isinstance(record, r.Asked) else record.name] = activation
        elif isinstance(record, r.Answered):
            self._keys.add(self._askers.get(record.question, ""))
        elif isinstance(record, r.EffectSettled):
            self._spend(activation, record)
        self._keys.add(activation)
        self._keys.update(one.key for one in (*delta.started, *delta.cancelled))
        self._keys.update(asker.key for asker, _, _ in delta.moved)

    def _spend(self, activation: str, record: r.EffectSettled) -> None:
        """Add the usage of a step to the enclosing graphs."""
        row = self._rows.by_activation.get(activation)
        while row is not None and row.parent is not None:
            row = self._rows.rows[row.parent]
            row.usage += record.usage or NO_USAGE

    def take(self) -> set[int]:
        """Return the numbers of rows that changed since the last call, and of their enclosing rows."""
        rows, found = self._rows, set[int]()
        for key in self._keys:
            row = rows.by_activation.get(key)
            while row is not None and row.number not in found:
                found.add(row.number)
                row = None if row.parent is None else rows.rows[row.parent]
        self._keys.clear()
        return found

    def touch(self, keys: Iterable[str]) -> None:
        """Mark rows as changed."""
        self._keys.update(keys)


_SHORTEST = 0.001
"""In seconds. Shorter idle spans are left out."""
_Span = tuple[float, float]


class WorkingSeconds:
    """Working seconds of each row; a row with an inner graph works while one of its inner rows does.

    Attributes:
        found: By row number.
    """

    def __init__(self, rows: Timeline) -> None:
        self.found: list[float] = []
        self._rows = rows
        self._inside: list[float] = []

    def update(self, numbers: Iterable[int]) -> None:
        """Compute the seconds of rows that changed, or that have not ended.

        Args:
            numbers: numbers of rows, and of all their enclosing rows.
        """
        rows, found, inside = self._rows.rows, self.found, self._inside
        found.extend([0.0] * (len(rows) - len(found)))
        inside.extend([0.0] * (len(rows) - len(inside)))
        for number in sorted(numbers, reverse=True):  # inner rows come first
            row = rows[number]
            worked = row.working(self._rows.end)
            if row.graph:
                worked = min(worked, inside[number])
            if row.parent is not None:
                inside[row.parent] += worked - found[number]
            found[number] = worked


class IdleSpans:
    """Times in which no row worked, because every live row waited."""

    def __init__(self, rows: Timeline) -> None:
        self._rows = rows
        self._busy: list[_Span] = []
        """Sorted times in which ended rows worked, separated by more than the shortest idle span."""
        self._added: dict[int, _Span] = {}
        """Row -> its start and end."""

    def update(self, numbers: Iterable[int]) -> None:
        """Take rows that changed into account."""
        for number in numbers:
            row = self._rows.rows[number]
            if row.graph or row.ended is None:
                continue  # the inner rows determine when it works
            span = (row.started, row.ended)
            known = self._added.setdefault(number, span)
            if known != span:  # it landed after it had been stopped
                self._added[number] = span
                self._busy = []
                for other in self._added:
                    self._add(self._rows.rows[other])
            elif known is span:
                self._add(row)

    def spans(self) -> list[_Span]:
        """Return the start and end of each idle time, in Unix seconds."""
        rows, found = self._rows, list[_Span]()
        live = [span for row in rows.live.values() if not row.graph for span in self._worked(row)]
        reached = rows.start
        for start, end in sorted([*self._busy, *live]):
            if start - reached > _SHORTEST:
                found.append((reached, start))
            reached = max(reached, end)
        if rows.end - reached > _SHORTEST:
            found.append((reached, rows.end))
        return found

    def _worked(self, row: TimelineRow) -> Iterator[_Span]:
        at = row.started
        end = self._rows.end if row.ended is None else row.ended
        for wait in sorted(row.waits, key=lambda one: one.start):
            yield at, max(at, wait.start)
            at = max(at, end if wait.end is None else wait.end)
        yield at, max(at, end)

    def _add(self, row: TimelineRow) -> None:
        for start, end in self._worked(row):
            busy = self._busy
            first = bisect_left(busy, start - _SHORTEST, key=lambda span: span[1])
            last = first
            while last < len(busy) and busy[last][0] - end <= _SHORTEST:
                start, end = min(start, busy[last][0]), max(end, busy[last][1])
                last += 1
            busy[first:last] = [(start, end)]


T = TypeVar("T")


class ChangeLog(Generic[T]):
    """The last version in which each item changed."""

    def __init__(self) -> None:
        self._last: dict[T, int] = {}
        """The items in the order of their last changes."""

    def note(self, thing: T, version: int) -> None:
        """Record that an item changed, in the newest version."""
        self._last.pop(thing, None)
        self._last[thing] = version

    def since(self, version: int) -> Iterator[T]:
        """Yield the items that changed after a version, newest first. The cost depends on the changes only."""
        for thing, changed in reversed(self._last.items()):
            if changed <= version:
                return
            yield thing


class GrowingList(Generic[T]):
    """A list that only grows.

    Attributes:
        items: Its items.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self._versions: list[int] = []

    def extend(self, items: Iterable[T], version: int) -> None:
        """Append items, in the newest version."""
        self.items.extend(items)
        self._versions.extend([version] * (len(self.items) - len(self._versions)))

    def since(self, version: int) -> tuple[int, list[T]]:
        """Return the number of items that a reader of a version has, and the items after those."""
        first = bisect_right(self._versions, version)
        return first, self.items[first:]


class TailList(Generic[T]):
    """A list that is rebuilt for each version, mostly with the same start.

    Attributes:
        items: Its items.
    """

    def __init__(self) -> None:
        self.items: list[T] = []
        self._changes: list[tuple[int, int]] = []
        """Versions in which it changed, and the first index that did."""

    def put(self, items: list[T], version: int) -> None:
        """Replace the items, and record the first index that changed in this version."""
        before = self.items
        same = min(len(before), len(items))
        if len(before) == len(items) and before == items:
            return
        first = next((at for at in range(same) if before[at] != items[at]), same)
        self.items = items
        self._changes.append((version, first))

    def since(self, version: int) -> tuple[int, list[T]]:
        """Return the number of initial items that a reader of a version has unchanged, and the items after those."""
        first = len(self.items)
        for changed, at in reversed(self._changes):
            if changed <= version:
                break
            first = min(first, at)
        return first, self.items[first:]


def run_data(run: Run, *, notes: bool = True) -> tuple[dict[str, Any], Overlay]:
    """Return the data of a run's page, and the marks of its picture at the end.

    Reads the run's records, and blocks meanwhile.

    Args:
        run: the run.
        notes: whether the page has the notes that people wrote about the run.
    """
    writer = RunWriter(run, run.records())
    written = [clean(note.data()) for note in run.notes()] if notes else []
    return writer.document() | {"notes": written}, writer.overlay()

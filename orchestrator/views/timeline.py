"""A run over time: one row per activation, with its calls, waits and usage, and idle times.

Times are Unix seconds from the journal. A row's working time excludes waits for people, waits for the next attempt, and
times in which no process drove the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.graph.model import Asked
from orchestrator.kernel import records as r
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import Answer, Question
from orchestrator.kernel.requests import Requests
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.state import Activation, Phase
from orchestrator.views.causes import Causes
from orchestrator.views.reader import Fold, read
from orchestrator.views.step_work import NO_USAGE, AskTracker, JournaledCall, Unasked, asked_at, working_time
from orchestrator.views.untaken_events import EventTracker

TimelineRowStatus: TypeAlias = Literal["running", "waiting", "done", "failed", "dropped"]
_MOMENT = 0.05
"""In seconds. A shorter gap between two drives is the time for resuming, and is ignored."""


@dataclass(slots=True)
class Wait:
    """A time in which a step waited."""

    why: Literal["person", "event", "timer", "retry", "stopped"]
    """For an answer; for an event; for a time; for the next attempt; because no process drove the run."""
    start: float
    end: float | None = None
    seq: int = 0
    """The record that started it."""


@dataclass(slots=True)
class AskedQuestion:
    """A question of a step, with its answer if there is one."""

    question: Question
    seq: int
    answer: Answer | None = None
    by: str = ""
    policy: bool = False
    answered: int | None = None


@dataclass(slots=True)
class TimelineRow:
    """An activation of a node, from its first attempt to its end."""

    number: int
    """Number from 0, in the order of starts."""
    activation: str
    parent: int | None
    """Row number of the enclosing subgraph."""
    depth: int
    place: str
    """Names of the enclosing subgraph nodes, joined by `/`: with `node` it identifies a node of a drawing."""
    path: str
    node: str
    began: int
    """The record after which it started."""
    started: float
    item: tuple[object, ...] = ()
    """The item of the innermost map of its graph around it, as the only element."""
    maps: int = 0
    """Number of maps of its graph around it."""
    named: int = 0
    """The first record with its current names, if it moved to another version of its graph."""
    status: TimelineRowStatus = "running"
    attempt: int = 1
    ended: float | None = None
    seq: int | None = None
    """The record that ended it."""
    outcome: str = ""
    update: Mapping[str, object] = field(default_factory=dict)
    """Its update, as in the journal."""
    ops: Mapping[str, str] = field(default_factory=dict)
    error: r.Failure | None = None
    failed: int = 0
    """Failed tool calls of a step that ended with an outcome."""
    guards: Mapping[str, bool | str] = field(default_factory=dict)
    """For a `Route`: outcome -> True if its guard was true, or why that is unknown."""
    cached: bool = False
    """True if its outcome and update came from the cache."""
    asks: Asked | None = None
    """`Node.asks` of its kind."""
    unasked: Unasked = ""
    """Set if it ended without asking what its kind asks."""
    graph: bool = False
    """True if it runs, or ran, a subgraph."""
    waits: list[Wait] = field(default_factory=list)
    calls: list[JournaledCall] = field(default_factory=list)
    asked: list[AskedQuestion] = field(default_factory=list)
    failures: list[r.StepRetried | r.StepFailed] = field(default_factory=list)
    """Failures of its earlier attempts."""
    usage: Usage = NO_USAGE
    """Usage of its calls, and of the rows inside it."""

    @property
    def live(self) -> bool:
        """True if the activation has not ended."""
        return self.status in ("running", "waiting")

    def working(self, until: float) -> float:
        """Return the seconds for which the activation worked.

        Args:
            until: end of the time that counts for a row that has not ended, in Unix seconds.
        """
        end = until if self.ended is None else self.ended
        waits = ((wait.start, end if wait.end is None else wait.end) for wait in self.waits)
        return working_time(self.started, end, waits)


def is_asked(run: RunState, record: r.Asked | r.TimerSet, delta: Delta) -> bool:
    """Return True if a step waits, or waited, for the question of a record; False if it had been stopped by then.

    Args:
        run: the run after the record.
        record: the record.
        delta: its changes.
    """
    name = record.question.id if isinstance(record, r.Asked) else record.name
    return name in run.questions or any(question.id == name for _, question, _ in delta.moved)


def timeline(plan: Plan, records: Iterable[r.Record]) -> Timeline:
    """Return the rows of a run.

    Args:
        plan: the plan of the run's graph; its code is not needed.
        records: records from the run's first one, without gaps.

    Raises:
        StoreCorrupt: the records do not follow each other.
    """
    causes = Causes()
    found = Timeline(causes)
    read(plan, records, causes, found)
    return found


_WAITS: Mapping[str, Literal["event", "timer"]] = {"event": "event", "timer": "timer"}
"""Kind of a question -> why its step waits, if it is not answered by a person."""


class Timeline(Fold):
    """A run as rows.

    Args:
        causes: The causes in the run: a fold that is read before this one.

    Attributes:
        rows: In the order in which they started.
        by_activation: The rows by activation.
        gaps: Times in which no process drove the run.
        start: Time of the first record.
        end: Time of the last record.
        events: The events that no step took.
        requests: The requests to models.
    """

    def __init__(self, causes: Causes) -> None:
        self.causes = causes
        self.rows: list[TimelineRow] = []
        self.by_activation: dict[str, TimelineRow] = {}
        self.gaps: list[Wait] = []
        self.start = self.end = 0.0
        self._asked: dict[str, tuple[AskedQuestion, Wait]] = {}
        self._ask_tracker = AskTracker()
        self._calls: dict[str, JournaledCall] = {}
        self._live: dict[str, TimelineRow] = {}
        self.events = EventTracker()
        self.requests = Requests()
        self._failed: dict[str, r.StepFailed] = {}
        """Activation -> the record that failed its graph."""

    @property
    def live(self) -> Mapping[str, TimelineRow]:
        """The rows that have not ended, by activation."""
        return self._live

    def row_at(self, seq: int) -> TimelineRow | None:
        """Return the row that a record ended; else the last row that ran then; else the last ended one, if any."""
        exact = next((row for row in self.rows if row.seq == seq and row.status != "dropped"), None)
        if exact is not None:
            return exact
        begun = [row for row in self.rows if row.began <= seq]
        at_work = [row for row in begun if row.seq is None or row.seq > seq]
        return at_work[-1] if at_work else max(begun, key=lambda row: row.seq or 0, default=None)

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        self.requests.add(record)
        self.start = self.start or record.ts
        self._ask_tracker.note(record)
        self.events.note(record, delta)
        if isinstance(record, r.Resumed | r.Migrated | r.Forked):
            self._gap(record)
        if isinstance(record, r.Forked) and record.question in self._asked:
            asking, _ = self._asked[record.question]
            asking.answer, asking.by, asking.policy, asking.answered = record.answer, record.by, False, record.seq
        if isinstance(record, r.Reopened):
            self.gaps.append(Wait("stopped", self.end, record.ts, record.seq))
        if isinstance(record, r.Migrated):
            self._ask_again(record)
        self.end = record.ts
        if not isinstance(record, r.Asked | r.TimerSet) or is_asked(self.run, record, delta):
            self._note(record)
        for _, question, answer in delta.moved:
            self._answered(answer, question.id, record.seq, record.ts)
        for activation in delta.started:
            self._begin(activation, record)
        for activation in delta.cancelled:
            self._drop(activation.key, record)
        if isinstance(record, r.Ended):
            for key in list(self._live):
                self._drop(key, record)

    def moved(self, record: r.Migrated) -> None:
        """See `Observer.moved`. Steps that have not ended continue under the names of the new version."""
        for key, row in self._live.items():
            token = self.run.activation(key)
            if token is not None:
                row.place, row.path, row.node, row.named = token.frame.place, token.path, token.node, record.seq + 1

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        row, late = self.by_activation.get(token.key), token.late
        if row is None:
            return
        if late is not None:
            row.status, row.outcome, row.update, row.ops = "done", late.outcome, late.update, late.ops
            return
        failed = self._failed.pop(token.key, None)
        if failed is not None and token.kept is None:
            row.failures.append(failed)
            row.attempt = failed.attempt + 1
        if row.ended is not None:
            row.waits.append(Wait("stopped", row.ended, self.run.updated, self.run.head))
        row.status, row.ended, row.seq, row.error = "running", None, None, None
        self._live[token.key] = row

    def finish(self) -> None:
        """See `Fold.finish`. Adds the usage of inner steps to graphs, and the waits of open questions."""
        for row in reversed(self.rows):
            if row.parent is not None:
                self.rows[row.parent].usage += row.usage
        for token in self.run.live_tokens():
            at = self._live.get(token.key)
            if at is not None and token.phase is Phase.ASKING:
                at.status = "waiting"

    def _begin(self, activation: Activation, record: r.Record) -> None:
        known = self.by_activation.get(activation.key)
        if known is not None:  # it continues after an answer, or after its inner graph
            known.status = "running"
            return
        frame = activation.frame
        parent = self.by_activation.get(frame.parent.key) if frame.parent is not None else None
        row = TimelineRow(
            number=len(self.rows),
            activation=activation.key,
            parent=None if parent is None else parent.number,
            depth=0 if parent is None else parent.depth + 1,
            place=frame.place,
            path=activation.path,
            node=activation.node,
            began=record.seq,
            started=record.ts,
            item=activation.items[-1:],
            maps=len(activation.stack),
            asks=asked_at(frame.plan, activation.node),
        )
        self.rows.append(row)
        self.by_activation[row.activation] = self._live[row.activation] = row

    def _note(self, record: r.Record) -> None:
        if isinstance(record, r.Answered):
            self._answered(record, record.question, record.seq, record.ts)
            return
        row = self.by_activation.get(getattr(record, "activation", "") or "")
        if row is None:
            return
        match record:
            case r.StepDone() | r.StepFailed():
                self._ended(row, record)
            case r.StepRetried():
                row.attempt = record.attempt + 1
                row.failures.append(record)
                row.waits.append(Wait("retry", record.ended or record.ts, record.next_at, record.seq))
            case r.GraphOpened():
                row.graph = True
            case r.EffectIntended():
                known = self._calls.get(record.key)
                if known is None or record.attempt != known.intended.attempt:
                    call = self._calls[record.key] = JournaledCall(record, record.ts)
                    row.calls.append(call)
            case r.EffectSettled():
                if record.key in self._calls:
                    self._calls[record.key].settle(record)
                row.usage += record.usage or NO_USAGE
            case r.Asked() | r.TimerSet():
                question = record.question if isinstance(record, r.Asked) else timer_question(record)
                if row.status != "dropped":  # otherwise it is asked when no answer is awaited any more
                    row.status = "waiting"
                asking = AskedQuestion(question, record.seq)
                span = Wait(_WAITS.get(question.kind, "person"), record.ts, seq=record.seq)
                self._asked[question.id] = asking, span
                row.waits.append(span)
                row.asked.append(asking)
            case _:
                pass

    def _answered(self, answered: r.Answered, question: str, seq: int, ts: float) -> None:
        """Record the answer to a question, which a record contains or causes."""
        asking, span = self._asked.get(question, (None, None))
        if asking is None or span is None or asking.answer is not None:
            return
        asking.answer, asking.by, asking.policy = answered.answer, answered.by, answered.policy
        asking.answered, span.end = seq, ts

    def _ask_again(self, record: r.Migrated) -> None:
        """End the waits for questions that a migration withdrew."""
        for key in record.withdrawn:
            row = self._live.get(key)
            for span in row.waits if row is not None else ():
                if span.why == "person" and span.end is None:
                    span.end = record.ts

    def _ended(self, row: TimelineRow, record: r.StepDone | r.StepFailed) -> None:
        row.seq, row.ended, row.attempt = record.seq, record.ended or record.ts, record.attempt
        row.error = record.error
        if isinstance(record, r.StepDone):
            row.failed, row.guards, row.cached = record.failed, record.guards, record.cached
            row.unasked = self._ask_tracker.unasked(row.activation, row.asks)
        if isinstance(record, r.StepFailed):
            self._failed[row.activation] = record
        if row.status == "dropped":
            pass  # it landed too late, so its update is not used
        elif isinstance(record, r.StepFailed):
            row.status = "failed"
        else:
            row.status, row.outcome = "done", record.outcome
            row.update, row.ops = record.update, record.ops
        if not row.waits and not row.graph and row.started < record.started <= row.ended:
            row.started = record.started  # it was admitted shortly before it was started
        self._close(row, row.ended)

    def _drop(self, key: str, record: r.Record) -> None:
        row = self._live.get(key)
        if row is not None and self.causes.transitions.get(key) is None:
            row.status, row.ended, row.seq = "dropped", record.ts, record.seq
            self._close(row, record.ts)

    def _close(self, row: TimelineRow, ended: float) -> None:
        self._live.pop(row.activation, None)
        for span in row.waits:
            if span.end is None or span.end > ended:
                span.end = ended

    def _gap(self, record: r.Resumed | r.Migrated | r.Forked) -> None:
        before = self.end
        if record.ts - before < _MOMENT:
            return
        self.gaps.append(Wait("stopped", before, record.ts, record.seq))
        for row in self._live.values():
            if isinstance(record, r.Forked) and not (row.calls or row.waits or row.graph):
                row.started = record.ts  # nothing of it was done in the parent
            elif not any(span.end is None for span in row.waits):
                row.waits.append(Wait("stopped", before, record.ts, record.seq))


_SHORTEST = 0.001
"""In seconds. Shorter idle spans are left out."""


def working_seconds(timeline: Timeline) -> list[float]:
    """Return the seconds that each row worked, by row number.

    For a row with an inner graph: the sum over its inner rows, but at most its own working time.
    """
    found = [row.working(timeline.end) for row in timeline.rows]
    inside = [0.0] * len(found)
    for row in reversed(timeline.rows):
        if row.graph:
            found[row.number] = min(found[row.number], inside[row.number])
        if row.parent is not None:
            inside[row.parent] += found[row.number]
    return found


def idle_spans(timeline: Timeline) -> list[tuple[float, float]]:
    """Return times (start and end, Unix seconds) in which no row worked, because every live one waited."""
    edges: list[tuple[float, int]] = []
    for row in timeline.rows:
        if row.graph:
            continue  # the inner rows determine when it works
        at = row.started
        end = timeline.end if row.ended is None else row.ended
        for wait in sorted(row.waits, key=lambda one: one.start):
            edges += [(at, 1), (max(at, wait.start), -1)]
            at = max(at, end if wait.end is None else wait.end)
        edges += [(at, 1), (max(at, end), -1)]
    found: list[tuple[float, float]] = []
    working, since = 0, timeline.start
    for at, step in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        if not working and step > 0 and at - since > _SHORTEST:
            found.append((since, at))
        working += step
        if not working:
            since = at
    if not working and timeline.end - since > _SHORTEST:
        found.append((since, timeline.end))
    return found


def nested(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """Return rows in the order of starts; rows of an inner graph follow their enclosing row."""
    inside: dict[int | None, list[TimelineRow]] = {}
    for row in rows:
        inside.setdefault(row.parent, []).append(row)
    found: list[TimelineRow] = []
    left = inside.get(None, [])[::-1]
    while left:
        row = left.pop()
        found.append(row)
        left += inside.get(row.number, [])[::-1]
    return found

"""Words the reasons in a run: of each step, of the edges it took, and of the state of the run.

The reasons follow from the journal (`orchestrator.views.causes`). Untrusted text in them is made safe to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from orchestrator.graph.topology import ANY, END, START
from orchestrator.kernel.queries import in_places, open_questions
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.values import check_position
from orchestrator.views.causes import Cause, Drop, Origin, Transition, TransitionEdge
from orchestrator.views.safe_text import plain, told
from orchestrator.views.timeline import Timeline, TimelineRow
from orchestrator.views.untaken_events import UntakenEvent
from orchestrator.views.worker_info import Standby


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """Reasons why a step ran and took its edges. Each text is one line, without secrets or control sequences."""

    seq: int | None
    """The record that ended the step; None while it has not ended."""
    step: str
    """Its path and node."""
    status: str
    came: str
    """Reason why it ran."""
    went: str = ""
    """The edges it took and the result that decided this; empty while it has not ended."""
    not_taken: tuple[str, ...] = ()
    """The other edges of the node, each with its outcome."""
    waits: str = ""
    """The pool in which it waits for a place, and the holders of the places; empty if it does not wait."""

    @property
    def line(self) -> str:
        """The edges taken and not taken, and the reason; before the step ends, what it waits for, or why it runs."""
        said = self.went or self.waits or self.came
        return f"{said}; not taken: {'; '.join(self.not_taken)}" if self.not_taken else said

    def to_json(self) -> dict[str, object]:
        """Return the explanation as plain JSON."""
        return {**asdict(self), "not_taken": list(self.not_taken)}

    def to_text(self) -> str:
        """Return the explanation as lines for a terminal."""
        lines = [f"{self.step}  ({self.status}{f', record {self.seq}' if self.seq is not None else ''})"]
        lines.append(f"  came  {self.came}")
        if self.waits:
            lines.append(f"  now   {self.waits}")
        if self.went:
            lines.append(f"  went  {self.went}")
        lines += [f"  {'not ' if not number else '    '}  {text}" for number, text in enumerate(self.not_taken)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """Reason for the state of a run."""

    run_id: str
    seq: int
    status: str
    why: str
    """The reason, in one line."""
    steps: tuple[StepExplanation, ...] = field(default=())
    """The live steps; of an ended run the step that ended it."""
    untaken: tuple[UntakenEvent, ...] = ()
    """The events that no step took; of a step, none."""

    def to_json(self) -> dict[str, object]:
        """Return the explanation as plain JSON."""
        steps = [step.to_json() for step in self.steps]
        return {**asdict(self), "steps": steps, "untaken": [asdict(event) for event in self.untaken]}

    def to_text(self) -> str:
        """Return the explanation as lines for a terminal."""
        head = f"{self.run_id}  {self.status}  (record {self.seq})"
        events = (f"not taken  {event.line}" for event in self.untaken)
        return "\n".join([head, f"why   {self.why}", *(step.to_text() for step in self.steps), *events])


@dataclass(frozen=True, slots=True)
class RunReasons:
    """Reasons for the state of a run, and for each of its ended steps."""

    run: str
    """The reason of the run, in one line."""
    steps: dict[int, StepExplanation]
    """Number of the record that ended a step -> its explanation."""
    untaken: tuple[UntakenEvent, ...] = ()
    """The events that no step took."""


_MOST = 6
"""Names that a line lists; further ones are counted."""
_ANSWERS = {"approve": "approved", "deny": "denied", "value": "answered"}


class Explainer:
    """Words the reasons of one run.

    Args:
        rows: the run's timeline.
        status: the run's status, as `Run.status`. The journal does not record whether a process drives it.
        queued: see `Run.queued`.
        standby: see `Run.standby`.
    """

    def __init__(self, rows: Timeline, *, status: str, queued: bool = False, standby: Standby | None = None) -> None:
        self.rows, self.status, self.queued, self.standby = rows, status, queued, standby
        self.causes = rows.causes
        self.pool_waits = tuple(pool_waits(rows.causes.run, rows))

    def explain(self, seq: int | None = None) -> RunExplanation:
        """Explain the state of the run, or why a step ran and which edges it took.

        Args:
            seq: the record that ended the step, or at which it ran; None: the run itself.

        Raises:
            ValueError: the run has no such record.
        """
        check_position(seq, "seq")
        run = self.causes.run
        if seq is None or (seq == run.head and run.ended is not None):
            steps = (*map(self.why, self.current_steps()), *self.waiting_steps())
            return RunExplanation(run.run_id, run.head, self.status, self.run_reason(), steps, self.untaken())
        if not 1 <= seq <= run.head:
            raise ValueError(f"run {run.run_id!r} has no record {seq}: it has 1 to {run.head}")
        row = self.rows.row_at(seq)
        if row is None:  # before the first step
            return RunExplanation(run.run_id, run.head, self.status, "nothing had started yet")
        one = self.why(row)
        return RunExplanation(run.run_id, run.head, self.status, one.line, (one,))

    def reasons(self) -> RunReasons:
        """Return the reasons of the run and of all its ended steps."""
        ended = [row for row in self.rows.rows if row.seq is not None and row.status != "dropped"]
        return RunReasons(self.run_reason(), {row.seq or 0: self.why(row) for row in ended}, self.untaken())

    def untaken(self) -> tuple[UntakenEvent, ...]:
        """Return the events that no step took."""
        return self.rows.events.untaken(self.causes.run, ended=self.causes.end is not None)

    # -- steps ----------------------------------------------------------------------------------------------------

    def why(self, row: TimelineRow) -> StepExplanation:
        """Explain why a step ran and why it took its edges."""
        took = self.causes.transitions.get(row.activation)
        came, went, tried = self.origin(row), self.destination(row), _tried(row)
        came, went = (came, f"{went}{tried}") if went else (f"{came}{tried}", went)
        state, pool = self.state(row), executor_pool(self.causes.run, row)
        waits = f"{pool}; the journal does not say whether it has one" if pool and state == "running" else ""
        return StepExplanation(row.seq, step_name(row), state, came, went, self.not_taken(took), waits)

    def state(self, row: TimelineRow) -> str:
        """Return a row's status; `interrupted` or `queued` if it should run and no process drives the run."""
        if row.status != "running":
            return row.status
        return "interrupted" if self.status == "interrupted" else "queued" if self.queued else "running"

    def origin(self, row: TimelineRow) -> str:
        """Explain why a step ran."""
        return self._came(self.causes.origins.get(row.activation))

    def _came(self, came: Origin | None) -> str:
        if came is None:
            return "the journal does not say"
        if came.by == "limit":
            return (
                f"the limit of {came.limit} was spent (record {came.seq}): {_way(came.edge)}; "
                "all live branches were merged here"
            )
        if came.by == "event":
            event = f"event {plain(came.limit)} interrupted its graph (record {came.seq})"
            return f"{event}: all live branches were merged here"
        return self._joined(came) if came.by == "join" else self._sent(came)

    def _sent(self, came: Origin) -> str:
        took = self.causes.transitions.get(came.after[0])
        way = _way(came.edge)
        if took is None or took.node == START:
            said = f"its graph began: {way}"
        else:
            said = f"{_outcome(took)} (record {took.seq}): {way}"
        if came.edge is not None and came.edge.items == 0:
            return f"{said}; {plain(came.edge.edge.each or '')} was empty, so it led straight here"
        if came.branch is not None:
            each = came.edge.edge.each if came.edge is not None else None
            number = f"{came.branch + 1} of {came.branches}"
            said += f", item {number} in {plain(each)}" if each else f", branch {number}"
        if came.needs:
            needed = _some([str(number + 1) for number in came.needs])
            said += f"; started when the items that it needs were done: item {needed} (record {came.seq})"
        return said

    def _joined(self, came: Origin) -> str:
        names = [self._token(key) for key in came.after]
        if came.losers:
            late = _some([f"{node} ({path})" if path else node for path, node in came.losers])
            return f"the first {len(names)} to arrive were joined: {_some(names)} (record {came.seq}); too late: {late}"
        count = len(names)
        if came.lets_run:
            return f"the first {count} to arrive were joined: {_some(names)} (record {came.seq}); the others run on"
        if count == 1:
            return f"only {names[0]} could reach the join (record {came.seq})"
        return f"{count} branches were joined: {_some(names)}; {names[-1]} came last (record {came.seq})"

    def _token(self, key: str) -> str:
        """Describe the step that a token came from."""
        came = self.causes.origins.get(key)
        before = self.rows.by_activation.get(came.after[0]) if came is not None and came.after else None
        if before is not None:
            return step_name(before)
        took = self.causes.transitions.get(came.after[0]) if came is not None and came.after else None
        return took.node if took is not None else "a branch"

    def destination(self, row: TimelineRow) -> str:
        """Explain which edges a step took, and why."""
        took = self.causes.transitions.get(row.activation)
        gone = self.causes.drops.get(row.activation)
        if took is None:
            if row.status == "failed":
                return f"{told(str(row.error), 200)}; no edge takes it, so its graph failed"
            return self._dropped(gone) if gone is not None else ""
        decided = (
            (guards_told(row.guards) or _decided(took.cause, row)) if took.error is None else told(str(took.error), 160)
        )
        if took.error is not None and took.outcome != "exhausted":
            decided = f"failed with {decided}"
        targets = [_target(way) for way in took.taken]
        led = f"{plain(took.outcome)} -> {_some(targets)}" if targets else f"{plain(took.outcome)}, which no edge takes"
        return f"{led}; decided by {decided}" if took.error is None else f"{led}; {decided}"

    def _dropped(self, gone: Drop) -> str:
        what, diverged = plain(gone.what), self.causes.run.diverged_because
        return {
            "race": f"dropped (record {gone.seq}): {what} had all the branches that it waits for",
            "stop": f"dropped (record {gone.seq}): {what} led to STOP",
            "failed": f"dropped (record {gone.seq}): {what} failed",
            "limit": f"dropped (record {gone.seq}): the limit of {what} was spent",
            "event": f"dropped (record {gone.seq}): event {what} interrupted its graph",
            "cancelled": f"dropped (record {gone.seq}): the {'replay diverged' if diverged else 'run was cancelled'}",
            "ended": f"dropped (record {gone.seq}): its graph ended",
        }[gone.why]

    def not_taken(self, took: Transition | None) -> tuple[str, ...]:
        """Return the edges that a transition did not take, each with its outcome."""
        return () if took is None else tuple(map(_untaken, took.not_taken))

    # -- the run --------------------------------------------------------------------------------------------------

    def current_steps(self) -> list[TimelineRow]:
        """Return the steps that show the state of the run: the live ones, else the one that ended it."""
        live = [row for row in self.rows.rows if row.live and not (row.graph and self._open_inside(row))]
        if live:
            return live[:_MOST]
        failed = [row for row in self.rows.rows if row.status == "failed"]
        ended = [row for row in self.rows.rows if row.status == "done" and row.seq is not None]
        return (failed or sorted(ended, key=lambda row: row.seq or 0))[-1:]

    def waiting_steps(self) -> Iterator[StepExplanation]:
        """Yield the steps that have not started because they wait for a place in a pool."""
        for one in self.pool_waits[:_MOST]:
            came = self._came(self.causes.origins.get(one.activation))
            yield StepExplanation(None, one.step, "queued", came, waits=one.what)

    def _open_inside(self, row: TimelineRow) -> bool:
        return any(other.parent == row.number and other.live for other in self.rows.rows)

    def run_reason(self) -> str:
        """Explain the state of the run in one line; for a fork also its origin."""
        fork = self.causes.run.fork
        reason = f"{self._run_reason()}{self._queues()}"
        if fork is None:
            return reason
        what = "replay" if fork.relation == "replay" else "fork"
        changed = "" if fork.asked is None else ", which made the call there with another request"
        return f"{reason}; it is a {what} of {plain(fork.parent)}, from record {fork.at} on{changed}"

    def _queues(self) -> str:
        """Describe the first step that waits for a place in a pool, and the number of others."""
        if not self.pool_waits:
            return ""
        more = len(self.pool_waits) - 1
        first = self.pool_waits[0]
        return f"; {first.step} {first.what}" + (f", and {more} more wait{'s' if more == 1 else ''}" if more else "")

    def _run_reason(self) -> str:
        status = self.status
        end = self.causes.end
        if end is not None:
            last = "; ".join(self._ends())
            return last or f"it is {status}"
        waiting = open_questions(self.causes.run)
        if waiting:
            asked = [f"{one.kind} at {plain(one.node)}" if one.node else told(one.prompt, 80) for one in waiting]
            running = sum(row.status == "running" for row in self.rows.live.values())
            more = f"; {running} more running" if status == "running" else ""
            outside = all(one.kind == "timer" or one.event for one in waiting)
            stuck = f"; {self.standby.line()}" if self.standby is not None and self.standby.deaths else ""
            return f"it is waiting{'' if outside else ' for an answer'}: {_some(asked)}{more}{stuck}"
        at_work = self.rows.live
        live = [step_name(at_work[one.key]) for one in in_places(self.causes.run.live_tokens()) if one.key in at_work]
        if self.standby is not None:
            return self.standby.line(_some(live))
        if status == "interrupted":
            return f"no process drives it: its process ended, or it was stopped, at {_some(live) or 'its beginning'}"
        return f"running: {_some(live)}" if live else f"it is {status}"

    def _ends(self) -> Iterator[str]:
        end = self.causes.end
        assert end is not None
        if end.why == "end":
            ways = f" on {end.ways} branches, merged" if end.ways > 1 else ""
            yield f"it reached END{ways}" + (": a limit had been spent" if end.status == "exhausted" else "")
        elif end.why == "stop":
            gone = self.causes.drops
            lost = [step_name(row) for row in self.rows.rows if (one := gone.get(row.activation)) and one.why == "stop"]
            dropped = f"; dropped: {_some(lost)}" if lost else ""
            yield f"{plain(end.what)} led to STOP (record {end.seq}){dropped}"
        elif end.why == "limit":
            spent = f"the limit of {plain(end.what)} was spent" if end.error is None else told(end.error.message, 200)
            yield f"{spent} (record {end.seq}), and no edge takes that"
        elif end.why == "failed":
            where = f"{plain(end.what)} failed" if end.what and end.what != END else "its branches could not be merged"
            yield f"{where} (record {end.seq}): {told(str(end.error), 200)}"
        elif self.causes.run.diverged_because:
            yield f"it {told(end.what, 300).replace('diverged', f'diverged (record {end.seq})', 1)}"
        else:
            yield f"it was cancelled (record {end.seq})" + (f": {told(end.what, 300)}" if end.what else "")


def step_name(row: TimelineRow) -> str:
    """Return a row's path and node on one line."""
    return plain(f"{row.path}/{row.node}" if row.path else row.node, 120)


def _tried(row: TimelineRow) -> str:
    if not row.failures:
        return ""
    last = row.failures[-1]
    return f"; attempt {last.attempt + 1}, after {told(str(last.error), 160)} (record {last.seq})"


def _outcome(took: Transition) -> str:
    where = plain(f"{took.path}/{took.node}" if took.path else took.node, 120)
    if took.node == ANY:
        return "a limit was spent"
    if took.error is None or took.outcome == "exhausted":
        return f"{where} returned {plain(took.outcome)}"
    return f"{where} failed ({plain(took.outcome)})"


def _decided(cause: Cause | None, row: TimelineRow) -> str:
    if cause is None and row.unasked == "passed":
        return "its rule, without asking a person"
    if cause is None:
        return "the node itself"
    name = plain(cause.name, 60)
    if cause.kind == "answer":
        who = "a rule" if cause.policy else told(cause.by, 40) or "an answer"
        return f"{who}: {_ANSWERS.get(name, name)} (record {cause.seq})"
    if cause.kind == "timer":
        return f"time (record {cause.seq})"
    kind = "the graph inside it, which" if cause.kind == "graph" else cause.kind
    return f"{kind} {name} (record {cause.seq})"


def guards_told(guards: Mapping[str, bool | str]) -> str:
    """Return the values of guards, including those of edges that were not taken; empty if there are none."""
    said = [
        f"{plain(name)} {str(value).lower() if isinstance(value, bool) else told(value, 80)}"
        for name, value in guards.items()
    ]
    return f"its guards: {_some(said)}" if said else ""


def _way(way: TransitionEdge | None) -> str:
    return plain(str(way.edge), 160) if way is not None else ""


def _untaken(way: TransitionEdge) -> str:
    return _way(way) if way.edge.outcome else f"{_way(way)} (for any outcome without an edge of its own)"


def _target(way: TransitionEdge) -> str:
    target = plain(way.edge.target)
    if way.items is None:
        return target
    return f"{target} ({way.items} item{'s' if way.items != 1 else ''})"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown


_MOST_HOLDERS = 3
"""Holders that a line names; further ones are counted."""


@dataclass(frozen=True, slots=True)
class PoolWait:
    """A step that waits for a place in a pool.

    Attributes:
        activation: The step.
        step: Its path and node.
        pool: The pool.
        places: Number of its places.
        holders: Number of steps that hold a place.
        held_by: The path and node of each of them, in the order in which they started, as far as it is journaled.
        ahead: Number of steps that wait before this one.
    """

    activation: str
    step: str
    pool: str
    places: int
    holders: int
    held_by: tuple[str, ...]
    ahead: int

    @property
    def what(self) -> str:
        """The pool that it waits for, without the pool's name."""
        more = len(self.held_by) - _MOST_HOLDERS
        names = ", ".join(self.held_by[:_MOST_HOLDERS]) + (f" and {more} more" if more > 0 else "")
        taken = f"{self.holders} of {self.places} taken" + (f" by {names}" if names else "")
        line = f"; {self.ahead} before it" if self.ahead else ""
        return f"waits for a place in pool {plain(self.pool, 60)} ({taken}{line})"


def pool_waits(run: RunState, rows: Timeline) -> Iterator[PoolWait]:
    """Yield the steps of a run that wait for places, by pool, next first.

    Args:
        run: the run at the end of the timeline.
        rows: its timeline, which names the steps.
    """
    for pool, line in run.lines.items():
        held = run.places.get(pool, set())
        found = sorted((rows.by_activation[key] for key in held if key in rows.by_activation), key=_number)
        names = tuple(map(_holder, found))
        size = run.plan.pools.get(pool)
        for ahead, token in enumerate(line.values()):
            yield PoolWait(token.key, _token_name(token), pool, size or len(held), len(held), names, ahead)


def executor_pool(run: RunState, row: TimelineRow) -> str:
    """Return the executor's pool in which a step without calls so far needs a place; empty if none.

    The graph leaves the number of places to the executor (`pools={"api": None}`), so the holders are not journaled.
    """
    token = run.running.get(row.activation)
    pool = None if token is None else token.frame.plan.pooled.get(token.node)
    if pool is None or run.plan.pools.get(pool) is not None or row.calls or row.graph:
        return ""
    return f"needs a place in pool {plain(pool, 60)} of the executor that drives it"


def _number(row: TimelineRow) -> int:
    return row.number


def _holder(row: TimelineRow) -> str:
    where = plain(f"{row.path}/{row.node}" if row.path else row.node, 120)
    return f"{where} since record {row.began}"


def _token_name(token: Activation) -> str:
    return plain(f"{token.path}/{token.node}" if token.path else token.node, 120)

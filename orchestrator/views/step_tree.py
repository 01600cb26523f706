"""A run as a tree of ended and active steps.

It is folded from the journal, whichever process drives the run. Live events only add progress, and the text of a
streaming reply, which are not journaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orchestrator.graph.model import Asked
from orchestrator.kernel import records as r
from orchestrator.kernel.question import until
from orchestrator.kernel.run_state import Delta
from orchestrator.kernel.state import Activation, Phase
from orchestrator.views.events import Event
from orchestrator.views.reader import Fold
from orchestrator.views.step_work import AskTracker, JournaledCall, Unasked, asked_at

StepRecord: TypeAlias = (
    r.StepDone | r.StepFailed | r.StepRetried | r.EffectIntended | r.EffectSettled | r.Asked | r.TimerSet
)
"""Records about one step."""

State: TypeAlias = Literal["running", "waiting", "retrying", "done", "failed", "dropped"]
_TAIL = 4000
"""Characters of a streaming reply that are kept."""


@dataclass(slots=True)
class TreeBranch:
    """A branch of a fork, or the inside of a subgraph: steps in sequence."""

    path: str
    depth: int = 0
    """Number of open maps around its fork."""
    item: tuple[object, ...] = ()
    """The item of a map, as the only element; empty for other branches."""
    steps: list[TreeStep] = field(default_factory=list)
    open: dict[str, TreeStep] = field(default_factory=dict)
    """Steps that have not ended, by activation."""


@dataclass(slots=True)
class TreeStep:
    """An activation of a node."""

    key: str
    path: str
    node: str
    started: float
    state: State = "running"
    ended: float = 0.0
    outcome: str = "done"
    failed_calls: int = 0
    """Failed tool calls of a step that ended with an outcome."""
    asks_kind: Asked | None = None
    """`Node.asks` of its kind."""
    unasked: Unasked = ""
    """Set if it ended without asking what its kind asks."""
    update: dict[str, object] = field(default_factory=dict)
    cached: bool = False
    """True if its outcome and update came from the cache."""
    fault: str = ""
    attempt: int = 1
    next_at: float = 0.0
    asks: str = ""
    by: str = ""
    """Name of the person who answered its last question."""
    note: Event | None = None
    """The last `progress` or `emitted` event of the step."""
    depth: int = 0
    """Number of open maps around it."""
    calls: dict[str, JournaledCall] = field(default_factory=dict)
    """Calls by key."""
    call_notes: dict[str, Event] = field(default_factory=dict)
    """Key of a call -> its last `progress` event."""
    text: str = ""
    """The end of the streaming reply."""
    branches: dict[str, TreeBranch] = field(default_factory=dict)
    """Last segment of a path -> a branch that the step opened, or its inner graph."""
    home: TreeBranch | None = None
    """The branch that contains it."""

    @property
    def over(self) -> bool:
        """True if the step has ended."""
        return self.state in ("done", "failed", "dropped")


@dataclass(frozen=True, slots=True)
class LiveBranches:
    """The live branches of a run after a record, by path."""

    live: frozenset[str]
    """Branches with live tokens, and their enclosing branches."""
    landed: frozenset[str]
    """Branches all of whose tokens wait at a join for other branches."""
    queued: frozenset[str]
    """Branches whose tokens are ready, but held back by items that they need or by a limit."""


class StepTree(Fold):
    """A run as a tree of steps."""

    def __init__(self) -> None:
        self.top = TreeBranch("")
        self.calls = 0
        """Number of calls, ended or not."""
        self._steps: dict[str, TreeStep] = {}
        self._askers: dict[str, TreeStep] = {}
        self._answered: dict[str, TreeStep] = {}
        self._ask_tracker = AskTracker()
        self._broken_off: dict[str, TreeStep] = {}
        """Steps that failed or were dropped, by activation."""

    # -- queries ---------------------------------------------------------------------------------------

    def running(self) -> Iterator[TreeStep]:
        """Return the steps that have not ended, in the order in which they started."""
        return iter(list(self._steps.values()))

    def live_branches(self) -> LiveBranches:
        """Return the live branches, and add them to the tree. It visits every live token."""
        live: set[str] = set()
        busy: set[str] = set()
        ready: set[str] = set()
        keys: set[str] = set()
        for token in self.run.live_tokens():
            path = token.path
            keys.add(token.key)
            if token.phase in (Phase.RUNNING, Phase.INSIDE, Phase.ASKING):
                _add_with_all_around(busy, path)
            elif token.phase is not Phase.WAITING:
                _add_with_all_around(ready, path)
            _add_with_all_around(live, path)
            _label(self._branch(path), token)
        for key in self._steps.keys() - keys:  # tokens of a graph that ended, or that lost a race
            self._ended(key, "dropped", self.run.updated)
        return LiveBranches(frozenset(live), frozenset(live - busy - ready), frozenset(ready - busy))

    def is_over(self, step: TreeStep, standing: LiveBranches) -> bool:
        """Return True if the step and all its branches have ended."""
        return step.over and not any(branch.path in standing.live for branch in step.branches.values())

    def forget(self, count: int) -> None:
        """Drop the first steps of the top level, which were printed permanently."""
        del self.top.steps[:count]

    # -- the fold ----------------------------------------------------------------------------------------------

    def moved(self, record: r.Migrated) -> None:
        """See `Observer.moved`."""
        for key, step in self._steps.items():
            token = self.run.activation(key)
            if token is not None and token.node != step.node:
                inside = step.branches.pop(step.node, None)
                step.node = token.node
                if inside is not None:
                    inside.path = f"{step.path}/{step.node}" if step.path else step.node
                    step.branches[step.node] = inside

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        for _, question, answer in delta.moved:
            asker = self._askers.pop(question.id, None)
            if asker is not None:
                asker.by = f"by {answer.by}" if answer.by else ""
        for activation in delta.started:
            self._begun(activation, record.ts)
        for activation in delta.cancelled:
            self._ended(activation.key, "dropped", record.ts)

    def restored(self, token: Activation) -> None:
        """See `Observer.restored`."""
        step = self._broken_off.pop(token.key, None)
        if step is None:
            return
        if token.late is not None:
            step.state = "done"
            return
        step.state, step.asks = "running", ""
        step.attempt = token.attempt + (token.failed and token.kept is None)
        self._steps[token.key] = step
        if step.home is not None:
            step.home.open[token.key] = step

    def live_event(self, event: Event) -> None:
        """See `Fold.live_event`."""
        step = self._steps.get(str(event.data.get("activation", "")))
        if step is None:
            return
        if event.type == "step_started":
            step.state, step.started, step.text = "running", event.ts, ""
        elif event.type == "token":
            step.text = (step.text + str(event.data.get("text") or event.data.get("reasoning") or ""))[-_TAIL:]
        elif event.type == "reset":
            step.text = ""
        elif event.type == "progress":
            key = str(event.data.get("key", ""))
            if key in step.calls:
                step.call_notes[key] = event
            else:
                step.note = event
        else:
            step.note = event

    def applying(self, record: r.Record) -> None:
        """See `Observer.applying`."""
        self._ask_tracker.note(record)
        match record.type:
            case "step_done":
                self._done(record)
            case "step_failed":
                self._step_of(record).fault = str(record.error)
                self._ended(record.activation, "failed", record.ended)
            case "step_retried":
                step = self._step_of(record)
                step.state, step.fault, step.next_at = "retrying", str(record.error), record.next_at
                step.attempt, step.text = record.attempt + 1, ""
                step.branches.clear()
            case "effect_intended":
                self._intended(record)
            case "effect_settled":
                self._settled(record)
            case "asked":
                step = self._step_of(record)
                step.state, step.asks, step.text = "waiting", record.question.prompt, ""
                self._askers[record.question.id] = step
            case "timer_set":
                step = self._step_of(record)
                step.state, step.asks, step.text = "waiting", until(record.at), ""
                self._askers[record.name] = step
            case "answered":
                asker = self._askers.pop(record.question, None)
                if asker is not None:
                    asker.by = "by policy" if record.policy else f"by {record.by}" if record.by else ""
                    self._answered[record.question] = asker
            case "resumed" | "migrated" | "forked" | "reopened":
                if isinstance(record, r.Forked) and record.question in self._answered:
                    self._answered[record.question].by = f"by {record.by}" if record.by else ""
                for step in self._steps.values():
                    if step.state == "running":
                        step.started, step.text = record.ts, ""
            case "ended":
                for key in list(self._steps):
                    self._ended(key, "dropped", record.ts)

    def _done(self, record: r.StepDone) -> None:
        step = self._step_of(record)
        if all("." in segment for segment in step.branches):  # otherwise a graph ran in it since its start
            step.started = record.started or step.started
        step.outcome, step.update = record.outcome, dict(record.update)
        step.failed_calls, step.cached = record.failed, record.cached
        step.unasked = self._ask_tracker.unasked(record.activation, step.asks_kind)
        step.fault = "" if record.error is None else str(record.error)
        self._ended(record.activation, "done", record.ended or record.ts)

    def _intended(self, record: r.EffectIntended) -> None:
        step = self._step_of(record)
        known = step.calls.get(record.key)
        if known is None:
            self.calls += 1
            step.calls[record.key] = JournaledCall(record, record.ts)
        else:
            known.begin(record.ts)
        step.text = ""

    def _settled(self, record: r.EffectSettled) -> None:
        step = self._step_of(record)
        call = step.calls.get(record.key)
        step.text = ""
        if call is not None:
            call.settle(record)

    def _ended(self, key: str, state: State, ts: float) -> None:
        step = self._steps.pop(key, None)
        if step is None:
            return
        step.state, step.ended, step.text = state, ts, ""
        if state != "done":
            self._broken_off[key] = step
        if step.home is not None:
            step.home.open.pop(key, None)

    # -- the tree ----------------------------------------------------------------------------------------------

    def _begun(self, activation: Activation, ts: float) -> None:
        step = self._steps.get(activation.key)
        if step is None:
            step = self._add(TreeStep(activation.key, activation.path, activation.node, ts))
            step.asks_kind = asked_at(activation.frame.plan, activation.node)
            step.depth, step.attempt = len(activation.stack), activation.attempt
            if step.home is not None:
                _label(step.home, activation)
        step.state, step.asks = "running", ""

    def _step_of(self, record: StepRecord) -> TreeStep:
        """Return the step of a record; for a step that was dropped already a new, ended one."""
        step = self._steps.get(record.activation)
        return step or TreeStep(record.activation, record.path, record.node, record.ts, state="dropped")

    def _add(self, step: TreeStep) -> TreeStep:
        branch = step.home = self._branch(step.path)
        branch.steps.append(step)
        branch.open[step.key] = self._steps[step.key] = step
        return step

    def _branch(self, path: str) -> TreeBranch:
        if not path:
            return self.top
        around, _, segment = path.rpartition("/")
        host = self._host(self._branch(around), segment)
        found = host.branches.get(segment)
        if found is None:
            found = host.branches[segment] = TreeBranch(path, host.depth)
        return found

    def _host(self, branch: TreeBranch, segment: str) -> TreeStep:
        """Return the step that a branch came from: the last one at that node, or a new one in its place."""
        node = segment.partition(".")[0]
        for step in reversed(branch.steps):
            if step.node == node:
                return step
        step = TreeStep("", branch.path, node, 0.0, state="done")
        branch.steps.append(step)
        return step


def _label(branch: TreeBranch, token: Activation) -> None:
    if not branch.item and len(token.stack) > branch.depth:
        branch.item = token.stack[-1][1:2]


def _add_with_all_around(found: set[str], path: str) -> None:
    while path not in found:
        found.add(path)
        if not path:
            return
        path = path.rpartition("/")[0]

"""The facts about one run, folded from its records so far, and observers of the fold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from msgspec import Struct

from orchestrator.graph.limits import NO_USAGE, Reserve, Usage
from orchestrator.json import JsonObject
from orchestrator.kernel.event_queue import EventQueue
from orchestrator.kernel.ledger import Ledger, Totals
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.question import NOT_STARTED, PAUSE, Question
from orchestrator.kernel.records import (
    Answered,
    Caller,
    ChangedRequest,
    Ended,
    Failure,
    Forked,
    Migrated,
    Record,
    RunStarted,
)
from orchestrator.kernel.state import (
    Activation,
    Breakpoints,
    FrameCounters,
    FrameResult,
    FrameState,
    LoneSteps,
    MapItem,
)
from orchestrator.kernel.version import Version


class Delta(Struct, eq=False):
    """The changes that a record made."""

    started: list[Activation] = []
    """Newly admitted activations, to be started."""
    cancelled: list[Activation] = []
    """Activations that are no longer part of the run, to be stopped."""
    moved: list[tuple[Activation, Question, Answered]] = []
    """Activations that an event or a timer continued, each with its question and its answer."""


@dataclass(slots=True, eq=False)
class RunState:
    """One run, folded up to record `head`. Only `orchestrator.kernel.fold.apply` changes it."""

    plan: Plan
    observers: tuple[Observer, ...] = ()
    head: int = 0
    """`seq` of the last record."""
    started: RunStarted | None = None
    """The first record; for a fork, that of the run at the root of all forks."""
    forks: tuple[Forked, ...] = ()
    """For a fork: the records that started it and the runs that it comes from, as far as those are forks, its own last.
    """
    inherited: Usage = NO_USAGE
    """The part of its usage that was spent by the runs it was forked from."""
    saved: Usage = NO_USAGE
    """The part of its usage that a replay took from the replayed run's journal and did not spend."""
    ended: Ended | None = None
    root: FrameState | None = None
    """The run's own graph; None before the first record."""
    result: FrameResult | None = None
    """Set when only the end remains to be journaled."""
    running: dict[str, Activation] = field(default_factory=dict)
    """Every admitted activation, in the order of admission."""
    questions: dict[str, Question] = field(default_factory=dict)
    """The open questions."""
    asked_at: dict[str, float] = field(default_factory=dict)
    """Open question with a deadline -> when it was asked, by the clock of that deadline."""
    events: EventQueue = field(default_factory=EventQueue)
    """The events that were sent to it."""
    approve: str | None = None
    """Tool calls of at most this risk are approved without asking."""
    paused: bool = False
    latest_refs: JsonObject | None = None
    """The references that a later drive provided, if any did."""
    breakpoints: Breakpoints | None = None
    """Nodes at which the run pauses; None for none."""
    cancelled: bool = False
    diverged: bool = False
    """True if it is a replay that made a request that the replayed run did not make."""
    diverged_because: str = ""
    """If it ended there by itself: the reason of its cancellation."""
    content: str = ""
    """Digest of the graph that was last driven."""
    lineage: tuple[tuple[str, str], ...] = ()
    """Structure and content of each graph that it has had: the one that it started in, then one for each migration."""
    first: Plan = field(init=False)
    """The plan of the graph that it started in, if it was folded from its first record."""
    later: dict[str, Plan] = field(default_factory=dict)
    """Content digest -> plan of a graph that a record may migrate it to."""
    tools: dict[str, str] = field(default_factory=dict)
    """The tools that its nodes may call, with the digests of their schemas, from the last drive."""
    ledger: Ledger = field(default_factory=Ledger)
    counters: defaultdict[str, FrameCounters] = field(default_factory=lambda: defaultdict(FrameCounters))
    """Place of a graph -> its counts."""

    asked: dict[str, float] = field(default_factory=dict)
    """Open question -> `ts` of the record that asked it."""

    # Usage so far.
    steps: int = 0
    """Steps that ended."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    cache_savings: float = 0.0
    cost: float = 0.0
    estimated: bool = False
    """True if part of the usage is an estimate."""
    seconds: float = 0.0
    """Time active: pauses, and gaps left by a crash, do not count."""
    updated: float = 0.0
    """`ts` of the last record."""
    totals: Totals = field(default_factory=Totals)
    longest_reply: int = 0
    """Tokens of a model's longest reply so far."""
    costliest_call: float | None = None
    """Cost of the most expensive model call so far; None if there was none."""
    reserves: dict[str, Reserve] = field(default_factory=dict)
    """Call in progress -> what it reserves."""

    # Indexes maintained by the fold.
    askers: dict[str, Activation] = field(default_factory=dict)
    """Open question -> the activation that asks it."""
    inner_frames: dict[str, FrameState] = field(default_factory=dict)
    """Activation of a subgraph's node -> the graph inside."""
    ready_frames: dict[str, FrameState] = field(default_factory=dict)
    """Graphs with tokens in their queues."""
    places: dict[str, set[str]] = field(default_factory=dict)
    """Pool -> the activations that occupy a place in it."""
    lines: dict[str, OrderedDict[str, Activation]] = field(default_factory=dict)
    """Pool -> the tokens that wait for a place in it, by activation, the next one first."""
    exhausting_frames: list[FrameState] = field(default_factory=list)
    """Graphs with a spent limit that have not been merged yet."""
    stopped: dict[str, Activation] = field(default_factory=dict)
    """Steps that were stopped and may continue when the run is reopened: their records may still arrive."""
    was_running: bool = False
    """True if steps ran after the last record: the time up to the next one counts as time alive."""
    lone: LoneSteps | None = None
    """The step whose end needs no look at branches, joins and limits, and those before it, if the last record says so.
    """
    delta: Delta = field(default_factory=Delta)
    """Changes of the record that is being folded."""

    def __post_init__(self) -> None:
        self.first = self.plan
        self.later.update(self.plan.later)

    @property
    def from_start(self) -> Plan:
        """The plan for folding the run's records from the first one on."""
        return self.first.followed_by(self.later)

    @property
    def structure(self) -> str:
        """Digest of the structure of its graph."""
        return self.lineage[-1][0] if self.lineage else ""

    @property
    def fork(self) -> Forked | None:
        """The record that started the run, if it is a fork of another one."""
        return self.forks[-1] if self.forks else None

    @property
    def run_id(self) -> str:
        """The run's id; empty before its first record."""
        return self.fork.run_id if self.fork is not None else self.root_id

    @property
    def root_id(self) -> str:
        """The id from which its activations' keys are derived: that of the run at the root of all forks."""
        return self.started.run_id if self.started is not None else ""

    @property
    def refs(self) -> JsonObject:
        """The references to its code, as text: the last ones given."""
        if self.latest_refs is not None:
            return self.latest_refs
        return {} if self.started is None else self.started.refs

    @property
    def labels(self) -> dict[str, str]:
        """The run's labels."""
        begun = self.fork or self.started
        return begun.labels if begun is not None else {}

    @property
    def created(self) -> float:
        """Creation time of the run, or of the fork, in Unix seconds."""
        begun = self.fork or self.started
        return begun.ts if begun is not None else 0.0

    @property
    def caller(self) -> Caller | None:
        """The call of a graph as a tool that waits for the run, according to its records."""
        begun = self.fork or self.started
        return begun.caller if begun is not None else None

    @property
    def in_fork(self) -> bool:
        """True if it is a fork, or was called, at any depth, by one: irreversible calls need an answer first."""
        return self.fork is not None or (self.caller is not None and self.caller.in_fork)

    @property
    def forked_at(self) -> int:
        """`seq` of the record that ended the copy of another run's records; 0 if it is not a fork."""
        return self.fork.seq if self.fork is not None else 0

    def changed_request(self, activation: str, digest: str, occurrence: int) -> ChangedRequest | None:
        """Return the request that a fork sends in place of the one that a step makes, if it changes that one.

        Args:
            activation: the step.
            digest: digest of the request that it makes, without the model's name.
            occurrence: number of earlier calls of the step with this request.
        """
        for fork in reversed(self.forks):
            asked = fork.asked
            if asked is not None and (asked.activation, asked.digest, asked.occurrence) == (
                activation, digest, occurrence,
            ):  # fmt: skip
                return asked
        return None

    @property
    def is_held(self) -> bool:
        """True if it is a fork in which nothing runs until it is resumed."""
        pause = self.questions.get(PAUSE)
        return pause is not None and pause.prompt == NOT_STARTED

    @property
    def status(self) -> str:
        """`running`, `paused`, or how it ended. Only the lease shows whether an executor drives a running one."""
        if self.ended is not None:
            return self.ended.status
        if self.is_held:
            return "paused"
        if self.running or self.result is not None:
            return "running"
        if self.paused or self.questions:
            return "paused"
        return "running"

    @property
    def usage(self) -> Usage:
        """Usage of the run, including the runs of graphs that it called as tools; steps and seconds are its own."""
        if self.head <= 1:
            return NO_USAGE
        return Usage(
            steps=self.steps,
            calls=self.calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            written_tokens=self.written_tokens,
            cache_savings=self.cache_savings,
            cost=self.cost,
            seconds=self.seconds,
            estimated=self.estimated,
        )

    @property
    def own_usage(self) -> Usage:
        """Usage of the run itself: for a fork without what it inherited, for a replay without what it saved."""
        return self.usage - self.inherited - self.saved if self.forks else self.usage

    @property
    def shared_usage(self) -> Usage:
        """The part of the run's own usage that its calling runs count as well: all but steps and seconds."""
        return self.own_usage.model_copy(update={"steps": 0, "seconds": 0.0})

    def frames(self) -> Iterator[FrameState]:
        """Yield the running graphs, the outermost first."""
        if self.root is not None:
            yield self.root
        yield from list(self.inner_frames.values())

    def frame_at(self, path: str) -> FrameState | None:
        """Return the running graph at a path, if any; an empty path means the run's own graph."""
        return next((frame for frame in self.frames() if frame.path == path), None)

    def live_tokens(self) -> Iterator[Activation]:
        """Yield the live tokens of all graphs that `frames` gives."""
        for frame in self.frames():
            yield from frame.live.values()

    def activation(self, key: str) -> Activation | None:
        """Return the live activation with a key, of any phase, if there is one."""
        found = self.running.get(key)
        if found is None:
            found = next((frame.live[key] for frame in self.frames() if key in frame.live), None)
        return found

    def copy(self) -> RunState:
        """Return an independent state at the same record, without observers, in time independent of the values' size.

        Versions, plans, records, results, questions and the items of maps are shared.
        """
        shared: dict[int, object] = {id(one): one for one in self.questions.values()}
        for token in self.live_tokens():
            shared[id(token.stack)] = token.stack
        return deepcopy(self, {**shared, id(self.observers): ()})


class Observer:
    """Watches one run. The methods do nothing here; an observer overrides those that it needs.

    Between `sending`, `joining`, `collapsing` or `ending` and the matching `done`, tokens are added and dropped, edges
    are taken and graphs finish for that reason. These spans nest.
    """

    def applying(self, record: Record) -> None:
        """A record that follows the ones before it is about to be folded in."""

    def sending(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        """An outcome is about to take its edges."""

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        """A join is about to fire for these tokens, in the order in which they arrived."""

    def collapsing(self, frame: FrameState) -> None:
        """A limit is spent: the graph's tokens are about to be merged into one."""

    def ending(self, frame: FrameState) -> None:
        """No token is left: the ended versions are about to become the graph's result."""

    def done(self) -> None:
        """The innermost span that `sending`, `joining`, `collapsing` or `ending` announced is over."""

    def edge_taken(self, frame: FrameState, index: int) -> None:
        """An edge was taken."""

    def added(self, token: Activation) -> None:
        """A token is about to join the live ones."""

    def item_ready(self, item: MapItem) -> None:
        """Every item that this one needs is done; it is about to start, or to be skipped."""

    def dropped(self, token: Activation) -> None:
        """A live token was dropped; what runs inside it is about to end."""

    def restored(self, token: Activation) -> None:
        """A dropped token is live again: its run was reopened."""

    def finished(self, frame: FrameState, result: FrameResult) -> None:
        """A graph is about to get its result, and to drop its remaining tokens."""

    def moved(self, record: Migrated) -> None:
        """The run moved to another version of its graph: all its graphs and tokens are new objects with the same keys.

        Joins that nothing can reach any more are about to fire.
        """

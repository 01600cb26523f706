"""The facts about one running graph: its tokens, the forks open around them, and what it has spent.

A graph's state belongs to one run, whose fold changes it in place. Everything that it refers to (versions, paths,
plans, records) is immutable. There is no behaviour here: functions in the other modules have it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from hashlib import blake2b
from sys import maxsize
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from orchestrator.graph.limits import Limits
from orchestrator.graph.topology import ForkScope
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Answered, EndStatus, Failure, StepDone
from orchestrator.kernel.version import Rank, Version


def hash_id(*parts: str) -> str:
    """Return a hash of the parts and their order: 64 bits, in hex."""
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


ItemBinding: TypeAlias = tuple[str, object, str]
"""A map's vertex, the item that a token works on, and the field that contained the item."""


class Phase(Enum):
    """State of a token. Tokens of every phase are live (R4)."""

    PENDING = "pending"
    """A map item that waits for the items it needs."""
    WAITING = "waiting"
    """At a join."""
    QUEUED = "queued"
    """May run as soon as limits allow."""
    IN_LINE = "in_line"
    """Waits for a place in the pool of its node (R18)."""
    RUNNING = "running"
    """Admitted. An executor runs it, or will run it after taking over the run."""
    INSIDE = "inside"
    """At a subgraph that is running."""
    ASKING = "asking"
    """Waits for an answer."""
    PARKED = "parked"
    """Stopped by a spent limit; merged when all running steps have landed."""


class OpenFork:
    """A fork or map that was entered and whose closing join has not fired yet."""

    __slots__ = ("arrivals", "fork", "key", "left", "live", "passed", "rank", "reach", "scope", "trunk", "version")

    def __init__(self, scope: ForkScope, key: str, rank: Rank, version: Version) -> None:
        self.fork = scope.fork
        self.scope, self.key, self.rank = scope, key, rank
        self.version = version
        """The state when the fork was opened: joins restore its `local` fields."""
        self.trunk = version
        """That state plus what the joins inside have merged so far."""
        self.arrivals: dict[str, list[Activation]] = {}
        """Join -> tokens that wait at it, in the journal's order."""
        self.reach: dict[str, int] = dict.fromkeys(scope.joins, 0)
        """Join -> number of live tokens that can still reach it."""
        self.live: int = 0
        """Number of its live tokens."""
        self.left: bool = False
        """True if one of its tokens ended, or left it through a join."""
        self.passed: dict[str, frozenset[str]] = {}
        """Join that fired and let the other branches run -> the plain fields that it merged: a branch that reaches it
        later does not change them (R8).
        """


class MapItem:
    """One item of a map whose items need each other (R12)."""

    __slots__ = (
        "done",
        "ended",
        "fork",
        "index",
        "late",
        "missing",
        "needs",
        "open",
        "ordered_map",
        "started",
        "versions",
        "waiting",
    )

    def __init__(self, ordered_map: OrderedMap, index: int, needs: tuple[int, ...], fork: OpenFork) -> None:
        self.ordered_map, self.index, self.needs, self.fork = ordered_map, index, needs, fork
        self.missing = len(needs)
        """Number of needed items that are not done."""
        self.open = 0
        """Number of its tokens that neither ended nor wait at a join of the map or of a fork around it."""
        self.waiting: dict[str, Activation] = {}
        self.ended: list[Version] = []
        self.late: list[Version] = []
        """The versions of its tokens that reached a join which had fired without them (R8)."""
        self.versions: list[Version] = []
        """The versions of its waiting and late tokens when it was done."""
        self.started = self.done = False


class OrderedMap:
    """A map whose items need each other, with all of its items."""

    __slots__ = ("dependents", "forks", "items", "merged", "pending", "target")

    def __init__(self, target: str | None, forks: tuple[OpenFork, ...]) -> None:
        self.forks = forks
        """The forks open when the map opened, including its own: an item is done when its tokens wait at their joins.
        """
        self.target = target
        """The node to which an empty map would lead; without such a join no item is skipped."""
        self.items: list[MapItem] = []
        self.dependents: dict[int, list[int]] = {}
        """Item -> the items that need it."""
        self.pending: dict[int, Activation] = {}
        self.merged: dict[tuple[int, ...], Version] = {}
        """Needed items -> the merge of their versions, which all items with the same needs share."""


class Activation:
    """A token, and the run of the node that it is at."""

    # Attributes that most tokens never set have their default on the class: each step makes an activation.
    phase: Phase = Phase.QUEUED
    attempt: int = 1
    not_before: float | None = None
    """Unix seconds before which the next attempt does not start."""
    backoff: float | None = None
    """Seconds from the end of the last attempt to `not_before`: the longest delay, even if the clock is changed."""
    answers: Mapping[str, Answered] = MappingProxyType({})
    """Question -> its answer."""
    withdrawn: int = 0
    """Number of times its answers were withdrawn: later questions get other ids."""
    error: Failure | None = None
    """The failure behind the reserved outcome that led here."""
    fault: Failure | None = None
    """The reason why the node cannot run at all; recorded as the step's failure."""
    child: FrameResult | None = None
    """The result of the graph inside, if the node is a subgraph that has ended."""
    took: int = 0
    """The events that it took itself, as bits; see `Version.taken`."""
    opened: bool = False
    """True if the graph inside has started."""
    counted: bool = False
    """True if limits have counted it as a step."""
    merged: bool = False
    """True if a join, or a spent limit, made it."""
    # State needed by `reopened` once the graph is frozen (R13).
    failed: bool = False
    """True if it failed, and its graph with it."""
    late: StepDone | None = None
    """The record of its end after it had been stopped: it takes its edges when the run is reopened."""
    kept: FrameState | None = None
    """The graph inside, frozen: it failed, or the graph around it ended."""
    spent_inside: bool = False
    """True if it ended, and a spent limit of the graph inside ended the graph around it (early versions)."""
    asked_before: frozenset[str] = frozenset()
    """Questions that the end of a run withdrew: they are asked again under other ids."""
    timers: Mapping[str, float] = MappingProxyType({})
    """Timers among these questions -> when they were due, Unix seconds: the step sleeps until then, no longer."""
    reopened: int = 0
    """The record that reopened the run before this activation ended; 0 for none."""

    def __init__(
        self,
        frame: FrameState,
        key: str,
        node: str,
        version: Version,
        rank: Rank,
        forks: tuple[OpenFork, ...] = (),
        stack: tuple[ItemBinding, ...] = (),
        map_items: tuple[MapItem, ...] = (),
    ) -> None:
        self.frame, self.key, self.node, self.version, self.rank = frame, key, node, version, rank
        self.forks = forks
        """The open forks, outermost first."""
        self.stack = stack
        """The open maps and their items, outermost first (R10)."""
        self.map_items = map_items
        """Its items of ordered maps, outermost first."""

    @property
    def values(self) -> dict[str, object]:
        """The state that the node sees. Read only."""
        return self.version.values

    @property
    def taken(self) -> int:
        """The events that it, the graph inside it, or its causes took, as bits; see `Version.taken`."""
        return self.version.taken | self.took | (0 if self.child is None else self.child.taken)

    @property
    def path(self) -> str:
        """The branch, as text; in a subgraph it starts with the path and node of the subgraph's activation."""
        prefix, path = self.frame.path, self.rank.path
        if path.parent is None:
            return prefix
        return f"{prefix}/{path}" if prefix else str(path)

    @property
    def item(self) -> object:
        """The item of the innermost open map; None outside maps."""
        return self.stack[-1][1] if self.stack else None

    @property
    def items(self) -> tuple[object, ...]:
        """The items of all open maps, outermost first."""
        return tuple(item for _, item, _ in self.stack)

    def __repr__(self) -> str:
        return f"<{self.node} {self.phase.value} {self.path or '-'} {self.key}>"


class FrameResult(Struct, frozen=True):
    """The end of a graph."""

    status: EndStatus
    values: dict[str, object]
    """The final state, as kernel values; for a failed graph, its trunk."""
    error: Failure | None = None
    irreversible: int = 0
    """Number of irreversible effects in it that happened, or may have."""
    taken: int = 0
    """The events that the causes of this result took, as bits; see `Version.taken`."""
    entered: tuple[str, ...] = ()
    """The outcomes by which END or STOP was entered, sorted; only for a graph inside another one."""

    def __deepcopy__(self, memo: object) -> FrameResult:
        return self


@dataclass(slots=True, eq=False)
class FrozenTokens:
    """The tokens of a graph as they were when it was frozen (R13) or merged because of a spent limit (R14)."""

    live: dict[str, Activation]
    queue: deque[Activation]
    ended_versions: list[Version]


@dataclass(slots=True)
class FrameCounters:
    """Counts of all graphs at one place, for drawings and reports; no rule depends on them."""

    visits: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    """Node -> number of admissions."""
    taken: defaultdict[int, int] = field(default_factory=partial(defaultdict, int))
    """Number of an edge -> how often it was taken."""
    busy: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    """Node -> seconds that its steps took."""


@dataclass(slots=True, eq=False)
class FrameState:
    """One running graph. The activation of a subgraph's node has one of its own."""

    plan: Plan
    key: str
    root: Version
    """The state that it started with."""
    limits: Limits
    counters: FrameCounters
    parent: Activation | None = None
    """The activation of the subgraph's node; None for the run's own graph."""
    path: str = ""
    """The path of the subgraph's activation and its node; empty at the top."""
    place: str = ""
    """Names of the subgraph nodes around it, joined by `/`: the same for all activations."""
    line: tuple[FrameState, ...] = ()
    """This graph and those around it, the outermost last."""

    live: dict[str, Activation] = field(default_factory=dict)
    queue: deque[Activation] = field(default_factory=deque)
    """Tokens that may run as soon as limits allow."""
    ended_versions: list[Version] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)
    """The outcomes by which END was entered; only for a graph inside another one, whose node may take one of them."""
    touched_joins: dict[tuple[int, str], tuple[OpenFork, str]] = field(default_factory=dict)
    """Joins that a move may have enabled; only these are examined, so the cost of a step depends on what it touches."""
    touched_items: dict[int, MapItem] = field(default_factory=dict)
    """Map items that a move may have finished."""
    may_drop_history: bool = True
    """False once a version has ended that cannot be among the causes of any later one."""
    parent_dropped: bool = False
    passes: bool = False
    """True if a join fired and let other branches run."""
    result: FrameResult | None = None

    # Usage counted against this graph's limits, including everything that runs inside it.
    counted_steps: int = 0
    """Its steps, without those that `lone` counts."""
    lone: LoneSteps | None = None
    """Steps that ran in it one after the other, and are not in `counted_steps` yet."""
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    active: int = 0
    """Number of running activations."""
    began: float = 0.0
    """`RunState.seconds` when it started."""
    visits: dict[str, int] = field(default_factory=dict)
    """Node -> admissions, for nodes whose visits are limited."""
    irreversible: int = 0
    """Irreversible effects in it that happened, or may have."""
    # Reserved by calls in progress.
    reserved_calls: int = 0
    reserved_tokens: int = 0
    reserved_cost: float = 0.0

    exhausting: str | None = None
    """The limit that is spent, until all running steps have ended."""
    spent_limit: Failure | None = None
    """The spent limit as a failure; kept after the exhausted edge."""
    interrupting: str = ""
    """The node at which to continue when all running steps have ended: an event for it interrupted the graph."""
    spent_name: str = ""
    """Name of the limit that was spent first."""
    after_limit: bool = False
    """True if the exhausted edge was taken: later steps are not counted, and each node runs at most once."""
    visited_after_limit: set[str] = field(default_factory=set)

    frozen: FrozenTokens | None = None
    """The tokens that it had when it failed or was cancelled."""
    before_limit: FrozenTokens | None = None
    """The tokens that it had when its limit was spent; only for the run's own graph."""
    raised: int = 0
    """Number of times it was reopened after a spent limit."""
    timed_from: float = 0.0
    """`RunState.seconds` from which the timeout of the node around it counts."""

    @property
    def steps(self) -> int:
        """Its steps."""
        return self.counted_steps if self.lone is None else self.counted_steps + self.lone.count

    @property
    def trunk(self) -> Version:
        """The state at the outermost open fork plus what its joins merged; for a single token, its own."""
        live: Collection[Activation] = self.live.values()
        if self.passes and any(fork.passed for token in live for fork in token.forks):
            # A join's token is ahead of the branches that it let run.
            live = sorted(live, key=lambda token: len(token.forks))[:1]
        for token in live:
            return token.forks[0].trunk if token.forks else token.version
        return self.root


class LoneSteps(Struct, eq=False):
    """Steps of one graph that follow each other while nothing else can (`fold.steps.go_straight`).

    They count for each graph around them. They are counted here, so that a step deep inside subgraphs costs no more
    than one at the top.
    """

    step: Activation
    """The one that runs."""
    room: int
    """Number of steps that the limits of all these graphs allow."""
    count: int = 0
    """Number of steps that followed."""

    @classmethod
    def begin(cls, step: Activation) -> LoneSteps:
        """Return the count of the steps that follow a step; the graphs around it refer to it."""
        line = step.frame.line
        rooms = [most - one.steps for one in line if (most := one.limits.steps) is not None]
        lone = cls(step, min(rooms, default=maxsize))
        for one in line:
            one.lone = lone
        return lone

    def end(self) -> None:
        """Add the steps to the counts of the graphs."""
        for one in self.step.frame.line:
            one.counted_steps += self.count
            one.lone = None


class Breakpoints(Struct, frozen=True):
    """Nodes at which a run pauses. Those inside subgraphs are named by their path, `outer/inner`."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    at: str = ""
    """The node before which the run is paused."""
    passed: frozenset[str] = frozenset()
    """Activations that were allowed to continue and have not started."""

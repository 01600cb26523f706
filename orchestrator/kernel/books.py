"""A running graph's books: its live tokens and, per open fork and join, how many of them can still reach it.

A join is looked at only when one of these counts or its queue changes, so a step costs what it touches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, cast

from orchestrator.kernel.rank import compare
from orchestrator.kernel.records import Failure
from orchestrator.kernel.token import Activation, Cell, OpenFork, Phase
from orchestrator.kernel.version import KeyedVersion, Version, merge

if TYPE_CHECKING:
    from orchestrator.kernel.frame import Frame
    from orchestrator.kernel.plan import Plan
    from orchestrator.kernel.rules import Rules
    from orchestrator.kernel.tally import Tally


_by_rank = attrgetter("rank")


def _compare_keyed(one: Activation, other: Activation) -> int:
    return compare(one.rank.path, other.rank.path) or (-1 if one.key < other.key else 1)


_by_path_and_key = cmp_to_key(_compare_keyed)
"""The order under rules 1."""


@dataclass(frozen=True, slots=True)
class FrameResult:
    """How a graph ended."""

    status: str
    """`completed`, `failed`, `exhausted` or `cancelled`."""
    values: dict[str, object]
    """The final state, as kernel values; of a failed graph its trunk."""
    error: Failure | None = None
    lasting: int = 0
    """Irreversible effects in it that happened, or may have."""


class Hooks(Protocol):
    """What a frame tells its machine."""

    def dropped(self, activation: Activation) -> None:
        """A live token is gone: stop it, and all that runs inside it."""

    @property
    def rules(self) -> Rules:
        """The rules that the run follows."""
        ...

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """Place of a graph -> what is counted there; whoever is asked for makes itself."""
        ...

    def ended_frame(self, frame: Frame) -> None:
        """The frame has a result."""

    def took(self, frame: Frame, index: int) -> None:
        """An edge was taken."""


class Books:
    """Who is live, which joins they can still reach, what the graph has spent."""

    __slots__ = (
        "active",
        "after",
        "began",
        "calls",
        "cost",
        "ended_versions",
        "exhausting",
        "held_calls",
        "held_cost",
        "held_tokens",
        "hooks",
        "key",
        "lasting",
        "limits",
        "line",
        "live",
        "once",
        "parent",
        "parent_gone",
        "path",
        "place",
        "plan",
        "queue",
        "result",
        "root",
        "rules",
        "seen",
        "spent",
        "squashable",
        "steps",
        "tally",
        "tokens",
        "touched",
        "visits",
    )

    def __init__(
        self, plan: Plan, key: str, values: dict[str, object], hooks: Hooks, parent: Activation | None = None
    ) -> None:
        self.plan, self.key, self.hooks, self.parent = plan, key, hooks, parent
        self.limits = plan.limits
        self.rules = hooks.rules
        self.root = Version(values, key=key)
        self.line: tuple[Frame, ...] = (cast("Frame", self),)
        """This graph and those around it, the outermost last."""
        self.path: str = ""
        """The path of the subgraph's activation and its node; empty at the top."""
        self.place: str = ""
        """Names of the subgraph nodes around it, joined by `/`: the same for all activations."""
        if parent is not None:
            outer = parent.frame
            self.line += outer.line
            self.path = f"{parent.path}/{parent.node}" if parent.path else parent.node
            self.place = f"{outer.place}/{parent.node}" if outer.place else parent.node
        self.tally = hooks.tallies[self.place]
        self.live: dict[str, Activation] = {}
        self.queue: deque[Activation] = deque()
        self.ended_versions: list[Version] = []
        self.touched: dict[tuple[int, str], tuple[OpenFork, str]] = {}
        self.seen: dict[int, Cell] = {}
        self.squashable = True
        self.parent_gone = False
        self.result: FrameResult | None = None
        # What is spent of this graph's limits, with all that runs inside it.
        self.steps = self.calls = self.tokens = self.active = 0
        # Irreversible effects in it that happened, or may have.
        self.lasting: int = 0
        self.cost = self.began = 0.0
        # What calls under way reserved, until they are settled.
        self.held_calls = self.held_tokens = 0
        self.held_cost = 0.0
        self.visits: dict[str, int] = {}
        self.exhausting: str | None = None
        """The limit that is spent, until what runs has landed."""
        self.spent: Failure | None = None
        """Which limit that was, in words; also behind the exhausted edge."""
        self.after = False
        """The exhausted edge was taken: what follows is not counted, and each node runs once at most."""
        self.once: set[str] = set()

    # -- tokens -------------------------------------------------------------------------------------------------

    def _sit(self, token: Activation) -> None:
        """Put a token where it waits: at its join, or in the queue."""
        node = token.node
        fork = self.plan.topology.match.get(node) if token.forks else None
        if fork is not None:
            for entry in token.forks:
                if entry.fork == fork:
                    token.phase = Phase.WAITING
                    entry.arrivals.setdefault(node, []).append(token)
                    self.touched[id(entry), node] = (entry, node)
                    self._add(token)
                    return
        token.phase = Phase.QUEUED
        self.queue.append(token)
        self._add(token)

    def _add(self, token: Activation) -> None:
        self.live[token.key] = token
        if token.forks:
            self._count(token, 1)
        for cell in token.cells:
            self.seen[id(cell)] = cell
            if self._settled(token, cell):
                cell.waiting[token.key] = token
            else:
                cell.open += 1

    def _remove(self, token: Activation) -> None:
        del self.live[token.key]
        if token.forks:
            self._count(token, -1)
        for cell in token.cells:
            self.seen[id(cell)] = cell
            if cell.waiting.pop(token.key, None) is None:
                cell.open -= 1

    def _count(self, token: Activation, step: int) -> None:
        waiting = token.phase is Phase.WAITING
        for entry in token.forks:
            entry.live += step
            scope = entry.scope
            if waiting:
                joins: Iterable[str] = scope.waiting[token.node]
            elif token.phase is Phase.PENDING and token.node in self.plan.topology.match:
                joins = {token.node, *scope.waiting[token.node]} & entry.reach.keys()
            else:
                joins = scope.active[token.node]
            for join in joins:
                entry.reach[join] += step
                if not entry.reach[join]:
                    self.touched[id(entry), join] = (entry, join)

    def _settled(self, token: Activation, cell: Cell) -> bool:
        """Whether the token waits at a join of the cell's map, or of a fork that was open when it opened."""
        if token.phase is not Phase.WAITING:
            return False
        fork = self.plan.topology.match[token.node]
        return any(entry.fork == fork and entry in cell.group.forks for entry in token.forks)

    def drop(self, token: Activation) -> None:
        """Take a live token out, with whatever it does."""
        if token.phase is Phase.WAITING:
            for entry in token.forks:
                waiting = entry.arrivals.get(token.node)
                if waiting is not None and token in waiting:
                    waiting.remove(token)
        elif token.phase is Phase.QUEUED:
            self.queue.remove(token)
        elif token.phase is Phase.PENDING:
            cell = token.cells[-1]
            cell.group.pending.pop(cell.index, None)
        self._remove(token)
        self.hooks.dropped(token)

    def in_order(self, tokens: Iterable[Activation]) -> list[Activation]:
        """Tokens in the order of their branches (R6)."""
        return sorted(tokens, key=_by_rank if self.rules.ranked else _by_path_and_key)

    @property
    def version_type(self) -> type[Version]:
        """What an update's version is made of."""
        return Version if self.rules.ranked else KeyedVersion

    def merged(self, versions: Sequence[Version], key: str, fork: Version | None = None) -> Version:
        """The merge of versions with local fields as they were at `fork`, or where their ways parted."""
        local: dict[str, object] | None = None
        if fork is not None:
            local = {name: fork.values[name] for name in self.plan.local if name in fork.values}
        return merge(
            self.plan.schema, versions, key=key, local=local, own=self.plan.local,
            replaces_conflict=self.rules.replaces_conflict,
        )  # fmt: skip

    def trunk(self) -> Version:
        """The state at the outermost open fork plus what its joins merged; of a single token, its own."""
        for token in self.live.values():
            return token.forks[0].trunk if token.forks else token.version
        return self.root

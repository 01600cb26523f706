"""Where a run stands: tokens at nodes, the forks open around them, the items of maps that wait for others.

These objects belong to one frame of one machine, which changes them in place. Everything they point to
(versions, paths, plans, records) is immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from orchestrator.graph.topology import Scope
    from orchestrator.kernel.frame import Frame, FrameResult
    from orchestrator.kernel.rank import Rank
    from orchestrator.kernel.records import Answered, Failure
    from orchestrator.kernel.version import Version


Item: TypeAlias = tuple[str, object, str]
"""A map's vertex, the item of it that a token works on, and the field that the item came from."""


def mix(*parts: str) -> str:
    """64 bits, in hex, that depend on the parts and their order only."""
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


class Phase(Enum):
    """What a token does. All of them are live (R4)."""

    PENDING = "pending"
    """An item of a map that waits for the items it needs."""
    WAITING = "waiting"
    """At a join."""
    QUEUED = "queued"
    """May run as soon as limits allow."""
    RUNNING = "running"
    """Admitted. An executor runs it, or will after it took the run up again."""
    INSIDE = "inside"
    """At a subgraph that runs."""
    ASKING = "asking"
    """Waits for an answer."""
    PARKED = "parked"
    """Stopped by a spent limit; merged when what runs has landed."""


class OpenFork:
    """A fork, or map, that was entered and whose closing join has not fired yet."""

    __slots__ = ("arrivals", "fork", "key", "left", "live", "rank", "reach", "scope", "trunk", "version")

    def __init__(self, scope: Scope, key: str, rank: Rank, version: Version) -> None:
        self.fork = scope.fork
        self.scope, self.key, self.rank = scope, key, rank
        self.version = version
        """State when the fork was opened: joins give its `local` fields back."""
        self.trunk = version
        """The same plus what joins inside merged so far."""
        self.arrivals: dict[str, list[Activation]] = {}
        """Join -> tokens that wait at it, in the journal's order."""
        self.reach: dict[str, int] = dict.fromkeys(scope.joins, 0)
        """Join -> how many live tokens can still reach it."""
        self.live: int = 0
        """How many live tokens it has."""
        self.left: bool = False
        """Whether a token of it ended, or left it through a join."""


class Cell:
    """One item of a map whose items need each other (R12)."""

    __slots__ = (
        "done", "ended", "fork", "group", "index", "missing", "needs", "open", "started", "versions", "waiting",
    )  # fmt: skip

    def __init__(self, group: Group, index: int, needs: tuple[int, ...], fork: OpenFork) -> None:
        self.group, self.index, self.needs, self.fork = group, index, needs, fork
        self.missing = len(needs)
        self.open = 0
        """Tokens of the item that neither wait at a join of the map (or of a fork around it) nor ended."""
        self.waiting: dict[str, Activation] = {}
        self.ended: list[Version] = []
        self.versions: list[Version] = []
        """Where its waiting tokens stood when it was done."""
        self.started = self.done = False


class Group:
    """All items of one such map."""

    __slots__ = ("cells", "dependents", "forks", "merged", "pending", "target")

    def __init__(self, target: str | None, forks: tuple[OpenFork, ...]) -> None:
        self.forks = forks
        """What was open when the map opened, itself too: who waits at a join of these is where it can get to."""
        self.target = target
        """Where an empty map's token would go; without such a join nothing is skipped."""
        self.cells: list[Cell] = []
        self.dependents: dict[int, list[int]] = {}
        self.pending: dict[int, Activation] = {}
        self.merged: dict[tuple[int, ...], Version] = {}
        """Items that need the same others share the merge."""


class Activation:
    """A token, and the run of the node that it sits at."""

    # What most tokens never have stands on the class: a step makes one of these.
    phase: Phase = Phase.QUEUED
    attempt: int = 1
    not_before: float | None = None
    """Unix seconds before which a further attempt does not begin."""
    pause: float | None = None
    """Seconds from the end of the attempt before to that time: to be waited at most, whatever the clock says."""
    answers: Mapping[str, Answered] = MappingProxyType({})
    withdrawn: int = 0
    """How often answers of it were withdrawn: what it asks from then on are other questions."""
    error: Failure | None = None
    """The failure that a reserved outcome brought here."""
    fault: Failure | None = None
    """Why the node cannot run at all: land this as its failure."""
    child: FrameResult | None = None
    """How the graph inside ended, when the node is a subgraph and it did."""
    opened: bool = False
    counted: bool = False
    merged: bool = False

    def __init__(
        self,
        frame: Frame,
        key: str,
        node: str,
        version: Version,
        rank: Rank,
        forks: tuple[OpenFork, ...] = (),
        stack: tuple[Item, ...] = (),
        cells: tuple[Cell, ...] = (),
    ) -> None:
        self.frame, self.key, self.node, self.version, self.rank = frame, key, node, version, rank
        self.forks = forks
        """Outermost first."""
        self.stack = stack
        """The maps that are open and their items, outermost first (R10)."""
        self.cells = cells

    @property
    def values(self) -> dict[str, object]:
        """The state that the node sees. Never change it."""
        return self.version.values

    @property
    def path(self) -> str:
        """The branch, as text; graphs inside a subgraph's activation begin with its path and node."""
        prefix, path = self.frame.path, self.rank.path
        if path.parent is None:
            return prefix
        return f"{prefix}/{path}" if prefix else str(path)

    @property
    def item(self) -> object:
        """The item of the innermost open map, or None."""
        return self.stack[-1][1] if self.stack else None

    @property
    def items(self) -> tuple[object, ...]:
        """The items of all open maps, outermost first."""
        return tuple(item for _, item, _ in self.stack)

    def __repr__(self) -> str:
        return f"<{self.node} {self.phase.value} {self.path or '-'} {self.key}>"

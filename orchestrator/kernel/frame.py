"""One running graph: how tokens move through it (R1 to R12, R15). A subgraph's activation has a frame of its own.

The methods change the frame in place and tell the machine, through `Hooks`, what began and what must stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import ConflictingUpdate
from orchestrator.graph.topology import END, START, STOP, Route
from orchestrator.kernel.needs import needs_of, wants_order
from orchestrator.kernel.records import Failure
from orchestrator.kernel.token import Activation, Cell, Group, Item, OpenFork, Phase, mix
from orchestrator.kernel.version import ROOT, Path, Version, causes, compare, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.kernel.plan import Plan


def _compare_places(one: Activation, other: Activation) -> int:
    return compare(one.place, other.place) or (-1 if one.key < other.key else 1)


_by_place = cmp_to_key(_compare_places)


@dataclass(frozen=True, slots=True)
class FrameResult:
    """How a graph ended."""

    status: str
    """`completed`, `failed`, `exhausted` or `cancelled`."""
    values: dict[str, object]
    """The final state, as kernel values; of a failed graph its trunk."""
    error: Failure | None = None


class Hooks(Protocol):
    """What a frame tells its machine."""

    def dropped(self, activation: Activation) -> None:
        """A live token is gone: stop it, and all that runs inside it."""

    def ended_frame(self, frame: Frame) -> None:
        """The frame has a result."""

    def took(self, frame: Frame, index: int) -> None:
        """An edge was taken."""


class Frame:
    """Tokens, forks and counters of one running graph."""

    __slots__ = (
        "active",
        "after",
        "began",
        "calls",
        "cost",
        "ended_versions",
        "exhausting",
        "hooks",
        "key",
        "limits",
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
        "seen",
        "squashable",
        "steps",
        "tokens",
        "touched",
        "visits",
    )

    def __init__(
        self, plan: Plan, key: str, values: dict[str, object], hooks: Hooks, parent: Activation | None = None
    ) -> None:
        self.plan, self.key, self.hooks, self.parent = plan, key, hooks, parent
        self.limits = plan.limits
        self.root = Version(values, key=key)
        self.path: str = ""
        """The path of the subgraph's activation and its node; empty at the top."""
        self.place: str = ""
        """Names of the subgraph nodes around it, joined by `/`: the same for all activations."""
        if parent is not None:
            outer = parent.frame
            self.path = f"{parent.path}/{parent.node}" if parent.path else parent.node
            self.place = f"{outer.place}/{parent.node}" if outer.place else parent.node
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
        self.cost = self.began = 0.0
        self.visits: dict[str, int] = {}
        self.exhausting: str | None = None
        """The limit that is spent, until what runs has landed."""
        self.after = False
        """The exhausted edge was taken: what follows is not counted, and each node runs once at most."""
        self.once: set[str] = set()

    # -- starting and landing ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Send the first tokens."""
        source = Activation(self, self.key, START, self.root, ROOT)
        self._send(source, self.root, "done", None)
        self._settle()

    def land(
        self,
        activation: Activation,
        outcome: str,
        update: Mapping[str, object],
        ops: Mapping[str, str],
        reduced: Mapping[str, object] | None,
        error: Failure | None,
    ) -> None:
        """An activation ended: make its version, take its edges."""
        version = activation.version
        if update:
            version = self.stepped(activation, update, ops, reduced)
        self._remove(activation)
        if outcome == "exhausted" and not self.plan.topology.has_route(activation.node, outcome):
            self._park(activation, version)
            self.exhaust("nested")
        else:
            self._send(activation, version, outcome, error)
        self._settle()

    def stepped(
        self,
        activation: Activation,
        update: Mapping[str, object],
        ops: Mapping[str, str],
        reduced: Mapping[str, object] | None = None,
    ) -> Version:
        """The version that an update of this activation makes."""
        schema = self.plan.schema
        values = schema.apply(activation.version.values, update, ops)
        if reduced and schema.cls is None:
            values = {**values, **reduced}
        return Version(
            values,
            parents=(activation.version,),
            key=activation.key,
            node=activation.node,
            path=activation.place,
            update=update,
            ops=ops,
        )

    def _park(self, activation: Activation, version: Version) -> None:
        parked = Activation(self, activation.key, activation.node, version, activation.place, activation.forks)
        parked.phase = Phase.PARKED
        self._add(parked)

    # -- sending tokens (R1, R3, R10, R11, R12) -----------------------------------------------------------------

    def _send(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        topology = self.plan.topology
        routes = topology.routes(source.node, outcome)
        forks = source.forks
        if source.node in topology.fans:
            forks = self._open(source.node, source.key, source.place, version, forks)
        alone = len(routes) == 1
        for number, route in enumerate(routes):
            place = source.place if alone else Path(source.place, source.node, number)
            self.hooks.took(self, route.index)
            if route.each is not None:
                self._map(source, version, route, place, forks)
            else:
                self._arrive(route.target, mix(source.key, route.target, str(number)), version, place, forks,
                             source.stack, source.cells, error)  # fmt: skip

    def _open(
        self, vertex: str, key: str, place: Path, version: Version, forks: tuple[OpenFork, ...]
    ) -> tuple[OpenFork, ...]:
        if any(entry.fork == vertex for entry in forks):
            return forks
        scope = self.plan.topology.scope(vertex, frozenset(entry.fork for entry in forks))
        return (*forks, OpenFork(scope, mix(key, vertex), place, version))

    def _map(
        self, source: Activation, version: Version, route: Route, place: Path, forks: tuple[OpenFork, ...]
    ) -> None:
        vertex = route.map_vertex or source.node
        if route.map_vertex is not None:
            forks = self._open(vertex, mix(source.key, vertex), place, version, forks)
        assert route.each is not None
        found = version.values.get(route.each)
        items = list(found) if isinstance(found, (list, tuple)) else []
        entry = next(entry for entry in forks if entry.fork == vertex)
        outer = frozenset(e.fork for e in forks if e is not entry)
        if not items:
            target = self.plan.topology.empty_target(vertex, route.target, outer)
            key = mix(source.key, route.target, "empty")
            self._arrive(target or END, key, version, place, forks, source.stack, source.cells, None)
            return
        stack = tuple(pair for pair in source.stack if pair[0] != vertex)
        group: Group | None = None
        if wants_order(items):
            group = Group(self.plan.topology.empty_target(vertex, route.target, outer))
        needs = needs_of(items) if group is not None else ()
        for index, item in enumerate(items):
            key = mix(source.key, route.target, str(index))
            path = Path(place, source.node, index)
            full = (*stack, (vertex, item, route.each))
            if group is None:
                self._arrive(route.target, key, version, path, forks, full, source.cells, None)
                continue
            cell = Cell(group, index, needs[index], entry)
            group.cells.append(cell)
            for need in needs[index]:
                group.dependents.setdefault(need, []).append(index)
            token = Activation(self, key, route.target, version, path, forks, full, (*source.cells, cell))
            token.phase = Phase.PENDING
            group.pending[index] = token
            self._add(token)
        if group is not None:
            for cell in group.cells:
                if not cell.missing:
                    self._begin(cell)

    def _arrive(
        self,
        target: str,
        key: str,
        version: Version,
        place: Path,
        forks: tuple[OpenFork, ...],
        stack: tuple[Item, ...],
        cells: tuple[Cell, ...],
        error: Failure | None,
    ) -> None:
        if self.result is not None:
            return
        if target == END:
            self.ended_versions.append(version)
            for cell in cells:
                cell.ended.append(version)
                self.seen[id(cell)] = cell
            return
        if target == STOP:
            self.finish(FrameResult("completed" if not self.after else "exhausted", version.values))
            return
        token = Activation(self, key, target, version, place, forks, stack, cells)
        token.error = error
        self._sit(token)

    def _sit(self, token: Activation) -> None:
        """Put a token where it waits: at its join, or in the queue."""
        fork = self.plan.topology.match.get(token.node)
        entry = None if fork is None else next((e for e in token.forks if e.fork == fork), None)
        if entry is not None:
            token.phase = Phase.WAITING
            entry.arrivals.setdefault(token.node, []).append(token)
            self.touched[id(entry), token.node] = (entry, token.node)
        else:
            token.phase = Phase.QUEUED
            self.queue.append(token)
        self._add(token)

    # -- the books: who is live, who can reach what -------------------------------------------------------------

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
            scope = entry.scope
            if waiting:
                joins: Iterable[str] = scope.waiting[token.node]
            elif token.phase is Phase.PENDING and token.node in scope.waiting:
                joins = {token.node, *scope.waiting[token.node]} & entry.reach.keys()
            else:
                joins = scope.active[token.node]
            for join in joins:
                entry.reach[join] += step
                if not entry.reach[join]:
                    self.touched[id(entry), join] = (entry, join)

    def _settled(self, token: Activation, cell: Cell) -> bool:
        """Whether the token waits at a join of the cell's map, or of a fork around it."""
        if token.phase is not Phase.WAITING:
            return False
        fork = self.plan.topology.match[token.node]
        for entry in token.forks:
            if entry.fork == fork:
                return True
            if entry is cell.fork:
                return False
        return False

    # -- joins (R4, R5, R8) -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fire what can fire, start what can start, end what has ended; then forget what nobody needs."""
        while self.result is None and (self.touched or self.seen):
            if self.seen:
                cells, self.seen = self.seen, {}
                for cell in cells.values():
                    self._check_cell(cell)
                continue
            _, (entry, join) = self.touched.popitem()
            arrivals = entry.arrivals.get(join)
            if not arrivals:
                continue
            wanted = self.plan.topology.nodes[join].join
            if not entry.reach[join] or (isinstance(wanted, int) and len(arrivals) >= wanted):
                self._fire(entry, join, wanted if isinstance(wanted, int) else None)
        if self.result is not None:
            return
        if not self.live:
            self._end()
        elif len(self.live) == 1 and self.squashable:
            self._squash()

    def _fire(self, entry: OpenFork, join: str, wanted: int | None) -> None:
        arrivals = entry.arrivals.pop(join)
        if wanted is not None:
            self._drop_losers(entry, join, arrivals[wanted:])
            arrivals = arrivals[:wanted]
        arrivals.sort(key=_by_place)
        first = arrivals[0]
        position = first.forks.index(entry)
        closes = self.plan.topology.closes[join]
        forks = first.forks[: position if closes else position + 1]
        place = entry.path if closes else first.place
        outer = {e.fork for e in first.forks[:position]}
        key = mix(*(token.key for token in arrivals), join)
        fault: Failure | None = None
        try:
            version = self.merged([token.version for token in arrivals], key, place, entry.version)
        except ConflictingUpdate as conflict:
            version = first.version
            fault = Failure(type="ConflictingUpdate", message=str(conflict), node=join)
        for token in arrivals:
            self._remove(token)
        stack = tuple(pair for pair in first.stack if pair[0] in outer)
        kept = {id(e) for e in first.forks[:position]}
        cells = tuple(cell for cell in first.cells if id(cell.fork) in kept)
        fired = Activation(self, key, join, version, place, forks, stack, cells)
        fired.merged = True
        fired.fault = fault
        if not closes:
            entry.trunk = version
        self.queue.append(fired)
        self._add(fired)

    def merged(self, versions: Sequence[Version], key: str, place: Path, fork: Version) -> Version:
        """The merge of versions with local fields as they were at `fork`."""
        local = {name: fork.values[name] for name in self.plan.local if name in fork.values}
        return merge(self.plan.schema, versions, key=key, path=place, local=local)

    def _drop_losers(self, entry: OpenFork, join: str, late: Sequence[Activation]) -> None:
        losers = {token.key: token for token in late}
        for token in self.live.values():
            if entry not in token.forks or token.key in losers:
                continue
            if token.phase is Phase.WAITING:
                reaches = join in entry.scope.waiting[token.node]
            elif token.phase is Phase.PENDING:
                reaches = join == token.node or join in entry.scope.active[token.node]
            else:
                reaches = join in entry.scope.active[token.node]
            if reaches:
                losers[token.key] = token
        for token in losers.values():
            self.drop(token)

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

    # -- items that need items (R12) ------------------------------------------------------------------------------

    def _check_cell(self, cell: Cell) -> None:
        if cell.done or cell.open or not cell.started:
            return
        cell.done = True
        cell.versions = [token.version for token in sorted(cell.waiting.values(), key=_by_place)]
        group = cell.group
        for index in group.dependents.get(cell.index, ()):
            dependent = group.cells[index]
            dependent.missing -= 1
            if not dependent.missing:
                self._begin(dependent)

    def _begin(self, cell: Cell) -> None:
        """Start an item, or skip it because an item that it needs ended."""
        group = cell.group
        token = group.pending.pop(cell.index, None)
        if token is None:
            return
        needed = [group.cells[index] for index in cell.needs]
        cell.started = True
        self._remove(token)
        if group.target is not None and any(not other.versions for other in needed):
            self.seen[id(cell)] = cell
            return
        if needed:
            try:
                token.version = self._needed(group, cell, needed)
            except ConflictingUpdate as conflict:
                token.fault = Failure(type="ConflictingUpdate", message=str(conflict), node=token.node)
        if token.fault is not None:
            token.phase = Phase.QUEUED
            self.queue.append(token)
            self._add(token)
        else:
            self._sit(token)

    def _needed(self, group: Group, cell: Cell, needed: Sequence[Cell]) -> Version:
        known = group.merged.get(cell.needs)
        if known is None:
            versions: list[Version] = [cell.fork.version]
            for other in needed:
                versions += other.versions or other.ended
            key = mix(cell.fork.key, *(str(index) for index in cell.needs))
            known = self.merged(versions, key, cell.fork.path, cell.fork.version)
            group.merged[cell.needs] = known
        return known

    # -- limits (R14) ---------------------------------------------------------------------------------------------

    def exhaust(self, limit: str) -> None:
        """A limit is spent: nothing starts any more. `collapse` follows when what runs has landed."""
        if self.result is None and self.exhausting is None:
            self.exhausting = limit

    def collapse(self) -> None:
        """Merge all live and ended tokens into one at the exhausted target, or into the result."""
        versions = [token.version for token in sorted(self.live.values(), key=_by_place)] + self.ended_versions
        for token in list(self.live.values()):
            self.drop(token)
        self.queue.clear()
        self.ended_versions = []
        self.touched.clear()
        self.seen.clear()
        target = None if self.after else self.plan.topology.exhausted_target
        self.exhausting = None
        try:
            version = self.merged(versions, mix(self.key, "exhausted"), ROOT, self.root)
        except ConflictingUpdate as conflict:
            self.finish(
                FrameResult("failed", self.root.values, Failure(type="ConflictingUpdate", message=str(conflict)))
            )
            return
        if target is None or target in (END, STOP):
            self.finish(FrameResult("exhausted", version.values))
            return
        self.after = True
        self.hooks.took(
            self,
            next(i for i, e in enumerate(self.plan.edges) if e.source == "*" and e.outcome == "exhausted"),
        )
        token = Activation(self, mix(self.key, "exhausted", target), target, version, ROOT)
        token.merged = True
        self.queue.append(token)
        self._add(token)
        self._settle()

    # -- ends (R9, R13, R15) ----------------------------------------------------------------------------------------

    def _end(self) -> None:
        status = "exhausted" if self.after else "completed"
        versions = self.ended_versions or [self.root]
        try:
            version = self.merged(versions, mix(self.key, "END"), ROOT, self.root)
        except ConflictingUpdate as conflict:
            failure = Failure(type="ConflictingUpdate", message=str(conflict), node=END)
            self.finish(FrameResult("failed", self.root.values, failure))
            return
        self.finish(FrameResult(status, version.values))

    def finish(self, result: FrameResult) -> None:
        """End this graph: every token that is left is dropped."""
        if self.result is not None:
            return
        self.result = result
        self.exhausting = None
        for token in list(self.live.values()):
            if token.key in self.live:
                self.drop(token)
        self.queue.clear()
        self.touched.clear()
        self.seen.clear()
        self.ended_versions = []
        self.hooks.ended_frame(self)

    def trunk(self) -> Version:
        """The state at the outermost open fork plus what its joins merged; of a single token, its own."""
        for token in self.live.values():
            return token.forks[0].trunk if token.forks else token.version
        return self.root

    def _squash(self) -> None:
        (token,) = self.live.values()
        if any(not causes(version, token.version) for version in self.ended_versions):
            # What ended on its own never becomes a cause of what is live: do not look again.
            self.squashable = False
            return
        self.ended_versions.clear()
        if token.version.parents or token.place is not ROOT:
            token.version = Version(token.version.values, key=token.version.key)
            token.place = ROOT
            for entry in token.forks:
                entry.path = ROOT
                entry.version = Version(entry.version.values)
                entry.trunk = Version(entry.trunk.values)

"""One running graph: how tokens move through it (R1 to R15). A subgraph's activation has a frame of its own.

The methods change the frame in place and tell the machine, through `Hooks`, what began and what must stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.errors import StepError
from orchestrator.graph.topology import END, START, STOP, Route
from orchestrator.kernel.books import FrameResult, Hooks
from orchestrator.kernel.joins import Due, Joins
from orchestrator.kernel.limitwords import limit_failure
from orchestrator.kernel.needs import needs_of, wants_order
from orchestrator.kernel.rank import FIRST, Rank
from orchestrator.kernel.records import Failure
from orchestrator.kernel.token import Activation, Cell, Group, Item, OpenFork, Phase, mix
from orchestrator.kernel.version import Version, causes

__all__ = ["Frame", "FrameResult", "Hooks"]


class Frame(Joins):
    """Tokens, forks and counters of one running graph."""

    __slots__ = ()

    # -- starting and landing ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Send the first tokens."""
        source = Activation(self, self.key, START, self.root, FIRST)
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
        if update or reduced:
            # Nobody will ever merge what is alone with anything: its past can be forgotten at once.
            alone = len(self.live) == 1 and not activation.forks and not self.ended_versions
            version = self.stepped(activation, update, ops, reduced, alone=alone)
        self._remove(activation)
        if outcome == "exhausted" and not self.plan.topology.has_route(activation.node, outcome):
            # Only journals of earlier versions hold this: there a spent limit of a graph inside also ended this graph.
            self._park(activation, version)
            self.exhaust("nested", activation.node, error)
        else:
            self._send(activation, version, outcome, error)
        self._settle()

    def stepped(
        self,
        activation: Activation,
        update: Mapping[str, object],
        ops: Mapping[str, str],
        reduced: Mapping[str, object] | None = None,
        *,
        alone: bool = False,
    ) -> Version:
        """The version that an update of this activation makes; `alone`: without where it comes from."""
        schema = self.plan.schema
        if reduced:
            # What the journal says that a reducer made holds, also if its code is another one by now.
            rest = {name: value for name, value in update.items() if name not in reduced}
            values = {**schema.apply(activation.version.values, rest, ops), **schema.decode(reduced)}
        else:
            values = schema.apply(activation.version.values, update, ops)
        if alone:
            return Version(values, key=activation.key)
        return self.version_type(
            values,
            parents=(activation.version,),
            key=activation.key,
            node=activation.node,
            rank=activation.rank,
            update=update,
            ops=ops,
        )

    def _park(self, activation: Activation, version: Version) -> None:
        parked = Activation(self, activation.key, activation.node, version, activation.rank, activation.forks)
        parked.phase = Phase.PARKED
        self._add(parked)

    # -- sending tokens (R1, R3, R10, R11, R12) -----------------------------------------------------------------

    def _send(self, source: Activation, version: Version, outcome: str, error: Failure | None) -> None:
        topology, node, rank, forks = self.plan.topology, source.node, source.rank, source.forks
        routes = topology.routes(node, outcome)
        if node in topology.fans:
            forks = self._open(node, source.key, rank, version, forks)
        several = len(routes) > 1
        for number, route in enumerate(routes):
            if several:
                rank = source.rank.branch(node, number)
            self.hooks.took(self, route.index)
            if route.each is not None:
                self._map(source, version, route, rank, forks)
            else:
                target = route.target
                key = mix(source.key, target, str(number))
                self._arrive(target, key, version, rank, forks, source.stack, source.cells, error)

    def _open(
        self, vertex: str, key: str, rank: Rank, version: Version, forks: tuple[OpenFork, ...]
    ) -> tuple[OpenFork, ...]:
        if any(entry.fork == vertex for entry in forks):
            return forks
        scope = self.plan.topology.scope(vertex, frozenset(entry.fork for entry in forks))
        return (*forks, OpenFork(scope, mix(key, vertex), rank, version))

    def _map(self, source: Activation, version: Version, route: Route, rank: Rank, forks: tuple[OpenFork, ...]) -> None:
        vertex, origin = source.node, source.key
        if route.map_vertex is not None:
            # A fork of its own: its items must not be named like the edges, or the items, beside it.
            vertex, origin = route.map_vertex, mix(source.key, route.map_vertex)
            forks = self._open(vertex, origin, rank, version, forks)
        assert route.each is not None
        found = version.values.get(route.each)
        items = list(found) if isinstance(found, (list, tuple)) else []
        entry = next(entry for entry in forks if entry.fork == vertex)
        outer = frozenset(e.fork for e in forks if e is not entry)
        if not items:
            target = self._empty_target(vertex, route.target, outer)
            key = mix(origin, route.target, "empty")
            self._arrive(target or END, key, version, rank, forks, source.stack, source.cells, None)
            return
        stack = tuple(pair for pair in source.stack if pair[0] != vertex)
        group: Group | None = None
        if wants_order(items):
            group = Group(self._empty_target(vertex, route.target, outer), forks)
        needs = needs_of(items) if group is not None else ()
        for index, item in enumerate(items):
            key = mix(origin, route.target, str(index))
            branch = rank.branch(source.node, index)
            full = (*stack, (vertex, item, route.each))
            if group is None:
                self._arrive(route.target, key, version, branch, forks, full, source.cells, None)
                continue
            cell = Cell(group, index, needs[index], entry)
            group.cells.append(cell)
            for need in needs[index]:
                group.dependents.setdefault(need, []).append(index)
            token = Activation(self, key, route.target, version, branch, forks, full, (*source.cells, cell))
            token.phase = Phase.PENDING
            group.pending[index] = token
            self._add(token)
        if group is not None:
            for cell in group.cells:
                if not cell.missing:
                    self._begin(cell)

    def _empty_target(self, fork: str, mapped: str, outer: frozenset[str]) -> str | None:
        return self.plan.topology.empty_target(fork, mapped, outer, declared=self.rules.declared_order)

    def _arrive(
        self,
        target: str,
        key: str,
        version: Version,
        rank: Rank,
        forks: tuple[OpenFork, ...],
        stack: tuple[Item, ...],
        cells: tuple[Cell, ...],
        error: Failure | None,
    ) -> None:
        if self.result is not None:
            return
        if target == END:
            self.ended_versions.append(version)
            for entry in forks:
                entry.left = True
            for cell in cells:
                cell.ended.append(version)
                self.seen[id(cell)] = cell
            return
        if target == STOP:
            self.finish(FrameResult("completed" if not self.after else "exhausted", version.values, self.spent))
            return
        token = Activation(self, key, target, version, rank, forks, stack, cells)
        if error is not None:
            token.error = error
        self._sit(token)

    # -- what follows from a move -------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fire what can fire, start what can start, end what has ended; then forget what nobody needs."""
        due: list[Due] = []
        while self.result is None and (self.touched or self.seen or due):
            if self.seen:
                cells, self.seen = self.seen, {}
                for cell in cells.values():
                    self._check_cell(cell)
                continue
            touched = self._next_touched(due)
            if touched is not None:
                self._look_at(*touched)
        if self.result is not None:
            return
        if not self.live:
            self._end()
        elif self.squashable and len(self.live) == 1:
            self._squash()

    # -- limits (R14) ---------------------------------------------------------------------------------------------

    def exhaust(self, limit: str, node: str = "", inside: Failure | None = None) -> None:
        """A limit is spent: nothing starts any more. `collapse` follows when what runs has landed.

        Args:
            node: the node that was refused, if one was.
            inside: what the graph inside the node said, if the limit is one of its.
        """
        if self.result is None and self.exhausting is None:
            self.exhausting = limit
            if self.spent is None:
                self.spent = inside or limit_failure(self.plan.name, self.limits, limit, node, self.path)

    def collapse(self) -> None:
        """Merge all live and ended tokens into one at the exhausted target, or into the result."""
        tokens = self.in_order(self.live.values())
        fault = next((token.fault for token in tokens if token.fault is not None), None)
        if fault is not None:  # a merge failed, and its step will not come to say so
            self.finish(FrameResult("failed", self.trunk().values, fault))
            return
        versions = [token.version for token in tokens] + self.ended_versions
        for token in list(self.live.values()):
            self.drop(token)
        self.queue.clear()
        self.ended_versions = []
        self.touched.clear()
        self.seen.clear()
        target = None if self.after else self.plan.topology.exhausted_target
        self.exhausting = None
        try:
            version = self.merged(versions, mix(self.key, "exhausted"))
        except StepError as fault:
            self.finish(FrameResult("failed", self.root.values, Failure(type=type(fault).__name__, message=str(fault))))
            return
        if target is None or target in (END, STOP):
            self.finish(FrameResult("exhausted", version.values, self.spent))
            return
        self.after = True
        self.hooks.took(
            self,
            next(i for i, e in enumerate(self.plan.edges) if e.source == "*" and e.outcome == "exhausted"),
        )
        token = Activation(self, mix(self.key, "exhausted", target), target, version, FIRST)
        token.merged = True
        token.error = self.spent
        self.queue.append(token)
        self._add(token)
        self._settle()

    # -- ends (R9, R13, R15) ----------------------------------------------------------------------------------------

    def _end(self) -> None:
        status = "exhausted" if self.after else "completed"
        versions = self.ended_versions or [self.root]
        try:
            version = self.merged(versions, mix(self.key, "END"))
        except StepError as fault:
            failure = Failure(type=type(fault).__name__, message=str(fault), node=END)
            self.finish(FrameResult("failed", self.root.values, failure))
            return
        self.finish(FrameResult(status, version.values, self.spent))

    def finish(self, result: FrameResult) -> None:
        """End this graph: every token that is left is dropped."""
        if self.result is not None:
            return
        self.result = replace(result, lasting=self.lasting) if self.lasting else result
        self.exhausting = None
        for token in list(self.live.values()):
            if token.key in self.live:
                self.drop(token)
        self.queue.clear()
        self.touched.clear()
        self.seen.clear()
        self.ended_versions = []
        self.hooks.ended_frame(self)

    def _squash(self) -> None:
        (token,) = self.live.values()
        if token.version.parents or self.ended_versions:
            if any(not causes(version, token.version) for version in self.ended_versions):
                # What ended on its own never becomes a cause of what is live: do not look again.
                self.squashable = False
                return
            self.ended_versions.clear()
            if token.version.parents:
                # Paths stay: when this happens depends on timing, and what a step is told must not.
                token.version = Version(token.version.values, key=token.version.key)
                for entry in token.forks:
                    entry.version = Version(entry.version.values)
                    entry.trunk = Version(entry.trunk.values)
        if token.rank.joined is not None:
            # All that follows comes from this token, so nothing is left that the list could tell apart.
            token.rank = Rank(token.rank.path)
            for entry in token.forks:
                entry.rank = Rank(entry.rank.path)

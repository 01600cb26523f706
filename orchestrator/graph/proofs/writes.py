"""Proof that parallel branches do not write to the same field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.graph.checks.shape import most_tokens
from orchestrator.graph.faults import listed_names
from orchestrator.graph.proofs.paths import Move, Paths, Spot
from orchestrator.graph.proofs.places import Place, updates_of
from orchestrator.graph.report import Proof, WitnessStep
from orchestrator.graph.topology import END, STOP, counts

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition

# -- The search for two concurrent branches that write the same field ------------------------------------------
# For each fork and each two of its branches, the search moves both tokens, one step of either at a time, as the kernel
# would: a token that waits at a join of a fork around both continues once the other can no longer reach the join. The
# two are concurrent until they meet, one is dropped, or the graph stops. A join that lets the other branches run
# (`rest="run"`) settles what was written before it: a late branch does not change that.


FEW = 40
"""The most spots after a spent limit for which the nodes that ran are tracked."""
MOST_PAIRS = 20_000
"""The most pairs of branches for which these nodes are tracked."""


class _Token(NamedTuple):
    """A token of a `_Pair`: where it is, and whether its node runs."""

    spot: Spot
    ready: bool
    """True if its node runs; False if it waits at a join."""


class _Pair(NamedTuple):
    """Two tokens of one run after they separated."""

    first: _Token
    second: _Token
    shared: int
    """Number of open forks that both tokens are inside."""
    wrote: str = ""
    """The node of the first token that has written the field since they separated. Its name is kept only after a spent
    limit, when each node runs once.
    """
    also: bool = False
    """True if the second token has written the field before that; used only if joins let other branches run."""
    passed: frozenset[str] = frozenset()
    """Joins that let the other token run: it ends there."""
    barred: frozenset[str] = frozenset()
    """Joins that the second token cannot pass without another branch that depends on what the first has written."""
    ran: frozenset[str] = frozenset()
    """The nodes that ran after a spent limit: none runs twice. Kept only if few nodes follow the limit."""
    beside: frozenset[tuple[str, int]] = frozenset()
    """For joins that take a number: how many other branches wait there, at most one less than the number."""


class _Came(NamedTuple):
    """The step by which the search reached a pair of tokens, and the pair before it."""

    before: _Pair | None
    step: WitnessStep
    by_second: bool
    fork: Spot


class Collision(NamedTuple):
    """Two branches that write the same field."""

    fork: Spot
    witness: tuple[WitnessStep, ...]
    beside: tuple[WitnessStep, ...]
    nodes: tuple[str, str]


class BranchPairs:
    """All pairs of branches of one graph."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.topology = paths, paths.topology
        self.letting_run = frozenset(join for join in self.topology.joins if self.topology.nodes[join].lets_run)
        self.taking_numbers = any(self._number(join) > 1 for join in self.topology.joins)
        self.few = sum(spot.spent for spot in paths.spots) <= FEW
        self.before: dict[Spot, list[Spot]] = {spot: [] for spot in paths.spots}
        for spot in paths.spots:
            for move in paths.moves(spot):
                self.before[move.target].append(spot)

    def first_hit(self, writers: frozenset[str]) -> Collision | None:
        """Return two branches with a writer in each, if there are any."""
        useful = self._leading_to(writers)
        came: dict[_Pair, _Came] = {}
        ahead: list[_Pair] = []
        for pair, step, spot in self._parted():
            if pair not in came and pair.first.spot in useful and pair.second.spot in useful:
                came[pair] = _Came(None, step, False, spot)
                ahead.append(pair)
        for pair in ahead:
            if self.few and len(came) > MOST_PAIRS:
                self.few = False
                return self.first_hit(writers)
            for following, step, by_second in self._following(pair, writers):
                if following is None:
                    return self._hit(came, pair, step)
                if following in came or following.second.spot not in useful:
                    continue
                if following.wrote or following.first.spot in useful:
                    came[following] = _Came(pair, step, by_second, came[pair].fork)
                    ahead.append(following)
        return None

    def _leading_to(self, writers: frozenset[str]) -> set[Spot]:
        found = {spot for spot in self.paths.spots if spot.vertex in writers}
        ahead = list(found)
        while ahead:
            for spot in self.before[ahead.pop()]:
                if spot not in found:
                    found.add(spot)
                    ahead.append(spot)
        return found

    def _parted(self) -> Iterator[tuple[_Pair, WitnessStep, Spot]]:
        """Yield each two branches that separate anywhere, in both orders."""
        for spot in self.paths.spots:
            by_outcome: dict[str, list[Move]] = {}
            ways = self.paths.moves(spot)
            for move in ways:
                if not move.note:
                    by_outcome.setdefault(move.outcome, []).append(move)
            for outcome, moves in by_outcome.items():
                step = WitnessStep(spot.vertex, outcome)
                pairs = [*combinations(moves, 2), *((move, move) for move in moves if move.each)]
                for one, other in pairs:
                    shared = _common(one.target.forks, other.target.forks)
                    if STOP in (one.target.vertex, other.target.vertex):
                        continue
                    ran = self._ran(spot)
                    beside = self._waiting(frozenset(), one, {other.edge}, ways, one.target.forks[:shared])
                    for left, right in ((one, other), (other, one)):
                        tokens = self._token(left.target), self._token(right.target)
                        pair = self._arrived(_Pair(*tokens, shared, ran=ran, beside=beside))
                        if pair is not None:
                            yield pair, step, spot

    def _token(self, spot: Spot, passed: frozenset[str] = frozenset()) -> _Token:
        if spot.vertex in passed and self.paths.waits(spot):
            return _Token(Spot(END, spot.forks, spot.spent), ready=True)
        return _Token(spot, not self.paths.waits(spot))

    def _waiting(
        self,
        before: frozenset[tuple[str, int]],
        move: Move,
        without: Collection[int],
        moves: Sequence[Move],
        shared: Sequence[str],
    ) -> frozenset[tuple[str, int]]:
        """Return the numbers of other branches that wait at joins of shared forks, after a move.

        Args:
            before: their numbers before the move.
            move: the move.
            without: the numbers of edges whose branches are not counted, in addition to that of the move.
            moves: all moves from the same spot.
            shared: the forks that both tokens are inside.
        """
        if not self.taking_numbers:
            return before
        ways: dict[int, list[Move]] = {}
        for other in moves:
            if other.outcome == move.outcome and other.edge != move.edge and other.edge not in without:
                ways.setdefault(other.edge, []).append(other)
        found = dict(before)
        for join in filter(None, map(self.paths.joins_at_once, ways.values())):
            found[join] = min(found.get(join, 0) + 1, self._number(join) - 1)
        return frozenset(
            (join, count) for join, count in found.items() if count and self.topology.match[join] in shared
        )

    def _number(self, join: str) -> int:
        """Return the number of branches that a join waits for; 0 if it does not take a number."""
        wanted = self.topology.nodes[join].join
        return wanted if isinstance(wanted, int) else 0

    def _takes_next(self, pair: _Pair, join: str) -> bool:
        """Return True if a join fires as soon as one more branch arrives."""
        return self._number(join) - dict(pair.beside).get(join, 0) == 1

    def _ran(self, spot: Spot) -> frozenset[str]:
        """Return the nodes that ran after a spent limit on the way to a spot, including the spot's own."""
        found: set[str] = set()
        at: Spot | None = spot if self.few else None
        while at is not None and at.spent:
            found.add(at.vertex)
            before = self.paths.spots[at]
            at = None if before is None else before[0]
        return frozenset(found)

    def _open(self, token: _Token) -> tuple[str, ...]:
        return self.paths.inside(token.spot) if token.ready else token.spot.forks

    def _following(self, pair: _Pair, writers: frozenset[str]) -> Iterator[tuple[_Pair | None, WitnessStep, bool]]:
        """Yield the pairs after one step of either token; None if both have written."""
        for by_second in (False, True):
            mine, other = (pair.second, pair.first) if by_second else (pair.first, pair.second)
            if mine.spot.vertex in (END, STOP):
                continue
            if not mine.ready:
                if self._may_fire(mine, other, pair):
                    yield self._fired(pair, mine, by_second), WitnessStep(""), by_second
                elif mine.spot.vertex in self.letting_run and self._takes_others(mine.spot.vertex):
                    passed = self._passed(pair, mine, by_second)
                    if passed is not None:
                        yield passed, WitnessStep(""), by_second
                continue
            if mine.spot.vertex in pair.ran:
                continue
            writes = mine.spot.vertex in writers
            moves = self.paths.moves(mine.spot)
            for move in moves:
                if move.target.vertex == STOP:
                    continue
                step = WitnessStep(mine.spot.vertex, move.outcome, move.note)
                token = self._token(move.target, pair.passed)
                shared = min(pair.shared, len(self.paths.inside(mine.spot)))
                following = _placed(pair, token, shared, by_second)
                inside = token.spot.forks[:shared]
                following = following._replace(beside=self._waiting(pair.beside, move, set(), moves, inside))
                if mine.spot.spent and self.few:
                    following = following._replace(ran=pair.ran | {mine.spot.vertex})
                if any(not self._stays(other, join, shared) for join in move.firing):
                    continue
                if writes and not by_second:
                    wrote = mine.spot.vertex if mine.spot.spent else "any"
                    following = following._replace(wrote=pair.wrote or wrote)
                elif writes and self.letting_run and not pair.wrote:
                    following = following._replace(also=True)
                if following.wrote and not by_second:
                    barred = pair.barred | self._barred_by(mine.spot, move, moves, shared)
                    following = following._replace(barred=barred)
                arrived = self._arrived(following, by_second)
                hit = writes and by_second and pair.wrote not in ("", mine.spot.vertex)
                if hit and (arrived is not None or self._meet(following)):
                    yield None, step, by_second
                elif arrived is not None:
                    yield arrived, step, by_second

    def _stays(self, other: _Token, join: str, shared: int) -> bool:
        """Return True if a token is not dropped when a join fires that takes the first branch."""
        fork, forks = self.topology.match[join], other.spot.forks
        if fork not in forks or forks.index(fork) >= shared or other.spot.vertex == END:
            return True
        if not other.ready:
            return not self.paths.can_reach(other.spot, join)
        scope = self.topology.scope(fork, frozenset(forks[: forks.index(fork)]))
        return join not in scope.active[other.spot.vertex]

    def _barred_by(self, spot: Spot, move: Move, moves: Sequence[Move], shared: int) -> frozenset[str]:
        """Return the joins of shared forks that need a branch which separates from the first token here."""
        beside: dict[int, list[Spot]] = {}
        for other in moves:
            if other.outcome == move.outcome and other.edge != move.edge:
                beside.setdefault(other.edge, []).append(other.target)
        forks = self.paths.inside(spot)[:shared]
        return frozenset(
            join
            for join in (self.topology.joins if beside else ())
            if self.topology.match[join] in forks and not counts(self.topology.nodes[join].join)
            if any(self.paths.keeping_off(join).isdisjoint(targets) for targets in beside.values())
        )

    def _arrived(self, pair: _Pair, by_second: bool | None = None) -> _Pair | None:
        """Return the pair after one of its tokens reached its place; None if they met, or one dropped the other."""
        if self._meet(pair):
            return None
        for second in (False, True) if by_second is None else (by_second,):
            mine, other = (pair.second, pair.first) if second else (pair.first, pair.second)
            join = mine.spot.vertex
            if mine.ready or not self._takes_next(pair, join):
                continue
            if self._may_fire(mine, other, pair):
                pair = self._fired(pair, mine, second)
                continue
            passed = self._passed(pair, mine, second) if join in self.letting_run else None
            if passed is None:
                return None
            pair = passed
        return pair

    def _fired(self, pair: _Pair, mine: _Token, by_second: bool) -> _Pair:
        """Return the pair after a token's join has fired without the other token."""
        fired = _Token(mine.spot, ready=True)
        beside = frozenset(waiting for waiting in pair.beside if waiting[0] != mine.spot.vertex)
        placed = _placed(pair, fired, min(pair.shared, len(self._open(fired))), by_second)
        return placed._replace(beside=beside)

    def _passed(self, pair: _Pair, mine: _Token, by_second: bool) -> _Pair | None:
        """Return the pair after a join fired for a token and lets the other run; None if the write is settled."""
        if pair.also if by_second else pair.wrote:
            return None
        return self._fired(pair, mine, by_second)._replace(passed=pair.passed | {mine.spot.vertex})

    def _takes_others(self, join: str) -> bool:
        """Return True if enough branches can reach a join that it may fire without one of them."""
        wanted, fork = self.topology.nodes[join].join, self.topology.match[join]
        if not isinstance(wanted, int) or fork is None:
            return True
        return max(most_tokens(self.topology, fork, join, fan) for fan in self.topology.fans[fork]) > wanted

    def _meet(self, pair: _Pair) -> bool:
        """Return True if both tokens wait at the same join of a fork around both."""
        first, second = pair.first, pair.second
        if first.ready or second.ready or first.spot.vertex != second.spot.vertex:
            return False
        fork = self.topology.match[first.spot.vertex]
        return fork in first.spot.forks[: pair.shared]

    def _may_fire(self, mine: _Token, other: _Token, pair: _Pair) -> bool:
        """Return True if a join at which a token waits may fire before the other token moves."""
        join, forks = mine.spot.vertex, mine.spot.forks
        fork = self.topology.match[join]
        if join in mine.spot.blocked or (mine is pair.second and join in pair.barred):
            return False
        if fork not in forks or other.spot.vertex == END:
            return True
        place = forks.index(fork)
        if place >= pair.shared:
            return True
        scope = self.topology.scope(fork, frozenset(forks[:place]), pair.passed)
        table = scope.active if other.ready else scope.waiting
        return join not in table[other.spot.vertex] and (other.ready or other.spot.vertex != join)

    def _hit(self, came: dict[_Pair, _Came], pair: _Pair, last: WitnessStep) -> Collision:
        one: list[WitnessStep] = []
        other: list[WitnessStep] = [last]
        at: _Pair | None = pair
        wrote = ""
        while at is not None:
            how = came[at]
            if how.before is None:
                one.append(how.step)
                other.append(how.step)
            elif how.step.node and how.by_second:
                other.append(how.step)
            elif how.step.node and not how.before.wrote:  # moves of the first token after its write are left out
                one.append(how.step)
                wrote = wrote or how.step.node
            at = how.before
        return Collision(came[pair].fork, tuple(reversed(one)), tuple(reversed(other)), (wrote, last.node))


def _placed(pair: _Pair, token: _Token, shared: int, by_second: bool) -> _Pair:
    if by_second:
        return pair._replace(second=token, shared=shared)
    return pair._replace(first=token, shared=shared)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


# -- The proof that no two concurrent branches write the same plain field --------------------------------------


CLAIM = "no two concurrent branches write one plain field"


def separate(places: Sequence[Place]) -> Iterator[Proof]:
    """Yield one claim for all graphs, or one for each graph and field that break it."""
    held = True
    for place in places:
        if place.paths.topology.fans:
            for proof in _of_graph(place):
                held = False
                yield proof
    if held:
        yield Proof("writes", CLAIM, "proved")


def _of_graph(place: Place) -> Iterator[Proof]:
    graph = place.graph
    branches = BranchPairs(place.paths)
    updates = {name: updates_of(node) for name, node in graph.nodes.items()}
    silent = frozenset(name for name, fields in updates.items() if fields is None)
    unknown = False
    for field in _plain_fields(graph):
        writers = frozenset(name for name, fields in updates.items() if fields is not None and field in fields)
        hit = branches.first_hit(writers) if writers else None
        if hit is not None:
            yield _proof(place, field, hit, frozenset())
        elif silent and not unknown and (maybe := branches.first_hit(writers | silent)) is not None:
            unknown = True
            yield _proof(place, field, maybe, silent)


def _plain_fields(graph: GraphDefinition) -> list[str]:
    return [name for name, field in graph.schema.fields.items() if field.plain and not field.local]


def _proof(place: Place, field: str, hit: Collision, silent: frozenset[str]) -> Proof:
    lead = place.way_to(hit.fork)
    one, other = ((*lead, *(_named(place, step) for step in path)) for path in (hit.witness, hit.beside))
    nodes = " and ".join(place.named(name) for name in dict.fromkeys(hit.nodes))
    fork = place.named(hit.fork.vertex)
    if silent:
        which = listed_names(place.named(name) for name in dict.fromkeys(hit.nodes) if name in silent)
        reason = f"{which} may write {field!r} in concurrent branches of {fork}: declare writes="
        return Proof("writes", f"{CLAIM}{place.where}", "undecided", reason, one, other, place.tool)
    verb = "runs in two concurrent branches" if len(set(hit.nodes)) == 1 else "run in concurrent branches"
    reason = f"{nodes} {verb} of {fork}, and may write {field!r}: give it a reducer, or let one write another field"
    return Proof("writes", f"{CLAIM}{place.where}", "refuted", reason, one, other, place.tool)


def _named(place: Place, step: WitnessStep) -> WitnessStep:
    return WitnessStep(place.named(step.node), step.outcome, step.note)

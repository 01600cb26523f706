"""Recounts a machine's books after every record, from nothing but its live tokens and the graph.

The kernel keeps counters so that a step costs what it touches. Here every one of them is counted again by a walk
(`reference.Shape`), and every token is followed: each that goes was landed, merged, skipped or dropped by a rule, each
that comes was sent or fired, and a join fires once for what waited at it, when nobody else can come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.graph.topology import END, STOP
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import branches
from orchestrator.kernel.run_state import Delta, RunState
from orchestrator.kernel.state import Activation, FrameState, MapItem, OpenFork, Phase
from orchestrator.kernel.transitions import has_needs

from .harness import TooLongError
from .reference import Shape

MOST = 40
"""Live tokens of a graph. Counting more again takes long and says no more."""


def trail(values: Any) -> set[str]:
    """Keys of the updates that a state holds."""
    return set(values["trail"])


@dataclass
class Stood:
    """Where a token stood before the record."""

    token: Activation
    node: str
    phase: Phase
    forks: tuple[OpenFork, ...]
    cells: tuple[MapItem, ...]
    trail: set[str]


class Walks:
    """Which joins a token can still reach, found by walking the graph each time it is asked something new (R4)."""

    def __init__(self, plan: Plan) -> None:
        self.shape = Shape(plan)
        self.known: dict[tuple[str, str, str, frozenset[str], str], bool] = {}
        found = {
            join: fork and fork.replace("/", "*", 1).replace("/", ":", 1) for join, fork in self.shape.match.items()
        }
        assert found == plan.topology.match, "joins belong to other forks"
        assert {join: self.shape.closes(join) for join in found} == plan.topology.closes
        self.match = found

    @classmethod
    def of(cls, plan: Plan) -> Walks:
        """Made once per plan."""
        known = plan.__dict__.get("_walks")
        if not isinstance(known, cls):
            known = plan.__dict__["_walks"] = cls(plan)
        return known

    def reaches(self, token: Activation, entry: OpenFork, join: str) -> bool:
        """Whether a live token can come to a join of a fork that it is in."""
        if token.phase is Phase.WAITING and token.node == join:
            return False
        kind = token.phase.value if token.phase in (Phase.WAITING, Phase.PENDING) else "active"
        below = frozenset(e.fork for e in token.forks[: token.forks.index(entry)])
        asked = (token.node, kind, entry.fork, below, join)
        if asked not in self.known:
            self.known[asked] = self._walk(*asked)
        return self.known[asked]

    def _walk(self, node: str, kind: str, fork: str, below: frozenset[str], join: str) -> bool:
        others = [other for other in self.shape.joins if other != join]
        barred = {o for o in others if self.match[o] in below}
        barred |= {o for o in others if self.match[o] == fork and self.shape.closes(o)}
        barred |= {o for o in self.shape.on_every_way_out(join) if self.match[o] == fork}
        if kind == "waiting" and node in barred:
            return False
        return join in self.shape.reach([node] if kind == "pending" else self.shape.after[node], barred)


class Audit:
    """Give it to a `Simulation` as an observer."""

    def __init__(self) -> None:
        self.before: dict[str, dict[str, Stood]] = {}
        self.ended: dict[str, tuple[int, set[str]]] = {}
        """Frame -> how many versions ended in it, and the updates they hold."""
        self.fired: dict[tuple[str, object, str], set[str]] = {}
        """(frame, fork instance, join) -> updates that the last firing held."""
        self.dropped: set[str] = set()
        """Frames in which a join took the first of its branches: others go on without what the rest holds."""
        self.landing: Stood | None = None
        self.count: Counter[str] = Counter()
        """What was seen, so that a test can say that it was there."""

    def __call__(self, machine: RunState, record: r.Record, delta: Delta) -> None:
        frames = {frame.key: frame for frame in machine.frames()}
        for frame in frames.values():
            if len(frame.live) > MOST:
                raise TooLongError(frame.plan.name)
            if frame.result is None:
                recount(machine, frame)
                if isinstance(record, r.StepDone) and frame.exhausting is None and not frame.after_limit:
                    self._follow(frame, record)
        self._check_end(machine, record)
        self.before = {key: {k: stood(t) for k, t in frame.live.items()} for key, frame in frames.items()}
        self.ended = {
            key: (len(frame.ended_versions), set().union(*(trail(v.values) for v in frame.ended_versions)))
            for key, frame in frames.items()
        }

    def _check_end(self, machine: RunState, record: r.Record) -> None:
        """Nothing runs and nothing is asked: then it has ended. It has ended: then nothing runs, lives or is asked."""
        if machine.result is None:
            assert machine.running or machine.questions, "nothing runs, nothing is asked, and there is no end"
        else:
            assert not machine.running
            assert not machine.questions
            assert not branches(machine)
        assert (machine.ended is not None) == isinstance(record, r.Ended)

    # -- one step: what came, what went ---------------------------------------------------------------------------

    def _follow(self, frame: FrameState, record: r.StepDone) -> None:
        before = self.before.get(frame.key, {})
        landed = before.get(record.activation)
        if landed is None or landed.phase not in (Phase.RUNNING, Phase.INSIDE):
            return
        self.count["steps"] += 1
        topology, match = frame.plan.topology, frame.plan.topology.match
        sent = sends(frame, landed, record)
        came = [token for key, token in frame.live.items() if key not in before]
        gone = [old for key, old in before.items() if key not in frame.live and old is not landed]
        assert landed.token.key not in frame.live, f"{landed.node} landed and is still there"
        fires = [token for token in came if token.node in match and token.phase is not Phase.WAITING]
        fires = [token for token in fires if token.phase is not Phase.PENDING]
        some = any(isinstance(topology.nodes[token.node].join, int) for token in fires)
        if some:  # R8 drops tokens as it likes; the books were counted, and the reference does not race
            self.count["some"] += 1
            self.dropped.add(frame.key)
            self._note(frame, fires, gone, landed)
            return
        at_joins = Counter(token.node for token in came if token.node in match and token not in fires)
        fired_at = {token.node for token in fires}
        for node, number in Counter(token.node for token in came if token not in fires).items():
            assert number <= sent[node], f"{number} tokens came to {node}, {sent[node]} were sent"
        for node, number in sent.items():
            if node in (END, STOP):
                continue
            here = at_joins[node] if node in match else sum(token.node == node for token in came)
            assert here == number or node in fired_at, f"{number} tokens were sent to {node}, {here} came"
        for old in gone:
            assert self._may_go(old, fired_at), f"a token {old.phase.value} at {old.node} is lost"
        self._note(frame, fires, gone, landed)
        self._count_ended(frame, sent[END])

    def _may_go(self, old: Stood, fired_at: set[str]) -> bool:
        if old.phase in (Phase.WAITING, Phase.PENDING) and old.node in fired_at:
            return True
        if old.phase is not Phase.PENDING:
            return False
        cell = old.cells[-1]
        needed = [cell.ordered_map.items[index] for index in cell.needs]
        self.count["skipped"] += 1
        return any(other.done and not other.versions for other in needed)

    def _note(self, frame: FrameState, fires: list[Activation], gone: list[Stood], landed: Stood) -> None:
        """Joins: once for all that waited, with all they held, and when nobody else of the fork can come."""
        walks, topology = Walks.of(frame.plan), frame.plan.topology
        for join in {token.node for token in fires}:
            self.count["fires"] += 1
            fork = topology.match[join]
            merged: dict[object, list[Stood]] = {}
            for old in gone:
                if old.node == join and old.phase in (Phase.WAITING, Phase.PENDING):
                    entry = next(e for e in old.forks if e.fork == fork)
                    merged.setdefault(entry, []).append(old)
            mine = next((e for e in landed.forks if e.fork == fork), None)
            if not merged:
                merged[mine or landed.token.key] = []
            here = [token for token in fires if token.node == join]
            assert len(here) == len(merged), f"{join} fired {len(here)} times for {len(merged)} forks"
            for entry, arrivals in merged.items():
                holds = next((t for t in here if all(old.trail <= trail(t.values) for old in arrivals)), None)
                assert holds is not None or any(t.fault for t in here), f"{join} lost what waited at it"
                self._once(frame, entry, join, set() if holds is None else trail(holds.values))
                if isinstance(entry, OpenFork) and topology.nodes[join].join == "all":
                    others = [t for t in frame.live.values() if entry in t.forks and t not in fires]
                    early = [t for t in others if walks.reaches(t, entry, join)]
                    assert not early, f"{join} fired, and {early[0].node} can still reach it"

    def _once(self, frame: FrameState, entry: object, join: str, holds: set[str]) -> None:
        known = (frame.key, entry, join)
        if known in self.fired:
            assert not frame.plan.topology.closes[join], f"{join} fired twice for one fork"
            kept = self.fired[known] <= holds or not holds or frame.key in self.dropped
            assert kept, f"{join} fired again without what it merged before"
            self.count["again"] += 1
        self.fired[known] = holds

    def _count_ended(self, frame: FrameState, number: int) -> None:
        count, held = self.ended.get(frame.key, (0, set()))
        if len(frame.ended_versions) == count + number:
            return
        assert not frame.ended_versions, f"{number} tokens ended, {len(frame.ended_versions) - count} were noted"
        assert len(frame.live) == 1, "what ended was forgotten, and several tokens are live"
        (token,) = frame.live.values()
        assert held <= trail(token.values), "what ended was forgotten, and nobody holds it"
        self.count["forgotten"] += 1


def stood(token: Activation) -> Stood:
    """A copy: the kernel changes tokens in place."""
    return Stood(token, token.node, token.phase, token.forks, token.map_items, trail(token.values))


def sends(frame: FrameState, landed: Stood, record: r.StepDone) -> Counter[str]:
    """How many tokens the step sends where (R1, R11)."""
    schema, topology = frame.plan.schema, frame.plan.topology
    values = landed.token.values
    if record.update:
        values = schema.apply(values, record.update, record.ops)
    sent: Counter[str] = Counter()
    for route in topology.routes(landed.node, record.outcome):
        if route.each is None:
            sent[route.target] += 1
            continue
        vertex = route.map_vertex or landed.node
        items: Any = values[route.each]
        if items:
            sent[route.target] += len(items)
        else:
            outer = {e.fork for e in landed.forks} | ({landed.node} if landed.node in topology.fans else set())
            sent[topology.empty_target(vertex, route.target, frozenset(outer - {vertex})) or END] += 1
        assert not has_needs(items) or all("needs" in item for item in items)
    return sent


def recount(machine: RunState, frame: FrameState) -> None:
    """Every counter and queue of a frame, counted again."""
    walks = Walks.of(frame.plan)
    live = list(frame.live.values())
    assert all(frame.live[token.key] is token for token in live)
    assert list(frame.queue) == [t for t in frame.queue if frame.live.get(t.key) is t and t.phase is Phase.QUEUED]
    assert len(frame.queue) == len(set(frame.queue)) == sum(t.phase is Phase.QUEUED for t in live), "the queue is wrong"
    for token in live:
        assert (token.phase is Phase.RUNNING) == (machine.running.get(token.key) is token), token
        assert (token.phase is Phase.INSIDE) == (token.key in machine.inner_frames), token
        assert (token.phase is Phase.ASKING) == (token in machine.askers.values()), token
        places = [e.fork for e in token.forks]
        assert len(places) == len(set(places)), f"{token} is in one fork twice"
    entries = {id(e): e for token in live for e in token.forks}.values()
    for entry in entries:
        _recount_fork(walks, entry, [token for token in live if entry in token.forks])
    _recount_cells(live)
    inside = sum(_within(a.frame, frame) for a in machine.running.values())
    assert frame.active == inside, f"{frame.active} active, {inside} run"


def _recount_fork(walks: Walks, entry: OpenFork, members: list[Activation]) -> None:
    for join, count in entry.reach.items():
        found = sum(walks.reaches(token, entry, join) for token in members)
        assert count == found, f"{count} can reach {join} of {entry.fork} by the books, {found} can"
        waiting = [t for t in members if t.phase is Phase.WAITING and t.node == join]
        noted = entry.arrivals.get(join, [])
        assert Counter(t.key for t in noted) == Counter(t.key for t in waiting), f"{join} does not know who waits"
        assert not waiting or found, f"{join} could fire and did not"


def _recount_cells(live: Iterable[Activation]) -> None:
    found: dict[int, tuple[MapItem, set[str], set[str]]] = {}
    for token in live:
        for cell in token.map_items:
            _, waiting, moving = found.setdefault(id(cell), (cell, set(), set()))
            assert cell.fork in cell.ordered_map.forks
            up = [e.fork for e in token.forks if e in cell.ordered_map.forks]
            settled = token.phase is Phase.WAITING and token.frame.plan.topology.match[token.node] in up
            (waiting if settled else moving).add(token.key)
    for cell, waiting, moving in found.values():
        assert set(cell.waiting) == waiting, f"item {cell.index} does not know who waits"
        assert cell.open == len(moving), f"item {cell.index} counts {cell.open} that go on, {len(moving)} do"


def _within(inner: FrameState, outer: FrameState) -> bool:
    step: FrameState | None = inner
    while step is not None:
        if step is outer:
            return True
        step = None if step.parent is None else step.parent.frame
    return False

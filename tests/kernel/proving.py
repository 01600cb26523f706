"""Every run of a small graph, by the kernel, and the run that a witness tells of.

An `Explorer` tries every outcome of every step, lists of no and of two items, a limit that is spent anywhere, and every
order of landing. Each token has *tags*, which follow it through forks, joins and limits: what they say is up to `Tags`.
States with the same tokens and tags are tried once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any, TypeAlias

from orchestrator import Graph
from orchestrator.graph.report import WitnessStep
from orchestrator.graph.topology import IF_NAMED
from orchestrator.kernel import records as r
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.run_state import Observer, RunState
from orchestrator.kernel.state import Activation, FrameState, Phase
from orchestrator.kernel.version import Version, causes

Tag: TypeAlias = Any
DEEPEST = 60
"""Records of a run that follows a witness, at most: a loop that writes a field has new states without end."""
LISTS = ([], [1, 2])


class Tags:
    """What tokens are followed by. By default: nothing."""

    def begin(self) -> Iterable[Tag]:
        """Those of START."""
        return ((),)

    def step(self, tag: Tag, node: str, outcome: str) -> Iterable[Tag]:
        """Those behind a step."""
        return (tag,)

    def jump(self, tag: Tag, node: str) -> Iterable[Tag]:
        """Those behind a limit that is spent while a token is at a node."""
        return (tag,)

    def kept(self, tags: Iterable[Tag]) -> frozenset[Tag]:
        """All that one token needs of them."""
        return frozenset(tags)

    def shown(self, tag: Tag) -> object:
        """What tells states apart."""
        return tag


@dataclass(eq=False)
class State:
    """One state of a run."""

    run: RunState
    tags: dict[str, frozenset[Tag]]
    """Token -> its tags; step of a subgraph -> those with which END of the graph inside was entered."""
    depth: int = 0


class _Follower(Observer):
    """Gives new tokens the tags of those that they come from."""

    def __init__(self, tags: Tags, known: dict[str, frozenset[Tag]]) -> None:
        self.tags, self.known = tags, known
        self.stack: list[frozenset[Tag]] = []

    def of(self, token: Activation) -> frozenset[Tag]:
        return self.known.get(token.key, frozenset())

    def sending(self, source: Activation, version: Version, outcome: str, error: r.Failure | None) -> None:
        around = source.frame.parent
        name = _place_of(source)
        if source.node == "START":
            found: Iterable[Tag] = self.tags.begin() if around is None else self.of(around)
        else:
            found = self.of(source) if source.child is None else self.known.get(f"inside {source.key}", frozenset())
        behind = self.tags.kept(t for tag in found for t in self.tags.step(tag, name, outcome))
        ends = any(way.target == "END" for way in source.frame.plan.topology.routes(source.node, outcome))
        if around is not None and ends:
            key = f"inside {around.key}"
            self.known[key] = self.tags.kept((*self.known.get(key, ()), *behind))
        self.stack.append(behind)

    def joining(self, join: str, arrivals: list[Activation]) -> None:
        self.stack.append(self.tags.kept(tag for token in arrivals for tag in self.of(token)))

    def collapsing(self, frame: FrameState) -> None:
        live = frame.live.values()
        self.stack.append(
            self.tags.kept(t for token in live for tag in self.of(token) for t in self.tags.jump(tag, token.node))
        )

    def ending(self, frame: FrameState) -> None:
        self.stack.append(frozenset())

    def done(self) -> None:
        self.stack.pop()

    def added(self, token: Activation) -> None:
        if self.stack:
            self.known[token.key] = self.stack[-1]


@dataclass
class Explored:
    """What was found in all runs of a graph."""

    states: int = 0
    whole: bool = True
    """Whether every state was tried: none was too deep, and there were not too many."""
    stuck: bool = False
    """Whether some state leads to no end, if `whole`."""


class Explorer:
    """Tries all runs of a graph.

    Args:
        graph: the graph. Of graphs inside it, only the limits are not spent.
        tags: what follows tokens.
        field: a plain field that is written by every step of a node that may.
        most: states that are tried at most.
        deep: steps of one run at most.
    """

    def __init__(self, graph: Graph, tags: Tags, *, field: str = "", most: int = 3_000, deep: int = 24) -> None:
        self.graph, self.plan, self.tags, self.field = graph, Plan.of(graph), tags, field
        self.most, self.deep = most, deep

    def first(self) -> State:
        state = State(RunState(self.plan), {})
        values = self.plan.schema.initial({})
        begun = r.RunStarted(
            seq=1, ts=1.0, run_id="run", graph="g", structure="s", content="c", values=dict(values), rules=2
        )  # fmt: skip
        return self._applied(state, begun)

    def _applied(self, state: State, record: r.Record) -> State:
        run = state.run.copy()
        follower = _Follower(self.tags, dict(state.tags))
        run.observers = (follower,)
        apply(run, record)
        run.observers = ()
        assert run.root is not None
        live = [key for frame in (run.root, *run.inner_frames.values()) for key in frame.live]
        kept = [*live, *(f"inside {key}" for key in live)]
        tags = {key: follower.known[key] for key in kept if key in follower.known}
        return State(run, tags, state.depth + 1)

    def following(self, state: State) -> Iterator[State]:
        """Every state behind one more record."""
        run = state.run
        frame = run.root
        assert frame is not None
        if run.result is not None:
            return
        head = {"seq": run.head + 1, "ts": float(run.head + 1)}
        for activation in list(run.running.values()):
            if activation.fault is not None:
                continue
            inner = activation.frame.plan.sub.get(activation.node)
            if inner is not None and activation.child is None:
                at = {**head, "activation": activation.key, "path": activation.path, "node": activation.node}
                values = dict(inner.schema.initial({}))
                yield self._applied(state, r.GraphOpened(**at, attempt=activation.attempt, values=values))
                continue
            for outcome in self.outcomes(activation):
                for lists in self.lists(activation, outcome):
                    update: dict[str, Any] = dict(lists)
                    nodes = activation.frame.plan.graph.nodes if activation.frame.plan.graph is not None else {}
                    if self.field and self.field in (nodes[activation.node].updates or ()):
                        update[self.field] = "written"
                    at = {**head, "activation": activation.key, "path": activation.path, "node": activation.node}
                    error = r.Failure(type="E", message="drawn") if outcome in IF_NAMED else None
                    yield self._applied(state, r.StepDone(**at, outcome=outcome, update=update, error=error))
        if self.plan.topology.exhausted_target is not None and not frame.after_limit and frame.exhausting is None:
            yield self._applied(state, r.LimitSpent(**head, frame="", limit="seconds"))

    def outcomes(self, activation: Activation) -> list[str]:
        """What a node may end with: no node of a generated graph has a time-out."""
        node, plan = activation.node, activation.frame.plan
        declared = plan.nodes[node].outcomes
        named = [o for o in ("error", "failed") if o not in declared and plan.topology.has_route(node, o)]
        return [*declared, *named]

    def lists(self, activation: Activation, outcome: str) -> Iterator[dict[str, list[int]]]:
        """The lists that a step's maps may have."""
        routes = activation.frame.plan.topology.routes(activation.node, outcome)
        names = list(dict.fromkeys(way.each for way in routes if way.each))
        for values in product(LISTS, repeat=len(names)):
            yield dict(zip(names, values, strict=True))

    def explore(self, seen: Callable[[State], None]) -> Explored:
        """Try all states, and show each once."""
        found = Explored()
        first = self.first()
        known = {self.signature(first): 0}
        before: list[set[int]] = [set()]
        ends: list[int] = []
        ahead = [(0, first)]
        while ahead:
            number, state = ahead.pop()
            found.states += 1
            seen(state)
            if state.run.result is not None:
                ends.append(number)
                continue
            if state.depth > self.deep or len(state.tags) > 7:
                found.whole = False
                continue
            for following in self.following(state):
                signature = self.signature(following)
                there = known.get(signature)
                if there is None:
                    there = known[signature] = len(known)
                    before.append(set())
                    ahead.append((there, following))
                before[there].add(number)
            if len(known) > self.most:
                found.whole = False
                return found
        if found.whole:
            free, backward = set(ends), list(ends)
            while backward:
                for number in before[backward.pop()]:
                    if number not in free:
                        free.add(number)
                        backward.append(number)
            found.stuck = len(free) < len(known)
        return found

    def signature(self, state: State) -> object:
        """What decides how a run can go on, and its tags."""
        run = state.run
        frame = run.root
        assert frame is not None
        if run.result is not None:
            return ("ended", run.result.status)
        numbers: dict[int, int] = {}
        tokens: list[object] = []
        live = [token for one in (frame, *run.inner_frames.values()) for token in one.live.values()]
        plain = sorted(live, key=lambda token: self._plain(state, token))
        for token in plain:
            forks = tuple(numbers.setdefault(id(entry), len(numbers)) for entry in token.forks)
            tokens.append((self._plain(state, token), forks))
        versions = self._versions(state) if self.field else ()
        spent = tuple(sorted(frame.visited_after_limit)) if frame.after_limit else None
        return (tuple(tokens), spent, frame.exhausting, bool(frame.ended_versions), versions)

    def _plain(self, state: State, token: Activation) -> tuple[str, ...]:
        place = ""
        if token.phase is Phase.WAITING:
            entry = next(e for e in token.forks if e.fork == token.frame.plan.topology.match[token.node])
            place = str(entry.arrivals[token.node].index(token))
        known = (*state.tags.get(token.key, ()), *state.tags.get(f"inside {token.key}", ()))
        shown = sorted(repr(self.tags.shown(tag)) for tag in known)
        forks = ",".join(entry.fork for entry in token.forks)
        name = f"{token.frame.path}/{token.node}"
        return (name, token.phase.value, place, forks, ";".join(shown), str(token.fault is not None))

    def _versions(self, state: State) -> object:
        """Which writes of the field each token, and the ends, have among their causes."""
        frame = state.run.root
        assert frame is not None
        written = self.written(state)
        rows = [
            (token.node, tuple(causes(one, token.version) for one in written))
            for token in sorted(frame.live.values(), key=lambda token: self._plain(state, token))
        ]
        ended = tuple(sorted(tuple(causes(one, end) for one in written) for end in frame.ended_versions))
        return (tuple(sorted(rows)), ended)

    def written(self, state: State) -> list[Version]:
        """The writes of the field that live tokens and ends have among their causes, in the order of steps."""
        frame = state.run.root
        assert frame is not None
        found: dict[str, Version] = {}
        seen: set[int] = set()
        ahead = [*(token.version for token in frame.live.values()), *frame.ended_versions]
        while ahead:
            version = ahead.pop()
            if id(version) not in seen:
                seen.add(id(version))
                ahead += version.parents
                if version.update and self.field in version.update:
                    found[version.key] = version
        return sorted(found.values(), key=lambda version: (version.node, version.generation, version.key))

    def conflicting(self, state: State) -> bool:
        """Whether a merge found two writes of the field concurrent."""
        frame = state.run.root
        assert frame is not None
        faults = [token.fault for token in frame.live.values()]
        if state.run.result is not None:
            faults.append(state.run.result.error)
        return any(fault is not None and fault.type == "ConflictingUpdate" for fault in faults)

    def concurrent(self, state: State) -> bool:
        """Whether two writes of the field are concurrent, or a merge found them so."""
        if self.conflicting(state) or state.run.result is not None:
            return self.conflicting(state)
        written = self.written(state)
        return any(
            not causes(one, other) and not causes(other, one)
            for number, one in enumerate(written)
            for other in written[:number]
        )


class Progress(Tags):
    """How far along a witness a token has come; of two paths, on which of them."""

    def __init__(self, paths: Sequence[Sequence[WitnessStep]]) -> None:
        self.paths = [list(path) for path in paths if path]

    def begin(self) -> Iterable[Tag]:
        return [(number, 0) for number in range(len(self.paths))]

    def step(self, tag: Tag, node: str, outcome: str) -> Iterable[Tag]:
        number, place = tag
        path = self.paths[number]
        if place >= len(path) or path[place].node != node or path[place].outcome != outcome:
            return ()
        return ((number, place + 1),)

    def jump(self, tag: Tag, node: str) -> Iterable[Tag]:
        number, place = tag
        path = self.paths[number]
        if place >= len(path) or path[place].node != node or path[place].outcome:
            return ()
        return ((number, place + 1),)


def replayed(
    graph: Graph,
    paths: Sequence[Sequence[WitnessStep]],
    there: Callable[[Explorer, State], bool],
    *,
    field: str = "",
    most: int = 4_000,
) -> bool:
    """Whether the kernel makes a run in which tokens take the paths and a state is come to."""
    progress = Progress(paths)
    explorer = Explorer(graph, progress, field=field)
    numbers = count()
    first = explorer.first()
    ahead: list[tuple[int, int, int, State]] = [(0, 0, next(numbers), first)]
    known: set[object] = {explorer.signature(first)}
    while ahead and len(known) < most:
        *_, state = heapq.heappop(ahead)
        if there(explorer, state):
            return True
        if state.depth > DEEPEST:
            continue
        for following in explorer.following(state):
            signature = explorer.signature(following)
            if signature not in known:
                known.add(signature)
                best = dict.fromkeys(range(len(progress.paths)), 0)
                for tags in following.tags.values():
                    for number, place in tags:
                        best[number] = max(best[number], place)
                heapq.heappush(ahead, (-sum(best.values()), following.depth, next(numbers), following))
    return any(there(explorer, state) for *_, state in ahead)


def at_last(number: int = 0) -> Callable[[Explorer, State], bool]:
    """Whether a token runs at the last node of a path, having taken it."""

    def there(explorer: Explorer, state: State) -> bool:
        progress = explorer.tags
        assert isinstance(progress, Progress)
        path = progress.paths[number]
        return any(
            _place_of(token) == path[-1].node and (number, len(path) - 1) in state.tags.get(token.key, ())
            for token in state.run.running.values()
        )

    return there


def waiting_at_last(number: int = 0) -> Callable[[Explorer, State], bool]:
    """Whether a token waits at the join that a path ends at, having taken it."""

    def there(explorer: Explorer, state: State) -> bool:
        progress = explorer.tags
        assert isinstance(progress, Progress)
        path = progress.paths[number]
        run = state.run
        frames = () if run.root is None else (run.root, *run.inner_frames.values())
        return any(
            _place_of(token) == path[-1].node
            and token.phase is Phase.WAITING
            and (number, len(path) - 1) in state.tags.get(token.key, ())
            for frame in frames
            for token in frame.live.values()
        )

    return there


def _place_of(token: Activation) -> str:
    """A token's node, with the names of the nodes around it, as a witness names it."""
    return f"{token.frame.place}/{token.node}" if token.frame.place else token.node

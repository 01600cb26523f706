"""A second implementation of the rules, read word by word, slow and simple: every question is answered by a walk.

It shares nothing with the kernel but the state's reducers. An update is an *event* that knows all events in its
past; a state is the fold of a set of events, causes first, then the lowest branch (R6). A branch stands at a place, its
path as a tuple of numbers, and has a list of such places, one for each closing join on its way: that is all of R6.
Nothing is counted or kept: whether a token can reach a join is found by walking the graph each time (R4).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from orchestrator.graph.edges import Edge
from orchestrator.json import canonical
from orchestrator.kernel.plan import Plan

from .behave import Behaviour, Sight
from .harness import TooLongError

RESERVED = ("error", "timeout", "exhausted")
Path = tuple[int, ...]
Places = tuple[Path, ...]


class Shape:
    """What the graph alone decides (R1, R2, R5)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.after: dict[str, list[str]] = {"START": [], "END": [], "STOP": [], **{node: [] for node in plan.nodes}}
        self.fans: dict[str, list[list[str]]] = {}
        """Fork -> the branches of each of its outcomes that has several edges, or maps."""
        for node in ("START", *plan.nodes):
            for outcome in self.outcomes(node):
                self._add(node, self.edges(node, outcome))
        self.joins = [node for node, shape in plan.nodes.items() if shape.join not in (None, "each")]

    def outcomes(self, node: str) -> list[str]:
        if node == "START":
            return ["done"]
        caught = [e.outcome for e in self.plan.edges if e.source == node and e.outcome in RESERVED]
        return [*self.plan.nodes[node].outcomes, *(o for o in caught if o is not None)]

    def edges(self, node: str, outcome: str) -> list[Edge]:
        mine = [edge for edge in self.plan.edges if edge.source == node]
        named = [edge for edge in mine if edge.outcome == outcome]
        return named or [edge for edge in mine if edge.outcome is None and outcome not in RESERVED]

    def vertex(self, edge: Edge, edges: list[Edge]) -> str:
        """A map beside other edges is a fork of its own, between the two nodes."""
        return f"{edge.source}/{edge.target}/{edge.each}" if edge.each and len(edges) > 1 else edge.target

    def _add(self, node: str, edges: list[Edge]) -> None:
        branches = [self.vertex(edge, edges) for edge in edges]
        for edge, branch in zip(edges, branches, strict=True):
            if branch not in self.after[node]:
                self.after[node].append(branch)
            if branch != edge.target:
                self.after[branch] = [edge.target]
                self.fans[branch] = [[edge.target]]
        if len(edges) > 1 or (edges and edges[0].each):
            self.fans.setdefault(node, []).append(branches)

    def reach(self, sources: Iterable[str], avoid: Iterable[str]) -> set[str]:
        """All on ways from the sources, themselves included, that do not pass `avoid`."""
        barred, found = set(avoid), set()
        todo = [source for source in sources if source not in barred]
        while todo:
            vertex = todo.pop()
            if vertex not in found:
                found.add(vertex)
                todo += [v for v in self.after[vertex] if v not in barred]
        return found

    def dominators(self, vertex: str) -> list[str]:
        """Nearest first."""
        found = [d for d in self.after if d != vertex and vertex not in self.reach(["START"], [d])]
        nearest = {d: sum(d not in self.reach(["START"], [other]) for other in found) for d in found}
        return sorted(found, key=nearest.__getitem__, reverse=True)

    @cached_property
    def match(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for join in self.joins:
            self._match(join, found)
        return found

    def _match(self, join: str, found: dict[str, str | None]) -> str | None:
        if join not in found:
            found[join] = next((f for f in self.dominators(join) if self._merges(join, f, found)), None)
        return found[join]

    def _merges(self, join: str, fork: str, found: dict[str, str | None]) -> bool:
        for branches in self.fans.get(fork, ()):
            if join in self.reach(branches, [fork]):
                others = [o for o in self.joins if o != join and join not in self.reach(branches, [fork, o])]
                if not any(self._match(other, found) == fork for other in others):
                    return True
        return False

    def closes(self, join: str) -> bool:
        fork = self.match[join]
        beyond = self.reach(self.after[join], [] if fork is None else [fork])
        return not any(self.match[other] == fork for other in self.joins if other in beyond)

    def on_every_way_out(self, join: str) -> set[str]:
        others = {o for o in self.joins if o != join and self.match[o] == self.match[join]}
        return {o for o in others if not {"END", "STOP"} & self.reach(self.after[join], [o])}

    def empty_target(self, fork: str, mapped: str, outer: set[str]) -> str | None:
        """R11."""
        distance, ring = {mapped: 0}, [mapped]
        while ring:
            nearby = [v for vertex in ring for v in self.after[vertex] if v not in distance and v != fork]
            distance.update(dict.fromkeys(nearby, distance[ring[0]] + 1))
            ring = list(dict.fromkeys(nearby))
        joins = [j for j in self.joins if j in distance and (self.match[j] == fork or self.match[j] in outer)]
        fit = [
            j
            for j in joins
            if not any(o in self.reach([mapped], [fork, j]) for o in joins if o != j)
            or all(j in self.reach(self.after[o], []) for o in joins if o != j)
        ]
        return min(fit, key=lambda j: (distance[j], self.joins.index(j)), default=None)


@dataclass(frozen=True)
class Event:
    """An update."""

    node: str
    path: Path
    joined: Places
    past: frozenset[int]
    update: Mapping[str, Any]
    ops: Mapping[str, str]

    @property
    def order(self) -> tuple[Path, Places]:
        """Which comes first of two that know nothing of each other: the place, then the list, oldest first."""
        return self.path, self.joined


@dataclass(eq=False)
class Fork:
    """An open one."""

    name: str
    path: Path
    joined: Places
    past: frozenset[int]
    own: Mapping[str, Any]
    passed: dict[str, set[str]] = field(default_factory=dict)
    """Join that fired and let the others run -> the plain fields that it merged."""


@dataclass(eq=False)
class Item:
    """One of a map whose items need each other."""

    fork: Fork
    forks: tuple[Fork, ...] = ()
    """What was open when the map opened."""
    needs: list[Item] = field(default_factory=list)
    target: str | None = None
    begun: bool = False
    done: bool = False
    waited: list[Token] = field(default_factory=list)
    late: list[Token] = field(default_factory=list)
    ended: list[frozenset[int]] = field(default_factory=list)


@dataclass(eq=False)
class Token:
    """Phases: run, wait, pending, ended."""

    node: str
    phase: str
    path: Path
    joined: Places
    """The places of the lowest branch that each closing join on its way merged."""
    past: frozenset[int]
    own: Mapping[str, Any]
    """Values of the fields that are a branch's own."""
    forks: tuple[Fork, ...] = ()
    stack: tuple[tuple[str, object], ...] = ()
    cells: tuple[Item, ...] = ()
    fault: bool = False
    error: str | None = None
    hidden: frozenset[str] = frozenset()
    """Fields that it does not bring to the end."""

    @property
    def order(self) -> tuple[Path, Places]:
        """See `Event.order`."""
        return self.path, self.joined


class SpentError(Exception):
    """A limit of a graph around the one that runs is spent."""

    def __init__(self, graph: Reference) -> None:
        self.graph = graph


@dataclass
class Told:
    """What a run came to."""

    status: str
    values: dict[str, Any]
    seen: list[tuple[str, str, str]]
    several: bool = False
    """Whether several ways ended: then what a branch's own fields come to is not told."""


class Dice(Protocol):
    """Decides which step runs next."""

    def choice(self, ready: Sequence[Token], /) -> Token:
        """One of the tokens."""
        ...


class Reference:
    """One run of a graph, or of one inside another. Where branches race for limits, the dice decide."""

    def __init__(
        self,
        plan: Plan,
        behaviour: Behaviour,
        values: Mapping[str, Any],
        most: int = 400,
        around: Reference | None = None,
    ) -> None:
        self.plan, self.behaviour, self.most = plan, behaviour, most
        self.line: list[Reference] = [self] if around is None else [self, *around.line]
        self.steps = 0
        self.visits = Counter[str]()
        self.after = False
        """A limit was spent, and the exhausted edge taken."""
        self.shape: Shape = plan.__dict__.setdefault("_reference", Shape(plan))
        self.first = plan.schema.decode(plan.schema.initial(values))
        self.own = {name for name, entry in plan.schema.fields.items() if entry.local}
        self.plain = {name for name, entry in plan.schema.fields.items() if entry.plain and not entry.local}
        self.events: list[Event] = []
        self.live: list[Token] = []
        self.ended: list[Token] = []
        self.cells: list[Item] = []
        self.late = 0
        """Number of tokens that came to a join which had let them run."""
        self.told: Told | None = None
        self.seen: list[tuple[str, str, str]] = []

    # -- state (R6, R7) -----------------------------------------------------------------------------------------

    def state(self, past: frozenset[int], own: Mapping[str, Any], tips: Iterable[Token] = ()) -> dict[str, Any]:
        hidden = self.hidden(past, tips)
        values = dict(self.first)
        waiting, done = set(past), set()
        while waiting:
            ready = [e for e in waiting if not (self.events[e].past & past) - done]
            lowest = min(ready, key=lambda e: self.events[e].order)
            assert sum(self.events[e].order == self.events[lowest].order for e in ready) == 1, "R6 is not total"
            event = self.events[lowest]
            left_out = self.own | hidden[lowest]
            update = {name: value for name, value in event.update.items() if name not in left_out}
            values = self.plan.schema.apply(values, update, event.ops)
            waiting.discard(lowest)
            done.add(lowest)
        return {**values, **own}

    def hidden(self, past: frozenset[int], tips: Iterable[Token]) -> dict[int, set[str]]:
        """Event -> fields that all tokens with it in their past hide."""
        tokens = list(tips)
        found: dict[int, set[str]] = {}
        for event in past:
            knowing = [token.hidden for token in tokens if event in token.past]
            found[event] = set(frozenset.intersection(*knowing)) if knowing else set()
        return found

    def conflicting(self, past: frozenset[int], tips: Iterable[Token] = ()) -> bool:
        hidden = self.hidden(past, tips)
        wrote = []
        for i in sorted(past):
            shown = {name: value for name, value in self.events[i].update.items() if name not in hidden[i]}
            wrote.append((i, replace(self.events[i], update=shown)))
        for i, one in wrote:
            for k, other in wrote:
                apart = i < k and i not in other.past and k not in one.past
                alone = self.plain | {name for e in (one, other) for name in e.ops if e.ops[name] == "replace"}
                if apart and alone & one.update.keys() & other.update.keys() - self.own:
                    return True
        return False

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, dice: Dice) -> Told:
        own = {name: self.first[name] for name in self.own}
        self.send(Token("START", "run", (), (), frozenset(), own), "done")
        self.settle()
        steps = 0
        while self.told is None:
            ready = [token for token in self.live if token.phase == "run"]
            assert ready, f"deadlock: {[(t.node, t.phase) for t in self.live]}"
            self.admit(dice.choice(ready))
            steps += 1
            if steps > self.most:
                raise TooLongError(self.plan.name)
        return self.told

    # -- limits (R14) -------------------------------------------------------------------------------------------

    def admit(self, token: Token) -> None:
        """Begin a step, unless a limit of this graph, or of one around it, is spent."""
        for graph in self.line:
            if graph.refuses(token.node if graph is self else None):
                if graph is not self:
                    raise SpentError(graph)
                self.exhaust()
                return
        for graph in self.line:
            graph.steps += 1
        self.visits[token.node] += 1
        self.step(token)

    def refuses(self, node: str | None) -> bool:
        """Whether no further step may begin, of this node or (None) in a graph inside."""
        limits = self.plan.limits
        if self.after:
            return node is not None and self.visits[node] > 0
        if node is not None and node in limits.visits and self.visits[node] >= limits.visits[node]:
            return True
        return limits.steps is not None and self.steps >= limits.steps

    def exhaust(self) -> None:
        """All that is live or ended becomes one token, without forks, at the exhausted target; or the output."""
        tokens = [*self.live, *self.ended]
        past = frozenset[int]().union(*(token.past for token in tokens))
        one = len({token.past for token in tokens}) == 1
        own = tokens[0].own if one else {name: self.first[name] for name in self.own}
        ways = (e.target for e in self.plan.edges if e.source == "*" and e.outcome == "exhausted")
        target = "END" if self.after else next(ways, "END")
        if self.conflicting(past, tokens) or any(token.fault for token in self.live):
            self.finish("failed", self.first)
        elif target in ("END", "STOP"):
            self.after = True
            self.finish("completed", self.state(past, own, tokens))
        else:
            self.after = True
            self.visits.clear()
            self.ended, self.cells = [], []
            self.live = [Token(target, "run", (), (), past, own, error="LimitSpent")]

    def saw(self, token: Token) -> tuple[str, str, str]:
        """Node, items and state of a token's step."""
        values = self.plan.schema.dump(self.state(token.past, token.own))
        told = {name: value for name, value in values.items() if name != "trail"}
        item = token.stack[-1][1] if token.stack else None
        return token.node, canonical([item, [i for _, i in token.stack]]), canonical(told)

    def step(self, token: Token) -> None:
        values = dict(self.plan.schema.dump(self.state(token.past, token.own)))
        item = token.stack[-1][1] if token.stack else None
        items = tuple(i for _, i in token.stack)
        self.seen.append(self.saw(token))
        self.live.remove(token)
        if token.fault:
            self.finish("failed", self.first)
            return
        child, exhausted = None, False
        sight = Sight(token.node, values, item, items, error=token.error)
        inner = self.plan.sub.get(token.node)
        if inner is not None:
            given = {name: values[name] for name in ("xs", "ys", "tasks")}
            inside = Reference(inner, self.behaviour, given, self.most, self)
            try:
                result = inside.run(random.Random(0))
            except SpentError as spent:
                if spent.graph is not self:
                    raise
                self.live.append(token)
                self.exhaust()
                return
            if result.status == "failed":
                self.fail(token)
                return
            child, exhausted = result.values, result.status == "exhausted"
        act = self.behaviour(self.plan, replace(sight, child=child))
        if act.fail is not None:
            self.fail(token)
            return
        given = {**act.update, **({"trail": str(len(self.events))} if act.update else {})}
        update, ops = self.plan.schema.encode_update(given)
        if update:
            event = Event(token.node, token.path, token.joined, token.past, update, ops)
            self.events.append(event)
            past = token.past | {len(self.events) - 1}
            own = self.plan.schema.apply(self.state(token.past, token.own), update, ops)
            token = replace(token, past=past, own={name: own[name] for name in self.own})
        named = exhausted and self.shape.edges(token.node, "exhausted")
        self.send(replace(token, error="LimitSpent" if exhausted else None), "exhausted" if named else act.outcome)
        self.settle()

    def fail(self, token: Token) -> None:
        if self.shape.edges(token.node, "error"):
            self.send(replace(token, error="Broken"), "error")
            self.settle()
        else:
            self.finish("failed", self.first)

    def finish(self, status: str, values: Mapping[str, Any]) -> None:
        if self.told is None:
            status = "exhausted" if self.after and status == "completed" else status
            self.told = Told(status, dict(self.plan.schema.dump(values)), self.seen, len(self.ended) > 1)
            self.live.clear()

    # -- sending (R1, R3, R9 to R12) ----------------------------------------------------------------------------

    def opened(self, token: Token, vertex: str, path: Path) -> tuple[Fork, ...]:
        if vertex not in self.shape.fans or any(fork.name == vertex for fork in token.forks):
            return token.forks
        return (*token.forks, Fork(vertex, path, token.joined, token.past, token.own))

    def send(self, token: Token, outcome: str) -> None:
        edges = self.shape.edges(token.node, outcome)
        token = replace(token, forks=self.opened(token, token.node, token.path))
        for number, edge in enumerate(edges):
            path = token.path if len(edges) == 1 else (*token.path, number)
            if edge.each is None:
                self.arrive(replace(token, node=edge.target, path=path))
                continue
            vertex = self.shape.vertex(edge, edges)
            name = token.node if vertex == edge.target else vertex
            self.map(replace(token, forks=self.opened(token, name, path), error=None), edge, name, path)

    def map(self, token: Token, edge: Edge, fork: str, path: Path) -> None:
        items: list[Any] = self.state(token.past, token.own)[edge.each or ""]
        entry = next(f for f in token.forks if f.name == fork)
        outer = {f.name for f in token.forks} - {fork}
        if not items:
            target = self.shape.empty_target(fork, edge.target, outer)
            self.arrive(replace(token, node=target or "END", path=path))
            return
        stack = tuple(pair for pair in token.stack if pair[0] != fork)
        branches = [
            replace(token, node=edge.target, path=(*path, i), stack=(*stack, (fork, item)))
            for i, item in enumerate(items)
        ]
        if not any(isinstance(item, dict) and "needs" in item for item in items):
            for branch in branches:
                self.arrive(branch)
            return
        target = self.shape.empty_target(fork, edge.target, outer)
        cells = {item["id"]: Item(entry, token.forks, target=target) for item in items}
        for item, branch in zip(items, branches, strict=True):
            cell = cells[item["id"]]
            cell.needs = [cells[name] for name in item["needs"]]
            self.cells.append(cell)
            self.live.append(replace(branch, phase="pending", cells=(*token.cells, cell)))

    def arrive(self, token: Token) -> None:
        if self.told is not None:
            return
        if token.node == "STOP":
            self.finish("completed", self.state(token.past, token.own))
        elif token.node == "END":
            self.ended.append(token)
            for cell in token.cells:
                cell.ended.append(token.past)
        else:
            waits = token.node in self.shape.joins
            at = self.shape.match[token.node] if waits else None
            entry = next((fork for fork in token.forks if fork.name == at), None)
            if entry is not None and token.node in entry.passed:
                self.absorb(token, entry)
                return
            self.live.append(replace(token, phase="wait" if waits else "run"))

    def absorb(self, token: Token, entry: Fork) -> None:
        self.late += 1
        self.ended.append(replace(token, hidden=frozenset(entry.passed[token.node])))
        for cell in token.cells:
            if entry in cell.forks:
                cell.late.append(token)
            else:
                cell.ended.append(token.past)

    # -- joins (R4, R5, R8, R10) --------------------------------------------------------------------------------

    def barred(self, entry: Fork, below: set[str], join: str) -> set[str]:
        shape = self.shape
        found = {other for other in shape.joins if other != join and shape.match[other] in below}
        same = {other for other in shape.joins if other != join and shape.match[other] == entry.name}
        return found | {o for o in same if shape.closes(o)} | (same & shape.on_every_way_out(join))

    def can_reach(self, token: Token, entry: Fork, join: str) -> bool:
        if entry not in token.forks or (token.phase == "wait" and token.node == join):
            return False
        below = {fork.name for fork in token.forks[: token.forks.index(entry)]}
        barred = self.barred(entry, below, join)
        if token.phase == "wait" and token.node in barred:
            return False
        sources = [token.node] if token.phase == "pending" else self.shape.after[token.node]
        inside = token.forks[token.forks.index(entry) :]
        return self.walks(sources, barred - {join}, inside, join)

    def walks(self, sources: Iterable[str], barred: set[str], inside: tuple[Fork, ...], join: str) -> bool:
        """Whether a way leads to the join. A join that let others run is in the way of those of its open fork."""
        todo = [(vertex, inside) for vertex in sources]
        seen = set()
        while todo:
            vertex, forks = todo.pop()
            if vertex in barred or (vertex, forks) in seen or any(vertex in fork.passed for fork in forks):
                continue
            if vertex == join:
                return True
            seen.add((vertex, forks))
            if vertex in self.shape.joins and self.shape.closes(vertex):
                left = [i for i, fork in enumerate(forks) if fork.name == self.shape.match[vertex]]
                forks = forks[: left[0]] if left else forks
            todo += [(after, forks) for after in self.shape.after[vertex]]
        return False

    def wanted(self, entry: Fork, join: str) -> int | None:
        """How many tokens the join waits for; None: for all."""
        said = self.plan.nodes[join].join
        if isinstance(said, str) and said not in ("all", "each"):
            return int(self.state(entry.past, entry.own)[said])
        return said if isinstance(said, int) else None

    def settle(self) -> None:
        while self.told is None and (self.begin_items() or self.fire_one()):
            pass
        if self.told is None and not self.live:
            past = frozenset[int]().union(*(token.past for token in self.ended))
            if self.conflicting(past, self.ended):
                self.finish("failed", self.first)
            else:
                one = len({token.past for token in self.ended}) == 1
                own = self.ended[0].own if one else {name: self.first[name] for name in self.own}
                self.finish("completed", self.state(past, own, self.ended))

    def fire_one(self) -> bool:
        """Of several joins that can fire the one declared first, of several forks of it the lowest."""
        waiting = [token for token in self.live if token.phase == "wait"]
        forks = [next(f for f in token.forks if f.name == self.shape.match[token.node]) for token in waiting]
        found = {(token.node, fork) for token, fork in zip(waiting, forks, strict=True)}
        for join, entry in sorted(found, key=lambda f: (self.shape.joins.index(f[0]), f[1].path, f[1].joined)):
            there = [t for t in self.live if t.phase == "wait" and t.node == join and entry in t.forks]
            wanted = self.wanted(entry, join)
            if wanted is not None and len(there) >= wanted:
                for other in self.live[:] if self.plan.nodes[join].rest == "drop" else ():
                    if other not in there[:wanted] and (other in there or self.can_reach(other, entry, join)):
                        self.live.remove(other)
                self.fire(entry, join, there[:wanted])
                return True
            if not any(self.can_reach(other, entry, join) for other in self.live):
                self.fire(entry, join, there)
                return True
        return False

    def fire(self, entry: Fork, join: str, arrived: list[Token]) -> None:
        first = min(arrived, key=lambda token: token.order)
        assert sum(token.order == first.order for token in arrived) == 1, "R6 is not total"
        at = first.forks.index(entry)
        closes = self.shape.closes(join)
        outer = first.forks[:at]
        past = frozenset[int]().union(*(token.past for token in arrived))
        for token in arrived:
            assert token.forks[:at] == outer
            self.live.remove(token)
        if self.plan.nodes[join].rest == "run":
            since = [self.events[event] for event in past - entry.past]
            entry.passed[join] = {
                name for event in since for name in event.update
                if name in self.plain | self.own or event.ops.get(name) == "replace"
            }  # fmt: skip
            for token in [t for t in self.live if t.phase == "wait" and t.node == join and entry in t.forks]:
                self.live.remove(token)
                self.absorb(token, entry)
        fault = self.conflicting(past)
        fired = Token(
            join,
            "run",
            entry.path if closes else first.path,
            (*first.joined, first.path) if closes else first.joined,
            first.past if fault else past,
            entry.own,
            outer if closes else (*outer, entry),
            tuple(pair for pair in first.stack if pair[0] in {fork.name for fork in outer}),
            tuple(cell for cell in first.cells if cell.fork in outer),
            fault,
        )
        self.live.append(fired)

    # -- needs (R12) --------------------------------------------------------------------------------------------

    def begin_items(self) -> bool:
        moved = False
        for cell in self.cells:
            if cell.begun and not cell.done and self.is_done(cell):
                cell.done = moved = True
        for token in [t for t in self.live if t.phase == "pending"]:
            cell = token.cells[-1]
            if all(needed.done for needed in cell.needs):
                moved = cell.begun = True
                self.live.remove(token)
                self.begin(token, cell)
        return moved

    def is_done(self, cell: Item) -> bool:
        mine = [token for token in self.live if cell in token.cells]
        for token in mine:
            opened = {fork.name for fork in token.forks if fork in cell.forks}
            if token.phase != "wait" or self.shape.match[token.node] not in opened:
                return False
        cell.waited = [*mine, *cell.late]
        return True

    def begin(self, token: Token, cell: Item) -> None:
        if cell.target is not None and any(not needed.waited for needed in cell.needs):
            return
        pasts = [t.past for needed in cell.needs for t in needed.waited]
        pasts += [past for needed in cell.needs if not needed.waited for past in needed.ended]
        past = token.past.union(*pasts)
        if self.conflicting(past):
            self.live.append(replace(token, phase="run", fault=True))
        else:
            self.arrive(replace(token, past=past, own=cell.fork.own if cell.needs else token.own))

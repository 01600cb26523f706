"""Graphs by chance: structured, unstructured and mutated; every one follows from its seed.

Structured graphs are nested blocks (sequence, choice, fork and join, map, map of items that need each other, loop,
branches that die, jumps back before an open fork, graphs inside). Unstructured ones are 3 to 9 nodes with edges
between any of them. Mutated ones are hard graphs with 1 to 4 random edits: some faults stay unseen without them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pydantic import SkipValidation

from orchestrator import Graph
from orchestrator.errors import InvalidGraph, Problem
from orchestrator.graph.edges import Edge
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import Node
from orchestrator.graph.topology import Join, Rest, counts
from orchestrator.kernel.plan import Plan

from .build import State, complete, joins, names_of, outcomes_of

Exit: TypeAlias = tuple[str, str | None]
"""A way out of a block that leads nowhere yet: a node, and one of its outcomes."""


class Drawn(Node, kind="drawn"):
    """A node of a generated graph: all that the kernel knows of a node. The tests do its work."""

    said: tuple[str, ...] = ("done",)
    inner: SkipValidation[Graph | None] = None

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.said

    @property
    def subgraph(self) -> Graph | None:
        return self.inner


@dataclass
class Sketch:
    """A graph before it is checked, easy to change."""

    name: str
    """Kind and seed: enough to make it again."""
    edges: list[Edge]
    joins: dict[str, Join] = field(default_factory=dict)
    inner: dict[str, Graph] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(steps=None))
    rest: Rest = "drop"
    """Of the joins that wait for some of the branches."""

    @classmethod
    def of(cls, text: str, says: dict[str, Join] | None = None, name: str = "text") -> Sketch:
        """From arrow text, as in `build.plan`."""
        edges = list(complete(text))
        found = joins("j k m j1 j2") if says is None else says
        return cls(name, edges, {node: join for node, join in found.items() if node in names_of(tuple(edges))})

    def graph(self) -> Graph:
        """The graph, checked.

        Raises:
            InvalidGraph: the checks refuse it.
        """
        edges = tuple(self.edges)
        nodes = {
            node: Drawn(said=outcomes_of(edges, node), join=self.joins.get(node), inner=self.inner.get(node))
            for node in names_of(edges)
        }
        if self.rest != "drop":
            nodes |= {name: node.with_(rest=self.rest) for name, node in nodes.items() if counts(node.join)}
        return Graph(name="g", state=State, nodes=nodes, edges=edges, limits=self.limits)

    def plan(self) -> Plan:
        """The same as the kernel needs it."""
        return Plan.of(self.graph())

    @property
    def text(self) -> str:
        """For messages: what to paste into a test of its own."""
        return f"{self.name}: {'; '.join(map(str, self.edges))} | {self.joins} | {self.limits.steps} | {self.inner}"

    @property
    def races(self) -> bool:
        """Whether its outcome may depend on timing: `join=n`, STOP and limits, and nothing else."""
        some = any(counts(join) for join in self.joins.values())
        if some or self.limits.steps is not None or any(edge.target == "STOP" for edge in self.edges):
            return True
        return any(_races(graph) for graph in self.inner.values())


def _races(graph: Graph, limited: bool = False) -> bool:
    """The same of a graph inside another one. A limit is a race only where several branches can spend it."""
    limited = limited or graph.limits.steps is not None or bool(graph.limits.visits)
    if (limited and graph.topology.fans) or any(edge.target == "STOP" for edge in graph.edges):
        return True
    inner = [node.subgraph for node in graph.nodes.values() if node.subgraph is not None]
    return any(counts(node.join) for node in graph.nodes.values()) or any(_races(g, limited) for g in inner)


def problems_of(sketch: Sketch) -> list[Problem]:
    """What the checks say of it."""
    try:
        sketch.graph()
    except InvalidGraph as refused:
        return list(refused.problems)
    return []


def values_for(dice: random.Random) -> dict[str, Any]:
    """Lists to map over: empty ones, short ones, items that need each other."""
    count = dice.choice((0, 1, 2, 3, 4))
    ids = [f"i{number}" for number in range(count)]
    ranks = dice.sample(range(count), count)
    tasks = [
        {"id": ids[i], "needs": [ids[k] for k in range(count) if ranks[k] < ranks[i] and dice.random() < 0.5]}
        for i in range(count)
    ]
    return {"xs": list(range(dice.choice((0, 1, 2, 2, 3)))), "ys": list(range(dice.choice((0, 1, 2)))), "tasks": tasks}


# -- structured -------------------------------------------------------------------------------------------------


class Builder:
    """Nests blocks. A block is one node that is entered first, and ways out that lead nowhere yet."""

    def __init__(self, dice: random.Random, size: int, depth: int, prefix: str = "n") -> None:
        self.dice, self.left, self.depth, self.prefix = dice, size, depth, prefix
        self.edges: list[Edge] = []
        self.joins: dict[str, Join] = {}
        self.inner: dict[str, Graph] = {}
        self.around: list[str] = []
        """First nodes of the loops and forks around: where a jump may go back to."""
        self.number = 0

    def node(self, join: Join = None) -> str:
        self.number += 1
        self.left -= 1
        name = f"{self.prefix}{self.number}"
        if join is not None:
            self.joins[name] = join
        return name

    def lead(self, exits: Iterable[Exit], target: str) -> None:
        for node, outcome in exits:
            edge = Edge(node, target, outcome)
            if edge not in self.edges:
                self.edges.append(edge)

    def block(self, depth: int) -> tuple[str, list[Exit]]:
        """One block, drawn."""
        kinds: dict[Callable[[int], tuple[str, list[Exit]]], int] = {self.single: 4}
        if depth > 0 and self.left > 2:
            kinds |= {self.sequence: 5, self.choice: 2, self.fork: 6, self.map: 4, self.loop: 3, self.crossing: 2}
            kinds |= {self.beside: 1, self.guarded: 1}
            if self.around:
                kinds[self.jump] = 3
            if self.prefix == "n":
                kinds[self.nested] = 1
        chosen = self.dice.choices(list(kinds), list(kinds.values()))[0]
        return chosen(depth - 1)

    def single(self, depth: int) -> tuple[str, list[Exit]]:
        name = self.node()
        return name, [(name, None)]

    def nested(self, depth: int) -> tuple[str, list[Exit]]:
        name = self.node()
        inside = Builder(self.dice, 5, 2, f"{name}s")
        self.inner[name] = settle(inside.sketch("inner")).graph()
        return name, [(name, None)]

    def sequence(self, depth: int) -> tuple[str, list[Exit]]:
        first, exits = self.block(depth)
        for _ in range(self.dice.randint(1, 2)):
            entry, following = self.block(depth)
            self.lead(exits, entry)
            exits = following
        return first, exits

    def choice(self, depth: int) -> tuple[str, list[Exit]]:
        head, exits = self.node(), []
        for outcome in ("x", "y"):
            entry, ways = self.block(depth)
            self.edges.append(Edge(head, entry, outcome))
            exits += ways
        if self.dice.random() < 0.15:
            self.edges.append(Edge(head, "END", "drop"))
        return head, exits

    def guarded(self, depth: int) -> tuple[str, list[Exit]]:
        """A node whose failure has an edge."""
        head, mend = self.node(), self.node()
        self.edges.append(Edge(head, mend, "error"))
        return head, [(head, None), (mend, None)]

    def loop(self, depth: int) -> tuple[str, list[Exit]]:
        head = self.node()
        self.around.append(head)
        entry, exits = self.block(depth)
        self.around.pop()
        last = self.node()
        self.edges.append(Edge(head, entry))
        self.lead(exits, last)
        self.edges.append(Edge(last, head, "again"))
        return head, [(last, "ok")]

    def jump(self, depth: int) -> tuple[str, list[Exit]]:
        """Back before a loop or fork around."""
        name = self.node()
        self.edges.append(Edge(name, self.dice.choice(self.around), "back"))
        return name, [(name, "on")]

    def branches(self, head: str, depth: int, outcome: str | None, count: int) -> list[list[Exit]]:
        self.around.append(head)
        found = []
        for _ in range(count):
            entry, exits = self.block(depth)
            self.edges.append(Edge(head, entry, outcome))
            if self.dice.random() < 0.15 and len(exits) == 1 and exits[0][1] is None:
                self.edges.append(Edge(exits[0][0], "END", "bad"))
                exits = [(exits[0][0], "good")]
            found.append(exits)
        self.around.pop()
        return found

    def fork(self, depth: int) -> tuple[str, list[Exit]]:
        head = self.node()
        count = self.dice.choice((2, 2, 3))
        often = self.dice.random() < 0.2
        ways = self.branches(head, depth, "all" if often else None, count)
        if often:  # an outcome that does not fork, or forks into fewer
            targets = [edge.target for edge in self.edges if edge.source == head]
            self.edges += [Edge(head, t, "few") for t in targets[: self.dice.choice((1, 1, 2))]]
        if self.dice.random() < 0.1:
            for exits in ways:
                self.lead(exits, "END")
            return head, []
        wanted: Join = self.dice.choices(("all", "each", self.dice.randint(1, count)), (14, 1, 1))[0]
        join = self.node(wanted)
        for exits in ways:
            dies = self.dice.random() < 0.1 and exits is not ways[0]
            self.lead(exits, "END" if dies else join)
        return head, [(join, None)]

    def crossing(self, depth: int) -> tuple[str, list[Exit]]:
        """A join of some branches, then one of it and the rest."""
        head = self.node()
        ways = self.branches(head, depth, None, 3)
        self.dice.shuffle(ways)
        early, late = self.node("all"), self.node("all")
        for exits in ways[:2]:
            self.lead(exits, early)
        self.lead(ways[2], late)
        if self.dice.random() < 0.3:
            back = next(edge.target for edge in self.edges if edge.source == head)
            self.edges.append(Edge(late, back, "redo"))
        self.edges.append(Edge(early, late))
        return head, [(late, "ok" if any(e.source == late for e in self.edges) else None)]

    def map(self, depth: int) -> tuple[str, list[Exit]]:
        head = self.node()
        self.around.append(head)
        entry, exits = self.block(depth)
        self.around.pop()
        self.edges.append(Edge(head, entry, None, self.dice.choice(("xs", "xs", "ys", "tasks", "tasks"))))
        if self.dice.random() < 0.15:
            return head, exits
        join = self.node(self.dice.choices(("all", self.dice.randint(1, 3)), (12, 1))[0])
        self.lead(exits, join)
        return head, [(join, None)]

    def beside(self, depth: int) -> tuple[str, list[Exit]]:
        """A map beside another branch."""
        head, join = self.node(), self.node("all")
        for each in ("xs", None):
            entry, exits = self.block(depth)
            self.edges.append(Edge(head, entry, None, each))
            self.lead(exits, join)
        return head, [(join, None)]

    def sketch(self, name: str) -> Sketch:
        entry, exits = self.block(self.depth)
        self.lead(exits, "END")
        return Sketch(name, [Edge("START", entry), *self.edges], self.joins, self.inner)


def structured(seed: int) -> Sketch:
    """Nested blocks."""
    dice = random.Random(f"structured {seed}")
    sketch = Builder(dice, dice.choice((6, 9, 14, 20)), dice.choice((2, 3, 4))).sketch(f"structured {seed}")
    if dice.random() < 0.05:
        sketch.edges = [replace(e, target="STOP") if e.target == "END" else e for e in sketch.edges]
    return sketch


# -- limits of graphs inside ------------------------------------------------------------------------------------


class Line(Builder):
    """Blocks in which one token is live at a time, so that no branches race for a limit."""

    def block(self, depth: int) -> tuple[str, list[Exit]]:
        kinds: list[Callable[[int], tuple[str, list[Exit]]]] = [self.single]
        if depth > 0 and self.left > 1:
            kinds += [self.sequence, self.sequence, self.choice, self.loop, self.loop]
        return self.dice.choice(kinds)(depth - 1)

    def limited(self, levels: int) -> Graph:
        """A graph that may spend its limits, with others like it inside."""
        sketch = self.sketch("inner")
        names = names_of(tuple(sketch.edges))
        if levels > 1:
            for name in self.dice.sample(names, min(2, len(names))):
                sketch.inner[name] = Line(self.dice, 4, 2, f"{name}s").limited(levels - 1)
        visits = {self.dice.choice(names): self.dice.randint(1, 2)} if self.dice.random() < 0.3 else {}
        sketch.limits = Limits(steps=self.dice.choice((None, 1, 2, 3, 4, 6, 9)), visits=visits)
        if self.dice.random() < 0.4:
            last = self.dice.choice([*names, f"{self.prefix}late", "END"])
            sketch.edges.append(Edge("*", last, "exhausted"))
            if last not in (*names, "END"):
                sketch.edges.append(Edge(last, "END"))
        return settle(sketch).graph()


def limited(seed: int) -> Sketch:
    """A structured graph in which some nodes are graphs that spend their own limits, with or without an edge for it."""
    dice = random.Random(f"limited {seed}")
    sketch = structured(dice.randrange(100_000))
    sketch.name = f"limited {seed}"
    plain = [
        node
        for node in names_of(tuple(sketch.edges))
        if node not in sketch.inner and all(e.outcome is None for e in sketch.edges if e.source == node)
    ]
    for node in dice.sample(plain, min(len(plain), dice.randint(1, 3))):
        sketch.inner[node] = Line(dice, 5, 3, f"{node}s").limited(dice.choice((1, 1, 2, 3)))
        ways = [edge for edge in sketch.edges if edge.source == node]
        if dice.random() < 0.5 and len(ways) == 1 and ways[0].each is None:
            target = dice.choice((ways[0].target, ways[0].target, "END"))
            sketch.edges += [Edge(node, f"{node}x", "exhausted"), Edge(f"{node}x", target)]
    return sketch


# -- unstructured -----------------------------------------------------------------------------------------------


def unstructured(seed: int) -> Sketch:
    """Nodes, and edges between any of them."""
    dice = random.Random(f"unstructured {seed}")
    names = [f"n{number}" for number in range(dice.randint(3, 9))]
    edges = [Edge("START", names[0])]
    if dice.random() < 0.1:
        edges.append(Edge("START", names[1]))
    for place, name in enumerate(names):
        outcomes: Sequence[str | None] = dice.choice(((None,), (None,), (None,), ("x", "y"), ("x", None)))
        for outcome in outcomes:
            ahead = [*names[place + 1 : place + 4], "END"]
            targets = dice.choices(ahead, k=dice.choice((1, 1, 2, 2, 3)))
            targets = [dice.choice(names) if dice.random() < 0.12 else target for target in targets]
            for target in dict.fromkeys(targets):
                each = dice.choice(("xs", "ys", "tasks")) if target != "END" and dice.random() < 0.1 else None
                edges.append(Edge(name, target, outcome, each))
    says: dict[str, Join] = {name: "all" for name in names if dice.random() < 0.25}
    return Sketch(f"unstructured {seed}", edges, says)


# -- mutated ----------------------------------------------------------------------------------------------------

HARD = tuple(
    line.strip()
    for line in """
    a -> b, c, d; b, c -> j1; j1, d -> j2
    a -> b, c; c -> x, y; b, x -> j1; j1, y -> j2
    p -> w : each xs; w -> b, c; b, c -> k -> j
    a -> b, c; b -> j; c -> j : ok; c -> END : bad
    a -> b, c; b, c -> j; j -> a : again; j -> END : ok
    p -> w : each tasks; w -> b, c; b, c -> k -> j
    p -> w : each tasks; w -> p : again; w -> j : ok
    p -> w : each tasks; w -> j1 : some; w -> j2 : rest; j1 -> j2 -> s
    a -> b, c, d; b, c -> j1; j1, d -> j2; j2 -> b : redo; j2 -> END : ok
    a -> b, c; b -> a : again; b -> j : ok; c -> j
    s -> x, y -> k -> a -> b, c; b -> s : again; b -> j : ok; c -> j
    p -> s : each xs; s -> a, b -> j; j -> a, b : again; j -> m : ok
    p -> w : each xs; w -> a, b : deep; a, b -> j -> m; w -> m : quick
    s -> b, c, d, e; b, c -> j1; d, e -> j2; j1 -> s : again; j1 -> END : ok
    z -> s, q; s -> b, c, d; b, c -> j; j, d, q -> k; k -> s : again; k -> END : ok
    p1 -> p2 : each xs; p2 -> w : each ys; w -> j2 -> j1; j1 -> p2 : redo; j1 -> END : ok
    p1 -> p2 : each tasks; p2 -> w : each tasks; w -> p2 : redo; w -> j2 : ok; j2 -> j1
    z -> y, q; y -> a -> b, c -> j; j -> a : again; j -> k : ok; q -> k
    a -> b, c : two; a -> b : one; b, c -> j -> e -> f, g -> k
    p -> w : each xs; p -> q; w, q -> j
    """.strip().splitlines()
)


def mutated(seed: int) -> Sketch:
    """A hard graph, or a structured one, with 1 to 4 random edits."""
    dice = random.Random(f"mutated {seed}")
    if dice.random() < 0.7:
        says: dict[str, Join] | None = None
        if "k ->" in (text := dice.choice(HARD)) and dice.random() < 0.3:
            says = joins("j j1 j2 m", k="each" if dice.random() < 0.5 else 2)
        sketch = Sketch.of(text, says)
    else:
        sketch = structured(dice.randrange(10_000))
    sketch.name = f"mutated {seed}"
    for _ in range(dice.randint(1, 4)):
        dice.choice(EDITS)(sketch, dice)
    return sketch


def _targets(sketch: Sketch) -> list[str]:
    return [*names_of(tuple(sketch.edges)), "END"]


def _any(sketch: Sketch, dice: random.Random) -> int:
    """An edge, not the only one of START."""
    starts = [edge for edge in sketch.edges if edge.source == "START"]
    return dice.choice([i for i, edge in enumerate(sketch.edges) if starts != [edge]])


def add_way(sketch: Sketch, dice: random.Random) -> None:
    """A new outcome that leads anywhere."""
    node = dice.choice(names_of(tuple(sketch.edges)))
    sketch.edges.append(Edge(node, dice.choice(_targets(sketch)), f"o{dice.randrange(100)}"))


def add_branch(sketch: Sketch, dice: random.Random) -> None:
    """One edge more for an outcome: a fork."""
    edge = sketch.edges[_any(sketch, dice)]
    if edge.source != "*":
        sketch.edges.append(replace(edge, target=dice.choice(_targets(sketch)), each=None))


def drop_edge(sketch: Sketch, dice: random.Random) -> None:
    """One edge less; a node that it leaves without any way on leads to END."""
    gone = sketch.edges.pop(_any(sketch, dice))
    if all(edge.source != gone.source for edge in sketch.edges):
        sketch.edges.append(replace(gone, target="END", each=None))


def turn_edge(sketch: Sketch, dice: random.Random) -> None:
    """An edge leads elsewhere."""
    at = _any(sketch, dice)
    target = dice.choice(_targets(sketch))
    sketch.edges[at] = replace(sketch.edges[at], target=target, each=None if target == "END" else sketch.edges[at].each)


def turn_source(sketch: Sketch, dice: random.Random) -> None:
    """An edge comes from elsewhere."""
    at = _any(sketch, dice)
    source = dice.choice(names_of(tuple(sketch.edges)))
    sketch.edges[at] = replace(sketch.edges[at], source=source)


def map_edge(sketch: Sketch, dice: random.Random) -> None:
    """An edge maps, or does not any more."""
    at = _any(sketch, dice)
    edge = sketch.edges[at]
    if edge.source != "*" and edge.target not in ("END", "STOP"):
        sketch.edges[at] = replace(edge, each=None if edge.each else dice.choice(("xs", "ys", "tasks")))


def change_join(sketch: Sketch, dice: random.Random) -> None:
    """A node says another join."""
    node = dice.choice(names_of(tuple(sketch.edges)))
    said: Join = dice.choices(("all", None, "each", 1, 2), (5, 3, 1, 1, 1))[0]
    sketch.joins.pop(node, None)
    if said is not None:
        sketch.joins[node] = said


def split_edge(sketch: Sketch, dice: random.Random) -> None:
    """A node more on an edge, sometimes one that may fork away."""
    at = _any(sketch, dice)
    edge, name = sketch.edges[at], f"z{len(sketch.edges)}"
    sketch.edges[at] = replace(edge, target=name)
    sketch.edges.append(Edge(name, edge.target))
    if dice.random() < 0.4:
        sketch.edges.append(Edge(name, dice.choice(_targets(sketch))))


def swap_branches(sketch: Sketch, dice: random.Random) -> None:
    """Edges, and so branches, in another order."""
    start = [edge for edge in sketch.edges if edge.source == "START"]
    rest = [edge for edge in sketch.edges if edge.source != "START"]
    dice.shuffle(rest)
    sketch.edges = start + rest


EDITS = (add_way, add_branch, drop_edge, turn_edge, turn_source, map_edge, change_join, split_edge, swap_branches)


# -- mends ------------------------------------------------------------------------------------------------------


def settle(sketch: Sketch, most: int = 12) -> Sketch:
    """The sketch, mended as the checks say where one word is enough, so that more of what is drawn can run.

    Follows C1 (unreached and trapped nodes), C2, C5 and C6. What C3 and C4 refuse is left as it is.
    """
    dice = random.Random(sketch.name)
    sketch = Sketch(
        sketch.name, list(dict.fromkeys(sketch.edges)), dict(sketch.joins), sketch.inner, sketch.limits, sketch.rest
    )
    for _ in range(most):
        found = [problem for problem in problems_of(sketch) if problem.code not in ("C3", "C4")]
        if not found:
            break
        for problem in found:
            _mend(sketch, problem, dice)
    return sketch


def _mend(sketch: Sketch, problem: Problem, dice: random.Random) -> None:
    if problem.code == "C2":
        sketch.joins[problem.nodes[0]] = "all" if dice.random() < 0.9 else "each"
    elif problem.code == "C5":
        sketch.joins.pop(problem.nodes[0], None)
    elif problem.code == "C6":
        sketch.joins[problem.nodes[0]] = "all"
    elif problem.message.startswith("no path leads from START"):
        gone = {edge.source for edge in sketch.edges} & set(problem.nodes)
        sketch.edges = [edge for edge in sketch.edges if edge.source not in gone]
        for name in problem.nodes:
            sketch.joins.pop(name, None)
    elif problem.code == "C1.reach":
        sketch.edges.append(Edge(problem.nodes[0], "END", "out"))
    elif problem.code == "C1.outcome":
        outcome = re.search(r"outcome '(\w+)'", problem.message)
        sketch.edges.append(Edge(problem.nodes[0], "END", outcome and outcome.group(1)))

"""Graphs by chance with the names, labels and kinds of real ones, and runs that have been everywhere in them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

from orchestrator import Graph
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Node
from orchestrator.graph.model import GraphDefinition
from orchestrator.render.build import per_item
from orchestrator.views.overlay import Overlay
from tests.frozen.generated import KINDS
from tests.kernel.sketches import Drawn, settle
from tests.render.sample import stored

_RESERVED = ("done", "error", "timeout", "exhausted")
_KINDS = ("function", "think", "confirm", "execute", "ask", "sleep", "wait", "choose_tool", "call")
_WORDS = [
    "a",
    "go",
    "plan",
    "check",
    "write",
    "review",
    "search",
    "judge",
    "answer",
    "summarise",
    "verify",
    "translate",
    "collect",
]
_OUTCOMES = [
    "ok",
    "no",
    "again",
    "enough",
    "more",
    "approved",
    "denied",
    "retry",
    "good",
    "bad",
    "needs_revision",
    "out_of_budget",
]


def generated(seed: int) -> Graph:
    """The graph of a seed: each kind of sketch in turn, with other names."""
    make = [*KINDS.values()][seed % len(KINDS)]
    for number in count(seed, 100_000):
        try:
            return named(settle(make(number)).graph(), random.Random(f"named {seed}"))
        except InvalidGraph:
            continue
    raise AssertionError("unreachable")


def named(graph: Graph, dice: random.Random) -> Graph:
    """The same graph with nodes of many kinds, and short and long words for its nodes and outcomes."""
    names = {name: _name(dice, number) for number, name in enumerate(graph.nodes)}
    said = dict.fromkeys(outcome for node in graph.nodes.values() for outcome in node.outcomes)
    words = {outcome: outcome for outcome in said if outcome in _RESERVED}
    for outcome, word in zip(said - words.keys(), dice.sample(_OUTCOMES, len(_OUTCOMES)), strict=False):
        words[outcome] = word
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        outcomes = tuple(words.get(outcome, outcome) for outcome in node.outcomes)
        inner = node.inner if isinstance(node, Drawn) else None
        if inner is not None:
            nodes[names[name]] = Drawn(said=outcomes, inner=named(inner, dice), join=node.join)
        else:
            nodes[names[name]] = stored(dice.choice(_KINDS), *outcomes, join=node.join)
    edges = [
        replace(
            edge,
            source=names.get(edge.source, edge.source),
            target=names.get(edge.target, edge.target),
            outcome=words.get(edge.outcome or "", edge.outcome),
        )
        for edge in graph.edges
    ]
    return Graph(name=graph.name, state=graph.state, nodes=nodes, edges=edges, limits=graph.limits)


def _name(dice: random.Random, number: int) -> str:
    words = dice.choices(_WORDS, k=dice.choice((1, 1, 1, 2, 2, 5)))
    return "_".join((*words, str(number)))


def everywhere(graph: GraphDefinition, dice: random.Random, path: str = "") -> Overlay:
    """A run that took every edge, with counts and times in all nodes."""
    visits: dict[tuple[str, str], int] = {}
    taken: dict[tuple[str, int], int] = {}
    items: dict[tuple[str, str], tuple[int, int]] = {}
    for name, node in graph.nodes.items():
        visits[path, name] = dice.choice((1, 3, 12, 250, 9999))
        if node.subgraph is not None:
            inside = everywhere(node.subgraph, dice, f"{path}/{name}" if path else name)
            visits.update(inside.visits)
            taken.update(inside.taken)
            items.update(inside.items)
    for index, edge in enumerate(graph.edges):
        taken[path, index] = dice.choice((1, 2, 12, 250, 9999))
        if edge.each and edge.target in per_item(graph.topology):
            items[path, edge.target] = (dice.randint(0, 999), 999)
    seconds = {node: dice.choice((0.003, 0.85, 12.2, 65.0, 11_000.0)) for node in visits}
    return Overlay(visits=visits, taken=taken, items=items, seconds=seconds, asked=visits, status="running")

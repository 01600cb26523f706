"""The path that breaks a claim about a graph, as marks on the graph's drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.topology import DONE, END, START
from orchestrator.views.overlay import EdgeKey, NodeKey, Overlay

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph.report import Proof, WitnessStep


def witness_overlay(graph: GraphDefinition, proof: Proof) -> Overlay:
    """Return the marks of a proof's witness: the nodes and edges of its paths, and why its last node breaks the claim.

    Args:
        graph: the graph that was proved, or that of the proof's tool.
        proof: a proof with a witness.

    Returns:
        The overlay; draw it with `orchestrator.render`.
    """
    visits: Counter[NodeKey] = Counter()
    taken: Counter[EdgeKey] = Counter()
    last: set[NodeKey] = set()
    told: dict[NodeKey, tuple[str, ...]] = {}
    shared = _shared(proof.witness, proof.beside)
    for steps, begin in ((proof.witness, 0), (proof.beside, shared)):
        if not steps:
            continue
        visits.update(key for step in steps[begin:] if (key := _key(step))[1] != START)
        taken.update(_edges(graph, steps, begin))
        end = _key(steps[-1])
        last.add(end)
        told[end] = (proof.reason,) if proof.reason else ()
    entered = {_key_of(path) for path, _ in visits if path}
    return Overlay(
        visits=visits, taken=taken, failed=last, status=proof.verdict, entered=entered, told=told
    )  # fmt: skip


def _shared(one: Sequence[WitnessStep], other: Sequence[WitnessStep]) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _key_of(path: str) -> NodeKey:
    around, _, node = path.rpartition("/")
    return around, node


def _key(step: WitnessStep) -> NodeKey:
    return _key_of(step.node)


def _edges(graph: GraphDefinition, steps: Sequence[WitnessStep], begin: int) -> Iterator[EdgeKey]:
    """The edges that a path takes; a jump, as after a spent limit, takes none."""
    for number, step in enumerate(steps):
        path, node = _key(step)
        inner = _graph_at(graph, path)
        if inner is None or number < begin:
            continue
        target = next((key[1] for later in steps[number + 1 :] if (key := _key(later))[0] == path), None)
        target = END if target in (None, START) else target
        found = _edge(inner, node, step.outcome or (DONE if node == START else ""), target)
        if found is not None:
            yield path, found


def _edge(graph: GraphDefinition, node: str, outcome: str, target: str | None) -> int | None:
    routes = graph.topology.routes(node, outcome)
    exact = (route.index for route in routes if route.target == target)
    return next(exact, routes[0].index if len(routes) == 1 and outcome else None)


def _graph_at(graph: GraphDefinition, path: str) -> GraphDefinition | None:
    for name in path.split("/") if path else ():
        inner = graph.nodes[name].subgraph if name in graph.nodes else None
        if inner is None:
            return None
        graph = inner
    return graph

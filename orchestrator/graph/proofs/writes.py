"""The proof that no two concurrent branches write one plain field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.checks.words import listed
from orchestrator.graph.proofs.branch_pairs import BranchPairs, Collision
from orchestrator.graph.proofs.calls import updates_of
from orchestrator.graph.proofs.places import Place
from orchestrator.graph.report import Proof, WitnessStep

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition

CLAIM = "no two concurrent branches write one plain field"


def separate(places: Sequence[Place]) -> Iterator[Proof]:
    """A claim about all graphs, or one for each graph and field that breaks it."""
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
        which = listed(place.named(name) for name in dict.fromkeys(hit.nodes) if name in silent)
        reason = f"{which} may write {field!r} in concurrent branches of {fork}: declare writes="
        return Proof("writes", f"{CLAIM}{place.where}", "undecided", reason, one, other, place.tool)
    verb = "runs in two concurrent branches" if len(set(hit.nodes)) == 1 else "run in concurrent branches"
    reason = f"{nodes} {verb} of {fork}, and may write {field!r}: give it a reducer, or let one write another field"
    return Proof("writes", f"{CLAIM}{place.where}", "refuted", reason, one, other, place.tool)


def _named(place: Place, step: WitnessStep) -> WitnessStep:
    return WitnessStep(place.named(step.node), step.outcome, step.note)

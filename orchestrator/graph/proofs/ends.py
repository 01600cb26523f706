"""Proofs that runs end: loops are bounded, joins fire, and every run reaches an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.graph.faults import listed_names
from orchestrator.graph.proofs.paths import Paths, Spot
from orchestrator.graph.proofs.places import Place, asks_model_before
from orchestrator.graph.report import Proof, WitnessStep
from orchestrator.graph.topology import START, TOO_LONG, digraph

if TYPE_CHECKING:
    import networkx as nx

# -- Every cycle spends a limit --------------------------------------------------------------------------------


CLAIM = "every cycle spends a limit"


def bounded(places: Sequence[Place]) -> Iterator[Proof]:
    """Prove that cycles are bounded: each round spends from a limit of the graph, or of one around it."""
    reasons: list[str] = []
    refuted = False
    for place in places:
        cycles = list(_cycles(place))
        loose = _loose_cycle(place) if cycles else None
        if loose is not None:
            refuted = True
            first = loose[0][0]
            round_ = [WitnessStep(place.named(spot.vertex), outcome, note) for spot, outcome, note in loose]
            witness = (*place.way_to(first), *round_, WitnessStep(place.named(first.vertex)))
            names = " -> ".join(step.node for step in (*round_, round_[0]))
            why = f"{names} goes round without end: set Limits(steps=...), or visits= of one of these nodes"
            yield Proof("bounded", f"{CLAIM}{place.where}", "refuted", why, witness, tool=place.tool)
        elif cycles:
            reasons += [f"{', '.join(nodes)}: {_limits_of(place, nodes)}" for nodes in cycles]
    if not refuted:
        yield Proof("bounded", CLAIM, "proved", "; ".join(reasons) or "there is no cycle")


def _whole(place: Place) -> str:
    """Return the limits that every step of a graph spends from, with their values."""
    shared = (*place.line, *place.callers)
    steps = [limits.steps for limits in place.line if limits.steps is not None]
    seconds = [limits.seconds for limits in shared if limits.seconds is not None]
    found = [f"steps ({min(steps):,})"] if steps else []
    return ", ".join([*found, *([f"seconds ({min(seconds):g})"] if seconds else [])])


def _called(place: Place) -> str:
    """Return the limit that every model call spends from. A model may report neither tokens nor cost."""
    values = [limits.calls for limits in (*place.line, *place.callers) if limits.calls is not None]
    return f"calls ({min(values):,})" if values else ""


def _limits_of(place: Place, nodes: Sequence[str]) -> str:
    """Return the limits of the cycles through some nodes, the tightest first."""
    own = {place.named(name): most for name, most in place.limits.visits.items()}
    visits = [f"visits of {name} ({own[name]:,})" for name in nodes if name in own]
    return ", ".join(filter(None, (*visits, _called(place) if not (visits or _whole(place)) else "", _whole(place))))


def _ways(place: Place, *, free: bool) -> nx.DiGraph[Spot]:
    """Return the moves of a graph before its limit is spent: after that, no node runs twice.

    Args:
        place: the graph's place.
        free: True for only the moves that spend no limit other than those of every step.
    """

    paths, nodes = place.paths, place.graph.nodes
    visits = place.limits.visits if free else ()
    called = free and bool(_called(place))
    found: nx.DiGraph[Spot] = digraph({})
    for spot in paths.spots:
        if spot.spent:
            continue
        for move in paths.moves(spot):
            if spot.vertex in visits and move.outcome != TOO_LONG:
                continue
            if called and spot.vertex in nodes and asks_model_before(nodes[spot.vertex], move.outcome):
                continue
            if not found.has_edge(spot, move.target):
                found.add_edge(spot, move.target, step=(spot, move.outcome, move.note))
    return found


def _cycles(place: Place) -> Iterator[list[str]]:
    """Yield the nodes of each strongly connected set of cycles, in the graph's order."""
    import networkx as nx

    ways = _ways(place, free=False)
    seen: set[tuple[str, ...]] = set()
    for component in nx.strongly_connected_components(ways):
        first = next(iter(component))
        if len(component) == 1 and not ways.has_edge(first, first):
            continue
        vertices = {spot.vertex for spot in component}
        names = tuple(place.named(name) for name in place.graph.nodes if name in vertices)
        if names not in seen:
            seen.add(names)
            yield list(names)


def _loose_cycle(place: Place) -> list[tuple[Spot, str, str]] | None:
    """Return the steps of a cycle that spends no limit, if there is one."""
    import networkx as nx

    if _whole(place):
        return None
    ways = _ways(place, free=True)
    try:
        found = nx.find_cycle(ways)
    except nx.NetworkXNoCycle:
        return None
    return [ways.edges[source, target]["step"] for source, target in found]


# -- Every join can fire, and every node can reach an end ------------------------------------------------------


def firing(places: Sequence[Place]) -> Iterator[Proof]:
    """Prove that joins fire if a token can reach them: the checks of the shape rule out joins that block each other."""
    held: list[str] = []
    refuted = False
    for place in places:
        topology = place.paths.topology
        for join in topology.joins:
            at = [spot for spot in place.paths.spots if spot.vertex == join]
            if any(map(place.paths.runs, at)):
                held.append(f"{place.named(join)}{f' of tool {place.tool}' if place.tool else ''}")
                continue
            refuted = True
            name = place.named(join)
            witness = (*place.way_to(at[0]), WitnessStep(name)) if at else ()
            why = f"no branch can reach {name}"
            if at and join in at[0].stopped:
                why = f"{name} never fires: a concurrent branch can reach it until it stops the graph"
            elif at:
                why = f"{name} waits forever: a concurrent branch loops without end and can always reach it"
            yield Proof("joins", f"{name} can fire", "refuted", why, witness, tool=place.tool)
    if not refuted:
        yield Proof("joins", "every join can fire", "proved", listed_names(held) if held else "there is no join")


def ending(places: Sequence[Place]) -> Iterator[Proof]:
    """Prove that from any place, a run can reach its end: all branches END, or one STOP."""
    refuted = False
    for place in places:
        for spot in _caught(place.paths):
            refuted = True
            name = place.named(spot.vertex)
            witness = (*place.way_to(spot), WitnessStep(name))
            why = f"from here no choice of outcomes leads all branches to END, or one to STOP{place.where}"
            yield Proof("ends", f"{name} can reach an end", "refuted", why, witness, tool=place.tool)
    if not refuted:
        yield Proof("ends", "every node can reach an end", "proved")


def _caught(paths: Paths) -> list[Spot]:
    """Return the first spot of each node that runs and leads to no end. Joins that never fire have their own claim."""
    found: dict[str, Spot] = {}
    for spot in paths.caught():
        if spot.vertex != START and paths.runs(spot):
            found.setdefault(spot.vertex, spot)
    return list(found.values())

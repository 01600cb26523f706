"""Every join can fire, and every node can reach an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.graph.checks.words import listed
from orchestrator.graph.proofs.paths import Paths, Spot
from orchestrator.graph.proofs.places import Place
from orchestrator.graph.report import Proof, WitnessStep
from orchestrator.graph.topology import START


def firing(places: Sequence[Place]) -> Iterator[Proof]:
    """A join fires if a token can reach it: the checks of the shape keep joins from waiting for each other."""
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
        yield Proof("joins", "every join can fire", "proved", listed(held) if held else "there is no join")


def ending(places: Sequence[Place]) -> Iterator[Proof]:
    """From anywhere, a run can reach its end: all branches END, or one STOP."""
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
    """The first spot of each node that runs and leads to no end. A join that never fires has a claim of its own."""
    found: dict[str, Spot] = {}
    for spot in paths.caught():
        if spot.vertex != START and paths.runs(spot):
            found.setdefault(spot.vertex, spot)
    return list(found.values())

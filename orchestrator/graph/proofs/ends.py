"""Every join can fire, and every node can reach an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.graph.checks.words import listed
from orchestrator.graph.proofs.paths import ENDS, Spot
from orchestrator.graph.proofs.places import Place
from orchestrator.graph.report import Proof, WitnessStep


def firing(places: Sequence[Place]) -> Iterator[Proof]:
    """A join fires if a token can come to it: the checks of the shape keep joins from waiting for each other."""
    held: list[str] = []
    for place in places:
        topology = place.paths.topology
        at = {spot.vertex for spot in place.paths.spots}
        for join in topology.joins:
            if join in at:
                held.append(f"{place.named(join)}{f' of tool {place.tool}' if place.tool else ''}")
            else:
                why = f"no branch can come to {place.named(join)}"
                yield Proof("joins", f"{place.named(join)} can fire", "refuted", why, tool=place.tool)
    yield Proof("joins", "every join can fire", "proved", listed(held) if held else "there is no join")


def ending(places: Sequence[Place]) -> Iterator[Proof]:
    """A run that is anywhere can come to END or STOP."""
    refuted = False
    for place in places:
        for spot in _caught(place):
            refuted = True
            name = place.named(spot.vertex)
            witness = (*place.way_to(spot), WitnessStep(name))
            why = f"no path leads from here to END or STOP{place.where}"
            yield Proof("ends", f"{name} can reach an end", "refuted", why, witness, tool=place.tool)
    if not refuted:
        yield Proof("ends", "every node can reach an end", "proved")


def _caught(place: Place) -> list[Spot]:
    """The first spot of each node that no path leads to an end from."""
    paths = place.paths
    before: dict[Spot, list[Spot]] = {spot: [] for spot in paths.spots}
    for spot in paths.spots:
        for move in paths.moves(spot):
            before[move.target].append(spot)
        for _, target in paths.jumps_from(spot):
            before[target].append(spot)
    free = reached_spots(before, [spot for spot in paths.spots if spot.vertex in ENDS])
    found: dict[str, Spot] = {}
    for spot in paths.spots:
        if spot not in free:
            found.setdefault(spot.vertex, spot)
    return list(found.values())


def reached_spots(following: dict[Spot, list[Spot]], starts: Sequence[Spot]) -> set[Spot]:
    """Every spot that can be reached."""
    found, ahead = set(starts), list(starts)
    while ahead:
        for spot in following[ahead.pop()]:
            if spot not in found:
                found.add(spot)
                ahead.append(spot)
    return found

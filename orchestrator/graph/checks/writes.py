"""Plain fields that branches of one fork write, where no join can bring the branches together.

Their updates meet when the graph ends, and are then in conflict for certain. Only what nodes declare with
`writes=` is known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.topology import END, FanOut
from orchestrator.problem import Problem


def write_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Wants a shape that checked out."""
    writers = {name: _plain_writes(graph, name) for name in graph.nodes}
    if not any(writers.values()):
        return
    topology = graph.topology
    seen: set[tuple[str, ...]] = set()
    for fork, fans in topology.fans.items():
        if topology.joins_of(fork):
            continue
        place = fork.partition("*")[0]
        for fan in fans:
            for problem in _fan_problems(graph, fork, place, fan, writers):
                if problem.nodes not in seen:
                    seen.add(problem.nodes)
                    yield problem


def _fan_problems(
    graph: GraphDefinition, fork: str, place: str, fan: FanOut, writers: dict[str, frozenset[str]]
) -> Iterator[Problem]:
    topology = graph.topology
    regions = []
    for target in fan.targets:
        region = topology.reachable((target,), (fork,))
        # What can only STOP is never merged with anything.
        regions.append([n for n in graph.nodes if n in region and writers[n] and END in topology.reachable((n,))])
    if fan.field is not None:
        for name in regions[0]:
            field = min(writers[name])
            fault = f"{name} runs once per item of {fan.field!r} and writes {field!r}, with no join after it"
            yield Problem("writes", f"{fault}: give {field!r} a reducer, or join the map", (name,))
        return
    for (one, first), (other, second) in combinations(zip(fan.targets, regions, strict=True), 2):
        for left in first:
            for right in second:
                both = writers[left] & writers[right]
                if both and left != right and left not in second and right not in first:
                    field = min(both)
                    where = f"in branches {one} and {other} of fork {place} that never join"
                    fault = f"{left} and {right} both write {field!r}, {where}"
                    yield Problem("writes", f"{fault}: give {field!r} a reducer, or join them", (left, right))


def _plain_writes(graph: GraphDefinition, name: str) -> frozenset[str]:
    writes = graph.nodes[name].writes or frozenset()
    fields = graph.schema.fields
    return frozenset(f for f in writes if f in fields and fields[f].plain and not fields[f].local)

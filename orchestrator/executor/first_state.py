"""The state that a run begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.errors import InvalidInput
from orchestrator.graph.model import GraphDefinition
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.queries import start_fault


@dataclass(frozen=True, slots=True)
class Recorded:
    """An input that was accepted before, as the values of all state fields: of a schedule, or a replayed run."""

    values: Mapping[str, object]


def initial_values(graph: GraphDefinition, given: object) -> JsonObject:
    """The whole start state as JSON, see `Graph.initial`; forks and maps behind START can open with it.

    Args:
        graph: the graph.
        given: the input, or a `Recorded` one, which may have any field.

    Raises:
        InvalidInput: the input does not fit; names every problem.
    """
    values = graph.schema.initial(given.values) if isinstance(given, Recorded) else graph.initial(given)
    fault = start_fault(graph.topology, values)
    if fault is not None:
        raise InvalidInput(f"input of graph {graph.name!r}: START {fault}")
    return values

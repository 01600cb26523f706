"""The state that a run begins with."""

from __future__ import annotations

from orchestrator.errors import InvalidInput
from orchestrator.graph.definition import GraphDefinition
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.queries import start_fault


def initial_values(graph: GraphDefinition, given: object) -> JsonObject:
    """The whole start state as JSON, see `Graph.initial`; forks and maps behind START can open with it.

    Raises:
        InvalidInput: the input does not fit; names every problem.
    """
    values = graph.initial(given)
    fault = start_fault(graph.topology, values)
    if fault is not None:
        raise InvalidInput(f"input of graph {graph.name!r}: START {fault}")
    return values

"""Faults of data that are collected, so that one error names all of them with their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.errors import GraphError, GraphUnknown, UntrustedCode
from orchestrator.problem import Problem

Place = tuple[str, ...]
"""The keys that lead to a part of the data."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and where it is."""

    place: Place
    error: GraphError


class GraphFaults(GraphError):
    """Several parts of a graph's data are wrong; `faults` has them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        lines = "\n".join(f"  - {fault.error}" for fault in faults)
        super().__init__(f"{len(faults)} parts are wrong:\n{lines}")


class UnknownParts(GraphFaults, GraphUnknown):
    """The same, all because code or kinds are missing."""


class PlacedFault(GraphError):
    """One part of a graph's data is wrong."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault.error))


class PlacedUnknown(PlacedFault, GraphUnknown):
    """The same, because code or a kind is missing."""


def place_of(problem: Problem) -> Place:
    """Where in a graph's data a problem is; empty if it is no single part."""
    if problem.edges:
        return ("edges", problem.edges[0])
    if problem.nodes:
        return ("nodes", problem.nodes[0])
    return next((place for begin, place in _BEGINNINGS.items() if problem.message.startswith(begin)), ())


_BEGINNINGS: Mapping[str, Place] = {
    "graph name": ("name",),
    "the graph has no nodes": ("nodes",),
    "input of the graph": ("input",),
    "output of the graph": ("output",),
    "limits.visits": ("limits", "visits"),
    "nothing follows START": ("edges",),
}
"""How messages about other parts of a graph begin."""


class Faults:
    """Collects the faults of parts, and raises them together."""

    def __init__(self) -> None:
        self.found: list[Fault] = []

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Collect the fault of what is read inside. Code that is not trusted is raised at once.

        Args:
            place: the keys that lead to it.
        """
        try:
            yield
        except UntrustedCode:
            raise
        except GraphFaults as error:
            self.found += [Fault((*place, *fault.place), fault.error) for fault in error.faults]
        except PlacedFault as error:
            self.found.append(Fault((*place, *error.fault.place), error.fault.error))
        except GraphError as error:
            self.found.append(Fault(place, error))

    def raise_any(self) -> None:
        """
        Raises:
            GraphError: a fault was found.
        """
        missing = all(isinstance(fault.error, GraphUnknown) for fault in self.found)
        if len(self.found) == 1:
            raise (PlacedUnknown if missing else PlacedFault)(self.found[0])
        if self.found:
            raise (UnknownParts if missing else GraphFaults)(tuple(self.found))

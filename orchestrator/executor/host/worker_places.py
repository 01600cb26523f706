"""How many runs a worker drives at the same time: in all, and of single graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from orchestrator.errors import InvalidValue


class Places:
    """The places of one worker, and how many of them are taken.

    Args:
        slots: the most runs.
        graph_slots: graph -> the most runs of it.
        graphs: the worker's graphs.

    Raises:
        InvalidValue: `graph_slots` names another graph, or a number that is not 1 or more.
    """

    def __init__(self, slots: int, graph_slots: Mapping[str, int], graphs: Collection[str]) -> None:
        for name, most in graph_slots.items():
            if name not in graphs:
                known = ", ".join(sorted(graphs)) or "none"
                raise InvalidValue(f"graph_slots: {name!r} is no graph of this worker, which has {known}", where=name)
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise InvalidValue(f"graph_slots: {name}={most!r} is no whole number of 1 or more", where=name)
        self.slots, self._most = slots, dict(graph_slots)
        self.driven: Counter[str] = Counter()
        """Graph -> runs of it that are driven."""

    @property
    def busy(self) -> int:
        """Places that are taken."""
        return self.driven.total()

    @property
    def free(self) -> int:
        """Places that are free."""
        return self.slots - self.busy

    @property
    def full(self) -> bool:
        """Whether no place is free."""
        return self.free <= 0

    def open(self, graphs: Collection[str]) -> list[str]:
        """Those graphs of which a further run can be driven."""
        return [name for name in graphs if self._left(name) > 0]

    def most(self) -> dict[str, int]:
        """Graph -> the most runs of it that can be taken up now, for graphs that have fewer such places than free."""
        return {name: self._left(name) for name in self._most if self._left(name) < self.free}

    def _left(self, graph: str) -> int:
        return max(0, self._most.get(graph, self.slots) - self.driven[graph])

    def take(self, graph: str) -> None:
        """Note that a run of a graph is taken up."""
        self.driven[graph] += 1

    def give_back(self, graph: str) -> None:
        """Note that it is driven no longer."""
        self.driven[graph] -= 1

"""The maps of a run, and which item of them each step works on, so that a view can group steps by item."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from orchestrator.views.timeline import Timeline, TimelineRow

Places: TypeAlias = tuple[tuple[int, int], ...]
"""Number of a map and of an item in it, from 0, outermost first."""


@dataclass(slots=True)
class MapGroup:
    """A map that was opened."""

    source: str
    """The activation whose outcome opened it; of a graph's start the key of the graph."""
    each: str
    """The field that holds its items."""
    target: str
    """The node that it leads to."""
    count: int
    """Number of its items."""
    around: tuple[int, int] | None
    """The map around it in the same graph, and the item."""
    items: dict[int, object] = field(default_factory=dict)
    """Its items that a step has worked on, by number."""


class MapGroups:
    """The maps of a timeline.

    Args:
        timeline: rows of a run.

    Attributes:
        groups: In the order in which their first items began.
        places: Activation -> the map and item that it is in, of the innermost map; steps outside of maps are missing.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.groups: list[MapGroup] = []
        self._origins = timeline.causes.origins
        self._known: dict[str, Places] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self.places: dict[str, tuple[int, int]] = {}
        for row in timeline.rows:
            self.add(row)

    def add(self, row: TimelineRow) -> None:
        """Add a row that the timeline did not have before. Rows come in the order in which they began."""
        places = self._known[row.activation] = self._places(row.activation)[: row.maps]
        if places:
            group, item = self.places[row.activation] = places[-1]
            if row.item:
                self.groups[group].items.setdefault(item, row.item[0])

    def _places(self, key: str) -> Places:
        """The maps that are open at an activation, which may be one that waits at a join, as far as is known."""
        way: list[str] = []
        while key not in self._known and key not in way and (came := self._origins.get(key)) is not None:
            way.append(key)
            if not came.after:
                break
            key = came.after[0]
        places = self._known.get(key, ())
        for one in reversed(way):
            places = self._known[one] = places + self._opened(one, places)
        return places

    def _opened(self, key: str, around: Places) -> Places:
        came = self._origins[key]
        if came.by != "edge" or came.edge is None or came.branch is None or came.edge.edge.each is None:
            return ()
        edge, source = came.edge.edge, came.after[0]
        number = self._numbers.setdefault((source, came.edge.index), len(self.groups))
        if number == len(self.groups):
            each, last = edge.each or "", around[-1] if around else None
            self.groups.append(MapGroup(source, each, edge.target, came.branches, last))
        return ((number, came.branch),)

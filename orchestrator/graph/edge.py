"""One edge of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.graph.names import plain_name


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection from one node to another. `str(edge)` is its arrow text.

    `outcome` None means every unreserved outcome that no labelled edge of the source names. `each` names a list in the
    state: the edge is taken once per item. `source` may be `START`, or `*` for a reserved outcome of any node. `target`
    may be `END` or `STOP`.
    """

    source: str
    target: str
    outcome: str | None = None
    each: str | None = None

    @property
    def label(self) -> str:
        """The text after the colon of the arrow text; may be empty."""
        return " ".join(word for word in (self.outcome, f"each {self.each}" if self.each else None) if word)

    def plain(self) -> Edge:
        """The same edge with names in the form NFKC."""
        if str(self).isascii():
            return self
        outcome, each = (None if one is None else plain_name(one) for one in (self.outcome, self.each))
        return Edge(plain_name(self.source), plain_name(self.target), outcome, each)

    def __str__(self) -> str:
        label = self.label
        return f"{self.source} -> {self.target}" + (f" : {label}" if label else "")

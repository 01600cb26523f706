"""What a check finds, as data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a graph: `message` names the place and the mend, `code` the check that found it."""

    code: str
    message: str
    nodes: tuple[str, ...] = ()
    edges: tuple[str, ...] = field(default=())

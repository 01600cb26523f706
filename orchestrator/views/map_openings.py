"""The maps that a record opens, and the places of tokens in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.kernel.plan import Plan
from orchestrator.kernel.rank import Path
from orchestrator.kernel.state import Activation
from orchestrator.kernel.version import Version
from orchestrator.views.overlay import NodeKey


class OpenedMap(NamedTuple):
    """A map that a record opens."""

    path: str
    """Path of its graph: names of the subgraph nodes around it."""
    plan: Plan
    edge: int
    """Number of its edge."""
    items: Sequence[object]


def opened_maps(source: Activation, version: Version, outcome: str) -> list[OpenedMap]:
    """The maps that an outcome opens: what `Observer.sending` is given."""
    frame = source.frame
    routes = [route for route in frame.plan.topology.routes(source.node, outcome) if route.each is not None]
    if not routes:
        return []
    names = {route.each for route in routes if route.each is not None}
    values = frame.plan.schema.dump({name: version.values[name] for name in names if name in version.values})
    found: list[OpenedMap] = []
    for route in routes:
        items = values.get(route.each or "")
        found.append(OpenedMap(frame.place, frame.plan, route.index, items if isinstance(items, list | tuple) else ()))
    return found


def enclosing_nodes(path: str, node: str) -> list[NodeKey]:
    """A node and the subgraph nodes around it, whose names `path` holds."""
    found = [(path, node)]
    while path:
        path, _, name = path.rpartition("/")
        found.append((path, name))
    return found


def branch_of(token: Activation) -> Path | None:
    """The branch of the innermost map that a token is in; None outside of maps."""
    if not token.stack:
        return None
    vertex = token.stack[-1][0]
    entry = next((entry for entry in token.forks if entry.fork == vertex), None)
    step = token.rank.path
    while entry is not None and step.parent is not None:
        if step.parent is entry.rank.path:
            return step
        step = step.parent
    return None

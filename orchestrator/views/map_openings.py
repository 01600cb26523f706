"""The maps that a record opens, and the places of tokens in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orchestrator.graph.topology import START
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.rank import Path
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation
from orchestrator.kernel.versions import step_version
from orchestrator.views.overlay import NodeKey


class OpenedMap(NamedTuple):
    """A map that a record opens."""

    path: str
    """Path of its graph: names of the subgraph nodes around it."""
    plan: Plan
    edge: int
    """Number of its edge."""
    items: Sequence[object]


def opened_maps(machine: RunState, record: r.Record, activation: Activation | None) -> list[OpenedMap]:
    """The maps that a record will open. Call it before the record is folded in.

    Args:
        machine: the run's state before the record.
        record: the record.
        activation: the activation that the record is about, if it runs.
    """
    values: Mapping[str, object]
    if isinstance(record, r.RunStarted):
        plan, path, node, outcome, values = machine.plan, "", START, "done", record.values
    elif activation is None:
        return []
    elif isinstance(record, r.GraphOpened):
        sub = activation.frame.plan.sub.get(activation.node)
        if sub is None:
            return []
        plan, path, node, outcome, values = sub, _path_inside(activation), START, "done", record.values
    elif isinstance(record, r.StepDone):
        frame = activation.frame
        plan, path, node, outcome, values = frame.plan, frame.place, record.node, record.outcome, {}
    else:
        return []
    routes = [(route.index, route.each) for route in plan.topology.routes(node, outcome) if route.each is not None]
    if routes and isinstance(record, r.StepDone):
        assert activation is not None
        version = step_version(activation, record.update, record.ops, record.reduced)
        values = plan.schema.dump({name: version.values[name] for _, name in routes if name in version.values})
    found: list[OpenedMap] = []
    for index, name in routes:
        items = values.get(name)
        found.append(OpenedMap(path, plan, index, items if isinstance(items, list | tuple) else ()))
    return found


def enclosing_nodes(path: str, node: str) -> list[NodeKey]:
    """A node and the subgraph nodes around it, whose names `path` holds."""
    found = [(path, node)]
    while path:
        path, _, name = path.rpartition("/")
        found.append((path, name))
    return found


def _path_inside(activation: Activation) -> str:
    """Path of the graph that a subgraph's activation runs."""
    place = activation.frame.place
    return f"{place}/{activation.node}" if place else activation.node


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

"""Graphs as data: state and reducers, nodes, edges and their arrow text, checks, digests, YAML and JSON.

Everything here is frozen and does no I/O, except `load` and `save`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import above, lazy_names

if TYPE_CHECKING:
    from orchestrator.errors import Problem
    from orchestrator.graph.edges import Edge, format_edges, parse_edges
    from orchestrator.graph.function import FunctionNode, node
    from orchestrator.graph.limits import Limits, LimitsLeft, Retry, Usage
    from orchestrator.graph.model import ITEM, GraphDefinition, Node, Port, node_data
    from orchestrator.graph.outcome import DONE, RESERVED, Outcome, Update
    from orchestrator.graph.reading import UnresolvedNode, node_from_data
    from orchestrator.graph.reducers import (
        Extend,
        Replace,
        add,
        append,
        extend,
        local,
        merge,
        reducer_name,
        replace,
        union,
    )
    from orchestrator.graph.report import CheckReport, Proof
    from orchestrator.graph.state import StateField, StateSchema
    from orchestrator.graph.topology import ANY, END, START, STOP, NodeShape, Topology
    from orchestrator.graph.versions import Migration

_HOMES = {
    "orchestrator.graph.edges": ("Edge", "format_edges", "parse_edges"),
    "orchestrator.graph.function": ("FunctionNode", "node"),
    "orchestrator.graph.limits": ("Limits", "LimitsLeft", "Retry", "Usage"),
    "orchestrator.graph.versions": ("Migration",),
    "orchestrator.graph.model": ("ITEM", "GraphDefinition", "Node", "Port", "node_data"),
    "orchestrator.graph.reading": ("UnresolvedNode", "node_from_data"),
    "orchestrator.graph.outcome": ("DONE", "RESERVED", "Outcome", "Update"),
    "orchestrator.graph.reducers": (
        "Extend", "Replace", "add", "append", "extend", "local", "merge", "reducer_name", "replace", "union",
    ),
    "orchestrator.graph.report": ("CheckReport", "Proof"),
    "orchestrator.graph.state": ("StateField", "StateSchema"),
    "orchestrator.graph.topology": ("ANY", "END", "START", "STOP", "NodeShape", "Topology"),
    "orchestrator.errors": ("Problem",),
}  # fmt: skip

__all__ = [
    "ANY",
    "DONE",
    "END",
    "ITEM",
    "RESERVED",
    "START",
    "STOP",
    "CheckReport",
    "Edge",
    "Extend",
    "FunctionNode",
    "GraphDefinition",
    "Limits",
    "LimitsLeft",
    "Migration",
    "Node",
    "NodeShape",
    "Outcome",
    "Port",
    "Problem",
    "Proof",
    "Replace",
    "Retry",
    "StateField",
    "StateSchema",
    "Topology",
    "UnresolvedNode",
    "Update",
    "Usage",
    "add",
    "append",
    "extend",
    "format_edges",
    "local",
    "merge",
    "node",
    "node_data",
    "node_from_data",
    "parse_edges",
    "reducer_name",
    "replace",
    "union",
]

if not TYPE_CHECKING:  # type checkers know these names from the imports above and report all others
    _get, __dir__ = lazy_names(__name__, _HOMES)

    def __getattr__(name: str) -> object:
        if name == "Graph":  # its name in 0.1.0; type checkers find it only in `orchestrator`
            return above("Graph")
        return _get(name)

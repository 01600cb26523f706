"""C1: results are kept of nodes only whose steps can be left out."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.code_digests import Undigestible, node_code_digest
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.node import Node, UnresolvedNode
from orchestrator.problem import Problem


def cache_problems(graph: GraphDefinition) -> Iterator[Problem]:
    """Nodes with `cache=` whose results cannot stand for their steps."""
    for name, node in graph.nodes.items():
        fault = _fault(node) if node.cache is not None else ""
        if fault:
            yield Problem("C1.cache", f"{name} has cache={node.cache:g}, and {fault}", (name,))


def _fault(node: Node) -> str:
    if node.effect == "irreversible":
        return "is irreversible: a result from the cache would leave out what it does; remove cache="
    if node.subgraph is not None:
        return "runs a graph: set cache= on nodes inside it instead"
    if node.asks == "person":
        return "asks a person: an answer counts for one run; remove cache="
    if node.waits:
        return "only waits: remove cache="
    if isinstance(node, UnresolvedNode):
        return ""
    try:
        node_code_digest(node)
    except Undigestible as error:
        return f"its code depends on {error}, which no key can contain: pass it as deps, or set version="
    return ""

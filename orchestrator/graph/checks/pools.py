"""C1 and C8: names of pools, and steps that would wait for each other's places."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.graph.checks.words import mend_name
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.names import RULE, is_name
from orchestrator.problem import Problem


def pool_problems(graph: GraphDefinition, *, stored: bool = False) -> Iterator[Problem]:
    """Names of pools that are not known, and pools that could be waited for in a circle."""
    for name in graph.pools:
        if not (stored or is_name(name)):
            yield Problem("C1.name", f"pool name {name!r} is not a valid name: {RULE}")
    for name, node in graph.nodes.items():
        if node.pool is not None and node.pool not in graph.pools:
            mend = mend_name(node.pool, graph.pools, f"add it to the graph: pools={{{node.pool!r}: 1}}")
            yield Problem("C1.name", f"{name} names pool {node.pool!r}, which the graph does not have: {mend}", (name,))
    yield from _circles(graph)


def unnamed_pools(graph: GraphDefinition) -> Iterator[str]:
    """A note on each pool that no node names: it holds nothing back."""
    named = {node.pool for node in graph.nodes.values()}
    for name in graph.pools:
        if name not in named:
            yield f"no node names pool {name!r}: give it to the nodes that share it, pool={name!r}, or remove it"


def _circles(graph: GraphDefinition) -> Iterator[Problem]:
    """C8: a step keeps its place while the graph inside it waits for one, so the pools need an order."""
    waits = dict(_waits(graph, "", ()))
    if not waits:
        return
    import networkx as nx

    graph_of_pools: nx.DiGraph[str] = nx.DiGraph(list(waits))
    for circle in sorted(sorted(part) for part in nx.strongly_connected_components(graph_of_pools)):
        said = [text for pair, text in waits.items() if set(pair) <= set(circle)]
        if said:
            mend = "name pools inside each other in one order, and none inside itself"
            yield Problem("C8", f"{'; '.join(said)}: {mend}")


def _waits(
    graph: GraphDefinition, path: str, held: tuple[tuple[str, str], ...]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Each two pools of which one is held while the other is waited for, and where.

    Args:
        graph: the graph, or one inside it.
        path: where it is.
        held: the pools that the steps around it hold, each with the path of its node.
    """
    for name, node in graph.nodes.items():
        place, pool = f"{path}{name}", node.pool
        for outer, around in held if pool is not None else ():
            assert pool is not None
            yield (outer, pool), f"{place} waits for pool {pool} while {around} holds {outer}"
        if node.subgraph is not None:
            yield from _waits(node.subgraph, f"{place}/", held if pool is None else (*held, (pool, place)))

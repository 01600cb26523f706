"""Notes about approvals that cannot be proved, and about proofs that a change of a graph loses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from orchestrator.graph.model import node_data
from orchestrator.graph.topology import DONE, IF_NAMED, START, TOO_LONG
from orchestrator.graph.versions import Renames, inside

if TYPE_CHECKING:
    import networkx as nx

    from orchestrator.graph.model import GraphDefinition, Node

# -- Guarantees that a new version must keep: approvals before nodes that act, and limits of cycles ------------


CONFIRM, APPROVED = "confirm", "approved"
HARMLESS = ("none", "read")
"""Risks of tools that change nothing."""


def ways_of(graph: GraphDefinition, *, past_approval: bool = True) -> nx.DiGraph[str]:
    """Return all ways in the graph; without `past_approval`, only those on which no node has approved anything."""
    import networkx as nx

    ways: nx.DiGraph[str] = nx.DiGraph()
    ways.add_nodes_from((START, *graph.nodes))
    ways.add_edges_from((START, route.target) for route in graph.topology.routes(START, DONE))
    emergency = graph.topology.exhausted_target
    for name, node in graph.nodes.items():
        for outcome in (*node.outcomes, *IF_NAMED):
            if past_approval or node.kind != CONFIRM or outcome != APPROVED:
                ways.add_edges_from((name, route.target) for route in graph.topology.routes(name, outcome))
        if emergency is not None:
            ways.add_edge(name, emergency)
    return ways


def _unconfirmed_ways(graph: GraphDefinition) -> Iterator[tuple[str, ...]]:
    """Yield ways to acting nodes that pass no approval, one for each such node."""
    import networkx as nx

    acting = [name for name, node in graph.nodes.items() if acts(node)]
    if not acting:
        return
    ways = ways_of(graph, past_approval=False)
    for name in acting:
        if nx.has_path(ways, START, name):
            yield tuple(nx.shortest_path(ways, START, name))


def unconfirmed(graph: GraphDefinition) -> Iterator[str]:
    """Yield a note for each node that calls tools and can be reached without an approval."""
    calling = {name for name, node in graph.nodes.items() if _calls_tools(node)}
    for way in _unconfirmed_ways(graph) if calling else ():
        if way[-1] in calling:
            yield f"{way[-1]} calls tools without a confirmation before it: {' -> '.join(way)}"


def _calls_tools(node: Node) -> bool:
    inner = node.subgraph
    return node.kind == "execute" if inner is None else any(map(_calls_tools, inner.nodes.values()))


def acts(node: Node) -> bool:
    """Return True if a node may change something outside the run.

    A node with a graph may if that graph has an unconfirmed node of this kind.
    """
    inner = node.subgraph
    if inner is not None:
        return any(True for _ in _unconfirmed_ways(inner))
    return node.effect == "irreversible" or (node.calls_tools and not _harmless(node))


def _harmless(node: Node) -> bool:
    """Return True if all tools of a node are known here and none of them changes anything."""
    toolset = node.toolset
    return toolset is not None and all(not isinstance(one, str) and one.risk in HARMLESS for one in toolset)


def unbounded(graph: GraphDefinition) -> tuple[str, ...]:
    """Return the nodes of a cycle that spends no limit; empty if there is none."""
    import networkx as nx

    if graph.limits.steps is not None:
        return ()
    ways = ways_of(graph)
    for name in graph.limits.visits.keys() & graph.nodes.keys():  # a visit that takes `too_long` spends nothing
        free = {route.target for route in graph.topology.routes(name, TOO_LONG)}
        ways.remove_edges_from([(name, target) for target in ways[name] if target not in free])
    try:
        cycle = [source for source, _ in nx.find_cycle(ways)]
    except nx.NetworkXNoCycle:
        return ()
    return (*cycle, cycle[0])


# -- Claims about a run that are true for one version of a graph and not for the next --------------------------


def lost_proofs(
    old: GraphDefinition, new: GraphDefinition, names: Renames, at: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Yield each lost claim in words, with a path that breaks it.

    Args:
        old: the old version.
        new: the new version.
        names: the renames.
        at: path of a graph -> its nodes, by their old names, that the run has reached.
    """
    yield from _unconfirmed(old, new, names, at, "", whole=True)
    yield from _unbounded(old, new, names, "")


def _unconfirmed(
    old: GraphDefinition,
    new: GraphDefinition,
    names: Renames,
    at: Mapping[str, Collection[str]],
    place: str,
    *,
    whole: bool,
) -> Iterator[str]:
    """Yield acting nodes that are no longer confirmed, on paths from START and from the run's position."""
    import networkx as nx

    before = {names.node(place, name) for name in _acting(old, new, names, place)}
    after = [name for name, node in new.nodes.items() if acts(node)]
    was, now = ways_of(old, past_approval=False), ways_of(new, past_approval=False)
    known = {names.node(place, name) for name in old.nodes}
    where = f" in {place!r}" if place else ""
    reported: set[str] = set()
    ahead = _reached(ways_of(new), [names.node(place, name) for name in at.get(place, ())])
    if whole:
        exposed = {names.node(place, name) for name in _reached(was, [START])} & before
        for name in after:
            if name in exposed or name not in ahead or (exposed and name not in known):
                continue
            if nx.has_path(now, START, name):
                reported.add(name)
                yield f"{name}{where} is reached without a confirmation: {_way(now, START, name)}"
    for token in at.get(place, ()):
        reached = {names.node(place, name) for name in _reached(was, [token])} & before
        there = names.node(place, token)
        for name in after:
            if name not in reached and name not in reported and there in now and nx.has_path(now, there, name):
                reported.add(name)
                yield f"{name}{where} is reached without a confirmation: {_way(now, there, name)}"
    for name in at:
        outer, _, node = name.rpartition("/")
        if outer != place or not name:
            continue
        inner_old, inner_new = old.nodes.get(node), new.nodes.get(names.node(place, node))
        if inner_old is None or inner_new is None or inner_old.subgraph is None or inner_new.subgraph is None:
            continue
        yield from _unconfirmed(inner_old.subgraph, inner_new.subgraph, names, at, name, whole=False)


def _acting(old: GraphDefinition, new: GraphDefinition, names: Renames, place: str) -> Iterator[str]:
    """Yield the acting nodes of the old version. An unchanged node without code is judged by the new version's code."""
    for name, node in old.nodes.items():
        now = new.nodes.get(names.node(place, name))
        same = now is not None and node_data(node) == node_data(now)
        if acts(now if same and now is not None else node):
            yield name


def _reached(ways: nx.DiGraph[str], starts: Collection[str]) -> set[str]:
    import networkx as nx

    there = [start for start in starts if start in ways]
    return {*there, *(name for start in there for name in nx.descendants(ways, start))}


def _way(ways: nx.DiGraph[str], start: str, name: str) -> str:
    import networkx as nx

    return " -> ".join(nx.shortest_path(ways, start, name))


def _unbounded(old: GraphDefinition, new: GraphDefinition, names: Renames, place: str) -> Iterator[str]:
    """Yield cycles without a limit in a graph that had none before."""
    now = unbounded(new)
    if now and not unbounded(old):
        where = f" in {place!r}" if place else ""
        yield f"a cycle{where} spends no limit: {' -> '.join(now)}"
    for name, node in old.nodes.items():
        after = new.nodes.get(names.node(place, name))
        if node.subgraph is not None and after is not None and after.subgraph is not None:
            yield from _unbounded(node.subgraph, after.subgraph, names, inside(place, name))

"""Claims that hold for one version of a graph and not for the next one, as far as a run in it is concerned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from orchestrator.graph.checks.proofs import acts, unbounded, ways_of
from orchestrator.graph.nodedata import node_data
from orchestrator.graph.renames import Renames, inside
from orchestrator.graph.topology import START

if TYPE_CHECKING:
    import networkx as nx

    from orchestrator.graph.definition import GraphDefinition


def lost_proofs(
    old: GraphDefinition, new: GraphDefinition, names: Renames, at: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Each claim that is lost, in words, with a path that breaks it.

    Args:
        old: the version before.
        new: the version after.
        names: what is renamed.
        at: path of a graph -> the nodes of it, by their old names, that the run is at.
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
    """Nodes that act and were confirmed, and are not any more: on paths from START, and from where the run is."""
    import networkx as nx

    before = {names.node(place, name) for name in _acting(old, new, names, place)}
    after = [name for name, node in new.nodes.items() if acts(node)]
    was, now = ways_of(old, past_approval=False), ways_of(new, past_approval=False)
    known = {names.node(place, name) for name in old.nodes}
    where = f" in {place!r}" if place else ""
    told: set[str] = set()
    ahead = _reached(ways_of(new), [names.node(place, name) for name in at.get(place, ())])
    if whole:
        exposed = {names.node(place, name) for name in _reached(was, [START])} & before
        for name in after:
            if name in exposed or name not in ahead or (exposed and name not in known):
                continue
            if nx.has_path(now, START, name):
                told.add(name)
                yield f"{name}{where} is reached without a confirmation: {_way(now, START, name)}"
    for token in at.get(place, ()):
        reached = {names.node(place, name) for name in _reached(was, [token])} & before
        there = names.node(place, token)
        for name in after:
            if name not in reached and name not in told and there in now and nx.has_path(now, there, name):
                told.add(name)
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
    """The nodes of the old version that act. Its code may not be known: a node that did not change is judged by the
    code of the new version."""
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
    """Cycles without a limit in a graph that had none."""
    now = unbounded(new)
    if now and not unbounded(old):
        where = f" in {place!r}" if place else ""
        yield f"a cycle{where} spends no limit: {' -> '.join(now)}"
    for name, node in old.nodes.items():
        after = new.nodes.get(names.node(place, name))
        if node.subgraph is not None and after is not None and after.subgraph is not None:
            yield from _unbounded(node.subgraph, after.subgraph, names, inside(place, name))

"""Versions of a graph: digests distinguish them, and migrations define how runs move from one to another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.errors import InvalidMigration, InvalidValue
from orchestrator.graph.edges import Edge
from orchestrator.graph.names import plain_name
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import Topology
from orchestrator.json import JsonObject, digest
from orchestrator.values import fault_in

# -- Names of nodes and state fields in one version of a graph, and their names in another one -----------------


def inside(place: str, name: str) -> str:
    """Return the path of a node or a field: its name after the names of the enclosing subgraph nodes."""
    return f"{place}/{name}" if place else name


@dataclass(frozen=True, slots=True)
class Renames:
    """New names of nodes and fields in the new version. Others keep their names."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old path -> new path. A node stays in its graph, so only the last name of the new path counts."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Old path -> new path of state fields."""
    forks: Mapping[str, str] = field(default_factory=dict)
    """Old path -> new path of nodes that branches fork at, if another node has taken over the fork."""

    def node(self, place: str, name: str) -> str:
        """Return the new name of a node.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.nodes.get(inside(place, name), name).rpartition("/")[2]

    def fork(self, place: str, name: str) -> str:
        """Return the new name of the node that a fork is at.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.forks.get(inside(place, name), self.node(place, name)).rpartition("/")[2]

    def state_field(self, place: str, name: str) -> str:
        """Return the new name of a state field in the graph at `place`."""
        return self.fields.get(inside(place, name), name).rpartition("/")[2]

    def place(self, place: str) -> str:
        """Return the new path of a graph."""
        old, new = "", ""
        for name in place.split("/") if place else ():
            new = inside(new, self.node(old, name))
            old = inside(old, name)
        return new

    def path(self, path: str) -> str:
        """Return the new path of a node."""
        place, _, name = path.rpartition("/")
        return inside(self.place(place), self.node(place, name)) if path else path

    def vertex(self, place: str, vertex: str, old: Topology, new: Topology) -> str:
        """Return the new name of a fork's vertex: a node, or a map that is a fork of its own.

        Args:
            place: the old path of its graph.
            vertex: its old name.
            old: the topology of its graph.
            new: the topology of the new version's graph.
        """
        for edge in old.edges:
            if edge.each is None or vertex not in (edge.source, f"{edge.source}*{edge.target}:{edge.each}"):
                continue
            if vertex == edge.source and any(fan.field is None for fan in old.fans.get(vertex, ())):
                continue  # it means the branches next to the map, not the map
            source, target = self.fork(place, edge.source), self.node(place, edge.target)
            alone = f"{source}*{target}:{self.state_field(place, edge.each)}"
            return alone if alone in new.fans else source
        return self.fork(place, vertex)


# -- Migrations: how a run moves to a version that it does not fit. The user or the graph declares them


Values: TypeAlias = Mapping[str, Any]
"""A whole state, as plain JSON."""
StateFunction: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
StateMapping: TypeAlias = Mapping[str, "str | Callable[[dict[str, Any]], Any]"]


@dataclass(frozen=True)
class Migration:
    """Rules to move a run to another version of its graph: `executor.resume(run_id, migrate=Migration(...))`.

    A graph can declare those of its earlier versions: `Graph(..., migrations=[Migration(...)])`. Runs that do not fit
    the graph then continue by the first one that they fit.

    Nodes and fields inside a subgraph are named by their path: `{"draft/ask": "draft/confirm"}`. Whatever is not named
    is unchanged. The whole migration is checked before anything is journaled.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old name of a node -> its new name. A token at the old node continues at the new one, and its open requests are
    made again.
    """
    state: StateFunction | StateMapping | None = None
    """Values of the new state. A mapping names, for a field of the new state, the old field that its value comes from
    (the same name keeps a value whose type changed, if it fits), or a function of the old state. A function alone
    returns the values of fields; other fields keep theirs. The old state is plain JSON; new values are validated.
    """
    joins: Mapping[str, str | None] = field(default_factory=dict)
    """Join of an open fork -> the join that takes its place; None to end the branches without it."""
    drop: Collection[str] = ()
    """Fields whose values are dropped: removed fields, and fields that start with the default of their new type."""
    accept: bool = False
    """True to also accept changes ahead of the run, except for lost proofs. A node's question then stays open, and an
    approval counts, if the node and the nodes that its approval leads to have changed only in content.
    """
    forks: Mapping[str, str] = field(default_factory=dict)
    """Node at which open branches forked -> the node that forks in its place. `nodes` defines where its tokens go."""

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):
            raise InvalidMigration(f"drop must be a collection of names: write drop=[{self.drop!r}]")
        for what, mapping in (("nodes", self.nodes), ("forks", self.forks), ("joins", self.joins)):
            if not isinstance(mapping, Mapping):
                raise InvalidMigration(f"{what} must map old names to new ones, and this is a {type(mapping).__name__}")
            named = {old: new if new is None else plain_name(new) for old, new in mapping.items()}
            object.__setattr__(self, what, named)
        if self.state is not None and not callable(self.state) and not isinstance(self.state, Mapping):
            raise InvalidMigration(f"state must be a function or a mapping, and this is a {type(self.state).__name__}")


NO_MIGRATION = Migration()


# -- The two digests of a graph --------------------------------------------------------------------------------


_LEVELS = 800
"""The most levels of a graph's data, including the graphs inside it."""
_SAYS_NOTHING = ("title", "description", "examples", "default", "deprecated")


def structure_digest(
    nodes: JsonObject, edges: Sequence[Edge], schema: StateSchema, pools: Mapping[str, int | None], joins: Sequence[str]
) -> str:
    """Return the digest of the parts that a run depends on: edges, the state's types and reducers, nodes, pools, and
    the order of joins.

    Args:
        nodes: name -> outcomes, join, the digest of the graph inside, and the pool, if it names one.
        edges: the edges.
        schema: the state.
        pools: pool -> its size.
        joins: the result of `join_order`.
    """
    arrows: list[object] = [[edge.source, edge.target, edge.outcome, edge.each] for edge in edges]
    shape: JsonObject = {"nodes": nodes, "edges": arrows, "state": state_shape(schema)}
    if pools:
        shape = {**shape, "pools": dict(pools)}
    return content_digest({**shape, "join_order": list(joins)} if joins else shape)


def join_order(joins: Sequence[str], edges: Sequence[Edge]) -> Sequence[str]:
    """Return the joins in the order in which the graph declares them, if the digests must cover it.

    This order decides which of several joins fires first (R8), and digests do not cover the order of keys. They do
    cover the order in which edges name the joins. A graph that declares its joins in that order needs no more, and
    keeps the digests of library versions that left the order out.

    Args:
        joins: the joins, in the order of the nodes.
        edges: the edges.
    """
    named = dict.fromkeys(end for edge in edges for end in (edge.source, edge.target))
    return () if [name for name in named if name in joins] == [*joins] else joins


def content_digest(data: JsonObject) -> str:
    """Return the digest of the whole graph, including prompts, parameters, versions and references to code.

    Raises:
        InvalidValue: a string or a number has no JSON form, so no run of the graph could be stored.
    """
    try:
        return digest(without_looks(data))
    except (ValueError, RecursionError) as error:  # a UnicodeEncodeError is a ValueError
        raise InvalidValue(f"a graph's data: {fault_in(data, _LEVELS) or error}", where="graph") from None


def without_looks(data: JsonObject) -> JsonObject:
    """Return a graph's data, and that of the graphs inside it, without the parts that only drawings need."""
    nodes = data.get("nodes")
    if not isinstance(nodes, Mapping) or not all(isinstance(node, Mapping) for node in nodes.values()):
        return data
    return {**data, "nodes": {name: _node_without_look(node) for name, node in nodes.items()}}


def _node_without_look(node: Mapping[str, Any]) -> Mapping[str, Any]:
    plain = {key: value for key, value in node.items() if key != "$drawn"}
    if isinstance(inner := plain.get("graph"), Mapping):
        plain["graph"] = without_looks(inner)
    if isinstance(tools := plain.get("tools"), list):
        plain["tools"] = [_node_without_look(tool) if isinstance(tool, Mapping) else tool for tool in tools]
    return plain


def state_shape(schema: StateSchema) -> JsonObject:
    """Return the parts of a state on which its values depend."""
    if schema.inline is not None and schema.cls is not None:
        from orchestrator.graph.state import class_data

        data = class_data(schema)
    else:
        data = schema.data()
    fields = data["fields"]
    assert isinstance(fields, Mapping)
    shape: dict[str, object] = {}
    for name, spec in fields.items():
        assert isinstance(spec, Mapping)
        shape[name] = [_bare(spec.get("schema")), spec.get("reducer", ""), spec.get("local", False)]
    return {"fields": shape, "$defs": _bare(data.get("$defs"))}


def _bare(schema: object) -> object:
    """Return a JSON schema without titles and descriptions."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            # Here the keys are names chosen by the user, which may include `title`.
            found[key] = {name: _bare(inner) for name, inner in value.items()}
        elif key not in _SAYS_NOTHING:
            found[key] = _bare(value)
    return found

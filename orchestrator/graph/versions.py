"""Versions of a graph: digests tell them apart, and migrations say how runs move from one to another."""

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

# -- Names of nodes and state fields in one version of a graph, and what they are called in another one --------


def inside(place: str, name: str) -> str:
    """The path of a node or a field: its name, behind the names of the subgraph nodes around it."""
    return f"{place}/{name}" if place else name


@dataclass(frozen=True, slots=True)
class Renames:
    """New names of nodes and fields in the new version. Others keep their names."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old path -> new path. A node stays in its graph, so only the last name of the new path counts."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The same for fields of the state."""
    forks: Mapping[str, str] = field(default_factory=dict)
    """The same for nodes that branches fork at, where another node has taken over the fork."""

    def node(self, place: str, name: str) -> str:
        """The new name of a node.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.nodes.get(inside(place, name), name).rpartition("/")[2]

    def fork(self, place: str, name: str) -> str:
        """The new name of the node that a fork is at.

        Args:
            place: the old path of its graph.
            name: its old name.
        """
        return self.forks.get(inside(place, name), self.node(place, name)).rpartition("/")[2]

    def state_field(self, place: str, name: str) -> str:
        """The new name of a field of the state of the graph at `place`."""
        return self.fields.get(inside(place, name), name).rpartition("/")[2]

    def place(self, place: str) -> str:
        """The new path of a graph."""
        old, new = "", ""
        for name in place.split("/") if place else ():
            new = inside(new, self.node(old, name))
            old = inside(old, name)
        return new

    def path(self, path: str) -> str:
        """The new path of a node."""
        place, _, name = path.rpartition("/")
        return inside(self.place(place), self.node(place, name)) if path else path

    def vertex(self, place: str, vertex: str, old: Topology, new: Topology) -> str:
        """The new name of a fork: that of a node, or of a map beside other edges, which is a fork of its own.

        Args:
            place: the old path of its graph.
            vertex: its old name.
            old: the topology of its graph.
            new: the same of the new version.
        """
        for edge in old.edges:
            if edge.each is None or vertex not in (edge.source, f"{edge.source}*{edge.target}:{edge.each}"):
                continue
            if vertex == edge.source and any(fan.field is None for fan in old.fans.get(vertex, ())):
                continue  # the branches beside the map, not the map
            source, target = self.fork(place, edge.source), self.node(place, edge.target)
            alone = f"{source}*{target}:{self.state_field(place, edge.each)}"
            return alone if alone in new.fans else source
        return self.fork(place, vertex)


# -- How runs move to a version of their graph that they do not fit: what a user decides, or the graph declares


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
    stays as it is. The whole migration is checked before anything is journaled.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old name of a node -> its new name. A token at the old node continues at the new one, and what the old node asked
    is asked again."""
    state: StateFunction | StateMapping | None = None
    """Values of the new state. A mapping names, for a field of the new state, the old field that its value comes from
    (the same name keeps a value whose type changed, if it fits), or a function of the old state. A function alone
    returns the values of fields; other fields keep theirs. The old state is plain JSON; new values are validated."""
    joins: Mapping[str, str | None] = field(default_factory=dict)
    """Join of a fork that is open -> the join that takes its place; None: the branches end without it."""
    drop: Collection[str] = ()
    """Fields whose values are given up: those that are gone, and those that begin with the default of their new
    type."""
    accept: bool = False
    """True to accept changes ahead of the run, too, except for lost proofs. What a node asked then stays open, and an
    approval counts, if the node, and the nodes that its approval leads to, are the same but for their content."""
    forks: Mapping[str, str] = field(default_factory=dict)
    """Node that branches under way forked at -> the node that forks in its place. Its tokens go where `nodes` says."""

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):
            raise InvalidMigration(f"drop is a collection of names: write drop=[{self.drop!r}]")
        for what, mapping in (("nodes", self.nodes), ("forks", self.forks), ("joins", self.joins)):
            if not isinstance(mapping, Mapping):
                raise InvalidMigration(f"{what} maps old names to new ones, and this is a {type(mapping).__name__}")
            named = {old: new if new is None else plain_name(new) for old, new in mapping.items()}
            object.__setattr__(self, what, named)
        if self.state is not None and not callable(self.state) and not isinstance(self.state, Mapping):
            raise InvalidMigration(f"state is a function or a mapping, and this is a {type(self.state).__name__}")


NO_MIGRATION = Migration()


# -- The two digests of a graph --------------------------------------------------------------------------------


_LEVELS = 800
"""Levels of a graph's data, which holds the data of the graphs inside it."""
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
    """The joins of a graph in the order in which it declares them, if the digests have to say so.

    This order decides which of several joins fires first (R8), and digests do not contain the order of keys. The
    order in which edges name the joins is in them anyway, so nothing is said of graphs that declare them in that one:
    those keep the digests of the versions of the library that left the order out.

    Args:
        joins: the joins, in the order of the nodes.
        edges: the edges.
    """
    named = dict.fromkeys(end for edge in edges for end in (edge.source, edge.target))
    return () if [name for name in named if name in joins] == [*joins] else joins


def content_digest(data: JsonObject) -> str:
    """Return the digest of everything, with prompts, parameters, versions and references to code.

    Raises:
        InvalidValue: a text or a number in it has no JSON form, so that no run of the graph could be stored.
    """
    try:
        return digest(without_looks(data))
    except (ValueError, RecursionError) as error:  # a UnicodeEncodeError is a ValueError
        raise InvalidValue(f"a graph's data: {fault_in(data, _LEVELS) or error}", where="graph") from None


def without_looks(data: JsonObject) -> JsonObject:
    """A graph's data without what only drawings need, also of the graphs inside it."""
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
    """A JSON schema without its words."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs") and isinstance(value, Mapping):
            # Here the keys are names of the user's, which may be `title` too.
            found[key] = {name: _bare(inner) for name, inner in value.items()}
        elif key not in _SAYS_NOTHING:
            found[key] = _bare(value)
    return found

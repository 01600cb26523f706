"""A graph: state, nodes, edges and limits, checked when it is built."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NoReturn, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, PositiveInt, RootModel, SkipValidation, model_serializer

from orchestrator.errors import GraphError, InvalidInput
from orchestrator.graph.edges import Edge, EdgesLike, format_edges, parse_edges
from orchestrator.graph.faults import Spelled
from orchestrator.graph.function import function_node
from orchestrator.graph.limits import Limits
from orchestrator.graph.names import plain_name
from orchestrator.graph.node import Node
from orchestrator.graph.outcome import NodeResult
from orchestrator.graph.refs import Trust, Trusted, made_for
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import END, NodeShape, Topology
from orchestrator.graph.versions import Migration
from orchestrator.jsontypes import JsonObject
from orchestrator.typevars import Erased, StateT
from orchestrator.upward import above

NodeLike: TypeAlias = Node | Callable[..., NodeResult | Awaitable[NodeResult]] | Mapping[str, Any]
"""A node, a function, or a node's data."""
Names: TypeAlias = str | tuple[str, ...] | None


@made_for("graph")
class GraphDefinition(Erased, BaseModel, Generic[StateT], metaclass=Spelled):
    """All of a `Graph` but its verbs: its fields, checks, digests, edits and files.

    A definition is always made as a `Graph`, see `orchestrator.upward`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: str
    state: SkipValidation[type[BaseModel] | StateSchema]
    nodes: SkipValidation[Mapping[str, Node]]
    edges: SkipValidation[tuple[Edge, ...]]
    input: Names = None
    output: Names = None
    limits: Limits = Limits()
    pools: Mapping[str, PositiveInt | None] = MappingProxyType({})
    version: str | None = None
    description: str = ""
    migrations: SkipValidation[tuple[Migration, ...]] = ()
    """How runs of earlier versions continue: part of the code, not of the data or the digests."""

    def __new__(cls, *args: object, **fields: object) -> Self:
        made: type[Self] = above("Graph") if cls is GraphDefinition else cls
        return super().__new__(made)

    @classmethod
    def _restored(cls, **fields: Any) -> Self:
        """A graph that was checked when it was stored: checks that came later than that do not apply to it."""
        graph = cls.__new__(cls)
        graph._fill(**fields, restored=True)
        graph._refuse_problems(stored=True)
        return graph

    def _fill(
        self,
        *,
        state: type[BaseModel] | StateSchema | Mapping[str, Any],
        nodes: Mapping[str, NodeLike],
        edges: EdgesLike,
        input: Names = None,  # noqa: A002  the argument's name in the documentation
        output: Names = None,
        limits: Limits | Mapping[str, Any] | None = None,
        pools: Mapping[str, int | None] | None = None,
        migrations: Sequence[Migration] = (),
        restored: bool = False,
        **rest: Any,
    ) -> None:
        made: dict[str, Node] = {key: _node_of(key, thing) for key, thing in nodes.items()}
        parsed = parse_edges(edges)
        if not restored:  # a run knows nodes and outcomes by the names that its graph was stored with
            made, parsed = _plainly_named(made), tuple(edge.plain() for edge in parsed)
            rest["name"] = plain_name(rest["name"])
            pools = pools and {plain_name(name): size for name, size in pools.items()}
        BaseModel.__init__(
            self,
            state=_state_of(state),
            nodes=MappingProxyType(made),
            edges=parsed,
            input=tuple(input) if isinstance(input, list) else input,
            output=tuple(output) if isinstance(output, list) else output,
            limits=Limits() if limits is None else limits,
            pools={} if pools is None else pools,
            migrations=_migrations_of(migrations),
            **rest,
        )

    def _refuse_problems(self, *, stored: bool = False) -> None:
        """Raises `InvalidGraph`. `Graph` runs the checks, which read a definition."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether two graphs are the same, however runs of earlier versions continue in them."""
        if not isinstance(other, GraphDefinition) or type(self) is not type(other):
            return NotImplemented
        fields = type(self).model_fields.keys() - {"migrations"}
        return all(getattr(self, name) == getattr(other, name) for name in fields)

    def __hash__(self) -> int:
        return hash((self.name, self.edges))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object = None) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"graph {self.name!r} cannot be pickled: save it, graph.save(path), or import it where it runs")

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes, {len(self.edges)} edges)"

    __str__ = __repr__

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        yield None, self.name

    # -- what follows from the fields --------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StateSchema:  # type: ignore[override]  # pydantic's deprecated method of this name
        """All about the state."""
        return self.state if isinstance(self.state, StateSchema) else StateSchema.of(self.state)

    @cached_property
    def topology(self) -> Topology:
        """All that the shape alone decides."""
        shapes = {name: NodeShape(node.outcomes, node.join, node.rest) for name, node in self.nodes.items()}
        return Topology(shapes, self.edges)

    @cached_property
    def depth(self) -> int:
        """How deep graphs are inside each other here: 1 without subgraphs."""
        return 1 + max((node.subgraph.depth for node in self.nodes.values() if node.subgraph is not None), default=0)

    @cached_property
    def structure(self) -> str:
        """Digest of nodes, outcomes, joins, pools, edges and the state's schema, on which live runs depend."""
        from orchestrator.graph.versions import structure_digest

        ways: dict[str, object] = {}
        for name, node in self.nodes.items():
            inner = node.subgraph
            join = node.join if node.rest == "drop" else [node.join, node.rest]
            pool = () if node.pool is None else (node.pool,)
            ways[name] = [list(node.outcomes), join, None if inner is None else inner.structure, *pool]
        return structure_digest(ways, self.edges, self.schema, self.pools, self._join_order)

    @property
    def _join_order(self) -> Sequence[str]:
        """The joins in the order of the nodes, if edges name them in another one."""
        from orchestrator.graph.versions import join_order

        return join_order([name for name, node in self.nodes.items() if node.join not in (None, "each")], self.edges)

    @cached_property
    def content(self) -> str:
        """Digest of everything: prompts, parameters, `@node(version=)` and references to code too."""
        from orchestrator.graph.versions import content_digest

        return content_digest(self.data())

    # -- input and output --------------------------------------------------------------------------------------

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The state fields that an input may set: those that `input` names, else all."""
        named = (self.input,) if isinstance(self.input, str) else self.input
        return named or tuple(self.schema.fields)

    def initial(self, given: object = None) -> JsonObject:
        """Return the whole start state as JSON.

        Args:
            given: the input. Of a graph that names one `input` field: a mapping with exactly that key, or the field's
                value. Of one that names several: a mapping of these, or a list of all their values. Of one that names
                none: a mapping of state fields. None, and an empty mapping that is no value of the field: all fields
                have their defaults.

        Returns:
            The values of all fields.

        Raises:
            InvalidInput: the input does not fit; names every problem.
        """
        try:
            return self.schema.initial(self._fields_of(given))
        except InvalidInput as error:
            if given == {}:  # no value of the field: nothing is given
                return self.schema.initial({})
            if isinstance(self.input, str) and isinstance(given, Mapping) and given.keys() != {self.input}:
                raise InvalidInput(
                    f"{error}; graph {self.name!r} takes one input, {self.input!r}: a mapping is its value, "
                    f"unless {self.input!r} is its only key"
                ) from None
            raise

    def _fields_of(self, given: object) -> Mapping[str, object]:
        if given is None:
            return {}
        if isinstance(given, BaseModel) and given.__class__ is self.schema.cls:
            given = {name: getattr(given, name) for name in given.model_fields_set}
        elif isinstance(self.input, str):
            return given if isinstance(given, Mapping) and given.keys() == {self.input} else {self.input: given}
        names = self.input_fields
        if isinstance(given, Mapping) and (not self.input or given.keys() <= set(names)):
            return given
        if self.input and isinstance(given, list | tuple) and len(given) == len(names):
            return dict(zip(names, given, strict=True))
        if not self.input:
            raise InvalidInput(
                f"graph {self.name!r} names no input field: give a mapping of state fields "
                f"({', '.join(names)}), or set Graph(input=...)"
            )
        others = ", ".join(repr(name) for name in given if name not in names) if isinstance(given, Mapping) else ""
        many = "one value" if len(names) == 1 else f"{len(names)} values"
        raise InvalidInput(
            f"input of graph {self.name!r} is {', '.join(names)}: give {many}, or a mapping"
            + (f" without {others}" if others else "")
        )

    def result(self, values: Mapping[str, object]) -> object:
        """Return the graph's output.

        Args:
            values: the values of the last state.

        Returns:
            The value of the `output` field, or a mapping if there are several.
        """
        if isinstance(self.output, str):
            return values[self.output]
        return {name: values[name] for name in self.output_fields}

    @property
    def output_fields(self) -> tuple[str, ...]:
        """The state fields that the output is made of."""
        return (self.output,) if isinstance(self.output, str) else tuple(self.output or self.schema.fields)

    # -- editing: each gives a new graph -----------------------------------------------------------------------

    def _with(self, **changes: object) -> Self:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **changes})

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a checked copy with some fields changed; pydantic's own method does not check it.

        Args:
            update: the changed fields, by name.
            deep: without effect, because a graph is frozen.

        Returns:
            The new graph.

        Raises:
            InvalidGraph: the new graph has problems.
        """
        return self._with(**(update or {}))

    def replace(self, nodes: Mapping[str, NodeLike] | None = None, /, **named: NodeLike) -> Self:
        """Return the graph with some nodes replaced: `graph.replace(think=Think(prompt="..."))`.

        Args:
            nodes: the new nodes by name, for names that cannot be keywords.
            named: the new nodes as keywords.

        Returns:
            The new graph.

        Raises:
            GraphError: there is no node with that name.
            InvalidGraph: the new graph has problems, such as an outcome without an edge.
        """
        changes = {plain_name(name): new for name, new in {**(nodes or {}), **named}.items()}
        for name in changes:
            self._known(name)
        return self._with(nodes={**self.nodes, **changes})

    def insert_before(
        self, node: str, name: str, new: NodeLike, *, outcome: str | None = None, otherwise: str = END
    ) -> Self:
        """Return the graph with a new node on every path into `node`. A join of `node` moves to the new node.

        Args:
            node: the name of the node that the new one comes before.
            name: the name of the new node.
            new: the new node.
            outcome: the outcome of the new node that leads to `node`. Default: `approved`, `done` or the only one.
            otherwise: the target of all its other outcomes.

        Returns:
            The new graph.

        Raises:
            GraphError: there is no `node`, there already is a `name`, or no outcome can lead to `node`.
            InvalidGraph: the new graph has problems.
        """
        from orchestrator.graph.editing import edges_with_node_before

        node, name = plain_name(node), plain_name(name)
        self._known(node)
        if name in self.nodes:
            raise GraphError(f"graph {self.name!r} already has a node {name!r}: choose another name")
        made = _node_of(name, new)
        edges = edges_with_node_before(self.edges, node, name, made.outcomes, outcome, otherwise)
        joining = self.nodes[node]
        nodes = {**self.nodes, name: made}
        if joining.join is not None:
            nodes[name] = made.with_(join=joining.join, rest=joining.rest)
            nodes[node] = joining.with_(join=None, rest="drop")
        return self._with(nodes=nodes, edges=edges)

    def with_limits(self, limits: Limits | None = None, /, **changes: object) -> Self:
        """Return the graph with other limits: `graph.with_limits(steps=50)`.

        Args:
            limits: the new limits; None: those of the graph.
            changes: fields of the limits to change.

        Returns:
            The new graph.
        """
        kept = (limits or self.limits).model_dump()
        return self._with(limits=Limits(**{**kept, **changes}))

    def with_tools(self, tools: Collection[object] | None) -> Self:
        """Return the graph with these tools for every node that sees tools, also inside subgraphs.

        These are the nodes of kinds that show tools to a model, check calls of tools or make them (`Node.takes_tools`).
        Functions get them only if they have `tools=` already.

        Args:
            tools: names of tools, tools, functions and toolboxes, as in `Node.tools`; None: whatever a run is given.

        Returns:
            The new graph.

        Raises:
            pydantic.ValidationError: one of the objects cannot be a tool.
        """
        from orchestrator.graph.editing import nodes_with

        given = tools if tools is None or isinstance(tools, str) else tuple(tools)
        return self._with(nodes=nodes_with(self.nodes, lambda node: node.takes_tools, "tools", given))

    def with_model(self, model: str | None) -> Self:
        """Return the graph with this model for every node that asks a model, also inside subgraphs.

        These are the nodes of kinds with `asks = "model"`, and async functions with a parameter for the context
        (`Node.asks_model`).

        Args:
            model: a name in `models=` of the executor; None: the executor's default model.

        Returns:
            The new graph.
        """
        from orchestrator.graph.editing import nodes_with

        return self._with(nodes=nodes_with(self.nodes, lambda node: node.asks_model, "model", model))

    def _known(self, name: str) -> None:
        if name not in self.nodes:
            raise GraphError(f"graph {self.name!r} has no node {name!r}: it has {', '.join(self.nodes)}")

    # -- data --------------------------------------------------------------------------------------------------

    @model_serializer(mode="plain")
    def _serialise(self) -> dict[str, Any]:
        return dict(self.data())

    @cached_property
    def _data(self) -> JsonObject:
        from orchestrator.graph.nodedata import node_data

        data: dict[str, object] = {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "state": self.schema.data(),
            "input": list(self.input) if isinstance(self.input, tuple) else self.input,
            "output": list(self.output) if isinstance(self.output, tuple) else self.output,
            "nodes": {name: node_data(node) for name, node in self.nodes.items()},
            "edges": format_edges(self.edges),
            "limits": self.limits.model_dump(mode="json", exclude_defaults=True),
            **({"pools": dict(self.pools)} if self.pools else {}),
            **({"join_order": list(joins)} if (joins := self._join_order) else {}),
        }
        return data

    def data(self) -> JsonObject:
        """All of the graph as JSON, with the graphs inside it: enough to draw a run of it without its code.

        Raises:
            NotSerialisable: a node's field has no JSON form.
        """
        return self._data

    @classmethod
    def from_data(cls, data: JsonObject, *, resolve: bool | Trust = False) -> Self:
        """Make a graph from the result of `data()`.

        Code is imported only if `resolve` is true. Otherwise functions, and node kinds of other packages, become
        `UnresolvedNode`s, and values of a state without its class stay JSON.

        Args:
            data: the result of `data()`.
            resolve: whether to follow references. True trusts the data with every module, see `load`.

        Returns:
            The graph.

        Raises:
            GraphError: the data is not that of a graph.
            GraphUnknown: `resolve` is true and code is missing.
            UntrustedCode: `resolve` is a `Trust` that refuses a reference.
        """
        from orchestrator.graph.files import graph_from_data

        return graph_from_data(cls, data, Trust.of(resolve) if resolve else None)

    @classmethod
    def load(cls, path: str | Path, *, trust: Trusted = None) -> Self:
        """Read a graph from a YAML or JSON file.

        A file may refer to code: the state's class, functions, tools, reducers. By default it may refer to what already
        imported modules declare for graphs (`@node`, `@tool`, `Reducer`, node kinds, graphs, pydantic models). So a
        file that this program saved loads again, and loading imports nothing. If a file needs another module, import
        the module first, or name it in `trust`.

        Args:
            path: the file's path.
            trust: further modules that the file may refer to, with their submodules. They are imported, and plain
                functions that they define are allowed, too. True trusts the file with every module.

        Returns:
            The graph.

        Raises:
            GraphError: the file does not contain a graph.
            UntrustedCode: the file refers to code that is not trusted, or of the wrong kind; names all modules.
            GraphUnknown: code that the file refers to is missing.
            InvalidGraph: the checks found problems.
            OSError: the file cannot be read.
        """
        from orchestrator.graph.files import load

        return load(cls, Path(path), trust)

    def save(self, path: str | Path) -> None:
        """Write the graph to a YAML (`.yaml`, `.yml`) or JSON (`.json`) file.

        Args:
            path: the file's path.

        Raises:
            NotSerialisable: a node is a closure or a lambda, or the state is a local class; names it.
            OSError: the file cannot be written.
        """
        from orchestrator.graph.file_form import save

        save(self, Path(path))

    def to_yaml(self) -> str:
        """The text that `save` writes.

        Raises:
            NotSerialisable: as `save`.
        """
        from orchestrator.graph.file_form import to_yaml

        return to_yaml(self)


def _state_of(state: object) -> type[BaseModel] | StateSchema:
    if isinstance(state, Mapping):
        return StateSchema.from_data(state)
    if isinstance(state, StateSchema):
        return state
    if isinstance(state, type) and issubclass(state, BaseModel):
        if issubclass(state, RootModel):
            raise GraphError(f"state {state.__name__} is a RootModel, which has no fields: use a model with fields")
        return state
    raise GraphError(f"state is {state!r}: use a pydantic model class")


def _plainly_named(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Nodes by their names in the form NFKC, with pools and outcomes in that form."""
    found: dict[str, Node] = {}
    for name, node in nodes.items():
        if (plain := plain_name(name)) in found:
            raise GraphError(f"two nodes are called {plain!r}: names are compared in the form NFKC; rename one")
        found[plain] = _with_plain_names(node)
    return found


def _with_plain_names(node: Node) -> Node:
    odd = {name for name in (*node.outcomes, node.pool or "") if plain_name(name) != name}
    changes: dict[str, object] = {}
    for field in type(node).model_fields if odd else ():
        value = getattr(node, field)
        if isinstance(value, tuple) and odd.intersection(value):
            changes[field] = tuple(plain_name(one) if one in odd else one for one in value)
        elif isinstance(value, Mapping) and odd.intersection(value):
            changes[field] = {plain_name(key) if key in odd else key: one for key, one in value.items()}
        elif isinstance(value, str) and value in odd:
            changes[field] = plain_name(value)
    return node.with_(**changes) if changes else node


def _migrations_of(given: object) -> tuple[Migration, ...]:
    if isinstance(given, Sequence) and all(isinstance(one, Migration) for one in given):
        return tuple(given)
    raise GraphError("migrations is a list of `Migration`s: write migrations=[Migration(...)]")


def _node_of(name: str, thing: object) -> Node:
    if isinstance(thing, Node):
        return thing
    if isinstance(thing, Mapping):
        from orchestrator.graph.nodedata import node_from_data

        return node_from_data(thing, strict=True)
    if isinstance(thing, type) and issubclass(thing, Node):
        raise GraphError(f"node {name!r} is the class {thing.__name__}: make one, {thing.__name__}(...)")
    if callable(thing):
        return function_node(thing)
    raise GraphError(f"node {name!r} is {thing!r}: use a Node, a function, or a node as data")

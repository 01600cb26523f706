"""Nodes and graphs as data. A graph has nodes, and a node may contain a graph, so one module defines both."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, NoReturn, Self, TypeAlias, get_args

from msgspec import Struct
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SkipValidation,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticSerializationError

from orchestrator._lazy import above
from orchestrator.errors import GraphUnknown, InvalidInput, NotSerialisable
from orchestrator.graph.edges import Edge, format_edges
from orchestrator.graph.faults import Spelled
from orchestrator.graph.limits import Limits, Retry
from orchestrator.graph.names import plain_name
from orchestrator.graph.outcome import DONE
from orchestrator.graph.refs import find, made_for, node_tools, ref_of
from orchestrator.graph.signatures import declared_outcomes
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import Join, NodeShape, Rest, Topology, counts
from orchestrator.graph.typevars import Erased, StateT
from orchestrator.graph.versions import Migration
from orchestrator.json import JsonObject
from orchestrator.spelling import close_to
from orchestrator.values import MAX_LIFETIME

if TYPE_CHECKING:
    from orchestrator.graph.refs import NodeTool

# -- The base class of nodes: a frozen model with declared outcomes and an async method `run` ------------------
# A new kind is a class:
#
#     class Greet(Node, outcomes=("met", "stranger")):
#         name: Annotated[str, Port(str)] = "name"
#
#         async def run(self, state, ctx): ...
#
# Its `kind` is the class's name in snake case, unless the class sets one. Fields marked with `Port` contain names of
# state fields. They can be changed for each node, and are checked when the graph is built.


Effect: TypeAlias = Literal["pure", "idempotent", "irreversible"]
Asked: TypeAlias = Literal["model", "person"]
"""The recipient of a node's requests."""
NodeLook: TypeAlias = Literal["code", "model", "tool", "human", "time", "event", "graph", "custom"]
"""The look of a node in drawings."""
LOOKS: tuple[NodeLook, ...] = get_args(NodeLook)
DRAWN = "$drawn"
"""Key in the stored data of a user's kind: its look, recipient and description. Runs can then be drawn without the
code. Digests do not cover it.
"""
ITEM = "$item"
"""In a subgraph's `inputs`: the map item that the node runs for."""


@dataclass(frozen=True, slots=True)
class Port:
    """Marks a field of a node as the name (or names) of state fields: `results: Annotated[str, Port(list)] = "seen"`.

    `type` is the type that the state field must have (`list`, `dict`, `str`, ...); None: any type.
    """

    type: Any = None


class Approval(Struct, frozen=True):
    """The calls that a node approves when it takes a given outcome."""

    outcome: str
    """The outcome; any other outcome approves nothing."""
    call: tuple[str, str] | None = None
    """The fields that contain the approved tool's name and its arguments, or twice the field with a list of approved
    calls; None: the node approves all calls after it.
    """
    unasked: tuple[str, ...] = ()
    """Risks of tools that it permits without asking a person."""
    reviewed: tuple[str, ...] = ()
    """Those of them that a model reviews."""


@made_for("node")
class Node(BaseModel, metaclass=Spelled):
    """Base of all node kinds."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    kind: ClassVar[str] = "node"
    """Name of the kind in data and drawings."""
    kinds: ClassVar[dict[str, type[Node]]] = {}
    """Every kind that is defined in this process."""
    State: ClassVar[type[BaseModel] | None] = None
    """A mixin for state classes, with the fields that this kind's ports name by default."""
    calls_code: ClassVar[str | None] = None
    """The field that contains a reference to a function which `run` imports and calls; None if there is none."""
    declares: ClassVar[tuple[str, ...] | None] = None
    """The outcomes of the kind; None: those of the return annotation of `run`."""
    if_named: ClassVar[tuple[str, ...]] = ()
    """Outcomes of the kind that need an edge naming them, in addition to `error`, `timeout` and `exhausted`."""

    outcomes_field: ClassVar[str | None] = None
    """The field for the outcomes that a graph chooses, `outcomes` in data and constructors; None if there is no choice.
    """

    in_order: ClassVar[tuple[str, ...]] = ()
    """Mapping fields whose order matters: digests sort the keys of mappings, so data stores these as pairs."""

    class_field: ClassVar[str | None] = None
    """The field that contains a pydantic model, in data `module:Class`; None if there is none."""

    timed_by: ClassVar[str] = "timeout"
    """The field with the seconds after which a step takes the outcome `timeout`."""
    fills: ClassVar[tuple[str, ...] | None] = None
    """The ports that name all state fields that `run` may update; None if not known."""
    after_model: ClassVar[tuple[str, ...]] = ()
    """Outcomes that a step can take only after a model call."""
    asks: ClassVar[Asked | None] = None
    """The recipient of each step's requests, a model or a person, unless the step makes none. Drawings mark the steps
    that asked. None if not declared.
    """

    look: ClassVar[NodeLook | None] = None
    """The kind's look in drawings. Default: by `asks`, else `custom`; a kind with a graph inside is a `graph`."""

    waits: ClassVar[bool] = False
    """True if each step only waits, for a time or an event."""

    retry: Retry | None = None
    """When a failed attempt is repeated; None for never."""
    timeout: PositiveFloat | None = None
    """Seconds that one attempt may take; None for no limit."""
    join: Join = None
    """How tokens of one fork join here: `all` together, `each` alone, or the first n. A name refers to the state field
    with n, which is read when the fork opens.
    """
    rest: Rest = "drop"
    """What happens to the other branches once a join has its first n: they are dropped, or run on to their ends."""
    pool: str | None = None
    """The graph's pool in which a step occupies a place from its start to its end; None for none."""
    reads: frozenset[str] | None = None
    """State fields that the node may read; None for all."""
    writes: frozenset[str] | None = None
    """State fields that the node may update; None for all."""
    version: str | None = None
    """A version to change when code changes in a way that the graph's data does not show. Part of `graph.content`."""
    effect: Effect = "idempotent"
    """`pure` may be recomputed and needs no commit before it; `idempotent` may run again after a crash; `irreversible`
    is never repeated automatically.
    """
    cache: Annotated[float, Field(gt=0, le=MAX_LIFETIME, strict=True)] | None = None
    """Seconds for which a step's result is reused by steps that read the same values, in any run; None for no caching.
    At most 100 years. For `pure` and `idempotent` nodes.
    """
    model: str | None = None
    """Name of one of the executor's models; None for the default one."""
    tools: tuple[str, ...] | None = None
    """Names of the only tools that the node may use; None for all. Tools, functions and toolboxes given here belong to
    this node, and no other node can call them.
    """

    _own_tools: dict[str, Any] = PrivateAttr(default_factory=dict)
    """Name -> the object as it was given, and the tool made of it."""

    @model_validator(mode="wrap")
    @classmethod
    def _take_tools(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        things = data.get("tools") if isinstance(data, dict) else None
        if things is None or isinstance(things, str) or _all_texts(things):
            return handler(data)
        try:
            found = node_tools().tools_of_a_node(things)
        except TypeError as error:
            raise ValueError(str(error)) from None
        node = handler({**data, "tools": tuple(found)})
        node._own_tools = {name: given for name, given in found.items() if given is not None}
        return node

    @property
    def toolset(self) -> tuple[str | NodeTool, ...] | None:
        """The only tools that the node may use: its own, and the names of others; None for all."""
        return None if self.tools is None else tuple(self._own_tools.get(name, (None, name))[1] for name in self.tools)

    @property
    def tools_as_given(self) -> tuple[object, ...] | None:
        """The node's tools as they were given: names, functions and tools; None for all."""
        return None if self.tools is None else tuple(self._own_tools.get(name, (name, None))[0] for name in self.tools)

    def __init_subclass__(cls, kind: str | None = None, outcomes: tuple[str, ...] | None = None, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls.kind = kind or cls.__dict__.get("kind") or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if outcomes is not None:
            cls.declares = tuple(map(plain_name, outcomes))
        elif "run" in cls.__dict__ and "declares" not in cls.__dict__:
            cls.declares = None  # a new `run` may declare other outcomes; read when they are first needed
        if "run" in cls.__dict__ and "fills" not in cls.__dict__:
            cls.fills = None  # and it may update other fields
        if "run" in cls.__dict__ and "after_model" not in cls.__dict__:
            cls.after_model = ()
        if cls.__dict__.get("after_model") and "asks" not in cls.__dict__:
            cls.asks = "model"
        if not inspect.iscoroutinefunction(cls.run):
            raise TypeError(f"run of node kind {cls.__qualname__} is not async: write async def run(self, state, ctx)")
        if not is_shipped(cls) and (cls.kind in _OF_NO_FILE or cls.kind in above("nodes").KINDS):
            raise TypeError(
                f"node kind {cls.kind!r} of {cls.__qualname__} is one of the library's: choose another kind="
            )
        Node.kinds[cls.kind] = cls

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Every unreserved outcome that `run` may return."""
        cls = type(self)
        if cls.declares is None:
            bases = (base for base in cls.__mro__[1:] if issubclass(base, Node))
            above = next((base.declares for base in bases if base.declares), None)
            cls.declares = declared_outcomes(cls.run, f"{cls.__qualname__}.run") or above or (DONE,)
        return cls.declares

    @property
    def sees_tools(self) -> bool:
        """True if its work can call tools."""
        return True

    @property
    def needs_tools(self) -> bool:
        """True if its work fails without tools. A run with such a node does not start if there are no tools."""
        return False

    @property
    def asks_model(self) -> bool:
        """True if its work can call a model, the one that `model=` names.

        By default, True for a kind with `asks = "model"`. `graph.with_model` sets the model of these nodes.
        """
        return self.asks == "model"

    @property
    def takes_tools(self) -> bool:
        """True if `graph.with_tools` sets the node's tools; by default, if its work sees tools."""
        return self.sees_tools

    @property
    def calls_tools(self) -> bool:
        """True if the node itself calls tools, so that proofs require an approval before it.

        By default, a node with `tools=` does. Override this for a kind that only shows them to a model.
        """
        return self.sees_tools and bool(self.tools) and not is_shipped(type(self))

    @property
    def asks_before_calls(self) -> bool:
        """True if the node itself asks a person before each of its calls that changes something, for proofs."""
        return False

    @property
    def _stores_results(self) -> bool:
        """True if models are shown excerpts of long results of its calls, and can read the rest by `read_result`."""
        return False

    @property
    def _asks(self) -> Asked | None:
        """The recipient of its steps' requests; also available for a stored node of the library without its code."""
        return self.asks

    @property
    def _look(self) -> NodeLook | None:
        """See `look`; also available for a stored node whose code is not loaded."""
        found = getattr(type(self), "look", None)
        return found if found in LOOKS else None

    @property
    def _drawn(self) -> JsonObject:
        """Look, recipient and description of a user's kind, for drawings without its code."""
        if is_shipped(type(self)):
            return {}
        found = {"look": self._look, "asks": self.asks, "does": self.does}
        return {key: value for key, value in found.items() if value}

    def _receives(self, name: str) -> Collection[str] | None:
        """Return the names of the events that its steps may take; None if they are not known: code may take any.

        Args:
            name: the node's name.
        """
        return None if self.calls_tools or not is_shipped(type(self)) else ()

    @property
    def approves(self) -> Approval | None:
        """The calls that a person approves in the node, for proofs; None if there are none."""
        return None

    @property
    def called_from(self) -> tuple[str, str] | None:
        """The fields with the name and the arguments of the node's only call; None if it makes no such call.

        For the calls of a list, the field with the list stands for both.
        """
        return None

    def port_type(self, port: str) -> Any:
        """Return the required type of the state field that a port names; None for any type."""
        return self.port_types()[port.partition("[")[0]].type

    @property
    def updates(self) -> frozenset[str] | None:
        """The state fields that a step may update, as far as declared; None if not known.

        These are the fields in `writes`, else those named by the ports in `fills`.
        """
        if self.writes is not None:
            return self.writes
        if self.fills is None:
            return None
        return frozenset(field for port, field in self.ports().items() if port.partition("[")[0] in self.fills)

    @cached_property
    def _may_update(self) -> frozenset[str] | None:
        """The only state fields that a step may update; an update of any other is refused. None if none is refused.

        These are the fields in `writes`, else those that a user's class declares.
        """
        return self.writes if self.writes is not None or is_shipped(type(self)) else self.updates

    @cached_property
    def _is_bare(self) -> bool:
        """Return True if a step only calls `run`: it needs no pool, no thread, no journal and no cache."""
        return self.pool is None and self.cache is None and self.effect != "irreversible" and self.sync_fn is None

    @property
    def does(self) -> str:
        """A description of the node's work in at most 40 characters, for the second line of drawings; may be empty."""
        return ""

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterable[str]:
        """Find problems of the node in a graph, in addition to the checks that apply to all nodes.

        Args:
            name: the node's name in the graph.
            graph: the graph, which may contain unknown names.

        Returns:
            A message for each problem, with a suggested fix.
        """
        return ()

    @property
    def sync_fn(self) -> Callable[[Any, Any], object] | None:
        """The node's work as a plain function of (state, ctx), if it is one; `run` calls it inline."""
        return None

    @property
    def subgraph(self) -> GraphDefinition | None:
        """The graph inside the node, if it has one."""
        return None

    # Only the user's class knows the types of state and context, hence Any.
    async def run(self, state: Any, ctx: Any) -> object:
        """Do the node's work.

        Args:
            state: the view of the state.
            ctx: the context, an `orchestrator.Context`.

        Returns:
            An `Outcome`, a mapping (the update) or None; the last two mean the outcome `done`.

        Raises:
            GraphUnknown: the class does not define `run`.
        """
        raise GraphUnknown(f"node kind {self.kind!r} has no behaviour: define run(self, state, ctx)")

    def _begin(self, state: Any, ctx: Any) -> Awaitable[object]:
        """Return the awaitable of `run`, without another coroutine around it where the work is one already."""
        return self.run(state, ctx)

    def _code_names(self) -> dict[str, object]:
        """Return the references to code in the node's data: the class of a user's kind."""
        return {} if is_shipped(type(self)) else {"class": ref_of(type(self))}

    def _as_data(self) -> JsonObject:
        """See `node_data`."""
        return _data_of(self)

    def with_(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated like a new node.

        Args:
            changes: the changed fields, by name.

        Returns:
            The new node.

        Raises:
            pydantic.ValidationError: a change is invalid.
        """
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        if self._own_tools:
            kept["tools"] = self.tools_as_given
        return type(self)(**{**kept, **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See `with_`; pydantic's own method does not validate the changes."""
        return self.with_(**(update or {}))

    def ports(self) -> dict[str, str]:
        """Port -> the state field that it names; the names in a tuple port are numbered: `show[0]`."""
        return dict(self._port_names())

    def _port_names(self) -> Iterator[tuple[str, str]]:
        for name in self.port_types():
            value = getattr(self, name)
            if isinstance(value, str):
                yield name, value
            elif isinstance(value, list | tuple):
                for number, field in enumerate(value):
                    yield f"{name}[{number}]", field
            elif isinstance(value, Mapping):
                for key, field in value.items():
                    yield f"{name}[{key}]", field

    @classmethod
    def port_types(cls) -> dict[str, Port]:
        """Return the fields of this kind that are ports."""
        return {
            name: extra for name, info in cls.model_fields.items() for extra in info.metadata if isinstance(extra, Port)
        }

    @field_validator("model", mode="before")
    @classmethod
    def _check_model(cls, model: object) -> object:
        if model is None or isinstance(model, str):
            return model
        raise ValueError(
            f"model={type(model).__name__}(...): a node has the name of a model; give the model to the executor or to "
            "run(), as model= (the default one) or in models={'name': ...}"
        )

    @field_validator("join", mode="before")
    @classmethod
    def _check_join(cls, join: object) -> object:
        if (
            isinstance(join, bool)
            or (isinstance(join, int) and join < 1)
            or (isinstance(join, str) and not join.isidentifier())
        ):
            raise ValueError(
                "join is 'all', 'each', how many branches to wait for (1 or more), or the state field with that number"
            )
        return join

    @model_validator(mode="before")
    @classmethod
    def _take_pairs(cls, data: Any) -> Any:
        if not cls.in_order or not isinstance(data, Mapping):
            return data
        return {key: _mapping_of(key, value) if key in cls.in_order else value for key, value in data.items()}

    @model_validator(mode="after")
    def _check_rest(self) -> Self:
        if self.rest == "run" and not counts(self.join):
            raise ValueError("rest='run' needs a join that waits for some of the branches: join=2, or a state field")
        return self

    @field_validator("reads", "writes", mode="before")
    @classmethod
    def _check_names(cls, names: object, info: ValidationInfo) -> object:
        if isinstance(names, str):
            raise ValueError(f"{info.field_name} is a set of names: write {info.field_name}={{{names!r}}}")
        return names

    @field_serializer("reads", "writes")
    def _sort_names(self, names: frozenset[str] | None) -> list[str] | None:
        return None if names is None else sorted(names)


def _mapping_of(name: str, value: object) -> object:
    """Return a mapping from its pairs."""
    if not isinstance(value, list | tuple):
        return value
    found: dict[object, object] = {}
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] in found:
            raise ValueError(f"{name} must be a mapping, or a list of pairs with different names")
        found[pair[0]] = pair[1]
    return found


def _all_texts(things: object) -> bool:
    return isinstance(things, list | tuple | set | frozenset) and all(isinstance(one, str) for one in things)


_OF_NO_FILE = ("function", "unresolved")
"""Kinds of the library that are not defined in `orchestrator.nodes`."""


def is_shipped(cls: type[Node]) -> bool:
    return cls.__module__.startswith("orchestrator.")


# -- A graph: state, nodes, edges and limits, checked when it is made ------------------------------------------


Names: TypeAlias = str | tuple[str, ...] | None


@made_for("graph")
class GraphDefinition(Erased, BaseModel, Generic[StateT], metaclass=Spelled):
    """The fields of a `Graph`, and properties derived from them. Every definition is a `Graph`."""

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
    """Migrations of runs from earlier versions: part of the code, not of the data or the digests."""

    def __new__(cls, *args: object, **fields: object) -> Self:
        if cls is GraphDefinition:
            raise TypeError("a graph is built, and checked, as a Graph: write Graph(...)")
        return super().__new__(cls)

    @classmethod
    def _restored(cls, **fields: Any) -> Self:
        """Make a graph that was checked when it was stored: checks added since do not apply to it."""
        raise NotImplementedError  # `Graph` sets it

    def __eq__(self, other: object) -> bool:
        """Return True if two graphs are the same, apart from their migrations."""
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

    # -- derived from the fields -------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StateSchema:  # type: ignore[override]  # pydantic's deprecated method of this name
        """The schema of the state."""
        return self.state if isinstance(self.state, StateSchema) else StateSchema.of(self.state)

    @cached_property
    def topology(self) -> Topology:
        """The analysis of the graph's shape."""
        shapes = {name: NodeShape(node.outcomes, node.join, node.rest) for name, node in self.nodes.items()}
        return Topology(shapes, self.edges)

    @cached_property
    def depth(self) -> int:
        """The levels of nested graphs: 1 without subgraphs."""
        return 1 + max((node.subgraph.depth for node in self.nodes.values() if node.subgraph is not None), default=0)

    @cached_property
    def reviews(self) -> bool:
        """True if a model may approve calls in a node of the graph, or of a graph inside it."""
        return any(
            ((approval := node.approves) is not None and bool(approval.reviewed))
            or (node.subgraph is not None and node.subgraph.reviews)
            for node in self.nodes.values()
        )

    @cached_property
    def structure(self) -> str:
        """Digest of the parts that unfinished runs depend on: nodes, outcomes, joins, pools, edges and the state's
        schema.
        """
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
        """The joins in the order of the nodes, if edges name them in a different order."""
        from orchestrator.graph.versions import join_order

        return join_order([name for name, node in self.nodes.items() if node.join not in (None, "each")], self.edges)

    @cached_property
    def content(self) -> str:
        """Digest of the whole graph, including prompts, parameters, `@node(version=)` and references to code."""
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
            given: the input. For a graph with one `input` field: a mapping with exactly that key, or the field's value.
                For a graph with several: a mapping of these, or a list of all their values. For a graph with none: a
                mapping of state fields. None, or an empty mapping that is not a value of the field: all fields have
                their defaults.

        Returns:
            The values of all fields.

        Raises:
            InvalidInput: the input does not fit; names every problem.
        """
        try:
            return self.schema.initial(self._fields_of(given))
        except InvalidInput as error:
            if given == {}:  # not a value of the field: no input is given
                return self.schema.initial({})
            if isinstance(self.input, str) and isinstance(given, Mapping) and given.keys() != {self.input}:
                close = close_to(self.input, map(str, given)) if len(given) == 1 else None
                meant = f"; did you mean {self.input!r}, not {close!r}?" if close else ""
                raise InvalidInput(
                    f"{error}{meant}; graph {self.name!r} takes one input, {self.input!r}: a mapping is its value, "
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
        if isinstance(given, Mapping) and not self.input:
            return given
        names = self.input_fields
        if isinstance(given, Mapping) and given.keys() <= set(names):
            return given
        if self.input and isinstance(given, list | tuple) and len(given) == len(names):
            return dict(zip(names, given, strict=True))
        if not self.input:
            raise InvalidInput(
                f"graph {self.name!r} names no input field: give a mapping of state fields "
                f"({', '.join(names)}), or set Graph(input=...)"
            )
        others = ", ".join(repr(name) for name in given if name not in names) if isinstance(given, Mapping) else ""
        many = "one value" if len(names) == 1 else f"a list of {len(names)} values"
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
        """The state fields that make up the output."""
        return (self.output,) if isinstance(self.output, str) else tuple(self.output or self.schema.fields)

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

    # -- data --------------------------------------------------------------------------------------------------

    @model_serializer(mode="plain")
    def _serialise(self) -> dict[str, Any]:
        return dict(self.data())

    @cached_property
    def _data(self) -> JsonObject:
        data: dict[str, object] = {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "state": self.schema.data(),
            "input": list(self.input) if isinstance(self.input, tuple) else self.input,
            "output": list(self.output) if isinstance(self.output, tuple) else self.output,
            "nodes": {name: _graph_node(node) for name, node in self.nodes.items()},
            "edges": format_edges(self.edges),
            "limits": self.limits.model_dump(mode="json", exclude_defaults=True),
            **({"pools": dict(self.pools)} if self.pools else {}),
            **({"join_order": list(joins)} if (joins := self._join_order) else {}),
        }
        return data

    def data(self) -> JsonObject:
        """Return the whole graph as JSON, with the graphs inside it: enough to draw its runs without the code.

        Raises:
            NotSerialisable: a field of a node has no JSON form.
        """
        return self._data


_COMMON = frozenset(Node.model_fields)
MOST_TOOLS_DEEP = 5
"""The most levels of graphs nested as tools in data: each node with a graph as a tool contains all of its data."""


def node_data(node: Node) -> JsonObject:
    """Return a whole node as JSON. A function is stored as its `ref`, or null if it cannot be imported.

    Args:
        node: the node.

    Returns:
        Data for `node_from_data`.

    Raises:
        NotSerialisable: a field of the node has no JSON form.
    """
    return node._as_data()


def _graph_node(node: Node) -> JsonObject:
    """Return a node's data as part of its graph's data."""
    return {**node_data(node), DRAWN: node._drawn} if node._drawn else node_data(node)


def _data_of(node: Node) -> JsonObject:
    names = node._code_names()
    data: dict[str, object] = {"kind": node.kind, **names}
    own = set() if "ref" in names else set(type(node).model_fields) - _COMMON - {node.outcomes_field}
    data["outcomes"] = list(node.outcomes)
    common = {name for name in _COMMON if getattr(node, name) != Node.model_fields[name].default}
    try:
        fields = node.model_dump(mode="json", include=own | common)
    except PydanticSerializationError as error:
        raise NotSerialisable(f"node of kind {node.kind!r} cannot be written as data: {error}") from None
    for name in (*type(node).model_fields,):
        if name in fields:
            data[name] = tools_data(node) if name == "tools" else fields[name]
    for name in node.in_order:
        data[name] = [[key, value] for key, value in fields[name].items()]
    return data


def tools_data(
    node: Node, graph_form: Callable[[GraphDefinition], JsonObject] | None = None
) -> list[str | JsonObject] | None:
    """Return the tools of a node: names, `module:attr` for the node's own, data for graphs and handoffs.

    A tool of the node's own without data or reference (a closure, a renamed tool) is written as its name after a colon.

    Args:
        node: the node.
        graph_form: writes graphs that are tools; None for the form of `GraphDefinition.data`.
    """
    if node.tools is None or node.tools_as_given is None:
        return None
    given = zip(node.tools, node.tools_as_given, strict=True)
    return [one if isinstance(one, str) else tool_ref(one) or _tool_data(one, name, graph_form) for name, one in given]


def _tools_deep(graph: object) -> int:
    """Return the levels of graphs nested as tools of nodes, up to the bound: 0 without any."""
    ahead, deep = [graph], -1
    while ahead and deep < MOST_TOOLS_DEEP:
        deep += 1
        inside: dict[int, object] = {}
        for one in ahead:
            for node in getattr(one, "nodes", {}).values():
                for given in node.tools_as_given or ():
                    inner = getattr(given, "graph", None)
                    if inner is not None:
                        inside[id(inner)] = inner
        ahead = [*inside.values()]
    return deep


def _tool_data(
    given: object, name: str, graph_form: Callable[[GraphDefinition], JsonObject] | None
) -> str | JsonObject:
    as_data = getattr(given, "as_data", None)
    data: JsonObject | None = None if as_data is None else as_data()
    if data is None:
        return f":{name}"
    graph = data.get("graph")
    if graph is None:
        return data

    assert isinstance(graph, GraphDefinition)
    if _tools_deep(graph) >= MOST_TOOLS_DEEP:
        return f":{name}"
    return {**data, "graph": graph.data() if graph_form is None else graph_form(graph)}


def tool_ref(given: object) -> str | None:
    """Return the `module:attr` that leads to exactly this tool or function; None if there is none."""
    ref = ref_of(getattr(given, "function", given))
    return ref if ref is not None and find(ref) is given else None

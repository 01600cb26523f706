"""The base class of nodes: a frozen model with declared outcomes and an async method `run`.

A new kind is a class:

    class Greet(Node, outcomes=("met", "stranger")):
        name: Annotated[str, Port(str)] = "name"

        async def run(self, state, ctx): ...

Its `kind` is the class's name in snake case, unless the class sets one. Fields marked with `Port` contain names of
state fields. They can be changed for each node, and are checked when the graph is built.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PositiveFloat,
    PrivateAttr,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from orchestrator.errors import GraphUnknown
from orchestrator.graph.faults import Spelled
from orchestrator.graph.limits import Retry
from orchestrator.graph.names import plain_name
from orchestrator.graph.node_tools import node_tools
from orchestrator.graph.outcome import DONE, FAILED
from orchestrator.graph.refs import made_for
from orchestrator.graph.signatures import declared_outcomes
from orchestrator.graph.topology import Join, Rest, counts
from orchestrator.upward import above
from orchestrator.values import MAX_LIFETIME

if TYPE_CHECKING:
    from orchestrator.graph.definition import GraphDefinition
    from orchestrator.graph.node_tools import NodeTool

Effect: TypeAlias = Literal["pure", "idempotent", "irreversible"]
Asked: TypeAlias = Literal["model", "person"]
"""What the steps of a node ask."""
ITEM = "$item"
"""In a subgraph's `inputs`: the item of the map that the node runs in."""


@dataclass(frozen=True, slots=True)
class Port:
    """Marks a field of a node as the name (or names) of state fields: `results: Annotated[str, Port(list)] = "seen"`.

    `type` is the type that the state field must have (`list`, `dict`, `str`, ...); None: any type.
    """

    type: Any = None


@dataclass(frozen=True, slots=True)
class Approval:
    """What a node approves, when it takes a certain outcome."""

    outcome: str
    """The outcome; any other one approves nothing."""
    call: tuple[str, str] | None = None
    """The fields with the name of the approved tool and with its arguments; None: it approves what comes after it."""
    unasked: tuple[str, ...] = ()
    """Risks of tools that it lets through without asking."""


@made_for("node")
class Node(BaseModel, metaclass=Spelled):
    """Base of all node kinds."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    kind: ClassVar[str] = "node"
    """Name of the kind in data and drawings."""
    kinds: ClassVar[dict[str, type[Node]]] = {}
    """Every kind that is defined in this process."""
    State: ClassVar[type[BaseModel] | None] = None
    """A mixin for state classes with the fields that this kind's ports name by default."""
    calls_code: ClassVar[str | None] = None
    """The field that holds a reference to a function which `run` imports and calls; None: there is none."""
    declares: ClassVar[tuple[str, ...] | None] = None
    """The outcomes of the kind; None: those of the return annotation of `run`."""
    if_named: ClassVar[tuple[str, ...]] = ()
    """Outcomes of the kind that are taken only if an edge names them, beside `error`, `timeout` and `exhausted`."""

    outcomes_field: ClassVar[str | None] = None
    """The field with the outcomes that the graph names, in data and constructors `outcomes`; None: the kind has all."""

    in_order: ClassVar[tuple[str, ...]] = ()
    """Fields with a mapping whose order matters: digests sort the keys of mappings, so data has them as pairs."""

    class_field: ClassVar[str | None] = None
    """The field that holds a pydantic model, in data `module:Class`; None: there is none."""

    timed_by: ClassVar[str] = "timeout"
    """The field with the seconds after which its step takes the outcome `timeout`."""
    fills: ClassVar[tuple[str, ...] | None] = None
    """The ports with the names of all state fields that `run` may update; None: not known."""
    after_model: ClassVar[tuple[str, ...]] = ()
    """Outcomes with which a step only ends after a call of a model."""
    asks: ClassVar[Asked | None] = None
    """What each step asks, unless it finds that it need not: a model, or a person. Drawings tell the steps that asked
    from those that did not. None: not declared."""

    waits: ClassVar[bool] = False
    """Whether each step only waits, for a time or an event."""

    retry: Retry | None = None
    """When a failed attempt is made again; None: never."""
    timeout: PositiveFloat | None = None
    """Seconds that one attempt may take; None: no limit."""
    join: Join = None
    """How tokens of one fork that meet here are taken: together, each alone, or the first n. A name is that of the
    state field with n, read where the fork opened."""
    rest: Rest = "drop"
    """What becomes of the other branches once a join has its first n: they are dropped, or run on to their ends."""
    pool: str | None = None
    """The pool of the graph in which a step needs a place, from its start until it has ended; None: none."""
    reads: frozenset[str] | None = None
    """State fields that the node may see; None: all."""
    writes: frozenset[str] | None = None
    """State fields that the node may update; None: all."""
    version: str | None = None
    """Changes `graph.content`: for changes of code that the graph's data does not show."""
    effect: Effect = "idempotent"
    """`pure` may be recomputed and needs no commit before it; `idempotent` may run again after a crash;
    `irreversible` never runs again by itself."""
    cache: Annotated[float, Field(gt=0, le=MAX_LIFETIME, strict=True)] | None = None
    """Seconds for which the result of a step stands for steps that read the same, in any run; None: no result is kept.
    At most 100 years. For `pure` and `idempotent` nodes."""
    model: str | None = None
    """Name of one of the executor's models; None: its default one."""
    tools: tuple[str, ...] | None = None
    """Names of the only tools that the node gets; None: all. It may be given tools, functions and toolboxes, too:
    those are its own, and no other node can call them."""

    _own_tools: dict[str, Any] = PrivateAttr(default_factory=dict)
    """Name -> what it was given as, and the tool."""

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
        """The only tools that the node gets: its own ones, and the names of others; None: all."""
        return None if self.tools is None else tuple(self._own_tools.get(name, (None, name))[1] for name in self.tools)

    @property
    def tools_as_given(self) -> tuple[object, ...] | None:
        """The same as it was given: names, functions and tools."""
        return None if self.tools is None else tuple(self._own_tools.get(name, (name, None))[0] for name in self.tools)

    def __init_subclass__(cls, kind: str | None = None, outcomes: tuple[str, ...] | None = None, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls.kind = kind or cls.__dict__.get("kind") or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if outcomes is not None:
            cls.declares = tuple(map(plain_name, outcomes))
        elif "run" in cls.__dict__ and "declares" not in cls.__dict__:
            cls.declares = None  # a new `run` may say other outcomes; read when first asked for
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
        """Whether its work can call tools."""
        return True

    @property
    def needs_tools(self) -> bool:
        """Whether its work fails where it sees no tool at all; runs with such nodes do not begin."""
        return False

    @property
    def asks_model(self) -> bool:
        """Whether its work can ask a model, the one of `model=`.

        By default, that of a kind with `asks = "model"` can. `graph.with_model` sets the model of these nodes.
        """
        return self.asks == "model"

    @property
    def takes_tools(self) -> bool:
        """Whether `graph.with_tools` sets the node's tools: by default, if its work sees tools."""
        return self.sees_tools

    @property
    def calls_tools(self) -> bool:
        """Whether the node itself calls tools, so that proofs require an approval before it.

        By default, a node with `tools=` does. Override this for a kind that only shows them to a model.
        """
        return self.sees_tools and bool(self.tools) and not is_shipped(type(self))

    @property
    def approves(self) -> Approval | None:
        """What the node has a person approve, for proofs; None: nothing."""
        return None

    @property
    def called_from(self) -> tuple[str, str] | None:
        """The fields with the name and the arguments of the one call that the node makes; None: it has none."""
        return None

    def port_type(self, port: str) -> Any:
        """The type that the state field of a port must have; None: any."""
        return self.port_types()[port.partition("[")[0]].type

    @property
    def updates(self) -> frozenset[str] | None:
        """The state fields that a step may update, as far as is declared; None: not known.

        These are the fields of `writes`, else those that the ports in `fills` name.
        """
        if self.writes is not None:
            return self.writes
        if self.fills is None:
            return None
        return frozenset(field for port, field in self.ports().items() if port.partition("[")[0] in self.fills)

    @cached_property
    def _may_update(self) -> frozenset[str] | None:
        """The state fields that a step may update, where an update of another one is refused; None: it is not.

        These are the fields of `writes`, else those that a class of the user's declares.
        """
        return self.writes if self.writes is not None or is_shipped(type(self)) else self.updates

    @cached_property
    def _is_bare(self) -> bool:
        """Whether a step does nothing but `run`: it needs no place, no thread, no journal and no cache for that."""
        return self.pool is None and self.cache is None and self.effect != "irreversible" and self.sync_fn is None

    @property
    def does(self) -> str:
        """What this node does, in at most 40 characters: the second line of drawings; empty: its kind says it."""
        return ""

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterable[str]:
        """Find what is wrong with the node in a graph, beside what all nodes are checked for.

        Args:
            name: the node's name in the graph.
            graph: the graph, whose names may be wrong.

        Returns:
            A message for each problem, with a suggested fix.
        """
        return ()

    @property
    def sync_fn(self) -> Callable[[Any, Any], object] | None:
        """The node's work as a plain function of (state, ctx), where it is one; `run` calls it inline."""
        return None

    @property
    def subgraph(self) -> GraphDefinition | None:
        """The graph inside the node, if it has one."""
        return None

    # State and context are of types that only the user's class knows, hence Any.
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
        """`run`, begun; a node whose work is a coroutine already gives that, and none around it."""
        return self.run(state, ctx)

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
        """Port -> the state field that it names; the names of a tuple port are numbered: `show[0]`."""
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
        """The fields of this kind that are ports."""
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
    """A mapping of its pairs."""
    if not isinstance(value, list | tuple):
        return value
    found: dict[object, object] = {}
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] in found:
            raise ValueError(f"{name} is a mapping, or a list of pairs with different names")
        found[pair[0]] = pair[1]
    return found


def _all_texts(things: object) -> bool:
    return isinstance(things, list | tuple | set | frozenset) and all(isinstance(one, str) for one in things)


_OF_NO_FILE = ("function", "unresolved")
"""Kinds of the library beside those of `orchestrator.nodes`."""


def is_shipped(cls: type[Node]) -> bool:
    return cls.__module__.startswith("orchestrator.")


class UnresolvedNode(Node, kind="unresolved"):
    """Stands for a stored node whose code is not at hand, so that old runs can be drawn and folded."""

    original: str
    """The kind of the node that it represents."""
    stored: Mapping[str, Any]
    """The node's data, as stored."""
    if_named = (FAILED,)
    declared: tuple[str, ...] = (DONE,)

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.declared

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools)

    @property
    def takes_tools(self) -> bool:
        return False

    @property
    def asks_model(self) -> bool:
        return False

    @property
    def does(self) -> str:
        """See `Node.does`. Of a function the same as when it is loaded."""
        if self.original != "function":
            return ""
        if self.model is not None or self.stored.get("model") is not None:
            return "asks a model, calls tools" if self.calls_tools else "asks a model"
        return "calls tools" if self.calls_tools else "runs code"

    @cached_property
    def _inner(self) -> GraphDefinition | None:
        from orchestrator.graph.definition import GraphDefinition

        data = self.stored.get("graph")
        return GraphDefinition.from_data(data) if isinstance(data, Mapping) else None

    @property
    def subgraph(self) -> GraphDefinition | None:
        return self._inner

    async def run(self, state: Any, ctx: Any) -> object:
        """See `Node.run`. Always fails, because the node's code is not loaded.

        Raises:
            GraphUnknown: always.
        """
        ref = self.stored.get("ref") or self.stored.get("class")
        what = f"{self.original} {ref}" if ref else f"kind {self.original}"
        raise GraphUnknown(f"the code of a node ({what}) is not loaded: give its graph to Executor(graphs=[...])")


def asked_by(node: Node) -> Asked | None:
    """What a node's steps ask, also where the code of a kind of the library is not loaded."""
    if not isinstance(node, UnresolvedNode):
        return node.asks
    kind = Node.kinds.get(node.original)
    return kind.asks if kind is not None and is_shipped(kind) else None

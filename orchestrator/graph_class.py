"""`Graph`: a graph definition with the methods that build, edit, check, save, run and draw it.

The executor, drawings and tools are loaded when a method needs them, so that importing a graph is cheap.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import BaseModel, RootModel

from orchestrator import render
from orchestrator.errors import ArrowSyntaxError, GraphError, InvalidGraph
from orchestrator.graph.checks.all import problems_of, report_of
from orchestrator.graph.edges import Edge, EdgesLike, parse_edges
from orchestrator.graph.function import function_node
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition, Names, Node
from orchestrator.graph.names import plain_name
from orchestrator.graph.node_settings import nodes_with
from orchestrator.graph.outcome import DONE, NodeResult
from orchestrator.graph.refs import Trust, Trusted
from orchestrator.graph.state import StateSchema
from orchestrator.graph.topology import END
from orchestrator.graph.typevars import StateT
from orchestrator.graph.versions import Migration
from orchestrator.json import JsonObject

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.executor.calls.graph_tool import GraphTool
    from orchestrator.graph.report import CheckReport
    from orchestrator.models import Model
    from orchestrator.stores import Codec
    from orchestrator.tools import ToolsLike
    from orchestrator.tools.result import Risk


NodeLike: TypeAlias = Node | Callable[..., NodeResult | Awaitable[NodeResult]] | Mapping[str, Any]
"""A node, a function, or a node's data."""


class Graph(GraphDefinition[StateT]):
    """A declarative graph of nodes over one state. Building it runs all checks.

    Args:
        name: letters, digits, `_` and `-`.
        state: a pydantic model, or a state as data.
        nodes: name -> node, function, or node as data.
        edges: arrow text, `Edge`s or tuples.
        input: the state field, or fields, that a run's input sets. One: the input is a mapping with exactly this key,
            or the field's value. Several: a mapping of these, or all values in order. None: a mapping of any state
            fields.
        output: the state field (or fields) that form the run's output; None for the whole state.
        limits: the limits of a run.
        pools: name -> how many steps of nodes that name this pool (`pool=`) may run at the same time in a run,
            including the graphs inside it. None: only `Executor(pools=)` limits them.
        version: the version of the graph, for people.
        description: the purpose of the graph, for people and for MCP clients.
        migrations: how runs of earlier versions of the graph continue in it. A run that does not fit the graph uses the
            first migration that it fits.

    Raises:
        InvalidGraph: the checks found problems; the error lists all of them.
        ArrowSyntaxError: a statement of the arrow text cannot be read.
        SecretInState: a field of the state is a secret.
        pydantic.ValidationError: an argument is of the wrong type.
    """

    def __init__(
        self,
        *,
        name: str,
        state: type[StateT] | StateSchema | Mapping[str, Any],
        nodes: Mapping[str, NodeLike],
        edges: EdgesLike,
        input: Names = None,  # noqa: A002  the argument's name in the documentation
        output: Names = None,
        limits: Limits | Mapping[str, Any] | None = None,
        pools: Mapping[str, int | None] | None = None,
        version: str | None = None,
        description: str = "",
        migrations: Sequence[Migration] = (),
    ) -> None:
        self._fill(
            name=name,
            state=state,
            nodes=nodes,
            edges=edges,
            input=input,
            output=output,
            limits=limits,
            pools=pools,
            version=version,
            description=description,
            migrations=migrations,
        )
        self._refuse_problems()

    @classmethod
    def _restored(cls, **fields: Any) -> Self:
        """Make a graph that was checked when it was stored: checks added since do not apply to it."""
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
        if not isinstance(nodes, Mapping):
            raise GraphError(f"nodes is a {type(nodes).__name__}: use a mapping of names to nodes, {{'name': node}}")
        made: dict[str, Node] = {key: _node_of(key, thing) for key, thing in nodes.items()}
        try:
            parsed = parse_edges(edges)
        except ArrowSyntaxError as error:
            raise error.in_graph(str(rest["name"])) from None
        if not restored:  # a run refers to nodes and outcomes by the names with which its graph was stored
            made, parsed = _plainly_named(made), tuple(edge.plain() for edge in parsed)
            rest["name"] = plain_name(rest["name"])
            limits = Limits(**limits) if isinstance(limits, Mapping) else limits
            pools = {plain_name(name): size for name, size in pools.items()} if isinstance(pools, Mapping) else pools
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
        problems = problems_of(self, stored=stored)
        if problems:
            raise InvalidGraph(self.name, problems)

    # -- editing: each method returns a new graph --------------------------------------------------------------

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
            limits: the new limits; None for those of the graph.
            changes: fields of the limits to change.

        Returns:
            The new graph.
        """
        kept = (limits or self.limits).model_dump()
        return self._with(limits=Limits(**{**kept, **changes}))

    def with_tools(self, tools: Collection[object] | None) -> Self:
        """Return the graph with these tools for every node that sees tools, also inside subgraphs.

        These are the nodes of kinds that show tools to a model, check tool calls or make them (`Node.takes_tools`).
        Functions get them only if they already have `tools=`.

        Args:
            tools: names of tools, tools, functions and toolboxes, as in `Node.tools`, or one of them; None for all
                tools of a run.

        Returns:
            The new graph.

        Raises:
            pydantic.ValidationError: one of the objects cannot be a tool.
        """
        several = isinstance(tools, Iterable) and not isinstance(tools, str)  # else a single tool
        given = tools if tools is None else tuple(tools) if several else (tools,)
        return self._with(nodes=nodes_with(self.nodes, lambda node: node.takes_tools, "tools", given))

    def with_model(self, model: str | None) -> Self:
        """Return the graph with this model for every node that calls a model, also inside subgraphs.

        These are the nodes of kinds with `asks = "model"`, and async functions with a parameter for the context
        (`Node.asks_model`).

        Args:
            model: a name in `models=` of the executor; None for the executor's default model.

        Returns:
            The new graph.
        """
        return self._with(nodes=nodes_with(self.nodes, lambda node: node.asks_model, "model", model))

    def _known(self, name: str) -> None:
        if name not in self.nodes:
            raise GraphError(f"graph {self.name!r} has no node {name!r}: it has {', '.join(self.nodes)}")

    # -- files and stored data ---------------------------------------------------------------------------------

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
        from orchestrator.graph.reading import graph_from_data

        return graph_from_data(cls, data, Trust.of(resolve) if resolve else None)

    @classmethod
    def load(cls, path: str | Path, *, trust: Trusted = None) -> Self:
        """Read a graph from a YAML or JSON file.

        A file may refer to code: the state's class, functions, tools, reducers. By default it may refer to declarations
        for graphs in modules that are already imported (`@node`, `@tool`, `Reducer`, node kinds, graphs, pydantic
        models). A file that this program saved can therefore be loaded again, and loading imports nothing. If a file
        needs another module, import the module first, or name it in `trust`.

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
        from orchestrator.graph.reading import load

        return load(cls, Path(path), trust)

    def save(self, path: str | Path) -> None:
        """Write the graph to a YAML (`.yaml`, `.yml`) or JSON (`.json`) file.

        If `graph.schema.json`, which `orchestrator schema -o` writes, is in the folder or above it, a comment in the
        first line of a YAML file names it for editors.

        Args:
            path: the file's path.

        Raises:
            NotSerialisable: a node is a closure or a lambda, or the state is a local class; the message names it.
            OSError: the file cannot be written.
        """
        from orchestrator.graph.writing import save

        save(self, Path(path))

    def to_yaml(self) -> str:
        """Return the text that `save` writes, without the comment for editors.

        Raises:
            NotSerialisable: see `save`.
        """
        from orchestrator.graph.writing import to_yaml

        return to_yaml(self)

    # -- checking and running ----------------------------------------------------------------------------------

    def check(self, *, prove: bool = False, tools: ToolsLike | None = None) -> CheckReport:
        """Check the graph and return the results.

        Args:
            prove: prove claims about all runs of the graph: each is proved, refuted with a path that breaks it, or
                undecided because something is not declared.
            tools: for proofs, the tools given to runs, as for `Executor`. None if not known: nodes without tools of
                their own may then call any tool. The same applies to servers whose toolbox has not been opened.

        Returns:
            Errors, notes, and proofs if requested.

        Raises:
            TypeError: one of the objects cannot be a tool.
            GraphUnknown: a reference does not lead to a tool.
            ValueError: two tools have the same name.
        """
        if tools is None:
            return report_of(self, prove=prove)
        from orchestrator.tools import toolbox_of

        box = toolbox_of(tools)
        return report_of(self, prove=prove, tools=box.tools if box.ready else None)

    async def run(
        self,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        store: str = "memory://",
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        check: bool = False,
        codec: Codec | None = None,
    ) -> Run[StateT]:
        """Run the graph until it ends or pauses.

        Args:
            input: the value of the graph's `input` field, or a mapping of the fields that `input` names; see `Graph`.
            store: the URL of the store, such as `sqlite:///runs.db`.
            model: the model of nodes that name none.
            models: named models, by the names that nodes use.
            tools: tools, functions, toolboxes, references such as `arithmetic`, or a list of them.
            deps: the value of `ctx.deps` in nodes. Never journaled.
            run_id: an id for the run; see `Executor.start`.
            labels: labels of the run, to find it by.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits; the others stay.
            check: raise if the run does not complete; see `Run.raise_for_status`.
            codec: encrypts the values in the store; see `Executor`.

        Returns:
            The run, when it ends or pauses.

        Raises:
            InvalidInput: the input does not fit the state.
            RunFailed: the run did not complete, and `check` is true.
            RunExists: another run has the id `run_id`.
        """
        from orchestrator.executor import Executor

        async with Executor(
            store=store, graphs=[self], model=model, models=models or {}, tools=tools, deps=deps, codec=codec
        ) as executor:
            run = await executor.start(self, input, run_id=run_id, labels=labels, approve=approve, limits=limits)
        return run.raise_for_status() if check else run

    def run_sync(
        self,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        store: str = "memory://",
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        check: bool = False,
        codec: Codec | None = None,
    ) -> Run[StateT]:
        """Run the graph from code without an event loop. The arguments and errors are those of `run`.

        Returns:
            The run, when it ends or pauses.

        Raises:
            RuntimeError: an event loop is running, as in a notebook: await `run` instead.
        """
        import anyio
        import anyio.lowlevel

        with_these = partial(self.run, input, store=store, model=model, models=models, tools=tools, deps=deps)
        with_these = partial(with_these, run_id=run_id, labels=labels, approve=approve, limits=limits)
        token: object = None
        with suppress(RuntimeError):  # no event loop is running here
            token = anyio.lowlevel.current_token()
        if token is not None:
            raise RuntimeError(
                "run_sync() starts an event loop, but one is already running here, as in a notebook: "
                "use `await run(...)`"
            )
        return anyio.run(partial(with_these, check=check, codec=codec))

    def as_tool(
        self, name: str, description: str, *, risk: Risk = "dangerous", limits: Limits | None = None, depth: int = 10
    ) -> GraphTool:
        """Return a tool that runs the graph: its arguments are the graph's input, its output is the graph's output.

        Each call is a separate run. Its usage also counts for the calling run, whose limits on calls, tokens, cost and
        seconds apply to it. A run that spends its own limits returns its output as a failed result.

        Args:
            name: the tool's name.
            description: the purpose of the tool, for the model.
            risk: the risk of a call.
            limits: the limits of each run; the explicitly set fields replace those of the graph's limits.
            depth: maximum number of nested runs, including the new one. A deeper call fails, so that an agent with
                itself as a tool terminates.

        Returns:
            The tool.

        Raises:
            ValueError: `depth` is below 1.
        """
        from orchestrator.executor.calls.graph_tool import GraphTool

        return GraphTool(self, name, description, risk=risk, limits=limits, depth=depth)

    # -- drawing -----------------------------------------------------------------------------------------------

    def to_svg(self, run: Run | None = None) -> str:
        """Return the graph as SVG.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            An SVG document.
        """
        return render.to_svg(self, run)

    def to_mermaid(self, run: Run | None = None) -> str:
        """Return the graph as Mermaid text.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            The text of a Mermaid diagram.
        """
        return render.to_mermaid(self, run)

    def to_dot(self, run: Run | None = None) -> str:
        """Return the graph as DOT text for Graphviz.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            The text of a DOT file.
        """
        return render.to_dot(self, run)

    def to_text(self, run: Run | None = None) -> str:
        """Return the graph as text for a terminal.

        Args:
            run: a run of the graph to mark in the drawing.

        Returns:
            Lines of text without colour.
        """
        return render.to_text(self, run)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the graph as SVG and text for notebooks; JupyterLab would prefer Mermaid text to the SVG."""
        return {"image/svg+xml": render.to_svg(self), "text/plain": render.to_text(self)}


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
    """Return nodes by their names in form NFKC, with pools and outcomes in that form."""
    found: dict[str, Node] = {}
    for name, node in nodes.items():
        if (plain := plain_name(name)) in found:
            raise GraphError(f"two nodes are called {plain!r}: names are compared in the form NFKC; rename one")
        found[plain] = _with_plain_names(node)
    return found


def _with_plain_names(node: Node) -> Node:
    names = (*node.outcomes, node.pool or "")
    if "".join(names).isascii():
        return node
    odd = {name for name in names if plain_name(name) != name}
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
    raise GraphError("migrations must be a list of `Migration`s: write migrations=[Migration(...)]")


def _node_of(name: str, thing: object) -> Node:
    if isinstance(thing, Node):
        return thing
    if isinstance(thing, Mapping):
        from orchestrator.graph.reading import node_from_data

        return node_from_data(thing, strict=True)
    if isinstance(thing, type) and issubclass(thing, Node):
        raise GraphError(f"node {name!r} is the class {thing.__name__}: make one, {thing.__name__}(...)")
    if callable(thing):
        return function_node(thing)
    raise GraphError(f"node {name!r} is {thing!r}: use a Node, a function, or a node as data")


def edges_with_node_before(
    edges: Sequence[Edge], node: str, name: str, outcomes: tuple[str, ...], onward: str | None, otherwise: str
) -> tuple[Edge, ...]:
    """Return the edges with `name` on every way into `node`; its outcomes other than `onward` lead to `otherwise`.

    Raises:
        GraphError: it is unclear which outcome continues, or there is no such outcome.
    """
    if onward is None:
        sure = [outcome for outcome in outcomes if outcome in ("approved", DONE)] or list(outcomes)
        if len(sure) != 1:
            raise GraphError(f"which outcome of {name} leads to {node}? set outcome= to one of {', '.join(outcomes)}")
        onward = sure[0]
    if onward not in outcomes:
        raise GraphError(f"{name} has no outcome {onward!r}: it has {', '.join(outcomes)}")
    moved = [replace(edge, target=name) if edge.target == node else edge for edge in edges]
    if len(outcomes) == 1:
        return (*moved, Edge(name, node))
    added = [Edge(name, node if outcome == onward else otherwise, outcome) for outcome in outcomes]
    return (*moved, *added)

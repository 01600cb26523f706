"""The resources of an executor, and the check that they suffice for a graph. Nothing else resolves names.

Wrong arguments are refused before anything is opened. A graph that passed its checks passes them again with the same
tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Literal, cast

import anyio

from orchestrator.clock import Clock
from orchestrator.errors import GraphUnknown, InvalidValue
from orchestrator.executor.tracing import Tracing
from orchestrator.graph.faults import suggest_name
from orchestrator.graph.given_code import with_inner
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition, Node
from orchestrator.graph.names import plain_name
from orchestrator.graph.node_settings import with_model
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.memory import MemoryOptions
from orchestrator.models.base import Model
from orchestrator.models.prices import unpriced
from orchestrator.tools.refs import builtin_groups
from orchestrator.tools.result import Risk
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox


class PassedChecks:
    """Checks that passed before an executor started runs."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[GraphDefinition, Mapping[str, Tool]]] = {}
        """Name of the check, and content of the graph -> the graph, and the tools at that time."""

    def holds(self, check: str, graph: GraphDefinition, tools: Toolbox) -> bool:
        """Return True if a check of a graph passed with the current tools.

        Args:
            check: a name for it.
            graph: the graph, compared by identity.
            tools: the executor's tools.
        """
        known = self._known.get((check, graph.content))
        return known is not None and known[0] is graph and type(tools) is Toolbox and known[1] is tools.current()

    def forget(self, content: str) -> None:
        """Forget a graph that was removed."""
        for key in [key for key in self._known if key[1] == content]:
            del self._known[key]

    def note(self, check: str, graph: GraphDefinition, tools: Toolbox) -> None:
        """Record that a check passed. Tools that come and go are checked each time."""
        self._known[check, graph.content] = graph, tools.current()


def check_arguments(
    *, store: object, graphs: object, model: object, models: object, pools: object, observers: object
) -> None:
    """Refuse arguments of `Executor` of another type.

    Raises:
        InvalidValue: names the argument, its value and the expected one.
    """
    if not isinstance(store, str) and (isinstance(store, type) or not callable(getattr(store, "append", None))):
        raise _wrong("store", store, "give a URL, such as 'sqlite:///runs.db', or a store")
    check_code(graphs=graphs, model=model, models=models, pools=pools)
    if not isinstance(observers, Sequence):
        raise _wrong("observers", observers, "give a list of functions of (run, seq)")


def check_choices(**arguments: tuple[str, str, str]) -> None:
    """Refuse arguments of `Executor` with another value than one of two.

    Args:
        arguments: name -> the value, and the two that are possible.

    Raises:
        ValueError: names the argument, its value and the possible ones.
    """
    for name, (given, one, other) in arguments.items():
        if given not in (one, other):
            raise ValueError(f"{name}={given!r}: use {one!r} or {other!r}")


def check_code(*, graphs: object, model: object, models: object, pools: object) -> None:
    """Refuse arguments of `Executor` or `App` of another type.

    Raises:
        InvalidValue: names the argument, its value and the expected one.
    """
    if isinstance(graphs, GraphDefinition):
        raise InvalidValue(f"graphs= is one graph: give a list, graphs=[{graphs.name}]", where="graphs")
    if not isinstance(graphs, Sequence) or isinstance(graphs, str):
        raise _wrong("graphs", graphs, "give a list of graphs")
    for one in graphs:
        if not isinstance(one, GraphDefinition):
            raise _wrong("graphs", one, _graph_meant(one), "an item of ")
    if model is not None:
        _check_model("model", model)
    if models is not None and not isinstance(models, Mapping):
        raise _wrong("models", models, "give a mapping, models={'name': model}")
    for name, one in (models or {}).items():
        _check_model(f"models[{name!r}]", one)
    if pools is not None and not isinstance(pools, Mapping):
        raise _wrong("pools", pools, "give a mapping, pools={'name': 2}")
    for name, size in (pools or {}).items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidValue(
                f"pools={{{name!r}: {size!r}}}: give the number of steps that may run at the same time", where="pools"
            )


def _graph_meant(given: object) -> str:
    """Suggest what to pass instead of an object that is not a graph but has one or makes one."""
    if isinstance(given, ModuleType):
        name = given.__name__.rpartition(".")[2]
        found = [one for one, value in vars(given).items() if isinstance(value, GraphDefinition)]
        if found:
            return f"give the graph in it, {' or '.join(f'{name}.{one}' for one in found[:3])}"
    elif isinstance(given, FunctionType):
        return f"give the graph that it returns, {given.__name__}()"
    return "give a list of graphs"


def _check_model(where: str, model: object) -> None:
    if isinstance(model, str):
        raise InvalidValue(f"{where}={model!r} is a name: give a model, such as OpenAIModel({model!r})", where=where)
    if isinstance(model, type) or not callable(getattr(model, "complete", None)):
        raise _wrong(where, model, "give a model: an object with name and complete")
    if not isinstance(getattr(model, "name", None), str):
        raise _wrong(where, model, "its name is missing; give it a string `name`")


def _wrong(where: str, value: object, fix: str, part: str = "") -> InvalidValue:
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    return InvalidValue(f"{part}{where}= is {kind}: {fix}", where=where)


_THREADS = 40
"""Number of threads for nodes that are sync functions."""


@dataclass(eq=False)
class Resources:
    """The graphs, models, tools and other objects that the runs of an executor use."""

    graphs: dict[str, GraphDefinition]
    """The newest version of each graph, by name."""
    model: Model | None
    models: Mapping[str, Model]
    tools: Toolbox
    deps: Any
    clock: Clock
    threads: anyio.CapacityLimiter
    """Limiter of threads for nodes that are sync functions."""
    gate: anyio.CapacityLimiter | None
    """Limits the steps of all runs that run at the same time."""
    pools: Mapping[str, anyio.CapacityLimiter] = field(default_factory=dict)
    """Limiters of steps whose nodes name a pool."""
    versions: dict[str, tuple[GraphDefinition, ...]] = field(default_factory=dict)
    """All given versions of each graph, by name, the newest first."""
    always_streams: bool = False
    """True if models are asked for streams even if no one reads them."""
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    begun: dict[str, GraphDefinition] = field(default_factory=dict)
    """Graphs with which runs were started here, by their content."""
    asked: dict[str, Any] = field(default_factory=dict)
    """Contents of graphs -> lowest risk of calls in their runs that are asked about, see `add_graph`."""
    passed: PassedChecks = field(default_factory=PassedChecks)
    tracing: Tracing | None = None

    @classmethod
    def of(
        cls,
        graphs: Sequence[GraphDefinition],
        model: Model | None,
        models: Mapping[str, Model],
        tools: Toolbox,
        deps: object,
        clock: Clock,
        *,
        concurrency: int | None,
        pools: Mapping[str, int] | None = None,
        streams: Literal["watched", "always"] = "watched",
        memory: MemoryOptions | None = None,
        tracing: Tracing | None = None,
    ) -> Resources:
        """Make the resources of `Executor(...)`, with the graphs inside its tools.

        Raises:
            ValueError: `concurrency` is below 1, or `streams` is not one of the two values.
        """
        if concurrency is not None and concurrency < 1:
            raise ValueError(
                f"concurrency={concurrency}: give the number of steps that may run at the same time, 1 or more"
            )
        if streams not in ("watched", "always"):
            raise ValueError(f"streams={streams!r}: use 'watched' or 'always'")
        found = cls(
            graphs={},
            model=model,
            models=dict(models),
            tools=tools,
            deps=deps,
            clock=clock,
            threads=anyio.CapacityLimiter(_THREADS),
            gate=None if concurrency is None else anyio.CapacityLimiter(concurrency),
            pools={name: anyio.CapacityLimiter(size) for name, size in (pools or {}).items()},
            always_streams=streams == "always",
            memory=memory or MemoryOptions(),
            tracing=tracing,
        )
        for graph in graphs:
            newer = found.versions.get(graph.name, ())
            if all(one.content != graph.content or one.structure != graph.structure for one in newer):
                found.versions[graph.name] = (*newer, graph)
            found.graphs.setdefault(graph.name, graph)
        for tool in tools if tools.ready else ():
            inner = getattr(tool, "graph", None)
            if inner is not None:
                found.graphs.setdefault(inner.name, inner)
        return found

    def add(self, graph: GraphDefinition, ask_from: Risk | None) -> None:
        """See `Executor.add_graph`."""
        versions = self.versions.get(graph.name, ())
        others = (one for one in versions if (one.content, one.structure) != (graph.content, graph.structure))
        if ask_from is not None:
            own = {id(one) for known in self.versions.values() for one in known}
            self.asked.update({one.content: ask_from for one in with_inner([graph]) if id(one) not in own})
        self.versions[graph.name] = (graph, *others)
        self.graphs[graph.name] = graph

    def remove(self, graph: GraphDefinition) -> None:
        """See `ExecutorGraphs.remove`."""
        kept = tuple(one for one in self.versions.pop(graph.name, ()) if one.content != graph.content)
        if kept:
            self.versions[graph.name] = kept
        known = self.graphs.get(graph.name)
        if known is not None and known.content == graph.content:
            del self.graphs[graph.name]
            if kept:
                self.graphs[graph.name] = kept[0]
        self.begun.pop(graph.content, None)
        self.passed.forget(graph.content)
        left = {one.content for one in with_inner(one for known in self.versions.values() for one in known)}
        for one in with_inner([graph]):
            if one.content not in left:  # another graph may have the same one inside
                self.asked.pop(one.content, None)

    def reset(self) -> None:
        """Free all places: an executor may be opened again, also in another event loop."""
        self.threads = anyio.CapacityLimiter(_THREADS)
        self.gate = None if self.gate is None else anyio.CapacityLimiter(self.gate.total_tokens)
        self.pools = {name: anyio.CapacityLimiter(one.total_tokens) for name, one in self.pools.items()}

    def gates_of(self, pool: str | None) -> tuple[anyio.CapacityLimiter, ...]:
        """Return the limiters that a step passes before it runs: the pool of its node, then the limit of all steps."""
        own = None if pool is None else self.pools.get(pool)
        if own is None:
            return () if self.gate is None else (self.gate,)
        return (own,) if self.gate is None else (own, self.gate)

    @property
    def tool_map(self) -> Mapping[str, Tool]:
        """Return the current tools by name."""
        return self.tools.current()

    def tools_for_answers(self, graph: GraphDefinition | None) -> Mapping[str, Tool]:
        """Return the tools that arguments in an answer are checked against: those with the same meaning at every node.

        A call of a tool whose name has several schemas is checked by the node when the answer arrives.
        """
        own: dict[str, list[Tool]] = {}
        for _, node, _ in _nodes(graph) if graph is not None else ():
            for one in node.toolset or ():
                if not isinstance(one, str):
                    own.setdefault(one.name, []).append(cast("Tool", one))
        if not own:
            return self.tool_map
        found = {name: tool for name, tool in self.tool_map.items() if name not in own}
        for name, tools in own.items():
            meant = [*tools, self.tool_map[name]] if name in self.tool_map else tools
            if len({tool.schema_digest for tool in meant}) == 1:
                found[name] = meant[0]
        return found

    def version(self, name: str, structure: str, content: str) -> GraphDefinition | None:
        """Return the version of a graph with which a run of these digests can continue unchanged: the one of equal
        content, else the newest of its structure. None if there is no such version here.
        """
        known = [*self.versions.get(name, ()), *(one for one in self.begun.values() if one.name == name)]
        same = self.begun.get(content) or next((one for one in known if one.content == content), None)
        return same or self._variant(known, content) or next((one for one in known if one.structure == structure), None)

    def _variant(self, known: Iterable[GraphDefinition], content: str) -> GraphDefinition | None:
        """Return the graph of a run that was started with a model of this executor, in place of the default one."""
        for graph in known:
            for name in self.models:
                found = with_model(graph, name)
                if found.content == content:
                    self.begun[content] = found
                    return found
        return None

    def graph(self, name: str, run_id: str = "") -> GraphDefinition:
        """Return the newest version of the graph with a name.

        Args:
            name: the name.
            run_id: the run that needs it; empty for a new run or a schedule.

        Raises:
            GraphUnknown: the executor has no such graph.
        """
        graph = self.graphs.get(name) or self.graphs.get(plain_name(name))
        if graph is None:
            known = ", ".join(self.graphs) or "none"
            if not run_id:
                fix = suggest_name(name, self.graphs, f"it has {known}.")
                raise GraphUnknown(f"this executor has no graph {name!r}; {fix} Add it to Executor(graphs=[...])")
            raise GraphUnknown(
                f"run {run_id!r} is a run of graph {name!r}, which this executor does not have "
                f"(it has {known}): add it to Executor(graphs=[...])"
            ).on_command_line(
                f"run {run_id!r} is a run of graph {name!r}, but only {known} is here: name its graph with --graph"
            )
        return graph

    def no_model(self, node: str, name: str | None) -> GraphUnknown:
        """Return the error for a missing model."""
        if name is None:
            return GraphUnknown(
                f"node {node!r} uses a model, and the executor has none: add it, Executor(model=...)"
            ).on_command_line(f"node {node!r} uses a model, and there is none: name one with --model")
        known = ", ".join(self.models) or "none"
        return GraphUnknown(
            f"node {node!r} uses model {name!r}, and models= has {known}: add it, Executor(models={{{name!r}: ...}})"
        ).on_command_line(
            f"node {node!r} uses the model named {name!r}, and --model names {known}: add --model {name}=REF"
        )

    def check(self, graph: GraphDefinition, limits: Limits | None = None, *, models: bool = True) -> None:
        """Refuse a graph whose nodes name missing models or tools, or whose code is missing.

        Also refuses a graph with limited cost if the price of a model is unknown.

        Args:
            graph: the graph.
            limits: the limits of the run, if it has its own.
            models: whether missing models are reported; a replay needs none.

        Raises:
            GraphUnknown: names all that is missing.
        """
        faults: list[str] = []
        typed: dict[str, str] = {}  # faults that the command line words differently
        there = self.tool_map
        absent: dict[str, list[str]] = {}
        for path, node, own in _nodes(graph):
            if isinstance(node, UnresolvedNode):
                faults.append(f"the code of node {path!r} is not loaded: use the graph itself, not its data")
            if models and node.model is not None and node.model not in self.models:
                missing = self.no_model(path, node.model)
                faults.append(str(missing))
                typed[faults[-1]] = missing.typed
            for tool in node.tools or ():
                if tool in own or tool in there:
                    continue
                if ":" in tool:
                    faults.append(f"the code of tool {tool!r} of node {path!r} is not loaded: give the graph itself")
                else:
                    absent.setdefault(tool, []).append(path)
        for tool, paths in absent.items():
            api, cli = _absent_tool(tool, paths, ", ".join(there) or "none")
            faults.append(api)
            typed[api] = cli
        if limits_cost(graph, limits):
            given = [self.model, *self.models.values()]
            names = dict.fromkeys(name for model in given if model is not None for name in unpriced(model))
            faults.extend(
                f"it limits cost, and the price of model {name!r} is unknown: set it, such as "
                f"OpenAIModel({name!r}, price=Price(input=..., output=...))"
                for name in names
            )
        if faults:
            named = f"graph {graph.name!r}: "
            raise GraphUnknown(named + "; ".join(faults)).on_command_line(
                named + "; ".join(typed.get(fault, fault) for fault in faults)
            )


def limits_cost(graph: GraphDefinition, limits: Limits | None) -> bool:
    """Return True if the cost of a run of a graph, or of a graph inside, is limited."""
    if (limits or graph.limits).cost is not None:
        return True
    inner = (node.subgraph for node in graph.nodes.values())
    return any(limits_cost(one, None) for one in inner if one is not None)


def _absent_tool(name: str, paths: Sequence[str], known: str) -> tuple[str, str]:
    """Return the error for nodes that name a missing tool: for users of the library, and of the command line."""
    places = ", ".join(map(repr, paths))
    use = f"node {places} uses" if len(paths) == 1 else f"nodes {places} use"
    if name in builtin_groups():
        fault = f"{use} {name!r} as the name of a tool, and it is a group of tools"
        rest = "; the node or strategy names its tools, or has no tools= and gets all"
        return (
            f"{fault}: give the group to the executor, Executor(tools=[{name!r}]){rest}",
            f"{fault}: give the group with --tools {name}{rest}",
        )
    return (
        f"{use} tool {name!r}, and tools= has {known}: add it, Executor(tools=[...])",
        f"{use} tool {name!r}, and there are {known}: add it with --tools",
    )


def _nodes(
    graph: GraphDefinition, path: str = "", around: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Node, frozenset[str]]]:
    """Yield every node, its path, and the names of tools declared by it or by an enclosing subgraph node."""
    for name, node in graph.nodes.items():
        own = around | {one.name for one in node.toolset or () if not isinstance(one, str)}
        yield f"{path}{name}", node, own
        if node.subgraph is not None:
            yield from _nodes(node.subgraph, f"{path}{name}/", own)

"""What an evaluation runs: its options, and its variants, which are graphs with models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.errors import GraphUnknown, InvalidValue
from orchestrator.evaluation.budget import check_amounts
from orchestrator.graph.function import code_digest, function_digest
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import digest
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from orchestrator.evaluation.results import Progress
    from orchestrator.graph.limits import Limits
    from orchestrator.graph_class import Graph
    from orchestrator.kernel.seals import Seal
    from orchestrator.models import Model
    from orchestrator.models.middleware import RateLimit


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an evaluation; see `evaluate`."""

    node_models: Mapping[str, Model] = field(default_factory=dict)
    tools: Toolbox = field(default_factory=Toolbox)
    deps: object = None
    concurrency: int = 8
    repeat: int = 1
    budget: float | None = None
    rate: RateLimit | None = None
    seed: int | None = None
    approve: str | None = None
    limits: Limits | None = None
    cache: bool = False
    retry_failed: bool = False
    seal: Seal | None = None
    progress: Callable[[Progress], object] | None = None

    def __post_init__(self) -> None:
        check_amounts(self.budget, concurrency=self.concurrency, repeat=self.repeat)


@dataclass(frozen=True)
class Variant:
    """A graph with a model."""

    name: str
    graph: Graph
    digest: str
    """Digest of the graph with its code, the model, the named models and the tools: see `identity_of`."""
    model_name: str
    model: Model | None


def variants_of(
    graphs: Sequence[Graph], models: Mapping[str, Model], node_models: Mapping[str, Model], tools: Toolbox
) -> tuple[Variant, ...]:
    """Return each graph with each model. A graph's name is followed by its digest if another one has this name.

    Raises:
        GraphUnknown: there is no graph.
        InvalidValue: two variants have the same name.
    """
    if not graphs:
        raise GraphUnknown("an evaluation needs a graph")
    names = [graph.name for graph in graphs]
    given: Sequence[tuple[str, Model | None]] = [*models.items()] or [("", None)]
    found: dict[str, Variant] = {}
    for graph in graphs:
        own = graph.name if names.count(graph.name) == 1 else f"{graph.name}@{_graph_digest(graph)[:6]}"
        for name, model in given:
            label = own if len(given) == 1 else f"{own} {name}"
            if label in found:
                raise InvalidValue(f"two variants are called {label!r}: give each graph once, or names that differ")
            identity = identity_of(graph, model, node_models, tools, label=name)
            found[label] = Variant(label, graph, identity, name or getattr(model, "name", ""), model)
    return tuple(found.values())


def identity_of(
    graph: Graph, model: Model | None, node_models: Mapping[str, Model], tools: Toolbox, *, label: str = ""
) -> str:
    """Return the digest of what answers an input: the graph with its code, the names of models, and the tools.

    Tools of a toolbox with connections, such as MCP servers, do not count: they are known only once it is open.

    Args:
        graph: the graph.
        model: the model of nodes that name none.
        node_models: named models.
        tools: the tools that nodes may call.
        label: what the evaluation calls the model.
    """
    named = {name: getattr(one, "name", "") for name, one in node_models.items()}
    own = [] if tools.connections else [_tool_parts(one) for one in tools]
    return digest([_graph_digest(graph), label, getattr(model, "name", ""), named, own])


def _graph_digest(graph: GraphDefinition) -> str:
    """Return the digest of a graph with the code of its nodes, and of the tools that belong to them."""
    return digest([graph.name, graph.content, code_digest(graph), [*_tools_in(graph)]])


def _tools_in(graph: GraphDefinition) -> Iterator[object]:
    for node in graph.nodes.values():
        for one in node.toolset or ():
            if isinstance(one, Tool):
                yield _tool_parts(one)
        inner = [node.subgraph, *(one for one in node.tools_as_given or () if isinstance(one, GraphDefinition))]
        yield from (_graph_digest(one) for one in inner if one is not None)


def _tool_parts(tool: Tool) -> list[str]:
    """Return a tool's name, schema and code. Tools of the library are known by their names."""
    body = next((one for part in ("function", "call", "execute") if callable(one := getattr(tool, part, None))), None)
    shipped = body is None or str(body.__module__).startswith("orchestrator.")
    return [tool.name, tool.schema_digest, "" if shipped or body is None else function_digest(body)]

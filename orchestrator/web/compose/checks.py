"""The check of a graph's text.

A text comes from a page, and may contain anything. Bounds of the work on it, in the order of the work:

    the request     1 MiB (`web.requests`), and a few checks at the same time; excess ones are refused
    the text        `LONGEST` characters; bounds of `graph.text.source` for levels, values and aliases
    the graph       `MOST_NODES` nodes, `MOST_EDGES` edges; guards, types and prompts as their kinds define
    the answer      `MOST_PROBLEMS` problems, each cut at `_LONGEST_MESSAGE`; a drawing up to `MOST_DRAWN` nodes

Names in the text are not imported, but looked up in the code of the server (`graph.given_code`, `Texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from pydantic import Field

from orchestrator.errors import ArrowSyntaxError, GraphError, InvalidGraph, UntrustedCode
from orchestrator.graph.checks.all import report_of
from orchestrator.graph.edges import Edge, iter_edges, parse_edges
from orchestrator.graph.given_code import GivenCode, given_code, refusal
from orchestrator.graph.model import Node
from orchestrator.graph.reading import node_from_data
from orchestrator.graph.refs import NodeTool, code_refs
from orchestrator.graph.report import Claim, Proof, Verdict, WitnessStep
from orchestrator.graph.state import StateSchema, start_form
from orchestrator.graph.text.outline import Outline, outline
from orchestrator.graph.text.source import NodeLines, edge_lines, node_lines, placed, read_json, read_marked
from orchestrator.graph.writing import type_name
from orchestrator.graph_class import Graph
from orchestrator.render import to_svg
from orchestrator.web.documents import Document
from orchestrator.web.problems import HttpProblem

if TYPE_CHECKING:
    from orchestrator.executor import Executor
    from orchestrator.graph.refs import NodeTool


LONGEST = 250_000
"""Characters of a text."""
MOST_VALUES = 40_000
"""Values in it, including those of aliases."""
MOST_NODES = 1_000
"""Nodes of a graph, including those of subgraphs."""
MOST_EDGES = 10_000
"""Edges of a graph, including those of subgraphs."""
MOST_PROBLEMS = 200
"""Problems in an answer."""
MOST_DRAWN = 400
"""Maximum number of nodes, and of half of the edges, of a graph that is drawn."""
_LONGEST_MESSAGE = 2_000
_DEEPEST = 50
"""Levels of subgraphs that are read."""


class GraphProblem(Document):
    """A problem of a text."""

    code: str
    message: str
    line: Annotated[int, Field(description="From 1; 0: no single line.")]
    column: Annotated[int, Field(description="From 1; 0: not known.")]
    nodes: list[str]
    edges: list[str]


class CheckedNode(Document):
    """A node of a text, as far as the text can be read."""

    name: Annotated[str, Field(description="Inside of subgraphs with the names of the nodes around it, `outer/inner`.")]
    kind: str
    first: Annotated[int, Field(description="Its first line, from 1; 0: not known.")]
    last: int
    outcomes: Annotated[list[str] | None, Field(description="null: not known.")]
    next: Annotated[list[str], Field(description="Where its edges lead, in their order, each once.")]


class CheckedEdge(Document):
    """An edge of a text."""

    source: str
    target: str
    outcome: str | None
    each: Annotated[str | None, Field(description="The field whose items it maps over; null: it is no map.")]
    line: Annotated[int, Field(description="The line of its statement, from 1; 0: not known.")]


class CheckedField(Document):
    """A field of the state."""

    name: str
    type: Annotated[str, Field(description="Empty: not known.")]
    required: bool
    reducer: str


class WitnessDocument(Document):
    """A step of a path that breaks a claim."""

    node: str
    outcome: str
    note: str


class ProofDocument(Document):
    """A claim about all runs of a graph."""

    about: Claim
    claim: str
    verdict: Verdict
    reason: str
    tool: Annotated[str, Field(description="The tool whose graph it is about; empty: the graph itself.")]
    witness: list[WitnessDocument]
    beside: Annotated[list[WitnessDocument], Field(description="The path of a second branch, if the claim has two.")]


class CheckDocument(Document):
    """Result of the check of a text."""

    graph: str | None
    ok: bool
    problems: Annotated[list[GraphProblem], Field(description="In the order of their lines, 200 at most.")]
    more_problems: Annotated[int, Field(description="Number of problems that are left out.")]
    notes: list[str]
    skipped: Annotated[list[str], Field(description="What only code could tell that this server was not given.")]
    nodes: Annotated[list[CheckedNode], Field(description="In the order of the text.")]
    edges: Annotated[list[CheckedEdge], Field(description="Those outside of subgraphs, 5,000 at most.")]
    fields: Annotated[list[CheckedField], Field(description="The fields of the state.")]
    input: Annotated[list[str], Field(description="The fields that an input sets; empty: all.")]
    proofs: Annotated[list[ProofDocument], Field(description="With `prove`, of a graph without problems.")]
    form: Annotated[
        dict[str, object] | None, Field(description="JSON Schema of what a run starts with; null: there are problems.")
    ]
    drawing: Annotated[str | None, Field(description="SVG, with `draw`; null: there are problems, or it is too large.")]


@dataclass(frozen=True)
class Text:
    """The text of a graph, parsed."""

    data: Any
    root: Any
    """Its YAML node; None: line numbers are unknown."""
    text: str


def read(text: str, form: str) -> Text:
    """Parse a text.

    Raises:
        GraphError: it is neither YAML nor JSON, or is too large.
    """
    if len(text) > LONGEST:
        raise GraphError(f"the text has {len(text):,} characters, and the limit on this page is {LONGEST:,}: split it")
    try:
        if form == "yaml":
            marked = read_marked(text, most=MOST_VALUES)
            found = Text(marked.data, marked.root, text)
        else:
            found = Text(read_json(text), _root_of_json(text), text)
    except (ValueError, RecursionError) as error:
        raise GraphError(str(error)) from None
    _check_size(found.data)
    return found


def _root_of_json(text: str) -> Any:
    try:
        return read_marked(text, most=MOST_VALUES).root
    except (ValueError, RecursionError):  # parts that only JSON can express
        return None


def _check_size(data: object) -> None:
    """Check that a graph is not too large for this page.

    Raises:
        GraphError: the graph has too many nodes, or edges.
    """
    nodes = edges = 0
    for graph in _graphs(data):
        nodes += len(graph["nodes"]) if isinstance(graph.get("nodes"), Mapping) else 0
        if nodes > MOST_NODES:
            raise GraphError(f"the graph has more than {MOST_NODES:,} nodes, too many for this page: split it")
        edges += _count(graph.get("edges"), MOST_EDGES - edges)
        if edges > MOST_EDGES:
            raise GraphError(f"the graph has more than {MOST_EDGES:,} edges, too many for this page: split it")


def _count(edges: object, most: int) -> int:
    """Count the edges; in a faulty text those before the fault. Counting stops after `most`."""
    count = 0
    for text in edges if isinstance(edges, list) else [edges]:
        with suppress(ArrowSyntaxError):
            for _ in iter_edges(text) if isinstance(text, str) else [text]:
                count += 1
                if count > most:
                    return count
    return count


def _graphs(data: object) -> Iterator[Mapping[str, Any]]:
    """Yield the mapping of a graph, and those of its inner graphs, also those behind aliases."""
    ahead: list[tuple[object, int]] = [(data, 0)]
    while ahead:
        graph, depth = ahead.pop()
        if not isinstance(graph, Mapping):
            continue
        yield graph
        nodes = graph.get("nodes")
        for spec in nodes.values() if isinstance(nodes, Mapping) and depth < _DEEPEST else ():
            if isinstance(spec, Mapping):
                tools = spec.get("tools")
                inner = (
                    [one.get("graph") for one in tools if isinstance(one, Mapping)] if isinstance(tools, list) else []
                )
                ahead += [(one, depth + 1) for one in (spec.get("graph"), *inner) if one is not None]


def graph_of(text: Text, code: GivenCode) -> Graph:
    """Return the graph of a text.

    Raises:
        GraphError: the text is not a graph, or names unknown or untrusted code.
    """
    if not isinstance(text.data, Mapping):
        raise GraphError("the text is not a graph: begin with 'name: NAME'")
    for one in code_refs(text.data):
        if code.refuses(one.ref, one.role):
            raise UntrustedCode([], f"{one.place}: {refusal(one.ref)}")
    try:
        return Graph.from_data(text.data, resolve=code)
    except RecursionError:
        raise GraphError("the graph is nested too deeply: flatten it") from None


def sound(text: str, form: str, code: GivenCode) -> Graph:
    """Return the graph of a text, after all checks.

    Raises:
        GraphError: the text is not a graph, names unknown code, or the checks found problems.
    """
    graph = graph_of(read(text, form), code)
    try:
        problems = report_of(graph).errors
    except RecursionError:
        raise GraphError("the graph is nested too deeply: flatten it") from None
    if problems:
        raise InvalidGraph(graph.name, problems)
    return graph


def check(
    text: str, form: str, code: GivenCode, tools: Sequence[NodeTool] | None, *, draw: bool = False, prove: bool = False
) -> CheckDocument:
    """Check a text, and return the result, also for a text with faults.

    Args:
        text: the text.
        form: `yaml` or `json`.
        code: code that it may refer to.
        tools: the tools of the server, for proofs; None: not known.
        draw: whether to draw the graph.
        prove: whether to prove claims about it.
    """
    try:
        source = read(text, form)
    except GraphError as error:
        return _document(None, error, None, text)
    known = _Known.of(source, code)
    try:
        found = _read(source.data, code)
        report = report_of(found.graph, prove=prove, tools=tools)
        if report.errors:
            raise InvalidGraph(found.graph.name, report.errors)
    except (GraphError, RecursionError) as error:
        fault = error if isinstance(error, GraphError) else GraphError("the graph is nested too deeply: flatten it")
        return _document(source, fault, known, text)
    graph = found.graph
    drawn = draw and len(known.nodes) <= MOST_DRAWN and len(graph.edges) <= 2 * MOST_DRAWN
    named = graph.input_fields if graph.input else None
    return CheckDocument(
        graph=graph.name,
        ok=True,
        problems=[],
        more_problems=0,
        notes=list(report.notes),
        skipped=list(found.skipped),
        nodes=known.nodes,
        edges=known.edges,
        fields=known.fields,
        input=known.input,
        proofs=[*map(_proof, report.proofs)],
        form=None if found.skipped else dict(start_form(graph.schema, named)),
        drawing=to_svg(graph) if drawn else None,
    )


def _read(data: object, code: GivenCode) -> Outline:
    """Return the graph of some data; only its outline if it refers to unknown code.

    Raises:
        GraphError: the data is not a graph.
    """
    if isinstance(data, Mapping) and not any(code.refuses(one.ref, one.role) for one in code_refs(data)):
        return Outline(Graph.from_data(data, resolve=code), ())
    return outline(data)


def _document(source: Text | None, error: GraphError, known: _Known | None, text: str) -> CheckDocument:
    """Return the result of the check of a faulty text."""
    data = None if source is None else source.data
    name = data.get("name") if isinstance(data, Mapping) else None
    found = placed(error, text, None if source is None else source.root)
    problems = [
        GraphProblem(
            code=one.problem.code,
            message=_cut(one.problem.message),
            line=one.line,
            column=one.column,
            nodes=[*map(_cut, one.problem.nodes)],
            edges=[*map(_cut, one.problem.edges)],
        )
        for one in found[:MOST_PROBLEMS]
    ]
    return CheckDocument(
        graph=_cut(name) if isinstance(name, str) else None,
        ok=False,
        problems=problems,
        more_problems=max(0, len(found) - MOST_PROBLEMS),
        notes=[],
        skipped=[],
        nodes=known.nodes if known else [],
        edges=known.edges if known else [],
        fields=known.fields if known else [],
        input=known.input if known else [],
        proofs=[],
        form=None,
        drawing=None,
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"


def _proof(proof: Proof) -> ProofDocument:
    return ProofDocument(
        about=proof.about,
        claim=proof.claim,
        verdict=proof.verdict,
        reason=proof.reason,
        tool=proof.tool,
        witness=[*map(_step, proof.witness)],
        beside=[*map(_step, proof.beside)],
    )


def _step(step: WitnessStep) -> WitnessDocument:
    return WitnessDocument(node=step.node, outcome=step.outcome, note=step.note)


# -- nodes and fields of a faulty text -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """The nodes and fields of a text, each as far as it can be read independently."""

    nodes: list[CheckedNode]
    edges: list[CheckedEdge]
    fields: list[CheckedField]
    input: list[str]

    @classmethod
    def of(cls, source: Text, code: GivenCode) -> _Known:
        lines = {} if source.root is None else node_lines(source.root, source.text)
        data = source.data if isinstance(source.data, Mapping) else {}
        edges = islice(() if source.root is None else edge_lines(source.root), MOST_EDGES // 2)
        given = data.get("input")
        names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        return cls(
            [*_nodes(data, (), lines, code)],
            [CheckedEdge(**asdict(edge), line=line) for edge, line in edges],
            [*_fields(data.get("state"), code)],
            [_cut(one) for one in names if isinstance(one, str)],
        )


def _nodes(
    data: Mapping[str, Any], path: tuple[str, ...], lines: Mapping[tuple[str, ...], NodeLines], code: GivenCode
) -> Iterator[CheckedNode]:
    nodes = data.get("nodes")
    if not isinstance(nodes, Mapping) or len(path) >= _DEEPEST:
        return
    following: dict[str, dict[str, None]] = {}
    for edge in _edges(data.get("edges")):
        following.setdefault(edge.source, {})[edge.target] = None
    for name, spec in nodes.items():
        place = (*path, str(name))
        where = lines.get(place, NodeLines(0, 0))
        kind = spec.get("kind") if isinstance(spec, Mapping) else "function"
        yield CheckedNode(
            name="/".join(place),
            kind=_cut(str(kind or "")),
            first=where.first,
            last=where.last,
            outcomes=_outcomes(spec, code),
            next=[*following.get(str(name), ())],
        )
        inner = spec.get("graph") if isinstance(spec, Mapping) else None
        if isinstance(inner, Mapping):
            yield from _nodes(inner, place, lines, code)


def _edges(text: object) -> Iterator[Edge]:
    """Yield the edges of a text, without the statements that cannot be read."""
    if isinstance(text, list):
        parts: Sequence[object] = text
    else:
        parts = text.split("\n") if isinstance(text, str) else ()
    for part in parts:
        with suppress(ArrowSyntaxError):
            yield from parse_edges(part if isinstance(part, str) else [cast("Any", part)])


def _outcomes(spec: object, code: GivenCode) -> list[str] | None:
    """Return the outcomes of a node; None if the node cannot be read by itself."""
    try:
        if isinstance(spec, str):
            found = code.follow(spec, "node")
            node = found if isinstance(found, Node) else node_from_data({"kind": "function", "ref": spec}, resolve=code)
        elif isinstance(spec, Mapping):
            inner = spec.get("graph")  # it may be wrong for the outcomes of the enclosing node
            if isinstance(inner, Mapping):
                said = spec.get("outcomes")
                return [*map(str, said)] if isinstance(said, list) else ["done"]
            node = node_from_data(spec, resolve=code)
        else:
            return None
    except (GraphError, RecursionError):
        return None
    return list(node.outcomes)


def _fields(state: object, code: GivenCode) -> Iterator[CheckedField]:
    """Yield the fields of a state, by their names and types."""
    try:
        if isinstance(state, str) or (isinstance(state, Mapping) and "ref" in state):
            ref = state if isinstance(state, str) else str(state["ref"])
            schema = StateSchema.of(code.follow(ref, "state"))
            for name in schema.fields:
                field = schema.field(name)
                yield CheckedField(
                    name=name, type=type_name(field.annotation), required=field.required, reducer=field.reducer
                )
            return
    except (GraphError, RecursionError):
        return
    fields = state.get("fields") if isinstance(state, Mapping) else None
    for name, spec in fields.items() if isinstance(fields, Mapping) else ():
        kind = spec.get("type") if isinstance(spec, Mapping) else spec
        reducer = spec.get("reducer") if isinstance(spec, Mapping) else None
        yield CheckedField(
            name=_cut(str(name)),
            type=_cut(kind) if isinstance(kind, str) else "",
            required=not (isinstance(spec, Mapping) and "default" in spec),
            reducer=_cut(reducer) if isinstance(reducer, str) else "",
        )


T = TypeVar("T")
_THREADS: RunVar[CapacityLimiter] = RunVar("threads that check texts")
AT_ONCE = 2
"""Texts that are checked at the same time."""
WAITING = 16
"""Maximum number of texts that wait for a check."""


class Texts:
    """The texts of one server.

    Args:
        executor: the executor when the server starts: texts may refer to its graphs.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.given = dict(executor.graphs)
        """The graphs with which the server was started, by name."""

    @property
    def code(self) -> GivenCode:
        """Code that texts may refer to."""
        return self._code if self._executor.tools.ready else given_code(self.given.values())

    @cached_property
    def _code(self) -> GivenCode:
        return given_code(self.given.values(), self.tools or ())

    @property
    def tools(self) -> tuple[NodeTool, ...] | None:
        """The tools of the server; None: not known yet."""
        box = self._executor.tools
        return box.tools if box.ready else None

    async def away(self, function: Callable[[], T]) -> T:
        """Call a function that works on a text in a thread.

        Raises:
            HttpProblem: too many texts are waiting.
        """
        try:
            limiter = _THREADS.get()
        except LookupError:
            _THREADS.set(limiter := CapacityLimiter(AT_ONCE))
        if limiter.statistics().tasks_waiting >= WAITING:
            detail = f"{WAITING} texts of graphs are waiting to be checked: send it again later"
            raise HttpProblem(503, "texts-full", detail, headers={"Retry-After": "1"})
        return await to_thread.run_sync(function, limiter=limiter)

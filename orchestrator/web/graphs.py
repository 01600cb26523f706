"""The graphs of the server, and the check of graph files."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import ArrowSyntaxError, GraphError, InvalidGraph, NotSerialisable
from orchestrator.graph.checks.all import report_of
from orchestrator.graph.coderefs import code_refs
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.outline import Outline, outline
from orchestrator.graph.source import read_json, read_yaml
from orchestrator.graph.source_lines import placed
from orchestrator.graph.statedata import start_form
from orchestrator.graph.trust import Trust
from orchestrator.render import to_svg
from orchestrator.verbs import Graph
from orchestrator.web.documents import CheckDocument, GraphDocument, GraphList, GraphProblem, GraphRow, blank
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import CheckBody, NoQuery
from orchestrator.web.runs import away


async def listing(call: Call[NoQuery]) -> GraphList:
    """The graphs that runs can be started of."""
    graphs = call.executor.graphs
    return GraphList(graphs=[GraphRow(**_row(graphs[name])) for name in sorted(graphs)])


async def show(call: Call[NoQuery]) -> GraphDocument:
    """A graph with its drawing and the form of its input."""
    graph = call.graph(str(call.request.path_params["name"]))
    return await away(lambda: _document(graph))


def _document(graph: GraphDefinition) -> GraphDocument:
    try:
        yaml: str | None = graph.to_yaml()
    except NotSerialisable:
        yaml = None
    return GraphDocument(
        **_row(graph), data=blank(dict(graph.data())), yaml=None if yaml is None else str(blank(yaml)),
        form=dict(start_form(graph.schema, _names(graph.input))), drawing=to_svg(graph),
    )  # fmt: skip


def _row(graph: GraphDefinition) -> dict[str, Any]:
    return {
        "name": graph.name, "description": graph.description, "nodes": len(graph.nodes),
        "structure": graph.structure, "content": graph.content, "input": list(_names(graph.input)),
        "output": list(_names(graph.output)),
    }  # fmt: skip


def _names(fields: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)


async def check(call: Call[NoQuery, CheckBody]) -> CheckDocument:
    """Check the text of a graph file. No code that it names is imported."""
    return await away(lambda: _checked(call.body))


def _checked(body: CheckBody) -> CheckDocument:
    try:
        data = read_json(body.text) if body.format == "json" else read_yaml(body.text)
    except (ValueError, RecursionError) as error:
        return _faulty(None, GraphError(str(error)), body.text)
    try:
        found = _read(data)
        report = report_of(found.graph)
        if report.errors:
            return _faulty(found.graph.name, InvalidGraph(found.graph.name, report.errors), body.text, found.skipped)
    except GraphError as error:
        name = data.get("name") if isinstance(data, dict) else None
        return _faulty(name if isinstance(name, str) else None, error, body.text)
    return CheckDocument(
        graph=found.graph.name, ok=True, problems=[], notes=list(report.notes), skipped=list(found.skipped),
        drawing=to_svg(found.graph) if body.draw else None,
    )  # fmt: skip


def _read(data: object) -> Outline:
    """The graph of some data. Where it refers to code, only its outline: no reference is followed.

    Raises:
        GraphError: the data is no graph's.
    """
    if isinstance(data, dict) and not any(True for _ in code_refs(data)):
        return Outline(Graph.from_data(data, resolve=Trust(modules=())), ())
    return outline(data)


def _faulty(
    name: str | None, error: GraphError | ArrowSyntaxError, text: str, skipped: tuple[str, ...] = ()
) -> CheckDocument:
    problems = [
        GraphProblem(
            code=one.problem.code, message=one.problem.message, line=one.line, nodes=list(one.problem.nodes),
            edges=list(one.problem.edges),
        )
        for one in placed(error, text)
    ]  # fmt: skip
    return CheckDocument(graph=name, ok=False, problems=problems, notes=[], skipped=list(skipped), drawing=None)

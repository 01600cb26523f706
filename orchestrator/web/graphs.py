"""The graphs of the server: a list, and one with its drawing and the form of its input; as answers and as screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from orchestrator.errors import NotSerialisable
from orchestrator.graph.checks.all import report_of
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.state import start_form
from orchestrator.graph.writing import to_yaml
from orchestrator.render import to_svg
from orchestrator.tasks import away
from orchestrator.web import documents, requests
from orchestrator.web.compose.saved import SavedFile
from orchestrator.web.endpoint import RISKS, Call
from orchestrator.web.graph_parts import parts_of
from orchestrator.web.questions import open_questions
from orchestrator.web.runs import picture
from orchestrator.web.screens.shell import key_of, page, root_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from orchestrator.web.endpoint import Call


async def listing(call: Call[requests.NoQuery]) -> documents.GraphList:
    """Return the graphs of which runs can be started."""
    if call.service.saved is not None:
        await call.service.saved.refresh()
    graphs = await call.graphs()
    return documents.GraphList(graphs=[documents.GraphRow(**_row(graphs[name])) for name in sorted(graphs)])


async def show(call: Call[requests.NoQuery]) -> documents.GraphDocument:
    """Return a graph with its drawing and the form of its input."""
    graph = await call.graph(str(call.request.path_params["name"]))
    saved = None if call.service.saved is None else call.service.saved.files.get(graph.name)
    return await away(lambda: _document(graph, saved, parts_of(call.executor, graph)))


def _document(graph: GraphDefinition, saved: SavedFile | None, parts: documents.GraphParts) -> documents.GraphDocument:
    try:
        yaml: str | None = to_yaml(graph)
    except NotSerialisable:
        yaml = None
    return documents.GraphDocument(
        **_row(graph),
        data=documents.blank(dict(graph.data())),
        yaml=None if yaml is None else str(documents.blank(yaml)),
        form=dict(start_form(graph.schema, graph.input_fields if graph.input else None)),
        drawing=to_svg(graph),
        parts=parts,
        limits=graph.limits.model_dump(mode="json"),
        saved=None if saved is None else documents.SavedText(text=saved.text, digest=saved.digest),
    )


def _row(graph: GraphDefinition) -> dict[str, Any]:
    return {
        "name": graph.name,
        "description": graph.description,
        "nodes": len(graph.nodes),
        "structure": graph.structure,
        "content": graph.content,
        "input": list(_names(graph.input)),
        "output": list(_names(graph.output)),
    }


def _names(fields: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)


@dataclass(frozen=True, slots=True)
class Listed:
    """A graph in the list."""

    key: str
    name: str
    description: str
    nodes: str
    takes: str
    gives: str
    query: str
    """The query of its runs."""
    path: str
    """Its name as part of a URL."""


def listed_of(row: documents.GraphRow) -> Listed:
    """Return a graph as a row of the table."""
    return Listed(
        key=key_of(row.name),
        name=row.name,
        description=row.description,
        nodes=f"{row.nodes:,}",
        takes=", ".join(row.input),
        gives=", ".join(row.output),
        query=urlencode({"graph": row.name}, errors="replace"),
        path=quote(row.name, safe=""),
    )


async def graphs(call: Call[requests.NoQuery]) -> Response:
    """Show the graphs of this server."""
    found = await listing(call)
    waiting = await open_questions(call)
    return await page(
        call,
        "graphs",
        {"title": "Graphs", "graphs": [listed_of(one) for one in found.graphs], "open_questions": waiting},
        root=root_of(call),
        version=["graphs", [one.model_dump() for one in found.graphs], waiting],
    )


async def graph(call: Call[requests.NoQuery]) -> Response:
    """Show a graph: its drawing, its text, what its checks prove, and the form that starts a run."""
    found = await show(call)
    tools = call.executor.tools.tools if call.executor.tools.ready else None
    shown = await call.graph(found.name)
    cap = call.settings.approve
    report = await away(lambda: report_of(shown, prove=True, tools=tools))
    waiting = await open_questions(call)
    return await page(
        call,
        "graph",
        {
            "title": found.name,
            "graph": listed_of(found),
            "notes": report.notes,
            "proofs": report.proofs,
            "text": found.saved.text if found.saved is not None else found.yaml or "",
            "form": found.form,
            "options": {
                "parts": found.parts.model_dump(mode="json"),
                "limits": found.limits,
                "risks": [] if cap is None else list(RISKS[: RISKS.index(cap) + 1]),
            },
            "startable": not (call.settings.read_only or call.settings.scratch),
            "open_questions": waiting,
        },
        root=root_of(call),
        version=[
            "graph",
            found.content,
            found.structure,
            waiting,
            call.settings.scratch,
            cap,
            found.parts.model_dump(),
        ],
    )


async def drawing(call: Call[requests.NoQuery]) -> Response:
    """Return the drawing of a graph as SVG."""
    drawn: GraphDefinition = await call.graph(str(call.request.path_params["name"]))
    return await picture(lambda: to_svg(drawn))

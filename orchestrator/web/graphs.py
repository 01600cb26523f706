"""The graphs of the server: a list, and one with its drawing and the form of its input."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import NotSerialisable
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.state import start_form
from orchestrator.graph.writing import to_yaml
from orchestrator.render import to_svg
from orchestrator.tasks import away
from orchestrator.web.compose.saved import SavedFile
from orchestrator.web.documents import GraphDocument, GraphList, GraphRow, SavedText, blank
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import NoQuery


async def listing(call: Call[NoQuery]) -> GraphList:
    """The graphs that runs can be started of."""
    if call.service.saved is not None:
        await call.service.saved.refresh()
    graphs = await call.graphs()
    return GraphList(graphs=[GraphRow(**_row(graphs[name])) for name in sorted(graphs)])


async def show(call: Call[NoQuery]) -> GraphDocument:
    """A graph with its drawing and the form of its input."""
    graph = await call.graph(str(call.request.path_params["name"]))
    saved = None if call.service.saved is None else call.service.saved.files.get(graph.name)
    return await away(lambda: _document(graph, saved))


def _document(graph: GraphDefinition, saved: SavedFile | None) -> GraphDocument:
    try:
        yaml: str | None = to_yaml(graph)
    except NotSerialisable:
        yaml = None
    return GraphDocument(
        **_row(graph),
        data=blank(dict(graph.data())),
        yaml=None if yaml is None else str(blank(yaml)),
        form=dict(start_form(graph.schema, graph.input_fields if graph.input else None)),
        drawing=to_svg(graph),
        saved=None if saved is None else SavedText(text=saved.text, digest=saved.digest),
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

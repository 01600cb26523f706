"""The list of the graphs that runs of this server can be started of, and one graph with the form that starts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from orchestrator.graph.checks.all import report_of
from orchestrator.graph.model import GraphDefinition
from orchestrator.render import to_svg
from orchestrator.tasks import away
from orchestrator.web import graphs as graph_lists
from orchestrator.web.runs import picture
from orchestrator.web.screens.shell import key_of, open_questions, page, root_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from orchestrator.web.documents import GraphRow
    from orchestrator.web.endpoint import Call
    from orchestrator.web.requests import NoQuery


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
    """Its name as a part of an address."""


def listed_of(row: GraphRow) -> Listed:
    """A graph as a row of the table."""
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


async def graphs(call: Call[NoQuery]) -> Response:
    """The graphs of this server."""
    found = await graph_lists.listing(call)
    waiting = await open_questions(call)
    return await page(
        call,
        "graphs",
        {"title": "Graphs", "graphs": [listed_of(one) for one in found.graphs], "open_questions": waiting},
        root=root_of(call),
        version=["graphs", [one.model_dump() for one in found.graphs], waiting],
    )


async def graph(call: Call[NoQuery]) -> Response:
    """A graph: its drawing, its text, what its checks prove, and the form that starts a run."""
    found = await graph_lists.show(call)
    tools = call.executor.tools.tools if call.executor.tools.ready else None
    shown = await call.graph(found.name)
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
            "startable": not (call.settings.read_only or call.settings.scratch),
            "open_questions": waiting,
        },
        root=root_of(call),
        version=["graph", found.content, found.structure, waiting, call.settings.scratch],
    )


async def drawing(call: Call[NoQuery]) -> Response:
    """The drawing of a graph."""
    drawn: GraphDefinition = await call.graph(str(call.request.path_params["name"]))
    return await picture(lambda: to_svg(drawn))

"""The list of the graphs that runs of this server can be started of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.web import graphs as graph_lists
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


def listed_of(row: GraphRow) -> Listed:
    """A graph as a row of the table."""
    return Listed(
        key=key_of(row.name), name=row.name, description=row.description, nodes=f"{row.nodes:,}",
        takes=", ".join(row.input), gives=", ".join(row.output), query=urlencode({"graph": row.name}, errors="replace"),
    )  # fmt: skip


async def graphs(call: Call[NoQuery]) -> Response:
    """The graphs of this server."""
    found = await graph_lists.listing(call)
    waiting = await open_questions(call)
    return page(
        call, "graphs",
        {"title": "Graphs", "graphs": [listed_of(one) for one in found.graphs], "open_questions": waiting},
        root=root_of(call), version=["graphs", [one.model_dump() for one in found.graphs], waiting],
    )  # fmt: skip

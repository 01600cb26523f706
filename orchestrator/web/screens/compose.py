"""The editor of graphs: its first content, as given by the URL."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.responses import Response

from orchestrator.errors import NotSerialisable
from orchestrator.graph.writing import to_plain_yaml, to_yaml
from orchestrator.render.svg import stylesheet
from orchestrator.tasks import away
from orchestrator.web.compose.handlers import listing
from orchestrator.web.documents import blank
from orchestrator.web.endpoint import Endpoint
from orchestrator.web.questions import open_questions
from orchestrator.web.requests import Name, Query
from orchestrator.web.routes import routes
from orchestrator.web.screens.shell import page, root_of

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.web.endpoint import Call
    from orchestrator.web.requests import NoQuery

EMPTY = """\
name: my_graph
state:
  fields:
    question: str
    answer: {type: str, default: ""}
input: question
output: answer
nodes:
  write: {kind: complete, prompt: "{question}", result: answer}
edges: |
  START -> write
  write -> END
"""
"""Text of an editor without a graph: the smallest graph that answers something."""


_OF_LIBRARY = "This is the graph of the library. That of this server cannot be a file:"


class ComposeQuery(Query):
    """The graph to edit. Without either, a small graph to start with."""

    graph: Name | None = Field(None, description="A graph of this server, to change it.")
    start: Name | None = Field(
        None, alias="from", description="A graph of this server or of the library, to make another one from it."
    )


async def compose(call: Call[ComposeQuery]) -> Response:
    """Show the editor of graphs."""
    found = await _begin(call)
    waiting = await open_questions(call)
    edited = found["graph"] or found["from"]
    return await page(
        call,
        "compose",
        {"title": f"Compose: {edited}" if edited else "Compose", "begin": found, "open_questions": waiting},
        root=root_of(call),
        version=["compose", found, waiting],
    )


async def drawing_css(call: Call[NoQuery]) -> Response:
    """Return the style of drawings that are part of a page."""
    return Response(stylesheet(), media_type="text/css", headers={"Cache-Control": "no-cache"})


async def _begin(call: Call[Any]) -> dict[str, Any]:
    """Return the first content of the editor, for its template and its script.

    Raises:
        GraphUnknown: there is no graph of the name in the URL.
    """
    query, text, fault = call.query, EMPTY, ""
    digest: str | None = None
    strategies = {one.name: one.yaml for one in (await listing(call)).strategies}
    actions = {one.action for one in routes(read_only=call.settings.read_only)}
    graphs = await call.graphs()
    name = query.start if query.graph is None else query.graph
    if name and query.graph is None and name not in graphs and name in strategies:
        text = strategies[name]
    elif name:
        graph = await call.graph(name)
        file = None if call.service.saved is None else call.service.saved.files.get(graph.name)
        try:
            text = await away(lambda: str(blank(_text(graph) if file is None else file.text)))
            digest = None if file is None or query.graph is None else file.digest
        except NotSerialisable as error:
            fault = str(error)
            if query.graph is None and name in strategies:
                text, fault = strategies[name], f"{_OF_LIBRARY} {error}"
    if query.graph is None:
        text = _renamed(text, graphs)
    return {
        "text": text,
        "fault": fault,
        "graph": query.graph or "",
        "from": query.start or "",
        "digest": digest,
        "served": sorted(graphs),
        "shipped": [one for one in strategies if one not in graphs],
        "tries": "try_graph" in actions,
        "saves": call.service.saved is not None and "save_graph" in actions,
    }


def _text(graph: GraphDefinition) -> str:
    """Return a graph as a text to edit, with its state written out if possible.

    Raises:
        NotSerialisable: it has code that a file cannot name.
    """
    try:
        return to_plain_yaml(graph)
    except NotSerialisable:
        return to_yaml(graph)


def _renamed(text: str, taken: Collection[str]) -> str:
    """Return the text of a graph with a new name in its line `name: `."""
    found = re.match(r"name: ([^\W\d](?:[\w-]|[^\x00-\x7f])*)\n", text)
    if found is None:
        return text
    base = found[1] if text == EMPTY else f"{found[1]}_variant"
    name = next(one for number in count(1) if (one := base if number == 1 else f"{base}_{number}") not in taken)
    return f"name: {name}\n{text[found.end() :]}"


SCREENS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/compose", "view_editor", compose, "The editor of graphs.", None, query=ComposeQuery, media="text/html"
    ),
    Endpoint(
        "GET",
        "/static/drawing.css",
        "view_drawing_style",
        drawing_css,
        "The style of drawings.",
        None,
        media="text/css",
    ),
)
"""The editor, and the style of its picture."""

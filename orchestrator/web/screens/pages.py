"""The screens as rows of a table of routes: `authorize` is called for their actions, as for those of the API."""

from __future__ import annotations

from markupsafe import Markup
from pydantic import Field
from starlette.responses import Response

from orchestrator.json import encoded
from orchestrator.render.html.page import page_style
from orchestrator.tasks import away
from orchestrator.web import costs, evaluations, graphs, questions, replays, runs, workers
from orchestrator.web.cost_groups import CostsQuery
from orchestrator.web.documents import response_of
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.requests import NoQuery, Query, QuestionsQuery, WorkersQuery
from orchestrator.web.screens import compare, compose, shell


async def run(call: Call[NoQuery]) -> Response:
    """Show a run on a page that follows it."""
    pane = await call.service.feeds.of(call.run_id).page()
    return await shell.page(
        call,
        "run",
        {
            "title": f"{pane.graph} {call.run_id}",
            "run_id": call.run_id,
            "pane": Markup(pane.html),
            "data": Markup(pane.data),
            "open_questions": await questions.open_questions(call),
        },
        root=shell.root_of(call),
        version=["run", call.run_id, pane.version],
    )


class DataQuery(Query):
    """What a page has of a run."""

    after: str = Field("", max_length=40, description="The version that the page has; empty: none.")
    talk: int | None = Field(
        None,
        ge=0,
        le=2**53,
        description="Not changes, but the entries of the transcript before this number; 0: the last.",
    )


async def run_data(call: Call[DataQuery]) -> Response:
    """Return the changes of a run since the version that its page has, or a part of its transcript."""
    feed, query = call.service.feeds.of(call.run_id), call.query
    found = await (feed.since(query.after) if query.talk is None else feed.transcript(query.talk))
    parts = await away(lambda: encoded([found]), found)
    return response_of(parts, "application/json", headers={"Cache-Control": "no-store"})


async def page_css(call: Call[NoQuery]) -> Response:
    """Return the style of the page of a run."""
    return Response(page_style(), media_type="text/css", headers={"Cache-Control": "no-cache"})


SCREENS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/runs", "view_runs", runs.screen, "The list of runs.", None, query=runs.ScreenQuery, media="text/html"
    ),
    Endpoint("GET", "/runs/{run_id}", "view_run", run, "A run.", None, media="text/html"),
    Endpoint(
        "GET",
        "/runs/{run_id}/questions",
        "view_run_questions",
        questions.run_questions,
        "Its open questions as cards.",
        None,
        media="text/html",
    ),
    Endpoint("GET", "/runs/{run_id}/data", "view_run_data", run_data, "The data of its page.", None, query=DataQuery),
    Endpoint(
        "GET", "/static/page.css", "view_style", page_css, "The style of the page of a run.", None, media="text/css"
    ),
    Endpoint(
        "GET", "/inbox", "view_inbox", questions.screen, "The inbox.", None, query=QuestionsQuery, media="text/html"
    ),
    Endpoint(
        "GET", "/workers", "view_workers", workers.screen, "The workers.", None, query=WorkersQuery, media="text/html"
    ),
    Endpoint("GET", "/graphs", "view_graphs", graphs.graphs, "The graphs of the server.", None, media="text/html"),
    Endpoint("GET", "/graphs/{name}", "view_graph", graphs.graph, "A graph.", None, media="text/html"),
    Endpoint(
        "GET",
        "/graphs/{name}/drawing.svg",
        "view_graph_drawing",
        graphs.drawing,
        "Its drawing.",
        None,
        media="image/svg+xml",
    ),
    Endpoint("GET", "/costs", "view_costs", costs.costs, "What runs cost.", None, query=CostsQuery, media="text/html"),
    *compare.SCREENS,
    *compose.SCREENS,
    *evaluations.SCREENS,
    *replays.SCREENS,
)
"""The pages for people."""

FOLDERS = (("/modules", "orchestrator.render.html", "modules"), ("", "orchestrator.web.screens", "static"))
"""URL paths and directories of files: the modules of the page of a run, and those of the screens."""

"""The screens as rows of a table of routes: their actions are asked of `authorize`, as those of the API are."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from pydantic import Field
from starlette.responses import Response

from orchestrator.errors import RunUnknown, StoreCorrupt
from orchestrator.json import encoded
from orchestrator.kernel.question import parts_of
from orchestrator.render.html.page import page_style
from orchestrator.tasks import away
from orchestrator.values import shown_labels
from orchestrator.views.call_questions import ApprovalContext, context_of
from orchestrator.web import questions
from orchestrator.web import runs as run_lists
from orchestrator.web import workers as worker_lists
from orchestrator.web.documents import AskedDocument, RunPage, blank, first_line, question_of, response_of
from orchestrator.web.endpoint import Call, Endpoint, Surroundings
from orchestrator.web.requests import NoQuery, Query, QuestionsQuery, RunsQuery, WorkersQuery
from orchestrator.web.screens import compare as comparison
from orchestrator.web.screens import compose as composition
from orchestrator.web.screens import graphs as graph_screens
from orchestrator.web.screens import replay
from orchestrator.web.screens.costs import CostsQuery, costs
from orchestrator.web.screens.graphs import graphs
from orchestrator.web.screens.inbox import Card, InboxAddress, card_of, summary_of
from orchestrator.web.screens.runs import STATUSES, Address, span_of, view_of
from orchestrator.web.screens.shell import open_questions, page, root_of
from orchestrator.web.screens.workers import parked_of, working_of
from orchestrator.web.screens.workers import summary_of as workers_summary

_KEPT = 2000
"""Surroundings of questions that are kept: a journal is long, and a question never changes."""


async def runs(call: Call[RunsQuery]) -> Response:
    """The list of runs."""
    found = await run_lists.page_of(call)
    now = time.time()
    longest = max((span_of(row, now) for row in found.runs), default=0.0)
    rows = [view_of(row, longest, now) for row in found.runs]
    given = call.request.query_params
    address = Address(root_of(call), [(name, value) for name, value in given.multi_items() if value])
    waiting = await open_questions(call)
    return await page(
        call,
        "runs",
        {
            "title": "Runs",
            "rows": rows,
            "all_statuses": STATUSES,
            "statuses": call.query.status,
            "filters": address.filters(),
            "filtered": bool(address.query),
            "address": address,
            "q": call.query.q or "",
            "kept": [one for one in address.query if one[0] not in ("q", "after")],
            "older": address.page(found.cursor),
            "newest": address({}) if call.query.after else "",
            "open_questions": waiting,
            "waiting": call.query.waiting is True,
            "failed_tool": call.query.failed_tool or "",
            "scanned": _scanned(found),
            "changes": f"/runs?{urlencode(address.query)}",
        },
        root=address.root,
        version=["runs", address.query, [[row.id, row.version] for row in rows], waiting, found.cursor],
    )


def _scanned(found: RunPage) -> str:
    """Describe the progress of a search through journals; empty: there was none."""
    scan = found.scanned
    if scan is None:
        return ""
    goes_on = "; Older goes on" if found.cursor is not None else ""
    return f"Searched {scan.records:,} records of {scan.runs:,} runs for words beside inputs and outputs{goes_on}."


async def inbox(call: Call[QuestionsQuery]) -> Response:
    """The open questions that people answer, the oldest first."""
    query = call.query.model_copy(update={"kind": list(call.query.kind) or list(questions.FOR_PEOPLE)})
    found = await questions.page_of(replace(call, query=query))
    cards = [await _card(call, one) for one in found.questions]
    whole = call.query.after is None and found.cursor is None
    waiting = str(len(cards) or "") if whole else await open_questions(call)
    address = InboxAddress(root_of(call), call.request.query_params.multi_items())
    return await page(
        call,
        "inbox",
        {
            "title": f"Inbox ({waiting})" if waiting else "Inbox",
            "cards": cards,
            "open_questions": waiting,
            "summary": summary_of(len(cards), waiting, call.query.after),
            "moment": time.time(),
            "later": address.page(found.cursor),
            "oldest": address.oldest if call.query.after else "",
            "changes": address.changes(query),
        },
        root=address.root,
        version=["inbox", waiting, found.cursor, [[card.run_id, card.question, card.digest] for card in cards]],
    )


async def workers(call: Call[WorkersQuery]) -> Response:
    """Show the workers of the store, and the parked runs."""
    found = await worker_lists.list_of(call)
    waiting = await open_questions(call)
    return await page(
        call,
        "workers",
        {
            "title": "Workers",
            "working": [working_of(one) for one in found.workers],
            "parked": [parked_of(one) for one in found.parked],
            "more_parked": found.more_parked,
            "summary": workers_summary(found),
            "open_questions": waiting,
            "changes": f"/workers?{urlencode({'limit': call.query.limit})}",
        },
        root=root_of(call),
        version=["workers", time.time()],  # ages change with each answer
    )


async def run(call: Call[NoQuery]) -> Response:
    """Show a run, which the page follows."""
    pane = await call.service.feeds.of(call.run_id).page()
    return await page(
        call,
        "run",
        {
            "title": f"{pane.graph} {call.run_id}",
            "run_id": call.run_id,
            "pane": Markup(pane.html),
            "data": Markup(pane.data),
            "open_questions": await open_questions(call),
        },
        root=root_of(call),
        version=["run", call.run_id, pane.version],
    )


async def run_questions(call: Call[NoQuery]) -> Response:
    """The open questions of one run that people answer, as cards, which the page of the run puts into itself."""
    found = await call.executor.load(call.run_id)
    cards = []
    for question in await away(lambda: found.waiting, [*found.machine.questions.values()]):
        if question.kind in questions.FOR_PEOPLE:
            shown = await away(partial(question_of, question, answerable=not call.settings.read_only), question)
            labels = blank(shown_labels(found.labels))
            one = AskedDocument(run_id=call.run_id, graph=found.graph, labels=labels, asked=0, question=shown)
            said, context = await _surroundings(call, one)
            records = await call.executor.store.read(call.run_id, after=context.seq - 1, upto=context.seq)
            asked = one.model_copy(update={"asked": records[0].ts if records else time.time()})
            cards.append(await away(partial(card_of, asked, said, context), asked, context))
    waiting = await open_questions(call)
    return await page(
        call,
        "run_questions",
        {"cards": cards, "open_questions": waiting, "moment": time.time()},
        root=root_of(call),
        version=["questions", waiting, [[card.question, card.digest] for card in cards]],
    )


class DataQuery(Query):
    """Version of a run that a page has."""

    after: str = Field("", max_length=40, description="The version that the page has; empty: none.")


async def run_data(call: Call[DataQuery]) -> Response:
    """Return the changes of a run since the version that its page has."""
    found = await call.service.feeds.of(call.run_id).since(call.query.after)
    parts = await away(lambda: encoded([found]), found)
    return response_of(parts, "application/json", headers={"Cache-Control": "no-store"})


async def page_css(call: Call[NoQuery]) -> Response:
    """The style of the page of a run."""
    return Response(page_style(), media_type="text/css", headers={"Cache-Control": "no-cache"})


async def _card(call: Call[Any, Any], one: AskedDocument) -> Card:
    said, context = await _surroundings(call, one)
    return await away(lambda: card_of(one, said, context), one, context)


async def _surroundings(call: Call[Any, Any], one: AskedDocument) -> tuple[str, ApprovalContext]:
    """The first line of the run's input, and what surrounds the question in its journal."""
    kept, key = call.service.surroundings, (one.run_id, one.question.id)
    try:
        info = await call.executor.store.info(one.run_id)
        version = info.created, one.question.digest
        found = kept.get(key)
        if found is None or found.version != version:
            records = await call.executor.store.read(one.run_id, upto=info.head)
            about = parts_of(one.question.kind, one.question.payload).call
            context = await away(lambda: context_of(records, one.question.id, about))
            found = kept[key] = Surroundings(version, first_line(info.input), context)
    except RunUnknown:
        call.service.forget(one.run_id)
        return "", ApprovalContext(0)
    except StoreCorrupt:
        return "", ApprovalContext(0)
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept)))
    return found.input, found.context


SCREENS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/runs", "view_runs", runs, "The list of runs.", None, query=RunsQuery, media="text/html"),
    Endpoint("GET", "/runs/{run_id}", "view_run", run, "A run.", None, media="text/html"),
    Endpoint(
        "GET",
        "/runs/{run_id}/questions",
        "view_run_questions",
        run_questions,
        "Its open questions as cards.",
        None,
        media="text/html",
    ),
    Endpoint("GET", "/runs/{run_id}/data", "view_run_data", run_data, "The data of its page.", None, query=DataQuery),
    Endpoint(
        "GET", "/static/page.css", "view_style", page_css, "The style of the page of a run.", None, media="text/css"
    ),
    Endpoint("GET", "/inbox", "view_inbox", inbox, "The inbox.", None, query=QuestionsQuery, media="text/html"),
    Endpoint("GET", "/workers", "view_workers", workers, "The workers.", None, query=WorkersQuery, media="text/html"),
    Endpoint("GET", "/graphs", "view_graphs", graphs, "The graphs of the server.", None, media="text/html"),
    Endpoint("GET", "/graphs/{name}", "view_graph", graph_screens.graph, "A graph.", None, media="text/html"),
    Endpoint(
        "GET",
        "/graphs/{name}/drawing.svg",
        "view_graph_drawing",
        graph_screens.drawing,
        "Its drawing.",
        None,
        media="image/svg+xml",
    ),
    Endpoint("GET", "/costs", "view_costs", costs, "What runs cost.", None, query=CostsQuery, media="text/html"),
    *comparison.SCREENS,
    *composition.SCREENS,
    *replay.SCREENS,
)
"""The pages that people see."""

FOLDERS = (("/modules", "orchestrator.render.html", "modules"), ("", "orchestrator.web.screens", "static"))
"""Paths of files, and where they are: the modules of the page of a run, and those of the screens."""

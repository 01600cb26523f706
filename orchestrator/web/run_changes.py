"""The list of runs as a stream: it says that a page is another one, and what is new on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from orchestrator.web import questions, runs
from orchestrator.web.documents import RunPage, RunsEvent
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import RunsQuery
from orchestrator.web.store_watch import StoreWatch
from orchestrator.web.streams import MEDIA

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SEARCHED = 10.0
"""Seconds between two looks of a stream with `q`: each may read journals."""


async def listing(call: Call[RunsQuery]) -> RunPage | ASGIApp:
    """A page of runs; or, if the client wants a stream, each change of it and of how many questions wait for people."""
    if MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await runs.listing(call)


async def _changes(call: Call[RunsQuery]) -> AsyncIterator[str]:
    watch = StoreWatch(call.executor.store, call.settings, rest=SEARCHED if call.query.q else 0.0)
    known: dict[str, object] | None = None
    asked = 0
    while True:
        await watch.turn()
        rows, waiting = _rows(await runs.listing(call)), await questions.waiting_for_people(call)
        if known is None:
            yield _text(RunsEvent(type="ready", questions=waiting))
        else:
            changed = [run_id for run_id in {**known, **rows} if known.get(run_id) != rows.get(run_id)]
            if changed or waiting != asked:
                yield _text(RunsEvent(type="changed", run_ids=changed, questions=waiting))
        known, asked = rows, waiting
        await anyio.sleep(call.settings.poll)


def _rows(page: RunPage) -> dict[str, object]:
    return {row.run_id: row for row in page.runs}


def _text(event: RunsEvent) -> str:
    return f"data: {json.dumps(event.model_dump(mode='json'))}\n\n"

"""The open questions of all runs, as a list and as a stream of changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from orchestrator.web.documents import AskedDocument, QuestionEvent, QuestionList, labels_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import QuestionsQuery
from orchestrator.web.streams import MEDIA, EventStream

if TYPE_CHECKING:
    from starlette.types import ASGIApp


async def listing(call: Call[QuestionsQuery]) -> QuestionList | ASGIApp:
    """Open questions, the oldest first; or, if the client wants a stream, first these and then every change."""
    if MEDIA in call.request.headers.get("accept", ""):
        return EventStream(_changes(call), call.service.streams, call.settings)
    found, more = await _open(call)
    return QuestionList(questions=found, more=more)


async def _open(call: Call[QuestionsQuery]) -> tuple[list[AskedDocument], bool]:
    query, questions = call.query, call.service.questions
    found: list[AskedDocument] = []
    runs, more = 0, False
    async for info in questions.rows(graph=query.graph, labels=dict(labels_of(query.label))):
        if not await call.may_see(info):
            continue
        if runs == query.limit:
            more = True
            break
        asking = await questions.of(info)
        if asking is not None:
            runs += 1
            found += asking.questions
    found.sort(key=lambda one: (one.asked, one.run_id, one.seq))
    return found, more


async def _changes(call: Call[QuestionsQuery]) -> AsyncIterator[str]:
    known: dict[tuple[str, str, str], AskedDocument] = {}
    ready = False
    while True:
        found, _ = await _open(call)
        now = {(one.run_id, one.question.id, one.question.digest): one for one in found}
        for key in known.keys() - now.keys():
            yield _text(QuestionEvent(type="closed", run_id=key[0], question=key[1]))
        for key, one in now.items():
            if key not in known:
                yield _text(QuestionEvent(type="opened", run_id=key[0], question=key[1], opened=one))
        if not ready:
            yield _text(QuestionEvent(type="ready"))
            ready = True
        known = now
        await anyio.sleep(call.settings.poll)


def _text(event: QuestionEvent) -> str:
    return f"data: {json.dumps(event.model_dump(mode='json', by_alias=True))}\n\n"

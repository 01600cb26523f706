"""The open questions of all runs, as a list and as a stream of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator.errors import RunUnknown, StoreError
from orchestrator.executor import RunQuestion
from orchestrator.executor.run_status import with_status
from orchestrator.kernel.question import QuestionKind
from orchestrator.tasks import away
from orchestrator.values import shown_labels
from orchestrator.web.documents import (
    AskedDocument,
    QuestionEvent,
    QuestionPage,
    blank,
    json_of,
    labels_of,
    question_of,
)
from orchestrator.web.endpoint import Call
from orchestrator.web.problems import fields_problem
from orchestrator.web.requests import QuestionsQuery
from orchestrator.web.streams import MEDIA, StoreWatch

if TYPE_CHECKING:
    from starlette.types import ASGIApp

FOR_PEOPLE: tuple[QuestionKind, ...] = ("approval", "input", "unknown_outcome", "pause", "limit")
"""Kinds of questions that people answer."""
COUNTED = 99
"""The most open questions that are counted where they are not shown."""
_STREAMED = 1000
"""Questions, the oldest, whose changes a stream has if it names no `limit`."""


async def listing(call: Call[QuestionsQuery]) -> QuestionPage | ASGIApp:
    """A page of open questions, the oldest first; or, if the client accepts a stream, these and then every change."""
    if MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await page_of(call)


async def page_of(call: Call[QuestionsQuery]) -> QuestionPage:
    """A page of open questions, the oldest first, whatever media type the client accepts."""
    found, cursor = await _page(call, call.query.after, call.query.limit)
    return QuestionPage(questions=await _documents(call, found), cursor=cursor)


async def _page(call: Call[QuestionsQuery], after: str | None, limit: int) -> tuple[list[RunQuestion], str | None]:
    query = call.query
    try:
        page = await call.executor.questions(
            graph=query.graph, labels=labels_of(query.label), kinds=query.kind or None, after=after, limit=limit
        )
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise fields_problem([{"field": "after", "message": str(error)}], "query") from None
    return [one for one in page.questions if await _shown(call, one)], page.cursor


async def _shown(call: Call[QuestionsQuery], one: RunQuestion) -> bool:
    """True if the principal may see a question."""
    if call.settings.authorize is None:
        return True
    try:
        return await call.may_see(with_status(await call.executor.store.info(one.run_id)))
    except RunUnknown:  # it was deleted meanwhile
        return False


async def _documents(call: Call[QuestionsQuery], found: Sequence[RunQuestion]) -> list[AskedDocument]:
    answerable = not call.settings.read_only
    return await away(
        lambda: [
            AskedDocument(
                run_id=one.run_id,
                graph=one.graph,
                labels=blank(shown_labels(one.labels)),
                asked=one.asked,
                question=question_of(one.question, answerable=answerable),
            )
            for one in found
        ],
        found,
    )


async def _changes(call: Call[QuestionsQuery]) -> AsyncIterator[str]:
    known: dict[tuple[str, str, str], RunQuestion] = {}
    ready = False
    watch = StoreWatch(call.executor.store, call.settings)
    while True:
        await watch.wait()
        now = {(one.run_id, one.question.id, one.question.digest): one for one in await _all(call)}
        for key in known.keys() - now.keys():
            yield _text(QuestionEvent(type="closed", run_id=key[0], question=key[1]))
        for key, one in now.items():
            if key not in known:
                (opened,) = await _documents(call, [one])
                event = QuestionEvent(type="opened", run_id=key[0], question=key[1], opened=opened)
                yield await away(partial(_text, event), event)
        if not ready:
            yield _text(QuestionEvent(type="ready"))
            ready = True
        known = now
        await anyio.sleep(call.settings.poll)


async def _all(call: Call[QuestionsQuery]) -> list[RunQuestion]:
    query = call.query
    most = query.limit if "limit" in query.model_fields_set else _STREAMED
    found, cursor = await _page(call, query.after, min(most, 200))
    while cursor is not None and len(found) < most:
        more, cursor = await _page(call, cursor, min(most - len(found), 200))
        found += more
    return found


async def waiting_for_people(call: Call[Any, Any]) -> int:
    """Count the questions that wait for people, also for a request about something else; at most `COUNTED` + 1."""
    query = QuestionsQuery.model_validate({"kind": FOR_PEOPLE, "limit": COUNTED})
    found, cursor = await _page(replace(call, query=query), None, COUNTED)
    return len(found) + (cursor is not None)


def _text(event: QuestionEvent) -> str:
    return f"data: {''.join(json_of(event))}\n\n"

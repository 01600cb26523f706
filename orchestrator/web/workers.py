"""The workers of the store and its parked runs, as a list and as a stream of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import RunUnknown
from orchestrator.stores.base import Changing
from orchestrator.tasks import away
from orchestrator.web import questions
from orchestrator.web.documents import WorkerList, WorkersEvent, rows_of, worker_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import WorkersQuery
from orchestrator.web.streams import MEDIA, event_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_RUNS = 5
"""Runs that are named for each worker at most: `authorize` is asked about each."""


async def listing(call: Call[WorkersQuery]) -> WorkerList | ASGIApp:
    """The workers and the parked runs; or, if the client accepts a stream, an event for each change of them."""
    if MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await list_of(call)


async def list_of(call: Call[WorkersQuery]) -> WorkerList:
    """The workers and the parked runs, whatever media type the client accepts."""
    limit = call.query.limit
    found = await call.executor.workers.list()
    parked = await call.executor.workers.parked(limit=limit + 1)
    named = [(one, await _named(call, one.runs)) for one in found[:limit]]
    return WorkerList(
        workers=await away(lambda: [worker_of(*one) for one in named], named),
        more_workers=max(0, len(found) - limit),
        parked=await rows_of([info for info in parked[:limit] if await call.may_see(info)]),
        more_parked=len(parked) > limit,
    )


async def _named(call: Call[WorkersQuery], run_ids: Sequence[str]) -> list[str]:
    """The first of some runs, without those that the principal may not see."""
    if call.settings.authorize is None:
        return [*run_ids[:_RUNS]]
    named = []
    for run_id in run_ids[:_RUNS]:
        try:
            info = await call.executor.store.info(run_id)
        except RunUnknown:  # it was deleted meanwhile
            continue
        if await call.may_see(info):
            named.append(run_id)
    return named


async def _changes(call: Call[WorkersQuery]) -> AsyncIterator[str]:
    store = call.executor.store
    known: WorkerList | None = None
    asked, counted, written = 0, 0, None
    while True:  # a worker that lapses or dies writes nothing, so each turn looks
        now = await list_of(call)
        changes = store.changes() if isinstance(store, Changing) else None
        if changes is None or changes != written:
            written, counted = changes, await questions.waiting_for_people(call)
        if known is None:
            yield event_text(WorkersEvent(type="ready"))
        elif _differs(known, now) or counted != asked:
            yield event_text(WorkersEvent(type="changed"))
        known, asked = now, counted
        await anyio.sleep(call.settings.poll)


def _differs(before: WorkerList, now: WorkerList) -> bool:
    """True if something changed. Heartbeats that only grow older are no change."""
    beats = [(then.heartbeat, one.heartbeat) for then, one in zip(before.workers, now.workers, strict=False)]
    return any(one < then for then, one in beats) or _without_ages(before) != _without_ages(now)


def _without_ages(found: WorkerList) -> WorkerList:
    return found.model_copy(update={"workers": [one.model_copy(update={"heartbeat": 0.0}) for one in found.workers]})

"""Spending of runs in groups, as an answer and as a stream of changes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import anyio

from orchestrator.stores import StatsRow
from orchestrator.tasks import away
from orchestrator.web import questions
from orchestrator.web.documents import Document, StatsDocument, StatsGroup, blank, labels_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import StatsQuery, unix
from orchestrator.web.streams import MEDIA, StoreWatch, event_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp


SHARE = 0.1
"""The largest part of the time in which a stream reads the store: sums over many runs take long."""
_REST = 2.0
"""Least seconds between two readings of a stream."""


class StatsEvent(Document):
    """The data of an event about what runs spent: `ready` when the stream begins, then each `changed`."""

    type: Literal["ready", "changed"]


async def stats(call: Call[StatsQuery]) -> StatsDocument | ASGIApp:
    """Return the spending of runs in groups; or, if the client accepts a stream, an event for each change of it."""
    if MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return StatsDocument(groups=await _asked(call))


async def _asked(call: Call[StatsQuery]) -> list[StatsGroup]:
    query = call.query
    names = [name.strip() for name in query.by.split(",") if name.strip()]
    return await groups_of(
        call, names, since=unix(query.since), until=unix(query.until), graph=query.graph, label=query.label
    )


async def _changes(call: Call[StatsQuery]) -> AsyncIterator[str]:
    watch = StoreWatch(call.executor.store, call.settings, rest=_REST)
    known: tuple[list[StatsGroup], int] | None = None
    while True:
        await watch.wait()
        begun = time.monotonic()
        now = await _asked(call), await questions.waiting_for_people(call)
        lasted = time.monotonic() - begun
        if now != known:
            yield event_text(StatsEvent(type="ready" if known is None else "changed"))
        known = now
        await anyio.sleep(max(call.settings.poll, lasted / SHARE - lasted))


async def groups_of(
    call: Call[Any, Any],
    by: Sequence[str],
    *,
    since: float | None,
    until: float | None,
    graph: str | None,
    label: Iterable[str],
) -> list[StatsGroup]:
    """Return the spending of runs in groups; see `Executor.stats`.

    Args:
        call: the request.
        by: what makes a group.
        since: Unix seconds: only runs that were created at this time or later.
        until: only runs that were created before this time.
        graph: the name of a graph.
        label: labels, `name:value`, that a run must have.

    Raises:
        InvalidValue: something in `by` cannot make a group.
    """
    labels = {**labels_of(label), **call.own}
    rows = await call.executor.stats(by, since=since, until=until, graph=graph, labels=labels)
    return await away(lambda: [_group(row) for row in rows], [row.group for row in rows])


def _group(row: StatsRow) -> StatsGroup:
    figures = asdict(row) | {"group": blank(dict(row.group)), "statuses": dict(row.statuses)}
    return StatsGroup(**figures, tokens=row.tokens, failed_rate=row.failed_rate, failed_tool_rate=row.failed_tool_rate)

"""What runs spent, in groups: an answer, and a stream that says when it is another one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import anyio

from orchestrator.stores import StatsRow
from orchestrator.tasks import away
from orchestrator.web import documents, questions, requests, streams
from orchestrator.web.endpoint import Call

if TYPE_CHECKING:
    from starlette.types import ASGIApp


SHARE = 0.1
"""The largest part of the time in which a stream reads the store: sums over many runs take long."""
_REST = 2.0
"""Minimum of seconds between two readings of a stream."""


class StatsEvent(documents.Document):
    """The data of an event about what runs spent: `ready` at the start of the stream, then `changed` at each change."""

    type: Literal["ready", "changed"]


async def stats(call: Call[requests.StatsQuery]) -> documents.StatsDocument | ASGIApp:
    """Return the spending of runs in groups.

    If the client accepts a stream: an event whenever it, or the number of open questions, changes.
    """
    if streams.MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return documents.StatsDocument(currency=call.settings.currency, groups=await _asked(call))


async def _asked(call: Call[requests.StatsQuery]) -> list[documents.StatsGroup]:
    query = call.query
    names = [name.strip() for name in query.by.split(",") if name.strip()]
    return await groups_of(
        call,
        names,
        since=requests.unix(query.since),
        until=requests.unix(query.until),
        graph=query.graph,
        label=query.label,
    )


async def _changes(call: Call[requests.StatsQuery]) -> AsyncIterator[str]:
    watch = streams.StoreWatch(call.executor.store, call.settings, rest=_REST)
    known: tuple[list[documents.StatsGroup], int] | None = None
    while True:
        await watch.wait()
        begun = time.monotonic()
        now = await _asked(call), await questions.waiting_for_people(call)
        lasted = time.monotonic() - begun
        if now != known:
            yield streams.event_text(StatsEvent(type="ready" if known is None else "changed"))
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
) -> list[documents.StatsGroup]:
    """Return the spending of runs in groups; see `Executor.stats`.

    Args:
        call: the request.
        by: the grouping.
        since: Unix seconds: only runs that were created at this time or later.
        until: only runs that were created before this time.
        graph: the name of a graph.
        label: labels, `name:value`, that a run must have.

    Raises:
        InvalidValue: an entry of `by` is not a grouping.
    """
    labels = {**documents.labels_of(label), **call.own}
    rows = await call.executor.stats(by, since=since, until=until, graph=graph, labels=labels)
    return await away(lambda: [_group(row) for row in rows], [row.group for row in rows])


def _group(row: StatsRow) -> documents.StatsGroup:
    figures = asdict(row) | {"group": documents.blank(dict(row.group)), "statuses": dict(row.statuses)}
    return documents.StatsGroup(
        **figures, tokens=row.tokens, failed_rate=row.failed_rate, failed_tool_rate=row.failed_tool_rate
    )

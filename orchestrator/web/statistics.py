"""What runs spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.stores import StatsRow
from orchestrator.web.documents import StatsDocument, StatsGroup, blank, labels_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import StatsQuery, unix


async def stats(call: Call[StatsQuery]) -> StatsDocument:
    """What runs spent, in groups."""
    query = call.query
    names = [name.strip() for name in query.by.split(",") if name.strip()]
    found = await groups_of(
        call, names, since=unix(query.since), until=unix(query.until), graph=query.graph, label=query.label
    )
    return StatsDocument(groups=found)


async def groups_of(
    call: Call[Any, Any],
    by: Sequence[str],
    *,
    since: float | None,
    until: float | None,
    graph: str | None,
    label: Iterable[str],
) -> list[StatsGroup]:
    """What runs spent, in groups; see `Executor.stats`.

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
    rows = await call.executor.stats(by, since=since, until=until, graph=graph, labels=labels_of(label))
    return [_group(row) for row in rows]


def _group(row: StatsRow) -> StatsGroup:
    figures = asdict(row) | {"group": blank(dict(row.group)), "statuses": dict(row.statuses)}
    return StatsGroup(**figures, tokens=row.tokens, failed_rate=row.failed_rate, failed_tool_rate=row.failed_tool_rate)

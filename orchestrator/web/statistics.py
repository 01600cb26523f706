"""What runs spent."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.stores import StatsRow
from orchestrator.web.documents import StatsDocument, StatsGroup, blank, labels_of
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import StatsQuery, unix


async def stats(call: Call[StatsQuery]) -> StatsDocument:
    """What runs spent, in groups."""
    query = call.query
    rows = await call.executor.stats(
        [name.strip() for name in query.by.split(",") if name.strip()], since=unix(query.since),
        until=unix(query.until), graph=query.graph, labels=labels_of(query.label),
    )  # fmt: skip
    return StatsDocument(groups=[_group(row) for row in rows])


def _group(row: StatsRow) -> StatsGroup:
    figures = asdict(row) | {"group": blank(dict(row.group)), "statuses": dict(row.statuses)}
    return StatsGroup(**figures, tokens=row.tokens, failed_rate=row.failed_rate, failed_tool_rate=row.failed_tool_rate)

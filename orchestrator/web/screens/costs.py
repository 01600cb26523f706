"""What runs cost, in groups: a row with a bar for each, which leads to the group's runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.kernel.status import FINAL
from orchestrator.web import runs as run_lists
from orchestrator.web import statistics
from orchestrator.web.endpoint import Call
from orchestrator.web.requests import RunsQuery
from orchestrator.web.screens.cost_days import MOST, Chart, chart_of
from orchestrator.web.screens.cost_groups import COLUMNS, Scope, Unpriced, column_of, money, ordered, unpriced_in
from orchestrator.web.screens.cost_query import GROUPS, RANGES, WITHIN, CostsAddress, CostsQuery, day_of
from orchestrator.web.screens.shell import open_questions, page, root_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from orchestrator.web.documents import StatsGroup

SHOWN = 200
"""The most groups that a page shows."""
_LABELS = 6
"""The most names of labels that are offered."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over all runs that count."""

    runs: int
    tokens: int
    cost: float
    failed: int
    ended: int
    uncounted: int

    @staticmethod
    def of(groups: Sequence[StatsGroup]) -> Sums:
        """The sums over groups, each run in one of them."""
        statuses = [row.statuses for row in groups]
        return Sums(
            runs=sum(row.runs for row in groups), tokens=sum(row.tokens for row in groups),
            cost=sum(row.cost for row in groups), failed=sum(one.get("failed", 0) for one in statuses),
            ended=sum(count for one in statuses for status, count in one.items() if status in FINAL),
            uncounted=sum(row.uncounted for row in groups),
        )  # fmt: skip

    def text(self, *, whole: bool) -> str:
        """The sums as a line; empty: there are no runs. `whole`: whether the cost has all calls."""
        if not self.runs:
            return ""
        parts = [f"{self.runs:,} {'run' if self.runs == 1 else 'runs'}", f"{self.tokens:,} tokens"]
        if self.cost:
            parts.append(f"cost {'' if whole else '≥ '}{money(self.cost)}")
        if self.failed:
            parts.append(f"{self.failed / self.ended:.1%} failed")
        return ", ".join(parts)


async def costs(call: Call[CostsQuery]) -> Response:
    """What runs cost, in groups."""
    query = call.query
    scope = Scope(query, *query.span(time.time()))
    found = await _groups(call, scope, query.names)
    apart = query.by in WITHIN  # then a run counts in several groups
    total = Sums.of(await _groups(call, scope, ()) if apart else found)
    models = {} if query.by == "tool" else unpriced_in(
        found if query.by == "model" else await _groups(call, scope, (*query.names, "model")), query.names
    )  # fmt: skip
    value = column_of(query).value
    most = max((value(row) or 0.0 for row in found), default=0.0)
    groups = [
        scope.group_of(row, most, models.get(tuple(row.group[name] for name in query.names), {}))
        for row in ordered(found, query)[:SHOWN]
    ]
    chart = chart_of(scope, found) if query.by == "day" else None
    address = CostsAddress(root_of(call), [pair for pair in call.request.query_params.multi_items() if pair[1]])
    waiting = await open_questions(call)
    summary = total.text(whole=not models)
    notes = [*_about_groups(query, len(found) - len(groups), chart), *_about_sums(total, models.values())]
    return await page(
        call, "costs",
        {
            "title": "Costs", "groups": groups, "chart": chart, "by": query.by, "query": query, "columns": COLUMNS,
            "column": column_of(query), "all_groups": GROUPS, "labels": await _labels(call), "ranges": RANGES,
            "address": address, "first": day_of(scope.since), "last": day_of(scope.until, last=True),
            "filtered": any(name not in ("by", "show") for name, _ in address.query), "summary": summary,
            "notes": notes, "open_questions": waiting,
            "changes": f"/stats?{urlencode([('by', ''), *scope.same_runs()], errors='replace')}",
        },
        root=address.root,
        version=[
            "costs", address.query, summary, notes, [[one.key, one.version] for one in groups], waiting,
            day_of(time.time()),
        ],
    )  # fmt: skip


async def _groups(call: Call[CostsQuery], scope: Scope, by: Sequence[str]) -> list[StatsGroup]:
    query = call.query
    return await statistics.groups_of(
        call, by, since=scope.since, until=scope.until, graph=query.graph, label=query.label
    )


async def _labels(call: Call[CostsQuery]) -> list[str]:
    """Names of labels to group by: those of the newest runs, and the one that makes groups now."""
    query = RunsQuery.model_validate({"graph": call.query.graph})
    newest = await run_lists.listing(Call(call.service, call.request, call.action, query, None))
    names = dict.fromkeys(name for row in newest.runs for name in row.labels)
    current = call.query.label_name
    return list(dict.fromkeys([*([current] if current else []), *list(names)[:_LABELS]]))


_LEADS = {
    "model": "A list of runs cannot be filtered by a model: the bars lead to all runs of the range.",
    "node": "A list of runs cannot be filtered by a node: the bars lead to the runs of its graph.",
    "tool": "A list of runs cannot be filtered by a tool: the bars lead to all runs of the range, and the part that "
    "failed leads to the runs in which a call of the tool failed.",
}


def _about_groups(query: CostsQuery, more: int, chart: Chart | None) -> list[str]:
    """What is to be known of the groups that are shown."""
    notes = []
    if more:
        which = "older days" if query.by == "day" else f"groups with less in the column {column_of(query).title}"
        notes.append(f"{more:,} {which} are not shown. A shorter range or a filter shows others.")
    if chart is not None and len(chart.bars) == MOST:
        notes.append(f"The chart has the newest {MOST} days.")
    if query.by in _LEADS:
        notes.append(_LEADS[query.by])
    if query.by in WITHIN:
        notes.append(f"Times are those within the {query.by}, and a run counts in each {query.by} that it used.")
    return notes


def _about_sums(total: Sums, unpriced: Iterable[Unpriced]) -> list[str]:
    """What the sums do not have."""
    notes = ["What a fork took over from its parent is in no sum. Days are in UTC."]
    tokens: Counter[str] = Counter()
    for models in unpriced:
        tokens.update(models)
    if tokens:
        named = ", ".join(f"{name} ({count:,} tokens)" for name, count in tokens.most_common(_LABELS))
        others = f" and {len(tokens) - _LABELS:,} more" if len(tokens) > _LABELS else ""
        notes.append(
            f"No price is known for {named}{others}: such calls are in no cost. A model that is free looks the same."
        )
    if total.uncounted:
        notes.append(
            f"{total.uncounted:,} runs of an earlier version are in no sum; `orchestrator store check --repair` counts "
            "them."
        )
    return notes

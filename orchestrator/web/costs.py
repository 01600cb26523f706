"""The screen of costs: what runs spent, in groups, with a chart of days.

Its URL contains the groups, the range, the filters, and the column that the bars show.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from orchestrator.kernel.status import FINAL
from orchestrator.web import documents, requests
from orchestrator.web import runs as run_lists
from orchestrator.web.cost_groups import (
    COLORS,
    COLUMNS,
    GROUPS,
    MOST,
    MOST_PARTS,
    RANGES,
    SPLITS,
    WITHIN,
    Chart,
    CostsQuery,
    Parts,
    Scope,
    Unpriced,
    chart_of,
    column_of,
    ordered,
    rows_of,
    unpriced_in,
)
from orchestrator.web.endpoint import Call
from orchestrator.web.questions import open_questions
from orchestrator.web.screens.shell import day_of, money, page, root_of
from orchestrator.web.stats import groups_of

if TYPE_CHECKING:
    from starlette.responses import Response

SHOWN = 200
"""Maximum number of groups on a page."""
_LABELS = 6
"""Maximum number of labels offered for grouping."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that is set, and the URL without it."""

    label: str
    without: str


@dataclass(frozen=True, slots=True)
class CostsAddress:
    """Builds URLs of the screen: its query, with some parameters changed."""

    root: str
    query: Sequence[tuple[str, str]]

    def __call__(self, changes: Mapping[str, str | None]) -> str:
        """Return the URL with these parameters; None removes one."""
        kept = [(name, value) for name, value in self.query if name not in changes]
        return self._with(kept + [(name, value) for name, value in changes.items() if value is not None])

    def filters(self) -> list[Filter]:
        """Return the graph and the labels that runs must have."""
        return [
            Filter(f"{pair[0]}: {pair[1]}", self._with([one for one in self.query if one != pair]))
            for pair in self.query
            if pair[0] in ("graph", "label")
        ]

    def beside_range(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the form that selects another range."""
        return [pair for pair in self.query if pair[0] not in ("days", "since", "until")]

    def _with(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"{self.root}/costs{'?' if pairs else ''}{urlencode(pairs, errors='replace')}"


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over all runs that count."""

    runs: int
    tokens: int
    cost: float
    savings: float
    replay_savings: float
    replayed: int
    failed: int
    ended: int
    uncounted: int

    @staticmethod
    def of(groups: Sequence[documents.StatsGroup]) -> Sums:
        """Return the sums over groups, with each run in one of them."""
        statuses = [row.statuses for row in groups]
        return Sums(
            runs=sum(row.runs for row in groups),
            tokens=sum(row.tokens for row in groups),
            cost=sum(row.cost for row in groups),
            savings=sum(row.cache_savings or 0 for row in groups),
            replay_savings=sum(row.replay_savings or 0 for row in groups),
            replayed=sum(row.replayed_calls or 0 for row in groups),
            failed=sum(one.get("failed", 0) for one in statuses),
            ended=sum(count for one in statuses for status, count in one.items() if status in FINAL),
            uncounted=sum(row.uncounted for row in groups),
        )

    def text(self, currency: str, *, whole: bool) -> str:
        """Return the sums as a line; empty without runs. `whole`: whether the cost includes all calls."""
        if not self.runs:
            return ""
        parts = [f"{self.runs:,} {'run' if self.runs == 1 else 'runs'}", f"{self.tokens:,} tokens"]
        if self.cost:
            parts.append(f"cost {'' if whole else '≥ '}{money(self.cost)} {currency}")
        elif not whole:
            parts.append("no price known")
        if self.savings:
            parts.append(f"{money(self.savings)} saved by providers' caches")
        if self.replayed:
            amount = money(self.replay_savings) if self.replay_savings else "no price known of what was"
            parts.append(f"{amount} saved by replays ({self.replayed:,} calls)")
        if self.failed:
            parts.append(f"{self.failed / self.ended:.1%} failed")
        return ", ".join(parts)


async def costs(call: Call[CostsQuery]) -> Response:
    """Show the costs of runs, in groups."""
    query, currency = call.query, call.settings.currency
    scope = Scope(query, *query.span(time.time()))
    found = await _groups(call, scope, query.names)
    parts = Parts.by(query, await _groups(call, scope, (*query.names, query.split)) if query.split else [])
    total = Sums.of(await _groups(call, scope, ()) if query.by in WITHIN else found)
    models = await _unpriced(call, scope, found, parts)
    shown = ordered(found, query)[:SHOWN]
    groups = rows_of(scope, shown, parts, models)
    chart = chart_of(scope, found, parts) if query.by == "day" else None
    address = CostsAddress(root_of(call), [pair for pair in call.request.query_params.multi_items() if pair[1]])
    waiting = await open_questions(call)
    summary = total.text(currency, whole=not models)
    notes = [*_about_groups(query, len(found) - len(shown), chart), *_about_sums(total, models, currency)]
    return await page(
        call,
        "costs",
        {
            "title": "Costs",
            "groups": groups,
            "chart": chart,
            "by": query.by,
            "query": query,
            "columns": [
                one for one in COLUMNS if one.name != "saved" or query.show == "saved" or any(map(_has_saved, found))
            ],
            "column": column_of(query),
            "currency": currency,
            "all_groups": GROUPS,
            "splits": [] if query.by in WITHIN else [name for name in SPLITS if name != query.by],
            "labels": await _labels(call),
            "ranges": RANGES,
            "address": address,
            "first": day_of(scope.since),
            "last": day_of(scope.until, last=True),
            "filtered": any(name not in ("by", "split", "show") for name, _ in address.query),
            "summary": summary,
            "notes": notes,
            "open_questions": waiting,
            "changes": f"/stats?{urlencode([('by', ''), *scope.same_runs()], errors='replace')}",
        },
        root=address.root,
        version=[
            "costs",
            address.query,
            summary,
            notes,
            [[one.key, one.version] for one in groups],
            waiting,
            day_of(time.time()),
        ],
    )


def _has_saved(row: documents.StatsGroup) -> bool:
    return bool(row.cache_savings or row.replayed_calls)


async def _unpriced(
    call: Call[CostsQuery], scope: Scope, found: Sequence[documents.StatsGroup], parts: Parts
) -> dict[tuple[str | None, ...], dict[str, int]]:
    """Return the models without a known price, by group."""
    query = call.query
    if query.by == "tool":
        return {}
    if query.by == "model":
        by_model = found
    elif query.split == "model":
        by_model = [row for rows in parts.of.values() for row in rows]
    else:
        by_model = await _groups(call, scope, (*query.names, "model"))
    return unpriced_in(by_model, query.names)


async def _groups(call: Call[CostsQuery], scope: Scope, by: Sequence[str]) -> list[documents.StatsGroup]:
    query = call.query
    return await groups_of(call, by, since=scope.since, until=scope.until, graph=query.graph, label=query.label)


async def _labels(call: Call[CostsQuery]) -> list[str]:
    """Return the names of labels to group by: those of the newest runs, and the current one."""
    query = requests.RunsQuery.model_validate({"graph": call.query.graph})
    newest = await run_lists.page_of(Call(call.service, call.request, call.action, query, None))
    names = dict.fromkeys(name for row in newest.runs for name in row.labels)
    current = call.query.label_name
    return list(dict.fromkeys([*([current] if current else []), *list(names)[:_LABELS]]))


def _about_groups(query: CostsQuery, more: int, chart: Chart | None) -> list[str]:
    """Return notes on the groups that are shown."""
    notes = []
    if more:
        which = "older days" if query.by == "day" else f"groups with less in the column {column_of(query).title}"
        notes.append(f"{more:,} {which} are not shown. A shorter range or a filter shows others.")
    if chart is not None and len(chart.bars) == MOST:
        notes.append(f"The chart has the newest {MOST} days.")
    within = query.by if query.by in WITHIN else query.split
    if within in WITHIN:
        notes.append(f"Times by {within} are those within it, and a run counts in each {within} that it used.")
        if query.show == "saved":
            notes.append("What was saved is known for whole runs: see it by day, graph or label, without such parts.")
    if query.split:
        notes.append(f"Each row has its {MOST_PARTS} largest parts, and the chart colours the {COLORS} largest of all.")
    return notes


def _about_sums(total: Sums, unpriced: Mapping[Any, Unpriced], currency: str) -> list[str]:
    """Return notes on missing parts of the sums."""
    notes = [f"Costs are in {currency}. What a fork took over from its parent is in no sum. Days are in UTC."]
    tokens: Counter[str] = Counter()
    for models in unpriced.values():
        tokens.update(models)
    if tokens:
        named = ", ".join(f"{name} ({count:,} tokens)" for name, count in tokens.most_common(_LABELS))
        others = f" and {len(tokens) - _LABELS:,} more" if len(tokens) > _LABELS else ""
        notes.append(
            f"No price is known for {named}{others}: such calls are in no cost. A model that is free looks the same."
        )
    if total.uncounted:
        notes.append(
            f"{total.uncounted:,} runs of an earlier version are in no sum; `orchestrator store check --repair`, "
            "where the server runs, counts them."
        )
    return notes

"""Spending of runs in groups: an answer, a stream of changes, and the screen of costs.

The screen has a row with a bar for each group, which links to the group's runs, and a chart with a column for each day.
Its URL contains the groups, the range, the filters, and the column that the bars show.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlencode

import anyio
from pydantic import BeforeValidator, Field, model_validator

from orchestrator.kernel.status import FINAL
from orchestrator.stores import StatsRow
from orchestrator.tasks import away
from orchestrator.values import utc
from orchestrator.web import documents, questions, requests, streams
from orchestrator.web import runs as run_lists
from orchestrator.web.endpoint import Call
from orchestrator.web.questions import open_questions
from orchestrator.web.screens.shell import key_of, lasting, page, root_of

if TYPE_CHECKING:
    from starlette.responses import Response
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
    return documents.StatsDocument(groups=await _asked(call))


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


GROUPS = ("day", "graph", "model", "node", "tool")
"""Groupings besides labels."""
WITHIN = ("model", "node", "tool")
"""Groupings within runs: a run counts in several groups, and lists of runs have no such filter."""
LABEL = "label:"
"""Prefix of groupings by a label."""
RANGES = ((1, "Today"), (7, "7 days"), (30, "30 days"))
"""Days, and the name of their range."""

Measure: TypeAlias = Literal["cost", "tokens", "runs", "p50", "p95", "failed", "tools"]


def _given(value: object) -> object:
    """Treat an empty field of a form as missing."""
    return None if value == "" else value


class CostsQuery(requests.Query):
    """The grouping, the runs that count, and the column that the bars show."""

    by: Annotated[str, Field(max_length=210)] = Field(
        "day", description="`day`, `graph`, `model`, `node`, `tool`, or `label:KEY`."
    )
    days: int | None = Field(None, ge=1, le=3660, description="Today and the days before it, so many in all; in UTC.")
    since: Annotated[requests.Since | None, BeforeValidator(_given)] = Field(
        None, description="Runs started since: a moment, or a day in UTC."
    )
    until: Annotated[requests.Until | None, BeforeValidator(_given)] = Field(
        None, description="Runs started before a moment, or up to the end of a day in UTC."
    )
    graph: requests.Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[requests.Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]
    show: Measure = Field("cost", description="The column that the bars show, and by which groups are sorted.")

    @model_validator(mode="after")
    def _one_range(self) -> CostsQuery:
        if self.days is not None and (self.since is not None or self.until is not None):
            raise ValueError("give days, or since and until")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Grouping for the store. Nodes of two graphs with the same name are two groups."""
        return ("graph", "node") if self.by == "node" else (self.by,)

    @property
    def label_name(self) -> str:
        """The name of the label to group by; empty for other groupings."""
        return self.by.removeprefix(LABEL) if self.by.startswith(LABEL) else ""

    def span(self, now: float) -> tuple[float | None, float | None]:
        """Return the start and the end (exclusive) of the range, Unix seconds; None: unbounded."""
        if self.days is not None:
            return now - now % requests.DAY - (self.days - 1) * requests.DAY, None
        return requests.unix(self.since), requests.unix(self.until)


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


def day_of(moment: float | None, *, last: bool = False) -> str:
    """Return a time as a day in UTC for a form; empty for None.

    Args:
        moment: Unix seconds.
        last: whether it is the exclusive end of a range.
    """
    return "" if moment is None else utc(moment - last * 0.001).date().isoformat()


def text_of(moment: float) -> str:
    """Return a time for a URL: a day if it is the start of one, else Unix seconds."""
    return day_of(moment) if moment % requests.DAY == 0 and day_of(moment) else repr(moment)


Unpriced = Mapping[str, int]
"""Names of models without a known price -> tokens of their calls."""


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a group, which the bars can show."""

    name: Measure
    title: str
    long: str
    """Description of it, as a sentence."""
    value: Callable[[documents.StatsGroup], float | None]
    text: Callable[[documents.StatsGroup], str]


def money(amount: float) -> str:
    """Return a cost as text."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}" if abs(amount) >= 0.0001 else f"{amount:.1g}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}" if rate else "0"


COLUMNS: tuple[Column, ...] = (
    Column(
        "cost",
        "Cost",
        "In the currency of the price table.",
        lambda group: group.cost or None,
        lambda group: money(group.cost) if group.cost else "",
    ),
    Column("tokens", "Tokens", "Tokens in and out.", lambda group: group.tokens, lambda group: f"{group.tokens:,}"),
    Column("runs", "Runs", "Number of runs.", lambda group: group.runs, lambda group: f"{group.runs:,}"),
    Column(
        "p50",
        "p50",
        "The time that half of the runs did not exceed.",
        lambda group: group.p50,
        lambda group: _time(group.p50),
    ),
    Column(
        "p95",
        "p95",
        "The time that 95 of 100 runs did not exceed.",
        lambda group: group.p95,
        lambda group: _time(group.p95),
    ),
    Column(
        "failed",
        "Failed",
        "The part of the ended runs that failed.",
        lambda group: group.failed_rate,
        lambda group: _rate(group.failed_rate),
    ),
    Column(
        "tools",
        "Tools failed",
        "The part of the calls of tools that failed.",
        lambda group: group.failed_tool_rate,
        lambda group: _rate(group.failed_tool_rate),
    ),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a row."""

    column: Column
    text: str
    note: str = ""
    """Note on it."""
    query: str = ""
    """The query of its runs; empty: no link."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group in the table."""

    key: str
    version: str
    name: str
    graph: str
    """The graph of a node; empty for other groups."""
    known: bool
    """True if the name is a value, rather than a text for a missing one."""
    query: str
    """The query of its runs, or of the nearest list."""
    cells: Sequence[Cell]
    width: float
    """Length of its bar, from 0 to 100."""
    said: str
    """Text of the bar's value."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of all groups of a page: the query, and the runs that count."""

    query: CostsQuery
    since: float | None
    until: float | None

    def group_of(self, row: documents.StatsGroup, most: float, unpriced: Unpriced) -> Group:
        """Return a group as a row of the table.

        Args:
            row: the group, as the API lists it.
            most: the largest number of the column that the bars show.
            unpriced: the models of the group without a known price.
        """
        values = dict(row.group)
        graph = values.pop("graph") if self.query.by == "node" else None
        name = next(iter(values.values()))
        column = column_of(self.query)
        runs = self._runs_of(graph, name)
        cells = [self._cell(one, row, runs, name, unpriced) for one in COLUMNS]
        shown = next(cell for cell in cells if cell.column is column)
        width = round(100 * (column.value(row) or 0.0) / most, 2) if most else 0.0
        version = [width, *((cell.text, cell.note) for cell in cells)]
        return Group(
            key=key_of(repr(sorted(row.group.items()))),
            version=key_of(repr(version)),
            name=self._missing() if name is None else name,
            graph=graph or "",
            known=name is not None,
            query=urlencode(runs, errors="replace"),
            cells=cells,
            width=width,
            said=f"{column.title}: {shown.text or 'nothing'}",
        )

    def same_runs(self) -> list[tuple[str, str]]:
        """Return the query of the API for sums over the runs that count."""
        query = self.query
        graph = [] if query.graph is None else [("graph", query.graph)]
        return [*graph, *(("label", one) for one in query.label), *self._range()]

    def _range(self) -> list[tuple[str, str]]:
        found = []
        if self.since is not None:
            found.append(("since", text_of(self.since)))
        if self.until is not None:
            whole = self.until % requests.DAY == 0 and day_of(self.until, last=True)
            found.append(("until", whole or repr(self.until)))
        return found

    def runs_on(self, day: str) -> str:
        """Return the query of the runs of a day."""
        return urlencode(self._runs_of(None, day), errors="replace")

    def _cell(
        self,
        column: Column,
        row: documents.StatsGroup,
        runs: list[tuple[str, str]],
        name: str | None,
        unpriced: Unpriced,
    ) -> Cell:
        text = column.text(row)
        if column.name == "cost" and unpriced:
            note = f"No price is known for {', '.join(sorted(unpriced))}."
            return Cell(column, f"≥ {text}" if text else "no price known", note)
        if column.name == "cost" and row.cache_savings:
            return Cell(column, text, f"Providers' caches saved {money(row.cache_savings)}.")
        if column.name == "failed" and row.failed_rate and self.query.by not in WITHIN:
            return Cell(column, text, query=urlencode([*runs, ("status", "failed")], errors="replace"))
        if column.name == "tools" and row.failed_tool_rate and self.query.by not in ("model", "node"):
            tool = name if self.query.by == "tool" and name is not None else "*"
            return Cell(column, text, query=urlencode([*runs, ("failed_tool", tool)], errors="replace"))
        return Cell(column, text)

    def _runs_of(self, graph: str | None, name: str | None) -> list[tuple[str, str]]:
        """Return the query of the runs of a group, as far as lists of runs can be filtered."""
        query = self.query
        pairs = [("label", one) for one in query.label]
        if query.label_name and name is not None:
            pairs.append(("label", f"{query.label_name}:{name}"))
        graph = name if query.by == "graph" else graph or query.graph
        if graph is not None:
            pairs.append(("graph", graph))
        if query.by == "day" and name is not None:
            return [*dict.fromkeys(pairs), ("begun_since", name), ("begun_until", name)]
        return [*dict.fromkeys(pairs), *((f"begun_{name}", text) for name, text in self._range())]

    def _missing(self) -> str:
        name = self.query.label_name
        return f"without the label {name}" if name else "of an earlier version"


def column_of(query: CostsQuery) -> Column:
    """Return the column that the bars show."""
    return next(one for one in COLUMNS if one.name == query.show)


def ordered(found: Sequence[documents.StatsGroup], query: CostsQuery) -> list[documents.StatsGroup]:
    """Return days newest first, other groups largest number first."""
    if query.by == "day":
        return [*reversed(found)]
    value = column_of(query).value
    return sorted(found, key=lambda row: -(value(row) or 0.0))


def unpriced_in(
    found: Sequence[documents.StatsGroup], names: Sequence[str]
) -> dict[tuple[str | None, ...], dict[str, int]]:
    """Return the models without a known price by group values: those with tokens, but without cost.

    Args:
        found: groups by `names` and by model.
        names: the grouping of the page.
    """
    models: dict[tuple[str | None, ...], dict[str, int]] = {}
    for row in found:
        model = row.group["model"]
        if model is not None and row.tokens and not row.cost:
            models.setdefault(tuple(row.group[name] for name in names), {})[model] = row.tokens
    return models


MOST = 90
"""Maximum number of days of a chart, the newest."""
STEP = 10
"""Width of a day in the chart's own units."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A day of the chart. `top` and `height` are from 0 to 100."""

    day: str
    at: int
    top: float
    height: float
    said: str
    query: str
    """The query of the day's runs."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Consecutive days, including those without runs."""

    bars: list[Bar]
    width: int
    pixels: int
    most: str
    """The largest number, as text."""


def chart_of(scope: Scope, found: list[documents.StatsGroup]) -> Chart | None:
    """Return the chart of groups by day; None for fewer than two days."""
    column = column_of(scope.query)
    rows: Mapping[str, documents.StatsGroup] = {day: row for row in found if (day := row.group["day"]) is not None}
    days = _days(sorted(rows))
    if len(days) < 2:
        return None
    values = {day: column.value(rows[day]) or 0.0 for day in days if day in rows}
    most = max(values.values())
    largest = next(day for day, value in values.items() if value == most)
    bars = []
    for number, day in enumerate(days):
        height = round(100 * values.get(day, 0.0) / most, 2) if most else 0.0
        text = column.text(rows[day]) if day in rows else ""
        bars.append(
            Bar(day, number * STEP, round(100 - height, 2), height, f"{day}: {text or 'nothing'}", scope.runs_on(day))
        )
    return Chart(bars, len(days) * STEP, len(days) * 36, column.text(rows[largest]))


def _days(known: list[str]) -> list[str]:
    """Return all days from the first known one to the last, the newest `MOST` of them."""
    try:
        first, last = date.fromisoformat(known[0]), date.fromisoformat(known[-1])
    except (IndexError, ValueError):
        return []
    first = max(first, last - timedelta(days=min(MOST - 1, last.toordinal() - 1)))
    return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]


SHOWN = 200
"""Maximum number of groups on a page."""
_LABELS = 6
"""Maximum number of labels offered for grouping."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over all runs that count."""

    runs: int
    tokens: int
    cost: float
    savings: float
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
            savings=sum(row.cache_savings for row in groups),
            failed=sum(one.get("failed", 0) for one in statuses),
            ended=sum(count for one in statuses for status, count in one.items() if status in FINAL),
            uncounted=sum(row.uncounted for row in groups),
        )

    def text(self, *, whole: bool) -> str:
        """Return the sums as a line; empty without runs. `whole`: whether the cost includes all calls."""
        if not self.runs:
            return ""
        parts = [f"{self.runs:,} {'run' if self.runs == 1 else 'runs'}", f"{self.tokens:,} tokens"]
        if self.cost:
            parts.append(f"cost {'' if whole else '≥ '}{money(self.cost)}")
        if self.savings:
            parts.append(f"{money(self.savings)} saved by providers' caches")
        if self.failed:
            parts.append(f"{self.failed / self.ended:.1%} failed")
        return ", ".join(parts)


async def costs(call: Call[CostsQuery]) -> Response:
    """Show the costs of runs, in groups."""
    query = call.query
    scope = Scope(query, *query.span(time.time()))
    found = await _groups(call, scope, query.names)
    apart = query.by in WITHIN  # otherwise a run counts in several groups
    total = Sums.of(await _groups(call, scope, ()) if apart else found)
    models = (
        {}
        if query.by == "tool"
        else unpriced_in(
            found if query.by == "model" else await _groups(call, scope, (*query.names, "model")), query.names
        )
    )
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
        call,
        "costs",
        {
            "title": "Costs",
            "groups": groups,
            "chart": chart,
            "by": query.by,
            "query": query,
            "columns": COLUMNS,
            "column": column_of(query),
            "all_groups": GROUPS,
            "labels": await _labels(call),
            "ranges": RANGES,
            "address": address,
            "first": day_of(scope.since),
            "last": day_of(scope.until, last=True),
            "filtered": any(name not in ("by", "show") for name, _ in address.query),
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


_LEADS = {
    "model": "A list of runs cannot be filtered by a model: the bars lead to all runs of the range.",
    "node": "A list of runs cannot be filtered by a node: the bars lead to the runs of its graph.",
    "tool": "A list of runs cannot be filtered by a tool: the bars lead to all runs of the range, and the part that "
    "failed leads to the runs in which a call of the tool failed.",
}


def _about_groups(query: CostsQuery, more: int, chart: Chart | None) -> list[str]:
    """Return notes on the groups that are shown."""
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
    """Return notes on missing parts of the sums."""
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

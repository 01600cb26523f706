"""Groups of what runs spent, as the screen of costs shows them: rows with bars, parts, and the days of a chart.

Each number of a row leads to the runs that it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.web import documents, requests
from orchestrator.web.screens.shell import day_of, key_of, lasting, money

GROUPS = ("day", "graph", "model", "node", "tool")
"""Groupings besides labels."""
WITHIN = ("model", "node", "tool")
"""Groupings within runs: a run counts in several groups, and lists of runs have no such filter."""
LABEL = "label:"
"""Prefix of groupings by a label."""
RANGES = ((1, "Today"), (7, "7 days"), (30, "30 days"))
"""Days, and the name of their range."""

SPLITS = ("graph", "model", "tool")
"""Parts of days, graphs and labels, besides labels."""

Measure: TypeAlias = Literal["cost", "saved", "tokens", "runs", "p50", "p95", "failed", "tools"]


def _given(value: object) -> object:
    """Treat an empty field of a form as missing."""
    return None if value == "" else value


class CostsQuery(requests.Query):
    """The grouping, the runs that count, and the column that the bars show."""

    by: Annotated[str, Field(max_length=210)] = Field(
        "day", description="`day`, `graph`, `model`, `node`, `tool`, or `label:KEY`."
    )
    split: Annotated[str, Field(max_length=210)] = Field(
        "", description="The parts of each day, graph or value of a label: `graph`, `model`, `tool`, or `label:KEY`."
    )
    days: int | None = Field(None, ge=1, le=3660, description="Number of days, the last of which is today; in UTC.")
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

    @model_validator(mode="after")
    def _parts(self) -> CostsQuery:
        if self.split and (self.by in WITHIN or self.split == self.by):
            raise ValueError(f"split by {self.split}: days, graphs and labels have other parts than themselves")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Grouping for the store. Nodes of two graphs with the same name are two groups."""
        return ("graph", "node") if self.by == "node" else (self.by,)

    @property
    def apart(self) -> bool:
        """Whether a run counts in several groups, or parts of them."""
        return self.by in WITHIN or self.split in WITHIN

    @property
    def label_name(self) -> str:
        """The name of the label to group by; empty for other groupings."""
        return self.by.removeprefix(LABEL) if self.by.startswith(LABEL) else ""

    def span(self, now: float) -> tuple[float | None, float | None]:
        """Return the start and the end (exclusive) of the range, Unix seconds; None: unbounded."""
        if self.days is not None:
            return now - now % requests.DAY - (self.days - 1) * requests.DAY, None
        return requests.unix(self.since), requests.unix(self.until)


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


def _time(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}" if rate else "0"


def _saved(group: documents.StatsGroup) -> float:
    return (group.cache_savings or 0) + (group.replay_savings or 0)


def _amount(amount: float) -> str:
    return money(amount) if amount else ""


COLUMNS: tuple[Column, ...] = (
    Column(
        "cost",
        "Cost",
        "What calls of models cost.",
        lambda group: group.cost or None,
        lambda group: _amount(group.cost),
    ),
    Column(
        "saved",
        "Saved",
        "What providers' caches, and replays, saved.",
        lambda group: _saved(group) or None,
        lambda group: _amount(_saved(group)) or ("no price known" if group.replayed_calls else ""),
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
    part: bool
    """Whether it is a part of the group above it."""
    color: int
    """Number of its colour in the chart; 0 if it has none."""
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

    def group_of(self, row: documents.StatsGroup, most: float, unpriced: Unpriced, color: int = 0) -> Group:
        """Return a group, or a part of one, as a row of the table.

        Args:
            row: the group, as the API lists it.
            most: the largest number of the column that the bars show.
            unpriced: the models of the group without a known price.
            color: the number of its colour in the chart.
        """
        values = dict(row.group)
        graph = values.get("graph") if self.query.by == "node" else None
        what, name = [*values.items()][-1]
        column = column_of(self.query)
        runs = self._runs_of(values)
        cells = [self._cell(one, row, runs, unpriced) for one in COLUMNS]
        shown = next(cell for cell in cells if cell.column is column)
        width = round(100 * (column.value(row) or 0.0) / most, 2) if most else 0.0
        version = [width, color, *((cell.text, cell.note) for cell in cells)]
        return Group(
            key=key_of(repr(sorted(values.items(), key=str))),
            version=key_of(repr(version)),
            name=_missing(what) if name is None else name,
            graph=graph or "",
            part=len(values) > len(self.query.names),
            color=color,
            known=name is not None,
            query=_text(runs),
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
        return _text(self._runs_of({"day": day}))

    def _cell(self, column: Column, row: documents.StatsGroup, runs: list[tuple[str, str]], unpriced: Unpriced) -> Cell:
        """Return a number of a group, which leads to the runs that it is made of."""
        text, note = column.text(row), ""
        more = _ORDERS.get(column.name, ())
        if column.name == "cost" and unpriced:
            note = f"No price is known for {', '.join(sorted(unpriced))}."
            text = f"≥ {text}" if text else "no price known"
        elif column.name == "saved" and text:
            parts = [f"providers' caches {money(row.cache_savings)}"] if row.cache_savings else []
            if row.replayed_calls:
                amount = f" {money(row.replay_savings)}" if row.replay_savings else ""
                parts.append(f"replays{amount}, {row.replayed_calls:,} calls")
            note = f"Saved by {'; '.join(parts)}."
            more = () if row.cache_savings else (("relation", "replay"),)
        elif column.name == "tools":
            more = (("failed_tool", row.group.get("tool") or "*"),)
        link = text and (column.name not in ("failed", "tools") or column.value(row))
        return Cell(column, text, note, _text([*runs, *more]) if link else "")

    def _runs_of(self, values: Mapping[str, str | None]) -> list[tuple[str, str]]:
        """Return the query of the runs of a group. Replays count in it, so they are in the list."""
        query = self.query
        pairs = [("label", one) for one in query.label]
        if query.graph is not None and values.get("graph") is None:
            pairs.append(("graph", query.graph))
        for name, value in values.items():
            if value is not None and name != "day":
                pairs.append(
                    ("label", f"{name.removeprefix(LABEL)}:{value}") if name.startswith(LABEL) else (name, value)
                )
        day = values.get("day")
        times = [("since", day), ("until", day)] if day is not None else self._range()
        return [*dict.fromkeys(pairs), *((f"begun_{name}", text) for name, text in times), ("replays", "true")]


_ORDERS: Mapping[Measure, tuple[tuple[str, str], ...]] = {
    "cost": (("sort", "cost"),),
    "p50": (("sort", "duration"),),
    "p95": (("sort", "duration"),),
    "failed": (("status", "failed"),),
}
"""What a column adds to the query of its runs."""


def _text(pairs: Sequence[tuple[str, str]]) -> str:
    return urlencode(pairs, errors="replace")


def _missing(what: str) -> str:
    """Return the name of the group of the runs without a value."""
    return f"without the label {what.removeprefix(LABEL)}" if what.startswith(LABEL) else "of an earlier version"


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


COLORS = 6
"""Number of colours of the parts of a day; the others are grey."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a day's bar. `top` and `height` are from 0 to 100."""

    top: float
    height: float
    color: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A day of the chart."""

    day: str
    at: int
    pieces: list[Piece]
    said: str
    query: str
    """The query of the day's runs."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Consecutive days, including those without runs."""

    bars: list[Bar]
    width: int
    pixels: str
    """Its width on the page: few days do not need all of it."""
    most: str
    """The largest number, as text."""
    legend: Sequence[tuple[int, str]]
    """Colours of the parts of days, and their names."""


def chart_of(scope: Scope, found: list[documents.StatsGroup], parts: Parts) -> Chart | None:
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
        text = column.text(rows[day]) if day in rows else ""
        pieces = _pieces(values.get(day, 0.0), parts.of.get((day,), []), parts, column, most) if most else []
        bars.append(Bar(day, number * STEP, pieces, f"{day}: {text or 'nothing'}", scope.runs_on(day)))
    pixels = "100%" if len(days) * _WIDEST > _WIDE else str(len(days) * _WIDEST)
    return Chart(bars, len(days) * STEP, pixels, column.text(rows[largest]), parts.legend)


def _pieces(
    whole: float, rows: Sequence[documents.StatsGroup], parts: Parts, column: Column, most: float
) -> list[Piece]:
    """Return the pieces of a day's bar from the top down: the rest that is in no coloured part, then the parts."""
    colored: Counter[int] = Counter()
    if column.name in ("cost", "saved", "tokens", "runs"):  # times and rates of parts do not add up
        for row in rows:
            colored[parts.color_of(row)] += column.value(row) or 0.0  # type: ignore[assignment]
    del colored[0]
    total = max(whole, sum(colored.values()))
    heights = [(0, total - sum(colored.values())), *sorted(colored.items(), reverse=True)]
    pieces, top = [], 100 - 100 * min(total, most) / most
    for color, value in heights:
        height = 100 * value / most * (min(total, most) / total if total else 1)
        if height > 0:
            pieces.append(Piece(round(top, 2), round(height, 2), color))
        top += height
    return pieces


_WIDEST, _WIDE = 72, 1000
"""Pixels: the width of a day in a chart of few days, and the width from which a chart takes all there is."""


def _days(known: list[str]) -> list[str]:
    """Return all days from the first known one to the last, the newest `MOST` of them."""
    try:
        first, last = date.fromisoformat(known[0]), date.fromisoformat(known[-1])
    except (IndexError, ValueError):
        return []
    first = max(first, last - timedelta(days=min(MOST - 1, last.toordinal() - 1)))
    return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]


MOST_PARTS = 12
"""Maximum number of parts of a group on a page."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of groups, if the page splits them."""

    of: Mapping[tuple[str | None, ...], list[documents.StatsGroup]]
    """Values of a group -> its parts, the largest first."""
    colors: Mapping[str | None, int]
    """Value of a part -> the number of its colour: those with the largest sums have one."""
    split: str

    @staticmethod
    def by(query: CostsQuery, rows: Sequence[documents.StatsGroup]) -> Parts:
        """Return the parts of the groups of a page."""
        value = column_of(query).value
        of: dict[tuple[str | None, ...], list[documents.StatsGroup]] = {}
        sums: Counter[str | None] = Counter()
        for row in sorted(rows, key=lambda row: -(value(row) or 0.0)):
            of.setdefault(tuple(row.group[name] for name in query.names), []).append(row)
            sums[row.group[query.split]] += value(row) or 0.0  # type: ignore[assignment]
        largest = [name for name, amount in sums.most_common(COLORS) if amount]
        return Parts(of, {name: number for number, name in enumerate(largest, 1)}, query.split)

    def color_of(self, row: documents.StatsGroup) -> int:
        """Return the number of the colour of a part; 0 if it has none."""
        return self.colors.get(row.group[self.split], 0)

    @property
    def legend(self) -> list[tuple[int, str]]:
        """Return the colours, and what they stand for."""
        return [(color, _missing(self.split) if name is None else name) for name, color in self.colors.items()]


def rows_of(
    scope: Scope,
    found: Sequence[documents.StatsGroup],
    parts: Parts,
    models: Mapping[tuple[str | None, ...], Unpriced],
) -> list[Group]:
    """Return the rows of the table: groups, each followed by its largest parts."""
    query = scope.query
    value = column_of(query).value
    most = max((value(row) or 0.0 for row in found), default=0.0)
    rows = []
    for row in found:
        key = tuple(row.group[name] for name in query.names)
        unpriced = models.get(key, {})
        rows.append(scope.group_of(row, most, unpriced))
        for part in parts.of.get(key, [])[:MOST_PARTS]:
            name = part.group[query.split]
            missing = unpriced if part.unpriced else {}
            if query.split == "model":
                missing = {name: part.tokens} if name is not None and name in unpriced else {}
            rows.append(scope.group_of(part, most, missing, parts.color_of(part)))
    return rows

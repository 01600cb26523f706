"""Groups of runs as rows of a table, each with a bar and addresses that lead to its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.web.moments import DAY
from orchestrator.web.screens.cost_query import WITHIN, CostsQuery, Measure, day_of, text_of
from orchestrator.web.screens.runs import lasting
from orchestrator.web.screens.shell import key_of

if TYPE_CHECKING:
    from orchestrator.web.documents import StatsGroup

Unpriced = Mapping[str, int]
"""Names of models without a known price -> tokens of their calls."""


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a group, which can be the one that the bars show."""

    name: Measure
    title: str
    long: str
    """What it is, as a sentence."""
    value: Callable[[StatsGroup], float | None]
    text: Callable[[StatsGroup], str]


def money(amount: float) -> str:
    """A cost as text."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}" if amount >= 0.0001 else f"{amount:.1g}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}" if rate else "0"


COLUMNS: tuple[Column, ...] = (
    Column(
        "cost", "Cost", "In the currency of the price table.",
        lambda group: group.cost or None, lambda group: money(group.cost) if group.cost else "",
    ),
    Column("tokens", "Tokens", "Tokens in and out.", lambda group: group.tokens, lambda group: f"{group.tokens:,}"),
    Column("runs", "Runs", "How many runs.", lambda group: group.runs, lambda group: f"{group.runs:,}"),
    Column("p50", "p50", "The time that half of the runs did not exceed.",
           lambda group: group.p50, lambda group: _time(group.p50)),
    Column("p95", "p95", "The time that 95 of 100 runs did not exceed.",
           lambda group: group.p95, lambda group: _time(group.p95)),
    Column("failed", "Failed", "The part of the ended runs that failed.",
           lambda group: group.failed_rate, lambda group: _rate(group.failed_rate)),
    Column("tools", "Tools failed", "The part of the calls of tools that failed.",
           lambda group: group.failed_tool_rate, lambda group: _rate(group.failed_tool_rate)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a row."""

    column: Column
    text: str
    note: str = ""
    """What is to be known of it."""
    query: str = ""
    """The query of the runs behind it; empty: it leads nowhere."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group in the table."""

    key: str
    version: str
    name: str
    graph: str
    """The graph of a node; empty: it is no node."""
    known: bool
    """Whether the name is a value, and does not say what the group lacks."""
    query: str
    """The query of its runs, or of the nearest list."""
    cells: Sequence[Cell]
    width: float
    """The length of its bar, parts of 100."""
    said: str
    """What the bar shows, as text."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What all groups of a page share: the query, and the runs that count."""

    query: CostsQuery
    since: float | None
    until: float | None

    def group_of(self, row: StatsGroup, most: float, unpriced: Unpriced) -> Group:
        """A group as a row of the table.

        Args:
            row: the group, as the API lists it.
            most: the largest number of the column that the bars show.
            unpriced: the models of the group that have no known price.
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
            key=key_of(repr(sorted(row.group.items()))), version=key_of(repr(version)),
            name=self._missing() if name is None else name, graph=graph or "", known=name is not None,
            query=urlencode(runs, errors="replace"), cells=cells, width=width,
            said=f"{column.title}: {shown.text or 'nothing'}",
        )  # fmt: skip

    def same_runs(self) -> list[tuple[str, str]]:
        """The query of the API for sums over the runs that count."""
        query = self.query
        graph = [] if query.graph is None else [("graph", query.graph)]
        return [*graph, *(("label", one) for one in query.label), *self._range()]

    def _range(self) -> list[tuple[str, str]]:
        found = []
        if self.since is not None:
            found.append(("since", text_of(self.since)))
        if self.until is not None:
            whole = self.until % DAY == 0 and day_of(self.until, last=True)
            found.append(("until", whole or repr(self.until)))
        return found

    def runs_on(self, day: str) -> str:
        """The query of the runs of a day."""
        return urlencode(self._runs_of(None, day), errors="replace")

    def _cell(
        self, column: Column, row: StatsGroup, runs: list[tuple[str, str]], name: str | None, unpriced: Unpriced
    ) -> Cell:
        text = column.text(row)
        if column.name == "cost" and unpriced:
            note = f"No price is known for {', '.join(sorted(unpriced))}."
            return Cell(column, f"≥ {text}" if text else "no price known", note)
        if column.name == "failed" and row.failed_rate and self.query.by not in WITHIN:
            return Cell(column, text, query=urlencode([*runs, ("status", "failed")], errors="replace"))
        if column.name == "tools" and row.failed_tool_rate and self.query.by not in ("model", "node"):
            tool = name if self.query.by == "tool" and name is not None else "*"
            return Cell(column, text, query=urlencode([*runs, ("failed_tool", tool)], errors="replace"))
        return Cell(column, text)

    def _runs_of(self, graph: str | None, name: str | None) -> list[tuple[str, str]]:
        """The query of the runs of a group, as far as lists of runs can be filtered."""
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
    """The column that the bars show."""
    return next(one for one in COLUMNS if one.name == query.show)


def ordered(found: Sequence[StatsGroup], query: CostsQuery) -> list[StatsGroup]:
    """Days with the newest first, other groups with the largest number first."""
    if query.by == "day":
        return [*reversed(found)]
    value = column_of(query).value
    return sorted(found, key=lambda row: -(value(row) or 0.0))


def unpriced_in(found: Sequence[StatsGroup], names: Sequence[str]) -> dict[tuple[str | None, ...], dict[str, int]]:
    """The models without a known price, by the values of a group: those that used tokens and cost nothing.

    Args:
        found: groups by `names` and by model.
        names: what makes a group on the page.
    """
    models: dict[tuple[str | None, ...], dict[str, int]] = {}
    for row in found:
        model = row.group["model"]
        if model is not None and row.tokens and not row.cost:
            models.setdefault(tuple(row.group[name] for name in names), {})[model] = row.tokens
    return models

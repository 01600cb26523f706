"""What runs cost, in groups: a row with a bar for each, which leads to the group's runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.web import statistics
from orchestrator.web.documents import StatsGroup
from orchestrator.web.requests import Label, Moment, Name, Query, unix
from orchestrator.web.screens.runs import lasting
from orchestrator.web.screens.shell import key_of, open_questions, page, root_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from orchestrator.web.endpoint import Call

SHOWN = 200
"""The most groups that a page shows."""
GROUPS = ("day", "graph", "model", "node", "tool")
"""What groups are made of, beside labels."""
RANGES = ((1, "Today"), (7, "7 days"), (30, "30 days"))
"""Days, and what their range is called."""
_DAY = 86400.0
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _from_day(given: object) -> object:
    """A day means its first moment. A field of a form that was left empty was not given."""
    if isinstance(given, str) and _DATE.fullmatch(given):
        return datetime.fromisoformat(given).replace(tzinfo=UTC).timestamp()
    return None if given == "" else given


def _to_day(given: object) -> object:
    """A day means the moment after its last."""
    found = _from_day(given)
    return found + _DAY if isinstance(found, float) else found


Measure: TypeAlias = Literal["cost", "tokens", "runs", "p50", "p95", "failed", "tools"]


class CostsQuery(Query):
    """What makes a group, which runs count, and which column leads."""

    by: Annotated[str, Field(max_length=210)] = Field(
        "day", description="`day`, `graph`, `model`, `node`, `tool`, or `label:KEY`."
    )
    days: int | None = Field(None, ge=1, le=3660, description="Today and the days before it, so many in all; in UTC.")
    since: Annotated[Moment | None, BeforeValidator(_from_day)] = Field(
        None, description="Runs begun since: a day in UTC, or a moment."
    )
    until: Annotated[Moment | None, BeforeValidator(_to_day)] = Field(
        None, description="Runs begun before a moment, or up to the end of a day in UTC."
    )
    graph: Name | None = Field(None, description="The name of a graph.")
    label: Annotated[
        list[Label], Field(default_factory=list, description="A label as `name:value`; repeated: all of them.")
    ]
    show: Measure = Field("cost", description="The column that the bars show, and by which groups are sorted.")

    @model_validator(mode="after")
    def _one_range(self) -> CostsQuery:
        if self.days is not None and (self.since is not None or self.until is not None):
            raise ValueError("give days, or since and until")
        return self

    def span(self, now: float) -> tuple[float | None, float | None]:
        """The first moment that counts and the one after the last, Unix seconds; None: no bound."""
        if self.days is not None:
            return now - now % _DAY - (self.days - 1) * _DAY, None
        return unix(self.since), unix(self.until)


@dataclass(frozen=True, slots=True)
class Column:
    """A number of a group, which can be the one that the bars show."""

    name: Measure
    title: str
    value: Callable[[StatsGroup], float | None]
    text: Callable[[StatsGroup], str]


def _cost(group: StatsGroup) -> str:
    if group.cost:
        return f"{group.cost:,.2f}" if group.cost >= 1 else f"{group.cost:.4f}"
    return "no price" if group.tokens else ""


def _time(seconds: float | None) -> str:
    return "" if seconds is None else lasting(seconds)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.1%}" if rate else "0"


COLUMNS: tuple[Column, ...] = (
    Column("cost", "Cost", lambda group: group.cost, _cost),
    Column("tokens", "Tokens", lambda group: group.tokens, lambda group: f"{group.tokens:,}"),
    Column("runs", "Runs", lambda group: group.runs, lambda group: f"{group.runs:,}"),
    Column("p50", "p50", lambda group: group.p50, lambda group: _time(group.p50)),
    Column("p95", "p95", lambda group: group.p95, lambda group: _time(group.p95)),
    Column("failed", "Failed", lambda group: group.failed_rate, lambda group: _rate(group.failed_rate)),
    Column("tools", "Tools failed", lambda group: group.failed_tool_rate, lambda group: _rate(group.failed_tool_rate)),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a row."""

    name: str
    text: str
    leads: bool
    """Whether the bars show it."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group in the table."""

    key: str
    version: str
    name: str
    graph: str
    """The graph of a node; empty: it is no node."""
    unknown: bool
    """Whether the name says what the group lacks, and is no value."""
    query: str
    """The query of its runs, or of the nearest list."""
    cells: Sequence[Cell]
    width: float
    """The length of its bar, parts of 100."""
    said: str
    """What the bar shows, as text."""


def group_of(row: StatsGroup, query: CostsQuery, column: Column, most: float) -> Group:
    """A group as a row of the table.

    Args:
        row: the group, as the API lists it.
        query: what was asked.
        column: the column that the bars show.
        most: the largest number of this column.
    """
    values = dict(row.group)
    graph = values.pop("graph", None) if query.by == "node" else None
    name = next(iter(values.values()))
    value = column.value(row)
    cells = [Cell(one.name, one.text(row), one is column) for one in COLUMNS]
    return Group(
        key=key_of(repr(sorted(row.group.items(), key=str))), version=key_of(repr(cells)),
        name=_missing(query.by) if name is None else name, graph=graph or "", unknown=name is None,
        query=_runs_query(query, graph, name), cells=cells,
        width=round(100 * (value or 0.0) / most, 2) if most else 0.0, said=f"{column.title}: {column.text(row) or '-'}",
    )  # fmt: skip


def _missing(by: str) -> str:
    return f"without the label {by.removeprefix('label:')}" if by.startswith("label:") else "not counted"


def _runs_query(query: CostsQuery, graph: str | None, name: str | None) -> str:
    pairs = [("label", one) for one in query.label]
    graph = name if query.by == "graph" else graph or query.graph
    if graph is not None:
        pairs.append(("graph", graph))
    if query.by.startswith("label:") and name is not None:
        pairs.append(("label", f"{query.by.removeprefix('label:')}:{name}"))
    return urlencode(pairs, errors="replace")


async def costs(call: Call[CostsQuery]) -> Response:
    """What runs cost, in groups."""
    query = call.query
    since, until = query.span(time.time())
    by = ("graph", "node") if query.by == "node" else (query.by,)
    found = await statistics.groups_of(call, by, since=since, until=until, graph=query.graph, label=query.label)
    column = next(one for one in COLUMNS if one.name == query.show)
    ordered = _ordered(found, query, column)
    most = max((column.value(row) or 0.0 for row in found), default=0.0)
    groups = [group_of(row, query, column, most) for row in ordered[:SHOWN]]
    address = Address(root_of(call), [pair for pair in call.request.query_params.multi_items() if pair[1]])
    waiting = await open_questions(call)
    return page(
        call, "costs",
        {
            "title": "Costs", "groups": groups, "more": len(found) - len(groups), "by": query.by, "query": query,
            "columns": COLUMNS, "all_groups": GROUPS, "ranges": RANGES, "address": address,
            "filtered": any(name in ("graph", "label", "since", "until", "days") for name, _ in address.query),
            "open_questions": waiting, "changes": "/runs?limit=1",
        },
        root=address.root, version=["costs", address.query, [[one.key, one.version] for one in groups], waiting],
    )  # fmt: skip


def _ordered(found: Sequence[StatsGroup], query: CostsQuery, column: Column) -> list[StatsGroup]:
    """Days with the newest first, other groups with the largest number first."""
    if query.by == "day":
        return list(reversed(found))
    return sorted(found, key=lambda row: -(column.value(row) or 0.0))


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the screen: its query, with something else in it."""

    root: str
    query: Sequence[tuple[str, str]]

    def __call__(self, changes: Mapping[str, str | None]) -> str:
        """The address with these parameters; None takes one away."""
        kept = [(name, value) for name, value in self.query if name not in changes]
        pairs = kept + [(name, value) for name, value in changes.items() if value is not None]
        return f"{self.root}/costs{'?' if pairs else ''}{urlencode(pairs, errors='replace')}"

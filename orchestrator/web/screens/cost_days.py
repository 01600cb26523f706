"""Days as columns of a chart, the oldest at the left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from orchestrator.web.screens.cost_groups import Scope, column_of

if TYPE_CHECKING:
    from orchestrator.web.documents import StatsGroup

MOST = 90
"""The most days of a chart, the newest."""
STEP = 10
"""Width of a day in the chart's own units."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A day of the chart. `top` and `height` are parts of 100."""

    day: str
    at: int
    top: float
    height: float
    said: str
    query: str
    """The query of the day's runs."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Days that follow each other, also those without runs."""

    bars: list[Bar]
    width: int
    pixels: int
    most: str
    """The largest number, as text."""


def chart_of(scope: Scope, found: list[StatsGroup]) -> Chart | None:
    """The chart of groups by day; None: one day or none is not worth one."""
    column = column_of(scope.query)
    rows: Mapping[str, StatsGroup] = {day: row for row in found if (day := row.group["day"]) is not None}
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
    """All days from the first known one to the last, the newest `MOST` of them."""
    try:
        first, last = date.fromisoformat(known[0]), date.fromisoformat(known[-1])
    except (IndexError, ValueError):
        return []
    first = max(first, last - timedelta(days=min(MOST - 1, last.toordinal() - 1)))
    return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]

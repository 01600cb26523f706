"""What runs spent, in groups, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.render.terminal.table import PLAIN, Cell, Column, Looks, table
from orchestrator.render.terminal.texts import duration

if TYPE_CHECKING:
    from orchestrator.stores import StatsRow

_NUMBERS = ("runs", "failed", "calls", "tools", "failed", "tokens in", "out", "cost", "p50", "p95")


def stats_table(names: Sequence[str], rows: Sequence[StatsRow], looks: Looks = PLAIN) -> str:
    """Groups as lines under a heading. The first `FAILED` is of the runs that ended, the second of the calls of tools.

    Args:
        names: what the groups are by.
        rows: the groups.
        looks: what the terminal allows.
    """
    columns = (*(Column(name, least=10) for name in names), *(Column(name, right=True) for name in _NUMBERS))
    return table(columns, [_cells(names, row) for row in rows], looks)


def _cells(names: Sequence[str], row: StatsRow) -> tuple[Cell | str, ...]:
    group = (row.group.get(name) for name in names)
    return (
        *("-" if value is None else value for value in group),
        f"{row.runs:,}", _rate(row.failed_rate), f"{row.calls:,}", f"{row.tool_calls:,}", _rate(row.failed_tool_rate),
        f"{row.input_tokens:,}", f"{row.output_tokens:,}", f"{row.cost:.4f}", _time(row.p50), _time(row.p95),
    )  # fmt: skip


def _rate(rate: float | None) -> Cell:
    return Cell("-" if rate is None else f"{rate:.1%}", "red" if rate else "")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)

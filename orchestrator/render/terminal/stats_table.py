"""What runs spent, in groups, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.render.terminal.texts import duration
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.stores import StatsRow

_HEAD = ("runs", "failed", "calls", "tools", "failed", "tokens in", "out", "cost", "p50", "p95")


def stats_table(names: Sequence[str], rows: Sequence[StatsRow]) -> str:
    """Groups as lines under a head. The first `failed` is of the runs that ended, the second of the calls of tools.

    Args:
        names: what the groups are by.
        rows: the groups.
    """
    cells = [_cells(names, row) for row in rows]
    head = (*names, *_HEAD)
    widths = [max(len(row[column]) for row in (head, *cells)) for column in range(len(head))]
    lines = []
    for row in (head, *cells):
        parts = [
            cell.ljust(width) if column < len(names) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _cells(names: Sequence[str], row: StatsRow) -> tuple[str, ...]:
    group = (row.group.get(name) for name in names)
    return (
        *("-" if value is None else line(value) for value in group),
        f"{row.runs:,}", _rate(row.failed_rate), f"{row.calls:,}", f"{row.tool_calls:,}", _rate(row.failed_tool_rate),
        f"{row.input_tokens:,}", f"{row.output_tokens:,}", f"{row.cost:.4f}", _time(row.p50), _time(row.p95),
    )  # fmt: skip


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)

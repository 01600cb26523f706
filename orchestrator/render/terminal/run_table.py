"""Runs of a store as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.kernel.records import FINAL
from orchestrator.redaction import redacted
from orchestrator.render.terminal.texts import ago, columns_of, fitting, padded
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.views.standby import moment
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo

_LEAST = 24
"""Characters of a run's text that are shown however narrow the terminal is."""


def run_table(found: Sequence[RunInfo], width: int = 120, now: float | None = None, *, headed: bool = False) -> str:
    """Runs as lines: id, graph, status, age, labels, and what happened, as far as the width allows.

    Args:
        found: the rows.
        width: characters in a line.
        now: Unix seconds, for ages; None: the present.
        headed: whether the first line names the columns.
    """
    rows = [("RUN", "GRAPH", "STATUS", "CHANGED", "", "LABELS, WHAT HAPPENED")] if headed else []
    for info in found:
        labels = " ".join(f"{key}={value}" for key, value in info.labels.items())
        age = ago(info.updated, now)
        rows.append((line(info.run_id), line(info.graph), line(info.status), age, line(labels), what_happened(info)))
    widths = [max((columns_of(row[column]) for row in rows), default=0) for column in range(4)]
    lines = []
    for row in rows:
        cells = [padded(cell, wide) for cell, wide in zip(row, widths, strict=False)]
        cells += [row[4]] if row[4] else []
        begin = "  ".join(cells)
        room = max(_LEAST, width - columns_of(begin) - 2)
        lines.append(f"{begin}  {fitting(line(row[5]), room)}".rstrip() if row[5] else begin.rstrip())
    return "\n".join(lines)


def what_happened(info: RunInfo) -> str:
    """The text that says most about a run, on one line: what it asks, why it failed or was given up, its answer, or
    its input, with the time at which it is to begin."""
    if info.deaths and info.status not in FINAL:
        times = f"{info.deaths} {'time' if info.deaths == 1 else 'times'}"
        text = f"{'parked, ' if info.deaths >= MAX_DEATHS else ''}given up {times}: {info.fault}"
    elif info.question:
        text = f"asks: {info.question}"
    elif info.status == "running" and info.due is not None:
        text = f"waits to be taken up from {moment(info.due)} on: {info.input}"
    else:
        text = info.error or info.output or info.input
    return " ".join(str(redacted(text)).split())

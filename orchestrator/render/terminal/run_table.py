"""Runs of a store as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.render.terminal.texts import ago
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo


def run_table(found: Sequence[RunInfo]) -> str:
    """Runs as lines: id, graph, status, age and labels."""
    rows = []
    for info in found:
        labels = " ".join(f"{key}={value}" for key, value in info.labels.items())
        rows.append((line(info.run_id), line(info.graph), line(info.status), ago(info.updated), line(labels)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join((*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
        for row in rows
    )

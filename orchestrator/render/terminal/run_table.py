"""Runs of a store as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.kernel.status import FINAL
from orchestrator.redaction import redacted
from orchestrator.render.terminal.colours import STATUS
from orchestrator.render.terminal.table import PLAIN, Cell, Column, Looks, table
from orchestrator.render.terminal.texts import ago
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.values import MAX_NAME, cut, shown_labels
from orchestrator.views.standby import moment

if TYPE_CHECKING:
    from orchestrator.stores import RunInfo

_COLUMNS = (
    Column("run"), Column("graph", least=12), Column("status"), Column("changed"),
    Column("labels", least=10, optional=True), Column("what happened", least=16),
)  # fmt: skip


def run_table(found: Sequence[RunInfo], looks: Looks = PLAIN, now: float | None = None) -> str:
    """Runs as lines under a heading: id, graph, status, age, labels, and what happened.

    Args:
        found: the rows.
        looks: what the terminal allows.
        now: Unix seconds, for ages; None: the present.
    """
    rows = [
        (
            cut(info.run_id, MAX_NAME), Cell(cut(info.graph, MAX_NAME), "dim"),
            Cell(_status(info), STATUS.get(info.status, "")), Cell(ago(info.updated, now), "dim"), _labels(info),
            what_happened(info),
        )
        for info in found
    ]  # fmt: skip
    return table(_COLUMNS, rows, looks)


def _labels(info: RunInfo) -> str:
    return " ".join(f"{key}={value}" for key, value in shown_labels(info.labels).items())


def _status(info: RunInfo) -> str:
    return info.status if info.archived is None else f"{info.status}, archived"


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

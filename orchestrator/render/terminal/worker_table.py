"""Workers of a store as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.render.terminal.table import PLAIN, Cell, Column, Looks, table
from orchestrator.render.terminal.texts import duration

if TYPE_CHECKING:
    from orchestrator.views.worker_info import WorkerInfo

_COLUMNS = (
    Column("holder"), Column("state"), Column("host", least=8), Column("pid", right=True), Column("heartbeat"),
    Column("holds", right=True), Column("graphs", least=12), Column("runs", least=12, optional=True),
)  # fmt: skip
_COLOURS = {"alive": "green", "draining": "yellow", "lapsed": "red", "dead": "red"}


def worker_table(found: Sequence[WorkerInfo], looks: Looks = PLAIN) -> str:
    """Workers as lines under a heading: who each is, whether it is alive, and what it holds.

    Args:
        found: the workers, and other executors that hold runs.
        looks: what the terminal allows.
    """
    return table(_COLUMNS, [_cells(one) for one in found], looks)


def _cells(one: WorkerInfo) -> tuple[Cell | str, ...]:
    places = str(one.held) if one.slots is None else f"{one.held}/{one.slots}"
    more = f", and {one.held - len(one.runs)} more" if one.held > len(one.runs) else ""
    return (
        one.id, Cell(one.state, _COLOURS[one.state]), one.host or "-", "-" if one.pid is None else str(one.pid),
        f"{duration(one.heartbeat)} ago", places, ", ".join(one.graphs) if one.worker else Cell("no worker", "dim"),
        ", ".join(one.runs) + more,
    )  # fmt: skip

"""The list of runs: rows, filters in the address, pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from orchestrator.errors import Archived
from orchestrator.kernel.status import FINAL
from orchestrator.render.terminal.texts import ago
from orchestrator.values import utc
from orchestrator.web.screens.shell import key_of

if TYPE_CHECKING:
    from orchestrator.web.documents import ParentRun, RunRow

BAR = 72
"""Width of the bar of a row, pixels."""
STATUSES = ("running", "paused", "interrupted", "completed", "failed", "exhausted", "cancelled")


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list."""

    id: str
    key: str
    version: str
    status: str
    graph: str
    input: str
    told: str
    """Its question, its error, or its answer."""
    kind: str
    """Kind of `told`: `question`, `failed`, `output`, or empty."""
    labels: Sequence[tuple[str, str]]
    parent: ParentRun | None
    steps: str
    tokens: str
    cost: str
    seconds: str
    work_width: float
    rest_width: float
    time_label: str
    updated: float
    updated_iso: str
    updated_ago: str
    archived: str
    """Place of its records; empty: the store."""


def view_of(row: RunRow, longest: float, now: float) -> Row:
    """A run as a row of the table.

    Args:
        row: the run, as the API lists it.
        longest: seconds from the first to the last moment of the longest run of the page.
        now: Unix seconds.
    """
    worked = row.seconds or 0.0
    rest = max(0.0, span_of(row, now) - worked)
    scale = (BAR - 2) / max(longest, 0.001)
    told, kind = _told(row)
    return Row(
        id=row.run_id,
        key=key_of(row.run_id),
        version=_version(row, told),
        status=row.status,
        graph=row.graph,
        input=row.input,
        told=told,
        kind=kind,
        labels=sorted(row.labels.items()),
        parent=row.parent,
        steps=f"{row.steps:,}",
        tokens="" if row.tokens is None else f"{row.tokens:,}",
        cost="" if not row.cost else f"{row.cost:.2f}" if row.cost >= 1 else f"{row.cost:.4f}",
        seconds=lasting(worked),
        work_width=round(2 + worked * scale, 1),
        rest_width=round(rest * scale, 1),
        time_label=f"worked {lasting(worked)}, waited {lasting(rest)}",
        updated=row.updated,
        updated_iso=utc(row.updated).isoformat(timespec="seconds"),
        updated_ago=ago(row.updated, now),
        archived=_place(row),
    )


def _version(row: RunRow, told: str) -> str:
    """Return a value that changes with the content of the row."""
    place = "" if row.archived is None else row.archived.name
    return key_of(f"{row.head} {row.status} {row.steps} {told} {row.waiting} {row.tokens} {row.deaths} {place}")


def _place(row: RunRow) -> str:
    return "" if row.archived is None else Archived(**row.archived.model_dump()).line()


def span_of(row: RunRow, now: float) -> float:
    """Seconds between the first and the last moment of a run; of one that is not over, until now."""
    stands = row.status in FINAL or row.status == "interrupted"
    return max(0.0, (row.updated if stands else max(row.updated, now)) - row.created)


def _told(row: RunRow) -> tuple[str, str]:
    if row.question:
        return row.question, "question"
    if row.error or (row.fault and row.deaths):
        return row.error or row.fault, "failed"
    return (row.output, "output") if row.output else ("", "")


def lasting(seconds: float) -> str:
    """A duration in a row."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that is set, and the address without it."""

    label: str
    without: str


_NAMES = {
    "graph": "graph",
    "label": "label",
    "q": "search",
    "parent": "from run",
    "relation": "made by",
    "since": "since",
    "failed_tool": "failed tool",
    "begun_since": "begun since",
    "begun_until": "begun until",
}
"""Filters that are shown with their values, and what they are called."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a list: its query, with something else in it."""

    root: str
    query: Sequence[tuple[str, str]]

    def __call__(self, changes: Mapping[str, str | None]) -> str:
        """The address with these parameters; None takes one away. It leads to the first page."""
        kept = [(name, value) for name, value in self.query if name not in changes]
        return self._with(kept + [(name, value) for name, value in changes.items() if value is not None])

    def page(self, cursor: str | None) -> str:
        """The address of the page after this cursor."""
        kept = [(name, value) for name, value in self.query if name != "after"]
        return f"{self.root}/runs?{urlencode([*kept, ('after', cursor)])}" if cursor else ""

    def filters(self) -> list[Filter]:
        """Filters that are set and have no chip of their own."""
        return [
            Filter(f"{_NAMES[pair[0]]}: {pair[1]}", self._with([one for one in self.query if one != pair]))
            for pair in self.query
            if pair[0] in _NAMES and pair[1] != "*"
        ]

    def _with(self, query: Sequence[tuple[str, str]]) -> str:
        pairs = [(name, value) for name, value in query if name != "after"]
        return f"{self.root}/runs{'?' if pairs else ''}{urlencode(pairs)}"

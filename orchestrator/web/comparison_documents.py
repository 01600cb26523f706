"""What answers about compared runs say, and the queries of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from orchestrator.kernel.status import RunStatus
from orchestrator.views.alignment import RowKind
from orchestrator.views.run_diff import DifferenceKind
from orchestrator.views.timeline import TimelineRowStatus
from orchestrator.web.documents import Document
from orchestrator.web.requests import Query

RunsToCompare = Annotated[
    list[Annotated[str, StringConstraints(max_length=2000)]],
    Field(
        min_length=1,
        description="Two to six ids, with commas between them or each in a parameter of its own; all are compared with "
        "the first.",
    ),
]
STEP = Annotated[str, StringConstraints(pattern=r"^(start|end|[0-9]{1,15}:.+)$", max_length=2000)]
"""A row as text, see `ComparedRow.key`."""


class AlignedQuery(Query):
    """Runs to put side by side, and which rows."""

    runs: RunsToCompare
    after: int = Field(0, ge=0, le=2**53, description="How many rows to leave out.")
    limit: int = Field(100, ge=1, le=500, description="The most rows in an answer.")
    different: bool = Field(False, description="Only rows in which a run differs from the first.")


class TextsQuery(Query):
    """A row of runs that are side by side."""

    runs: RunsToCompare
    step: STEP = Field(description="The `key` of a row.")


class ComparedFigures(Document):
    """One of the compared runs, with what a fork inherited and a replay did not spend."""

    run_id: str
    graph: str
    content: Annotated[str, Field(description="The digest of its graph.")]
    status: RunStatus
    input: Annotated[str, Field(description="The first line of the input.")]
    output: Annotated[str, Field(description="The first line of the output.")]
    steps: int
    calls: int
    tokens: int
    cost: float
    seconds: float


class ComparedStep(Document):
    """A step of one of the runs."""

    number: Annotated[int, Field(description="From 1, in the order in which the run's steps began.")]
    seq: Annotated[int | None, Field(description="The record that ended it; null: it has not ended.")]
    status: TimelineRowStatus
    outcome: str
    tokens: int
    cost: float
    seconds: Annotated[float, Field(description="Without waits.")]


class DifferenceNote(Document):
    """One difference from the first run."""

    kind: DifferenceKind
    what: str
    seqs: Annotated[list[int | None], Field(description="The records of both runs that show it.")]
    lines: Annotated[list[str], Field(description="Both texts as a diff; empty where many rows are listed.")]


class ComparedRow(Document):
    """The same step of all runs; or what they began with, or how they ended."""

    key: Annotated[str, Field(description="`start`, `end`, or a step as `VISIT:BRANCH/NODE`.")]
    number: int
    kind: RowKind
    path: str
    node: str
    visit: int
    name: str
    steps: Annotated[list[ComparedStep | None], Field(description="One for each run; empty for a start and an end.")]
    differences: Annotated[list[list[DifferenceNote]], Field(description="One list for each run but the first.")]


class AlignedRuns(Document):
    """Runs side by side."""

    runs: list[ComparedFigures]
    rows: list[ComparedRow]
    total: Annotated[int, Field(description="How many rows there are.")]
    differing: Annotated[int, Field(description="How many of them differ.")]
    first: Annotated[ComparedRow | None, Field(description="The first row that differs.")]
    cursor: Annotated[int | None, Field(description="`after` of the next part; null: this is the last.")]


class StateLines(Document):
    """How the state of a run after a step differs from that of the first run."""

    run_id: str
    same: bool
    lines: Annotated[list[str], Field(description="Fields with both values as a diff.")]


class RowTexts(Document):
    """A row with the lines of its differences."""

    row: ComparedRow
    states: Annotated[list[StateLines], Field(description="Of runs but the first that came to the step.")]


class AlignedEvent(Document):
    """The data of an event about compared runs: `ready` when the stream begins, then each `changed`."""

    type: Literal["ready", "changed"]

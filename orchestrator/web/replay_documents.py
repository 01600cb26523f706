"""What requests and answers about replays of many runs say."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from orchestrator.kernel.status import RunStatus
from orchestrator.web.documents import Document
from orchestrator.web.requests import Body, Name, Query
from orchestrator.web.settings import Risk

MOST = 100
"""Runs of one batch."""
BatchName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]{1,40}$"), Field(description="What the ids of the replays begin with.")
]
RunsToReplay = Annotated[
    list[Annotated[str, StringConstraints(max_length=2000)]],  # longer addresses are cut off by servers
    Field(
        min_length=1,
        description=f"Up to {MOST} ids, with commas between them or each in a parameter of its own.",
    ),
]
Outcome: TypeAlias = Literal[
    "absent", "waiting", "running", "same", "different", "asks", "failed", "stopped", "interrupted"
]
"""What came of the replay of one run.

absent        it was not begun, or is deleted
waiting       it is begun when others are over
running       it runs
same          it made the same calls and ended the same way
different     it asked something else, or ended otherwise
asks          it waits for an answer of a person
failed        the run cannot be replayed
stopped       the batch was stopped before
interrupted   no process drives it
"""


class ReplaysBody(Body):
    """Runs to replay, and how."""

    runs: Annotated[list[Name], Field(min_length=1, max_length=MOST, description="The ids of the runs.")]
    batch: BatchName | None = Field(
        None, description="Your own name: the same name and replays mean the same runs. Default: a new one."
    )
    at: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        None, description="The record to replay from; 0: the start."
    )
    graph: Name | None = Field(None, description="Another graph of this server.")
    approve: Risk | None = None
    live: Literal["never", "ask", "always"] = Field("never", description="What to do where a replay is live.")


class StopBody(Body):
    """A batch to stop."""

    batch: BatchName


class ReplaysQuery(Query):
    """The replays of some runs."""

    runs: RunsToReplay
    batch: BatchName


class ReplayRow(Document):
    """The replay of one run."""

    run_id: str
    replay_id: str
    input: Annotated[str, Field(description="The first line of the input of the run.")]
    graph: Annotated[str, Field(description="The graph of the replay.")]
    outcome: Outcome
    status: Annotated[RunStatus | Literal["diverged", ""], Field(description="Of the replay; empty: there is none.")]
    error: Annotated[str, Field(description="Why the run cannot be replayed.")]
    first: Annotated[str, Field(description="The first difference.")]
    step: Annotated[str, Field(description="The `key` of its row in a comparison.")]
    before: Annotated[str, Field(description="The first line of what the run answered.")]
    after: Annotated[str, Field(description="That of the replay.")]
    made: Annotated[int, Field(description="How many calls were made.")]
    saved_calls: int
    saved_cost: float
    cost: Annotated[float, Field(description="What the replay spent.")]


class ReplaysDocument(Document):
    """Replays of many runs."""

    batch: str
    going: Annotated[bool, Field(description="Whether this server works on it.")]
    done: Annotated[int, Field(description="How many are over.")]
    same: int
    different: int
    replays: list[ReplayRow]


class ReplaysEvent(Document):
    """The data of an event about replays: `ready` when the stream begins, then each `changed`."""

    type: Literal["ready", "changed"]

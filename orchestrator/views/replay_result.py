"""The result of a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from orchestrator.graph.limits import Usage
from orchestrator.kernel import records as r
from orchestrator.kernel.records import Record
from orchestrator.views.diff import diff_of, ended_diverged
from orchestrator.views.run import Run
from orchestrator.views.run_diff import RunDiff, short
from orchestrator.views.safe_text import told
from orchestrator.views.timeline import timeline

ReplayStatus: TypeAlias = Literal[
    "diverged", "running", "paused", "interrupted", "completed", "failed", "cancelled", "exhausted"
]
"""The status of a replay: that of its run, or `diverged` if it ended where live calls would follow."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The place where a replay first asked something that the replayed run did not ask."""

    path: str
    """The branch of the step; empty for the run's trunk."""
    node: str
    visit: int
    """Number of the step among the steps of that node in its branch, from 1."""
    seq: int
    """The replay's record."""
    kind: Literal["model", "tool", "effect", "question"]
    name: str
    """The model, the tool or the effect; for a question its kind."""
    why: str

    def __str__(self) -> str:
        place = f"{self.path}/{self.node}" if self.path else self.node
        visit = f" (visit {self.visit})" if self.visit > 1 else ""
        return f"{told(place, 200)}{visit}: {self.kind} {told(self.name, 80)}"

    def to_json(self) -> dict[str, Any]:
        """Return the divergence as plain JSON."""
        return {
            "path": self.path,
            "node": self.node,
            "visit": self.visit,
            "seq": self.seq,
            "kind": self.kind,
            "name": self.name,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of a run.

    Attributes:
        run: The replay, which is a run itself.
        parent: The replayed run.
        diff: Differences of the replay from the replayed run, up to where it ended as `diverged`.
        diverged_at: First request that the replayed run did not make; None if there is none.
        saved: Calls, tokens and cost saved by results of the replayed run.
    """

    run: Run
    parent: Run
    diff: RunDiff
    diverged_at: Divergence | None
    saved: Usage
    ended_diverged: bool = False
    _refused: int = 0
    """Number of calls for which the replayed run has no result, and that were not made."""

    @property
    def same(self) -> bool:
        """True if the replay made the same steps and requests, and ended the same way."""
        return self.diverged_at is None and not self.ended_diverged and self.diff.same

    @property
    def status(self) -> ReplayStatus:
        """The end of the replay: `diverged`, or the status of its run."""
        return "diverged" if self.ended_diverged else cast("ReplayStatus", self.run.status)

    @property
    def answer_changed(self) -> bool:
        """True if the output differs, or is unknown because the replay did not reach its end."""
        return (self.status, self.run.output) != (self.parent.status, self.parent.output)

    @property
    def made(self) -> int:
        """Number of calls of models and tools that were made, rather than taken from the replayed run."""
        return self.run.machine.own_usage.calls - self._refused

    def to_json(self) -> dict[str, Any]:
        """Return the replay as plain JSON."""
        return {
            "run_id": self.run.run_id,
            "parent": self.parent.run_id,
            "graph": self.run.graph,
            "status": self.status,
            "same": self.same,
            "answer_changed": self.answer_changed,
            "before": answer_of(self.parent),
            "after": answer_of(self.run),
            "diverged_at": None if self.diverged_at is None else self.diverged_at.to_json(),
            "made": self.made,
            "saved": self.saved.model_dump(mode="json", include={"calls", "input_tokens", "output_tokens", "cost"}),
            "diff": self.diff.to_json(),
        }

    def cells(self, width: int = 40) -> tuple[str, ...]:
        """Return the row for a table with the columns `COLUMNS`; `width`: characters of an answer."""
        if self.same:
            result = "same"
        elif self.diverged_at is not None:
            result = f"diverged at {self.diverged_at}"
        else:
            first = self.diff.first
            result = f"differs at {first.place}" if first is not None and first.node else "differs"
        ended = self.run.machine.ended is not None and self.status != "diverged"
        after = short(answer_of(self.run), width) if ended or self.same else "-"
        return (
            told(self.parent.run_id, 40),
            told(self.run.graph, 30),
            result,
            short(answer_of(self.parent), width),
            after,
            str(self.made),
            str(self.saved.calls),
            f"{self.saved.cost:g}",
        )


COLUMNS = ("run", "graph", "result", "answer before", "answer after", "calls made", "saved", "cost saved")


def table(replays: Sequence[Replay]) -> str:
    """Return replays as a table of text, without secrets."""
    rows = [COLUMNS, *(one.cells() for one in replays)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            f"{cell:{'<' if column < 5 else '>'}{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def answer_of(run: Run) -> Any:
    """Return the answer of a run: its output, or its error if it failed."""
    return run.output if run.error is None or run.status == "exhausted" else str(run.error)


def replay_of(parent: Run, before: Sequence[Record], run: Run, after: Sequence[Record]) -> Replay:
    """Compare a replay with the replayed run by the records of both.

    Args:
        parent: the replayed run.
        before: its records.
        run: the replay.
        after: its records.
    """
    own = 0 if run.machine.fork is None else run.machine.fork.seq
    first = next((record for record in after if isinstance(record, r.Diverged) and record.seq > own), None)
    return Replay(
        run,
        parent,
        diff_of(parent, before, run, after),
        None if first is None else _divergence(run, after, first),
        run.machine.saved,
        ended_diverged(after),
        _refused(after, own),
    )


def _refused(records: Sequence[Record], after: int) -> int:
    """Count the calls that were started, only to wait for the reason that stopped them in the replayed run."""
    begun: dict[str, bool] = {}
    for record in records[after:]:
        if isinstance(record, r.EffectIntended) and record.kind != "effect":
            begun[record.key] = record.taken is not None
        elif isinstance(record, r.EffectSettled) and record.key in begun:
            begun[record.key] &= record.error is not None and record.error.type == "NotMade"
    return sum(begun.values())


def _divergence(run: Run, records: Sequence[Record], found: r.Diverged) -> Divergence:
    visits: Counter[tuple[str, str]] = Counter()
    visit = 1
    for row in timeline(run.plan, records).rows:
        visits[row.path, row.node] += 1
        if row.activation == found.activation:
            visit = visits[row.path, row.node]
    return Divergence(found.path, found.node, visit, found.seq, found.kind, found.name, found.why)

"""How two runs differ, as data: what `diff` gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.views.run import Run
from orchestrator.views.safe_text import told

DifferenceKind: TypeAlias = Literal[
    "state", "step", "request", "result", "question", "answer", "attempt", "outcome", "update", "error", "status",
    "output",
]  # fmt: skip
"""What differs.

state      the state that the run began with, or that a fork or a migration set
step       one run came to the step, and the other did not
request    a call of the step asked something else, or only one run made it
result     a call got another result
question   the step asked something else
answer     a question got another answer
attempt    the step failed and was tried again in one run only, or for another reason
outcome    the step took another outcome
update     the step updated the state otherwise
error      the step failed otherwise
status     the runs ended otherwise
output     the runs have other outputs
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two runs."""

    kind: DifferenceKind
    path: str = ""
    """The branch of the step; empty for the run's trunk, and for what concerns the whole run."""
    node: str = ""
    """The step's node; empty for what concerns the whole run."""
    visit: int = 0
    """The how-manieth step of that node in its branch, from 1; 0 for what concerns the whole run."""
    seqs: tuple[int | None, int | None] = (None, None)
    """The record of each run that shows it, if it has one."""
    what: str = ""
    """The difference on one line."""
    lines: tuple[str, ...] = ()
    """Both texts as a diff: `-` of the first run, `+` of the second."""

    @property
    def place(self) -> str:
        """The step as text, such as `plan.2/search (visit 3)`; empty for what concerns the whole run."""
        if not self.node:
            return ""
        name = f"{self.path}/{self.node}" if self.path else self.node
        return f"{name} (visit {self.visit})" if self.visit > 1 else name

    @property
    def line(self) -> str:
        """The difference on one line, with its place."""
        return f"{self.place}: {self.what}" if self.node else self.what

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "kind": self.kind, "path": self.path, "node": self.node, "visit": self.visit, "seqs": list(self.seqs),
            "what": self.what, "lines": list(self.lines),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One of two compared runs in figures."""

    run_id: str
    graph: str
    content: str
    """Digest of its graph's content."""
    status: str
    steps: int
    usage: Usage
    """What it used, with what a fork inherited and a replay did not spend."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        usage = self.usage.model_dump(mode="json", include={"calls", "input_tokens", "output_tokens", "cost"})
        return {
            "run_id": self.run_id, "graph": self.graph, "content": self.content, "status": self.status,
            "steps": self.steps, **usage,
        }  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """As a row of a table."""
        usage = self.usage
        figures = (self.steps, usage.calls, usage.input_tokens, usage.output_tokens)
        return (told(self.run_id, 40), told(self.graph, 40), self.status, *map(str, figures), f"{usage.cost:g}")


def figures_of(run: Run) -> RunFigures:
    """A run in figures."""
    graph = run.definition
    return RunFigures(run.run_id, graph.name, graph.content, run.status, run.steps, run.machine.usage)


_COLUMNS = ("run", "graph", "status", "steps", "calls", "tokens in", "tokens out", "cost")


@dataclass(frozen=True, slots=True)
class RunDiff:
    """How two runs differ. Times, ids, costs and who answered are not compared; nor is which branch was faster.

    Attributes:
        figures: Both runs in figures: steps, calls, tokens, cost.
        differences: The differences in the order of the runs, the first one first.
        more: Whether there are further differences, which were left out.
    """

    figures: tuple[RunFigures, RunFigures]
    differences: tuple[Difference, ...]
    more: bool = False
    _runs: tuple[Run, Run] | None = field(default=None, repr=False, compare=False)

    @property
    def same(self) -> bool:
        """Whether both took the same steps, asked and got the same, and ended the same."""
        return not self.differences

    @property
    def first(self) -> Difference | None:
        """The first difference; None if there is none."""
        return self.differences[0] if self.differences else None

    @property
    def same_graph(self) -> bool:
        """Whether both are runs of the same graph with the same content."""
        one, other = self.figures
        return (one.graph, one.content) == (other.graph, other.content)

    @property
    def lines(self) -> tuple[str, ...]:
        """The diff as lines for a terminal, without secrets."""
        rows = [_COLUMNS, *(one.cells() for one in self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        found = [
            "  ".join(
                f"{cell:{'<' if column < 3 else '>'}{width}}"
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        if not self.same_graph and self.figures[0].graph == self.figures[1].graph:
            found.append("The runs are of different versions of the graph.")
        if self.same:
            return (*found, "", "Both took the same steps, asked and got the same, and ended the same.")
        for number, one in enumerate(self.differences):
            found += ["", f"{'First difference: ' if number == 0 else ''}{one.line}{_records(one.seqs)}"]
            found += [f"    {line}" for line in one.lines]
        return (*found, "", "There are more differences.") if self.more else tuple(found)

    def to_text(self) -> str:
        """The diff as text."""
        return "\n".join(self.lines)

    def to_json(self) -> dict[str, Any]:
        """The diff as plain JSON."""
        return {
            "same": self.same,
            "same_graph": self.same_graph,
            "runs": [one.to_json() for one in self.figures],
            "differences": [one.to_json() for one in self.differences],
            "more": self.more,
        }

    def to_html(self) -> str:
        """A page of both runs side by side. Reads the runs' records and blocks meanwhile.

        Returns:
            An HTML document that needs nothing else.
        """
        if self._runs is None:
            raise ValueError("this diff was made without its runs: use run.to_html(other)")
        one, other = self._runs
        return one.to_html(other)


def _records(seqs: tuple[int | None, int | None]) -> str:
    if seqs == (None, None):
        return ""
    one, other = ("none" if seq is None else str(seq) for seq in seqs)
    return f"  (records {one} and {other})"

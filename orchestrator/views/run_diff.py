"""The difference of two runs as data, as `diff` returns it, and calls as lines of text for it.

Secrets are redacted before texts are cut, and long lines are wrapped, so that a diff of two prompts shows the sentence
that differs.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any, Literal, TypeAlias

from orchestrator.graph.limits import Usage
from orchestrator.kernel.records import EffectIntended
from orchestrator.kernel.requests import Requests
from orchestrator.redaction import redacted
from orchestrator.views.run import Run
from orchestrator.views.safe_text import bare, cut, plain, told

LONGEST = 50_000
"""Maximum number of characters of a call that are compared line by line."""
WIDTH = 160
"""Maximum number of characters of a line; a longer one is wrapped."""
MOST_LINES = 60
"""Lines of one diff."""
_CONTEXT = 2
_MOST_COMPARED = 2_000
"""Maximum number of lines of a call that are compared: the time for a diff grows faster than linearly."""


def request_lines(intended: EffectIntended, requests: Requests) -> list[str]:
    """Return the request of a call, as lines.

    Args:
        intended: the call.
        requests: the requests of its journal.
    """
    request = requests.whole(intended) if intended.kind == "model" else dict(intended.request)
    lines = [f"{intended.kind} {intended.name}"]
    if intended.kind == "model":
        for one in _list(request.pop("messages", ())):
            lines += _message_lines(one if isinstance(one, Mapping) else {})
        offered = [one for one in _list(request.pop("tools", ())) if isinstance(one, Mapping)]
        if offered:
            lines.append(f"tools: {', '.join(_name_of(one) for one in offered)}")
            lines += [line for one in offered for line in _json_lines(one)]
        request = {key: value for key, value in request.items() if value not in (None, {}, [])}
    lines += _json_lines(request)
    return _bounded(lines)


def value_lines(value: object) -> list[str]:
    """Return a value of a journal, as lines: text unchanged, other values as JSON."""
    return _bounded(_json_lines(value))


def line_diff(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    """Return the lines that differ, with context: `-` for the first, `+` for the second, `@@` between two places."""
    found = list(unified_diff(one, other, n=_CONTEXT, lineterm=""))[2:]
    if not found:
        return ("they differ in what is not shown: a secret, or text behind the first characters",)
    if len(found) > MOST_LINES:
        return (*found[:MOST_LINES], f"… {len(found) - MOST_LINES} more lines")
    return tuple(found)


def short(value: object, limit: int = 200) -> str:
    """Return a value on one line, without secrets."""
    clean = redacted(value)
    return told(clean if isinstance(clean, str) else json.dumps(clean, ensure_ascii=False, sort_keys=True), limit)


def _message_lines(message: Mapping[str, object]) -> Iterator[str]:
    yield f"{message.get('role', 'message')}:"
    yield from _json_lines(message.get("content", ""))
    more = {
        key: value
        for key, value in message.items()
        if key not in ("role", "content", "digest") and value not in (None, {}, [], "")
    }
    if more:
        yield from _json_lines(more)


def _name_of(offered: Mapping[str, object]) -> str:
    inner = offered.get("function")
    return str((inner if isinstance(inner, Mapping) else offered).get("name", "?"))


def _json_lines(value: object) -> list[str]:
    value = redacted(value)
    if value in (None, {}, [], ""):
        return []
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
    return value.splitlines()


def _bounded(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    room = LONGEST
    for line in lines:
        if room <= 0 or len(found) >= _MOST_COMPARED:
            break
        text = plain(bare(cut(line, room)))
        room -= len(text) + 1
        found += textwrap.wrap(text, WIDTH, drop_whitespace=False, break_on_hyphens=False) or [""]
    return found


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


DifferenceKind: TypeAlias = Literal[
    "state",
    "step",
    "request",
    "result",
    "question",
    "answer",
    "attempt",
    "outcome",
    "update",
    "error",
    "status",
    "output",
]
"""The kind of a difference.

state      the initial state, or one set by a fork or a migration
step       only one run reached the step
request    a call of the step had another request, or only one run made it
result     a call got another result
question   the step asked something else
answer     a question got another answer
attempt    the step failed and was tried again in one run only, or for another reason
outcome    the step took another outcome
update     the step updated the state differently
error      the step failed differently
status     the runs ended differently
output     the runs have other outputs
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two runs."""

    kind: DifferenceKind
    path: str = ""
    """The branch of the step; empty for the run's trunk, and for differences of the whole run."""
    node: str = ""
    """The step's node; empty for differences of the whole run."""
    visit: int = 0
    """Number of the step among those of the node in its branch, from 1; 0 if the difference concerns the whole run."""
    seqs: tuple[int | None, int | None] = (None, None)
    """The record of each run that shows it, if any."""
    what: str = ""
    """The difference on one line."""
    lines: tuple[str, ...] = ()
    """Both texts as a diff: `-` of the first run, `+` of the second."""

    @property
    def place(self) -> str:
        """The step as text, such as `plan.2/search (visit 3)`; empty for differences of the whole run."""
        if not self.node:
            return ""
        name = f"{self.path}/{self.node}" if self.path else self.node
        return f"{name} (visit {self.visit})" if self.visit > 1 else name

    @property
    def line(self) -> str:
        """Return the difference on one line, with its place."""
        return f"{self.place}: {self.what}" if self.node else self.what

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain JSON."""
        return {
            "kind": self.kind,
            "path": self.path,
            "node": self.node,
            "visit": self.visit,
            "seqs": list(self.seqs),
            "what": self.what,
            "lines": list(self.lines),
        }


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of a compared run."""

    run_id: str
    graph: str
    content: str
    """Digest of its graph's content."""
    status: str
    steps: int
    usage: Usage
    """Its usage, including the inherited usage of a fork and the saved usage of a replay."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        usage = self.usage.model_dump(mode="json", include={"calls", "input_tokens", "output_tokens", "cost"})
        return {
            "run_id": self.run_id,
            "graph": self.graph,
            "content": self.content,
            "status": self.status,
            "steps": self.steps,
            **usage,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the figures as a row of a table."""
        usage = self.usage
        figures = (self.steps, usage.calls, usage.input_tokens, usage.output_tokens)
        return (told(self.run_id, 40), told(self.graph, 40), self.status, *map(str, figures), f"{usage.cost:g}")


def figures_of(run: Run) -> RunFigures:
    """Return the figures of a run."""
    graph = run.definition
    return RunFigures(run.run_id, graph.name, graph.content, run.status, run.steps, run.machine.usage)


_COLUMNS = ("run", "graph", "status", "steps", "calls", "tokens in", "tokens out", "cost")


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The difference of two runs. Times, ids, costs, answering persons and the order of branches are not compared.

    Attributes:
        figures: Figures of both runs: steps, calls, tokens, cost.
        differences: The differences in the order of the runs.
        more: Whether further differences were left out.
    """

    figures: tuple[RunFigures, RunFigures]
    differences: tuple[Difference, ...]
    more: bool = False
    _runs: tuple[Run, Run] | None = field(default=None, repr=False, compare=False)

    @property
    def same(self) -> bool:
        """True if both took the same steps, made the same requests with the same results, and ended the same way."""
        return not self.differences

    @property
    def first(self) -> Difference | None:
        """The first difference; None if there is none."""
        return self.differences[0] if self.differences else None

    @property
    def same_graph(self) -> bool:
        """True if both are runs of the same graph with the same content."""
        one, other = self.figures
        return (one.graph, one.content) == (other.graph, other.content)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the diff as lines for a terminal, without secrets."""
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
        """Return the diff as text."""
        return "\n".join(self.lines)

    def to_json(self) -> dict[str, Any]:
        """Return the diff as plain JSON."""
        return {
            "same": self.same,
            "same_graph": self.same_graph,
            "runs": [one.to_json() for one in self.figures],
            "differences": [one.to_json() for one in self.differences],
            "more": self.more,
        }

    def to_html(self) -> str:
        """Make a page of both runs side by side. Reads the runs' records and blocks meanwhile.

        Returns:
            A self-contained HTML document.

        Raises:
            ValueError: the diff was made without its runs.
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

"""The report on a run as text: its status and its steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.redaction import redacted
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.excerpts import update_text, value_text
from orchestrator.render.terminal.texts import STATUS, coloured
from orchestrator.values import shown_labels
from orchestrator.views.explainer import guards_told
from orchestrator.views.worker_info import moment
from orchestrator.visible import BAR, barred, behind, line, narrow

if TYPE_CHECKING:
    from orchestrator.graph.limits import Usage
    from orchestrator.kernel.records import Forked
    from orchestrator.stores.rows import Note
    from orchestrator.views.explainer import RunReasons
    from orchestrator.views.history import Point
    from orchestrator.views.run import Run


_WIDTH = 120
"""Cells for the update of a step, without a terminal."""
_LEAST = 24


def run_text(
    run: Run,
    points: Sequence[Point],
    why: RunReasons,
    approved: Sequence[str],
    waiting: str,
    ahead: str = "",
    place: str = "",
    notes: Sequence[Note] = (),
    *,
    width: int | None = None,
) -> str:
    """Report on a run: question and answer first, then the reason of its status, its steps, branches and state.

    Args:
        run: the run.
        points: its steps.
        why: reasons of its status, and of each step.
        approved: lines about the approvals in its journal.
        waiting: the text of its open questions; empty if there are none.
        ahead: the commands that continue it, which come last; empty if there are none.
        place: the line of the user's code where it failed; empty if there is none.
        notes: what people wrote about it.
        width: cells in a line of the terminal; None: not a terminal.
    """
    spent = ", ".join((*_spent(run.steps, run.usage), *_from_cache(run.usage), texts.duration(run.seconds)))
    status = "diverged" if run.ended_diverged else run.status
    lines = [f"{line(run.run_id)}  {line(run.graph)}  {status}  (record {run.seq}; {spent})"]
    lines += _asked_and_answered(run, waiting, place)
    parent = run.parent
    if parent is not None:
        lines.append(f"parent  {line(parent.run_id)}, record {parent.seq}  ({parent.relation}){_inherited(run)}")
    lines.append(f"why  {why.run}")
    lines += [f"not taken  {event.line}" for event in why.untaken]
    if run.standby is not None and run.standby.fault:
        lines.append(f"fault  {behind(str(redacted(run.standby.fault)))}")
    if run.archived is not None:
        lines.append(f"archived  {line(run.archived.line())}")
    if run.labels:
        lines.append("labels  " + line(" ".join(f"{key}={value}" for key, value in shown_labels(run.labels).items())))
    lines += approved
    if points:
        cached = sum(point.cached for point in points)
        lines.append(f"history  {cached} of {len(points)} steps from cache" if cached else "history")
        for point, forks in zip(points, _forks_before(run, points), strict=True):
            lines += [f"  ----- forked from {line(one.parent)} at record {one.at}" for one in forks]
            lines.append(step_line(point, width))
            lines += _replaced(point, width)
            if point.seq in why.steps:
                lines.append(f"         why  {why.steps[point.seq].line}")
    if len(run.branches) > 1:
        lines.append("branches")
        lines += [f"  {line(one.path or '-')}  {line(one.node)}  {one.phase}" for one in run.branches]
    if notes:
        lines += ["notes", *note_lines(notes)]
    lines.append("state")
    names = max(map(texts.columns_of, map(line, run.values)), default=0)
    room = max(_LEAST, (width or _WIDTH) - names - 4)
    lines += [
        f"  {texts.padded(line(name), names)}  {value_text(value, room, name=name)}"
        for name, value in run.values.items()
    ]
    if ahead:
        lines.append(ahead)
    return "\n".join(lines)


def note_lines(notes: Sequence[Note], *, ids: bool = False) -> list[str]:
    """Return notes as lines, the oldest first.

    Args:
        notes: the notes.
        ids: whether each is shown with its id.
    """
    lines: list[str] = []
    for note in notes:
        about = "run" if note.step is None else f"record {note.step}"
        score = "" if note.score is None else f"{note.score:g}"
        facts = [about, *filter(None, (line(note.name), score, line(note.by), moment(note.at)))]
        lines.append(f"  {redacted('  '.join(facts))!s}{f'  [{line(note.id)}]' if ids else ''}")
        lines += _whole(note.text).split("\n") if note.text else ()
    return lines


_HEADINGS = ("question", "answer", "history", "branches", "notes", "state")


def with_colours(text: str, status: str) -> str:
    """Return the text of `run_text`, already safe to show, with bold headings and the status in its colour."""
    first, *rest = text.split("\n")
    first = first.replace(f"  {status}  (", f"  {coloured(status, STATUS.get(status, ''))}  (", 1)
    # Untrusted text is always indented or follows a fixed label.
    return "\n".join([first, *(coloured(one, "bold") if one in _HEADINGS else one for one in rest)])


def _asked_and_answered(run: Run, waiting: str, place: str) -> Iterator[str]:
    """Yield the input of a run, and its answer, its error, or its own open questions."""
    question = _question(run)
    if question not in (None, ""):
        yield from ("question", _whole(question))
    if run.error is not None:
        yield f"error  {behind(str(redacted(str(run.error))))}"
    if place:
        yield place
    if run.output is not None:
        yield from ("answer", _whole(run.output))
    if waiting:
        yield waiting


def _question(run: Run) -> object:
    """Return the initial field or fields of a run, if its graph names them."""
    started, graph = run.machine.started, run.machine.plan.graph
    fields = None if started is None or graph is None else graph.input
    if started is None or not fields:
        return None
    if isinstance(fields, str):
        return started.values.get(fields)
    return {name: started.values.get(name) for name in fields}


def _whole(value: object) -> str:
    # An object is indented by one: longer runs of blanks are replaced by their number.
    said = redacted(value)
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, indent=1, default=str)
    return barred(text, f"  {BAR}")


def _inherited(run: Run) -> str:
    """Return the usage of the runs that it was forked from."""
    spent = run.inherited
    if not spent.steps and not spent.calls:
        return ""
    steps, calls, tokens = _spent(spent.steps, spent)
    return f"; it inherited {steps}, {calls} and {tokens}, which count in limits"


def _spent(steps: int, usage: Usage) -> tuple[str, str, str]:
    return texts.counted(steps, "step"), texts.counted(usage.calls, "call"), texts.counted(usage.tokens, "token")


def _from_cache(usage: Usage) -> Iterator[str]:
    """Yield what the provider's cache gave and saved, if it did."""
    if usage.cached_tokens:
        yield f"{usage.cached_tokens} cached"
    if usage.cache_savings:
        yield f"{usage.cache_savings:.4f} saved by the provider's cache"


def _forks_before(run: Run, points: Sequence[Point]) -> list[list[Forked]]:
    """Return for each step the forks of the run between it and the step before."""
    forks, found = list(run.machine.forks), []
    for point in points:
        found.append([one for one in forks if one.seq < point.seq])
        forks = [one for one in forks if one.seq > point.seq]
    return found


def _replaced(point: Point, width: int | None) -> Iterator[str]:
    """Yield what a `Compact` or `ClearResults` replaced, and the option that shows the conversation before."""
    before = "" if point.path else f"; --at {point.seq - 1} has them"
    for value in point.update.values():
        talk = value if isinstance(value, list) else []
        cleared = sum(_mark(message, "tool", "cleared") is not None for message in talk)
        if point.outcome == "cleared" and cleared:
            yield f"         replaced  results of tools, {cleared} so far{before}"
        summaries = [(count, one["content"]) for one in talk if (count := _mark(one, "user", "summary_of")) is not None]
        for count, content in summaries[-1:] if point.outcome == "compacted" else ():
            text = " ".join(str(content).partition("]")[2].replace("\n> ", "\n").split())
            begin = f"         replaced  {count} messages{before}: "
            yield f"{begin}{value_text(text, max(_LEAST, (width or _WIDTH) - len(begin)))}"


def _mark(message: object, role: str, name: str) -> int | None:
    """Return the number in the data of a message of a role; None if there is none."""
    data = message.get("data") if isinstance(message, dict) and message.get("role") == role else None
    count = data.get(name) if isinstance(data, dict) else None
    return count if isinstance(count, int) else None


def step_line(point: Point, width: int | None = None) -> str:
    """Return a step as one line: record, place, outcome, and its update or error.

    Args:
        point: the step.
        width: cells in a line of the terminal; None: not a terminal.
    """
    place = line(f"{point.path}/{point.node}" if point.path else point.node)
    outcome = "" if point.outcome in ("done", None) else f" -> {line(str(point.outcome))}"
    failed = f"  [{point.failed} failed call{'' if point.failed == 1 else 's'}]" if point.failed else ""
    outcome += f"  [{point.unasked}]" if point.unasked else ""
    guards = f"  [{line(guards_told(point.guards))}]" if point.guards else ""
    marks = f"{'  [from cache]' if point.cached else ''}{failed}{guards}"
    begin = f"  {point.seq:>5}  {narrow(f'{place}{outcome}')}{marks}  "
    if point.error is not None:
        said = narrow(f"{'' if point.outcome == 'exhausted' else 'failed: '}{redacted(str(point.error))}")
    else:
        said = update_text(point.update) if point.update else ""
    room = _WIDTH if width is None else max(_LEAST, width - texts.columns_of(begin))
    return f"{begin}{texts.fitting(said, room)}".rstrip()

"""Where a run stands and what it did, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.redaction import redacted
from orchestrator.render.terminal import texts
from orchestrator.views.explainer import guards_told
from orchestrator.visible import BAR, barred, behind, line, narrow

if TYPE_CHECKING:
    from orchestrator.kernel.records import Forked
    from orchestrator.views.explanation import RunReasons
    from orchestrator.views.history import Point
    from orchestrator.views.run import Run


def run_text(run: Run, points: Sequence[Point], why: RunReasons, approved: Sequence[str], waiting: str) -> str:
    """Where a run stands and what it did: its spending, state, branches, steps and output.

    Args:
        run: the run.
        points: its steps.
        why: why it is where it is, and why each step ran.
        approved: lines on what its journal approves.
        waiting: the text of its open questions; empty if there are none.
    """
    usage = run.usage
    spent = f"{run.steps} steps, {usage.calls} calls, {usage.tokens} tokens, {texts.duration(run.seconds)}"
    lines = [f"{line(run.run_id)}  {line(run.graph)}  {run.status}  (record {run.seq}; {spent})"]
    parent = run.parent
    if parent is not None:
        lines.append(f"parent  {line(parent.run_id)}, record {parent.seq}  ({parent.relation}){_inherited(run)}")
    lines.append(f"why  {why.run}")
    if run.standby is not None and run.standby.fault:
        lines.append(f"fault  {behind(str(redacted(run.standby.fault)))}")
    if run.labels:
        lines.append("labels  " + line(" ".join(f"{key}={value}" for key, value in run.labels.items())))
    if run.error is not None:
        lines.append(f"error  {behind(str(redacted(str(run.error))))}")
    lines += approved
    lines.append("state")
    lines += [f"  {line(name)}  {texts.short(_shown(value), 100)}" for name, value in run.values.items()]
    if len(run.branches) > 1:
        lines.append("branches")
        lines += [f"  {line(one.path or '-')}  {line(one.node)}  {one.phase}" for one in run.branches]
    if points:
        cached = sum(point.cached for point in points)
        lines.append(f"history  {cached} of {len(points)} steps from cache" if cached else "history")
        for point, forks in zip(points, _forks_before(run, points), strict=True):
            lines += [f"  ----- forked from {line(one.parent)} at record {one.at}" for one in forks]
            lines.append(step_line(point))
            if point.seq in why.steps:
                lines.append(f"         why  {why.steps[point.seq].line}")
    if run.output is not None:
        lines += ["output", barred(str(redacted(texts.plain(run.output))), f"  {BAR}")]
    if waiting:
        lines.append(waiting)
    return "\n".join(lines)


def _inherited(run: Run) -> str:
    """What the runs that it was forked from had spent."""
    spent = run.inherited
    if not spent.steps and not spent.calls:
        return ""
    return f"; it inherited {spent.steps} steps, {spent.calls} calls and {spent.tokens} tokens, which count in limits"


def _forks_before(run: Run, points: Sequence[Point]) -> list[list[Forked]]:
    """For each step the forks of the run that lie between it and the step before."""
    forks, found = list(run.machine.forks), []
    for point in points:
        found.append([one for one in forks if one.seq < point.seq])
        forks = [one for one in forks if one.seq > point.seq]
    return found


def step_line(point: Point) -> str:
    """A step as one line: record, place, outcome, and what it wrote or why it failed."""
    place = line(f"{point.path}/{point.node}" if point.path else point.node)
    outcome = "" if point.outcome in ("done", None) else f" -> {line(str(point.outcome))}"
    said = _shown(dict(point.update)) if point.update else ""
    if point.error is not None:
        said = f"{'' if point.outcome == 'exhausted' else 'failed: '}{redacted(str(point.error))}"
    failed = f"  [{point.failed} failed call{'' if point.failed == 1 else 's'}]" if point.failed else ""
    outcome += f"  [{point.unasked}]" if point.unasked else ""
    guards = f"  [{line(guards_told(point.guards))}]" if point.guards else ""
    marks = f"{'  [from cache]' if point.cached else ''}{failed}{guards}"
    return f"  {point.seq:>5}  {narrow(f'{place}{outcome}')}{marks}  {texts.short(narrow(said))}".rstrip()


def _shown(value: object) -> str:
    return str(redacted(texts.compact(value)))

"""Breakpoints: nodes before or after which a run pauses. The fold decides it, so it holds after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.kernel import pools
from orchestrator.kernel.question import PAUSE, Question
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, Breakpoints, FrameState


def change(run: RunState, before: Sequence[str] | None, after: Sequence[str] | None) -> None:
    """Set the nodes before and after which the run pauses; None: those that it has."""
    stops = run.breakpoints or Breakpoints()
    stops = replace(
        stops,
        before=stops.before if before is None else frozenset(before),
        after=stops.after if after is None else frozenset(after),
    )
    run.breakpoints = None if stops == Breakpoints() else stops


def stops_before(run: RunState, frame: FrameState, activation: Activation) -> bool:
    """Whether the run pauses before a step that is about to begin."""
    stops = run.breakpoints
    if stops is None or activation.counted:  # it began before
        return False
    if activation.key in stops.passed:
        run.breakpoints = replace(stops, passed=stops.passed - {activation.key})
        return False
    place = _place(frame, activation.node)
    if place in stops.before:
        _pause(run, activation, "before", place)
        run.breakpoints = replace(stops, at=place)
        return True
    return False


def landed(run: RunState, activation: Activation) -> None:
    """Pause, if the run is to pause after the node of a step that has ended."""
    stops = run.breakpoints
    if stops is None or run.paused or run.result is not None:
        return
    place = _place(activation.frame, activation.node)
    if place in stops.after:
        _pause(run, activation, "after", place)


def let_through(run: RunState) -> None:
    """The run goes on: what waits at the node before which it stands may begin."""
    stops = run.breakpoints
    if stops is not None and stops.at:
        waiting = {
            token.key
            for frame in run.frames()
            for token in (*frame.queue, *pools.in_line(run, frame))
            if not token.counted and _place(frame, token.node) == stops.at
        }
        run.breakpoints = replace(stops, at="", passed=stops.passed | waiting)


def _pause(run: RunState, activation: Activation, when: str, place: str) -> None:
    run.paused = True
    prompt = f"paused {when} {place}"
    run.questions[PAUSE] = Question(id=PAUSE, kind="pause", node=activation.node, path=activation.path, prompt=prompt)
    run.asked[PAUSE] = run.updated


def _place(frame: FrameState, node: str) -> str:
    return f"{frame.place}/{node}" if frame.place else node

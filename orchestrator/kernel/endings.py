"""Ends activations and graphs: dropping a token ends the graph inside it, ending a graph drops its tokens (R13)."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.kernel import reservations, tokens
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, Phase


def stop(run: RunState, key: str) -> Activation | None:
    """Take an activation out of what runs, and return it; None if it did not run."""
    activation = run.running.pop(key, None)
    if activation is not None:
        for frame in activation.frame.line:
            frame.active -= 1
    return activation


def drop(run: RunState, token: Activation) -> None:
    """Remove a live token: stop it, end the graph inside it, withdraw its questions."""
    tokens.withdraw(token)
    for observer in run.observers:
        observer.dropped(token)
    if stop(run, token.key) is not None:
        run.delta.cancelled.append(token)
    if run.reserves:
        reservations.release(run, token)
    inner = run.inner_frames.pop(token.key, None)
    if inner is not None:
        inner.parent_dropped = True
        finish(run, inner, FrameResult("cancelled", inner.trunk.values))
    if token.phase is Phase.ASKING:
        for question in [question for question, asker in run.askers.items() if asker is token]:
            del run.askers[question]
            run.questions.pop(question, None)
            run.asked_at.pop(question, None)


def finish(run: RunState, frame: FrameState, result: FrameResult) -> None:
    """End a graph: drop the tokens it has left, and hand its result to the activation around it, or to the run."""
    if frame.result is not None:
        return
    for observer in run.observers:
        observer.finished(frame, result)
    frame.result = replace(result, irreversible=frame.irreversible) if frame.irreversible else result
    frame.exhausting = None
    for token in list(frame.live.values()):
        if token.key in frame.live:
            drop(run, token)
    frame.queue.clear()
    frame.touched_joins.clear()
    frame.touched_items.clear()
    frame.ended_versions = []
    _hand_over(run, frame)


def _hand_over(run: RunState, frame: FrameState) -> None:
    parent = frame.parent
    if parent is None:
        run.result = frame.result
        run.questions.clear()
        return
    if frame.parent_dropped or run.inner_frames.pop(parent.key, None) is None:
        return
    parent.child = frame.result
    parent.phase = Phase.RUNNING
    for outer in parent.frame.line:
        outer.active += 1
    run.running[parent.key] = parent
    run.delta.started.append(parent)

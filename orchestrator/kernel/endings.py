"""Ends activations and graphs: dropping a token ends the graph inside it, ending a graph drops its tokens (R13).

A graph that fails or is cancelled is frozen: its tokens are no longer live, and are kept for `kernel.reopening`. They
are discarded when the step around the graph ends in another way, or is dropped for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import structs

from orchestrator.kernel import pools, tokens
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameResult, FrameState, FrozenTokens, Phase

_FREEZING = frozenset({"failed", "cancelled"})


def stop(run: RunState, key: str) -> Activation | None:
    """Remove an activation from the running ones, and return it; None if it was not running."""
    activation = run.running.pop(key, None)
    if activation is not None:
        if key in run.totals.working:
            run.totals.rest(key, run.seconds)
        for frame in activation.frame.line:
            frame.active -= 1
    return activation


def drop(run: RunState, token: Activation) -> None:
    """Remove a live token for good: stop it, end the graph inside it, withdraw its questions."""
    if token.phase is Phase.IN_LINE:
        pools.leave_line(run, token)
    tokens.withdraw(token)
    _silence(run, token, keep=False)
    pools.give_up(run, token)
    forget_kept(run, token)
    run.stopped.pop(token.key, None)


def _silence(run: RunState, token: Activation, *, keep: bool) -> None:
    """Stop a token that is no longer live, end the graph inside it, withdraw its questions."""
    for observer in run.observers:
        observer.dropped(token)
    if stop(run, token.key) is not None:
        run.delta.cancelled.append(token)
        if keep:
            run.stopped[token.key] = token
    if run.reserves:
        pools.release(run, token)
    inner = run.inner_frames.pop(token.key, None)
    if inner is not None:
        inner.parent_dropped = True
        finish(run, inner, FrameResult("cancelled", inner.trunk.values), keep=keep)
        if keep:
            token.kept = inner
    if token.phase is Phase.ASKING:
        for question in [question for question, asker in run.askers.items() if asker is token]:
            del run.askers[question]
            asked = run.questions.pop(question, None)
            run.asked_at.pop(question, None)
            run.asked.pop(question, None)
            if keep:
                token.asked_before |= {question}
            if keep and asked is not None and asked.kind == "timer" and asked.deadline is not None:
                token.timers = {**token.timers, question: asked.deadline}


def set_aside(run: RunState, frame: FrameState) -> FrozenTokens:
    """Remove all tokens from a graph unchanged, so that they can be put back."""
    pools.rejoin_queue(run, frame)
    frozen = FrozenTokens(frame.live, frame.queue, frame.ended_versions)
    frame.live, frame.queue, frame.ended_versions = {}, deque(), []
    for token in frozen.live.values():
        _silence(run, token, keep=True)
    return frozen


def forget(run: RunState, frozen: FrozenTokens | None) -> None:
    """Discard tokens that were set aside: they will not be put back."""
    for token in () if frozen is None else frozen.live.values():
        run.stopped.pop(token.key, None)
        run.ledger.forget_failed(token.key)
        pools.give_up(run, token)
        forget_kept(run, token)


def forget_kept(run: RunState, activation: Activation) -> None:
    """Discard the frozen graph inside an activation, if there is one."""
    kept, activation.kept = activation.kept, None
    if kept is not None:
        forget(run, kept.frozen)


def all_tokens(frame: FrameState) -> Iterator[Activation]:
    """Yield the tokens of a graph, including those that were set aside."""
    yield from frame.live.values()
    for part in (frame.frozen, frame.before_limit):
        yield from () if part is None else part.live.values()


def has_aside(frame: FrameState) -> bool:
    """Return True if a graph keeps tokens set aside when a limit was spent, or frozen graphs inside its steps."""
    return frame.before_limit is not None or any(token.kept is not None for token in frame.live.values())


def kept_frames(run: RunState) -> Iterator[FrameState]:
    """Yield the graphs that are not running, and that steps keep because they may continue."""
    ahead = list(run.frames())
    while ahead:
        for token in all_tokens(ahead.pop()):
            if token.kept is not None:
                yield token.kept
                ahead.append(token.kept)


def forget_frozen(run: RunState, frame: FrameState) -> None:
    """Discard what a running graph keeps: tokens that were set aside, and ended graphs inside it."""
    forget(run, frame.before_limit)
    frame.before_limit = None
    for token in frame.live.values():
        forget_kept(run, token)


def finish(run: RunState, frame: FrameState, result: FrameResult, *, keep: bool = True) -> None:
    """End a graph, and pass its result to the activation around it, or to the run.

    Args:
        run: the run.
        frame: the graph.
        result: how it ended.
        keep: True to keep the remaining tokens of a failed or cancelled graph; otherwise they are dropped.
    """
    if frame.result is not None:
        return
    for observer in run.observers:
        observer.finished(frame, result)
    if frame.irreversible or frame.entered:
        result = structs.replace(result, irreversible=frame.irreversible, entered=tuple(sorted(frame.entered)))
    frame.result = result
    frame.exhausting = None
    if keep and result.status in _FREEZING:
        frame.frozen = set_aside(run, frame)
    else:
        for token in list(frame.live.values()):
            if token.key in frame.live:
                drop(run, token)
        frame.queue.clear()
        frame.ended_versions = []
    frame.touched_joins.clear()
    frame.touched_items.clear()
    run.ready_frames.pop(frame.key, None)
    _hand_over(run, frame)


def _hand_over(run: RunState, frame: FrameState) -> None:
    parent = frame.parent
    if parent is None:
        run.result = frame.result
        run.questions.clear()
        run.asked.clear()
        return
    if frame.parent_dropped or run.inner_frames.pop(parent.key, None) is None:
        return
    parent.child = frame.result
    parent.kept = frame if frame.frozen is not None else None
    parent.phase = Phase.RUNNING
    for outer in parent.frame.line:
        outer.active += 1
    run.running[parent.key] = parent
    run.delta.started.append(parent)

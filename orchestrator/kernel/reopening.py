"""Puts the tokens of a frozen graph back, so that an ended run can continue (R13, R14).

Steps that ran, asked or were set aside by a limit are queued again, before those that waited: admission then respects
the limits. A step that failed starts a new attempt; if the graph inside it failed, that graph is put back instead, down
to the innermost step that failed. A step that ended after it was stopped takes its edges now.
"""

from __future__ import annotations

from collections import deque

from orchestrator.graph.limits import Limits
from orchestrator.kernel import admission, pools, tokens
from orchestrator.kernel.frame import land, settle
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, FrameState, FrozenTokens, Phase
from orchestrator.kernel.transitions import send

LANDED = frozenset({"completed", "exhausted"})
"""Ends of the graph inside a step after which its result is valid for later attempts of the step."""


def can_reopen(run: RunState) -> bool:
    """Return True if a run has ended in a way from which it can continue."""
    return run.ended is not None and run.ended.status != "completed"


def reopen(run: RunState, limits: Limits | None) -> None:
    """Continue a run that has ended where it was.

    Args:
        run: the run.
        limits: the limits of its graph from now on; None to keep them.

    Raises:
        ValueError: it has not ended, or is completed.
    """
    root = run.root
    if root is None or root.result is None or not can_reopen(run):
        raise ValueError("only a failed, exhausted or cancelled run can be reopened")
    _reopen(run, root, root.result.status, limits)


def is_over(run: RunState, raised: int = 0) -> bool:
    """Return True if a run has its result after a spent limit, and only its end remains to be recorded.

    A fork at such a record, made explicitly, ends in the same way. So does a replay, unless the replayed run was
    reopened.

    Args:
        run: the run, at the record that is forked.
        raised: for a replay: how often the replayed run was reopened before its end.
    """
    root = run.root
    if run.ended is not None or root is None or root.result is None or raised > root.raised:
        return False
    return root.after_limit and root.result.status == "exhausted"


def reopen_fork(run: RunState) -> None:
    """Continue the fork of a run where that run was over; does nothing if it was not over, or had completed."""
    root = run.root
    if root is not None and root.result is not None:
        status = root.result.status if run.ended is None else run.ended.status
        if status != "completed":
            _reopen(run, root, root.result.status, None)


def _reopen(run: RunState, root: FrameState, status: str, limits: Limits | None) -> None:
    run.ended = None
    run.cancelled = run.paused = False
    run.diverged_because = ""
    if limits is not None:
        root.limits = limits
    if status == "completed":
        return  # its final state was refused when the run ended: it is checked again
    run.result = None
    frozen = root.frozen
    if status == "exhausted":
        frozen, root.before_limit = root.before_limit, None
        root.after_limit, root.spent_limit, root.spent_name = False, None, ""
        root.visited_after_limit = set()
        root.raised += 1
    put_back(run, root, frozen or FrozenTokens({}, deque(), []))


def raise_limits(run: RunState, limits: Limits) -> None:
    """Change the limits of the run's graph. Steps that a spent limit refused may start if it is no longer spent."""
    root = run.root
    if root is None:
        return
    root.limits = limits
    if root.exhausting is None or root.result is not None:
        return
    root.exhausting = None
    if not root.after_limit:
        root.spent_limit, root.spent_name = None, ""
    for token in run.live_tokens():
        frame = token.frame
        if token.phase is Phase.PARKED and not token.spent_inside and all(one.exhausting is None for one in frame.line):
            run.stopped.pop(token.key, None)
            token.phase = Phase.QUEUED
            frame.queue.append(token)
    for frame in run.frames():
        admission.mark(run, frame)


def put_back(run: RunState, frame: FrameState, frozen: FrozenTokens) -> None:
    """Put the tokens of a graph back as they were when they were removed, and continue with them."""
    frame.result = frame.frozen = None
    frame.parent_dropped, frame.interrupting = False, ""  # the event that interrupted the graph is kept
    if not frame.after_limit:
        frame.spent_limit, frame.spent_name = None, ""  # refused steps are refused again, if the limit is still spent
    frame.live, frame.ended_versions = frozen.live, frozen.ended_versions
    again: list[Activation] = []
    landed: list[tuple[int, Activation]] = []
    inside: list[FrameState] = []
    for token in frame.live.values():
        run.stopped.pop(token.key, None)
        for observer in run.observers:
            observer.restored(token)
        kept = token.kept
        if token.late is not None:
            landed.append((token.late.seq, token))
        elif kept is not None and (token.failed or token.phase is Phase.INSIDE):
            if token.failed:
                kept.timed_from = run.seconds
            _enter(run, token, kept)
            inside.append(kept)
        elif token.failed or token.phase in (Phase.RUNNING, Phase.ASKING, Phase.PARKED):
            if token.failed:
                _begin_again(run, token)
            token.reopened = run.head
            again.append(token)
    for token in again:
        token.phase = Phase.QUEUED
    frame.queue = deque([*again, *frozen.queue])
    for inner in inside:
        put_back(run, inner, inner.frozen or FrozenTokens({}, deque(), []))
    for token in [token for token in again if token.spent_inside]:
        _go_on_behind(run, frame, token)
    for _, token in sorted(landed, key=lambda one: one[0]):
        _land(run, frame, token)
    if frame.result is None:
        settle(run, frame)
    admission.mark(run, frame)


def begin_inside(run: RunState, token: Activation, kept: FrameState) -> None:
    """Continue the failed graph inside a step, in place of the step's own failure."""
    kept.timed_from = run.seconds
    _enter(run, token, kept)
    put_back(run, kept, kept.frozen or FrozenTokens({}, deque(), []))


def _enter(run: RunState, token: Activation, kept: FrameState) -> None:
    token.failed, token.kept, token.child = False, None, None
    pools.hold(run, token)
    token.phase, token.reopened = Phase.INSIDE, run.head
    run.inner_frames[token.key] = kept


def _begin_again(run: RunState, token: Activation) -> None:
    """Start the next attempt of a failed step, with access to the effects of the earlier ones."""
    run.ledger.take_back(token.key)
    token.failed = False
    token.attempt += 1
    token.not_before = token.backoff = None
    if token.child is not None and token.child.status not in LANDED:
        token.child, token.opened = None, False


def _go_on_behind(run: RunState, frame: FrameState, token: Activation) -> None:
    """Continue after a step whose graph ended because of a limit of the graph inside it: now it takes its own edges."""
    if frame.result is None and token.key in frame.live:
        tokens.withdraw(token)
        send(run, token, token.version, "done", None)


def _land(run: RunState, frame: FrameState, token: Activation) -> None:
    """End a step that ended after it was stopped."""
    record, token.late = token.late, None
    assert record is not None
    token.phase = Phase.RUNNING
    if frame.result is None and token.key in frame.live:
        frame.counters.busy[record.node] += record.ended - record.started
        land(run, token, record.outcome, record.update, record.ops, record.reduced, record.error)

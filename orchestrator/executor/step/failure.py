"""What becomes of a step that failed: another attempt, an edge for failures, or the end of its graph."""

from __future__ import annotations

import builtins
import logging
import math
import random
import time
from typing import TYPE_CHECKING

from orchestrator import errors
from orchestrator.errors import EffectFailed, StepTimeout, message_of
from orchestrator.executor.interrupts import alone
from orchestrator.executor.tracebacks import traceback_of
from orchestrator.kernel.records import Failure, Record, StepDone, StepFailed, StepRetried
from orchestrator.redacting import redact, without_known
from orchestrator.tools.capping import cut

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog
    from orchestrator.graph.limits import Retry
    from orchestrator.kernel.token import Activation

log = logging.getLogger("orchestrator.steps")

MOST_SAID = 20_000
"""Characters of an error's message that a run keeps: its beginning and its end. It is in records, in logs and in pages,
and each of them looks through it for secrets."""
PATIENCE = 300.0
"""Seconds: what asks to wait for longer is not waited for."""


def failure_of(error: BaseException, activation: Activation) -> Failure:
    """An error as data, with where it happened."""
    error = alone(error)
    kind = error.type if isinstance(error, EffectFailed) else type(error).__name__
    asked = getattr(error, "retry_after", None)
    return Failure(
        type=kind,
        message=cut(without_known(message_of(error)), MOST_SAID),
        node=activation.node,
        path=activation.path,
        retry_after=asked if isinstance(asked, int | float) and math.isfinite(asked) else None,
    )


def wait_before(retry: Retry, tries: int, error: BaseException, random: float) -> float | None:
    """Seconds to wait before another try; None if none is to be made.

    A server that asks for more than `PATIENCE` gets no other try now.
    """
    asked = getattr(error, "retry_after", None) or 0.0
    if math.isnan(asked):
        asked = 0.0
    if tries >= retry.attempts or not _mends(retry, error) or asked > PATIENCE:
        return None
    return max(retry.delay(tries, random), asked)


def ended_badly(live: RunLog, activation: Activation, error: Exception, retry: Retry | None, started: float) -> Record:
    """The record for an attempt that raised an error. It is logged, too."""
    cause = alone(error)
    failure = failure_of(cause, activation).model_copy(update={"traceback": traceback_of(cause)})
    wait = None if retry is None else wait_before(retry, activation.attempt, cause, random.random())
    if wait is not None:
        _tell(live, activation, failure, logging.WARNING, f"failed, and is tried again in {wait:.3g} s")
        return retried(live, activation, failure, started, wait)
    record = failed(live, activation, failure, started, timeout=isinstance(cause, StepTimeout))
    if isinstance(record, StepDone):
        _tell(live, activation, failure, logging.INFO, f"failed, and takes its edge for {record.outcome!r}")
    else:
        _tell(live, activation, failure, logging.ERROR, "failed")
    return record


def _tell(live: RunLog, activation: Activation, failure: Failure, level: int, what: str) -> None:
    """Log a failed attempt, with what looks like a secret blanked."""
    if not log.isEnabledFor(level):
        return
    place = f"{activation.path}/{activation.node}" if activation.path else activation.node
    words = redact(f"run {live.run_id}: {place} (attempt {activation.attempt}) {what}: {failure}\n{failure.traceback}")
    about = {
        "run_id": live.run_id, "node": activation.node, "path": activation.path, "attempt": activation.attempt,
        "error_type": failure.type,
    }  # fmt: skip
    log.log(level, "%s", words.rstrip(), extra=about)


def taken_somewhere(live: RunLog, activation: Activation, error: BaseException) -> bool:
    """Whether the graph itself deals with this failure: an edge for it, or a retry, here or around the graph."""
    at: Activation | None = activation
    lasting = False
    while at is not None:
        if at.frame.plan.topology.has_route(at.node, "error"):
            return True
        retry = live.node_of(at).retry
        if retry is not None and not lasting and wait_before(retry, at.attempt, error, 0.5) is not None:
            return True
        lasting = bool(at.frame.lasting)  # then a retry of the node around the graph would do things twice
        at = at.frame.parent
    return False


def failed(live: RunLog, activation: Activation, failure: Failure, started: float, *, timeout: bool = False) -> Record:
    """The record for a failure that no further attempt follows: the edge that takes it, else the graph fails."""
    topology = activation.frame.plan.topology
    now = time.time()
    seq = live.machine.head + 1
    for outcome in ("timeout", "error") if timeout else ("error",):
        if topology.has_route(activation.node, outcome):
            return StepDone(
                seq=seq,
                ts=now,
                activation=activation.key,
                path=activation.path,
                node=activation.node,
                outcome=outcome,
                attempt=activation.attempt,
                started=started,
                ended=now,
                error=failure,
            )
    return StepFailed(
        seq=seq,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        started=started,
        ended=now,
        error=failure,
    )


def retried(live: RunLog, activation: Activation, failure: Failure, started: float, wait: float) -> StepRetried:
    """The record for an attempt that another one follows after `wait` seconds."""
    now = time.time()
    return StepRetried(
        seq=live.machine.head + 1,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        started=started,
        ended=now,
        error=failure,
        next_at=now + wait,
    )


def mends_named(retry: Retry, kind: str) -> bool:
    """Whether another attempt may mend an error of which only the class's name is known."""
    if kind in retry.on:
        return True
    known = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if not isinstance(known, type) or not issubclass(known, Exception):
        return False
    if retry.on:
        return not {base.__name__ for base in known.__mro__}.isdisjoint(retry.on)
    return bool(getattr(known, "retryable", False)) or issubclass(known, OSError | TimeoutError | StepTimeout)


def _mends(retry: Retry, error: BaseException) -> bool:
    if isinstance(error, EffectFailed):
        return mends_named(retry, error.type)
    return retry.matches(error) or (not retry.on and isinstance(error, StepTimeout))

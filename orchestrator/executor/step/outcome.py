"""The record that says how an attempt ended: what its node returned, checked, or what became of its failure."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from orchestrator.errors import InvalidOutcome, InvalidUpdate, StepTimeout
from orchestrator.executor.failures import failure_of, traceback_of
from orchestrator.executor.interrupts import unwrap_single
from orchestrator.executor.retry import wait_before
from orchestrator.graph.codec import shown
from orchestrator.graph.outcome import RESERVED, Failing, Outcome
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Failure, Record, StepDone, StepFailed, StepRetried
from orchestrator.redacting import redact

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog
    from orchestrator.executor.step.context import StepContext
    from orchestrator.graph.limits import Retry
    from orchestrator.kernel.state import Activation

log = logging.getLogger("orchestrator.steps")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the journal says that an irreversible node returned."""

    outcome: str
    update: JsonObject
    ops: dict[str, str]


def recorded(found: object) -> Recorded:
    if not isinstance(found, Mapping) or "outcome" not in found:
        # A person said that it happened, and gave an update at most.
        return Recorded("done", found if isinstance(found, Mapping) else {}, {})
    return Recorded(str(found["outcome"]), found.get("update") or {}, dict(found.get("ops") or {}))


def encoded(context: StepContext, result: object) -> tuple[str, JsonObject, dict[str, str]]:
    """What a node returned, checked: outcome, update as JSON, and how fields of it are taken."""
    if isinstance(result, Recorded):
        return result.outcome, result.update, result.ops
    activation = context.activation
    if isinstance(result, Failing):
        result = _decided(context, result)
    outcome, update = _read(activation.node, result)
    writes = context.spec.writes
    if writes is not None and update and not writes.issuperset(update):
        others = ", ".join(sorted(set(update) - writes))
        raise InvalidUpdate(
            f"{activation.node} updates {others}, and says that it writes only {', '.join(sorted(writes))}"
        )
    values, ops = activation.frame.plan.schema.encode_update(update)
    return outcome, values, ops


def _decided(context: StepContext, failing: Failing[Any]) -> Outcome[Any]:
    """What becomes of an outcome that stands for a failure: an edge names it, or another one is taken.

    Raises:
        Exception: its error, where the node is tried again, or nothing takes it.
    """
    activation, retry = context.activation, context.spec.retry
    named = activation.frame.plan.topology.has_route(activation.node, failing.name)
    if not named and failing.otherwise is not None:
        return Outcome(failing.otherwise, failing.update)
    if not named or (retry is not None and wait_before(retry, activation.attempt, failing.error, 0.5) is not None):
        raise failing.error
    return failing


def _read(node: str, result: object) -> tuple[str, Mapping[str, object] | None]:
    """Outcome and update of what a node returned."""
    if result is None:
        return "done", None
    if isinstance(result, Outcome):
        if result.name in RESERVED:
            raise InvalidOutcome(
                f"{node} returned outcome {result.name!r}, which is reserved for failures: raise an error instead"
            )
        return result.name, result.update
    if isinstance(result, Mapping):
        return "done", result
    if isinstance(result, BaseModel):
        raise InvalidUpdate(
            f"{node} returned a whole {type(result).__name__}: return only what changed, such as {{'field': value}}"
        )
    raise InvalidUpdate(f"{node} returned {shown(result)}: return an Outcome, a mapping of state fields, or None")


def ended_badly(live: RunLog, activation: Activation, error: Exception, retry: Retry | None, started: float) -> Record:
    """The record for an attempt that raised an error. It is logged, too."""
    cause = unwrap_single(error)
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
        lasting = bool(at.frame.irreversible)  # then a retry of the node around the graph would do things twice
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


def faulted(live: RunLog, activation: Activation, fault: Failure) -> Record:
    """The record for an activation whose node cannot run at all, such as one whose branches are in conflict."""
    now = time.time()
    return StepFailed(
        seq=live.machine.head + 1,
        ts=now,
        activation=activation.key,
        path=activation.path,
        node=activation.node,
        attempt=activation.attempt,
        started=now,
        ended=now,
        error=fault.model_copy(update={"node": activation.node, "path": activation.path}),
    )

"""Decisions about effects, from the journal: pure functions, without I/O and without a clock.

An effect is identified by its activation, name, digest of the request, and occurrence (number of the call among the
equal ones of the attempt). `decide` maps its journaled state to a decision:

    settled                                        Reuse       its result is reused, nothing is called
    failed, another try follows                    RetryLater  called again when that is due
    suspended by a question that it asked, or in the
      middle of the call, or stopped before it     Again       started again
    outcome unknown, may run again                 Again       called again under the same key
    outcome unknown, or result refused, and
      irreversible                                 Reconcile   `reconcile` is asked for its outcome
                                                   AskOutcome  without `reconcile`, or answered by a person
    it returned, and the step, which was stopped
      after it, calls with other arguments         AskOutcome  whether it is this call
    not known                                      Begin       called
                                                   LeftBehind  refused, if it would drop a settled irreversible effect
    open, or unknown, in the run that was forked   Begin       called, under the fork's own key
    of a replay, stopped before it had its result  TakeRecorded: the result comes from the replayed run

In a new attempt (a retry) the effects of earlier attempts do not count, except irreversible ones.

A step that continues in a reopened run finds its effects unchanged, with these differences:

    stopped by the end of the run                  as if its outcome was unknown
    of an attempt that failed, certainly failed    Begin       called, under a new key
    a person answered `failed`                     as if its outcome was not known
    a graph was called, and its run ended otherwise
      than `completed`                             Again       the run is reopened

Steps that were stopped continue in their attempt, steps that failed start the next one. See `docs/resuming.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from orchestrator.executor.calls.effect import Effect
from orchestrator.graph.limits import Usage
from orchestrator.kernel.ledger import EffectEntry, did_irreversible
from orchestrator.kernel.records import EffectIntended, EffectSettled, Failure, failed_result
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Activation, hash_id

SUSPENDED = "Suspended"
"""`type` of the failure of an effect that asked a question; the effect starts again with the answer."""
NOT_MADE = "NotMade"
"""`type` of the failure of an effect that was stopped before its call was made."""


# -- decisions ------------------------------------------------------------------------------------------------------


class Begin(Struct, frozen=True):
    """Make the call, under a new key."""


class Again(Struct, frozen=True):
    """Make the call again, under its earlier key."""

    key: str
    tries: int
    """The number of this try."""


class RetryLater(Struct, frozen=True):
    """Make the call again, under its earlier key, at a journaled time."""

    key: str
    until: float
    """Unix seconds."""
    meant: float
    """Seconds between the failure and that time, by the clock that wrote both."""
    tries: int
    """The number of the next try."""


class Reuse(Struct, frozen=True):
    """Return the journaled outcome."""

    settled: EffectSettled


class Reconcile(Struct, frozen=True):
    """Ask the effect's `reconcile` for the outcome; if that fails, a person."""

    entry: EffectEntry


class AskOutcome(Struct, frozen=True):
    """Ask a person for the outcome, or take the answer given."""

    entry: EffectEntry


class LeftBehind(Struct, frozen=True):
    """Refuse the call: the code no longer makes this irreversible call, which happened."""

    entry: EffectEntry


class TakeRecorded(Struct, frozen=True):
    """Take the result from the replayed run: the call of a replay was stopped before it had it."""

    entry: EffectEntry


Decision: TypeAlias = Begin | Again | RetryLater | Reuse | Reconcile | AskOutcome | LeftBehind | TakeRecorded


def find_and_decide(
    effect: Effect[Any],
    digest: str,
    occurrence: int,
    machine: RunState,
    at: Activation,
    *,
    answered: Callable[[EffectEntry], bool],
    asked_for: Collection[str],
    reused: Collection[str],
) -> tuple[EffectEntry | None, Decision]:
    """Find an effect in the journal and decide how to handle it.

    Args:
        effect: the effect that a step requests.
        digest: its digest.
        occurrence: number of earlier effects with this name and request in the attempt.
        machine: the run.
        at: the activation of the step.
        answered: returns True if a person has answered which outcome an effect had.
        asked_for, reused: see `left_behind`.

    Returns:
        Its journal entry, if there is one, and the decision.
    """
    entries, attempt = machine.ledger.of(at.key), at.attempt
    entry = find(entries, effect.name, digest, occurrence, attempt, reopened=at.reopened, continues=effect.continues)
    if entry is None:
        other = left_behind(entries, asked_for, reused, attempt, machine.forked_at) if effect.irreversible else None
        return None, decide(None, effect, attempt=attempt, left_behind=other)
    if waits_for_recording(entry):
        return entry, TakeRecorded(entry)
    known = entry.intended.effect == "irreversible" and answered(entry)
    return entry, decide(
        entry, effect, attempt=attempt, answered=known, forked_at=machine.forked_at, reopened=at.reopened
    )


def decide(
    entry: EffectEntry | None,
    effect: Effect[Any],
    *,
    attempt: int,
    answered: bool = False,
    left_behind: EffectEntry | None = None,
    forked_at: int = 0,
    reopened: int = 0,
) -> Decision:
    """Decide how to handle an effect that a step requests.

    Args:
        entry: its journal entry, see `find`.
        attempt: the number of the step's attempt, from 1.
        answered: whether a person has answered which outcome it had.
        left_behind: an irreversible effect that the step has not asked for again, see `left_behind`.
        forked_at: see `RunState.forked_at`. Calls of the runs that a fork comes from are never made again under their
            keys: the fork makes its own.
        reopened: the record that reopened the run while the step had not landed; 0: none.
    """
    if entry is not None and entry.intended.seq < forked_at:
        ended = kept_in_fork(entry, attempt, continues=effect.continues, reopened=reopened)
        return Begin() if ended is None else Reuse(ended)
    if entry is None:
        if left_behind is not None and effect.effect == "irreversible":
            return LeftBehind(left_behind)
        return Begin()
    intended, tried = entry.intended, entry.failed_try
    open_and_final = tried is not None and tried.unknown and intended.effect == "irreversible"
    if tried is not None and tried.next_at is not None and not open_and_final:
        return RetryLater(intended.key, tried.next_at, tried.next_at - tried.ended, tried.tries + 1)
    if is_suspended(entry):
        return again(entry)
    settled = _valid(entry, attempt, continues=effect.continues, reopened=reopened)
    known = settled is not None and not (settled.unknown and intended.attempt != attempt)
    if settled is not None and known and not (effect.resumed_with is not None and settled.ok and not settled.answered):
        return Reuse(settled)
    if intended.effect == "irreversible":
        return AskOutcome(entry) if answered or effect.reconcile is None else Reconcile(entry)
    return again(entry)


def kept_in_fork(
    entry: EffectEntry, attempt: int, *, continues: bool = False, reopened: int = 0
) -> EffectSettled | None:
    """Return the end of a call that a fork has from its parent; None if the fork makes the call under its own key.

    Arguments: see `decide` and `find`.
    """
    ended = None if is_suspended(entry) else _valid(entry, attempt, continues=continues, reopened=reopened)
    return None if ended is None or (ended.unknown and entry.intended.attempt != attempt) else ended


def again(entry: EffectEntry) -> Again:
    """Repeat a call whose outcome is open, or that was found not to have happened."""
    before = entry.settled
    return Again(entry.intended.key, before.tries + 1 if before is not None and before.next_at is not None else 1)


# -- ends of effects ------------------------------------------------------------------------------------------------


class Ending(Struct, frozen=True):
    """The end of an effect in journaled form."""

    result: object = None
    error: Failure | None = None
    usage: Usage | None = None
    unknown: bool = False
    """True if the action or the result of the effect is unknown."""
    returned: str | None = None
    """The returned value as text, if it was refused as a result."""
    answered: bool = False
    """True if a person gave this end."""
    next_at: float | None = None
    """Time of the next try, Unix seconds."""
    secret: str = ""
    """See `EffectSettled.secret`."""


# -- effects in the journal -----------------------------------------------------------------------------------------


def idempotency_key(run_id: str, activation: Activation, name: str, digest: str, occurrence: int) -> str:
    """Return the key of an effect that is called for the first time. It stays the same when the effect is called again.

    Args:
        digest: digest of the request.
        occurrence: number of earlier effects with this name and request in the attempt.
    """
    return hash_id(run_id, activation.key, str(activation.attempt), name, digest, str(occurrence))


def find(
    entries: Iterable[EffectEntry],
    name: str,
    digest: str,
    occurrence: int,
    attempt: int,
    *,
    reopened: int = 0,
    continues: bool = False,
) -> EffectEntry | None:
    """Return the entry of an effect, if any: one of this attempt, or an irreversible one of an earlier attempt.

    A call of a graph counts as irreversible if something irreversible happened in its run, or may have. In a reopened
    run it also counts if its run did not complete: that run is reopened.

    Args:
        entries: the effects of the activation, of all its attempts.
        digest: digest of the request.
        occurrence: number of earlier effects with this name and request in the attempt.
        reopened: the record that reopened the run while the step had not landed; 0: none.
        continues: whether the effect is the call of a graph.
    """
    found = own = None
    for entry in entries:
        intended = entry.intended
        if (intended.name, intended.digest, intended.occurrence) == (name, digest, occurrence):
            settled = settled_of(entry)
            before = intended.seq < reopened
            if intended.attempt == attempt:
                own = entry  # the later of the two: a fork makes calls again under its own keys
            elif intended.effect == "irreversible":
                over = settled is not None and settled.seq < reopened and not is_suspended(entry)
                gone = over and certainly_failed(intended, settled)
                found = found if gone else entry
            elif (settled is not None and did_irreversible(settled.result)) or (
                before and continues and broke_off(settled)
            ):
                found = entry
    return own or found


def _valid(entry: EffectEntry, attempt: int, *, continues: bool, reopened: int) -> EffectSettled | None:
    """Return the end of an effect; None also if its run stopped it, or if the run that it started can continue.

    None also if a person gave up a call of an earlier attempt: a reopened run asks about it again.
    """
    settled = settled_of(entry)
    if settled is None or settled.seq > reopened:
        return settled
    earlier = entry.intended.attempt != attempt
    goes_on = earlier and continues and end_inside(settled) not in ("", "completed")
    return None if is_stopped(settled) or goes_on or (earlier and is_given_up(settled)) else settled


def left_behind(
    entries: Iterable[EffectEntry],
    asked_for: Collection[str],
    reused: Collection[str],
    attempt: int,
    forked_at: int = 0,
) -> EffectEntry | None:
    """Return an irreversible effect of this attempt that happened, or is to continue, and that the code did not request
    again, if any.

    In a fork, only its own effects count: with other values its steps may act differently.

    Args:
        entries: the effects of the activation, in the journal's order.
        asked_for: keys of the effects that the code requested.
        reused: keys of those whose results were reused: effects inside them are not requested.
        attempt: the number of this attempt.
        forked_at: the last record that the run has from another one, if it is a fork.
    """
    hidden = set(reused)
    for entry in entries:
        intended, settled = entry.intended, settled_of(entry)
        if intended.inside in hidden:
            hidden.add(intended.key)
        elif (
            intended.effect == "irreversible"
            and intended.seq > forked_at
            and intended.attempt == attempt
            and intended.key not in asked_for
            and settled is not None
            and (settled.ok or settled.returned is not None or is_continued(entry))
        ):
            return entry
    return None


def settled_of(entry: EffectEntry) -> EffectSettled | None:
    """Return the end of an effect, if it has ended. Records before its last intent belong to an earlier try."""
    settled = entry.settled
    return settled if settled is not None and settled.seq > entry.intended.seq else None


def is_suspended(entry: EffectEntry) -> bool:
    """Return True if an effect may start again: it asked first, waited to be made, or is to continue."""
    settled = settled_of(entry)
    return (
        settled is not None and settled.error is not None and settled.error.type in (SUSPENDED, NOT_MADE)
    ) or is_continued(entry)


def is_continued(entry: EffectEntry) -> bool:
    """Return True if an effect was suspended in the middle of a call, which continues when it starts again.

    True also while it is under way again, or was when the process died, if what it began elsewhere goes on.
    """
    settled = entry.settled
    return settled is not None and settled.secret != "" and (settled.unknown or settled.seq > entry.intended.seq)


def lasts(entry: EffectEntry) -> bool:
    """Return True if an effect, or one in the run of a called graph, cannot be undone and happened, may have, or is to
    continue."""
    intended, settled = entry.intended, settled_of(entry)
    if intended.effect == "irreversible":
        return is_continued(entry) or (not is_suspended(entry) and not certainly_failed(intended, settled))
    return settled is None or did_irreversible(settled.result)


def waits_for_recording(entry: EffectEntry) -> bool:
    """Return True for a call of a replay that takes its result from the replayed run, and does not have it yet."""
    return entry.intended.taken is not None and (settled_of(entry) is None or is_suspended(entry))


def failed_span(entry: EffectEntry | None) -> tuple[int, int] | None:
    """Return first and last record of a call that failed for good and may be made again; None for others."""
    settled = None if entry is None else settled_of(entry)
    if entry is None or settled is None or settled.ok or settled.next_at is not None:
        return None
    return None if entry.intended.effect == "irreversible" else (entry.intended.seq, settled.seq)


# -- effects of a step that continues in a reopened run ----------------------------------------------------------------


STOPPED = "Cancelled"
"""`type` of the failure of an effect that the run itself stopped."""


def is_stopped(settled: EffectSettled) -> bool:
    """Return True if the end of a run stopped an effect."""
    return not settled.ok and settled.error is not None and settled.error.type == STOPPED


def certainly_failed(intended: EffectIntended, settled: EffectSettled | None) -> bool:
    """Return True if an effect has ended and is known to have failed: an answer `failed` does not show that."""
    if settled is None or settled.unknown:
        return False
    return not settled.may_have_happened or (intended.kind == "tool" and failed_result(settled.result) is not None)


def is_given_up(settled: EffectSettled) -> bool:
    """Return True if a person answered that an effect failed. For a call that returned, no other end is final."""
    return settled.given_up or (settled.returned is not None and not settled.ok and not settled.unknown)


def end_inside(settled: EffectSettled | None) -> str:
    """Return the status of the run that a call of a graph started; empty if no ended run is known."""
    result = None if settled is None else settled.result
    metadata = result.get("metadata") if isinstance(result, Mapping) else None
    return str(metadata.get("status", "")) if isinstance(metadata, Mapping) and "run_id" in metadata else ""


def broke_off(settled: EffectSettled | None) -> bool:
    """Return True if the run that a call of a graph started can continue: it is unfinished, failed or was cancelled."""
    return settled is None or is_stopped(settled) or end_inside(settled) in ("failed", "cancelled")

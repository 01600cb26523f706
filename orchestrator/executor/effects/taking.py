"""What a replay does with a call: it takes the result that the replayed run had, waits as that run did, or is live.

recorded, with a result              journaled as taken from the record of that result; nothing is called
recorded, stopped by its time limit  the step's time is over here too
recorded, stopped or without an end  waits for what stopped it: a sibling, a cancel, a time limit of the run
asked about, without an answer       the same is asked here
not recorded, of a stopped step      the same
anything else                        live: `never` ends the replay here, `ask` asks first, `always` makes the call
"""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from orchestrator import errors
from orchestrator.errors import EffectFailed, ModelError
from orchestrator.executor.call_guard import CallDenied
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.effects.questions import answer_to, passed_on
from orchestrator.executor.effects.replay import NOT_MADE, Ending
from orchestrator.executor.effects.shared_limits import admit
from orchestrator.executor.effects.under_way import UnderWay, inside
from orchestrator.executor.interrupts import Refused, TimedOut
from orchestrator.graph.limits import Reserve
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.queries import exceeded_limit
from orchestrator.kernel.question import Approve, Deny
from orchestrator.kernel.records import EffectIntended, EffectSettled, Failure, Spent
from orchestrator.late import later

if TYPE_CHECKING:
    from orchestrator.executor import standstill
    from orchestrator.executor.effects import fork_questions, live_calls, repeats
    from orchestrator.executor.recording import RecordedCall
    from orchestrator.executor.tape import Tape
else:
    fork_questions, live_calls, repeats = later("orchestrator.executor.effects", "fork_questions live_calls repeats")
    (standstill,) = later("orchestrator.executor", "standstill")


async def without_call(
    under_way: UnderWay, effect: Effect[Any], key: str, wanted: str, occurrence: int, entry: EffectEntry | None,
    asked_for: Collection[str],
) -> tuple[EffectSettled | None, int | None]:  # fmt: skip
    """The result that a call of a replay or a fork has without being made.

    Args:
        under_way: the effects of the step.
        effect: the call.
        key: its key.
        wanted: digest of its request.
        occurrence: see `replay.idempotency_key`.
        entry: the call, if a replay's journal has it as one that was to be taken.
        asked_for: keys of the calls that the step has asked for already.

    Returns:
        The result, journaled. Or None: the call is to be made, with the number of its try if it is intended already.

    Raises:
        Suspend: a person is asked whether it is to be made.
        CallDenied: the person denied it.
        Refused: the replay ends here.
        TimedOut: the time limit of the step stopped it in the replayed run.
    """
    log, tries = under_way.attempt.log, None
    if log.tape is not None:
        found, tries = await _take_or_admit(under_way, log.tape, effect, key, wanted, occurrence, entry)
        if found is not None:
            return found, None
    if effect.irreversible and log.machine.in_fork:
        adopted = await fork_questions.call_in_fork(under_way, effect, key, asked_for)
        if adopted is not None:
            return under_way.adopt(effect, key, wanted, occurrence, adopted.result), None
    elif effect.irreversible and under_way.before:
        await repeats.ask_before_another(under_way, effect, key, asked_for)
    return None, tries


async def _take_or_admit(
    under_way: UnderWay, tape: Tape, effect: Effect[Any], key: str, wanted: str, occurrence: int,
    entry: EffectEntry | None,
) -> tuple[EffectSettled | None, int | None]:  # fmt: skip
    """What a replay does with a call that its own journal has no result for; see `without_call`."""
    attempt = under_way.attempt
    call = _recorded(tape, attempt, effect, wanted, entry)
    if call is None:
        if effect.kind != "effect" and exceeded_limit(attempt.activation) is not None:
            return None, None  # the limit refuses it, as it did in the replayed run
        if _is_up_to_a_person(tape, attempt, effect, key):
            return None, None
        if not inside.get() and tape.was_stopped(attempt.activation):
            async with attempt.aside():
                await standstill.stand_still(attempt.log, tape, attempt.activation)
        if attempt.stopped() is not None:
            raise attempt.signalled(Refused())  # the run has ended, or goes on without this step: nothing diverges
        denied = _denied(tape, attempt, effect)
        if denied is not None:
            raise CallDenied(effect.name, denied.reason)
        await live_calls.admit_live(under_way, tape, effect, key, wanted, occurrence)
        return None, None
    reserve = None
    if effect.kind != "effect":
        reserve = await admit(attempt, under_way.callers, effect, key, again=entry is not None)
    log = attempt.log
    log.push(_intended(attempt, effect, key, wanted, occurrence, call.seq, reserve))
    if call.result is not None:
        return _settle(under_way, key, call), None
    await _ask_as_inside(under_way, tape, call)
    started = log.clock.now()
    try:
        async with attempt.aside():
            await standstill.stand_still(log, tape, attempt.activation)
    except BaseException:
        why = attempt.stopped()
        if why is not None:
            ending = Ending(error=attempt.failure_named(*why), unknown=effect.irreversible)
            under_way.settle(key, started, ending)
        raise
    why_live = "the replayed run has no result for it"
    under_way.settle(key, started, Ending(error=attempt.failure_named(NOT_MADE, why_live)))
    await live_calls.admit_live(under_way, tape, effect, key, wanted, occurrence, why_live)
    return None, 1


def _is_up_to_a_person(tape: Tape, attempt: Attempt, effect: Effect[Any], key: str) -> bool:
    """Whether a call is asked about, as in the replayed run, or a person has said not to make it."""
    at = attempt.activation
    if not effect.irreversible or inside.get():
        return False
    answered = at.answers.get(fork_questions.question_id(at, key))
    if answered is not None or tape.is_live(at):
        return answered is not None and not isinstance(answered.answer, Approve)
    return tape.recording.asks_about((at.path, at.node), effect.name, effect.request.get("args", effect.request))


async def _ask_as_inside(under_way: UnderWay, tape: Tape, call: RecordedCall) -> None:
    """Wait for the answer for which the replayed run waits inside a call.

    Raises:
        Suspend: it is asked for.
    """
    attempt = under_way.attempt
    asked = tape.recording.open_inside(call) if tape.live == "never" else None
    if asked is None or tape.is_live(attempt.activation):
        return
    await under_way.settle_down()
    answer_to(attempt, passed_on(attempt, asked.question, ()))


def _denied(tape: Tape, attempt: Attempt, effect: Effect[Any]) -> Deny | None:
    """The answer by which a person denied the replayed run this call; None: it was not denied."""
    if inside.get() or tape.is_live(attempt.activation):
        return None
    at, args = attempt.activation, effect.request.get("args", effect.request)
    return tape.recording.denial((at.path, at.node), effect.name, args)


def _recorded(
    tape: Tape, attempt: Attempt, effect: Effect[Any], wanted: str, entry: EffectEntry | None
) -> RecordedCall | None:
    """The recorded call that a call is; None if it is live."""
    if entry is not None:
        return next((one for one in tape.recording.all_calls() if one.seq == entry.intended.taken), None)
    if inside.get() or tape.is_live(attempt.activation):
        return None
    found = tape.call(attempt.activation, effect.kind, effect.name, wanted, effect.request)
    changed = found is not None and found.content and effect.graph and found.content != effect.graph
    return None if changed else found


def _settle(under_way: UnderWay, key: str, call: RecordedCall) -> EffectSettled:
    """Journal the result that the replayed run had."""
    attempt = under_way.attempt
    log, settled = attempt.log, call.result
    assert settled is not None
    if call.inner is not None:
        stamp = log.at(attempt.activation)
        log.push(Spent(**stamp, key=key, run=call.inner.run, usage=call.inner.usage))
    ending = Ending(
        settled.result, settled.error, settled.usage, settled.unknown, settled.returned, answered=settled.answered
    )
    record = under_way.settle(key, log.clock.now(), ending, tries=settled.tries)
    if call.late:
        raise attempt.signalled(TimedOut())
    error = None if settled.returned is not None else settled.error
    if error is not None and not issubclass(_class_of(error), ModelError):
        raise as_raised(error)
    return record


def as_raised(error: Failure) -> EffectFailed:
    """A recorded error as the node of the replayed run saw it: of a class with its name, which is also a built-in one.

    So `except ConnectionError` catches it as it did there, and it is journaled as it was.
    """
    cls = _class_of(error)
    built_in = cls.__module__ == "builtins" and cls is not Exception
    bases: tuple[type, ...] = (EffectFailed, cls) if built_in else (EffectFailed,)
    raised: EffectFailed = type(error.type, bases, {})(error.message, type=error.type)
    return raised


def _class_of(error: Failure) -> type[Exception]:
    found = getattr(errors, error.type, None) or getattr(builtins, error.type, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else EffectFailed


def _intended(
    attempt: Attempt, effect: Effect[Any], key: str, wanted: str, occurrence: int, taken: int, reserve: Reserve | None
) -> EffectIntended:
    """The intent of a call that is taken from the replayed run."""
    log, activation = attempt.log, attempt.activation
    return EffectIntended(
        **log.at(activation), key=key, kind=effect.kind, name=effect.name, effect=effect.effect, digest=wanted,
        occurrence=occurrence, attempt=activation.attempt, reserve=reserve, taken=taken,
        request=effect.request if effect.stored is None else effect.stored(),
    )  # fmt: skip

"""Calls of a replay. A call takes its result from the replayed run, waits as that run did, or is live:

recorded, with a result              journaled as taken from the record of that result; nothing is called
recorded, stopped by its time limit  the step's time is over here too
recorded, stopped or without an end  waits for what stopped it: a sibling, a cancel, a time limit of the run
asked about, without an answer       the same is asked here
not recorded, of a stopped step      the same
anything else                        live: `never` ends the replay here, `ask` asks first, `always` makes the call

A live call that a confirm of the graph asks about is asked about in any case, unless a person approved it in the replay
itself; an irreversible one as in every fork of a run.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, cast

from orchestrator import errors
from orchestrator.errors import EffectFailed, ModelError
from orchestrator.executor.calls.effect import Attempt, Call, Effect
from orchestrator.executor.calls.irreversible_calls import question_id
from orchestrator.executor.calls.limits import admit
from orchestrator.executor.calls.questions import answer_to, asking_again, identified, passed_on
from orchestrator.executor.calls.reuse import NOT_MADE, Ending
from orchestrator.executor.calls.under_way import UnderWay, inside
from orchestrator.executor.commands import Stop
from orchestrator.executor.failures import Refused, TimedOut
from orchestrator.executor.replay import REPLAYED
from orchestrator.executor.replay.steps import wait_for_stop
from orchestrator.executor.trusted_approvals import CallDenied, asks_about
from orchestrator.graph.limits import Reserve
from orchestrator.kernel import records as r
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.limits import exceeded_limit
from orchestrator.kernel.question import Approve, Deny, Question
from orchestrator.kernel.state import hash_id
from orchestrator.tools.result import Risk, risk_at_most

if TYPE_CHECKING:
    from orchestrator.executor.replay.running import RecordedCall, RunningReplay


_SHOWN = 2000
"""Characters of a prompt shown by a question about a live call."""


async def take_or_admit(
    under_way: UnderWay, replay: RunningReplay, call: Call, entry: EffectEntry | None
) -> tuple[r.EffectSettled | None, int | None]:
    """Return the recorded result of a call of a replay, or let the call be made.

    Args:
        under_way: the effects of the step.
        replay: the replay.
        call: the call. The journal of the replay has no result for it.
        entry: the call, if the replay's journal contains it as one that takes a recorded result.

    Returns:
        The result, journaled. Or None: the call is to be made, with the number of its try if it is intended already.

    Raises:
        Suspend: a person is asked whether to make it.
        CallDenied: a person denied it, here or in the replayed run.
        Refused: the replay ends here.
        TimedOut: the time limit of the step stopped it in the replayed run.
    """
    attempt, effect = under_way.attempt, call.effect
    recorded = _recorded(replay, attempt, call, entry)
    if recorded is None:
        if effect.kind != "effect" and exceeded_limit(attempt.activation) is not None:
            return None, None  # the limit refuses it, as in the replayed run
        if _is_up_to_a_person(replay, attempt, call):
            return None, None
        if not inside.get() and replay.was_stopped(attempt.activation):
            async with attempt.while_waiting():
                await wait_for_stop(attempt.log, replay, attempt.activation)
        if attempt.stopped() is not None:
            raise attempt.signalled(Refused())  # the run has ended, or continues without this step: nothing diverges
        denied = _denied(replay, attempt, effect)
        if denied is not None:
            raise CallDenied(effect.name, denied.reason)
        await _admit_live(under_way, replay, call)
        return None, None
    reserve = None
    if effect.kind != "effect":
        reserve = await admit(attempt, under_way.callers, call, again=entry is not None)
    log = attempt.log
    log.push(_intended(attempt, call, recorded.seq, reserve))
    if recorded.result is not None:
        return _settle(under_way, call.key, recorded), None
    await _ask_as_inside(under_way, replay, recorded)
    started = log.clock.now()
    try:
        async with attempt.while_waiting():
            await wait_for_stop(log, replay, attempt.activation)
    except BaseException:
        why = attempt.stopped()
        if why is not None:
            ending = Ending(error=attempt.failure_named(*why), unknown=effect.irreversible)
            under_way.settle(call.key, started, ending)
        raise
    why_live = "the replayed run has no result for it"
    under_way.settle(call.key, started, Ending(error=attempt.failure_named(NOT_MADE, why_live)))
    await _admit_live(under_way, replay, call, why_live)
    return None, 1


def _is_up_to_a_person(replay: RunningReplay, attempt: Attempt, call: Call) -> bool:
    """Return True if a call is asked about, as in the replayed run, or a person has denied it."""
    at, effect = attempt.activation, call.effect
    if not effect.irreversible or inside.get():
        return False
    answered = at.answers.get(question_id(at, call.key))
    if answered is not None or replay.is_live(at):
        return answered is not None and not isinstance(answered.answer, Approve)
    return replay.recording.asks_about((at.path, at.node), effect.name, effect.request.get("args", effect.request))


async def _ask_as_inside(under_way: UnderWay, replay: RunningReplay, call: RecordedCall) -> None:
    """Wait for the answer for which the replayed run waits inside a call.

    Raises:
        Suspend: the question is asked.
    """
    attempt = under_way.attempt
    asked = replay.recording.open_inside(call) if replay.live == "never" else None
    if asked is None or replay.is_live(attempt.activation):
        return
    await under_way.settle_down()
    answer_to(attempt, passed_on(attempt, asked.question, ()))


def _denied(replay: RunningReplay, attempt: Attempt, effect: Effect[Any]) -> Deny | None:
    """Return the answer by which a person denied this call in the replayed run; None if it was not denied."""
    if inside.get() or replay.is_live(attempt.activation):
        return None
    at, args = attempt.activation, effect.request.get("args", effect.request)
    return replay.recording.denial((at.path, at.node), effect.name, args)


def _recorded(replay: RunningReplay, attempt: Attempt, call: Call, entry: EffectEntry | None) -> RecordedCall | None:
    """Return the recorded call for a call; None if the call is live."""
    if entry is not None:
        return next((one for one in replay.recording.all_calls() if one.seq == entry.intended.taken), None)
    if inside.get() or replay.is_live(attempt.activation):
        return None
    effect = call.effect
    found = replay.call(attempt.activation, effect.kind, effect.name, call.digest, effect.request)
    changed = found is not None and found.content and effect.graph and found.content != effect.graph
    return None if changed else found


def _settle(under_way: UnderWay, key: str, call: RecordedCall) -> r.EffectSettled:
    """Journal the result from the replayed run."""
    attempt = under_way.attempt
    log, settled = attempt.log, call.result
    assert settled is not None
    if call.inner is not None:
        stamp = log.at(attempt.activation)
        log.push(r.Spent(**stamp, key=key, run=call.inner.run, usage=call.inner.usage))
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


def as_raised(error: r.Failure) -> EffectFailed:
    """Return a recorded error as an exception whose class has the recorded name and derives from the built-in one.

    So `except ConnectionError` catches it as in that run, and it is journaled in the same way.
    """
    cls = _class_of(error)
    built_in = cls.__module__ == "builtins" and cls is not Exception
    bases: tuple[type, ...] = (EffectFailed, cls) if built_in else (EffectFailed,)
    raised: EffectFailed = type(error.type, bases, {})(error.message, type=error.type)
    return raised


def _class_of(error: r.Failure) -> type[Exception]:
    found = getattr(errors, error.type, None) or getattr(builtins, error.type, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else EffectFailed


def _intended(attempt: Attempt, call: Call, taken: int, reserve: Reserve | None) -> r.EffectIntended:
    """Return the intent of a call that takes a recorded result."""
    log, activation, effect = attempt.log, attempt.activation, call.effect
    return r.EffectIntended(
        **log.at(activation),
        key=call.key,
        kind=effect.kind,
        name=effect.name,
        effect=effect.effect,
        digest=call.digest,
        occurrence=call.occurrence,
        attempt=activation.attempt,
        reserve=reserve,
        taken=taken,
        request=effect.request if effect.stored is None else effect.stored(),
    )


# -- live calls --------------------------------------------------------------------------------------------------------


async def _admit_live(under_way: UnderWay, replay: RunningReplay, call: Call, why: str = "") -> None:
    """Check whether a live call may be made.

    Raises:
        Suspend: a person is asked first.
        Refused: the replay ends here.
    """
    attempt, effect = under_way.attempt, call.effect
    activation = attempt.activation
    if (replay.live == "never" or not replay.is_live(activation)) and not inside.get():
        _note(attempt, replay, call, why)
    if replay.live == "never":
        raise _end_replay(attempt, f"{effect.kind} {effect.name}: {why or 'the replayed run did not ask this'}")
    args = effect.request.get("args")
    if not _is_asked_about(attempt, replay, effect, args):
        return
    question = _question(attempt, call, why)
    if question.id not in activation.answers:
        await under_way.settle_down()
    answer = answer_to(attempt, question)
    if not isinstance(answer, Approve):
        raise _end_replay(attempt, f"{effect.kind} {effect.name} was not allowed")


def _is_asked_about(attempt: Attempt, replay: RunningReplay, effect: Effect[Any], args: object) -> bool:
    if effect.irreversible:
        return False  # a fork asks about these, and shows the known earlier calls
    if effect.kind != "tool":
        return replay.live == "ask"
    approve = attempt.log.machine.approve
    if replay.was_approved(effect.name, args) or (
        approve is not None and risk_at_most(effect.risk, cast("Risk", approve))
    ):
        return False
    return replay.live == "ask" or asks_about(attempt.log.machine.plan.graph, effect.risk)


def _note(attempt: Attempt, replay: RunningReplay, call: Call, why: str) -> None:
    """Journal that the replay diverges here, once."""
    log, activation, effect = attempt.log, attempt.activation, call.effect
    if (activation.key, call.digest, call.occurrence) in replay.diverged:
        return
    log.push(
        r.Diverged(
            **log.at(activation),
            kind=effect.kind,
            name=effect.name,
            digest=call.digest,
            occurrence=call.occurrence,
            attempt=activation.attempt,
            request=effect.request if effect.stored is None else effect.stored(),
            why=why or "the replayed run did not ask this",
        )
    )


def _end_replay(attempt: Attempt, why: str) -> Refused:
    """End a replay: cancel its run. Returns the signal to raise in the node."""
    Stop("cancel", REPLAYED, f"diverged: {why}").apply(attempt.log)
    signal = Refused()
    attempt.signalled(signal)
    return signal


def _question(attempt: Attempt, call: Call, why: str) -> Question:
    """Return the question whether to make a live call. Its id derives from the call."""
    activation, effect = attempt.activation, call.effect
    name = hash_id(activation.key, "live", call.key, *asking_again(activation))
    payload: dict[str, object] = {"call": effect.name, "kind": effect.kind, "effect": effect.effect}
    if effect.kind == "model":
        messages = effect.request.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else {}
        payload["prompt"] = str(last.get("content", ""))[:_SHOWN] if isinstance(last, dict) else ""
    else:
        payload["args"] = effect.request.get("args", effect.request)
    if effect.kind == "tool":
        payload["risk_of_call"] = effect.risk
    question = Question(
        id=name,
        kind="approval",
        node=activation.node,
        path=activation.path,
        prompt=f"Call {effect.name}? {why or 'The replayed run did not make this call'}. Without it the replay ends.",
        payload=payload,
    )
    return identified(attempt, question)

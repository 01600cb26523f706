"""Steps and calls of a replay.

Steps wait for the cause of their stop in the replayed run, and their questions get its answers. Calls take the result
from the replayed run, wait as that run did, or are live:

recorded, with a result              journaled as taken from the record of that result; nothing is called
recorded, stopped by its time limit  the step's time is over here too
recorded, stopped or without an end  waits for what stopped it: a sibling, a cancel, a time limit of the run
asked about, without an answer       the same is asked here
not recorded, of a stopped step      the same
anything else                        live: `never` ends the replay here, `ask` asks first, `always` makes the call

A live call that a confirm of the graph asks about is asked about in any case, unless a person approved it in the replay
itself; an irreversible one as in every fork of a run.

Calls take no time in a replay. Without waiting, a branch would run past the record at which a failure, a cancel, STOP
or a join of some stopped it in the replayed run, and would ask there what that run never asked.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from orchestrator import errors
from orchestrator.errors import EffectFailed, ModelError
from orchestrator.executor.approvals import CallDenied, asks_about
from orchestrator.executor.calls.effect import Attempt, Call, Effect
from orchestrator.executor.calls.irreversible_calls import question_id
from orchestrator.executor.calls.limits import admit
from orchestrator.executor.calls.questions import answer_to, asking_again, identified, passed_on
from orchestrator.executor.calls.reuse import NOT_MADE, Ending
from orchestrator.executor.calls.under_way import UnderWay, inside
from orchestrator.executor.commands import Stop, about
from orchestrator.executor.failures import Refused, TimedOut
from orchestrator.executor.replay import REPLAYED
from orchestrator.executor.replay.running import question_digest
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.limits import Reserve
from orchestrator.kernel import records as r
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.limits import exceeded_limit
from orchestrator.kernel.question import LATE, Answer, Approve, Deny, Question, in_family
from orchestrator.kernel.state import Activation, hash_id
from orchestrator.tools.result import Risk, risk_at_most

if TYPE_CHECKING:
    from orchestrator.executor.replay.running import RecordedCall, RunningReplay


_MOMENT = 0.02
"""Seconds without progress, after which all running steps of a replay count as waiting."""


async def wait_to_land(log: RunLog, replay: RunningReplay, activation: Activation, record: r.Record) -> r.Record:
    """Wait until a step may land with this record.

    A step that was stopped in the replayed run before this record waits for the cause of the stop, or until nothing
    else happens. A step that ended its graph there, or stopped others, lands when those have come as far as they did
    there.

    Returns:
        The record, with a stamp that fits when it lands.
    """
    if replay.was_stopped(activation) and not _came_to(replay, activation, record):
        await wait_for_stop(log, replay, activation)
    elif isinstance(record, r.StepDone | r.StepFailed) and _is_early(log, replay, activation):
        with _waiting(log, replay, activation):
            while _is_early(log, replay, activation):
                await log.moved()
    else:
        return record
    return record.model_copy(update=dict(log.now()))


async def wait_for_stop(log: RunLog, replay: RunningReplay, activation: Activation) -> None:
    """Wait for the cause that stopped the step in the replayed run. Returns when nothing else will happen.

    External events of that run are applied when every running step waits for them.
    """
    with _waiting(log, replay, activation):
        while True:
            head = log.machine.head
            if _moves(log, replay):
                await log.moved()
                continue
            await anyio.sleep(_MOMENT)
            if log.machine.head != head or _moves(log, replay):
                continue
            if not _apply_next_outside(log, replay):
                return
            await anyio.lowlevel.checkpoint()


@contextmanager
def _waiting(log: RunLog, replay: RunningReplay, activation: Activation) -> Iterator[None]:
    replay.waiting[activation.key] += 1
    log.stir()
    try:
        yield
    finally:
        replay.waiting[activation.key] -= 1
        replay.waiting += Counter[str]()  # without zeros


def _moves(log: RunLog, replay: RunningReplay) -> bool:
    """Return True if a step runs that waits for nothing."""
    return any(key not in replay.waiting for key in log.machine.running)


def _came_to(replay: RunningReplay, activation: Activation, record: r.Record) -> bool:
    """Return True if a step that was stopped in the replayed run reached this record before."""
    if isinstance(record, r.Asked | r.TimerSet):
        question = record.question if isinstance(record, r.Asked) else timer_question(record)
        return replay.question(activation, question) is not None
    if isinstance(record, r.StepRetried | r.GraphOpened):
        return (activation.key, record.type, record.attempt) in replay.recording.went_on
    return False


def _is_early(log: RunLog, replay: RunningReplay, activation: Activation) -> bool:
    """Return True if a step is about to end before the others that its end affects have come as far.

    If it ended its graph there, stopped others or led to a join of `some`, those that ended before it there must end,
    and those that it stopped must wait.
    """
    recording = replay.recording
    stops = activation.key in recording.stopping
    if not (stops or activation.key in recording.arriving) or not replay.is_as_recorded:
        return False
    own = recording.ends.get(activation.key, 0)
    return any(
        recording.ends.get(key, own) < own or (stops and key not in replay.waiting and replay.was_stopped(other))
        for key, other in log.machine.running.items()
    )


def _apply_next_outside(log: RunLog, replay: RunningReplay) -> bool:
    """Apply the next external event of the replayed run. Returns False if there are no more."""
    record = replay.next_outside()
    if record is None:
        return False
    stamp = log.now()
    if record.type == "cancelled":
        Stop("cancel", REPLAYED, record.reason).apply(log)
    elif record.type == "event_received":
        log.push(record.model_copy(update={**stamp, "seal": "", "message": None, "questions": ()}))
    elif record.type == "limit_spent":
        log.push(record.model_copy(update={**stamp, "seal": "", "activation": None}))
    else:
        around = [
            frame.parent
            for frame in log.machine.frames()
            if frame.parent is not None and (frame.parent.path, frame.parent.node) == (record.path, record.node)
        ]
        for activation in around:
            log.push(record.model_copy(update={**stamp, "seal": "", "activation": activation.key}))
    return True


def apply_outside_at_rest(log: RunLog, replay: RunningReplay) -> None:
    """Apply the external events that came while no step ran in the replayed run."""
    machine = log.machine
    while not log.closing and machine.result is None and not machine.running and not machine.paused:
        askers = (machine.askers.get(name) for name in machine.questions)
        if any(one is None or replay.is_live(one) or replay.asks_about_live_call(one) for one in askers):
            return  # a person may answer
        if not _apply_next_outside(log, replay):
            return


# -- questions ---------------------------------------------------------------------------------------------------------


def answer_as_recorded(log: RunLog, replay: RunningReplay, activation: Activation, question: Question) -> bool:
    """Answer an open question of a replay with the answer in the replayed run.

    Questions without an answer there stay open. Questions not asked there are journaled, and with `live="never"` the
    replay ends.

    Returns:
        Whether the question needs no further handling.
    """
    if in_family(question) or replay.is_live(activation) or replay.asks_about_live_call(activation):
        return False  # a recorded answer never admits a call
    found = replay.question(activation, question)
    answer: Answer | None = LATE if found is None and question.kind == "timer" else None  # it asks nothing
    if found is not None:
        answer = None if found.answered is None else found.answered.answer
    if answer is not None:
        shown = about(question)
        log.push(r.Answered(**log.now(), question=question.id, answer=answer, by=REPLAYED, policy=True, about=shown))
        return True
    if found is not None:
        return False
    why = "the replayed run did not ask this question"
    request = {"prompt": question.prompt, "payload": dict(question.payload), "choices": list(question.choices)}
    wanted = question_digest(question)
    log.push(
        r.Diverged(
            **log.at(activation),
            kind="question",
            name=question.kind,
            digest=wanted,
            attempt=activation.attempt,
            request=request,
            why=why,
        )
    )
    if replay.live == "never":
        Stop("cancel", REPLAYED, f"diverged: {why}").apply(log)
        return True
    return False


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
    """Return a recorded error as in the replayed run: of a class with its name, derived from the built-in one.

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
    """Return if a live call may be made.

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

"""Steps of a replay wait for the cause of their stop in the replayed run, and their questions get its answers.

Calls take no time in a replay (`orchestrator.executor.replay.calls`). Without waiting, a branch would run past the
record at which a failure, a cancel, STOP or a join of some stopped it in the replayed run, and would ask there what
that run never asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from msgspec import structs

from orchestrator.executor.commands import Stop, about
from orchestrator.executor.replay import REPLAYED
from orchestrator.executor.replay.running import question_digest
from orchestrator.executor.run_log import RunLog
from orchestrator.kernel import records as r
from orchestrator.kernel.fold.questions import timer_question
from orchestrator.kernel.question import LATE, Answer, Question, in_family
from orchestrator.kernel.state import Activation

if TYPE_CHECKING:
    from orchestrator.executor.replay.running import RunningReplay


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
    return structs.replace(record, **log.now())


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
    """Return True if a step would end before the steps that its end affects are as far as in the replayed run.

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
        log.push(structs.replace(record, **stamp, seal="", message=None, questions=()))
    elif record.type == "limit_spent":
        log.push(structs.replace(record, **stamp, seal="", activation=None))
    else:
        around = [
            frame.parent
            for frame in log.machine.frames()
            if frame.parent is not None and (frame.parent.path, frame.parent.node) == (record.path, record.node)
        ]
        for activation in around:
            log.push(structs.replace(record, **stamp, seal="", activation=activation.key))
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
    request: r.JsonDict = {
        "prompt": question.prompt,
        "payload": dict(question.payload),
        "choices": list(question.choices),
    }
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

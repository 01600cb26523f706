"""What comes to a run from outside: answers, pause, cancel. Through the store if somebody else drives the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import RunError
from orchestrator.executor.effects.questions import about, check_answer
from orchestrator.kernel.question import Answer
from orchestrator.kernel.records import Answered, Cancelled, Paused

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import LiveRun
    from orchestrator.kernel.machine import Machine
    from orchestrator.sealing import Seal
    from orchestrator.stores.base import Message, Store

POLL = 0.25
"""Seconds between two looks into the inbox."""

log = logging.getLogger("orchestrator")
_answers: TypeAdapter[Answer] = TypeAdapter(Answer)


def answer_run(
    live: LiveRun, question: str, answer: Answer, *, by: str, digest: str | None, message: int | None = None
) -> None:
    """Answer a question of a run.

    Raises:
        QuestionUnknown, StaleAnswer, InvalidAnswer: it does not fit; nothing was changed.
    """
    checked = check_answer(
        live.machine, question, answer, digest, live.given.tools_for_answers(live.machine.plan.graph)
    )
    record = Answered(
        seq=live.machine.head + 1, ts=time.time(), question=question, answer=checked, by=by, message=message,
        about=about(live.machine.questions[question]),
    )  # fmt: skip
    live.push(record, message)


def pause_run(live: LiveRun, *, by: str, reason: str, message: int | None = None) -> bool:
    """Let what runs land and start nothing more. False: there was nothing to pause."""
    machine = live.machine
    if machine.result is not None or machine.ended is not None or machine.paused:
        return False
    live.push(Paused(seq=machine.head + 1, ts=time.time(), by=by, reason=reason, message=message), message)
    return True


def cancel_run(live: LiveRun, *, by: str, reason: str, message: int | None = None) -> bool:
    """Stop everything and end the run. False: it was at its end."""
    machine = live.machine
    if machine.result is not None or machine.ended is not None:
        return False
    live.push(Cancelled(seq=machine.head + 1, ts=time.time(), by=by, reason=reason, message=message), message)
    return True


async def look(live: LiveRun) -> None:
    """Handle what lies in the inbox of one run."""
    store = live.journal.store
    await handle(store, {live.run_id: live}, await store.inbox([live.run_id]))


async def drop_unsealed(store: Store, seal: Seal, run_id: str, machine: Machine | None) -> None:
    """Drop the approvals that lay in a run's inbox before it was taken up, if this seal's key did not seal them.

    Who can write a store's file can lay them there; what comes while a run is driven comes from a process that works
    on the same store.

    Args:
        machine: the run; None for one that begins now, and cannot have been answered.
    """
    dropped = []
    for message in await store.inbox([run_id]):
        question = None if machine is None else machine.questions.get(str(message.body.get("question")))
        harmless = message.body.get("type") != "answer" or (question is not None and question.kind == "input")
        if machine is None or not (harmless or seal.sealed_message(run_id, message.body)):
            dropped.append(message.id)
    if dropped:
        log.warning("run %s: %d answers without a valid seal are dropped", run_id, len(dropped))
        await store.discard(dropped)


async def handle(store: Store, lives: Mapping[str, LiveRun], messages: list[Message]) -> None:
    """Give messages to the runs that they are for. What does not fit any more is dropped."""
    dropped: list[int] = []
    for message in messages:
        live = lives.get(message.run_id)
        if live is None or message.id in live.seen or (live.closing and live.machine.ended is None):
            continue
        live.seen.add(message.id)
        try:
            taken = _take(live, message)
        except (RunError, ValidationError) as error:
            log.info("run %s: message %d is dropped: %s", message.run_id, message.id, error)
            taken = False
        if not taken:
            dropped.append(message.id)
    if dropped:
        await store.discard(dropped)


def _take(live: LiveRun, message: Message) -> bool:
    body = message.body
    by, reason = str(body.get("by", "")), str(body.get("reason", ""))
    if body.get("type") == "pause":
        return pause_run(live, by=by, reason=reason, message=message.id)
    if body.get("type") == "cancel":
        return cancel_run(live, by=by, reason=reason, message=message.id)
    if body.get("type") == "spend":
        from orchestrator.executor.effects.remote_callers import take_spend

        return take_spend(live, message)
    if body.get("type") == "answer" and live.machine.ended is None:
        digest = body.get("digest")
        answer_run(
            live,
            str(body.get("question")),
            _answers.validate_python(body.get("answer")),
            by=by,
            digest=digest if isinstance(digest, str) else None,
            message=message.id,
        )
        return True
    return False

"""The one way in which a command reaches a run, whoever drives it: answers, pauses, cancels."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio

from orchestrator.errors import QuestionUnknown, RunConflict, RunEnded, StaleAnswer
from orchestrator.executor.answers import stale_or_unknown
from orchestrator.executor.commands import AnswerQuestion, Stop
from orchestrator.executor.drive.drive import Drive
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.inbox import take_messages
from orchestrator.executor.host.reader import load
from orchestrator.executor.host.recovery import LOOK, wait_for
from orchestrator.executor.lease import is_held
from orchestrator.executor.run_log import Command
from orchestrator.kernel.question import Answer
from orchestrator.kernel.records import FINAL, Answered, Record
from orchestrator.values import check_text
from orchestrator.views.run import Run

log = logging.getLogger("orchestrator")


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a command was journaled."""

    live: Drive | None = None
    """The run is driven here."""
    held: Drive | None = None
    """This call took the run up; it is driven, or given back, by the caller."""
    record: Record | None = None
    """Another process drives the run: what it journaled."""


async def deliver(host: Host, run_id: str, command: Command, *, resume: bool = False) -> Delivered:
    """Bring a command to a run, whoever drives it.

    Args:
        resume: whether a run that is driven nowhere is taken up to go on; without it no code is needed.

    Raises:
        RunUnknown, RunEnded, and what `command.checked` raises: nothing has changed.
    """
    tools, clock = host.resources.tools_for_answers, host.resources.clock
    while True:
        live = host.live.get(run_id)
        if live is not None and not live.log.closing:
            command.checked(live.machine, tools, clock.now()).apply(live.log)
            return Delivered(live=live)
        if live is not None:
            await live.done.wait()
            continue
        try:
            held = await (host.open(run_id) if resume else host.borrow(run_id))
        except RunConflict:
            if isinstance(command, AnswerQuestion):  # refused here, where the caller is; the holder checks it once more
                command = command.checked((await load(host, run_id)).machine, tools, clock.now())
            taken, record = await post(host, run_id, command)
            if taken:
                return Delivered(record=record)
            continue
        try:
            command.checked(held.machine, tools, clock.now()).apply(held.log)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await host.release(held)
            raise
        return Delivered(held=held)


async def answer(
    host: Host, run_id: str, question: str, given: Answer, *, by: str, digest: str | None, resume: bool
) -> Run:
    """See `Executor.answer`."""
    command = AnswerQuestion(question, given, check_text(by, "by"), digest)
    try:
        sent = await deliver(host, run_id, command, resume=resume)
    except (QuestionUnknown, RunEnded):
        raise stale_or_unknown(run_id, question, await host.store.read(run_id)) from None
    if sent.held is not None:
        if resume:
            host.resumed(sent.held, unpause=False)
            return await host.drive(sent.held)
        await _journal(host, sent.held)
    elif sent.live is not None:
        await sent.live.log.durable()
    elif not isinstance(sent.record, Answered):
        raise StaleAnswer(f"run {run_id!r}: question {question!r} was closed before the answer came")
    return await wait_for(host, run_id, None) if resume else await load(host, run_id)


async def post(host: Host, run_id: str, command: Command) -> tuple[bool, Record | None]:
    """Leave a message and wait until it is taken.

    Returns:
        Whether it was: not if nobody drives the run any more, then it is taken back. And the record that it led to.
    """
    body = command.body()
    if host.seal is not None and isinstance(command, AnswerQuestion):
        body["seal"] = host.seal.message(run_id, body)
    head = (await host.store.info(run_id)).head
    message = await host.store.post(run_id, body)
    taken = True
    while taken and any(other.id == message for other in await host.store.inbox([run_id])):
        info = await host.store.info(run_id)
        if info.status in FINAL or not is_held(await host.store.lease(run_id)):
            await host.store.discard([message])
            taken = False
        else:
            await anyio.sleep(LOOK)
    # The journal says it: who gave the run back may have taken the message just before.
    records = await host.store.read(run_id, after=head)
    record = next((one for one in records if getattr(one, "message", None) == message), None)
    return taken or record is not None, record


async def stop(host: Host, run_id: str, command: Stop) -> Run:
    """Pause or cancel a run, and wait until it stands still; see `Executor.pause` and `Executor.cancel`."""
    check_text(command.by, "by")
    check_text(command.reason, "reason")
    while True:
        sent = await deliver(host, run_id, command)
        if sent.held is not None:
            await _journal(host, sent.held)
            return await load(host, run_id)
        if sent.live is None:
            return await wait_for(host, run_id, None)
        await sent.live.done.wait()
        fault = sent.live.fault
        if fault is None:
            return host.run_of(sent.live)
        if not isinstance(fault, RunConflict):
            raise fault  # it may not be in the store; else another executor drives the run now


async def _journal(host: Host, held: Drive) -> None:
    """Make durable what was journaled to a borrowed run, and give it back."""
    try:
        await held.end_if_over()
        if held.machine.ended is None:
            await take_messages(held)
            await held.end_if_over()
        await held.log.durable()
    finally:
        with anyio.CancelScope(shield=True):
            await host.release(held)

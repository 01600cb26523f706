"""Delivery of commands (answers, events, pauses, cancellations) to a run, whichever process drives it.

An event is sent to one run by its id, or to the runs that have given labels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
from msgspec import structs

from orchestrator.errors import Ambiguous, QuestionUnknown, RunConflict, RunEnded, StaleAnswer
from orchestrator.executor.commands import MOST_ENDED, AnswerQuestion, SendEvent, Stop, as_answer, stale_or_unknown
from orchestrator.executor.host import Host
from orchestrator.executor.lease import is_held
from orchestrator.executor.options import ResumeOptions
from orchestrator.executor.resuming import LOOK, borrow, drive_on, go_on, journal_resumed, open_run, wait_for
from orchestrator.executor.run_log import Command
from orchestrator.kernel.records import Answered, Record
from orchestrator.kernel.status import FINAL
from orchestrator.stores.requests import RunQuery
from orchestrator.tasks import away
from orchestrator.values import check_labels, check_text
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive

log = logging.getLogger("orchestrator")


@dataclass(frozen=True, slots=True)
class Delivered:
    """How a command was delivered: to a run that is driven here, held for it, or driven by another process."""

    live: Drive | None = None
    """The drive, if this executor drives the run."""
    held: Drive | None = None
    """The drive, if this call took the run's lease; the caller drives it or releases it."""
    records: Sequence[Record | None] = ()
    """If another process drives the run: the record that it journaled for each command."""


async def deliver_commands(
    host: Host, run_id: str, *commands: Command, resume: ResumeOptions | None = None
) -> Delivered:
    """Deliver commands to a run, whichever process drives it: all of them, or none if one does not fit.

    A process that drives the run takes them one after the other.

    Args:
        resume: how a run that no process drives is resumed; None: it is not resumed, and no code is needed.

    Raises:
        RunUnknown, RunEnded, and the errors of `Command.checked`: nothing has changed.
    """
    tools, clock = host.resources.tools_for_answers, host.resources.clock
    posted: list[Record | None] = []

    def apply(drive: Drive) -> None:
        now = clock.now()
        for one in [one.checked(drive.machine, tools, now) for one in commands[len(posted) :]]:
            one.apply(drive.log)

    while True:
        live = host.live.get(run_id)
        if live is not None and not live.log.closing:
            apply(live)
            return Delivered(live=live, records=posted)
        if live is not None:
            await live.done.wait()
            continue
        try:
            held = await (borrow(host, run_id) if resume is None else open_run(host, run_id, resume))
        except RunConflict:
            if run_id in host.live:
                continue  # another task of this executor has just resumed it
            if not posted:  # checked here to raise errors in the caller; the process that drives the run checks again
                commands = await _checked(host, run_id, commands)
            if await _post_all(host, run_id, commands, posted):
                return Delivered(records=posted)
            continue
        try:
            apply(held)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await host.release(held)
            raise
        return Delivered(held=held, records=posted)


async def _checked(host: Host, run_id: str, commands: Sequence[Command]) -> tuple[Command, ...]:
    """Return the commands, with answers and events checked against the run in the store."""
    if all(isinstance(one, Stop) for one in commands):
        return tuple(commands)
    machine = (await host.loader.load(run_id)).machine
    tools, now = host.resources.tools_for_answers, host.resources.clock.now()
    return tuple(one.checked(machine, tools, now) for one in commands)


async def _post_all(host: Host, run_id: str, commands: Sequence[Command], posted: list[Record | None]) -> bool:
    """Post the commands not yet posted for the process that drives the run. Returns whether it took all of them."""
    for one in commands[len(posted) :]:
        taken, record = await post(host, run_id, one)
        if not taken:
            return False
        posted.append(record)
    return True


async def answer(
    host: Host,
    run_id: str,
    question: str,
    given: object,
    *,
    by: str,
    digest: str | None,
    resume: ResumeOptions | None,
    background: bool = False,
) -> Run:
    """See `Executor.answer`."""
    command = AnswerQuestion(question, await away(lambda: as_answer(given), given), check_text(by, "by"), digest)
    sent = await answer_all(host, run_id, [command], resume=resume)
    if sent.held is not None and resume is not None:
        journal_resumed(sent.held, unpause=False)
        return await (go_on(host, run_id, sent.held) if background else drive_on(host, sent.held))
    if sent.held is not None:
        host.watched.forget(run_id)
        await journal(host, sent.held)
    elif sent.live is None and resume is not None:
        host.watched.watch(run_id)
    return await (wait_for(host, run_id, None) if resume is not None and not background else host.loader.load(run_id))


async def answer_all(
    host: Host, run_id: str, answers: Sequence[AnswerQuestion], *, resume: ResumeOptions | None
) -> Delivered:
    """Deliver answers to a run; those to a driven run are durable.

    Raises:
        QuestionUnknown, StaleAnswer, InvalidAnswer: see `Executor.answer`.
    """
    try:
        sent = await deliver_commands(host, run_id, *answers, resume=resume)
    except (QuestionUnknown, RunEnded) as error:
        wrong = error.question if isinstance(error, QuestionUnknown) else answers[0].question
        raise stale_or_unknown(run_id, wrong, await host.store.read(run_id)) from None
    if sent.live is not None:
        await sent.live.log.durable()
    for one, record in zip(answers, sent.records, strict=False):
        if not isinstance(record, Answered):
            raise StaleAnswer(f"run {run_id!r}: question {one.question!r} was closed before the answer arrived")
    return sent


async def post(host: Host, run_id: str, command: Command) -> tuple[bool, Record | None]:
    """Leave a message and wait until the process that drives the run takes it.

    Returns:
        Whether it was taken (if no process drives the run any more, it is withdrawn), and the record that it led to.
    """
    body = command.body()
    if host.seal is not None and isinstance(command, AnswerQuestion):
        body["seal"] = host.seal.message(run_id, body)
    head = (await host.store.info(run_id)).head
    try:
        message = await host.store.post(run_id, body)
    except RunEnded:
        return False, None
    taken = True
    while taken and any(other.id == message for other in await host.store.inbox([run_id])):
        info = await host.store.info(run_id)
        if info.status in FINAL or not is_held(await host.store.lease(run_id)):
            await host.store.discard([message])
            taken = False
        else:
            await anyio.sleep(LOOK)
    # The journal decides: the process that released the run may have taken the message just before.
    records = await host.store.read(run_id, after=head)
    record = next((one for one in records if getattr(one, "message", None) == message), None)
    return taken or record is not None, record


async def stop(host: Host, run_id: str, command: Stop) -> Run:
    """Pause or cancel a run, and wait until no process drives it; see `Executor.pause` and `Executor.cancel`."""
    check_text(command.by, "by")
    check_text(command.reason, "reason")
    while True:
        sent = await deliver_commands(host, run_id, command)
        if sent.held is not None:
            if host.watched.retries(run_id):
                host.watched.forget(run_id)
            await journal(host, sent.held)
            return await host.loader.load(run_id)
        if sent.live is None:
            return await wait_for(host, run_id, None)
        await sent.live.done.wait()
        fault = sent.live.fault
        if fault is None:
            return host.run_of(sent.live)
        if not isinstance(fault, RunConflict):
            raise fault  # it may not be stored; if it is not, another executor drives the run now


async def journal(host: Host, held: Drive) -> None:
    """Make the last records of a run durable, and release the run, which is held only for journaling."""
    try:
        await host.observation.driving(held, driven=False)
        await held.end_if_over()
        if held.machine.ended is None:
            await held.take_messages()
            await held.end_if_over()
        await held.log.durable()
        host.loader.remember(held.machine, held.snapshots.kept)
    finally:
        with anyio.CancelScope(shield=True):
            await host.release(held)


async def event_of(name: str, data: object, id_: str | None, by: str) -> SendEvent:
    """Return the event for the arguments of `Executor.send`.

    An event without an id gets one, since it may have to be delivered twice if the process that drives the run dies.
    """
    given = {"name": name, "data": data, "id": uuid4().hex if id_ is None else id_, "by": by}
    return await away(lambda: structs.replace(SendEvent.of(given), refusable=True), name, data)


async def send_to(
    host: Host,
    run_id: str | None,
    labels: Mapping[str, str] | None,
    event: SendEvent,
    resume: ResumeOptions | None,
    *,
    named: bool,
    every: bool,
    background: bool,
) -> Run | list[Run]:
    """See `Executor.send`.

    Args:
        named: whether the sender gave the event its id, so that it may have been delivered before.
        every: send it to every unfinished run that has the labels.
    """
    if (run_id is None) == (labels is None) or (every and labels is None):
        raise TypeError("give either the id of a run, or labels=; all=True needs labels")
    if every and labels is not None:
        return await send_to_all(host, labels, event, resume, background=background)
    one = run_id if labels is None else await the_one(host, labels, event.id if named else None)
    assert one is not None
    return await send(host, one, event, resume, background=background)


async def send(
    host: Host, run_id: str, event: SendEvent, resume: ResumeOptions | None, *, background: bool = False
) -> Run:
    """See `Executor.send`.

    Args:
        resume: how a run that no process drives is resumed; None: the event is journaled only.
    """
    while True:
        try:
            sent = await deliver_commands(host, run_id, event, resume=resume)
        except RunEnded:
            run = await host.loader.load(run_id)
            if event.id in run.machine.events.ids:
                return run  # delivered before the run ended, and now again
            raise
        if sent.held is not None and resume is not None:
            journal_resumed(sent.held, unpause=False)
            if not background:
                return await drive_on(host, sent.held)
            run = await go_on(host, run_id, sent.held)
            if event.id in run.machine.events.ids:
                return run
            continue  # the drive was stopped before the event was stored
        if sent.held is not None:
            host.watched.forget(run_id)
            await journal(host, sent.held)
            return await host.loader.load(run_id)
        if sent.live is not None:
            await sent.live.log.durable()
        elif sent.records[0] is None:
            # The process that drives the run has it already, or did not take it. If that process died before it was
            # stored, the next one decides.
            run = await host.loader.load(run_id)
            if event.id not in run.machine.events.ids:
                if run.machine.ended is not None:
                    raise RunEnded(run_id, run.status)
                await anyio.sleep(LOOK)
                continue
        return await (
            wait_for(host, run_id, None) if resume is not None and not background else host.loader.load(run_id)
        )


async def say(host: Host, run_id: str, command: Command) -> Run:
    """Deliver a command to a run, and drive the run until it ends or pauses."""
    sent = await deliver_commands(host, run_id, command, resume=ResumeOptions())
    if sent.held is None:
        return await wait_for(host, run_id, None)
    journal_resumed(sent.held, unpause=False)
    return await host.drive(sent.held)


async def the_one(host: Host, labels: Mapping[str, str], event_id: str | None) -> str:
    """Return the id of the one unfinished run that has these labels.

    If there is none, it is the run with these labels that has ended and has already received an event of this id.

    Raises:
        Ambiguous: no run has them, or more than one.
    """
    found = await unfinished(host, labels)
    if not found and event_id is not None:
        page = await host.store.runs(RunQuery(status=tuple(FINAL), labels=labels, limit=MOST_ENDED))
        for info in page.runs:
            if event_id in (await host.loader.load(info.run_id)).machine.events.ids:
                return info.run_id
    if len(found) != 1:
        raise Ambiguous(labels, found)
    return found[0]


async def unfinished(host: Host, labels: Mapping[str, str]) -> list[str]:
    """Return the ids of the unfinished runs that have these labels, newest first."""
    labels = check_labels(labels)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await host.store.runs(RunQuery(status=("running", "paused"), labels=labels, after=cursor, limit=200))
        found += [info.run_id for info in page.runs]
        cursor = page.cursor
        if cursor is None:
            return found


async def send_to_all(
    host: Host, labels: Mapping[str, str], event: SendEvent, resume: ResumeOptions | None, *, background: bool = False
) -> list[Run]:
    """Send an event to every unfinished run that has these labels; runs that end meanwhile are left out."""
    found: dict[str, Run] = {}
    faults: list[Exception] = []
    wanted = await unfinished(host, labels)

    async def send_one(run_id: str) -> None:
        try:
            found[run_id] = await send(host, run_id, event, resume, background=background)
        except RunEnded:
            return
        except Exception as error:
            faults.append(error)

    async with anyio.create_task_group() as tasks:
        for run_id in wanted:
            tasks.start_soon(send_one, run_id)
    if faults:
        raise faults[0]
    return [found[run_id] for run_id in wanted if run_id in found]

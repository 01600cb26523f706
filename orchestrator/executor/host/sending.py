"""Sends events to runs: to one by its id, or to those that have some labels."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import anyio

from orchestrator.away import away
from orchestrator.errors import Ambiguous, RunEnded
from orchestrator.executor.host.delivery import deliver, journal
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.host.reader import load
from orchestrator.executor.host.recovery import LOOK, drive_on, go_on, wait_for
from orchestrator.executor.run_log import Command
from orchestrator.executor.sent_events import SendEvent
from orchestrator.stores.requests import RunQuery
from orchestrator.values import check_labels
from orchestrator.views.run import Run


async def event_of(name: str, data: object, id_: str | None, by: str) -> SendEvent:
    """The event that a caller of `Executor.send` gives.

    An event without an id gets one: it may have to be delivered twice, where the process that holds the run dies.
    """
    given = {"name": name, "data": data, "id": uuid4().hex if id_ is None else id_, "by": by}
    return await away(lambda: SendEvent.of(given), name, data)


async def send_to(
    host: Host,
    run_id: str | None,
    labels: Mapping[str, str] | None,
    event: SendEvent,
    resume: Manner | None,
    *,
    every: bool,
    background: bool,
) -> Run | list[Run]:
    """See `Executor.send`.

    Args:
        every: send it to every unfinished run that has the labels.
    """
    if (run_id is None) == (labels is None) or (every and labels is None):
        raise TypeError("give either the id of a run, or labels=; all=True goes with labels")
    if every and labels is not None:
        return await send_to_all(host, labels, event, resume, background=background)
    one = run_id if labels is None else await the_one(host, labels)
    assert one is not None
    return await send(host, one, event, resume, background=background)


async def send(host: Host, run_id: str, event: SendEvent, resume: Manner | None, *, background: bool = False) -> Run:
    """See `Executor.send`.

    Args:
        resume: how a run that is driven nowhere is taken up to continue; None: the event is journaled only.
    """
    while True:
        try:
            sent = await deliver(host, run_id, event, resume=resume)
        except RunEnded:
            run = await load(host, run_id)
            if event.id in run.machine.events.ids:
                return run  # it was delivered before the run ended, and is delivered again
            raise
        if sent.held is not None and resume is not None:
            host.resumed(sent.held, unpause=False)
            if not background:
                return await drive_on(host, sent.held)
            run = await go_on(host, run_id, sent.held)
            if event.id in run.machine.events.ids:
                return run
            continue  # the drive was given up before the event was stored
        if sent.held is not None:
            host.watched.forget(run_id)
            await journal(host, sent.held)
            return await load(host, run_id)
        if sent.live is not None:
            await sent.live.log.durable()
        elif sent.records[0] is None:
            # The holder of the run has it already, or did not take it. If the holder died before it was stored, the
            # next holder decides.
            run = await load(host, run_id)
            if event.id not in run.machine.events.ids:
                if run.machine.ended is not None:
                    raise RunEnded(run_id, run.status)
                await anyio.sleep(LOOK)
                continue
        return await (wait_for(host, run_id, None) if resume is not None and not background else load(host, run_id))


async def say(host: Host, run_id: str, command: Command) -> Run:
    """Bring a command to a run, and go on until it ends or pauses."""
    sent = await deliver(host, run_id, command, resume=Manner())
    if sent.held is None:
        return await wait_for(host, run_id, None)
    host.resumed(sent.held, unpause=False)
    return await host.drive(sent.held)


async def the_one(host: Host, labels: Mapping[str, str]) -> str:
    """The id of the one unfinished run that has these labels.

    Raises:
        Ambiguous: none has, or several have.
    """
    found = await unfinished(host, labels)
    if len(found) != 1:
        raise Ambiguous(labels, found)
    return found[0]


async def unfinished(host: Host, labels: Mapping[str, str]) -> list[str]:
    """The ids of the unfinished runs that have these labels, the newest first."""
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
    host: Host, labels: Mapping[str, str], event: SendEvent, resume: Manner | None, *, background: bool = False
) -> list[Run]:
    """Send an event to every unfinished run that has these labels; one that ends meanwhile is left out."""
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

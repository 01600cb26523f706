"""Answering, pausing, cancelling, resuming and recovering runs, whoever drives them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import GraphUnknown, OrchestratorError, QuestionUnknown, RunConflict, RunEnded, StaleAnswer
from orchestrator.executor.answers import RISKS, stale_or_unknown
from orchestrator.executor.commands import AnswerQuestion, Cancel, Command, Pause
from orchestrator.executor.host.inbox import take_messages
from orchestrator.executor.host.reading import load
from orchestrator.executor.lease import is_held
from orchestrator.kernel.records import FINAL, Answered
from orchestrator.values import check_text

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive
    from orchestrator.executor.host.host import Host
    from orchestrator.kernel.question import Answer
    from orchestrator.kernel.records import Record
    from orchestrator.views.run import Run

log = logging.getLogger("orchestrator")

_LOOK = 0.05
"""Seconds between two looks at what the holder did with a message."""


def check_risk(approve: str | None) -> None:
    """Refuse a policy that is no risk.

    Raises:
        ValueError: it is none.
    """
    if approve is not None and approve not in RISKS:
        raise ValueError(f"approve={approve!r} is no risk: say one of {', '.join(RISKS)}")


async def wait_for(host: Host, run_id: str, limit: float | None) -> Run:
    """Wait until a run ends, pauses, or is driven by nobody any more.

    Raises:
        TimeoutError: it took longer.
        and the error that this executor gave it up for.
    """
    with anyio.move_on_after(limit) as scope:
        missing = 0
        while True:
            live = host.live.get(run_id)
            if live is not None:
                await live.done.wait()
                fault = live.fault
                if fault is not None:
                    raise fault
                return host.run_of(live)
            if run_id in host.faults:
                raise host.faults.pop(run_id)
            info = await host.store.info(run_id)
            if info.status != "running":
                return await load(host, run_id)
            # Between two holders there may be a moment without one.
            missing = 0 if is_held(await host.store.lease(run_id)) else missing + 1
            if missing > 3:
                return await load(host, run_id)
            await anyio.sleep(_LOOK)
    assert scope.cancelled_caught
    raise TimeoutError(f"run {run_id!r} has neither ended nor paused after {limit} s; it goes on")


async def resume(
    host: Host, run_id: str, *, approve: str | None, accept: bool, wait: float, trust_answers: bool = True
) -> Run:
    """See `Executor.resume`."""
    check_risk(approve)
    live = host.live.get(run_id)
    if live is not None and not live.log.closing:
        host.resumed(live, approve)
        live.answer_by_policy()
        return await wait_for(host, run_id, None)
    if live is not None:
        await live.done.wait()
    live = await host.open(run_id, wait=wait, accept=accept, trust_answers=trust_answers)
    host.resumed(live, approve)
    return await host.drive(live)


async def recover(host: Host, only: Collection[str] | None) -> list[Run]:
    """See `Executor.recover`."""
    found: dict[str, Run] = {}

    async def go_on(run_id: str) -> None:
        try:
            live = await host.open(run_id)
            host.resumed(live, unpause=False)
            found[run_id] = await host.drive(live)
        except (RunConflict, RunEnded):
            return  # somebody else was quicker
        except OrchestratorError as error:
            log.warning("run %s cannot be recovered: %s", run_id, error)

    async def all_of(runs: Collection[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(go_on, run_id)

    wanted = [one for one in await lost(host, host.resources.graphs) if only is None or one in only]
    # Runs that others called go on when those make their calls again; what is left then goes on by itself.
    inner = [one for one in wanted if (await host.store.info(one)).labels.get("parent") in wanted]
    await all_of([one for one in wanted if one not in inner])
    if inner:
        left = await lost(host, host.resources.graphs)
        await all_of([one for one in inner if one in left])
    return list(found.values())


async def lost(host: Host, graphs: Collection[str] | None) -> list[str]:
    """Runs (of graphs of these names) that could go on and that nobody drives, the oldest first."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await host.store.runs(status=("running", "paused"), after=cursor, limit=200)
        known = [one for one in page.runs if (graphs is None or one.graph in graphs) and one.run_id not in host.live]
        told = {message.run_id for message in await host.store.inbox([info.run_id for info in known])}
        for info in known:
            goes_on = host.standstill.overdue(info) or info.status == "running" or info.run_id in told
            if goes_on and not is_held(await host.store.lease(info.run_id)):
                found.append(info.run_id)
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


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
        RunUnknown, RunEnded, and what `command.apply` raises: nothing has changed.
    """
    while True:
        live = host.live.get(run_id)
        if live is not None and not live.log.closing:
            command.apply(live.log)
            return Delivered(live=live)
        if live is not None:
            await live.done.wait()
            continue
        try:
            held = await (host.open(run_id) if resume else host.borrow(run_id))
        except RunConflict:
            if isinstance(command, AnswerQuestion):
                run = await load(host, run_id)
                checked = command.check(run.machine, host.resources.tools_for_answers(run.machine.plan.graph))
                command = replace(command, answer=checked)
            taken, record = await post(host, run_id, command)
            if taken:
                return Delivered(record=record)
            continue
        try:
            command.apply(held.log)
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
            await anyio.sleep(_LOOK)
    # The journal says it: who gave the run back may have taken the message just before.
    records = await host.store.read(run_id, after=head)
    record = next((one for one in records if getattr(one, "message", None) == message), None)
    return taken or record is not None, record


async def pause(host: Host, run_id: str, *, by: str, reason: str) -> Run:
    """See `Executor.pause`."""
    return await _stop(host, run_id, Pause(check_text(by, "by"), check_text(reason, "reason")))


async def cancel(host: Host, run_id: str, *, by: str, reason: str) -> Run:
    """See `Executor.cancel`."""
    return await _stop(host, run_id, Cancel(check_text(by, "by"), check_text(reason, "reason")))


async def _stop(host: Host, run_id: str, command: Pause | Cancel) -> Run:
    """Deliver a command that stops a run, and wait until the run stands still."""
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


__all__ = ["GraphUnknown", "answer", "cancel", "check_risk", "lost", "pause", "post", "recover", "resume", "wait_for"]

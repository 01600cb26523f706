"""Runs that a call of a graph as a tool begins, answers and ends, as the executor does it for any other run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from orchestrator._lazy import lazy_modules
from orchestrator.errors import QuestionUnknown, RunConflict, RunEnded, RunUnknown, StaleAnswer
from orchestrator.executor import recovery
from orchestrator.executor.answers import as_answer, is_answerable
from orchestrator.executor.commands import PassTime, SendEvent, Stop
from orchestrator.executor.host import Host
from orchestrator.executor.options import NO_OPTIONS, ResumeOptions, RunOptions
from orchestrator.executor.run_log import Command, RunLog
from orchestrator.executor.start import begin, join
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.question import Answer, Value
from orchestrator.kernel.records import FINAL, Caller, Record, Reopened
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import delivery
    from orchestrator.executor.drive import Drive
    from orchestrator.executor.fork import called_runs
else:
    (delivery,) = lazy_modules("orchestrator.executor", "delivery")
    (called_runs,) = lazy_modules("orchestrator.executor.fork", "called_runs")


class ChildRuns:
    """Implements `Children`."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def live(self, run_id: str) -> RunLog | None:
        """A run that this executor drives; None also if it is about to end."""
        drive = self.host.live.get(run_id)
        return None if drive is None or drive.log.closing or drive.machine.ended is not None else drive.log

    async def start(
        self, graph: GraphDefinition, given: object, run_id: str, caller: Caller, limits: Limits | None
    ) -> Run:
        """Run a graph, or go on with the run of this id."""
        if caller.in_fork and await called_runs.forked_call(self.host, graph, run_id, caller):
            return await join(self.host, run_id)
        options = RunOptions(run_id=run_id, labels={"parent": caller.run_id}, limits=limits)
        live = await begin(self.host, graph, given, options, caller)
        return await (join(self.host, live) if isinstance(live, str) else self.host.drive(live))

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Hand an answer on that was given to the parent, and go on."""
        by = f"run {parent}"
        try:
            asked = next((one for one in run.waiting if one.id == question), None)
            if asked is None or is_answerable(asked):
                return await delivery.answer(
                    self.host, run.run_id, question, as_answer(answer), by=by, digest=None, resume=NO_OPTIONS
                )
            if isinstance(answer, Value):
                event = SendEvent(asked.event, answer.value, hash_id(by, question), by)
                return await delivery.send(self.host, run.run_id, event, ResumeOptions())
            return await delivery.say(self.host, run.run_id, PassTime(question))
        except RunEnded:
            return await self.host.loader.load(run.run_id)
        except (QuestionUnknown, StaleAnswer):  # the child itself was answered, or its deadline has passed
            return await self._go_on(run.run_id)

    async def _go_on(self, run_id: str) -> Run:
        """Let a run take in what was answered and what is overdue; whoever drives it does."""
        while True:
            try:
                return await recovery.resume(self.host, run_id, NO_OPTIONS)
            except RunEnded:
                return await self.host.loader.load(run_id)
            except RunConflict:
                run = await recovery.wait_for(self.host, run_id, None)
                if run.status != "interrupted":
                    return run

    async def reopen(self, run: Run, by: str, limits: Limits | None) -> Run:
        """Have a run go on that did not complete; give it as it is if `by` has reopened it, or if it cannot go on."""
        if run.status not in FINAL or run.status == "completed":
            return run
        records = await self.host.store.read(run.run_id)
        if any(isinstance(record, Reopened) and record.by == by for record in records):
            return run
        try:
            return await recovery.resume(self.host, run.run_id, ResumeOptions(retry=True, limits=limits, by=by))
        except RunEnded:
            return await self.host.loader.load(run.run_id)
        except RunConflict:  # another process goes on with it, or has
            return await self._go_on(run.run_id)

    async def cancel(self, run_id: str) -> Run | None:
        """End a run whose parent does not want it any more; gives it as it is then, None if it never began."""
        try:
            return await delivery.stop(self.host, run_id, Stop("cancel"))
        except RunEnded:
            return await self.host.loader.load(run_id)
        except RunUnknown:
            return None

    async def load(self, run_id: str) -> Run:
        """A run as it is in the store."""
        return await self.host.loader.load(run_id)

    async def borrow(self, run_id: str) -> AbstractAsyncContextManager[RunLog]:
        """Take a run up to journal something, and give it back at the end of the block."""
        return self._released(await self.host.borrow(run_id))

    @asynccontextmanager
    async def _released(self, held: Drive) -> AsyncIterator[RunLog]:
        try:
            yield held.log
        finally:
            with anyio.CancelScope(shield=True):
                await self.host.release(held)

    async def post(self, run_id: str, command: Command) -> tuple[bool, Record | None]:
        """Leave a command for a run that another process drives, and wait until it is taken."""
        return await delivery.post(self.host, run_id, command)

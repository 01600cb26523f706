"""Starts, answers and ends the runs of graphs that are called as tools, as the executor does for other runs.

In a fork, the run that the original call started is forked, too. The parent's journal contains how far that run was
when the parent was forked: `Spent.head`, or the question of that run that the parent asked last, under an id derived
from the question's own. So an answer in the fork answers what its call asks. If the journal contains neither, because
the run had made no call and asked nothing, or if that run is deleted, the call starts a new run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import anyio

from orchestrator._lazy import lazy_modules
from orchestrator.errors import (
    InvalidValue,
    QuestionUnknown,
    RunConflict,
    RunEnded,
    RunExists,
    RunUnknown,
    StaleAnswer,
    StoreCorrupt,
)
from orchestrator.executor.host import Host
from orchestrator.executor.options import NO_OPTIONS, ForkOptions, ResumeOptions, RunOptions
from orchestrator.executor.run_log import Command, RunLog
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.question import Answer, Value
from orchestrator.kernel.records import Asked, Caller, EffectIntended, Forked, Record, Reopened, Spent
from orchestrator.kernel.state import Activation, hash_id
from orchestrator.kernel.status import FINAL
from orchestrator.stores.requests import NewRun
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import command_delivery, commands, resuming, start
    from orchestrator.executor.calls import limits, questions
    from orchestrator.executor.drive import Drive
    from orchestrator.executor.fork import making
else:  # not needed to read runs
    command_delivery, commands, resuming, start = lazy_modules(
        "orchestrator.executor", "command_delivery commands resuming start"
    )
    limits, questions = lazy_modules("orchestrator.executor.calls", "limits questions")
    (making,) = lazy_modules("orchestrator.executor.fork", "making")


class ChildRuns:
    """Implements `Children`."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def live(self, run_id: str) -> RunLog | None:
        """Return a run that this executor drives; None also if the run is about to end."""
        drive = self.host.live.get(run_id)
        return None if drive is None or drive.log.closing or drive.machine.ended is not None else drive.log

    async def start(
        self, graph: GraphDefinition, given: object, run_id: str, caller: Caller, limits: Limits | None
    ) -> Run:
        """Run a graph, or continue the run with this id."""
        if caller.in_fork and await forked_call(self.host, graph, run_id, caller):
            return await start.join(self.host, run_id)
        options = RunOptions(run_id=run_id, labels={"parent": caller.run_id}, limits=limits)
        live = await start.begin(self.host, graph, given, options, caller)
        return await (start.join(self.host, live) if isinstance(live, str) else self.host.drive(live))

    async def answer(self, run: Run, question: str, answer: Answer, parent: str) -> Run:
        """Pass on an answer that was given to the parent, and continue the run."""
        by = f"run {parent}"
        try:
            asked = next((one for one in run.waiting if one.id == question), None)
            if asked is None or commands.is_answerable(asked):
                return await command_delivery.answer(
                    self.host, run.run_id, question, answer, by=by, digest=None, resume=NO_OPTIONS
                )
            if isinstance(answer, Value):
                event = commands.SendEvent(asked.event, answer.value, hash_id(by, question), by)
                return await command_delivery.send(self.host, run.run_id, event, ResumeOptions())
            return await command_delivery.say(self.host, run.run_id, commands.PassTime(question))
        except RunEnded:
            return await self.host.loader.load(run.run_id)
        except (QuestionUnknown, StaleAnswer):  # the child was answered directly, or its deadline has passed
            return await self._go_on(run.run_id)

    async def _go_on(self, run_id: str) -> Run:
        """Continue a run until it ends or pauses, here or in the executor that drives it, and return it."""
        while True:
            try:
                return await resuming.resume(self.host, run_id, NO_OPTIONS)
            except RunEnded:
                return await self.host.loader.load(run_id)
            except RunConflict:
                run = await resuming.wait_for(self.host, run_id, None)
                if run.status != "interrupted":
                    return run

    async def reopen(self, run: Run, by: str, limits: Limits | None) -> Run:
        """Continue a run that did not complete. Returns it unchanged if `by` reopened it or it cannot continue."""
        if run.status not in FINAL or run.status == "completed":
            return run
        records = await self.host.store.read(run.run_id)
        if any(isinstance(record, Reopened) and record.by == by for record in records):
            return run
        try:
            return await resuming.resume(self.host, run.run_id, ResumeOptions(retry=True, limits=limits, by=by))
        except RunEnded:
            return await self.host.loader.load(run.run_id)
        except RunConflict:  # another process continues it, or has ended it
            return await self._go_on(run.run_id)

    async def cancel(self, run_id: str) -> Run | None:
        """Cancel a run that its parent no longer waits for. Returns the run; None if it never started."""
        try:
            return await command_delivery.stop(self.host, run_id, commands.Stop("cancel"))
        except RunEnded:
            return await self.host.loader.load(run_id)
        except RunUnknown:
            return None

    async def load(self, run_id: str) -> Run:
        """Load a run from the store."""
        return await self.host.loader.load(run_id)

    async def borrow(self, run_id: str) -> AbstractAsyncContextManager[RunLog]:
        """Hold the lease of a run within the block, to journal something."""
        return self._released(await resuming.borrow(self.host, run_id))

    @asynccontextmanager
    async def _released(self, held: Drive) -> AsyncIterator[RunLog]:
        try:
            yield held.log
        finally:
            with anyio.CancelScope(shield=True):
                await self.host.release(held)

    async def post(self, run_id: str, command: Command) -> tuple[bool, Record | None]:
        """Leave a command for a run that another process drives, and wait until the process takes it."""
        return await command_delivery.post(self.host, run_id, command)


class Origin(NamedTuple):
    """The run that the original call started, and the last of its records that the fork contains."""

    run_id: str
    head: int


async def forked_call(host: Host, graph: GraphDefinition, run_id: str, caller: Caller) -> bool:
    """Make the run of a call as a fork, unless it exists.

    Args:
        host: the host of the runs.
        graph: the graph that is called.
        run_id: the id of the run that the call starts.
        caller: the call, of a fork.

    Returns:
        Whether the run is a fork; False: the call starts a run as usual.
    """
    store = host.store
    try:
        first = (await store.read(run_id, limit=1))[0]
    except RunUnknown:
        origin = await _origin(host, caller)
        if origin is None:
            return False
        try:
            info = await store.info(origin.run_id)
            options = ForkOptions(origin.run_id, at=min(origin.head, info.head), caller=caller)
            draft = await making.draft_of(host, options, run_id, start=False)
            await store.create(NewRun(draft.info, draft.records))
        except RunExists:
            pass
        except (RunUnknown, StoreCorrupt, InvalidValue):
            return False  # it is deleted, damaged or complete: the call is made again
    else:
        if getattr(first, "run_id", run_id) == run_id:
            return False
    host.resources.graphs.setdefault(graph.name, graph)
    host.resources.begun[graph.content] = graph
    return True


async def _origin(host: Host, caller: Caller) -> Origin | None:
    """Return the run that the call of the caller's parent started, if the caller is a fork and has copied that call."""
    records = await host.store.read(caller.run_id)
    live = host.live.get(caller.run_id)
    made = live.machine.ledger.entry(caller.key) if live is not None else None
    if live is None or made is None:
        return None
    wanted, copied = made.intended, records[: live.machine.forked_at]
    call: EffectIntended | None = None
    for record in copied:
        if isinstance(record, EffectIntended) and record.kind == "tool":
            same = (record.activation, record.name, record.digest, record.occurrence)
            if same == (wanted.activation, wanted.name, wanted.digest, wanted.occurrence):
                call = record
    if call is None:
        return None
    spent = [record for record in copied if isinstance(record, Spent) and record.key == call.key and record.head]
    found = Origin(spent[-1].run, spent[-1].head) if spent else None
    step = live.machine.activation(call.activation)
    asked = {one.question.id for one in copied if isinstance(one, Asked) and one.activation == call.activation}
    last = await _asked_last(host, records, call, step, asked) if asked and step is not None else None
    if last is None or (found is not None and (found.run_id != last.run_id or found.head > last.head)):
        return found
    return last


async def _asked_last(
    host: Host, records: Sequence[Record], call: EffectIntended, step: Activation, asked: Collection[str]
) -> Origin | None:
    """Return the run that a call started, up to the last of its questions that the calling step asked; None: none.

    Args:
        host: the host of the runs.
        records: records of the fork that makes the call again.
        call: the copied call.
        step: the step that makes it.
        asked: ids of the questions that the step had asked when its run was forked.
    """
    try:
        name = limits.child_id(await _maker(host, records, call.seq), call.key)
        inside = await host.store.read(name)
    except (RunUnknown, StoreCorrupt):
        return None
    passed_on = questions.was_passed_on
    heads = [one.seq for one in inside if isinstance(one, Asked) and passed_on(step, one.question.id, asked)]
    return Origin(name, heads[-1]) if heads else None


async def _maker(host: Host, records: Sequence[Record], seq: int) -> str:
    """Return the id of the run that wrote a record of which a fork has a copy.

    Args:
        host: the host of the runs.
        records: records of the fork.
        seq: the number of the record.
    """
    parent = next(one.parent for one in records if isinstance(one, Forked) and one.seq > seq)
    before = await host.store.read(parent)
    copied = any(isinstance(one, Forked) and one.seq > seq for one in before)
    return await _maker(host, before, seq) if copied else parent

"""Streams: a run that is driven while its events are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, Self

import anyio
from anyio.abc import TaskStatus

from orchestrator.errors import RunConflict, RunEnded, RunExists
from orchestrator.executor.answers import as_answer
from orchestrator.executor.commands import AnswerQuestion
from orchestrator.executor.delivery import answer_all, journal
from orchestrator.executor.following import FOLLOW, RecordFollower, Watcher, watch
from orchestrator.executor.host import Host
from orchestrator.executor.options import ResumeOptions, RunOptions
from orchestrator.executor.recovery import Waiting, check_risk, drive_on, take_up
from orchestrator.executor.start import begin
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import FINAL, Record
from orchestrator.typevars import StateT
from orchestrator.values import check_text
from orchestrator.views.events import Event, event_of
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


class Stream(Generic[StateT]):
    """The events of a run, until it ends or pauses. Iterate over it; after the last event, `run` is the run."""

    def __init__(
        self, host: Host, run_id: str, source: AsyncIterator[Record | Event], live: Drive | None = None
    ) -> None:
        self._host, self._run_id, self._source, self._live = host, run_id, source, live
        self._run: Run[StateT] | None = None
        self.scope, self.over = anyio.CancelScope(), anyio.Event()
        """Of the task that drives the run."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run_id

    @property
    def run(self) -> Run[StateT]:
        """The run, after it has ended or paused.

        Raises:
            RuntimeError: the run is still running: read its events to the end first.
        """
        if self._run is None and self._live is not None and self._live.done.is_set():
            self._run = self._host.run_of(self._live)
        if self._run is None:
            raise RuntimeError(f"run {self.run_id!r} is still running: read its events to the end first")
        return self._run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        seen = await anext(self._source, None)
        if seen is None:
            await self._conclude()
            raise StopAsyncIteration
        return seen if isinstance(seen, Event) else event_of(self.run_id, seen)

    async def aclose(self) -> None:
        """Read no more events, and interrupt the run if this stream drives it. Leaving the block does so."""
        if isinstance(self._source, RecordFollower):
            self._source.leave()
            return
        self.scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.over.wait()

    def goes_on(self, live: Drive) -> None:
        """Another drive follows the one before, which waited for a timer."""
        self._live = live

    def concluded(self, run: Run) -> None:
        """The run has ended or paused."""
        self._run = run

    def failed(self, error: BaseException) -> None:
        """The run was given up. The error is raised where the events are read."""
        if self._live is not None:
            self._live.fault = self._live.fault or error

    async def _conclude(self) -> None:
        """Note the run as it is, or raise why it was given up."""
        if self._live is not None:
            await self._live.done.wait()
            if self._live.fault is not None:
                raise self._live.fault
        elif self._run_id in self._host.faults:
            raise self._host.faults.pop(self._run_id)
        elif self._run is None:
            self._run = await self._host.loader.load(self._run_id)


async def streamed(host: Host, live: Drive, after: int = 0) -> Stream:
    """Drive a run that was taken up here until the stream is left."""
    watcher = watch(host, live.run_id, after)
    stream: Stream = Stream(host, live.run_id, watcher, live)
    relay = _Relay(watcher)
    relay.follow(live)

    def began(further: Drive) -> None:
        relay.follow(further)
        stream.goes_on(further)

    async def drive(*, task_status: TaskStatus[None]) -> None:
        task_status.started()
        try:
            with stream.scope:
                run = await drive_on(host, live, began)
                watcher.catch_up(run.seq)  # another executor may have driven it in the end
                stream.concluded(run)
        except (Exception, SystemExit) as error:
            stream.failed(error)
        finally:
            watcher.close()
            stream.over.set()

    with anyio.CancelScope(shield=True):  # once it has begun, it releases the run whatever happens
        await host.background().start(drive)
    return stream


class _Relay:
    """Hands what one drive after the other sends to one watcher, which outlasts them."""

    def __init__(self, watcher: Watcher) -> None:
        self.stored, self.live = watcher.stored, watcher.live
        self._watcher = watcher

    def follow(self, drive: Drive) -> None:
        """Follow a drive in which nothing has happened yet."""
        self._watcher.catch_up(drive.log.journal.stored)
        drive.log.watch(self)

    def close(self) -> None:
        """A drive is over; the next one may follow when a timer is due."""


class StreamBlock(AbstractAsyncContextManager[Stream]):
    """A stream while a block runs. Not made by a generator, which would be closed late where a block is abandoned."""

    def __init__(self, opening: Callable[[], Awaitable[Stream]]) -> None:
        self._opening = opening

    async def __aenter__(self) -> Stream:
        self._stream = await self._opening()
        return self._stream

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


def check_new(
    answers: Mapping[str, object] | None, by: str, resume: bool, after: int | None, options: ResumeOptions
) -> None:
    """Refuse arguments of `Executor.stream` for an existing run where a new one is started."""
    given = {
        "answers": answers, "by": by or None, "resume": None if resume else False, "after": after,
        "wait": options.wait or None, "accept_changes": options.accept_changes or None,
        "trust_answers": None if options.trust_answers else False, "retry": options.retry or None,
    }  # fmt: skip
    _refuse(given, "an existing run: give its run_id alone")


def check_existing(given: object, labels: Mapping[str, str] | None, refs: Mapping[str, object] | None) -> None:
    """Refuse arguments of `Executor.stream` for a new run where an existing one is read."""
    _refuse({"input": given, "labels": labels, "refs": refs}, "a new run: give its graph")


def _refuse(given: Mapping[str, object], whose: str) -> None:
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise TypeError(f"stream(): {', '.join(wrong)} can be given only for {whose}")


async def started(host: Host, graph: GraphDefinition | str, given: object, options: RunOptions) -> Stream:
    """Begin a run, and return its stream.

    Raises:
        see `Executor.stream`
    """
    live = await begin(host, graph, given, options)
    if isinstance(live, str):
        raise RunExists(live, "stream(graph) starts a new run, stream(run_id=...) reads an existing one")
    return await streamed(host, live)


async def existing(
    host: Host,
    run_id: str | None,
    answers: Mapping[str, object],
    *,
    by: str,
    resume: bool,
    after: int | None,
    options: ResumeOptions,
) -> Stream:
    """Answer questions of a run, go on with it if no executor drives it, and return its stream.

    Raises:
        see `Executor.stream`
    """
    if run_id is None:
        raise TypeError("stream(): give a graph, or the run_id of an existing run")
    info = await host.store.info(run_id)
    check_risk(options.approve)
    after = info.head if after is None else after
    joined = Waiting(host, run_id, joins=resume, pause=FOLLOW)
    follower = RecordFollower(host, run_id, after, follow=True, joined=joined)
    follower.join()  # a driven run may send live events before the first event is read
    held: Drive | None = None
    if answers:
        given = [AnswerQuestion(name, as_answer(one), check_text(by, "by")) for name, one in answers.items()]
        sent = await answer_all(host, run_id, given, resume=options if resume else None)
        held = sent.held
        if held is not None and not resume:
            host.watched.forget(run_id)
            await journal(host, held)
            held = None
        elif held is not None:
            host.resumed(held, options.approve, unpause=False)
        elif options.approve is not None and sent.live is None:
            raise RunConflict(run_id, "its answers were taken, and another executor drives it: `approve` is not set")
        elif options.approve is not None and sent.live is not None:
            host.resumed(sent.live, options.approve, unpause=False)
            sent.live.answer_by_policy()
    elif resume and options.changes_nothing and host.watched.goes_on(run_id):
        pass  # it sleeps, and goes on without this call: leaving the stream must not interrupt it
    elif resume and (info.status not in FINAL or options.retry):
        try:
            held = await take_up(host, run_id, options)
        except (RunConflict, RunEnded):
            if options.approve is not None or options.retry:  # then it is not known whether it holds
                raise
    if held is not None:
        follower.leave()
        return await streamed(host, held, after)
    if not follower.watches(host.live.get(run_id)):  # who drove it has given it back meanwhile
        follower.leave()
        follower = RecordFollower(host, run_id, after, follow=True, joined=joined)
        follower.join()
    return Stream(host, run_id, follower)

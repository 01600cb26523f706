"""Events of a run, whichever process drives it: stored and new ones. A `Stream` also drives the run.

A watcher of a run that this executor drives gets its durable records in order, with the live events between them. It is
an iterator instead of an async generator: a generator left early must be closed explicitly, else trio warns and asyncio
cleans up late. Iterators hold nothing that needs closing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Sized
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeAlias

import anyio
from anyio.abc import TaskStatus

from orchestrator._lazy import above, lazy_modules
from orchestrator.clock import Clock
from orchestrator.errors import RunConflict, RunEnded, RunExists, StoreCorrupt
from orchestrator.executor.commands import AnswerQuestion, as_answer
from orchestrator.executor.host import Host
from orchestrator.executor.options import ResumeOptions, RunOptions
from orchestrator.executor.resuming import Waiting, check_risk, drive_on, journal_resumed, take_up
from orchestrator.executor.start import begin
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.typevars import StateT
from orchestrator.kernel.records import Record
from orchestrator.kernel.status import FINAL
from orchestrator.values import check_text
from orchestrator.views.events import Event, EventStyle, event_of
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import command_delivery
    from orchestrator.executor.drive import Drive
else:
    (command_delivery,) = lazy_modules("orchestrator.executor", "command_delivery")


CHUNK = 500
"""Number of records read from the store at a time."""
_RECORDS = 2000
"""Maximum number of records buffered for a slow watcher; it reads older ones from the store."""
_LIVE = 10_000
"""Maximum number of live events buffered for a slow watcher."""
_CHARACTERS = 4_000_000
"""Maximum number of characters of their texts; each text counts at most a thousand. Else a few long replies, which a
slow watcher gets from their start, would fill the buffer again at once.
"""


class Watcher:
    """A watcher of a live run: its durable records in order, with the live events between them.

    A slow watcher never delays the run. It buffers a bounded number of records, and reads what it missed from the
    store. It buffers a bounded number of live events, too: if there are more it drops them, and gets the replies in
    progress from their start.
    """

    def __init__(
        self, run_id: str, after: int, read: Callable[[int], Awaitable[Sequence[Record]]], clock: Clock
    ) -> None:
        self.run_id, self.seen = run_id, after
        self._read, self._clock = read, clock
        self._records: deque[Record] = deque(maxlen=_RECORDS)
        self._read_ahead: deque[Record] = deque()
        self._live: deque[tuple[int, Event]] = deque()
        self._characters = 0
        self._wake = anyio.Event()
        self._stored = after
        self._closed = False

    def catch_up(self, stored: int) -> None:
        """Record that records up to this one are in the store."""
        self._stored = max(self._stored, stored)
        self._wake.set()

    def stored(self, records: Sequence[Record]) -> None:
        """Add records that are durable now."""
        self._records.extend(records)
        if records:
            self._stored = max(self._stored, records[-1].seq)
            self._wake.set()

    def live(self, seq: int, kind: str, data: dict[str, object]) -> bool:
        """Add a live event, which is delivered when record `seq` is durable.

        Returns:
            False if too many were buffered: all of them were dropped.
        """
        kept = len(self._live) < _LIVE and self._characters < _CHARACTERS
        if not kept:
            self._live.clear()
            self._characters = 0
        self._characters += _weight(data)
        event = Event(type=kind, seq=None, ts=self._clock.now(), run_id=self.run_id, data=data)
        self._live.append((seq, event))
        if seq <= self._stored:
            self._wake.set()
        return kept

    def close(self) -> None:
        """End the iteration after the records so far."""
        self._closed = True
        self._wake.set()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Record | Event:
        while True:
            following = self._read_ahead[0].seq if self._read_ahead else self.seen + 1
            if self._live and self._live[0][0] < following:
                event = self._live.popleft()[1]
                self._characters -= _weight(event.data)
                return event
            if self._read_ahead:
                record = self._read_ahead.popleft()
                self.seen = record.seq
                return record
            if self.seen < self._stored:
                self._read_ahead.extend(await self._next())
            elif self._closed:
                raise StopAsyncIteration
            else:
                await self._wake.wait()
                self._wake = anyio.Event()

    async def _next(self) -> Sequence[Record]:
        while self._records and self._records[0].seq <= self.seen:
            self._records.popleft()
        if self._records and self._records[0].seq == self.seen + 1:
            return [self._records.popleft()]
        return await self._read(self.seen)


def _weight(data: dict[str, object]) -> int:
    return min(len(str(data.get("text", ""))), 1000)


def watch(host: Host, run_id: str, after: int) -> Watcher:
    """Return a watcher of a run, which reads what it missed from the store."""

    async def read(seen: int) -> Sequence[Record]:
        return await host.store.read(run_id, after=seen, limit=CHUNK)

    return Watcher(run_id, after, read, host.resources.clock)


Until: TypeAlias = 'Literal["end", "pause"]'
"""The point up to which a run is followed: its end, or its end or next pause."""

FOLLOW = 0.2
"""Seconds between polls of a run that another process drives."""


class RecordFollower:
    """Iterates over the records after `after`. If it follows a run driven here, live events come between them."""

    def __init__(
        self, host: Host, run_id: str, after: int, *, follow: bool, until: Until = "end", joined: Waiting | None = None
    ) -> None:
        self._host, self._run_id, self._after, self._follow, self._until = host, run_id, after, follow, until
        self._joined = joined
        """Checks whether a joined run continues; while it does, it is followed."""
        self._ahead: deque[Record] = deque()
        self._watched: tuple[Drive, Watcher] | None = None
        self._over = False
        self._woken = anyio.Event()

    def __aiter__(self) -> RecordFollower:
        return self

    def __del__(self) -> None:
        self.leave()

    async def __anext__(self) -> Record | Event:
        while not self._ahead:
            if self._over:
                raise StopAsyncIteration
            self.join()
            if self._watched is not None:
                found = await anext(self._watched[1], None)
                if found is not None:
                    return found
                self._over = self._is_over(self._watched[0])
                self.leave()
            else:
                await self._read()
        record = self._ahead.popleft()
        self._after = record.seq
        return record

    def join(self) -> None:
        """Watch the run from now on, if this executor drives it."""
        live = self._host.live.get(self._run_id) if self._follow and self._watched is None else None
        if live is None or live.done.is_set():
            return
        watcher = watch(self._host, self._run_id, self._after)
        watcher.catch_up(live.log.journal.stored)
        live.log.watch(watcher)
        self._watched = live, watcher

    def _is_over(self, live: Drive) -> bool:
        """Return True if a drive that has ended was followed as far as requested."""
        machine = live.machine
        pauses = self._until == "pause" or (self._joined is not None and not self._host.watched.waits_on(machine))
        stands = machine.status == "paused" and live.log.journal.stored == machine.head
        return machine.ended is not None or (pauses and stands)

    def watches(self, live: Drive | None) -> bool:
        """Return True if this follower watches this drive."""
        return (None if self._watched is None else self._watched[0]) is live

    def leave(self) -> None:
        """Stop watching the run; the iteration continues after the events already read."""
        if self._watched is not None:
            live, watcher = self._watched
            live.log.watchers.discard(watcher)
            self._after, self._watched = watcher.seen, None

    async def _read(self) -> None:
        try:
            records = await self._host.store.read(self._run_id, after=self._after, limit=CHUNK)
        except StoreCorrupt as error:
            before: Sequence[Record] = vars(error).get("records", ())
            if not before:
                raise
            self._ahead.extend(before)  # deliver the readable records first; the next read finds the damage again
            return
        self._ahead.extend(records)
        if not self._follow:
            self._over = len(records) < CHUNK
        elif not records and self._host.live.get(self._run_id) is None:
            self._over = await self._stands_still()
            if not self._over:
                await self._idle()
        elif not records:
            await anyio.lowlevel.checkpoint()  # it is being released here

    async def _stands_still(self) -> bool:
        """Return True if all records were read, and no more are wanted."""
        info = await self._host.store.info(self._run_id)
        if info.head > self._after:
            return False
        if self._joined is not None:
            found = await self._joined.look()
            return found is not None and found.seq <= self._after  # it may have continued between the two reads
        return info.status in FINAL or (self._until == "pause" and info.status != "running")

    async def _idle(self) -> None:
        """Wait briefly, or until this executor drives the run, so that no live event is missed."""
        followers = self._host.idle_followers.setdefault(self._run_id, set())
        followers.add(self)
        self._woken = anyio.Event()
        try:
            with anyio.move_on_after(FOLLOW):
                await self._woken.wait()
        finally:
            followers.discard(self)
            if not followers and self._host.idle_followers.get(self._run_id) is followers:
                del self._host.idle_followers[self._run_id]

    def notify(self) -> None:
        """Stop waiting: this executor drives the run now, and no step has run yet."""
        self.join()
        self._woken.set()


class RunEvents(AsyncIterator[Event]):
    """See `Executor.events`."""

    def __init__(
        self,
        host: Host,
        run_id: str,
        *,
        after: int,
        follow: bool,
        until: Literal["end", "pause"],
        style: Literal["embedia"] | None,
        tokenizer: Callable[[str], int | Sized] | None = None,
    ) -> None:
        if style not in (None, "embedia"):
            raise ValueError(f"style {style!r} is unknown: use None or 'embedia'")
        if until not in ("end", "pause"):
            raise ValueError(f"until={until!r}: use 'end' or 'pause'")
        self._host, self._run_id, self._after = host, run_id, after
        if tokenizer is not None and style is None:
            raise ValueError("tokenizer= is for style='embedia': other events have the provider's counts only")
        self._style: Literal["embedia"] | None = style
        self._tokenizer = tokenizer
        # In the other style, the form of a record depends on all records before it.
        self._seen = RecordFollower(host, run_id, after if style is None else 0, follow=follow, until=until)
        self._ahead: deque[Event] = deque()
        self._styled: EventStyle | None = None

    async def __anext__(self) -> Event:
        while not self._ahead:
            seen = await anext(self._seen)
            if self._style is None:
                return seen if isinstance(seen, Event) else event_of(self._run_id, seen)
            if not isinstance(seen, Event):
                events = (await self._other_style(self._style)).events_of(seen)
                self._ahead.extend(events if seen.seq > self._after else ())
        return self._ahead.popleft()

    async def _other_style(self, name: Literal["embedia"]) -> EventStyle:
        if self._styled is None:
            graph = await self._host.loader.stored_graph(await self._host.store.info(self._run_id))
            made: EventStyle = above(name)(graph, self._tokenizer, self._run_id)
            self._styled = made
        return self._styled


class Stream(Generic[StateT]):
    """Events of a run, until it ends or pauses. Iterate over it; after the last event, `run` is the run."""

    def __init__(
        self, host: Host, run_id: str, source: AsyncIterator[Record | Event], live: Drive | None = None
    ) -> None:
        self._host, self._run_id, self._source, self._live = host, run_id, source, live
        self._run: Run[StateT] | None = None
        self.scope = anyio.CancelScope()
        """Cancel scope of the task that drives the run."""
        self.over = anyio.Event()
        """Set when that task has ended."""

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
        """Stop reading events, and interrupt the run if this stream drives it. Called when the block is left."""
        if isinstance(self._source, RecordFollower):
            self._source.leave()
            return
        self.scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.over.wait()

    def goes_on(self, live: Drive) -> None:
        """Called when another drive follows one that waited for a timer."""
        self._live = live

    def concluded(self, run: Run) -> None:
        """Called when the run has ended or paused."""
        self._run = run

    def failed(self, error: BaseException) -> None:
        """Called when the drive failed. The error is raised where the events are read."""
        if self._live is not None:
            self._live.fault = self._live.fault or error

    async def _conclude(self) -> None:
        """Keep the run at the end of its drive for `run`, or raise the error of the drive."""
        if self._live is not None:
            await self._live.done.wait()
            if self._live.fault is not None:
                raise self._live.fault
        elif self._run_id in self._host.faults:
            raise self._host.faults.pop(self._run_id)
        elif self._run is None:
            self._run = await self._host.loader.load(self._run_id)


async def streamed(host: Host, live: Drive, after: int = 0) -> Stream:
    """Drive a resumed run until the stream is left."""
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
                watcher.catch_up(run.seq)  # another executor may have driven it last
                stream.concluded(run)
        except (Exception, SystemExit) as error:
            stream.failed(error)
        finally:
            watcher.close()
            stream.over.set()

    with anyio.CancelScope(shield=True):  # once it has started, it always releases the run
        await host.background().start(drive)
    return stream


class _Relay:
    """Passes the events of successive drives to one watcher, which outlasts them."""

    def __init__(self, watcher: Watcher) -> None:
        self.stored, self.live = watcher.stored, watcher.live
        self._watcher = watcher

    def follow(self, drive: Drive) -> None:
        """Follow a drive in which no step has run yet."""
        self._watcher.catch_up(drive.log.journal.stored)
        drive.log.watch(self)

    def close(self) -> None:
        """Called at the end of a drive; the next one may follow when a timer is due."""


class StreamBlock(AbstractAsyncContextManager[Stream]):
    """A stream for the duration of a block. Not a generator, which would be closed late if the block is abandoned."""

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
    """Refuse arguments of `Executor.stream` for existing runs if a new one is started."""
    given = {
        "answers": answers,
        "by": by or None,
        "resume": None if resume else False,
        "after": after,
        "wait": options.wait or None,
        "accept_changes": options.accept_changes or None,
        "trust_answers": None if options.trust_answers else False,
        "retry": options.retry or None,
    }
    _refuse(given, "an existing run: give its run_id alone")


def check_existing(given: object, labels: Mapping[str, str] | None, refs: Mapping[str, object] | None) -> None:
    """Refuse arguments of `Executor.stream` for new runs if an existing one is read."""
    _refuse({"input": given, "labels": labels, "refs": refs}, "a new run: give its graph")


def _refuse(given: Mapping[str, object], whose: str) -> None:
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise TypeError(f"stream(): {', '.join(wrong)} can be given only for {whose}")


async def started(host: Host, graph: GraphDefinition | str, given: object, options: RunOptions) -> Stream:
    """Start a run, and return its stream.

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
    """Answer questions of a run, continue it if no executor drives it, and return its stream.

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
        sent = await command_delivery.answer_all(host, run_id, given, resume=options if resume else None)
        held = sent.held
        if held is not None and not resume:
            host.watched.forget(run_id)
            await command_delivery.journal(host, held)
            held = None
        elif held is not None:
            journal_resumed(held, options.approve, unpause=False)
        elif options.approve is not None and sent.live is None:
            raise RunConflict(
                run_id, "the answers were stored, but `approve` was not set, because another executor drives the run"
            )
        elif options.approve is not None and sent.live is not None:
            journal_resumed(sent.live, options.approve, unpause=False)
            sent.live.answer_by_policy()
    elif resume and options.changes_nothing and host.watched.goes_on(run_id):
        pass  # the run sleeps, and continues without this call: leaving the stream must not interrupt it
    elif resume and (info.status not in FINAL or options.retry):
        try:
            held = await take_up(host, run_id, options)
        except (RunConflict, RunEnded):
            if options.approve is not None or options.retry:  # if it sleeps, it is unknown whether it continues
                raise
    if held is not None:
        follower.leave()
        return await streamed(host, held, after)
    if not follower.watches(host.live.get(run_id)):  # the process that drove it has released it meanwhile
        follower.leave()
        follower = RecordFollower(host, run_id, after, follow=True, joined=joined)
        follower.join()
    return Stream(host, run_id, follower)

"""The executor: every operation that a program performs on runs.

Each method delegates to a function of the module for that operation. Modules that only some programs need are loaded
when they are first used: reading runs loads nothing that drives them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import anyio
import anyio.lowlevel

from orchestrator import collector
from orchestrator._lazy import lazy_modules
from orchestrator.clock import SYSTEM_CLOCK, Clock, moment_of
from orchestrator.executor import reader, run_status
from orchestrator.executor.child_runs import ChildRuns
from orchestrator.executor.host import Host, MakeContext, NameCode
from orchestrator.executor.namespaces import (
    ExecutorCache,
    ExecutorForks,
    ExecutorGraphs,
    ExecutorMemory,
    ExecutorReplays,
    ExecutorSchedules,
    ExecutorWorkers,
)
from orchestrator.executor.notes import ExecutorNotes
from orchestrator.executor.observers import RunObserver
from orchestrator.executor.options import ForkOptions, ReplayOptions, ResumeOptions, RunOptions
from orchestrator.executor.resources import Resources, check_arguments, check_choices, check_code
from orchestrator.executor.tracing import Tracing
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.typevars import StateT
from orchestrator.graph.versions import Migration
from orchestrator.kernel.seals import Seal
from orchestrator.memory import MemoryOptions
from orchestrator.models.base import Model
from orchestrator.spelling import checks_names
from orchestrator.stores import Codec, open_store, with_archive, with_codec
from orchestrator.stores.base import Page, Relation, Reopening, StatsRow, Store
from orchestrator.stores.requests import RunQuery, Sort
from orchestrator.tasks import OwnTask
from orchestrator.tools.refs import ToolsLike, toolbox_of
from orchestrator.tools.result import Risk
from orchestrator.tools.toolbox import Toolbox
from orchestrator.values import check_kind, check_labels, check_position, check_text
from orchestrator.views.events import Event
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import audit as auditing
    from orchestrator.executor import (
        checking,
        command_delivery,
        commands,
        deletion,
        resume_many,
        resuming,
        retention,
        start,
        streaming,
        transfer,
        worker,
    )
    from orchestrator.executor.checking import Checked
    from orchestrator.executor.deletion import Erase
    from orchestrator.executor.fork import making
    from orchestrator.executor.reader import RunQuestions
    from orchestrator.executor.replay import start_replay as replays
    from orchestrator.executor.replay.running import Live
    from orchestrator.executor.retention import ArchivedRuns, Pruned
    from orchestrator.executor.streaming import Stream
    from orchestrator.executor.transfer import Imported, Source
    from orchestrator.executor.worker_health import WorkerHealth
    from orchestrator.stores import Archive
    from orchestrator.views.history import Point
    from orchestrator.views.replay_result import Replay
    from orchestrator.views.run_diff import RunDiff
else:
    auditing, checking, commands, command_delivery, deletion, resume_many = lazy_modules(
        "orchestrator.executor", "audit checking commands command_delivery deletion resume_many"
    )
    resuming, retention, start = lazy_modules("orchestrator.executor", "resuming retention start")
    streaming, transfer, worker = lazy_modules("orchestrator.executor", "streaming transfer worker")
    (making,) = lazy_modules("orchestrator.executor.fork", "making")
    (replays,) = lazy_modules("orchestrator.executor.replay", "start_replay")


class Executor:
    """Starts, resumes, answers, pauses, cancels and inspects runs of graphs.

        async with Executor(store="sqlite:///runs.db", graphs=[graph], model=model) as executor:
            run = await executor.start(graph, {"question": "..."})

    Leaving the block interrupts runs in progress: their progress is stored, and they can be resumed. So do Ctrl-C and
    SIGTERM.

    Args:
        store: a store, or its URL (see `open_store`). A store given as a URL is closed with the executor.
        graphs: the graphs whose runs the executor can resume. Nothing else resolves a graph's name.
        model: the model of nodes that name no model.
        models: named models, by the names that nodes use.
        tools: the tools that nodes may call: tools, functions, toolboxes, or references as on the command line
            (`arithmetic`, `module:attr`). Toolboxes of servers are connected while the executor is open.
        deps: the value of `ctx.deps` in nodes: clients, connections, secrets. Never journaled.
        concurrency: number of steps of all runs that may run at the same time; None: no limit.
        pools: pool -> how many steps of all runs whose nodes name it may run at the same time here (docs/concepts.md).
        on_change: what to do if the graph's content (prompts, parameters, code) changed since a run was last driven:
            `continue` and journal the differences, or `strict`: refuse with `GraphChanged`.
        lease_ttl: seconds after which another host may take over a run that this executor no longer renews.
        streams: when models that can stream are asked for streams: `watched`, while the events of the run are read; or
            `always`, so that a reader who starts in the middle of a reply gets it from its start.
        contexts: makes the `ctx.context` of each run that is started or resumed without a given one: a sync or async
            function of the run's row in the store (its id, graph and labels).
        refs: returns the names of this executor's code, as text, for readers of the runs that it continues: a function
            of (`run.root_id`, the name of the graph, `run.refs`) that returns new references, or None to keep those.
        on_pause: called with (run, seq) when a run that this executor drives pauses for a person or an event.
        observers: functions that are called with (run, seq) when records of runs that this executor drives are durable.
            See `RunObserver` and docs/streaming.md.
        seal: seals the records that this executor writes. Approvals and policies in records without its seal do not
            count: they are asked for again before the calls that they allow. Without a seal the store is trusted.
        codec: encrypts values in the store; None: they are stored unencrypted. See docs/security.md.
        archive: the place of the records of archived runs, or its URL, see `open_store` and docs/archive.md.
        memory: the embedding function, default expiry and limits of memory across runs (`ctx.memory`).
        clock: the clock for records and deadlines; tests use an `orchestrator.testing.MockClock`. Leases use the
            clocks of the machine, because they apply between processes.
        idle: what the open executor does with waiting runs that it started, resumed or answered. `awake`: it continues
            them when a timer or deadline is due, and when another process answered them or sent them an event. `sleep`:
            they wait until they are resumed.
        tracing: traces runs, such as `orchestrator.otel.OpenTelemetry()`; see docs/traces.md.
        restored_at: when the store was restored from a backup: a time, or a text as commands read it in
            `ORCHESTRATOR_RESTORED_AT`, a date (local if it has no time zone) or an age such as `2h`. Runs that were
            created before may have made irreversible calls that the backup does not have: what became of each further
            one is asked, as after a crash.
        gc_threshold: number of new objects after which Python looks for garbage while the executor is open, for the
            whole process, such as 200,000, which `orchestrator worker` and `serve` set; None: Python's own. A process
            with thousands of live runs spends half of its time with these searches otherwise (docs/scale.md).
    """

    @checks_names
    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        graphs: Sequence[GraphDefinition] = (),
        model: Model | None = None,
        models: Mapping[str, Model] | None = None,
        tools: ToolsLike = (),
        deps: object = None,
        concurrency: int | None = None,
        pools: Mapping[str, int] | None = None,
        on_change: Literal["continue", "strict"] = "continue",
        lease_ttl: float = 30.0,
        streams: Literal["watched", "always"] = "watched",
        contexts: MakeContext | None = None,
        refs: NameCode | None = None,
        on_pause: RunObserver | None = None,
        observers: Sequence[RunObserver] = (),
        seal: Seal | None = None,
        codec: Codec | None = None,
        archive: Archive | str | None = None,
        memory: MemoryOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        idle: Literal["awake", "sleep"] = "awake",
        tracing: Tracing | None = None,
        restored_at: datetime | str | None = None,
        gc_threshold: int | None = None,
    ) -> None:
        check_choices(idle=(idle, "awake", "sleep"), on_change=(on_change, "continue", "strict"))
        self._owned, self._closed, self._gc_threshold = isinstance(store, str), False, collector.checked(gc_threshold)
        restored = _restored_at(restored_at)
        check_arguments(store=store, graphs=graphs, model=model, models=models, pools=pools, observers=observers)
        opened = open_store(store, archive=archive) if isinstance(store, str) else with_archive(store, archive)
        self.store: Store = with_codec(opened, codec)
        resources = Resources.of(
            graphs, model, models or {}, toolbox_of(tools), deps, clock,
            concurrency=concurrency, pools=pools, streams=streams, memory=memory, tracing=tracing,
        )  # fmt: skip
        self._opened_host = Host(
            self.store,
            resources,
            children=ChildRuns,
            continue_run=lambda host, run_id: resuming.continue_alone(host, run_id),
            lease_ttl=lease_ttl,
            strict=on_change == "strict",
            restored_at=restored,
            seal=seal,
            awake=idle == "awake",
            make_context=contexts,
            name_code=refs,
            observers=observers,
            on_pause=on_pause,
        )

    @property
    def _host(self) -> Host:
        """Return the host, in the executor's own event loop only."""
        host = self._opened_host
        if host.own is not None:
            host.own.check_loop()
        return host

    @property
    def seal(self) -> Seal | None:
        """The seal of the records that this executor writes."""
        return self._host.seal

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Open the executor until `close`, which any task of this event loop may call. `async with` does both.

        A closed executor can be opened again, also in another event loop. If the event loop ends first, the executor
        is closed then, with a `ResourceWarning`.

        Returns:
            The executor.

        Raises:
            RuntimeError: the executor is already open.
            ToolUnavailable: a server of its tools cannot be reached.
        """
        host = self._host
        if self.is_open:
            raise RuntimeError(f"{self!r} is already open")
        host.own = OwnTask(self._life, repr(self), warns=True)
        await host.own.open()
        return self

    @property
    def is_open(self) -> bool:
        """True between `open` and `close`."""
        own = self._opened_host.own
        return own is not None and not own.over

    def traced(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a block for the work on a request: runs that it starts belong to the trace of the caller.

        Without `tracing=`, with headers that are not valid, and in a span of the program it does nothing.

        Args:
            headers: `traceparent` and `tracestate` of the request, in lower case.
        """
        tracing = self._host.resources.tracing
        return nullcontext() if tracing is None or not headers else tracing.received(headers)

    async def close(self) -> None:
        """Interrupt the executor's runs, release their leases, and close the store, if it was given as a URL.

        Calls that are starting or resuming a run, and those of `work`, have 5 seconds to release their runs.

        Raises:
            RuntimeError: it is called by a node of one of its runs, an observer, a tool, or a task that one of them
                started; it would wait for itself.
            Exception: the error with which its background tasks had ended.
        """
        host = self._host
        if host.drives_here:
            raise RuntimeError(
                f"{self!r} cannot be closed by a run that it drives, nor by its observers: close it where it was opened"
            )
        own = host.own
        with anyio.CancelScope(shield=True):
            try:
                if own is not None:
                    await own.close()
            finally:
                if host.own is own:
                    host.own = None
                await self._close_store()

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[None]:
        """Run the executor while it is open, in a separate task."""
        try:
            if self._closed and isinstance(self.store, Reopening):
                self.store.reopen()
            self._closed = False
            self._host.mark_task()
            with collector.threshold(self._gc_threshold):
                async with self._host.opened():
                    yield
            if self._host.fatal is not None:
                raise self._host.fatal
        finally:
            with anyio.CancelScope(shield=True):
                await self._close_store()

    async def _close_store(self) -> None:
        if self._owned:
            self._closed = True
            await self.store.close()

    def __repr__(self) -> str:
        return f"Executor({self.store.url!r})"

    @property
    def graphs(self) -> ExecutorGraphs:
        """The graphs of the executor, by name: the newest version of each."""
        return ExecutorGraphs(self._host)

    @property
    def schedules(self) -> ExecutorSchedules:
        """The schedules of the store."""
        return ExecutorSchedules(self._host)

    @property
    def notes(self) -> ExecutorNotes:
        """Notes and scores that people write about runs and steps."""
        return ExecutorNotes(self._host)

    @property
    def workers(self) -> ExecutorWorkers:
        """The workers of the store, and the runs that no executor drives."""
        return ExecutorWorkers(self._host)

    @property
    def forks(self) -> ExecutorForks:
        """The forks of runs, and previews of forks."""
        return ExecutorForks(self._host)

    @property
    def replays(self) -> ExecutorReplays:
        """Replays of many runs, and earlier replays."""
        return ExecutorReplays(self._host)

    @property
    def memory(self) -> ExecutorMemory:
        """The memory that runs of this store share, like `ctx.memory`. Accesses here are not journaled."""
        return ExecutorMemory(self._host)

    @property
    def cache(self) -> ExecutorCache:
        """The stored results of nodes with `cache=`."""
        return ExecutorCache(self._host)

    @property
    def tools(self) -> Toolbox:
        """The tools that nodes may call; those of servers are known while the executor is open."""
        return self._host.resources.tools

    @property
    def model(self) -> Model | None:
        """The model of nodes that name no model."""
        return self._host.resources.model

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by the names that nodes use."""
        return MappingProxyType(dict(self._host.resources.models))

    def add_graph(self, graph: GraphDefinition, *, ask_from: Risk | None = None) -> None:
        """Add a graph, or a newer version of one, whose runs can then be started and resumed here.

        Args:
            graph: the graph.
            ask_from: for a graph from another source: before a call of a tool of this risk or higher, and before an
                irreversible one, its runs ask a person, unless a step asked about this very call. None: only its own
                confirms ask.
        """
        self._host.resources.add(graph, ask_from)

    async def start(
        self,
        graph: GraphDefinition[StateT] | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        by: str = "",
    ) -> Run[StateT]:
        """Run a graph until it ends or pauses. Cancelling this call interrupts the run.

        Args:
            graph: a graph, or the name of one of the executor's graphs.
            input: the value of the graph's `input` field, or a mapping of the fields that `input` names; see `Graph`.
            run_id: an id for the run. If a run of the same graph and input has this id, this call waits for that run,
                or continues it if no executor drives it; see docs/waiting.md#joining-a-run.
            labels: labels by which to find the run.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits; the others stay.
            refs: the names of graph, tools and model as text, for readers of the run.
            pause_before: names of nodes before which the run pauses, until it is resumed; nodes inside of subgraphs by
                their path, `outer/inner`. Journaled, so they hold after a crash.
            pause_after: the same, for a pause after a node.
            context: the value of `ctx.context` in nodes: a user, a session. It is not stored: give it again when the
                run is resumed, or let `Executor(contexts=)` make it.
            by: who starts it, for the journal.

        Returns:
            The run, when it ends or pauses.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: the graph has no node with that name.
            RunExists: another run has the id.
            GraphUnknown: a model or tool that the graph refers to is missing.
            StoreError, RunConflict: the journal cannot be written; the run can be resumed.
            RuntimeError: the executor is not open, or was closed before the first step started; then the run can be
                resumed, if the store has it.
        """
        options = RunOptions(
            run_id=run_id,
            labels=labels,
            approve=approve,
            limits=limits,
            refs=refs,
            pause_before=pause_before,
            pause_after=pause_after,
            context=context,
            by=by,
        )
        return await start.start(self._host, graph, input, options)

    async def submit(
        self,
        graph: GraphDefinition | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        by: str = "",
    ) -> str:
        """Start a run in the background, or continue the one that has this id. Arguments and errors: see `start`.

        Returns:
            The run's id, as soon as the run is durable.
        """
        options = RunOptions(
            run_id=run_id,
            labels=labels,
            approve=approve,
            limits=limits,
            refs=refs,
            pause_before=pause_before,
            pause_after=pause_after,
            context=context,
            by=by,
        )
        return await start.submit(self._host, graph, input, options)

    async def enqueue(
        self,
        graph: GraphDefinition | str,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        at: datetime | float | None = None,
    ) -> str:
        """Add a run to the store without driving it. A worker, `workers.drive` or `recover` starts it.

        Its status is `running`: it waits for an executor. The same id and input give the same run, so that a call whose
        outcome is unknown can be repeated.

        Args:
            graph: a graph, or the name of one of the executor's graphs.
            input: the value of the graph's `input` field, or a mapping of the fields that `input` names; see `Graph`.
            run_id: an id for the run.
            labels: labels by which to find the run.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits.
            refs: the names of graph, tools and model as text, for readers of the run.
            at: when the run is to start, as a datetime with a time zone or in Unix seconds; None: at once.

        Returns:
            The run's id, as soon as the run is durable.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: `at` is not a time.
            RunExists: another run has the id.
            GraphUnknown: a model or tool that the graph refers to is missing.
            StoreError: the run cannot be written.
        """
        options = RunOptions(run_id=run_id, labels=labels, approve=approve, limits=limits, refs=refs)
        return await start.enqueue(self._host, graph, input, options, at)

    @overload
    def stream(
        self,
        graph: GraphDefinition[StateT] | str,
        input: object = None,
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
    ) -> AbstractAsyncContextManager[Stream[StateT]]: ...
    @overload
    def stream(
        self,
        *,
        run_id: str,
        answers: Mapping[str, object] | None = None,
        by: str = "",
        resume: bool = True,
        after: int | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        retry: bool = False,
        limits: Limits | None = None,
    ) -> AbstractAsyncContextManager[Stream]: ...
    def stream(
        self,
        graph: GraphDefinition | str | None = None,
        input: object = None,  # noqa: A002  the argument's name in the documentation
        *,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approve: str | None = None,
        limits: Limits | None = None,
        refs: Mapping[str, object] | None = None,
        answers: Mapping[str, object] | None = None,
        by: str = "",
        resume: bool = True,
        after: int | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        retry: bool = False,
    ) -> AbstractAsyncContextManager[Stream[Any]]:
        """Read the events of a run while it is driven, until it ends or pauses.

            async with executor.stream(graph, {"question": "..."}) as live:
                async for event in live:
                    ...
            run = live.run

        With a graph this starts a run, with the arguments and errors of `start`, and leaving the block early
        interrupts the run. With only the `run_id` of an existing run it answers questions and resumes, with the
        arguments and errors of `answer` and `resume`:

            async with executor.stream(run_id=run_id, answers={question_id: Approve()}) as live:

        Leaving the block then interrupts the run only if this call resumed it: a run that another task, `submit` or
        another executor drives continues. A run that has ended is resumed only with `retry`, else its events are read.

        Args:
            graph: a graph, or the name of one of the executor's graphs; None: an existing run.
            answers: answers by the ids of their questions: all are given, or none if one does not fit. The other
                arguments below are also for existing runs only.
            by: who answers.
            resume: whether to continue the run if no executor drives it. False needs no code of the graph.
            after: the number of the last record to leave out; None: all existing ones.
            accept_changes: see `resume`.
            wait: see `resume`.
            trust_answers: see `resume`.
            retry: see `resume`.
            limits: see `resume`.
            pause_before: see `start` and `resume`; for both forms.
            pause_after: see `start` and `resume`; for both forms.
            context: see `start` and `resume`; for both forms.

        Returns:
            The stream of events, for `async with`. After the last event, its `run` is the run. It is `interrupted` if
            another executor drove it and no longer does.

        Raises:
            RunExists: a run has the id, even one of the same graph and input.
            TypeError: neither a graph nor a run is given, or arguments of the one form with the other.
        """
        options = ResumeOptions(
            retry=retry,
            limits=limits,
            approve=approve,
            accept_changes=accept_changes,
            wait=wait,
            trust_answers=trust_answers,
            pause_before=pause_before,
            pause_after=pause_after,
            context=context,
        )
        if graph is not None:
            streaming.check_new(answers, by, resume, after, options)
            new = RunOptions(
                run_id=run_id,
                labels=labels,
                approve=approve,
                limits=limits,
                refs=refs,
                pause_before=pause_before,
                pause_after=pause_after,
                context=context,
            )
            return streaming.StreamBlock(partial(streaming.started, self._host, graph, input, new))
        streaming.check_existing(input, labels, refs)
        existing = partial(streaming.existing, self._host, run_id, answers or {}, by=by, resume=resume, after=after)
        return streaming.StreamBlock(partial(existing, options=options))

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:  # noqa: ASYNC109  a public name
        """Wait until a run ends or pauses, or no executor drives it any more. Any executor may drive it.

        If no executor resumes a run whose timer or deadline is due, or one that waited for an executor for `lease_ttl`
        seconds, this executor continues it, if it has the graph and no live worker has it.

        Args:
            run_id: the run's id.
            timeout: maximum number of seconds to wait; None: no limit.

        Returns:
            The run in its state at the end of the wait.

        Raises:
            RunUnknown: the store has no such run.
            TimeoutError: `timeout` seconds have passed; the run continues.
        """
        return await resuming.wait_for(self._host, run_id, timeout)

    async def answer(
        self,
        run_id: str,
        question: str,
        answer: object,
        *,
        by: str = "",
        digest: str | None = None,
        resume: bool = True,
        background: bool = False,
        context: object = None,
    ) -> Run:
        """Answer a question of a run, once. The executor that drives the run continues it, else this one does.

        Args:
            run_id: the run's id.
            question: the question's id.
            answer: `Approve`, `Deny`, or any plain JSON value, such as `{"choice": "happened", "result": ...}`.
            by: who answers.
            digest: the digest of the question that was shown; if the question has changed, the answer is refused.
            resume: whether to continue until the run ends or pauses again. False needs no code of the graph.
            background: continue in the background, as `submit` does: return when the answer is durable. Cancelling
                this call then does not interrupt the run.
            context: the run's `ctx.context`, see `start`.

        Returns:
            The run when it ends or pauses again; with `background`, or without `resume`, after the answer.

        Raises:
            QuestionUnknown: the run has no such question.
            StaleAnswer: the question is answered or withdrawn, or has changed.
            InvalidAnswer: the answer does not fit. After each of these three errors the run is unchanged.
        """
        options = ResumeOptions(context=context) if resume else None
        return await command_delivery.answer(
            self._host, run_id, question, answer, by=by, digest=digest, resume=options, background=background
        )

    @overload
    async def send(
        self,
        run_id: str | None = ...,
        event: str = ...,
        data: object = ...,
        *,
        id: str | None = ...,
        labels: Mapping[str, str] | None = ...,
        all: Literal[False] = ...,
        by: str = ...,
        resume: bool = ...,
        background: bool = ...,
        context: object = ...,
    ) -> Run: ...
    @overload
    async def send(
        self,
        run_id: None = ...,
        event: str = ...,
        data: object = ...,
        *,
        id: str | None = ...,
        labels: Mapping[str, str],
        all: Literal[True],
        by: str = ...,
        resume: bool = ...,
        background: bool = ...,
        context: object = ...,
    ) -> list[Run]: ...
    async def send(
        self,
        run_id: str | None = None,
        event: str = "",
        data: object = None,
        *,
        id: str | None = None,  # noqa: A002  the argument's name in the documentation
        labels: Mapping[str, str] | None = None,
        all: bool = False,  # noqa: A002  the argument's name in the documentation
        by: str = "",
        resume: bool = True,
        background: bool = False,
        context: object = None,
    ) -> Run | list[Run]:
        """Send an event to a run, whichever executor drives it. It is durable when this call returns.

        The run keeps the event until a step takes it: a `Wait` node with this name, now or later. An event with the
        name of an `Ask` node is a message for this node, see `Ask.on_busy`.

        Args:
            run_id: the run's id; None: `labels` select the run.
            event: the event's name.
            data: its data: plain JSON, or pydantic models, of at most 1 MiB.
            id: the event's id: an event sent again with the same id changes nothing, also when the run has ended.
            labels: send to the one unfinished run that has these labels.
            all: send to every unfinished run that has these labels.
            by: who sends it, for the journal.
            resume: whether to continue until the run ends or pauses again. False needs no code of the graph.
            background: return as soon as the event is durable; the run continues in the background.
            context: the `ctx.context` of the run, or with `all` of every run, see `start`.

        Returns:
            The run when it ends or pauses again; with `background`, or without `resume`, after the event. With `all` a
            list of runs.

        Raises:
            Ambiguous: no unfinished run has these labels, or more than one.
            RunUnknown: the store has no such run.
            RunEnded: the run has ended, and has not received an event of this id.
            RunBusy: the event is a message for a node that accepts none now, or the run keeps too many events.
            InvalidAnswer: the event is a message for a node that waits for one, and does not fit its question; or no
                step that waits for it, now or later, could write its data to its field. Without the class of the
                state the type of a field is not known.
            InvalidValue: the data has no JSON form, or is too deep or too large.
            ContextMissing: the run was started with a context, and none is given or made. After each of these errors
                the run is unchanged.
        """
        message = await command_delivery.event_of(event, data, id, by)
        options = ResumeOptions(context=context) if resume else None
        return await command_delivery.send_to(
            self._host, run_id, labels, message, options, named=id is not None, every=all, background=background
        )

    async def resume(
        self,
        run_id: str,
        *,
        retry: bool = False,
        limits: Limits | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        wait: float = 0.0,
        trust_answers: bool = True,
        migrate: Migration | None = None,
        background: bool = False,
        pause_before: Collection[str] | None = None,
        pause_after: Collection[str] | None = None,
        context: object = None,
        by: str = "",
    ) -> Run:
        """Continue an interrupted or paused run, or with `retry` also one that has ended, until it ends or pauses.

        Args:
            run_id: the run's id.
            retry: also continue a run that failed, was cancelled or spent a limit, where it was: a step that failed
                starts a new attempt, steps that were stopped continue, and finished ones stay finished. See
                docs/resuming.md.
            limits: the explicitly set fields replace those of the run's limits. A run that spent a limit needs a higher
                one.
            approve: a new policy for tool calls, see `start`.
            accept_changes: continue although tools changed, although the structure of the graph changed ahead of the
                run, or although anything changed and the executor is `strict`. See docs/versions.md.
            wait: seconds to wait for another executor that holds the run.
            trust_answers: False if the journal may come from elsewhere: its approvals and its policy are asked for
                again, unless the calls that they allow are already done.
            migrate: how the run migrates to the newest version of its graph, if its current node, a value, or a join
                that it waits for changed. It is checked as a whole before it is journaled.
            background: continue in the background, as `submit` does: return when the run is resumed. Cancelling this
                call then does not interrupt the run.
            pause_before: nodes before which the run pauses from now on, see `start`; None: the current ones.
            pause_after: nodes after which it pauses from now on.
            context: the run's `ctx.context`, see `start`.
            by: who resumes it, for the journal.

        Returns:
            The run when it ends or pauses; with `background`, right after it was resumed.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has completed; or it has ended and `retry` is False; or the limit that it spent is not
                raised.
            RunConflict: another executor drives the run.
            GraphUnknown: the run's graph, or a model or tool of it, is missing.
            ContextMissing: the run was started with a context, and none is given or made.
            InvalidValue: the graph has no node with that name.
            GraphChanged: the graph changed so that the run needs `accept_changes` or `migrate`; the message has every
                difference with its grade, and the call and the command that continue the run.
            InvalidMigration: the migration does not fit the run, or the new version of its graph.
            ToolsChanged: tools that the run may still call are missing, or take other arguments.
            ReplayMismatch: changed code would drop a settled irreversible effect.
        """
        options = ResumeOptions(
            retry=retry,
            limits=limits,
            approve=approve,
            accept_changes=accept_changes,
            wait=wait,
            trust_answers=trust_answers,
            migrate=migrate,
            pause_before=pause_before,
            pause_after=pause_after,
            context=context,
            by=by,
        )
        return await resuming.resume(self._host, run_id, options, background=background)

    async def resume_all(
        self,
        status: Collection[str] | str = "failed",
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        only: Collection[str] | None = None,
        retry: bool = False,
        limits: Limits | None = None,
        approve: str | None = None,
        accept_changes: bool = False,
        migrate: Migration | None = None,
        wait: float = 0.0,
        concurrency: int = 20,
        on_progress: resume_many.OnProgress | None = None,
    ) -> resume_many.Resumed:
        """Resume all runs that match, each until it ends or pauses. Runs that cannot be resumed are reported.

        Replays are left out, and runs that graph tools started: these continue with the runs that called them.

        Args:
            status: one or more statuses: `failed`, `exhausted`, `cancelled` (these three with `retry`), `interrupted`
                or `paused`.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            only: ids of the runs to resume, if they match; None: all.
            retry: see `resume`.
            limits: see `resume`.
            approve: see `resume`.
            accept_changes: see `resume`.
            migrate: see `resume`.
            wait: see `resume`.
            concurrency: number of runs driven at the same time.
            on_progress: called for each run with its result, the number of finished runs, and the number of all.

        Returns:
            The runs with their status before and now, and the reasons of those that could not be resumed.

        Raises:
            ValueError: runs of such a status cannot be resumed, or need `retry`; or `concurrency` is below 1.
        """
        options = ResumeOptions(
            approve=approve, accept_changes=accept_changes, wait=wait, retry=retry, limits=limits, migrate=migrate
        )
        return await resume_many.resume_matching(
            self._host, self.runs, status, graph, labels, only, options, concurrency, on_progress
        )

    async def recover(self, *, only: Collection[str] | None = None) -> list[Run]:
        """Resume every run of the executor's graphs that was interrupted or answered, or is overdue.

        Args:
            only: ids of the runs to resume; None: all.

        Returns:
            The resumed runs, when all have ended or paused. A run that cannot be resumed is logged and left out.
        """
        return await resume_many.recover(self._host, only)

    async def pause(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Pause a run, whichever executor drives it: running steps end, and no new step starts until `resume`.

        Args:
            run_id: the run's id.
            by: who pauses it, for the journal.
            reason: why, for the journal.

        Returns:
            The run, when no executor drives it any more.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has ended.
        """
        return await command_delivery.stop(self._host, run_id, commands.Stop("pause", by, reason))

    async def cancel(self, run_id: str, *, by: str = "", reason: str = "") -> Run:
        """Cancel a run, whichever executor drives it. Finished steps stay in its journal.

        Args:
            run_id: the run's id.
            by: who cancels it, for the journal.
            reason: why, for the journal.

        Returns:
            The run, when no executor drives it any more.

        Raises:
            RunUnknown: the store has no such run.
            RunEnded: the run has ended.
        """
        return await command_delivery.stop(self._host, run_id, commands.Stop("cancel", by, reason))

    async def fork(
        self,
        parent: str,
        /,
        at: int | None = None,
        *,
        update: Mapping[str, object] | None = None,
        branch: str | None = None,
        answer: object = None,
        answers: Mapping[str, object] | None = None,
        result: object = None,
        request: Mapping[str, object] | None = None,
        pause: bool | None = None,
        graph: GraphDefinition | str | None = None,
        migrate: Migration | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        digests: Collection[str] | None = None,
        start: bool = True,
        context: object = None,
    ) -> Run:
        """Make a new run that starts with the first records of another one, and continues independently.

        Nothing that is settled in these records is repeated. Calls without a result count as not made. Before a call
        that cannot be undone, the fork asks a question that shows whether related runs have made it; no policy
        (`approve`) answers that. The parent may be running; only the store is read.

        Args:
            parent: the id of the run to fork.
            at: the number of the last record that the fork contains. None: the last one before the run's end; of a
                completed run it must be given. If the run had failed, was cancelled or exhausted, the fork continues
                like `resume(retry=True)`. Only the last record before the end of an exhausted run, if it is given and
                the run ended after an exhausted edge, makes a fork with the run's result.
            update: fields of the state and the values to set them to; no reducer is applied.
            branch: the path of the branch that `update` is for, one of `run.branches`. It must be given if the run is
                inside a fork or a map.
            answer: an answer in place of the one in record `at`.
            answers: answers to questions that are open at record `at`, by the questions' ids.
            result: a result in place of the one of the call in record `at`: a value, a `ToolResult`, or a
                model's text or `Reply`.
            request: run one step again with another request to its model: `messages` (a text, or a list of messages;
                `{"ref": digest}` is one of the request that was made), `options` such as `temperature`, or both. What
                is left out stays. `at` is the record of the call, of its reply, or of the end of a step with one call.
            pause: whether the fork pauses when the steps that were running at record `at` have ended. None: if a
                `request` is given.
            graph: another version of the run's graph to continue with, or its name (its newest version). Changes ahead
                of the fork are accepted.
            migrate: how the fork migrates to this version, if it does not fit it; without `graph`, to the newest one.
                The changes above are made first, in the run's version.
            run_id: an id for the fork. The same id and the same fork mean the same run.
            labels: labels that the fork has in addition to those of its parent.
            by: who makes it and gives its answers, for the journal.
            digests: digests of the questions that were shown before they were answered, and of the request that was
                shown before it was changed; None: any.
            start: whether to continue until the fork ends or pauses. False needs no code of the graph; the fork is
                paused, and nothing happens in it until `resume`, or until its questions are answered.
            context: the fork's `ctx.context`, see `start`.

        Returns:
            The fork, when it ends or pauses; with `start=False`, right after it was made.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: there is no such record or branch, or `result` or `request` does not fit the record.
            InvalidUpdate: a field or a value of `update` does not fit the state.
            InvalidAnswer, QuestionUnknown: an answer does not fit its question.
            StaleAnswer: an answered question, or the request that is changed, has none of `digests`.
            RunExists: another run has the id.
            GraphUnknown: the run's graph, or a model or tool of it, is missing.
            ContextMissing: the run was started with a context, and none is given or made.
            GraphChanged: the fork cannot continue with the graph without `migrate`.
            InvalidMigration: the migration does not fit the run at record `at`, or the version.
            ToolsChanged: tools that the fork may still call are missing, or take other arguments. After each of these
                errors there is no fork.
            StoreError, RunConflict: the journal cannot be written; the fork can be resumed.
        """
        options = ForkOptions(
            parent,
            at=at,
            update=update,
            branch=branch,
            answer=answer,
            answers=answers,
            result=result,
            request=request,
            pause=pause,
            graph=graph,
            migrate=migrate,
            run_id=run_id,
            labels=labels,
            by=by,
            digests=digests,
        )
        return await making.fork(self._host, options, start=start, context=context)

    async def replay(
        self,
        run_id: str,
        /,
        graph: GraphDefinition | str | None = None,
        models: Mapping[str, Model] | None = None,
        update: Mapping[str, object] | None = None,
        answer: object = None,
        result: object = None,
        *,
        at: int | None = None,
        approve: str | None = None,
        context: object = None,
        live: Live = "never",
        replay_id: str | None = None,
        by: str = "",
        digests: Collection[str] | None = None,
    ) -> Replay:
        """Replay a run: results of calls and answers come from its journal.

        A call takes its result from the journal if the run made the same call at the same node in the same branch, with
        the same request, as often before. A step with any other request is live, and so is all that it causes; other
        branches are not. Nodes themselves run, so a node with external effects outside `ctx` repeats them.

        Args:
            run_id: the id of the run to replay. A fork is replayed from where it was forked.
            graph: another version of the graph, another graph, or a graph's name. None: the run's version, if the
                executor has it, else the newest one.
            models: models to replace those of the run, by the names that nodes use; `default` for nodes that name none.
                Without this, recorded replies are used whichever model the executor has; with `live="never"` it needs
                none.
            update: fields of the run's start state, and other values for them; with `at` like in `fork`.
            answer: another answer in place of the one in record `at`, or of the only one.
            result: another result in place of the one in record `at`, or of the only one; see `fork`.
            at: the record after which the replay starts, with the records up to it unchanged; 0: the start. None: the
                record whose answer or result is replaced, or where a fork was forked; for a run that migrated to this
                version of its graph, the last such record, unless `update` is given; else the start.
            approve: approve live calls of tools up to this risk without asking, except irreversible ones; the policy of
                the run is not used.
            context: the value of `ctx.context` in nodes, for a run that was started with one.
            live: what to do if a step is live. `never`: the replay ends there as `diverged`, and nothing is called.
                `ask`: a person is asked before each call, of models too. `always`: calls are made, except that
                irreversible ones, and those that a confirm of the graph asks about, are asked about.
            replay_id: an id for the replay. The same id and the same replay mean the same run.
            by: who makes it and gives `answer`, for the journal.
            digests: see `fork`.

        Returns:
            The result of the replay, when it ends or pauses. `replayed` returns it later, after answers.

        Raises:
            RunUnknown: the store has no such run.
            InvalidInput, InvalidUpdate, InvalidAnswer, InvalidValue: a change does not fit the run.
            GraphChanged: the run cannot continue with the graph at record `at`.
            RunExists: another run has the id `replay_id`.
            ContextMissing: the run was started with a context, and none is given or made.
            GraphUnknown: the graph, a tool that it refers to, or a model for a live call is missing.
            StoreError, RunConflict: the journal cannot be written; the replay can be resumed.
        """
        options = ReplayOptions(
            run_id,
            graph=graph,
            models=models,
            update=update,
            answer=answer,
            result=result,
            at=at,
            approve=approve,
            context=context,
            live=live,
            run_id=replay_id,
            by=by,
            digests=digests,
        )
        return await replays.replay(self._host, options)

    async def load(self, run_id: str, at: int | None = None) -> Run:
        """Return a run in its current state, or after record `at`. Runs nothing and needs no code.

        Raises:
            RunUnknown: the store has no such run.
            InvalidValue: `at` is not the number of a record.
            StoreCorrupt: a record is damaged; the records before it can be loaded with `at`.
        """
        check_text(run_id, "run_id")
        check_position(at)
        return await self._host.loader.load(run_id, at)

    async def runs(
        self,
        *,
        status: Collection[str] | str | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        relation: Relation | None = None,
        search: str | None = None,
        q: str | None = None,
        since: float | None = None,
        begun_since: float | None = None,
        begun_before: float | None = None,
        waiting: bool | None = None,
        failed_tool: str | None = None,
        model: str | None = None,
        tool: str | None = None,
        node: str | None = None,
        diverged: bool | None = None,
        replays: bool = True,
        sort: Sort = "started",
        ascending: bool = False,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Return a page of the runs that match every filter, the newest first unless `sort` says otherwise.

        With `q`, the runs that `search` finds come first. Then the journals of the others are searched, from the newest
        run on, up to a limit per page: about 5,000 records, 1,000 runs, or 8 million characters. The page's `scanned`
        is the position reached, and its cursor continues there, so an empty page may not be the last one.

        Args:
            status: one or more statuses; an executor drives `running` runs, but not `interrupted` ones.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            parent: the id of the run from which a run was made.
            relation: how a run was made from another: `fork`, `replay` or `call` (by a call of its graph as a tool).
            search: words that must all occur in the first 2,000 characters of a run's labels, input or output. Case and
                diacritics are ignored.
            q: like `search`, but words may also occur in prompts, data of tools, questions, answers, events and states.
            since: Unix seconds: the run was created or written to at this time or later.
            begun_since: the run was created at this time or later.
            begun_before: the run was created before this time.
            waiting: whether the run has open questions; None: either.
            failed_tool: the name of a tool with a failed call in the run; `*` matches any tool.
            model: the name of a model that the run called.
            tool: the name of a tool that the run called.
            node: the name of a node of which a step ran.
            diverged: whether the run is a replay that made a request that the replayed run did not make; None: either.
            replays: False leaves replays out.
            sort: `started` (when it was created), `updated` (when it was last written to), `duration` (the time that it
                was active), `cost`, `status` or `graph`. Among equals the newest run comes first. Only `started` is in
                the order of an index: the others read a few columns of every run that matches.
            ascending: the smallest first; with `started`, the oldest run. Otherwise the other way round.
            after: the `cursor` of the previous page; None: the first page.
            limit: maximum number of runs on a page.

        Raises:
            ValueError: a status or `sort` is unknown, both `search` and `q` are given, or `q` with another order than
                the newest first.
            StoreError: `after` is not a cursor of this store, or of this kind of list.
        """
        query = RunQuery(
            status=status,
            graph=graph,
            labels=labels or {},
            parent=parent,
            relation=relation,
            search=search,
            since=since,
            begun_since=begun_since,
            begun_before=begun_before,
            waiting=waiting,
            failed_tool=failed_tool,
            model=model,
            tool=tool,
            node=node,
            diverged=diverged,
            replays=replays,
            sort=sort,
            ascending=ascending,
            after=after,
            limit=limit,
        )
        return await run_status.run_list(self._host.store, query, q=q)

    async def questions(
        self,
        *,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        kinds: Collection[str] | str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> RunQuestions:
        """Return a page of the open questions of all runs, the oldest first. No journal is read.

        Waiting runs of earlier versions are folded once, when questions are first listed.

        Args:
            graph: the name of a graph.
            labels: labels that a run must have, with their values.
            kinds: kinds of questions: `approval`, `input`, `unknown_outcome`, `pause`, `event`, `timer`, `limit`; None:
                any. People answer all but `event` and `timer`.
            after: the `cursor` of the previous page; None: the first page.
            limit: maximum number of questions on a page.

        Raises:
            InvalidValue: a kind is unknown.
            StoreError: `after` is not a cursor of this list.
        """
        return await reader.open_questions(
            self._host, graph=graph, labels=labels, kinds=kinds, after=after, limit=limit
        )

    async def history(
        self, run_id: str, at: int | None = None, *, after: int = 0, limit: int | None = None
    ) -> list[Point]:
        """Return the steps of a run until record `at`, in the order in which they ended.

        With `after` and `limit`, the steps are returned in pages: `after` is the `seq` of the last step of the previous
        page, so that only the needed part of the journal is read.

        Args:
            run_id: the run's id.
            at: the number of the last record; None: all of them.
            after: only steps that ended after this record.
            limit: maximum number of steps to return; None: no limit.

        Raises:
            RunUnknown, StoreCorrupt: see `load`.
            InvalidValue: `at` or `after` is not the number of a record, or `limit` not a number of steps.
        """
        return await reader.history(self._host, run_id, at, after, limit)

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        follow: bool = False,
        until: Literal["end", "pause"] = "end",
        style: Literal["embedia"] | None = None,
        tokenizer: Callable[[str], int | Sized] | None = None,
    ) -> AsyncIterator[Event]:
        """Return the events of a run after record `after`.

        Args:
            run_id: the run's id.
            after: the number of the last record to leave out; 0: none.
            follow: continue with new events, with live ones if this executor drives the run. A reopened run continues
                the numbers after its end.
            until: where following stops: at the `end` of the run, or also at a `pause`: it waits for answers, events or
                a timer, or was paused.
            style: `embedia` uses the names and order of that framework; None: the library's own.
            tokenizer: returns the tokens of a text, or their number, for `style="embedia"`; None: only replies have
                counts, from the provider.

        Raises:
            ValueError: `style` or `until` is unknown, or `tokenizer` is given without `style="embedia"`.
        """
        return streaming.RunEvents(
            self._host, run_id, after=after, follow=follow, until=until, style=style, tokenizer=tokenizer
        )

    async def diff(self, run_a: str, run_b: str) -> RunDiff:
        """Compare two runs, step by step. Runs nothing and needs no code.

        Args:
            run_a: a run.
            run_b: another run, of the same graph, another version of it, or another graph.

        Returns:
            The differences in their order: prompts, results, answers, outcomes, updates, the end; and the usage of
            both.

        Raises:
            RunUnknown, StoreCorrupt: see `load`.
        """
        return await reader.diff(self._host, run_a, run_b)

    async def stats(
        self,
        by: Sequence[str] | str = (),
        *,
        since: float | None = None,
        until: float | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[StatsRow]:
        """Return the usage of runs, in groups: from totals in the rows of the runs, so no journal is read.

        Inherited usage of a fork is not counted, and usage of a run of a graph tool is counted for that run only.

        Args:
            by: the keys of the groups: `day` (UTC, when the run was created), `graph`, `model`, `tool`, `node`, or
                `label:KEY`. Several keys make a group of each combination; no key makes one group of all runs.
            since: Unix seconds: only runs that were created at this time or later.
            until: only runs that were created before this time.
            graph: the name of a graph.
            labels: labels that a run must have, with their values.

        Returns:
            One row for each group, sorted by the values of `by`.

        Raises:
            InvalidValue: a key in `by` is not valid.
        """
        return await reader.stats(self._host.store, by, since=since, until=until, graph=graph, labels=labels)

    async def work(
        self,
        *,
        slots: int = 20,
        poll: float = 1.0,
        graphs: Collection[str] | None = None,
        graph_slots: Mapping[str, int] | None = None,
        fair_by: str | None = None,
        eager: bool = True,
        stop: anyio.Event | None = None,
        grace: float = 10.0,
        drained: anyio.Event | None = None,
        health: WorkerHealth | None = None,
    ) -> None:
        """Take runs of this executor's graphs that no executor drives, and drive them, until cancelled.

        These are runs that were enqueued, answered or interrupted, whose timer or deadline is due, or whose process
        died. Any number of workers can share a store: each run is driven by one. A run whose drive was given up, or
        whose process died, backs off: 1 second, doubled each time to 1 hour at most. After 5 times only `resume`
        continues it. A failing store is tried again at growing intervals.

        Cancelling the call interrupts the runs that it drives. So does SIGTERM, and so does closing the executor, after
        which the call returns.

        Args:
            slots: number of runs that this call drives at the same time.
            poll: seconds between polls of the store, if it cannot announce due runs.
            graphs: names of graphs whose runs are taken; None: all graphs of the executor.
            graph_slots: graph -> maximum number of its runs that this call drives at the same time. Further ones are
                left to other workers.
            fair_by: the name of a label whose values take turns, such as `tenant`: when many runs with one value wait,
                a run with another value is not taken after all of them. None: the runs that wait longest come first.
            eager: whether runs are taken when the store announces them, and timers when they are due. False: only every
                `poll` seconds, if an engine delivers runs and this call takes the rest.
            stop: when it is set, no further run is taken, and the call returns when its runs have been interrupted:
                each when its running steps have ended.
            grace: seconds that these steps have.
            drained: the call is listed as a draining worker until this is also set. For programs that also drive runs
                which an engine delivers, and whose steps end later.
            health: the source of probes and metrics of this call.

        Raises:
            ValueError: `slots` or `poll` is out of range.
            InvalidValue: `graph_slots` or `fair_by` cannot be used.
            RuntimeError: the executor is not open, or has ended because of an error.
        """
        await worker.work(
            self._host,
            slots=slots,
            poll=poll,
            graphs=graphs,
            graph_slots=graph_slots,
            fair_by=fair_by,
            eager=eager,
            stop=stop or anyio.Event(),
            grace=grace,
            drained=drained,
            health=health,
        )

    async def check(self, *, repair: bool = False, progress: Callable[[int], object] | None = None) -> Checked:
        """Check a store: every record, graph and row, leases, and data that belongs to no run.

        Runs that are being driven are read, and their rows are left alone.

        Args:
            repair: whether to repair what can be repaired without losing anything: rows are rewritten from their
                journals, indexes from their rows, and data that belongs to no run is deleted. A damaged record stays
                unchanged.
            progress: called with the number of checked runs.

        Returns:
            The findings, and the repairs.

        Raises:
            StoreError: the store cannot be read.
        """
        return await checking.check(self._host, repair=repair, progress=progress)

    async def delete(
        self,
        run_id: str,
        *,
        children: bool = True,
        forks: bool = False,
        memory: bool = False,
        also: Sequence[Erase] = (),
        by: str = "",
        reason: str = "",
    ) -> list[str]:
        """Delete a run that is not being driven, for good.

        Deleted are its records, questions, messages, notes and labels, and the results of cached nodes that it stored.
        A proof without content stays in the store, see `audit`: who deleted it, when and why.

        Args:
            run_id: the run's id.
            children: whether to also delete the runs that its graph tools started, and theirs. Only their caller
                refers to them. Other runs with its label stay.
            forks: whether to also delete its forks and replays, and theirs, which have copies of its records; also
                those of forks that were deleted before.
            memory: whether to also delete the items of memory that still have the value that the run stored.
            also: functions that delete what calls of its tools wrote elsewhere, such as `Files("notes").forget_edits`.
                Each is called with their idempotency keys, in a thread, and returns how much it deleted.
            by: the name of the person who deletes it.
            reason: why it is deleted, for the proof.

        Returns:
            The ids of the deleted runs, the run itself first.

        Raises:
            RunUnknown: the store has no such run.
            RunConflict: the run, or a run that it started, is being driven; nothing was deleted.
            RunArchived: an archive that is not given has objects of such a run; nothing was deleted.
            StoreTooNew: a newer version of this library wrote a record of such a run; nothing was deleted.
            StoreError: the store, or its archive, cannot be reached. Deleting the run again deletes the rest of the
                runs it started.
        """
        order = deletion.Deletion(by, f"delete {reason}".rstrip(), memory, also)
        deleted = await retention.delete(self._host, run_id, order, children=children, forks=forks)
        await self._host.store.compact()
        return deleted

    async def prune(
        self,
        *,
        older_than: timedelta | datetime | None = None,
        status: Collection[str] | str | None = None,
        labels: Mapping[str, str] | None = None,
        graph: str | None = None,
        keep: int | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> Pruned:
        """Delete runs that have ended, with the runs that their graph tools started, and items that have expired.

        Runs that have not ended stay, and so do runs that a graph tool of a remaining run started.

        Args:
            older_than: an age or a time (with a time zone): only runs whose last record is older.
            status: `completed`, `failed`, `cancelled` or `exhausted`, or several of them; None: all four.
            labels: labels that a run must have, with their values.
            graph: the name of a graph; None: any.
            keep: number of the newest matching runs that stay whatever their age.
            dry_run: whether only to report which runs would be deleted.
            by: the name of the person who deletes them.

        Returns:
            The ids of the deleted runs, and of those that were skipped, with the reason; and the number of removed
            items of memory and cache.

        Raises:
            ValueError: neither `older_than` nor `keep` is given, or one of the arguments cannot be used.
            StoreError: the store cannot be written, or its archive fails at the first run. Pruning again continues.
        """
        return await retention.prune(
            self._host,
            older_than=older_than,
            status=status,
            labels=labels,
            graph=graph,
            keep=keep,
            dry_run=dry_run,
            by=by,
        )

    async def archive(
        self,
        *,
        older_than: timedelta | datetime | None = None,
        status: Collection[str] | str | None = None,
        labels: Mapping[str, str] | None = None,
        graph: str | None = None,
        run_ids: Collection[str] | None = None,
        dry_run: bool = False,
    ) -> ArchivedRuns:
        """Move the records of runs that have ended to the archive of the store (`Executor(archive=)`).

        Their rows stay: the runs are listed, searched, counted and read as before. An append, for example when such a
        run is reopened or forked, moves the records back first. Nothing is removed from the store before its object was
        written and read back. After an interruption, archiving again archives the rest.

        Args:
            older_than: an age or a time (with a time zone): only runs whose last record is older; None: any.
            status: `completed`, `failed`, `cancelled` or `exhausted`, or several of them; None: all four.
            labels: labels that a run must have, with their values.
            graph: the name of a graph; None: any.
            run_ids: only these runs; the space that they leave in the store is not returned to the file system.
            dry_run: whether only to report which runs would be archived.

        Returns:
            The ids of the archived runs, and the numbers of bytes written, and freed by the store.

        Raises:
            ValueError: one of the arguments cannot be used.
            RunUnknown: the store has none with one of the ids.
            StoreError: the store has no archive, or one of the two cannot be written.
        """
        return await retention.archive(
            self._host,
            older_than=older_than,
            status=status,
            labels=labels,
            graph=graph,
            run_ids=run_ids,
            dry_run=dry_run,
        )

    async def restore(self, run_id: str) -> bool:
        """Move the records of an archived run back into the store. The object stays, for copies of the store.

        Args:
            run_id: the run's id.

        Returns:
            Whether they were in the archive.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: the object is missing, or was changed.
            StoreError: the store has no archive, or the archive cannot be read.
        """
        check_text(run_id, "run_id")
        return await retention.restore(self._host, run_id)

    def audit(
        self,
        run_ids: str | Collection[str] | None = None,
        *,
        since: timedelta | datetime | None = None,
        graph: str | None = None,
        labels: Mapping[str, str] | None = None,
        content: bool = False,
    ) -> AsyncIterator[str]:
        """Return what was asked, approved, called and deleted, as lines of JSON that can be checked. See docs/audit.md.

        Runs whose records cannot all be read are logged as warnings, and their lines end with the reason.

        Args:
            run_ids: the id of a run, or several; None: all runs that match the rest.
            since: an age or a time (with a time zone): only runs created or written to since then, and later deletions.
            graph: the name of a graph; None: any. Deletions of all graphs are included: their proofs have neither names
                of graphs nor labels.
            labels: labels that a run must have, with their values.
            content: whether to include the records. Those with text that looks like a secret are redacted. False: only
                their digests are included.

        Returns:
            The lines, without line ends.

        Raises:
            RunUnknown: the store has no such run, and did not delete one.
            ValueError: `since` has no time zone, or is negative.
        """
        wanted = [run_ids] if isinstance(run_ids, str) else run_ids
        start = retention.time_of(since, self._host.resources.clock.now(), "since")
        query = RunQuery(since=start, graph=graph, labels=check_labels(labels or {}), limit=200)
        return auditing.audited(self._host, query, wanted, content=content)

    async def audit_faults(
        self, runs: Mapping[str, tuple[int, str, Collection[str]]], deleted: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Compare the store with a checked file of `audit`.

        Args:
            runs: id of a run -> the number of its last record in the file, the digest of its records, and the digests
                of proofs that earlier runs with its id were deleted.
            deleted: the proofs of deletions in the file.

        Returns:
            Runs that differ, or are gone without a proof, and proofs that are gone, as texts.
        """
        return await auditing.differs(self._host, runs, deleted)

    def export(
        self,
        run_ids: str | Collection[str],
        *,
        children: bool = True,
        redact: bool = False,
        notes: bool = True,
        to: str = "",
        by: str = "",
    ) -> AsyncIterator[str]:
        """Return runs as lines of JSON: their records, graphs, notes, and the runs that their graph tools started.

        Args:
            run_ids: the id of a run, or several.
            children: whether to include the runs that graph tools started.
            redact: whether to blank text that looks like a secret. A redacted export can be read, but not imported,
                because changed records fold differently.
            notes: whether to include the notes that people wrote about the runs.
            to: the name of the file, or of the receiver of the lines. It is stored, and the proof of the run's deletion
                names it. Empty: nothing is stored.
            by: the name of the person who exports.

        Returns:
            The lines, without line ends. Unread messages to a run are not in them.

        Raises:
            RunUnknown: the store has no such run.
            StoreCorrupt: a record is damaged.
        """
        wanted = [run_ids] if isinstance(run_ids, str) else list(run_ids)
        return transfer.exported(self._host, wanted, children=children, redact=redact, notes=notes, to=to, by=by)

    async def import_(self, source: Source) -> Imported:
        """Add the runs of an export to the store. It is checked as a whole before anything is written.

        Their records have no seal, and approvals of calls that were not made yet are withdrawn, so that the runs ask
        again.

        Args:
            source: the path of the exported file, or its lines.

        Returns:
            The ids of the imported runs, and of those that the store already has.

        Raises:
            InvalidExport: the file is damaged, cut off or redacted; nothing was imported.
            RunExists: the store has another run with one of the ids; nothing was imported.
            StoreError: the file cannot be read, or the store cannot be written. Each run is imported whole or not at
                all; importing again imports the rest.
        """
        return await transfer.imported(self._host, source)


def _restored_at(given: datetime | str | None) -> float:
    """Return the time of a restore in Unix seconds; 0 if there was none."""
    if isinstance(given, str):
        try:
            given = moment_of(given)
        except ValueError as error:
            raise ValueError(f"restored_at={given!r}: {error}") from None
    check_kind(given, datetime, "restored_at")
    return 0.0 if given is None else retention.time_of(given, 0.0, "restored_at") or 0.0


def executor_like(
    executor: Executor, store: str | Store, *, model: Model | None, models: Mapping[str, Model]
) -> Executor:
    """Return a new executor with the tools, dependencies and contexts of another one, and no graphs. It is not opened.

    Args:
        executor: the executor to copy them from.
        store: the store of the new executor.
        model: the model of nodes that name no model.
        models: named models.
    """
    held = executor._host.resources
    return Executor(
        store,
        model=model,
        models=models,
        tools=held.tools,
        deps=held.deps,
        streams="always",
        pools={name: int(pool.total_tokens) for name, pool in held.pools.items()},
        memory=held.memory,
        contexts=executor._host.contexts.make,
        clock=held.clock,
    )


@dataclass(frozen=True)
class App:
    """The code with which runs are driven. `orchestrator worker --app module:attr` names one.

        app = App(graphs=[triage, invoice], model=OpenAIModel("gpt-5"), tools=[lookup])

    Attributes:
        graphs: the graphs whose runs are driven.
        model: the model of nodes that name no model.
        models: named models, by the names that nodes use.
        tools: the tools that nodes may call.
        deps: the value of `ctx.deps` in nodes.
        concurrency, pools: see `Executor`.
        on_change, codec, tracing: see `Executor`.

    Raises:
        InvalidValue: an argument has another type.
    """

    graphs: Sequence[GraphDefinition]
    model: Model | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    tools: ToolsLike = ()
    deps: object = None
    concurrency: int | None = None
    pools: Mapping[str, int] | None = None
    on_change: Literal["continue", "strict"] = "continue"
    codec: Codec | None = None
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        check_code(graphs=self.graphs, model=self.model, models=self.models, pools=self.pools)

    def executor(
        self,
        store: str | Store = "memory://",
        *,
        lease_ttl: float = 30.0,
        seal: Seal | None = None,
        on_change: Literal["continue", "strict"] | None = None,
        codec: Codec | None = None,
        tracing: Tracing | None = None,
        restored_at: datetime | str | None = None,
    ) -> Executor:
        """Return a new executor with this code.

        Args:
            store: a store, or its URL.
            lease_ttl: see `Executor`.
            seal: see `Executor`.
            on_change: in place of the app's.
            codec: in place of the app's.
            tracing: if the app has none.
            restored_at: see `Executor`.
        """
        return Executor(
            store,
            graphs=self.graphs,
            model=self.model,
            models=self.models,
            tools=self.tools,
            deps=self.deps,
            concurrency=self.concurrency,
            pools=self.pools,
            on_change=on_change or self.on_change,
            lease_ttl=lease_ttl,
            seal=seal,
            codec=codec or self.codec,
            tracing=self.tracing or tracing,
            restored_at=restored_at,
        )


T = TypeVar("T")


def run_sync(work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()` in an event loop of its own, and return its result.

    If a loop runs already, as in a notebook, the new loop runs in another thread: this call blocks the caller's.
    """
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:  # no loop runs here
        return anyio.run(work)
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(anyio.run, work).result()

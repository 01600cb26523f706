"""The executor: it opens a store, starts runs and waits for them. `host/control.py` has the commands to runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import anyio

from orchestrator.clock import SYSTEM_CLOCK, Clock
from orchestrator.executor.arguments import check_arguments
from orchestrator.executor.host import recovery
from orchestrator.executor.host.child_runs import ChildRuns
from orchestrator.executor.host.contexts import MakeContext
from orchestrator.executor.host.executor_code import ExecutorCode
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.host.observers import Observation, RunObserver
from orchestrator.executor.host.references import NameCode
from orchestrator.executor.host.replaying import RunReplaying
from orchestrator.executor.host.start import begin, join
from orchestrator.executor.host.streams import RunStreams
from orchestrator.executor.host.working import RunWorker
from orchestrator.executor.resources import Resources
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.limits import Limits
from orchestrator.memory import MemoryOptions
from orchestrator.models.base import Model
from orchestrator.seals import Seal
from orchestrator.stores import Codec, open_store, with_archive, with_codec
from orchestrator.stores.base import Reopening, Store
from orchestrator.tasks import OwnTask
from orchestrator.tools.collect import ToolsLike, toolbox_of
from orchestrator.typevars import StateT
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.stores import Archive


class Executor(RunWorker, RunReplaying, RunStreams, ExecutorCode):
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
        concurrency: how many steps of all runs may run at the same time; None: no limit.
        pools: pool -> how many steps of all runs whose nodes name it may run at the same time here (docs/concepts.md).
        on_change: what to do if the graph's content (prompts, parameters, code) changed since a run was last driven:
            `continue` and journal the differences, or `strict`: refuse with `GraphChanged`.
        lease_ttl: seconds after which another host may take over a run that this executor no longer renews.
        streams: when models that can stream are asked for streams: `watched`, while the events of the run are read; or
            `always`, so that one who comes in the middle of a reply gets it from its beginning.
        contexts: makes the `ctx.context` of each run that is begun or taken up without a given one: a sync or async
            function of the run's row in the store (its id, graph and labels).
        refs: names the code of this executor, as text, for readers of the runs that it continues: a function of
            (`run.root_id`, the name of the graph, `run.refs`) that returns new references, or None to keep those.
        on_pause: called with (run, seq) when a run that this executor drives pauses for a person or an event.
        observers: functions that are called with (run, seq) when records of runs that this executor drives are durable.
            See `RunObserver` and docs/streaming.md.
        seal: seals the records that this executor writes. Approvals and policies in records without its seal do not
            count: they are asked for again before the calls that they allow. Without a seal the store is trusted.
        codec: encrypts what the store keeps of values; None: it keeps them as they are. See docs/security.md.
        archive: where the records of archived runs are, or its URL, see `open_store` and docs/archive.md.
        memory: the embedding function, default expiry and limits of memory across runs (`ctx.memory`).
        clock: the clock for records and deadlines; tests use an `orchestrator.testing.MockClock`. Leases use the
            clocks of the machine, because they apply between processes.
        idle: what the open executor does about runs that it began, resumed or answered and that wait. `awake`: it goes
            on with them when a timer or deadline is due, and when another process answered them or sent them an event.
            `sleep`: they wait until they are resumed.
    """

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
    ) -> None:
        if idle not in ("awake", "sleep"):
            raise ValueError(f"idle={idle!r}: use 'awake' or 'sleep'")
        if on_change not in ("continue", "strict"):
            raise ValueError(f"on_change={on_change!r}: use 'continue' or 'strict'")
        self._owned, self._closed = isinstance(store, str), False
        check_arguments(store=store, graphs=graphs, model=model, models=models, pools=pools, observers=observers)
        opened = open_store(store, archive=archive) if isinstance(store, str) else with_archive(store, archive)
        self.store: Store = with_codec(opened, codec)
        children = ChildRuns()
        resources = Resources.of(
            graphs, model, models or {}, toolbox_of(tools), deps, clock, children=children, concurrency=concurrency,
            pools=pools, streams=streams, memory=memory,
        )  # fmt: skip
        self._opened_host = host = Host(
            self.store, resources, lease_ttl=lease_ttl, strict=on_change == "strict", seal=seal, awake=idle == "awake"
        )
        children.host = host
        host.watched.take_up = partial(recovery.continue_alone, host)
        host.contexts.make = contexts
        host.refs.name_code = refs
        host.observation = Observation(self.store, host.owner, observers, on_pause)
        host.observation.reload = self.load
        host.watched.moved = host.observation.moved

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
            RuntimeError: it is open already.
            ToolUnavailable: a server of its tools cannot be reached.
        """
        host = self._host
        if host.own is not None and not host.own.over:
            raise RuntimeError(f"{self!r} is already open")
        host.own = OwnTask(self._life, repr(self), warns=True)
        await host.own.open()
        return self

    async def close(self) -> None:
        """Interrupt its runs, release what they hold, and close the store, if it was given as a URL.

        Calls that are starting a run or taking one up, and those of `work`, have 5 seconds to give their runs back.

        Raises:
            RuntimeError: a node of one of its runs, an observer or a tool calls it, which would wait for itself. So
                does a task that one of them started.
            Exception: the error for which its background tasks had ended before.
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
        if host.fatal is not None:
            raise host.fatal

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[None]:
        """All that happens while it is open, in a task of its own."""
        try:
            if self._closed and isinstance(self.store, Reopening):
                self.store.reopen()
            self._closed = False
            self._host.mark_task()
            async with self._host.opened():
                yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._close_store()

    async def _close_store(self) -> None:
        if self._owned:
            self._closed = True
            await self.store.close()

    def __repr__(self) -> str:
        return f"Executor({self.store.url!r})"

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
            labels: labels of the run, to find it by.
            approve: approve calls of tools up to this risk without asking.
            limits: the explicitly set fields replace those of the graph's limits; the others stay.
            refs: the names of graph, tools and model as text, for readers of the run.
            pause_before, pause_after: names of nodes before or after which the run pauses, until it is resumed; nodes
                inside of subgraphs by their path, `outer/inner`. Journaled, so they hold after a crash.
            context: what nodes get as `ctx.context`: a user, a session. It is not stored: give it again when the run
                is taken up again, or let `Executor(contexts=)` make it.
            by: who starts it, for the journal.

        Returns:
            The run, when it ends or pauses.

        Raises:
            InvalidInput: the input does not fit the graph's state.
            InvalidValue: the graph has no node of that name.
            RunExists: another run has the id.
            GraphUnknown: a model or tool that the graph names is missing.
            StoreError, RunConflict: the journal cannot be written; the run can be resumed.
            RuntimeError: the executor is not open, or was closed before the first step began; then the run can be
                resumed, if the store has it.
        """
        how = Manner(pause_before=pause_before, pause_after=pause_after, context=context, by=by)
        live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs, how=how)
        if isinstance(live, str):
            return await join(self._host, live, how)
        return await recovery.drive_on(self._host, live)

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
        how = Manner(pause_before=pause_before, pause_after=pause_after, context=context, by=by)
        live = await begin(self._host, graph, input, run_id, labels, approve, limits, refs, how=how)
        run_id = live if isinstance(live, str) else live.run_id
        drive = await recovery.take_up_free(self._host, live, how) if isinstance(live, str) else live
        if drive is not None:
            self._host.background().start_soon(self._host.drive_alone, drive)
        return run_id

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:  # noqa: ASYNC109  a public name
        """Wait until a run ends or pauses, or no executor drives it any more. Any executor may drive it.

        If nobody takes up a run whose timer or deadline is due, or one that waited to be taken up for `lease_ttl`
        seconds, this executor goes on with it, if it has the graph and no living worker has it.

        Args:
            run_id: the run's id.
            timeout: seconds to wait at most; None: no limit.

        Returns:
            The run as it then is.

        Raises:
            RunUnknown: the store has no such run.
            TimeoutError: `timeout` seconds have passed; the run continues.
        """
        return await recovery.wait_for(self._host, run_id, timeout)

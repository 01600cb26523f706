"""Starts replays: new runs that take their results from the journals of others; one, or many in the background."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
from anyio.lowlevel import checkpoint
from msgspec import structs

from orchestrator.errors import (
    InvalidValue,
    OrchestratorError,
    RunConflict,
    RunEnded,
    RunExists,
)
from orchestrator.executor.fork import making
from orchestrator.executor.fork.making import check_same
from orchestrator.executor.host import Host
from orchestrator.executor.options import ForkOptions, ReplayOptions, ResumeOptions
from orchestrator.executor.replay import DEFAULT
from orchestrator.executor.resources import Resources
from orchestrator.executor.resuming import check_risk, journal_resumed, open_run
from orchestrator.executor.run_tools import offered
from orchestrator.executor.start import Recorded, check_new_id, create, initial_values, join
from orchestrator.executor.tracing import new_trace
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import JsonObject
from orchestrator.kernel.records import Forked, Migrated, RunStarted
from orchestrator.models.base import Model
from orchestrator.stores.requests import NewRun
from orchestrator.tasks import away
from orchestrator.values import check_mapping, check_position, check_text
from orchestrator.views.reader import read
from orchestrator.views.replay_result import Replay, replay_of
from orchestrator.views.run import Run
from orchestrator.views.superseded import Superseded, VersionNames

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


log = logging.getLogger("orchestrator")


async def replay(host: Host, options: ReplayOptions) -> Replay:
    """See `Executor.replay`."""
    check_options(options.live, options.approve, options.at)
    check_text(options.parent, "run_id")
    check_mapping(options.update, "update")
    check_mapping(options.models, "models")
    name = os.urandom(8).hex() if options.run_id is None else check_new_id(options.run_id)
    parent = await host.loader.load(options.parent)
    resources = with_models(host.resources, options.models or {})
    at = await _moment_of(host, options, parent)
    live = await (
        _from_its_start(host, options, parent, name, resources) if at is None else _from(host, options, name, at)
    )
    if live is None:
        await join(host, name)
    else:
        await host.drive(live)
    return await replayed(host, name)


def check_options(live: str, approve: str | None, at: int | None) -> None:
    """Check the options of a replay.

    Raises:
        ValueError: an option is not valid.
    """
    if live not in ("never", "ask", "always"):
        raise ValueError(f"live={live!r}: use 'never', 'ask' or 'always'")
    check_risk(approve)
    check_position(at)


async def _moment_of(host: Host, options: ReplayOptions, parent: Run) -> int | None:
    """Return the number of the record after which the replay starts; None: it starts as the run did.

    Raises:
        InvalidValue: it is not clear which answer or result is to be replaced.
    """
    if options.at is not None:
        return options.at or None
    if options.answer is not None or options.result is not None:
        kind = "answered" if options.answer is not None else "effect_settled"
        seqs = [record.seq for record in await host.store.read(options.parent) if record.type == kind]
        if len(seqs) != 1:
            what = "answers" if options.answer is not None else "results"
            listed = f": records {', '.join(map(str, seqs[:20]))}" if seqs else ""
            raise InvalidValue(
                f"run {options.parent!r} has {len(seqs)} {what}{listed}; name the replaced one, at=", where="at"
            )
        return seqs[0]
    fork = parent.machine.fork
    begun = 0 if fork is None or not fork.at else fork.seq
    if options.update is None and _graph_of(host, options, parent).structure == parent.machine.structure:
        records = await host.store.read(options.parent)
        begun = max([begun, *(record.seq for record in records if isinstance(record, Migrated))])
    return begun or None


async def _from(host: Host, options: ReplayOptions, name: str, at: int) -> Drive | None:
    """Start the replay as a fork; None: another executor drives it."""
    superseded = await _superseded(host, options.parent, at)
    if superseded.was_undone(at):
        raise InvalidValue(
            f"record {at} of run {options.parent!r} comes after a limit that was raised later, when the run went back "
            "to where it was before: replay the run from a record before the limit was spent, or after `reopened`",
            where="at",
        )
    given = {**_given(options, superseded), "limits": superseded.limits}
    trace = await new_trace(host.resources.tracing, host.store, "replay", name, options.parent)
    fork = ForkOptions(
        options.parent,
        labels=trace.labels,
        at=at,
        update=options.update,
        answer=options.answer,
        result=options.result,
        graph=options.graph,
        run_id=name,
        replay=given,
        by=options.by,
        digests=options.digests,
    )
    own = with_models(host.resources, options.models or {})
    resuming = ResumeOptions(resources=own, pause_before=(), pause_after=(), context=options.context)
    draft = await making.draft_of(host, fork, name, start=True)
    host.contexts.check(options.parent, draft.records[0], options.context)
    try:
        await host.store.create(NewRun(draft.info, draft.records))
        trace.created()
    except RunExists:
        await check_same(host.store, name, draft.records, options.parent)
    try:
        live = await open_run(host, name, resuming)
    except (RunConflict, RunEnded):
        return None
    journal_resumed(live, options.approve)
    return live


async def _from_its_start(
    host: Host, options: ReplayOptions, parent: Run, name: str, resources: Resources
) -> Drive | None:
    """Start the replay as the run started; None: a run with this id exists, and is the same replay."""
    graph = _graph_of(host, options, parent)
    first = parent.machine.started
    assert first is not None
    resources.check(graph, models=False)
    host.resources.begun[graph.content] = graph
    context = options.context or await host.contexts.for_new(name, graph.name, {}, None)
    began = VersionNames(await host.store.read(options.parent), graph.structure).start(first.values)
    superseded = await _superseded(host, options.parent, 0)
    given = {**began, **(options.update or {})}
    if graph.structure != first.structure:  # fields that the graph no longer has are left out
        given = {field: value for field, value in given.items() if field in graph.schema.fields}
    values = await away(lambda: initial_values(graph, Recorded(given)), given)
    started, forked = _first_records(host, options, parent, graph, name, superseded, values)
    host.contexts.check(options.parent, started, context)
    try:
        trace = await new_trace(host.resources.tracing, host.store, "replay", name, options.parent)
        traced = structs.replace(forked, labels=dict(trace.labels))
        live = await create(host, graph, started, traced, own=resources, context=context)
        trace.created()
        return live
    except RunExists:
        await _check_same(host, name, started, forked)
        return None


async def replayed(host: Host, run_id: str) -> Replay:
    """See `ExecutorReplays.load`."""
    check_text(run_id, "run_id")
    run = await host.loader.load(run_id)
    fork = run.machine.fork
    if fork is None or fork.relation != "replay":
        raise InvalidValue(f"run {run_id!r} is not a replay of another run", where="run_id")
    parent = await host.loader.load(fork.parent)
    read = host.store.read
    before, after = await read(fork.parent, upto=parent.seq), await read(run_id, upto=run.seq)
    return await away(lambda: replay_of(parent, before, run, after), before, after)


def with_models(resources: Resources, models: Mapping[str, Model]) -> Resources:
    """Return the resources of an executor, with other models."""
    named = {name: model for name, model in models.items() if name != DEFAULT or name in resources.models}
    own = models.get(DEFAULT) if DEFAULT not in resources.models else None
    return replace(resources, model=own or resources.model, models={**resources.models, **named})


def _graph_of(host: Host, options: ReplayOptions, parent: Run) -> GraphDefinition:
    """Return the graph with which the replay runs.

    Raises:
        GraphUnknown: its code is missing.
    """
    given = options.graph
    if isinstance(given, GraphDefinition):
        return given
    own = host.resources.version(parent.graph, parent.machine.structure, parent.machine.content)
    if given is None and own is not None:
        return own
    return host.resources.graph(given or parent.graph, parent.run_id)


def _first_records(
    host: Host,
    options: ReplayOptions,
    parent: Run,
    graph: GraphDefinition,
    name: str,
    superseded: Superseded,
    values: JsonObject,
) -> tuple[RunStarted, Forked]:
    """Return the first record of the replayed run as it would be with this graph, and the record of the replay.

    Args:
        superseded: records of the replayed run that do not count.
        values: the whole state that it starts with.
    """
    first = parent.machine.started
    assert first is not None
    now = host.resources.clock.now()
    started = structs.replace(
        first,
        ts=now,
        seal="",
        run_id=parent.root_id,
        graph=graph.name,
        structure=graph.structure,
        content=graph.content,
        refs=dict(host.refs.of(parent.root_id, graph.name, parent.refs)),
        values=dict(values),
        labels={},
        approve=options.approve,
        tools=offered(graph, host.resources.tools),
        holder=str(host.owner),
        caller=None,
        pause_before=(),
        pause_after=(),
        by=options.by,
        limits=superseded.limits or first.limits,
    )
    forked = Forked(
        seq=2,
        ts=now,
        run_id=name,
        parent=options.parent,
        at=0,
        root=parent.root_id,
        relation="replay",
        by=options.by,
        **_given(options, superseded),
    )
    return started, forked


def _given(options: ReplayOptions, superseded: Superseded) -> dict[str, Any]:
    """Return the fields of the record `forked` that only a replay has."""
    return {
        "live": options.live,
        "models": {alias: model.name for alias, model in (options.models or {}).items()},
        "set_aside": superseded.set_aside(),
        "raised": superseded.raised,
    }


async def _superseded(host: Host, run_id: str, after: int) -> Superseded:
    """Return the records that no longer count in a run because it was reopened."""
    records = await host.store.read(run_id)
    found = Superseded(after)
    read(await host.loader.plan_of(await host.store.info(run_id), records), records, found)
    return found


async def _check_same(host: Host, name: str, began: RunStarted, wanted: Forked) -> None:
    """Accept a run with the same id if it is the same replay.

    Raises:
        RunExists: the run is not the same replay.
    """
    machine = (await host.loader.load(name)).machine
    found, first = machine.fork, machine.started
    # The run may have been reopened since the replay started: then the replay is one of the earlier run.
    same: dict[str, Any] = {
        "ts": wanted.ts,
        "seal": "",
        "labels": wanted.labels,  # only those of its trace
        "set_aside": wanted.set_aside,
        "raised": wanted.raised,
    }
    if (
        found is None
        or first is None
        or structs.replace(found, **same) != wanted
        or first.graph != began.graph
        or (first.structure == began.structure and first.values != began.values)
    ):
        raise RunExists(name, f"it is not this replay of run {wanted.parent!r}")


# -- many runs --------------------------------------------------------------------------------------------------------


ReplayState: TypeAlias = Literal["waiting", "running", "over", "failed", "stopped"]
"""waiting: it has not started; running; over: it ended or paused; failed: the run cannot be replayed, or its replay
failed; stopped: the batch was stopped before it was over, or its executor closed.
"""


@dataclass(slots=True)
class ReplayProgress:
    """A run of a batch, and the state of its replay."""

    run_id: str
    """The run that is replayed."""
    replay_id: str
    """Id of the replay, which is a separate run once it has started."""
    state: ReplayState = "waiting"
    error: OrchestratorError | None = None
    """The reason why the run cannot be replayed, or why its replay failed."""


def begin(host: Host, runs: Mapping[str, str], options: ReplayOptions, concurrency: int) -> ReplayBatch:
    """See `ExecutorReplays.submit`.

    Args:
        options: the options of each replay, without its run and its id.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency!r}: use 1 or more")
    check_options(options.live, options.approve, options.at)
    batch = ReplayBatch(runs)
    host.background().start_soon(batch.drive, host, options, concurrency)
    return batch


class ReplayBatch:
    """Many runs that are replayed in the background.

    A run that cannot be replayed does not stop the others.

    Attributes:
        runs: The runs with the state of their replays, in the given order.
    """

    def __init__(self, runs: Mapping[str, str]) -> None:
        self.runs = tuple(ReplayProgress(run_id, replay_id) for run_id, replay_id in runs.items())
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()

    @property
    def over(self) -> bool:
        """Return True if no replay continues, and none will start."""
        return self._over.is_set()

    def stop(self) -> None:
        """Start no further replay, and interrupt those that run. `Executor.resume` continues an interrupted one."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Return when no replay continues, and none will start."""
        await self._over.wait()

    async def drive(self, host: Host, options: ReplayOptions, concurrency: int) -> None:
        """Replay the runs, at most `concurrency` at the same time."""
        host.mark_task()
        left: Iterator[ReplayProgress] = iter(self.runs)

        async def work() -> None:
            await checkpoint()  # the executor may have been left before it started
            for one in left:  # shared: each worker takes the next one
                await _replay(host, structs.replace(options, parent=one.run_id, run_id=one.replay_id), one)

        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for _ in range(min(concurrency, len(self.runs))):
                        tasks.start_soon(work)
        finally:
            for one in self.runs:
                if one.state in ("waiting", "running"):
                    one.state = "stopped"
            self._over.set()


async def _replay(host: Host, options: ReplayOptions, one: ReplayProgress) -> None:
    one.state = "running"
    try:
        await replay(host, options)
    except OrchestratorError as error:
        one.state, one.error = "failed", error
    except Exception as error:  # an error must not stop the other runs
        log.warning("run %s could not be replayed", options.parent, exc_info=error)
        one.state, one.error = "failed", OrchestratorError(f"{type(error).__name__}: {error}")
    else:
        one.state = "over"

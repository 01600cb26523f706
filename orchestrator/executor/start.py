"""Starting runs, once per run id: their first state and record, and adding them to the store.

A run is started by this executor, or enqueued for any.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, structs

from orchestrator.errors import InvalidInput, InvalidValue, RunExists
from orchestrator.executor import lease as leases
from orchestrator.executor.host import Host
from orchestrator.executor.journal import row_of
from orchestrator.executor.options import NO_OPTIONS, ResumeOptions, RunOptions
from orchestrator.executor.resources import Resources, limits_cost
from orchestrator.executor.resuming import (
    check_approvals,
    check_risk,
    drive_on,
    drop_unsealed,
    nodes_of,
    take_up_free,
    wait_for,
)
from orchestrator.executor.run_tools import check_tools, offered
from orchestrator.graph.codec import as_json, shown
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import JsonObject, is_small
from orchestrator.kernel.fold import apply
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.queries import start_fault
from orchestrator.kernel.records import RULES, Caller, Forked, Record, RunStarted
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Chain
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.requests import NewRun
from orchestrator.values import check_kind, check_labels, new_labels
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


class Recorded(Struct, frozen=True):
    """An input that was accepted before, as the values of all state fields: of a schedule, or of a replayed run."""

    values: Mapping[str, object]


def initial_values(graph: GraphDefinition, given: object) -> JsonObject:
    """Return the whole start state as JSON (see `Graph.initial`), after checking that forks and maps after START can
    open with it.

    Args:
        graph: the graph.
        given: the input, or a `Recorded` one, which may have any field.

    Raises:
        InvalidInput: the input does not fit; names every problem.
    """
    values = graph.schema.initial(given.values) if isinstance(given, Recorded) else graph.initial(given)
    fault = start_fault(graph.topology, values)
    if fault is not None:
        raise InvalidInput(f"input of graph {graph.name!r}: START {fault}")
    return values


async def create(
    host: Host,
    graph: GraphDefinition,
    *first: RunStarted | Forked,
    own: Resources | None = None,
    context: object = None,
) -> Drive:
    """Add a run with its first record (for a replay, its first two) to the store and take its lease.

    Raises:
        RunExists: the id is in use.
        RuntimeError: the executor is not open, or was closed meanwhile; then the run is in the store.
    """
    tasks = host.background()
    traced, created = _traced(host, "start", *first)
    records, chain = _sealed(host, *traced)
    machine, info = _row(host, graph, records)
    await host.enter(info.run_id)
    try:
        hold = await leases.create(host.presence, info, records, graph=graph.data(), stopping=lambda: host.stopping)
        created()
        try:
            host.check_open(tasks)
        except RuntimeError:
            with anyio.CancelScope(shield=True):
                await leases.give_back(host.store, info.run_id, hold.token)
            raise
        live = host.new_drive(machine, hold, own=own, chain=chain, context=context)
        live.log.journal.note_row(info)
        await check_approvals(host.store, live.log, None, host.resources.asked.get(graph.content))
        if host.seal is not None:
            await drop_unsealed(host.store, host.seal, info.run_id, None)
        return host.add(live)
    finally:
        host.leave(info.run_id)


async def create_undriven(host: Host, graph: GraphDefinition, started: RunStarted, due: float) -> None:
    """Add a run to the store that no executor drives yet.

    Args:
        due: earliest time at which it may be resumed, Unix seconds.

    Raises:
        RunExists: the id is in use.
    """
    traced, created = _traced(host, "enqueue", started)
    records, _ = _sealed(host, *traced)
    _, info = _row(host, graph, records)
    await host.store.create(NewRun(replace(info, due=due), records, graph=graph.data()))
    created()


def _traced(
    host: Host, verb: str, *first: RunStarted | Forked
) -> tuple[Sequence[RunStarted | Forked], Callable[[], None]]:
    """Return the first records of a run, with the context of its trace in its labels, if the executor traces runs.

    Those of a replay have it already. The function is called once the run is stored.
    """
    tracing, started = host.resources.tracing, first[-1]
    if tracing is None or not isinstance(started, RunStarted):
        return first, lambda: None
    trace = tracing.begin(verb, started.run_id, started.graph, started.labels)
    return (structs.replace(started, labels=dict(trace.labels)),), trace.created


def _sealed(host: Host, *first: RunStarted | Forked) -> tuple[list[Record], Chain | None]:
    chain = None if host.seal is None else host.seal.chain(first[-1].run_id)
    return [record if chain is None else chain.sealed(record) for record in first], chain


def _row(host: Host, graph: GraphDefinition, records: Sequence[Record]) -> tuple[RunState, RunInfo]:
    """Return the state of a run at its first records, and its row."""
    machine = RunState(Plan.of(graph))
    for record in records:
        apply(machine, record)
    caller = None if machine.caller is None else host.live.get(machine.caller.run_id)
    calling = None if caller is None else caller.machine
    return machine, row_of(machine, structure=graph.structure, content=graph.content, calling=calling)


class RunDraft(Struct, frozen=True):
    """A run that is not stored yet: its graph, and its first record."""

    graph: GraphDefinition
    started: RunStarted
    context: object = None
    """The value of `ctx.context` in its nodes."""

    async def check_same(self, store: Store) -> None:
        """Check that the existing run with this id has the same graph and input.

        Raises:
            RunExists: the existing run has another graph or input.
        """
        run_id, name = self.started.run_id, self.graph.name
        (first,) = await store.read(run_id, limit=1)
        if isinstance(first, RunStarted) and first.run_id != run_id:
            raise RunExists(run_id, f"it is a fork, which started with records of run {first.run_id!r}") from None
        if not isinstance(first, RunStarted) or first.graph != name:
            raise RunExists(run_id, f"it is a run of graph {getattr(first, 'graph', '?')!r}") from None
        if not self._has_input_of(first):
            raise RunExists(run_id, f"it is a run of {name!r} with another input") from None

    def _has_input_of(self, first: RunStarted) -> bool:
        """Return True if a run started with the same input. If it started in another version of the graph, fields that
        only one of them has do not count, unless this input sets them.
        """
        ours, theirs = self.started.values, first.values
        if first.structure == self.graph.structure:
            return ours == theirs
        schema = self.graph.schema
        added = {name: ours[name] for name in ours.keys() - theirs.keys()}
        if any(schema.field(name).required for name in added):
            return False
        defaults = {name: schema.field(name).codec.encode(schema.field(name).default()) for name in added}
        return added == defaults and all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())


async def new_run(
    host: Host,
    graph: GraphDefinition | str,
    given: object,
    options: RunOptions,
    caller: Caller | None = None,
) -> RunDraft:
    """Return the graph and the first record of a run. `given`: its input."""
    check_risk(options.approve)
    check_kind(options.limits, Limits, "limits")
    name = os.urandom(8).hex() if options.run_id is None else check_new_id(options.run_id)
    graph = host.resources.graph(graph) if isinstance(graph, str) else graph
    host.resources.graphs.setdefault(graph.name, graph)
    host.resources.begun[graph.content] = graph
    limits = None if options.limits is None else graph.limits.changed(options.limits)
    _check_resources(host.resources, graph, limits)
    if is_small(given):
        values = initial_values(graph, given)
    else:
        from orchestrator.tasks import away

        values = await away(lambda: initial_values(graph, given))
    # inputs of a schedule were accepted when it was stored
    check = check_labels if isinstance(given, Recorded) else new_labels
    marks = check(options.labels) if options.labels else {}
    context = options.context
    if context is None:
        context = await host.contexts.for_new(name, graph.name, marks, None if caller is None else caller.run_id)
    started = RunStarted(
        seq=1,
        ts=host.resources.clock.now(),
        run_id=name,
        graph=graph.name,
        structure=graph.structure,
        content=graph.content,
        values=dict(values),
        limits=limits,
        labels=marks,
        approve=options.approve,
        refs=_refs(host.resources, graph) if options.refs is None else as_json(dict(options.refs), "refs", inside=1),
        tools=offered(graph, host.resources.tools),
        holder=str(host.owner),
        rules=RULES,
        caller=caller,
        pause_before=nodes_of(graph, options.pause_before or (), "pause_before"),
        pause_after=nodes_of(graph, options.pause_after or (), "pause_after"),
        context=context is not None,
        by=options.by,
    )
    return RunDraft(graph, started, context)


def _check_resources(given: Resources, graph: GraphDefinition, limits: Limits | None) -> None:
    """Refuse a graph that needs resources that the executor lacks, see `Resources.check`."""
    if limits is not None or not given.passed.holds("resources", graph, given.tools):
        given.check(graph, limits)
        if limits is None and not limits_cost(graph, None):  # the prices of models may change
            given.passed.note("resources", graph, given.tools)


async def begin(
    host: Host,
    graph: GraphDefinition | str,
    given: object,
    options: RunOptions,
    caller: Caller | None = None,
) -> Drive | str:
    """Return the drive of a new run; or the id of the run if it exists already."""
    new = await new_run(host, graph, given, options, caller)
    passed, tools = host.resources.passed, host.resources.tools
    if not passed.holds("tools", new.graph, tools):
        check_tools(new.graph, tools)
        passed.note("tools", new.graph, tools)
    try:
        return await create(host, new.graph, new.started, context=new.context)
    except RunExists:
        await new.check_same(host.store)
        return new.started.run_id


async def start(host: Host, graph: GraphDefinition | str, given: object, options: RunOptions) -> Run:
    """See `Executor.start`."""
    live = await begin(host, graph, given, options)
    if isinstance(live, str):
        return await join(host, live, options.for_existing())
    return await drive_on(host, live)


async def submit(host: Host, graph: GraphDefinition | str, given: object, options: RunOptions) -> str:
    """See `Executor.submit`."""
    live = await begin(host, graph, given, options)
    if isinstance(live, str):
        run_id, drive = live, await take_up_free(host, live, options.for_existing())
    else:
        run_id, drive = live.run_id, live
    if drive is not None:
        host.background().start_soon(host.drive_alone, drive)
    return run_id


async def join(host: Host, run_id: str, options: ResumeOptions = NO_OPTIONS) -> Run:
    """Continue an existing run if no executor drives it; else follow it until it ends or pauses."""
    while True:
        live = await take_up_free(host, run_id, options)
        if live is not None:
            return await drive_on(host, live)
        run = await wait_for(host, run_id, None)
        if run.status != "interrupted":
            return run


def _refs(given: Resources, graph: GraphDefinition) -> dict[str, object]:
    model = None if given.model is None else given.model.name
    tools = [tool.name for tool in given.tools]
    _check_names(graph.name, tuple(tools), model)
    return {"graph": graph.name, "tools": tools, "model": model}


@lru_cache(maxsize=64)
def _check_names(*names: object) -> None:
    """Refuse names that cannot be journaled: see `as_json`. Equal names are checked once."""
    as_json(list(names), "refs", inside=1)


def check_new_id(run_id: str) -> str:
    """Return the id, if a new run can have it.

    Raises:
        InvalidValue: it is not valid, or commands would read it as an option.
    """
    if check_run_id(run_id).startswith("-"):
        raise InvalidValue(f"run id {shown(run_id)}: use one that does not start with '-'", where="run_id")
    return run_id


def check_run_id(run_id: str) -> str:
    """Return the id, if a run can have it.

    Raises:
        InvalidValue: it is not valid.
    """
    check_kind(run_id, str, "run_id")
    if not 0 < len(run_id) <= 200 or not run_id.isprintable() or any(sign in " @/\\" for sign in run_id):
        raise InvalidValue(
            f"run id {shown(run_id)}: use 1 to 200 printable characters without spaces, '@', '/' and '\\'",
            where="run_id",
        )
    if run_id in (".", ".."):  # no URL can contain it: browsers resolve it as a relative path
        raise InvalidValue(f"run id {shown(run_id)}: use one that is valid in a URL", where="run_id")
    return run_id


def moment(at: datetime | float | None) -> float | None:
    """Return a time given by a user, if any, in Unix seconds.

    Raises:
        InvalidValue: it has no time zone, or is not a number.
    """
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidValue(f"at={at!r} has no time zone: use one, such as datetime.now(UTC)", where="at")
        return at.timestamp()
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < float("inf"):
        raise InvalidValue(f"at={reprlib.repr(at)}: use a datetime with a time zone, or Unix seconds", where="at")
    return float(at)


async def enqueue(
    host: Host, graph: GraphDefinition | str, given: object, options: RunOptions, at: datetime | float | None
) -> str:
    """See `Executor.enqueue`."""
    due = moment(at)
    return await enqueue_draft(host, await new_run(host, graph, given, options), due)


async def enqueue_draft(host: Host, new: RunDraft, at: float | None) -> str:
    """Add a run that no executor drives yet."""
    try:
        await create_undriven(host, new.graph, new.started, new.started.ts if at is None else at)
    except RunExists:
        await new.check_same(host.store)
    return new.started.run_id

"""Resuming a run: taking its lease, driving it, waiting for it.

`resume` takes the lease of a run, journals that it was resumed, and drives it. `open_run` opens every stored run that
is to be driven: it takes the lease, loads the state, compares the run's needs with the executor's resources, and makes
a drive. A run that has ended is reopened; others may get new limits, breakpoints and code. Approvals that are not
trusted are withdrawn.

`orchestrator.executor.resume_many` does this for many runs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, structs

from orchestrator._lazy import lazy_modules
from orchestrator.clock import Clock
from orchestrator.errors import GraphUnknown, InvalidValue, RunConflict, RunEnded, RunUnknown, StoreUnavailable
from orchestrator.executor.commands import RISKS
from orchestrator.executor.failures import fault_of
from orchestrator.executor.host import Host
from orchestrator.executor.lease import LeaseHandle, is_held
from orchestrator.executor.loader import Loaded
from orchestrator.executor.options import NO_OPTIONS, ResumeOptions
from orchestrator.executor.run_log import RunLog
from orchestrator.executor.run_status import waits_to_be_taken_up
from orchestrator.executor.run_tools import compare_offered, offered
from orchestrator.executor.trusted_approvals import TrustedApprovals
from orchestrator.executor.watched_runs import moved_by_others
from orchestrator.graph.faults import listed_names, suggest_name
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.names import plain_name
from orchestrator.json import JsonObject
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.limits import spent_limit
from orchestrator.kernel.records import LimitsChanged, Reopened, Resumed
from orchestrator.kernel.reopening import can_reopen
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Audit, Seal, audit
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo, Store
from orchestrator.tools.result import Risk
from orchestrator.user_code import contained
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor import drive, worker_list
    from orchestrator.executor.drive import Drive
else:
    drive, worker_list = lazy_modules("orchestrator.executor", "drive worker_list")  # not needed to read runs

logger = logging.getLogger("orchestrator")

LOOK = 0.05
"""Seconds between checks of the progress of a run's holder."""

_GAP, _GAPS = 0.5, 3
"""Seconds for which no executor took a due run; checks in a row of a running run without a holder."""


async def resume(host: Host, run_id: str, options: ResumeOptions, *, background: bool = False) -> Run:
    """See `Executor.resume`."""
    live = await take_up(host, run_id, options)
    if background:
        return await go_on(host, run_id, live)
    return await (wait_for(host, run_id, None) if live is None else drive_on(host, live))


async def take_up(host: Host, run_id: str, options: ResumeOptions, *, unpause: bool = True) -> Drive | None:
    """Resume a run, for the caller to drive it; None if this executor drives it already.

    Raises:
        see `Executor.resume`
    """
    check_risk(options.approve)
    while True:
        live = host.live.get(run_id)
        if live is not None and not live.log.closing:
            _change(host, live, options, unpause=unpause)
            return None
        if live is not None:
            await live.done.wait()
        try:
            await host.forgive(run_id)
            live = await open_run(host, run_id, options)
        except RunConflict:
            if run_id not in host.live:
                raise
            continue  # another task of this executor has taken the run
        journal_resumed(live, options.approve, unpause=unpause)
        return live


def _change(host: Host, live: Drive, options: ResumeOptions, *, unpause: bool) -> None:
    """Change how a run driven by this executor continues."""
    if options.migrate is not None:
        raise RunConflict(live.run_id, "this executor drives it with its current graph: pause it, then migrate it")
    graph = live.machine.plan.graph
    stops = None if graph is None else stops_of(options, graph)
    live.change(stops, options.by)
    # Otherwise this call does not resume the run; it only continues.
    if live.machine.paused or options.approve is not None or stops is not None:
        journal_resumed(live, options.approve, unpause=unpause)
        live.answer_by_policy()
    change_limits(live.log, options.limits)


def check_risk(approve: str | None) -> None:
    """Refuse a policy that is not a risk.

    Raises:
        ValueError: it is not one.
    """
    if approve is not None and approve not in RISKS:
        raise ValueError(f"approve={approve!r} is not a risk: use one of {', '.join(RISKS)}")


async def drive_on(host: Host, live: Drive, began: Callable[[Drive], None] | None = None) -> Run:
    """Drive a run in the calling task until it ends or pauses. While the run waits only for timers, keep waiting.

    If this call is cancelled, the run is interrupted, and continues only when it is resumed.

    Args:
        began: called with each further drive, before its steps run.
    """
    while True:
        run = await host.drive(live)
        if not host.watched.waits_on(run.machine):
            return run
        await host.watched.turn(run.run_id)
        if host.tasks is None:
            return run  # the executor was closed meanwhile
        try:
            live = await open_run(host, run.run_id, ResumeOptions(context=live.log.context))
        except (RunConflict, RunEnded):  # another executor has taken the run
            return await wait_for(host, run.run_id, None)
        if began is not None:
            began(live)
        journal_resumed(live, unpause=False)


async def go_on(host: Host, run_id: str, live: Drive | None) -> Run:
    """Drive a run in the background, and return it once the commands to it are durable.

    Args:
        live: the drive, if this call took the run; None: the run is driven already.
    """
    if live is not None:
        host.background().start_soon(host.drive_alone, live)
    live = live or host.live.get(run_id)
    if live is not None:
        with contextlib.suppress(Exception):  # the drive raises the same error, and `wait` reports it
            await live.log.durable()
    return await host.loader.load(run_id)


async def take_up_free(host: Host, run_id: str, options: ResumeOptions) -> Drive | None:
    """Resume a run like `resume`, if it can continue and no executor drives it. A person's pause is not lifted.

    Returns:
        None if it is driven, has ended, or waits for a person or an event; an awake executor then continues it when
        its deadline passes.
    """
    info = await host.store.info(run_id)
    if run_id in host.live or info.status in FINAL or is_held(info.lease) or host.watched.goes_on(run_id):
        return None
    if info.status == "paused":
        machine = (await host.loader.load(run_id)).machine
        if moved_by_others(machine):
            return None
        if not host.last_seen.overdue(info) and not host.watched.waits_on(machine):
            if info.due is not None:
                host.watched.watch(run_id)
            return None
    with contextlib.suppress(RunConflict, RunEnded):  # another executor has taken the run
        return await take_up(host, run_id, options, unpause=False)
    return None


async def wait_for(host: Host, run_id: str, limit: float | None) -> Run:
    """Wait until a run ends, pauses, or is interrupted and driven by no executor; see `Waiting`.

    Raises:
        TimeoutError: the run took longer.
        and the error with which this executor gave it up.
    """
    with anyio.move_on_after(limit) as scope:
        waiting = Waiting(host, run_id)
        while True:
            live = host.live.get(run_id)
            if live is not None:
                await live.done.wait()
                fault = live.fault
                if fault is not None:
                    raise fault
                run = host.run_of(live)
                if not host.watched.waits_on(run.machine):
                    return run
            if run_id in host.faults:
                raise host.faults.pop(run_id)
            found = await waiting.look()
            if found is not None:
                return found
            await waiting.rest()
    assert scope.cancelled_caught
    raise TimeoutError(f"run {run_id!r} has neither ended nor paused after {limit} s; it continues")


class Waiting:
    """A joined run that this executor does not drive, polled by `wait` and by readers of its events.

    It is followed while an executor drives it, while it waits to be resumed, and, by an awake executor, while it waits
    only for time. If no other executor takes it when it is due, or for the duration of a lease, this one does. Live
    workers that have its graph come first.

    Args:
        host: the host that joins it.
        run_id: its id.
        joins: whether this executor may resume it, and others are expected to; False: it is only read.
        pause: seconds between polls.
    """

    def __init__(self, host: Host, run_id: str, *, joins: bool = True, pause: float = LOOK) -> None:
        self._host, self._run_id, self._joins, self._pause = host, run_id, joins, pause
        self._free = self._tried = 0
        """Number of polls in a row that found no driver; the record at which this executor resumed it."""
        self._paused: Run | None = None
        self._sleeps = False

    async def look(self) -> Run | None:
        """Return the run if it ended, was interrupted, or waits for a person or an event; None: poll again."""
        host, info = self._host, await self._host.store.info(self._run_id)
        self._sleeps, overdue = False, info.due is not None and host.last_seen.overdue(info)
        if info.status != "running":
            if self._paused is None or self._paused.seq != info.head:
                self._paused = await host.loader.load(self._run_id)
            run, by_itself = self._paused, host.watched.waits_on(self._paused.machine)
            if run.status == "running":
                return None  # it continued between the two reads
            if overdue and is_held(info.lease):
                return None  # another executor is taking it up
            if overdue and self._may_act(info) and not moved_by_others(run.machine):
                await self._take_up_after(info, _GAP)
                return None
            self._sleeps = by_itself and self._tried != info.head
            return None if self._sleeps else run
        if is_held(info.lease) or (self._joins and info.due is not None and not overdue):
            self._free = 0
        elif self._joins and waits_to_be_taken_up(info):
            await self._take_up_after(info, host.ttl)
        elif host.watched.retries(self._run_id):
            self._sleeps = True
        else:  # between two holders there may be a moment without one
            self._free += 1
            if self._free > _GAPS:
                run = await host.loader.load(self._run_id)
                return run if run.status != "running" or run.queued else None
        return None

    async def rest(self) -> None:
        """Wait until the next poll is useful."""
        await (self._host.watched.change(self._run_id) if self._sleeps else anyio.sleep(self._pause))

    def _may_act(self, info: RunInfo) -> bool:
        known = self._joins and info.graph in self._host.resources.graphs and info.head != self._tried
        return known and not is_held(info.lease) and not self._host.watched.goes_on(self._run_id)

    async def _take_up_after(self, info: RunInfo, seconds: float) -> None:
        """Resume the run in the background, if no executor did so in time and no live worker has its graph."""
        host, self._free = self._host, self._free + 1
        if self._free * self._pause < seconds or not self._may_act(info):
            return
        self._free = 0
        if any(one.state == "alive" and info.graph in one.graphs for one in await worker_list.workers(host.store)):
            return
        self._tried = info.head
        with contextlib.suppress(RunConflict, RunEnded):  # another executor has taken the run
            options = ResumeOptions(context=host.watched.context_of(self._run_id))
            await go_on(host, self._run_id, await take_up(host, self._run_id, options, unpause=False))


# -- opening a run -----------------------------------------------------------------------------------------------------


class _Ready(Struct, frozen=True):
    """A loaded run that the executor can continue."""

    found: Loaded
    graph: GraphDefinition
    """The version of its graph with which it continues."""
    reopening: Reopening | None
    lines: tuple[str, ...]
    """Changes of its tools."""
    stops: tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None
    refs: JsonObject | None
    context: object
    checked: Audit | None
    """The trusted records; None: all."""


async def open_run(
    host: Host, run_id: str, options: ResumeOptions = NO_OPTIONS, hold: LeaseHandle | None = None
) -> Drive:
    """Take the lease of a stored run, unless `hold` is its lease, and load it with the current code of its graph.

    Raises:
        RunUnknown, RunEnded, GraphUnknown, GraphChanged
        ToolsChanged: tools that the run may still call are missing, or take other arguments.
        ContextMissing: the run was started with a context, and none is given or made.
        RunConflict: another executor holds it.
    """
    given = hold is not None
    with ExitStack() as entered:
        try:
            info = await host.store.info(run_id)
            reopening = reopening_of(host.resources.clock, info, options)
            newest = await _newest_graph(host, info)
            tasks = host.background()
            if hold is None:
                hold = await host.take(run_id, options.wait, free=info.lease is None)
            else:
                await host.enter(run_id)
            entered.callback(host.leave, run_id)
            ready = await _load(host, info, newest, options, reopening)
            host.check_open(tasks)
            return await _ready_drive(host, hold, ready, options)
        except BaseException as error:  # nothing of this drive has been stored
            if hold is not None:
                await host.drop_lease(run_id, hold.token, fault_of(error) if given else None)
            raise


async def _newest_graph(host: Host, info: RunInfo) -> GraphDefinition:
    try:
        return host.resources.graph(info.graph, info.run_id)
    except GraphUnknown:
        await host.store.read(info.run_id, limit=1)  # raises the error if the run's row is damaged
        raise


async def _load(
    host: Host, info: RunInfo, newest: GraphDefinition, options: ResumeOptions, reopening: Reopening | None
) -> _Ready:
    """Load a run whose lease is held, and compare its needs with the executor's resources."""
    with contained():  # the application's code may migrate the run
        reopen = None if reopening is None else reopening.apply
        found = await host.loader.load_to_resume(info, newest, options, strict=host.strict, reopen=reopen)
        machine = found.checkpoint.machine
        if machine.ended is not None:
            raise RunEnded(info.run_id, machine.status)
        graph = found.moved.plan.graph or newest
        # a run that was enqueued elsewhere has one record: no step relies on tools yet
        accept = options.accept_changes or machine.head == 1
        tools = host.resources.tools
        lines = compare_offered(found.moved, graph, tools, strict=host.strict, accept=accept)
        stops, refs = stops_of(options, graph), host.refs.new(found.moved)
        context = await host.contexts.for_stored(info, machine, options.context)
    checked = await audited(host.store, host.seal, machine, trust_answers=options.trust_answers)
    return _Ready(found, graph, reopening, lines, stops, refs, context, checked)


async def _ready_drive(host: Host, hold: LeaseHandle, ready: _Ready, options: ResumeOptions) -> Drive:
    """Return a drive of a loaded run, with the records to journal before its steps continue."""
    machine, fit, checked = ready.found.checkpoint.machine, ready.found.fit, ready.checked
    run_id = machine.run_id
    known = max(host.last_seen.seconds(run_id, machine.head), host.watched.seconds(run_id, machine.head))
    chain, kept = None if checked is None else checked.chain, ready.found.checkpoint.kept
    changes = (*(fit.changes or ()), *ready.lines) if ready.lines else fit.changes
    tools = offered(ready.graph, host.resources.tools) if ready.lines else None
    live = host.add(
        host.new_drive(
            machine,
            hold,
            kept,
            options.resources,
            chain=chain,
            known=known,
            context=ready.context,
            resumption=drive.Resumption(changes, tools, ready.stops, ready.refs, options.by),
        )
    )
    try:
        begin(live.log, ready.reopening, options)
        if fit.migrated is not None:
            live.log.push(structs.replace(fit.migrated.record, **live.log.now()))
        await check_approvals(host.store, live.log, checked, host.resources.asked.get(ready.graph.content))
    except BaseException:
        del host.live[run_id]
        live.log.closing = True
        raise
    return live


async def borrow(host: Host, run_id: str) -> Drive:
    """Take the lease of a run without loading its code, to journal something and release it.

    Raises:
        RunUnknown, RunEnded
        RunConflict: another executor holds the lease.
    """
    hold = await host.take(run_id)
    try:
        info = await host.store.info(run_id)
        if info.status in FINAL:
            raise RunEnded(run_id, info.status)
        found = await host.loader.checkpoint_of(info, await host.loader.stored_graph(info))
        checked = await audited(host.store, host.seal, found.machine)
    except BaseException:
        await host.give_back(hold)
        raise
    return host.new_drive(
        found.machine, hold, found.kept, chain=None if checked is None else checked.chain, undriven=info
    )


async def continue_alone(host: Host, run_id: str) -> None:
    """Continue a run in the background, without lifting a pause. Losing it to another executor is not an error."""
    try:
        live = await open_run(host, run_id, ResumeOptions(context=host.watched.context_of(run_id)))
    except RunConflict:
        if run_id not in host.live:
            host.watched.watch(run_id)
    except (RunEnded, RunUnknown):
        host.watched.forget(run_id)
    except StoreUnavailable as error:
        host.watched.postpone(run_id)
        host.given_up(run_id, error, again=True)
    except Exception as error:  # an error must not stop the other runs
        host.watched.forget(run_id)
        host.given_up(run_id, error)
    else:
        journal_resumed(live, unpause=False)
        await host.drive_alone(live)


# -- records ----------------------------------------------------------------------------------------------------------


def stops_of(
    options: ResumeOptions, graph: GraphDefinition
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None:
    """Return the nodes before and after which a run pauses from now on; None: no change.

    Raises:
        InvalidValue: see `nodes_of`.
    """
    if options.pause_before is None and options.pause_after is None:
        return None
    before = None if options.pause_before is None else nodes_of(graph, options.pause_before, "pause_before")
    after = None if options.pause_after is None else nodes_of(graph, options.pause_after, "pause_after")
    return before, after


def nodes_of(graph: GraphDefinition, names: Collection[str], argument: str) -> tuple[str, ...]:
    """Return the names of nodes, those inside subgraphs by their path, in alphabetical order.

    Raises:
        InvalidValue: the graph has no such node.
    """
    if isinstance(names, str):
        raise InvalidValue(f"{argument}={names!r}: give a set of names of nodes, {{{names!r}}}", where=argument)
    if not names:
        return ()
    known = list(_places(graph))
    names = [name if name in known else plain_name(name) for name in names]
    for name in names:
        if name not in known:
            fix = suggest_name(str(name), known, f"it has {listed_names(known)}")
            raise InvalidValue(f"{argument}: graph {graph.name!r} has no node {name!r}; {fix}", where=argument)
    return tuple(sorted(set(names)))


def _places(graph: GraphDefinition, around: str = "") -> Iterator[str]:
    for name, node in graph.nodes.items():
        yield f"{around}{name}"
        if node.subgraph is not None:
            yield from _places(node.subgraph, f"{around}{name}/")


_FLAGS = {"steps": "--max-steps", "seconds": "--max-seconds"}


class Reopening:
    """Reopens one run, in each machine into which it is folded.

    Args:
        clock: stamps the record.
        info: the run's row, as read by the caller.
        options: options of `resume`.
    """

    def __init__(self, clock: Clock, info: RunInfo, options: ResumeOptions) -> None:
        self._clock, self._head, self._options = clock, info.head, options
        self.record: Reopened | None = None
        """The record to journal; None: the run had not ended."""

    def apply(self, machine: RunState) -> RunState:
        """Reopen a run folded up to its last record, and return it.

        Raises:
            RunEnded: the run is completed, or the limit that ended it is still spent.
            RunConflict: another executor has continued it.
        """
        if self.record is None and machine.ended is None:
            return machine
        if self.record is None:
            if machine.head != self._head:
                raise RunConflict(machine.run_id, "another executor has continued it")
            self.record = self._record(machine)
        apply_stored(machine, self.record)
        return machine

    def _record(self, machine: RunState) -> Reopened:
        root, ended = machine.root, machine.ended
        if root is None or ended is None or ended.status == "completed" or not can_reopen(machine):
            raise RunEnded(machine.run_id, machine.status)
        if root.result is not None and root.result.status == "exhausted" and root.before_limit is None:
            why = "its branches were merged in an earlier version of its graph: fork it at a record before that"
            raise RunEnded(machine.run_id, machine.status, why)
        limits = root.limits.changed(self._options.limits)
        spent = spent_limit(machine, limits) if ended.status == "exhausted" else None
        if spent is not None:
            raise RunEnded(machine.run_id, machine.status, *_still_spent(*spent))
        return Reopened(
            seq=machine.head + 1,
            ts=self._clock.now(),
            by=self._options.by,
            status=ended.status,
            # Explicit if a limit was spent: the graph's own may have been raised, and old journals do not contain it.
            limits=limits if self._options.limits is not None or ended.status == "exhausted" else None,
        )


def _still_spent(name: str, most: float, used: float, node: str) -> tuple[str, str, str]:
    """Return how to raise the spent limit: with an argument, with an option, and without a name of either."""
    more = max(2 * most, used + 1)
    given = f"visits={{{node!r}: {more:g}}}" if name == "visits" else f"{name}={more:g}"
    of = f" of node {node!r}" if node else ""
    spent = f"{name}={most:g}{of} are spent ({used:g} used): raise that limit, "
    call = f"limits=Limits({given})"
    option = f"{_FLAGS[name]} {more:g}" if name in _FLAGS else f"which no option does: in Python, {call}"
    return f"{spent}{call}{f', or {option}' if name in _FLAGS else ''}", f"{spent}{option}", f"{spent}to {more:g}"


def reopening_of(clock: Clock, info: RunInfo, options: ResumeOptions) -> Reopening | None:
    """Return the reopening of a run that has ended; None if it has not ended.

    Raises:
        RunEnded: the run is completed, or not to be reopened.
    """
    if info.status not in FINAL:
        return None
    if info.status == "completed" or not options.retry:
        raise RunEnded(info.run_id, info.status)
    return Reopening(clock, info, options)


def begin(log: RunLog, reopening: Reopening | None, options: ResumeOptions) -> None:
    """Journal at the start of a drive that a run was reopened, or has other limits."""
    if reopening is not None and reopening.record is not None:
        log.reopen(reopening.record)
    else:
        change_limits(log, options.limits)


def journal_resumed(live: Drive, approve: str | None = None, *, unpause: bool = True) -> None:
    """Journal that a run is resumed, if anything is left to do in it.

    Args:
        live: the drive of the run.
        approve: a new policy for tool calls; None: keep the current one.
        unpause: lift a pause.
    """
    machine, said = live.machine, live.resumption
    if machine.ended is not None:
        return
    unpause = unpause and machine.paused
    changed = approve is not None and approve != machine.approve
    works = (bool(machine.running) or machine.result is not None) and not machine.is_held
    if works or unpause or changed or said.changes_run:
        graph = machine.plan.graph
        before, after = said.stops or (None, None)
        live.log.push(
            Resumed(
                **live.log.now(),
                holder=str(live.log.lease.presence.owner),
                content=graph.content if said.changes is not None and graph is not None else None,
                changes=said.changes or (),
                tools=said.tools,
                approve=approve if changed else None,
                unpause=unpause,
                pause_before=before,
                pause_after=after,
                refs=None if said.refs is None else dict(said.refs),
                by=said.by,
            )
        )
        live.resumption = drive.NO_RESUMPTION


def change_limits(log: RunLog, changes: Limits | None) -> None:
    """Journal new limits of a run that continues; fields that `changes` does not set explicitly stay."""
    root = log.machine.root
    limits = None if root is None else root.limits.changed(changes)
    if root is not None and limits is not None and limits != root.limits and log.machine.ended is None:
        log.push(LimitsChanged(**log.now(), limits=limits))


async def audited(store: Store, seal: Seal | None, machine: RunState, *, trust_answers: bool = True) -> Audit | None:
    """Drop unsealed answers from the inbox of a run, and return which of its records are trusted; None if all are."""
    if seal is None and trust_answers:
        return None
    if seal is not None:
        await drop_unsealed(store, seal, machine.run_id, machine)
    return audit(seal, machine.run_id, await store.read(machine.run_id, upto=machine.head))


async def check_approvals(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None = None) -> None:
    """Withdraw approvals that are not trusted when a run is started or resumed, and require new ones for its calls.

    Args:
        store: the store of the run.
        log: the run.
        checked: which of its records are trusted; None: all.
        ask_from: see `Executor.add_graph`.
    """
    if checked is not None:
        withdraw_unsealed(log, checked)
    reviews = (graph := log.machine.plan.graph) is not None and graph.reviews
    if log.machine.in_fork or ask_from is not None or (reviews and log.approvals is None):
        await require_approvals(store, log, checked, ask_from)


def withdraw_unsealed(log: RunLog, checked: Audit) -> None:
    """Withdraw approvals without a valid seal when a run is resumed."""
    if not checked.whole:
        log.approvals = TrustedApprovals(log.machine.plan.graph, checked)
        withdrawal = checked.withdrawal(log.machine, log.clock.now())
        if withdrawal is not None:
            log.push(withdrawal)


async def require_approvals(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None) -> None:
    """Require approvals of risky calls, of calls approved only before the run was forked, and of dangerous calls that a
    model may have approved.

    Args:
        store: the store of the run.
        log: the run, which may be a fork, or one that a fork called.
        checked: which of its records are trusted; None: all.
        ask_from: lowest risk of calls that are asked about, regardless of the graph.
    """
    machine = log.machine
    if checked is None:
        records = await store.read(machine.run_id, upto=machine.head)
        checked = Audit(frozenset(record.seq for record in records), None, records)
    since = machine.forked_at if machine.in_fork else 0
    reviewed = not machine.in_fork and ask_from is None
    log.approvals = TrustedApprovals(machine.plan.graph, checked, since, ask_from=ask_from, reviewed=reviewed)


async def drop_unsealed(store: Store, seal: Seal, run_id: str, machine: RunState | None) -> None:
    """Drop approvals that were in a run's inbox before it was resumed, unless the key of this seal sealed them.

    Anyone who can write a store's file can put them there; a message that arrives while a run is driven comes from a
    process that works on the same store.

    Args:
        machine: the run; None for a new run, which cannot have been answered.
    """
    dropped = []
    for message in await store.inbox([run_id]):
        question = None if machine is None else machine.questions.get(str(message.body.get("question")))
        harmless = message.body.get("type") != "answer" or (question is not None and question.kind == "input")
        if machine is None or not (harmless or seal.sealed_message(run_id, message.body)):
            dropped.append(message.id)
    if dropped:
        logger.warning("run %s: %d answers without a valid seal are dropped", run_id, len(dropped))
        await store.discard(dropped)

"""Resuming a run: its options and context, what refuses it, and what is journaled of it.

A run that has ended is reopened; one that goes on may get other limits, nodes to pause at, and code. The context of a
run, what its nodes get as `ctx.context`, is given or made, and never stored. References to the code of a run are text:
nothing here, and nothing in a store, imports what they name. The reader of a run decides whether to follow them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.calls import contained
from orchestrator.clock import Clock
from orchestrator.errors import ContextMissing, InvalidValue, RunConflict, RunEnded
from orchestrator.executor.call_guard import CallGuard
from orchestrator.executor.options import ResumeOptions
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.codec import as_json
from orchestrator.graph.faults import listed_names, mend_name
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.names import plain_name
from orchestrator.json import JsonObject
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.queries import spent_limit
from orchestrator.kernel.records import LimitsChanged, Record, Reopened, RunStarted
from orchestrator.kernel.reopening import can_reopen
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.seals import Audit, Seal, audit
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import RunInfo, Store
from orchestrator.tools.result import Risk

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


MakeContext: TypeAlias = Callable[[RunInfo], "Awaitable[object] | object"]
"""Makes the context of a run, by its row: its id, graph and labels."""


class Contexts:
    """Finds the contexts of the runs of one executor."""

    def __init__(self, live: Mapping[str, Drive], make: MakeContext | None) -> None:
        self.make = make
        """See `Executor(contexts=)`."""
        self._live = live

    async def for_new(self, run_id: str, graph: str, labels: Mapping[str, str], caller: str | None) -> object:
        """The context of a run that begins without a given one; None: it has none."""
        found = self._of_caller(caller)
        if found is None and self.make is not None:
            found = await self._made(RunInfo(run_id, graph, "running", labels))
        return found

    async def for_stored(self, info: RunInfo, run: RunState, given: object) -> object:
        """The context of a run that is taken up.

        Raises:
            ContextMissing: it needs one, and none is given or made.
        """
        found = given
        if found is None:
            found = self._of_caller(None if run.caller is None else run.caller.run_id)
        if found is None and self.make is not None:
            found = await self._made(info)
        if found is None and run.started is not None and run.started.context:
            raise ContextMissing(info.run_id)
        return found

    def check(self, run_id: str, first: Record, given: object) -> None:
        """Refuse a run that goes on in a fork without the context that it needs.

        Raises:
            ContextMissing: it needs one, and none is given or made.
        """
        needs = isinstance(first, RunStarted) and first.context
        if needs and given is None and self.make is None:
            raise ContextMissing(run_id)

    def _of_caller(self, run_id: str | None) -> object:
        caller = None if run_id is None else self._live.get(run_id)
        return None if caller is None else caller.log.context

    async def _made(self, info: RunInfo) -> object:
        with contained():
            made = None if self.make is None else self.make(info)
            return await made if inspect.isawaitable(made) else made


NameCode: TypeAlias = Callable[[str, str, Mapping[str, object]], "Mapping[str, object] | None"]
"""Names the code of an executor, by (`run.root_id`, name of the graph, references that the run has); None: those."""


class References:
    """Finds the references of the runs of one executor."""

    def __init__(self, name_code: NameCode | None) -> None:
        self._name_code = name_code
        """See `Executor(refs=)`."""

    def new(self, run: RunState) -> JsonObject | None:
        """The references of a run that is taken up, if they change. A run that another one called keeps its own."""
        graph = run.plan.graph
        if graph is None or run.caller is not None:
            return None
        found = self.of(run.root_id, graph.name, run.refs)
        return None if found == run.refs else found

    def of(self, root_id: str, graph: str, has: JsonObject) -> JsonObject:
        """The references of a run.

        Args:
            root_id: the run's id, of a fork that of the run at the root of its forks.
            graph: the name of its graph.
            has: the references that it has.

        Raises:
            InvalidValue: those of the executor cannot be stored.
        """
        found = None if self._name_code is None else self._name_code(root_id, graph, has)
        return has if found is None else dict(as_json(dict(found), "refs", inside=1))


def stops_of(
    options: ResumeOptions, graph: GraphDefinition
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None] | None:
    """The nodes before and after which a run is to pause from now on; None: no change.

    Raises:
        InvalidValue: see `nodes_of`.
    """
    if options.pause_before is None and options.pause_after is None:
        return None
    before = None if options.pause_before is None else nodes_of(graph, options.pause_before, "pause_before")
    after = None if options.pause_after is None else nodes_of(graph, options.pause_after, "pause_after")
    return before, after


def nodes_of(graph: GraphDefinition, names: Collection[str], argument: str) -> tuple[str, ...]:
    """The names of nodes, those inside of subgraphs by their path, in alphabetical order.

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
            mend = mend_name(str(name), known, f"it has {listed_names(known)}")
            raise InvalidValue(f"{argument}: graph {graph.name!r} has no node {name!r}; {mend}", where=argument)
    return tuple(sorted(set(names)))


def _places(graph: GraphDefinition, around: str = "") -> Iterator[str]:
    for name, node in graph.nodes.items():
        yield f"{around}{name}"
        if node.subgraph is not None:
            yield from _places(node.subgraph, f"{around}{name}/")


_FLAGS = {"steps": "--max-steps", "seconds": "--max-seconds"}


class Reopening:
    """Reopens one run, in each machine that it is folded into.

    Args:
        clock: stamps the record.
        info: the run's row, as the caller has seen it.
        how: how it is taken up.
    """

    def __init__(self, clock: Clock, info: RunInfo, options: ResumeOptions) -> None:
        self._clock, self._head, self._options = clock, info.head, options
        self.record: Reopened | None = None
        """The record to journal; None: the run had not ended."""

    def apply(self, machine: RunState) -> RunState:
        """Reopen a run that is folded up to its last record, and return it.

        Raises:
            RunEnded: it is completed, or the limit that ended it is still spent.
            RunConflict: another executor has moved it.
        """
        if self.record is None and machine.ended is None:
            return machine
        if self.record is None:
            if machine.head != self._head:
                raise RunConflict(machine.run_id, "another executor has gone on with it")
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
            # Explicit where a limit was spent: the graph's own may have been raised, and old journals do not know it.
            limits=limits if self._options.limits is not None or ended.status == "exhausted" else None,
        )


def _still_spent(name: str, most: float, used: float, node: str) -> tuple[str, str]:
    """The limit that is to be raised, in words: by an argument, and by an option."""
    more = max(2 * most, used + 1)
    given = f"visits={{{node!r}: {more:g}}}" if name == "visits" else f"{name}={more:g}"
    of = f" of node {node!r}" if node else ""
    spent = f"{name}={most:g}{of} are spent ({used:g} used): raise that limit, "
    call = f"limits=Limits({given})"
    option = f"{_FLAGS[name]} {more:g}" if name in _FLAGS else f"which no option does: in Python, {call}"
    return f"{spent}{call}{f', or {option}' if name in _FLAGS else ''}", f"{spent}{option}"


def reopening_of(clock: Clock, info: RunInfo, options: ResumeOptions) -> Reopening | None:
    """The reopening of a run that has ended; None if it has not ended.

    Raises:
        RunEnded: it is completed, or not to be reopened.
    """
    if info.status not in FINAL:
        return None
    if info.status == "completed" or not options.retry:
        raise RunEnded(info.run_id, info.status)
    return Reopening(clock, info, options)


def begin(log: RunLog, reopening: Reopening | None, options: ResumeOptions) -> None:
    """Journal that a run was reopened, or has other limits, at the beginning of a drive."""
    if reopening is not None and reopening.record is not None:
        log.reopen(reopening.record)
    else:
        change_limits(log, options.limits)


def change_limits(log: RunLog, changes: Limits | None) -> None:
    """Journal other limits of a run that goes on; its fields that `changes` does not set explicitly stay."""
    root = log.machine.root
    limits = None if root is None else root.limits.changed(changes)
    if root is not None and limits is not None and limits != root.limits and log.machine.ended is None:
        log.push(LimitsChanged(**log.now(), limits=limits))


log = logging.getLogger("orchestrator")


async def audited(store: Store, seal: Seal | None, machine: RunState, *, trust_answers: bool = True) -> Audit | None:
    """Find the records of a run that are believed; None: all of them."""
    if seal is None and trust_answers:
        return None
    if seal is not None:
        await drop_unsealed(store, seal, machine.run_id, machine)
    return audit(seal, machine.run_id, await store.read(machine.run_id, upto=machine.head))


async def guard_run(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None = None) -> None:
    """Withdraw approvals that are not believed when a run is taken up, and guard what it may call.

    Args:
        store: the store of the run.
        log: the run.
        checked: which of its records are believed; None: all.
        ask_from: see `Executor.add_graph`.
    """
    if checked is not None:
        withdraw_unsealed(log, checked)
    if log.machine.in_fork or ask_from is not None:
        await guard_calls(store, log, checked, ask_from)


def withdraw_unsealed(log: RunLog, checked: Audit) -> None:
    """Withdraw approvals without a valid seal when a run is taken up."""
    if not checked.whole:
        log.guard = CallGuard(log.machine.plan.graph, checked)
        withdrawal = checked.withdrawal(log.machine, log.clock.now())
        if withdrawal is not None:
            log.push(withdrawal)


async def guard_calls(store: Store, log: RunLog, checked: Audit | None, ask_from: Risk | None) -> None:
    """Have calls asked about: those of risk, and those approved before a run was forked, which the parent's were.

    Args:
        store: the store of the run.
        log: the run, which may be a fork, or one that a fork called.
        checked: which of its records are believed; None: all.
        ask_from: the risk from which on calls are asked about, whatever the graph says.
    """
    machine = log.machine
    if checked is None:
        records = await store.read(machine.run_id, upto=machine.head)
        checked = Audit(frozenset(record.seq for record in records), None, records)
    since = machine.forked_at if machine.in_fork else 0
    log.guard = CallGuard(machine.plan.graph, checked, since, ask_from=ask_from)


async def drop_unsealed(store: Store, seal: Seal, run_id: str, machine: RunState | None) -> None:
    """Drop the approvals that lay in a run's inbox before it was taken up, if this seal's key did not seal them.

    Who can write a store's file can lay them there; what comes while a run is driven comes from a process that works
    on the same store.

    Args:
        machine: the run; None for one that begins now, and cannot have been answered.
    """
    dropped = []
    for message in await store.inbox([run_id]):
        question = None if machine is None else machine.questions.get(str(message.body.get("question")))
        harmless = message.body.get("type") != "answer" or (question is not None and question.kind == "input")
        if machine is None or not (harmless or seal.sealed_message(run_id, message.body)):
            dropped.append(message.id)
    if dropped:
        log.warning("run %s: %d answers without a valid seal are dropped", run_id, len(dropped))
        await store.discard(dropped)

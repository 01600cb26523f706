"""Loads a run from the store: its state, in its own graphs or in those it is resumed with; its steps in pages.

A page of steps that follows the previous one continues reading where that ended.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from pydantic_core import from_json

from orchestrator._lazy import lazy_modules
from orchestrator.errors import GraphChanged, GraphUnknown, StoreError
from orchestrator.executor.options import ResumeOptions
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_status import is_interrupted, standby_of, waits_to_be_taken_up
from orchestrator.executor.snapshots import NONE_KEPT, Kept, unpacked
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.reading import stored_graph
from orchestrator.graph.versions import Migration, content_digest
from orchestrator.json import JsonObject, json_text
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Migrated, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.snapshot import lineage_of, load
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.rows import StoredRun
from orchestrator.stores.shared import load_of
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.versions import migration_planning
    from orchestrator.executor.versions.migration_planning import PlannedMigration
    from orchestrator.graph import diff
    from orchestrator.views.history import LateCursor, Point, StepFold
else:
    (migration_planning,) = lazy_modules("orchestrator.executor.versions", "migration_planning")
    (diff,) = lazy_modules("orchestrator.graph", "diff")

log = logging.getLogger("orchestrator")

_RECENT = 32
"""Number of machines of waiting runs kept in memory."""
_FEW, _SMALL = 12, 32 * 1024
"""Records behind a snapshot, and characters of a snapshot, from which a machine is kept: reading fewer again takes less
time than copying the machine.
"""
_MOST_READ = 32
"""Number of stored graphs kept in memory, by the process and by each loader."""


class Checkpoint(Struct, frozen=True):
    """A machine at a position of a run."""

    machine: RunState
    kept: Kept = NONE_KEPT
    """The last snapshot."""

    def fits(self, info: RunInfo) -> bool:
        """Return True if the machine belongs to this run, not to an earlier run with the same id."""
        return self.machine.started is not None and self.machine.created == info.created


class RunLoader:
    """Folds runs of a store. Takes no lease and changes no run."""

    def __init__(self, store: Store, resources: Resources, *, believed: bool = True) -> None:
        """
        Args:
            store: the store of the runs.
            resources: has the code of graphs.
            believed: whether snapshots in the store are trusted.
        """
        self._store, self._resources, self._believed = store, resources, believed
        self._load = load_of(store)
        self._recent: OrderedDict[str, Checkpoint] = OrderedDict()
        """Machines of runs that this executor has just released."""
        self._read: dict[tuple[str, str], GraphDefinition] = {}
        """Content digest of a stored graph, and of the executor's own -> the graph. Always the same object, so that
        machines of released runs can be continued.
        """

    async def load(self, run_id: str, at: int | None = None) -> Run:
        """Load a run in its current state, or after record `at`; see `Executor.load`."""
        stored, recent = await self._read_run(run_id, at)
        info = stored.info
        graph = await self.stored_graph(info)
        machine = (await self._folded(stored, recent, graph, at)).machine
        return Run(
            machine,
            machine.plan.graph or graph,
            self._store,
            interrupted=at is None and is_interrupted(info),
            queued=at is None and waits_to_be_taken_up(info),
            standby=standby_of(info) if at is None else None,
            archived=info.archived,
        )

    async def machine_of(self, info: RunInfo, graph: GraphDefinition, upto: int | None = None) -> RunState:
        """Return the state of a run at a position, folded in its own graphs.

        Args:
            info: the run.
            graph: the graph that it started with, or one of the same structure.
            upto: the number of the last record to fold; None: all.

        Raises:
            RunUnknown, StoreCorrupt, StoreTooNew
        """
        return (await self.checkpoint_of(info, graph, upto)).machine

    async def checkpoint_of(self, info: RunInfo, graph: GraphDefinition, upto: int | None = None) -> Checkpoint:
        """Like `machine_of`, but return the machine with the snapshot before it."""
        stored, recent = await self._read_run(info.run_id, upto)
        return await self._folded(structs.replace(stored, info=info), recent, graph, upto)

    def remember(self, machine: RunState, kept: Kept) -> None:
        """Keep the state of an unfinished run that this executor no longer drives; nothing changes it afterwards."""
        self._recent.pop(machine.run_id, None)
        if machine.ended is None and (machine.head - kept.seq > _FEW or kept.size > _SMALL):
            self._recent[machine.run_id] = Checkpoint(machine, kept)
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)

    async def _read_run(self, run_id: str, upto: int | None) -> tuple[StoredRun, Checkpoint | None]:
        """Read a run up to a record, without the records in a recent machine of it, which is returned, too."""
        recent = self._recent.get(run_id)
        if recent is not None and (upto is None or recent.machine.head <= upto):
            return await self._load(run_id, after=recent.machine.head, upto=upto), recent
        return await self._read_stored(run_id, upto), None

    async def _read_stored(self, run_id: str, upto: int | None) -> StoredRun:
        # A snapshot has no seal: if records need one, only they define the state of a run.
        return await self._load(run_id, after=None if self._believed else 0, upto=upto)

    async def _folded(
        self, stored: StoredRun, recent: Checkpoint | None, graph: GraphDefinition, upto: int | None
    ) -> Checkpoint:
        """Return the machine of a run that was read by `_read_run`, with the snapshot before it.

        A recent machine and a snapshot only cache a fold: they are used only if the journal contains their position and
        the graph has the same content, and the records after them are folded as always.

        Args:
            stored: the run.
            recent: the machine before its records.
            graph: the graph that it started with.
            upto: the number of the last record to fold; None: all.
        """
        info, found = stored.info, None
        if recent is not None:
            found = await self._continued(info, recent, graph)
            if found is None:
                stored = await self._read_stored(info.run_id, upto)
        records = stored.records
        if stored.snapshot is not None:
            found = await self._from_snapshot(info, graph, *stored.snapshot)
            if found is None:
                records = await self._store.read(info.run_id, upto=upto)
        found = found or Checkpoint(RunState(Plan.of(graph)))
        await self._fold(info, found.machine, records)
        return found

    async def _continued(self, info: RunInfo, recent: Checkpoint, graph: GraphDefinition) -> Checkpoint | None:
        """Return a copy of a recent machine; None if the run is another one, or has another graph."""
        machine = recent.machine
        if machine.head > info.head or not recent.fits(info):
            return None
        now = await self.of(info, *machine.lineage[-1]) if len(machine.lineage) > 1 else graph
        if machine.plan.graph is not now or machine.content != now.content:
            return None
        return Checkpoint(machine.copy(), recent.kept)

    async def _from_snapshot(self, info: RunInfo, graph: GraphDefinition, seq: int, data: bytes) -> Checkpoint | None:
        """Return the machine of a snapshot of the first `seq` records; None if it cannot be used."""
        first = Plan.of(graph)
        try:
            text = unpacked(data, seq)
            written = from_json(text)
            past = lineage_of(written)[1:]
            later = {content: Plan.of(await self.of(info, structure, content)) for structure, content in past}
            machine = load(later[past[-1][1]] if past else first, written)
            machine.first = first
            machine.later.update(later)
            there = machine.plan.graph
            if machine.head == seq and there is not None and machine.content == there.content:
                return Checkpoint(machine, Kept(seq, len(text)))
        except Exception as error:  # any error: the journal is still there
            log.debug("run %s: its snapshot at %d cannot be used: %r", info.run_id, seq, error)
        return None

    async def plan_of(self, info: RunInfo, records: Sequence[Record]) -> Plan:
        """Return the plan for folding all records of a run, from the first one on."""
        return Plan.of(await self.stored_graph(info)).followed_by(await self.later(info, records))

    async def load_to_resume(
        self,
        info: RunInfo,
        newest: GraphDefinition,
        options: ResumeOptions,
        *,
        strict: bool,
        reopen: Callable[[RunState], RunState] | None = None,
    ) -> Loaded:
        """Return the state to resume from, in the version of the graph with which the run continues.

        Args:
            info: the run.
            newest: the newest version of its graph, for a run whose own version the executor does not have.
            options: whether changes are accepted, and how the run migrates to a version that it does not fit.
            strict: whether all changes are refused unless they are accepted.
            reopen: reopens the run, if it has ended: it is then folded from the start, by the current code.

        Raises:
            GraphUnknown: a model or tool that the graph refers to is missing.
            GraphChanged: the run cannot continue with the graph without a decision or a migration.
        """
        began = await self.stored_graph(info)
        if reopen is None:
            checkpoint = await self.checkpoint_of(info, began)
        else:
            checkpoint = Checkpoint(RunState(Plan.of(began)))
            await self._fold(info, checkpoint.machine, await self._store.read(info.run_id))
            reopen(checkpoint.machine)
        machine = checkpoint.machine
        if machine.ended is not None:
            return Loaded(checkpoint)
        known = self._resources.version(info.graph, machine.structure, machine.content)
        graph = newest if known is None or options.migrate is not None else known
        self._resources.check(graph, models=machine.fork is None or machine.fork.relation != "replay")
        fit = await self.fitting(
            info, graph, machine, strict=strict, accept=options.accept_changes, migrate=options.migrate
        )
        same = machine.plan.graph is graph and (fit.changes is None or not checkpoint.kept.seq)
        if fit.migrated is not None or same:
            return Loaded(checkpoint, fit)
        machine = await self._folded_in(info, graph)
        return Loaded(Checkpoint(machine if reopen is None else reopen(machine)), fit)

    async def stored_graph(self, info: RunInfo) -> GraphDefinition:
        """Return the stored graph that a run started with; with code if the executor has one of its structure."""
        return await self.of(info, info.structure, info.content)

    async def of(self, info: RunInfo, structure: str, content: str) -> GraphDefinition:
        """Like `stored_graph`, for any graph that a run had."""
        newest = self._resources.graphs.get(info.graph)
        known = self._resources.version(info.graph, structure, content) or newest
        if known is not None and known.structure == structure:
            return known
        key = (content, "" if newest is None else newest.content)
        read = self._read.get(key)
        if read is None:
            data = await self._graph_data(info.run_id, content)
            if newest is not None and _is_sorted(data):
                data = _in_order(data, newest.data())
            read = _rebuilt(json_text(data))
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            self._read[key] = read
        return read

    async def later(self, info: RunInfo, records: Sequence[Record]) -> dict[str, Plan]:
        """Return content digest -> plan, for each version that the executor has and each to which the run migrated."""
        later = {one.content: Plan.of(one) for one in self._resources.versions.get(info.graph, ())}
        for record in records:
            if isinstance(record, Migrated) and record.content not in later:
                later[record.content] = Plan.of(await self.of(info, record.structure, record.content))
        return later

    async def _fold(self, info: RunInfo, machine: RunState, records: Sequence[Record]) -> None:
        machine.later.update(await self.later(info, records))
        for record in records:
            apply_stored(machine, record)

    async def _folded_in(self, info: RunInfo, graph: GraphDefinition) -> RunState:
        """Return the state of a run, with a graph in place of its own graphs of the same structure."""
        records = await self._store.read(info.run_id)
        first = graph if graph.structure == info.structure else await self.stored_graph(info)
        machine = RunState(Plan.of(first))
        machine.later.update(await self.later(info, records))
        for record in records:
            if isinstance(record, Migrated) and record.structure == graph.structure:
                machine.later[record.content] = Plan.of(graph)
            apply_stored(machine, record)
        return machine

    async def _graph_data(self, run_id: str, content: str) -> JsonObject:
        try:
            data = await self._store.graph(content)
        except GraphUnknown:
            await self._store.read(run_id, limit=1)
            raise
        if content_digest(data) != content:
            raise StoreError(
                f"store {self._store.url}: graph {content!r} is damaged (it has another digest); "
                "give the executor the graph itself, or restore the store from a copy"
            )
        return data

    async def fitting(
        self,
        info: RunInfo,
        graph: GraphDefinition,
        machine: RunState,
        *,
        strict: bool,
        accept: bool = False,
        migrate: Migration | None = None,
    ) -> Fit:
        """Return how a run continues in a version of its graph, and store that version.

        Args:
            info: the run.
            graph: the version.
            machine: the run's state.
            strict: whether all changes are refused unless they are accepted.
            accept: whether a user accepts them.
            migrate: how the run migrates to a version that it does not fit.

        Raises:
            GraphChanged: the run cannot continue with it without a decision or a migration.
        """
        old, last = machine.plan.graph, machine.content
        if old is not None and (graph.structure != machine.structure or migrate is not None):
            found = migration_planning.planned(machine, old, graph, migration=migrate, accept=accept, strict=strict)
            machine.later[graph.content] = Plan.of(graph)
            await self._store.put_graph(graph.content, graph.data())
            return Fit(migrated=found)
        if graph.content == last:
            return Fit()
        changes = diff.content_changes(await self._graph_data(info.run_id, last), graph.data())
        if strict and not accept:
            lines = "\n".join(f"  - {line}" for line in changes)
            raise GraphChanged(
                f"run {info.run_id!r}: graph {graph.name!r} changed since it was last driven:\n{lines}",
                run_id=info.run_id,
                options=("--accept-changes",),
                call="accept_changes=True",
            )
        await self._store.put_graph(graph.content, graph.data())
        return Fit(changes)


@lru_cache(maxsize=_MOST_READ)
def _rebuilt(text: str) -> GraphDefinition:
    """Return the graph that a text describes, without code: made once for all executors of the process.

    The key is the whole text, not its digest, which does not cover the order of nodes. The result contains no code of
    any executor, and references in the text are not followed, so all executors can share it.
    """
    return stored_graph(json.loads(text))


def _is_sorted(data: JsonObject) -> bool:
    """Return True if a stored graph has lost the order of its nodes: earlier versions sorted all keys."""
    return [*data] == sorted(data)


def _in_order(data: JsonObject, like: JsonObject) -> JsonObject:
    """Return a stored graph whose order was lost, with its nodes in the order of a later version.

    Joins that one record enables together fire in this order.
    """
    nodes, others = data.get("nodes"), like.get("nodes")
    if not isinstance(nodes, Mapping) or not isinstance(others, Mapping):
        return data
    made: dict[str, object] = {}
    for name in (*(one for one in others if one in nodes), *(one for one in nodes if one not in others)):
        node, other = nodes[name], others.get(name)
        if isinstance(node, Mapping) and isinstance(other, Mapping):
            inner, outer = node.get("graph"), other.get("graph")
            if isinstance(inner, Mapping) and isinstance(outer, Mapping):
                node = {**node, "graph": _in_order(inner, outer)}
        made[name] = node
    return {**data, "nodes": made}


class Fit(Struct, frozen=True):
    """How a run continues in a version of its graph."""

    changes: tuple[str, ...] | None = None
    """Changes of the graph's content, if only that changed; None if nothing changed."""
    migrated: PlannedMigration | None = None
    """The migration to a version of another structure, journaled first."""


class Loaded(Struct, frozen=True):
    """A run that is about to be resumed."""

    checkpoint: Checkpoint
    """Its state."""
    fit: Fit = Fit()
    """The way in which it continues."""

    @property
    def moved(self) -> RunState:
        """Return the run's state after the migration to another version."""
        return self.checkpoint.machine if self.fit.migrated is None else self.fit.migrated.trial


PART = 1000
"""Number of records read at a time."""
_KEPT = 16
"""Number of runs whose reading position is kept."""


class _Reading(Struct):
    """The steps of one run that were read so far."""

    created: float
    plan: Plan
    fold: StepFold
    head: int = 0
    """Number of the last record read."""
    floor: int = 0
    """Steps that ended up to this record are dropped."""
    points: list[Point] = []

    def drop(self, after: int) -> None:
        """Drop the steps that ended at a record or before it."""
        self.points = [point for point in self.points if point.seq > after]
        self.floor = after


class HistoryPages:
    """Reads steps of runs in pages.

    Args:
        store: the store of the runs.
        loader: loads their graphs.
    """

    def __init__(self, store: Store, loader: RunLoader) -> None:
        self._store, self._loader = store, loader
        self._readings: OrderedDict[str, _Reading] = OrderedDict()

    async def page(self, run_id: str, at: int | None, after: int, limit: int | None) -> list[Point]:
        """Return the first steps of a run that ended after record `after`, up to record `at`."""
        info = await self._store.info(run_id)
        reading = self._readings.pop(run_id, None)  # another page of the same run, requested meanwhile, has its own
        known = reading is not None and reading.created == info.created and reading.head <= info.head
        if reading is None or not known or reading.floor > after:
            reading = await self._begun(info)
        reading.drop(after)
        while limit is None or len(reading.points) < limit:
            if at is not None and reading.head >= at:
                break
            records = await self._store.read(run_id, after=reading.head, limit=PART)
            if not records:
                break
            reading.fold.later.update(await self._loader.later(info, records))
            found = reading.fold.take(records, self._cursor(info.run_id, reading))
            reading.points += [point for point in found if point.seq > after]
            reading.head = records[-1].seq
        found = [point for point in reading.points if at is None or point.seq <= at][:limit]
        if limit is None and found:
            reading.drop(found[-1].seq)  # no page follows, and the steps of a long run are not kept
        self._readings[run_id] = reading
        while len(self._readings) > _KEPT:
            self._readings.popitem(last=False)
        return found

    async def _begun(self, info: RunInfo) -> _Reading:
        from orchestrator.views.history import StepFold

        plan = Plan.of(await self._loader.stored_graph(info))
        return _Reading(info.created, plan, StepFold(plan))

    def _cursor(self, run_id: str, reading: _Reading) -> LateCursor:
        """Return the states after steps. The whole journal is read: later records contain results of late steps."""
        from orchestrator.views.history import LateCursor, StateCursor

        plan, later = reading.plan, reading.fold.later
        return LateCursor(lambda: StateCursor(plan.followed_by(later), self._store.read_now(run_id)))

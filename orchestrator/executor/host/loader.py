"""Loads a run from the store: its state, in its stored graphs or in those that it can be resumed in."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import GraphChanged, GraphUnknown, StoreError
from orchestrator.executor.host.reopening import Reopening
from orchestrator.executor.host.versions import graph_to_resume_in
from orchestrator.executor.resources import Resources
from orchestrator.executor.snapshots import Checkpoint, Snapshots
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.diff import content_changes
from orchestrator.graph.digests import content_digest
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.machine import apply_stored
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import Migrated, Record
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo, Store


class RunLoader:
    """Folds runs of a store. It takes no lease and changes no run."""

    def __init__(self, store: Store, resources: Resources, snapshots: Snapshots) -> None:
        self._store, self._resources, self._snapshots = store, resources, snapshots

    async def machine_of(self, info: RunInfo, graph: GraphDefinition, upto: int | None = None) -> RunState:
        """Return the state of a run at a position, folded in its own graphs.

        Args:
            info: the run.
            graph: the graph that it began in, or one of the same structure.
            upto: the number of the last record to fold; None: all.

        Raises:
            RunUnknown, StoreCorrupt, StoreTooNew
        """
        machine = (await self._snapshots.nearest(info, graph, self, upto)).machine
        records = await self._store.read(info.run_id, after=machine.head, upto=upto)
        await self._fold(info, machine, records)
        return machine

    async def plan_of(self, info: RunInfo, records: Sequence[Record]) -> Plan:
        """Return the plan to fold all records of a run with, from the first one on."""
        return Plan.of(await self.stored_graph(info)).followed_by(await self._later(info, records))

    async def load_to_resume(
        self, info: RunInfo, graph: GraphDefinition, *, strict: bool, reopening: Reopening | None = None
    ) -> tuple[Checkpoint, tuple[str, ...] | None]:
        """Return the state to resume from, and what changed since the run was last driven (None: nothing).

        Args:
            info: the run.
            graph: the newest version of its graph, for a run whose own version the executor does not have.
            strict: whether changes are refused.
            reopening: reopens the run, if it has ended: it is folded from its beginning then, by the code of today.

        Raises:
            GraphUnknown: a model or tool that the graph names is missing.
            GraphChanged: the run cannot go on in the graph.
        """
        began = await self.stored_graph(info)
        checkpoint = Checkpoint(RunState(Plan.of(began)), 0)
        if reopening is None:
            checkpoint = await self._snapshots.nearest(info, began, self)
        machine = checkpoint.machine
        await self._fold(info, machine, await self._store.read(info.run_id, after=machine.head))
        if reopening is not None:
            reopening.apply(machine)
        graph = self._resources.version(info.graph, machine.structure, machine.content) or graph
        self._resources.check(graph, models=machine.fork is None or machine.fork.relation != "replay")
        if machine.plan.graph is graph and machine.content == graph.content:
            return checkpoint, None
        graph, changes = await self.fitting(info, graph, machine, strict=strict)
        if machine.plan.graph is graph and not checkpoint.kept:
            return checkpoint, changes
        machine = await self._folded_in(info, graph)
        return Checkpoint(machine if reopening is None else reopening.apply(machine), 0), changes

    async def stored_graph(self, info: RunInfo) -> GraphDefinition:
        """The graph that a run began in, as it was stored; with code if the executor has one of its structure."""
        return await self.of(info, info.structure, info.content)

    async def of(self, info: RunInfo, structure: str, content: str) -> GraphDefinition:
        """The same for any graph that a run had."""
        known = self._resources.version(info.graph, structure, content) or self._resources.graphs.get(info.graph)
        if known is not None and known.structure == structure:
            return known
        return GraphDefinition.from_data(await self._graph_data(info.run_id, content))

    async def _later(self, info: RunInfo, records: Sequence[Record]) -> dict[str, Plan]:
        """Content digest -> plan of each graph that records migrate the run to, and of each that is given here."""
        later = {one.content: Plan.of(one) for one in self._resources.versions.get(info.graph, ())}
        for record in records:
            if isinstance(record, Migrated) and record.content not in later:
                later[record.content] = Plan.of(await self.of(info, record.structure, record.content))
        return later

    async def _fold(self, info: RunInfo, machine: RunState, records: Sequence[Record]) -> None:
        machine.later.update(await self._later(info, records))
        for record in records:
            apply_stored(machine, record)

    async def _folded_in(self, info: RunInfo, graph: GraphDefinition) -> RunState:
        """The state of a run, with a graph in the place of its own ones of the same structure."""
        records = await self._store.read(info.run_id)
        first = graph if graph.structure == info.structure else await self.stored_graph(info)
        machine = RunState(Plan.of(first))
        machine.later.update(await self._later(info, records))
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
        self, info: RunInfo, graph: GraphDefinition, machine: RunState, *, strict: bool
    ) -> tuple[GraphDefinition, tuple[str, ...] | None]:
        """Return the graph to resume in, and what changed since the run was last driven (None: nothing)."""
        last = machine.content
        if graph.content == last:
            return graph, None
        before = await self._graph_data(info.run_id, last)
        if graph.structure != machine.structure:
            old = GraphDefinition.from_data(await self._graph_data(info.run_id, machine.lineage[-1][1]))
            graph = graph_to_resume_in(info.run_id, old, graph, machine)
            if graph.content == last:
                return graph, None
        changes = content_changes(before, graph.data())
        if strict:
            lines = "\n".join(f"  - {line}" for line in changes)
            raise GraphChanged(
                f"run {info.run_id!r}: graph {graph.name!r} changed since it was last driven:\n{lines}\n"
                "Accept the changes (accept_changes=True), or give the executor the graph as it was."
            )
        await self._store.put_graph(graph.content, graph.data())
        return graph, changes

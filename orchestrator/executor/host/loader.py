"""Loads a run from the store: its state, in its stored graph or in one that it can be resumed in."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import GraphChanged, GraphUnknown, StoreError
from orchestrator.executor.host.versions import folded, graph_to_resume_in, last_content
from orchestrator.executor.resources import Resources
from orchestrator.executor.snapshots import Checkpoint, Snapshots
from orchestrator.graph.definition import GraphDefinition
from orchestrator.graph.diff import content_changes
from orchestrator.graph.digests import content_digest
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.machine import apply_stored
from orchestrator.kernel.records import Record
from orchestrator.kernel.run_state import RunState
from orchestrator.stores.base import RunInfo, Store


class RunLoader:
    """Folds runs of a store. It takes no lease and changes no run."""

    def __init__(self, store: Store, resources: Resources, snapshots: Snapshots) -> None:
        self._store, self._resources, self._snapshots = store, resources, snapshots

    async def machine_of(self, info: RunInfo, graph: GraphDefinition, upto: int | None = None) -> RunState:
        """Return the state of a run at a position, in a graph of its structure.

        Raises:
            RunUnknown, StoreCorrupt, StoreTooNew
        """
        machine = (await self._snapshots.nearest(info, graph, upto)).machine
        for record in await self._store.read(info.run_id, after=machine.head, upto=upto):
            apply_stored(machine, record)
        return machine

    async def load_to_resume(
        self, info: RunInfo, graph: GraphDefinition, *, strict: bool
    ) -> tuple[Checkpoint, tuple[str, ...] | None]:
        """Return the state to resume from, and what changed since the run was last driven (None: nothing)."""
        checkpoint = await self._snapshots.nearest(info, graph)
        records = await self._store.read(info.run_id, after=checkpoint.machine.head)
        if last_content(records) in ("" if checkpoint.machine.head else graph.content, graph.content):
            for record in records:
                apply_stored(checkpoint.machine, record)
            return checkpoint, None
        if checkpoint.machine.head:
            records = await self._store.read(info.run_id)
        graph, changes = await self._fitting(info, graph, records, strict=strict)
        return Checkpoint(folded(graph, records), 0), changes

    async def stored_graph(self, info: RunInfo) -> GraphDefinition:
        """The graph of a run as it was stored, without code; with code if the executor has just this one."""
        known = self._resources.begun.get(info.content) or self._resources.graphs.get(info.graph)
        if known is not None and known.structure == info.structure:
            return known
        return GraphDefinition.from_data(await self._graph_data(info.run_id, info.content))

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

    async def _fitting(
        self, info: RunInfo, graph: GraphDefinition, records: Sequence[Record], *, strict: bool
    ) -> tuple[GraphDefinition, tuple[str, ...] | None]:
        """Return the graph to resume in, and what changed since the run was last driven (None: nothing)."""
        last = last_content(records)
        if graph.content == last:
            return graph, None
        before = await self._graph_data(info.run_id, last)
        if graph.structure != info.structure:
            old = GraphDefinition.from_data(await self._graph_data(info.run_id, info.content))
            graph = graph_to_resume_in(info.run_id, old, graph, folded(old, records))
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

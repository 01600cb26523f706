"""Runs that began with records of other runs."""

from __future__ import annotations

from orchestrator.stores.base import Relation, RunInfo, Store
from orchestrator.stores.requests import RunQuery


async def forks_of(store: Store, run_id: str) -> list[RunInfo]:
    """The runs that were forked from a run, replays among them, the newest first.

    Args:
        store: the store of the runs.
        run_id: the run; it may be deleted.
    """
    found: list[RunInfo] = []
    relations: tuple[Relation, ...] = ("fork", "replay", "call")
    for relation in relations:
        cursor: str | None = None
        while True:
            page = await store.runs(RunQuery(parent=run_id, relation=relation, after=cursor, limit=200))
            # The label of a run names its caller: that of a called run is its parent, that of a fork is another run.
            found += [info for info in page.runs if relation != "call" or info.labels.get("parent") != run_id]
            cursor = page.cursor
            if cursor is None:
                break
    return sorted(found, key=lambda info: info.created, reverse=True)

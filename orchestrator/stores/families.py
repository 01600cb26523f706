"""Runs that began with records of other runs."""

from __future__ import annotations

from orchestrator.kernel.records import Forked
from orchestrator.stores.base import RunInfo, Store


async def forks_of(store: Store, run_id: str) -> list[RunInfo]:
    """The runs that were forked from a run, the newest first.

    Args:
        store: the store of the runs.
        run_id: the run; it may be deleted.
    """
    found: list[RunInfo] = []
    cursor: str | None = None
    while True:
        page = await store.runs(after=cursor, limit=200)
        for info in page.runs:
            forks = [one for one in await store.read(info.run_id) if isinstance(one, Forked)]
            if forks and forks[-1].parent == run_id:
                found.append(info)
        cursor = page.cursor
        if cursor is None:
            return found

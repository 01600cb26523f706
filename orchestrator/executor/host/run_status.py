"""The status of a run as an onlooker sees it: `interrupted` is what runs in the journal and is driven by no process."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.executor.lease import is_held
from orchestrator.stores.base import RunInfo, Store


async def is_interrupted(store: Store, run_id: str, status: str) -> bool:
    """Whether a run whose journal says `status` is interrupted: no living process holds its lease."""
    return status == "running" and not is_held(await store.lease(run_id))


def with_status(info: RunInfo) -> RunInfo:
    """The row of a run, with the status `interrupted` where the run is: by the lease that was read with it."""
    return replace(info, status="interrupted") if info.status == "running" and not is_held(info.lease) else info

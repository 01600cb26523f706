"""The command that lists the processes which share a store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED

if TYPE_CHECKING:
    from orchestrator.executor import Executor, WorkerInfo
    from orchestrator.stores import RunInfo

_PARKED = 100
"""Parked runs that are listed at most."""
_NAMED = 5
"""Parked runs that are named to people at most."""


def workers(json: options.Json = False, store: options.Store = None) -> int:
    """List the workers of a store and the runs that they hold.

    Other processes that hold runs are listed, too. The list says whether each is alive. Parked runs are named.

    Example: orchestrator workers --store sqlite:///runs.db
    """
    from orchestrator.cli.output import out_json, out_made, warn
    from orchestrator.cli.redaction import row_document
    from orchestrator.cli.run_lookup import looking
    from orchestrator.cli.storage import exists, shown_url, store_url
    from orchestrator.render.terminal.tables import worker_table

    url = store_url(store)

    async def found(executor: Executor) -> tuple[Sequence[WorkerInfo], Sequence[RunInfo]]:
        return await executor.workers.list(), await executor.workers.parked(limit=_PARKED)

    working, parked = looking(url, found) if exists(url) else ([], [])
    if json:
        out_json({"workers": [one.to_json() for one in working], "parked": [row_document(one) for one in parked]})
        return COMPLETED
    if working:
        out_made(partial(worker_table, working))
    else:
        warn(f"no workers in {shown_url(url)}")
    if parked:
        names = ", ".join(one.run_id for one in parked[:_NAMED]) + (", ..." if len(parked) > _NAMED else "")
        count = f"{len(parked)} or more" if len(parked) == _PARKED else len(parked)
        warn(
            f"parked runs: {count} ({names}): `orchestrator why RUN` says why one is parked, `resume RUN` continues it"
        )
    return COMPLETED

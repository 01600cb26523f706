"""The list of runs and their status, from the journal and the lease.

This needs the store only: no code, and no executor.

A run that is running by its journal and that no process drives is `interrupted`: its holder died, or was cancelled. It
is `running` if it only waits for an executor: it was enqueued, or its answer or event came while no process drove it.
Its row then contains the earliest time to resume it (`RunInfo.due`); while a process drives the run, the row does not.
A run whose drives failed or died too often in a row is *parked*: only `resume` continues it, so it is also
`interrupted`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from orchestrator.executor.lease import is_held
from orchestrator.graph.names import plain_name
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Page, RunInfo, Store
from orchestrator.stores.requests import RunQuery
from orchestrator.stores.rows import MARK, MAX_DEATHS, encrypted_with
from orchestrator.values import check_labels, check_text
from orchestrator.views.worker_info import Standby

if TYPE_CHECKING:
    from orchestrator.executor.run_log import DriveClock
    from orchestrator.kernel.run_state import RunState


def waits_to_be_taken_up(info: RunInfo) -> bool:
    """Return True if a run can continue as soon as an executor takes it, and none has done so since."""
    return info.status == "running" and info.due is not None and not is_parked(info)


def is_parked(info: RunInfo) -> bool:
    """Return True if no worker takes a run, because its drives failed or died too often."""
    return info.deaths >= MAX_DEATHS and info.status not in FINAL


def due_of_given_back(clock: DriveClock, before: RunInfo, machine: RunState) -> float | None:
    """Return `RunInfo.due` of a run to which something was journaled without driving it.

    If the record lets it continue, it is due at once; an interrupted run stays interrupted. None: it is never due.

    Args:
        clock: the time of this process' work on the run.
        before: the row before that.
    """
    if machine.status != "running":
        return clock.first_due(machine)
    return before.due if before.status == "running" else clock.now()


def is_interrupted(info: RunInfo) -> bool:
    """Return True if a run was running, and no live process holds the lease read with its row."""
    return info.status == "running" and not waits_to_be_taken_up(info) and not is_held(info.lease)


def standby_of(info: RunInfo) -> Standby | None:
    """Return the part of a row about a run that no process drives; None if it has none."""
    if info.status in FINAL or is_held(info.lease):
        return None
    due = info.due if waits_to_be_taken_up(info) else None
    if due is None and not info.deaths:
        return None
    parked = is_parked(info)
    return Standby(due, info.deaths, None if parked else info.retry_at, info.fault, parked)


def with_status(info: RunInfo) -> RunInfo:
    """Return the row of a run, with the status `interrupted` if the run is, and without texts that need a key."""
    info = readable(info)
    return replace(info, status="interrupted") if is_interrupted(info) else info


def readable(info: RunInfo) -> RunInfo:
    """Return the row of a run; if its texts are encrypted and there is no codec, with the key that they need."""
    if not info.error.startswith(MARK) and not info.fault.startswith(MARK):
        return info
    from orchestrator.stores.codec import Damaged, key_of

    try:
        texts, fault = key_of(info.error), key_of(info.fault)
    except Damaged:
        return replace(info, error="", input="(encrypted, and damaged)", fault="")
    if texts:
        info = replace(info, error="", input=encrypted_with(texts))
    return replace(info, fault=encrypted_with(fault)) if fault else info


_TEXTS = tuple(one.name for one in fields(RunQuery) if one.type == "str | None")
"""The filters that are strings."""


async def run_list(store: Store, query: RunQuery, *, q: str | None = None) -> Page:
    """Return a page of the runs of a store that match every filter; see `Executor.runs`."""
    for what in (*(getattr(query, name) for name in _TEXTS), q):
        if what is not None:
            check_text(what, "a filter of the list of runs")
    wanted = {query.status} if isinstance(query.status, str) else None if query.status is None else set(query.status)
    for status in wanted or ():
        check_text(status, "a filter of the list of runs")
    labels, graph = check_labels(query.labels), plain_name(query.graph) if query.graph else query.graph

    async def listed(*, search: str | None, after: str | None, limit: int) -> Page:
        found: list[RunInfo] = []
        while True:
            left = limit - len(found)
            page = await store.runs(replace(query, labels=labels, graph=graph, search=search, after=after, limit=left))
            seen = [with_status(info) for info in page.runs]
            found += [info for info in seen if wanted is None or info.status in wanted]
            if page.cursor is None or len(found) >= limit:
                return Page(tuple(found), page.cursor)
            after = page.cursor

    if q is None:
        return await listed(search=query.search, after=query.after, limit=query.limit)
    if query.search is not None:
        raise ValueError("`search` and `q` are given; use one of them")
    if query.sort != "started" or query.ascending:
        raise ValueError("`q` searches journals from the newest run on: use `search` in lists with another order")
    from orchestrator.executor.run_search import searched

    return await searched(listed, store, q, query.after, query.limit)

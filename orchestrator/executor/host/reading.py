"""Looking at runs. Nothing here needs code, takes a lease or changes anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.executor.lease import is_held
from orchestrator.kernel.plan import Plan
from orchestrator.stores.base import Page, RunInfo
from orchestrator.values import check_labels, check_text
from orchestrator.views.history import Point, points
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.host.host import Host


async def load(host: Host, run_id: str, at: int | None = None) -> Run:
    """See `Executor.load`."""
    info = await host.store.info(run_id)
    graph = await host.loader.stored_graph(info)
    machine = await host.loader.machine_of(info, graph, at)
    lost = at is None and machine.status == "running" and not is_held(await host.store.lease(run_id))
    return Run(machine, graph, host.store, interrupted=lost)


async def history(host: Host, run_id: str, at: int | None = None) -> list[Point]:
    """See `Executor.history`."""
    info = await host.store.info(run_id)
    return points(Plan.of(await host.loader.stored_graph(info)), await host.store.read(run_id, upto=at))


async def runs(
    host: Host,
    *,
    status: Collection[str] | str | None,
    graph: str | None,
    labels: Mapping[str, str] | None,
    after: str | None,
    limit: int,
) -> Page:
    """See `Executor.runs`."""
    labels = check_labels(labels or {})
    for what in (graph, after, *((status,) if isinstance(status, str) else status or ())):
        if what is not None:
            check_text(what, "a filter of the list of runs")
    wanted = {status} if isinstance(status, str) else None if status is None else set(status)
    asked = wanted
    if wanted is not None and "interrupted" in wanted:
        asked = wanted - {"interrupted"} | {"running"}
    found: list[RunInfo] = []
    while True:
        page = await host.store.runs(status=asked, graph=graph, labels=labels, after=after, limit=limit - len(found))
        for info in page.runs:
            told = await _told(host, info)
            if wanted is None or told.status in wanted:
                found.append(told)
        if page.cursor is None or len(found) >= limit:
            return Page(tuple(found), page.cursor)
        after = page.cursor


async def _told(host: Host, info: RunInfo) -> RunInfo:
    if info.status != "running" or is_held(await host.store.lease(info.run_id)):
        return info
    return replace(info, status="interrupted")

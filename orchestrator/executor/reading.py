"""Looking at runs. Nothing here needs code, takes a lease or changes anything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor.events import Event, Watcher, event_of
from orchestrator.executor.ownership import is_held
from orchestrator.executor.run import Point, Run, points
from orchestrator.kernel.machine import Machine
from orchestrator.kernel.plan import Plan
from orchestrator.kernel.records import FINAL
from orchestrator.stores.base import Page, RunInfo

if TYPE_CHECKING:
    from orchestrator.executor.hosting import Host
    from orchestrator.kernel.records import Record

_FOLLOW = 0.2
"""Seconds between two looks at a run that another process drives."""
_CHUNK = 500


async def load(host: Host, run_id: str, at: int | None = None) -> Run:
    """See `Executor.load`."""
    info = await host.store.info(run_id)
    graph = await host.stored_graph(info)
    machine = Machine(Plan.of(graph))
    for record in await host.store.read(run_id, upto=at):
        machine.apply(record)
    lost = at is None and machine.status == "running" and not is_held(await host.store.lease(run_id))
    return Run(machine, graph, host.store, interrupted=lost)


async def history(host: Host, run_id: str) -> list[Point]:
    """See `Executor.history`."""
    info = await host.store.info(run_id)
    return points(Machine(Plan.of(await host.stored_graph(info))), await host.store.read(run_id))


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
    if info.status != "running" or is_held(await host.store.lease(info.run_id), time.time()):
        return info
    return replace(info, status="interrupted")


async def events(host: Host, run_id: str, *, after: int, follow: bool, style: str | None) -> AsyncIterator[Event]:
    """See `Executor.events`."""
    if style is None:
        async for seen in _seen(host, run_id, after, follow=follow):
            yield seen if isinstance(seen, Event) else event_of(run_id, seen)
        return
    if style != "embedia":
        raise ValueError(f"style {style!r} is not known: say None, or 'embedia'")
    from orchestrator.executor.embedia import Embedia

    teller = Embedia(await host.stored_graph(await host.store.info(run_id)))
    async for seen in _seen(host, run_id, 0, follow=follow):
        if not isinstance(seen, Event):
            for told in teller.tell(seen):
                if seen.seq > after:
                    yield told


async def _seen(host: Host, run_id: str, after: int, *, follow: bool) -> AsyncIterator[Record | Event]:
    """Records behind `after`; following a run that is driven here, live events between them."""
    seen = after
    while True:
        live = host.live.get(run_id) if follow else None
        if live is not None:
            watcher = watch(host, run_id, seen)
            live.watchers.add(watcher)
            watcher.catch_up(live.journal.stored)
            if live.done.is_set():
                watcher.close()
            try:
                async for found in watcher:
                    yield found
            finally:
                live.watchers.discard(watcher)
            seen = watcher.seen
            if live.machine.ended is not None:
                return
        records = await host.store.read(run_id, after=seen, limit=_CHUNK)
        for record in records:
            yield record
            seen = record.seq
        if len(records) == _CHUNK:
            continue
        if not follow:
            return
        info = await host.store.info(run_id)
        if info.status in FINAL and info.head <= seen:
            return
        if host.live.get(run_id) is None:
            await anyio.sleep(_FOLLOW)


def watch(host: Host, run_id: str, after: int) -> Watcher:
    """A watcher of a run, which reads what it missed from the store."""

    async def read(seen: int) -> Sequence[Record]:
        return await host.store.read(run_id, after=seen, limit=_CHUNK)

    return Watcher(run_id, after, read)

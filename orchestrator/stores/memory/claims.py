"""Which runs in memory a worker may take up, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.kernel.records import FINAL
from orchestrator.stores.memory.inbox import Inbox
from orchestrator.stores.memory.leases import MemoryRun
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.stores.turns import Selection, Turns, take_turns


def idle_runs(runs: Iterable[MemoryRun], present: Collection[str], graphs: Collection[str] | None) -> list[MemoryRun]:
    """Runs that have not ended and that none of the present holders holds, without those that died too often."""
    return [
        run
        for run in runs
        if run.info.status not in FINAL
        and run.info.deaths < MAX_DEATHS
        and (graphs is None or run.info.graph in graphs)
        and (run.token is None or run.holder not in present)
    ]


def claimable(idle: Iterable[MemoryRun], inbox: Inbox) -> list[MemoryRun]:
    """Those that have something to do now: a message, a time that is due, or a drive that has to be begun again."""
    now = SYSTEM_CLOCK.now()
    messages = inbox.first()
    found: list[tuple[int, float, MemoryRun]] = []
    for run in idle:
        info = run.info
        if info.retry_at is not None and info.retry_at > now:
            continue
        if info.run_id in messages:
            found.append((0, messages[info.run_id], run))
        elif info.due is not None and info.due <= now:
            found.append((1 if info.due > info.created or info.status == "paused" else 4, info.due, run))
        elif info.status == "running" and info.due is None:
            since = info.created if run.token is not None or info.retry_at is None else info.retry_at
            found.append((2 if run.token is not None else 3, since, run))
    return [run for _, _, run in sorted(found, key=lambda one: one[:2])]


def selected(
    ready: Iterable[MemoryRun], limit: int, most: Mapping[str, int] | None, turns: Turns | None
) -> list[MemoryRun]:
    """Those that a claim takes; see `Store.claim`."""
    found = Selection[MemoryRun](limit, most)

    def add(run: MemoryRun) -> bool:
        return found.add(run.number, run.info.graph, run)

    if turns is None:
        for run in ready:
            if found.full:
                break
            add(run)
    else:
        take_turns(turns, ((turns.value_of(run.info.labels), run) for run in ready), add, lambda: found.full)
    return found.rows


def parked(runs: Iterable[MemoryRun]) -> list[MemoryRun]:
    """Runs that are not given out any more, the longest parked first; see `Store.parked`."""
    found = [
        (run.info.retry_at, run)
        for run in runs
        if run.info.status not in FINAL and run.info.deaths >= MAX_DEATHS and run.info.retry_at is not None
    ]
    return [run for _, run in sorted(found, key=lambda one: one[0])]


def unsettled(runs: Iterable[MemoryRun], inbox: Inbox, graphs: Collection[str] | None) -> list[MemoryRun]:
    """Runs that may have something to do, the oldest first; see `Store.unsettled`."""
    messages = inbox.first()
    found = [
        run
        for run in runs
        if run.info.status not in FINAL
        and (graphs is None or run.info.graph in graphs)
        and (run.info.status == "running" or run.info.due is not None or run.info.run_id in messages)
    ]
    return sorted(found, key=lambda run: run.info.created)


def next_due(idle: Iterable[MemoryRun]) -> float | None:
    """The first time at which one of them has something to do; None: no time is known."""
    times: list[float] = []
    for run in idle:
        retry_at, due = run.info.retry_at, run.info.due
        if run.info.status == "running" and retry_at is not None:
            times.append(retry_at)
        elif due is not None:
            times.append(due if retry_at is None else max(due, retry_at))
    return min(times, default=None)

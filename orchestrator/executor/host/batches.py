"""Many runs resumed at once: a batch after a bug was repaired, a night's runs after an outage."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio

from orchestrator.errors import OrchestratorError
from orchestrator.executor.host import recovery
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.manner import Manner
from orchestrator.kernel.records import FINAL, RunStarted
from orchestrator.stores.base import Page, RunInfo, Store

log = logging.getLogger("orchestrator")

STATUSES = ("failed", "exhausted", "cancelled", "interrupted", "paused")
"""Statuses of runs that can be resumed."""


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """What became of one run of many."""

    run_id: str
    graph: str
    before: str
    """Its status before."""
    status: str
    """Its status now; empty if it could not be resumed."""
    error: str = ""
    """Why it could not be resumed, or why it ended, as text."""
    exception: Exception | None = field(default=None, compare=False)
    """The error for which it could not be resumed."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What became of many runs."""

    runs: tuple[ResumedRun, ...] = ()
    """In the order in which they came to an end or paused."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Status now -> number of runs. Those that could not be resumed are under an empty text."""
        return Counter(run.status for run in self.runs)

    @property
    def errors(self) -> Mapping[str, str]:
        """Run -> why it could not be resumed."""
        return {run.run_id: run.error for run in self.runs if not run.status}


OnProgress: TypeAlias = "Callable[[ResumedRun, int, int], object]"
"""Called for each run, with the number of those that are over and the number of all."""


class Listing(Protocol):
    """Lists runs, as `Executor.runs` does."""

    async def __call__(
        self,
        *,
        status: Collection[str] | None,
        graph: str | None,
        labels: Mapping[str, str] | None,
        after: str | None,
        limit: int,
    ) -> Page: ...


def check_statuses(status: Collection[str] | str, *, retry: bool) -> frozenset[str]:
    """The statuses of the runs to resume.

    Raises:
        ValueError: one is unknown, cannot be resumed, or needs `retry`.
    """
    wanted = frozenset({status} if isinstance(status, str) else status)
    unknown = sorted(wanted - set(STATUSES))
    if unknown or not wanted:
        said = f"status={unknown[0]!r} cannot be resumed" if unknown else "no status is given"
        raise ValueError(f"{said}: use one or several of {', '.join(STATUSES)}")
    ended = sorted(wanted & FINAL)
    if ended and not retry:
        raise ValueError(f"runs with the status {ended[0]!r} have ended: resume them with retry=True")
    return wanted


async def find(
    store: Store,
    listing: Listing,
    status: Collection[str],
    graph: str | None,
    labels: Mapping[str, str] | None,
    only: Collection[str] | None,
) -> list[RunInfo]:
    """The runs to resume, the oldest first, without replays and without runs that graph tools began."""
    found: list[RunInfo] = []
    cursor: str | None = None
    while True:
        page = await listing(status=status, graph=graph, labels=labels, after=cursor, limit=200)
        for info in page.runs:
            if (only is None or info.run_id in only) and not await _is_called(store, info):
                found.append(info)
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


async def _is_called(store: Store, info: RunInfo) -> bool:
    """Whether another run goes on with it: it was begun by a call of its graph, or is a replay."""
    if info.parent is not None:
        return info.parent.relation in ("call", "replay")
    parent = info.labels.get("parent")
    if parent is None:
        return False
    if info.run_id.startswith(f"{parent}."):  # begun by an early version
        return True
    (first,) = await store.read(info.run_id, limit=1)
    return isinstance(first, RunStarted) and first.caller is not None


async def resume_matching(
    host: Host,
    listing: Listing,
    status: Collection[str] | str,
    graph: str | None,
    labels: Mapping[str, str] | None,
    only: Collection[str] | None,
    manner: Manner,
    concurrency: int,
    on_progress: OnProgress | None,
) -> Resumed:
    """See `Executor.resume_all`."""
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: use 1 or more")
    wanted = check_statuses(status, retry=manner.retry)
    found = await find(host.store, listing, wanted, graph, labels, only)
    return await resume_all(host, found, manner, concurrency, on_progress)


async def resume_all(
    host: Host, found: Sequence[RunInfo], manner: Manner, concurrency: int, on_progress: OnProgress | None
) -> Resumed:
    """Resume runs, at most `concurrency` at the same time. See `Executor.resume_all`."""
    over: list[ResumedRun] = []
    left: Iterator[RunInfo] = iter(found)

    async def work() -> None:
        for info in left:  # shared: each worker takes the next one
            one = await _resumed(host, info, manner)
            over.append(one)
            if on_progress is not None:
                on_progress(one, len(over), len(found))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(concurrency, len(found))):
            tasks.start_soon(work)
    return Resumed(tuple(over))


async def _resumed(host: Host, info: RunInfo, manner: Manner) -> ResumedRun:
    try:
        run = await recovery.resume(host, info.run_id, manner)
    except Exception as error:  # whatever it is, the other runs go on
        if not isinstance(error, OrchestratorError):
            log.warning("run %s could not be resumed", info.run_id, exc_info=error)
        why = f"{type(error).__name__}: {error}"
        return ResumedRun(info.run_id, info.graph, info.status, "", why, error)
    error_text = "" if run.error is None else str(run.error)
    return ResumedRun(run.run_id, run.graph, info.status, run.status, error_text)

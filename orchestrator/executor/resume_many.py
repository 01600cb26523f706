"""Resuming many runs: interrupted ones, or, after a bug fix or an outage, those that match filters."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio
from msgspec import Struct

from orchestrator.errors import OrchestratorError, RunConflict, RunEnded
from orchestrator.executor.host import Host
from orchestrator.executor.lease import is_held
from orchestrator.executor.options import ResumeOptions
from orchestrator.executor.resuming import journal_resumed, open_run, resume
from orchestrator.executor.run_status import is_parked
from orchestrator.kernel.records import RunStarted
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Page, RunInfo, Store
from orchestrator.stores.rows import NOTICE
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive import Drive


log = logging.getLogger("orchestrator")


async def recover(host: Host, only: Collection[str] | None) -> list[Run]:
    """See `Executor.recover`."""
    found: dict[str, Run] = {}

    async def recover_one(run_id: str) -> None:
        live: Drive | None = None
        try:
            live = await open_run(host, run_id)
            journal_resumed(live, unpause=False)
            found[run_id] = await host.drive(live)
        except (RunConflict, RunEnded):
            return  # another executor has taken the run
        except Exception as error:  # an error must not stop the other runs
            if live is not None:
                host.watched.retry(live)
            log.warning("run %s cannot be recovered: %s", run_id, error)

    async def all_of(runs: Collection[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(recover_one, run_id)

    wanted = [one for one in await lost(host, host.resources.graphs) if only is None or one in only]
    # Called runs continue when their callers repeat the calls; those that remain are continued on their own.
    inner = [one for one in wanted if (await host.store.info(one)).labels.get("parent") in wanted]
    await all_of([one for one in wanted if one not in inner])
    if inner:
        left = await lost(host, host.resources.graphs)
        await all_of([one for one in inner if one in left])
    await call_observers(host)
    return list(found.values())


async def call_observers(host: Host) -> bool:
    """Call observers about runs whose processes are gone and did not call them.

    Returns:
        Whether other processes still have to call their observers.
    """
    if not host.observation:
        return False
    notices = host.observation.notices
    for one in await notices.take_over(host.resources.graphs, host.resources.clock.now()):
        try:
            await host.observation.call_about(await host.loader.load(one.info.run_id), one.notice)
        except OrchestratorError as error:  # the run is damaged, or was deleted
            log.warning("run %s: its observers are not called: %s", one.info.run_id, error)
    return notices.others


async def lost(host: Host, graphs: Collection[str] | None) -> list[str]:
    """Return the ids of runs of these graphs that could continue and that no executor drives, the oldest first."""
    known = [info for info in await host.store.unsettled(graphs) if info.run_id not in host.live]
    messages = await host.store.inbox([info.run_id for info in known])
    addressed = {message.run_id for message in messages if message.body.get("type") != NOTICE}
    found: list[str] = []
    for info in known:
        lost_by_its_holder = info.status == "running" and info.due is None
        recoverable = lost_by_its_holder or host.last_seen.overdue(info) or info.run_id in addressed
        backs_off = info.retry_at is not None and info.retry_at > time.time()
        if recoverable and not backs_off and not is_parked(info) and not is_held(info.lease):
            found.append(info.run_id)
    return found


STATUSES = ("failed", "exhausted", "cancelled", "interrupted", "paused")
"""Statuses of runs that can be resumed."""


@dataclass(frozen=True, slots=True)
class ResumedRun:
    """The outcome of resuming one of many runs."""

    run_id: str
    graph: str
    before: str
    """Its status before."""
    status: str
    """Its status now; empty if it could not be resumed."""
    error: str = ""
    """Why it could not be resumed, or why it ended, as text."""
    exception: Exception | None = field(default=None, compare=False)
    """The error because of which it could not be resumed."""


class Resumed(Struct, frozen=True):
    """The outcomes of resuming many runs."""

    runs: tuple[ResumedRun, ...] = ()
    """In the order in which they ended or paused."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return current status -> number of runs. Runs that could not be resumed count under the empty string."""
        return Counter(run.status for run in self.runs)

    @property
    def errors(self) -> Mapping[str, str]:
        """Return run -> reason why it could not be resumed."""
        return {run.run_id: run.error for run in self.runs if not run.status}


OnProgress: TypeAlias = "Callable[[ResumedRun, int, int], object]"
"""Called for each run, with the number of finished ones and the number of all."""


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
    """Return the statuses of the runs to resume.

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
    """Return the runs to resume, oldest first, without replays and without runs that graph tools started."""
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
    """Return True if a run was started by a call of its graph, or is a replay: such runs are left out."""
    if info.parent is not None:
        return info.parent.relation in ("call", "replay")
    parent = info.labels.get("parent")
    if parent is None:
        return False
    if info.run_id.startswith(f"{parent}."):  # started by an early version
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
    options: ResumeOptions,
    concurrency: int,
    on_progress: OnProgress | None,
) -> Resumed:
    """See `Executor.resume_all`."""
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: use 1 or more")
    wanted = check_statuses(status, retry=options.retry)
    found = await find(host.store, listing, wanted, graph, labels, only)
    return await resume_all(host, found, options, concurrency, on_progress)


async def resume_all(
    host: Host, found: Sequence[RunInfo], options: ResumeOptions, concurrency: int, on_progress: OnProgress | None
) -> Resumed:
    """Resume runs, at most `concurrency` at the same time. See `Executor.resume_all`."""
    over: list[ResumedRun] = []
    left: Iterator[RunInfo] = iter(found)

    async def work() -> None:
        for info in left:  # shared: each worker takes the next one
            one = await _resumed(host, info, options)
            over.append(one)
            if on_progress is not None:
                on_progress(one, len(over), len(found))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(concurrency, len(found))):
            tasks.start_soon(work)
    return Resumed(tuple(over))


async def _resumed(host: Host, info: RunInfo, options: ResumeOptions) -> ResumedRun:
    try:
        run = await resume(host, info.run_id, options)
    except Exception as error:  # an error must not stop the other runs
        if not isinstance(error, OrchestratorError):
            log.warning("run %s could not be resumed", info.run_id, exc_info=error)
        why = f"{type(error).__name__}: {error}"
        return ResumedRun(info.run_id, info.graph, info.status, "", why, error)
    error_text = "" if run.error is None else str(run.error)
    return ResumedRun(run.run_id, run.graph, info.status, run.status, error_text)

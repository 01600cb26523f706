"""Runs that are handed over: enqueued by one executor, and driven by any that takes them up."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from datetime import datetime

import anyio

from orchestrator.errors import InvalidValue, RunConflict, RunEnded, RunExists
from orchestrator.executor.host import Host
from orchestrator.executor.options import ResumeOptions, RunOptions
from orchestrator.executor.run_status import waits_to_be_taken_up, with_status
from orchestrator.executor.start import RunDraft, create_undriven, new_run
from orchestrator.executor.worker_health import WorkerHealth
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import FINAL


@dataclass(frozen=True, slots=True)
class Driven:
    """What a run came to when `ExecutorWorkers.drive` had driven it.

    Attributes:
        status: the run's status.
        due: when it is to be driven again, in Unix seconds; None: when it was answered, or never.
    """

    status: str
    due: float | None = None


def moment(at: datetime | float | None) -> float | None:
    """A time that a user gave, in Unix seconds.

    Raises:
        InvalidValue: it has no time zone, or is no number.
    """
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidValue(f"at={at!r} has no time zone: use one, such as datetime.now(UTC)", where="at")
        return at.timestamp()
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < float("inf"):
        raise InvalidValue(f"at={reprlib.repr(at)}: use a datetime with a time zone, or Unix seconds", where="at")
    return float(at)


async def enqueue(
    host: Host, graph: GraphDefinition | str, given: object, options: RunOptions, at: datetime | float | None
) -> str:
    """See `Executor.enqueue`."""
    due = moment(at)
    return await put(host, await new_run(host, graph, given, options), due)


async def put(host: Host, new: RunDraft, at: float | None) -> str:
    """Add a run that no executor drives yet."""
    try:
        await create_undriven(host, new.graph, new.started, new.started.ts if at is None else at)
    except RunExists:
        await new.check_same(host.store)
    return new.started.run_id


async def drive(host: Host, run_id: str, wait: float, health: WorkerHealth | None) -> Driven:
    """See `ExecutorWorkers.drive`."""
    until = anyio.current_time() + wait
    while True:
        live = host.live.get(run_id)
        if live is not None:
            await live.done.wait()
            if live.fault is not None and not isinstance(live.fault, RunConflict):
                raise live.fault
            return await _driven(host, run_id)
        info = await host.store.info(run_id)
        later = waits_to_be_taken_up(info) and not host.standstill.overdue(info)
        if info.status in FINAL or later:
            return Driven(info.status, info.due)
        try:
            live = await host.open(run_id, ResumeOptions(wait=max(0.0, until - anyio.current_time())))
        except RunEnded:
            continue
        except RunConflict:
            if run_id not in host.live:
                raise
            continue  # another task of this executor was quicker
        with (health or WorkerHealth()).counting(info.graph) as ended:
            host.resumed(live, unpause=False)
            ended((await host.drive(live)).status)
        return await _driven(host, run_id)


async def _driven(host: Host, run_id: str) -> Driven:
    info = await host.store.info(run_id)
    return Driven(with_status(info).status, info.due)

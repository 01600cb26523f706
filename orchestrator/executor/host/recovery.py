"""Going on with runs, and waiting for them: resume, recover, wait."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import OrchestratorError, RunConflict, RunEnded, RunUnknown, StoreUnavailable
from orchestrator.executor import lease as leases
from orchestrator.executor.answers import RISKS
from orchestrator.executor.host.host import Host
from orchestrator.executor.host.manner import Manner
from orchestrator.executor.host.reader import load
from orchestrator.executor.host.reopening import change_limits
from orchestrator.executor.host.resumption import stops_of
from orchestrator.executor.host.run_status import is_parked, waits_to_be_taken_up
from orchestrator.executor.lease import is_held
from orchestrator.stores.rows import NOTICE
from orchestrator.views.run import Run

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import Drive

log = logging.getLogger("orchestrator")

LOOK = 0.05
"""Seconds between two looks at what the holder of a run did."""


def check_risk(approve: str | None) -> None:
    """Refuse a policy that is no risk.

    Raises:
        ValueError: it is none.
    """
    if approve is not None and approve not in RISKS:
        raise ValueError(f"approve={approve!r} is not a risk: use one of {', '.join(RISKS)}")


async def drive_on(host: Host, live: Drive, began: Callable[[Drive], None] | None = None) -> Run:
    """Drive a run in the calling task until it ends or pauses. While it waits only for timers, wait with it.

    Cancelled, the run is interrupted, and sleeps until it is resumed.

    Args:
        began: called with each further drive, before anything happens in it.
    """
    while True:
        run = await host.drive(live)
        if not host.watched.waits_on(run.machine):
            return run
        await host.watched.turn(run.run_id)
        if host.tasks is None:
            return run  # the executor was closed meanwhile
        try:
            live = await host.open(run.run_id, Manner(context=live.log.context))
        except (RunConflict, RunEnded):  # another executor was quicker
            return await wait_for(host, run.run_id, None)
        if began is not None:
            began(live)
        host.resumed(live, unpause=False)


async def continue_alone(host: Host, run_id: str) -> None:
    """Go on with a run in the background, without lifting a pause. Losing it to another executor is silent."""
    try:
        live = await host.open(run_id, Manner(context=host.watched.context_of(run_id)))
    except RunConflict:
        host.watched.watch(run_id)
    except (RunEnded, RunUnknown):
        host.watched.forget(run_id)
    except StoreUnavailable as error:
        host.watched.postpone(run_id)
        host.given_up(run_id, error, again=True)
    except Exception as error:  # whatever it is, the other runs go on
        host.watched.forget(run_id)
        host.given_up(run_id, error)
    else:
        host.resumed(live, unpause=False)
        await host.drive_alone(live)


async def wait_for(host: Host, run_id: str, limit: float | None) -> Run:
    """Wait until a run ends or pauses, or was interrupted and is driven by no executor.

    It waits on while the run waits to be taken up, and, if the executor is awake, while the run waits only for timers
    or is to be tried again.

    Raises:
        TimeoutError: it took longer.
        and the error that this executor gave it up for.
    """
    with anyio.move_on_after(limit) as scope:
        missing = 0
        slept: tuple[int, Run] | None = None
        while True:
            live = host.live.get(run_id)
            if live is not None:
                await live.done.wait()
                fault = live.fault
                if fault is not None:
                    raise fault
                run = host.run_of(live)
                if not host.watched.waits_on(run.machine):
                    return run
            if run_id in host.faults:
                raise host.faults.pop(run_id)
            info = await host.store.info(run_id)
            if info.status != "running":
                if slept is None or slept[0] != info.head:
                    slept = info.head, await load(host, run_id)
                if not host.watched.waits_on(slept[1].machine):
                    return slept[1]
                await host.watched.change(run_id)
                continue
            # Between two holders there may be a moment without one.
            idle = not waits_to_be_taken_up(info) and not is_held(await host.store.lease(run_id))
            if idle and host.watched.retries(run_id):
                await host.watched.change(run_id)
                continue
            missing = missing + 1 if idle else 0
            if missing > 3:
                return await load(host, run_id)
            await anyio.sleep(LOOK)
    assert scope.cancelled_caught
    raise TimeoutError(f"run {run_id!r} has neither ended nor paused after {limit} s; it continues")


async def take_up(host: Host, run_id: str, manner: Manner) -> Drive | None:
    """Have a run go on: return it, taken up and to be driven by the caller; None if it is driven here already.

    Raises:
        see `Executor.resume`
    """
    check_risk(manner.approve)
    live = host.live.get(run_id)
    if live is not None and not live.log.closing:
        if manner.migrate is not None:
            raise RunConflict(run_id, "this executor drives it in the graph that it has: pause it, then migrate it")
        graph = live.machine.plan.graph
        live.stops = None if graph is None else stops_of(manner, graph)
        # Else it is not taken up by this, it just goes on.
        if live.machine.paused or manner.approve is not None or live.stops is not None:
            host.resumed(live, manner.approve)
            live.answer_by_policy()
        change_limits(live.log, manner.limits)
        return None
    if live is not None:
        await live.done.wait()
    await _forgive(host, run_id)
    live = await host.open(run_id, manner)
    host.resumed(live, manner.approve)
    return live


async def resume(host: Host, run_id: str, manner: Manner, *, background: bool = False) -> Run:
    """See `Executor.resume`."""
    live = await take_up(host, run_id, manner)
    if background:
        return await go_on(host, run_id, live)
    return await (wait_for(host, run_id, None) if live is None else drive_on(host, live))


async def go_on(host: Host, run_id: str, live: Drive | None) -> Run:
    """Drive a run in the background and return it as it is once what was said to it is durable.

    Args:
        live: the run if it was taken up here, and is driven from now on; None: it is driven already.
    """
    if live is not None:
        host.background().start_soon(host.drive_alone, live)
    live = live or host.live.get(run_id)
    if live is not None:
        with contextlib.suppress(Exception):  # the drive has the same error, and `wait` raises it
            await live.log.durable()
    return await load(host, run_id)


async def _forgive(host: Host, run_id: str) -> None:
    """Forget that drives of a run were given up, where someone asks for it to go on: back-off begins from the start."""
    info = await host.store.info(run_id)
    if info.deaths and not is_held(info.lease):
        hold = await leases.take(host.presence, run_id, stopping=lambda: host.stopping)
        await leases.give_back(host.store, run_id, hold.token)


async def recover(host: Host, only: Collection[str] | None) -> list[Run]:
    """See `Executor.recover`."""
    found: dict[str, Run] = {}

    async def recover_one(run_id: str) -> None:
        live: Drive | None = None
        try:
            live = await host.open(run_id)
            host.resumed(live, unpause=False)
            found[run_id] = await host.drive(live)
        except (RunConflict, RunEnded):
            return  # somebody else was quicker
        except Exception as error:  # whatever it is, the other runs go on
            if live is not None:
                host.watched.retry(live)
            log.warning("run %s cannot be recovered: %s", run_id, error)

    async def all_of(runs: Collection[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for run_id in runs:
                tasks.start_soon(recover_one, run_id)

    wanted = [one for one in await lost(host, host.resources.graphs) if only is None or one in only]
    # Runs that others called go on when those make their calls again; what is left then goes on by itself.
    inner = [one for one in wanted if (await host.store.info(one)).labels.get("parent") in wanted]
    await all_of([one for one in wanted if one not in inner])
    if inner:
        left = await lost(host, host.resources.graphs)
        await all_of([one for one in inner if one in left])
    await call_observers(host)
    return list(found.values())


async def call_observers(host: Host) -> bool:
    """Call observers about runs that were driven by processes which are gone and did not call them.

    Returns:
        Whether other processes are still to call their observers.
    """
    if not host.observation:
        return False
    notices = host.observation.notices
    for one in await notices.take_over(host.resources.graphs, host.resources.clock.now()):
        try:
            await host.observation.call_about(await load(host, one.info.run_id), one.notice)
        except OrchestratorError as error:  # it is damaged, or was deleted
            log.warning("run %s: its observers are not called: %s", one.info.run_id, error)
    return notices.others


async def lost(host: Host, graphs: Collection[str] | None) -> list[str]:
    """Runs (of graphs of these names) that could go on and that nobody drives, the oldest first."""
    known = [info for info in await host.store.unsettled(graphs) if info.run_id not in host.live]
    messages = await host.store.inbox([info.run_id for info in known])
    addressed = {message.run_id for message in messages if message.body.get("type") != NOTICE}
    found: list[str] = []
    for info in known:
        lost_by_its_holder = info.status == "running" and info.due is None
        recoverable = lost_by_its_holder or host.standstill.overdue(info) or info.run_id in addressed
        backs_off = info.retry_at is not None and info.retry_at > time.time()
        if recoverable and not backs_off and not is_parked(info) and not is_held(info.lease):
            found.append(info.run_id)
    return found

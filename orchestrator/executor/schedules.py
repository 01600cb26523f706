"""Schedules: rows of a store with the times at which runs of a graph start. Workers enqueue the runs.

A run's id is made of the schedule's name and the time. Enqueueing it again gives the same run, so a time never fires
twice: not by two workers, and not by a worker that was killed before it moved the schedule to its next time.

The times are cron expressions in a time zone, by the library `cronsim`, which follows Debian's cron. Where clocks are
put forward, a time in the missing hour is moved after it; where they are put back, a time in the repeated hour comes
once, unless the expression runs every minute or hour.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orchestrator.errors import EncryptionKeyMissing, GraphUnknown, InvalidValue, RunExists, StoreError, install_command
from orchestrator.executor.host import Host
from orchestrator.executor.options import RunOptions
from orchestrator.executor.start import Recorded, check_new_id, enqueue_draft, initial_values, new_run
from orchestrator.graph.model import GraphDefinition
from orchestrator.stores.base import Schedule
from orchestrator.stores.codec import encoded_in, key_of
from orchestrator.user_code import contained
from orchestrator.values import check_text, new_labels

if TYPE_CHECKING:
    from collections.abc import Iterator


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the first time of an expression after a time, in Unix seconds.

    Args:
        cron: five fields (minute, hour, day of month, month, day of week), or six with seconds first.
        timezone: the name of a time zone, such as `Europe/Vienna`.
        after: Unix seconds.

    Raises:
        InvalidValue: the expression or the time zone is wrong, or the expression has no further time.
        ImportError: the library is not installed.
    """
    return next(_times(cron, timezone, after))


def missed_times(cron: str, timezone: str, first: float, now: float, most: int) -> tuple[list[float], float]:
    """Return the times of an expression from `first` to now, at most the latest `most` of them, and the next one.

    Args:
        first: a time of the expression, Unix seconds.
        now: Unix seconds.

    Raises:
        InvalidValue, ImportError: see `next_time`.
    """
    found: list[float] = []
    upcoming = first
    times = _times(cron, timezone, first)
    while upcoming <= now:
        found.append(upcoming)
        del found[:-most]
        upcoming = next(times)
    return found, upcoming


def _times(cron: str, timezone: str, after: float) -> Iterator[float]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError(f"schedules need the extra `schedule`: {install_command('schedule')}") from error

    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidValue(
            f"time zone {timezone!r} is not known; use a name such as 'UTC' or 'Europe/Vienna'", where="timezone"
        ) from None
    try:
        upcoming = CronSim(cron, datetime.fromtimestamp(after, zone))
        first = next(upcoming)
    except CronSimError as error:
        why = str(error)[:1].lower() + str(error)[1:]
        raise InvalidValue(
            f"cron expression {cron!r}: {why}; use five fields, such as '30 6 * * 1-5' (minute, hour, day of month, "
            "month, day of week)",
            where="cron",
        ) from None
    except StopIteration:
        raise InvalidValue(f"cron expression {cron!r} has no time in the next 50 years", where="cron") from None

    def seconds() -> Iterator[float]:
        yield first.astimezone(UTC).timestamp()
        for one in upcoming:
            yield one.astimezone(UTC).timestamp()

    return seconds()


log = logging.getLogger("orchestrator")

CatchUp = Literal["skip", "one", "all"]
ON_TIME = 60.0
"""Seconds after which a due time counts as missed."""
MOST = 1000
"""Maximum number of missed times of one schedule that are caught up, the latest ones."""
_LONGEST = 150
"""Maximum length of a schedule's name: the time follows it in the ids of runs."""


async def put(
    host: Host,
    graph: GraphDefinition | str,
    cron: str,
    given: object,
    *,
    name: str | None,
    timezone: str,
    catch_up: str,
    labels: Mapping[str, str] | None,
    approve: str | None,
) -> Schedule:
    """See `ExecutorSchedules.put`."""
    for what, value in (("cron", cron), ("timezone", timezone)):
        check_text(value, what)
    found = graph if isinstance(graph, GraphDefinition) else host.resources.graph(graph)
    chosen = check_new_id(name if name is not None else found.name)
    if len(chosen) > _LONGEST:
        raise InvalidValue(
            f"a schedule's name has at most {_LONGEST} characters, but this one has {len(chosen)}", where="name"
        )
    if catch_up not in get_args(CatchUp):
        raise InvalidValue(f"catch_up={catch_up!r}: use 'skip', 'one' or 'all'", where="catch_up")
    marks = dict(labels or {})
    new_labels({**marks, "schedule": chosen})  # in the form that its runs have
    schedule = Schedule(
        name=chosen,
        graph=found.name,
        cron=cron,
        timezone=timezone,
        catch_up=catch_up,
        values=dict(
            initial_values(found, given)
        ),  # a fault in the input is reported now, not when the first run is due
        labels=marks,
        approve=approve,
        next_at=next_time(cron, timezone, host.resources.clock.now()),
    )
    known = await _named(host, chosen)
    if known is not None:
        schedule = replace(schedule, paused=known.paused)
        if replace(known, next_at=schedule.next_at) == schedule:
            return known  # unchanged: its next time stays
    await host.store.put_schedule(schedule)
    return schedule


async def pause(host: Host, name: str, *, paused: bool) -> Schedule | None:
    """Pause a schedule, or resume it with its first time from now on; None if there is no schedule with this name."""
    found = await _named(host, name)
    if found is None or found.paused == paused:
        return found
    if not paused:  # times that passed meanwhile do not count as missed
        found = replace(found, next_at=next_time(found.cron, found.timezone, host.resources.clock.now()))
    found = replace(found, paused=paused)
    await host.store.put_schedule(found)
    return found


async def _named(host: Host, name: str) -> Schedule | None:
    return next((one for one in await host.store.schedules() if one.name == name), None)


def waits_for(host: Host, schedule: Schedule) -> bool:
    """Return True if workers of this executor start the runs of a schedule."""
    return not schedule.paused and schedule.graph in host.resources.graphs


async def fire_due(host: Host) -> list[str]:
    """Enqueue the runs of all schedules that are due, for the graphs that this executor has.

    Returns:
        The ids of the runs.

    Raises:
        StoreError: the store cannot be read or written.
    """
    now = host.resources.clock.now()
    begun: list[str] = []
    for schedule in await host.store.schedules():
        if schedule.next_at <= now and waits_for(host, schedule):
            try:
                with contained():
                    begun += await _fire(host, schedule, now)
            except StoreError:
                raise
            except Exception as error:  # an error must not stop the other schedules
                log.warning("schedule %s: %s", schedule.name, error)
    return begun


async def _fire(host: Host, schedule: Schedule, now: float) -> list[str]:
    text = encoded_in(schedule.values)
    if text is not None:
        what = f"schedule {schedule.name!r}"
        log.warning("%s", EncryptionKeyMissing(what, key_of(text)))
        return []  # a worker that has the key starts its runs
    times, upcoming = missed_times(schedule.cron, schedule.timezone, schedule.next_at, now, MOST)
    begun = []
    for at in _chosen(times, schedule.catch_up, now):
        run_id = run_id_of(schedule.name, at)
        try:
            labels = {**schedule.labels, "schedule": schedule.name}
            options = RunOptions(run_id=run_id, labels=labels, approve=schedule.approve)
            new = await new_run(host, schedule.graph, Recorded(schedule.values), options)
            begun.append(await enqueue_draft(host, new, None))
        except RunExists:
            continue  # the schedule was changed after this time had fired
        except GraphUnknown as error:
            log.warning("schedule %s: %s", schedule.name, error)
            return begun  # another worker may have the missing code: the time stays due
    await host.store.move_schedule(schedule.name, at=schedule.next_at, to=upcoming)
    return begun


def _chosen(times: list[float], catch_up: str, now: float) -> list[float]:
    """Return the times that fire: those on time always, missed ones as the schedule specifies."""
    on_time = [at for at in times if now - at <= ON_TIME]
    missed = times[: len(times) - len(on_time)]
    if catch_up == "all":
        return times
    if catch_up == "one" and missed and not on_time:
        return missed[-1:]
    return on_time


def run_id_of(name: str, at: float) -> str:
    """Return the id of the run that a schedule starts at a time, in Unix seconds."""
    return f"{name}.{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}"

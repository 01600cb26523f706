"""Times of schedules: cron expressions in a time zone. Pure, by the library `cronsim`, which follows Debian's cron.

Where clocks are put forward, a time in the missing hour is moved behind it; where they are put back, a time in the
repeated hour comes once, unless the expression runs every minute or hour.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orchestrator.distribution import install
from orchestrator.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the first time of an expression behind a time, in Unix seconds.

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
        raise ImportError(f"schedules need the extra `schedule`: {install('schedule')}") from error

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

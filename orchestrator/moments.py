"""Moments in Unix seconds, within the calendar: a store of a stranger may say any number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EARLIEST = -62135596800.0
"""The first second of the year 1, Unix seconds."""

LATEST = 253402300799.0
"""The last second of the year 9999, Unix seconds: calendars end there."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_calendar(seconds: object) -> float:
    """A moment that was read, or the nearest one of the calendar; what is no number is 1970."""
    if not isinstance(seconds, int | float):
        return 0.0
    return float(min(max(EARLIEST, seconds), LATEST))  # in this order NaN is a moment, too


def utc(seconds: float) -> datetime:
    """A moment as date and time in UTC."""
    return _EPOCH + timedelta(seconds=in_calendar(seconds))

"""Times on the command line: ages such as `30d`, and dates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from orchestrator.cli.exits import UsageError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")


def moment(text: str, option: str) -> datetime:
    """The time that an option names: an age before now, or a date, local if it has no time zone.

    Raises:
        UsageError: it is neither.
    """
    found = _AGE.fullmatch(text.strip())
    try:
        if found is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: float(found[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{option} {text}: use an age (30d, 12h, 45m, 20s, 2w) or a date (2026-01-31, 2026-01-31T08:00)"
        ) from None


def seconds(text: str, option: str) -> float:
    """The seconds of an age such as `30d`.

    Raises:
        UsageError: it is none.
    """
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: use an age (30d, 12h, 45m, 20s, 2w)")
    return timedelta(**{_UNITS[found[2]]: float(found[1])}).total_seconds()

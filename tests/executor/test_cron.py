"""Times of schedules: cron expressions in a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from orchestrator.errors import InvalidValue
from orchestrator.executor.schedules import missed_times, next_time


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("cron", "zone", "after", "upcoming"),
    [
        ("30 6 * * 1-5", "UTC", "2026-11-20 07:00", "2026-11-23 06:30"),
        ("*/15 * * * *", "UTC", "2026-11-22 10:00", "2026-11-22 10:15"),
        ("0 9 * * *", "Europe/Vienna", "2026-03-28 12:00", "2026-03-29 09:00"),
        ("30 2 * * *", "Europe/Vienna", "2026-03-28 12:00", "2026-03-29 03:00"),  # the hour from 2 to 3 is missing
        ("0 0 29 2 *", "UTC", "2026-11-22 10:00", "2028-02-29 00:00"),
        ("*/10 * * * * *", "UTC", "2026-11-22 10:00:01", "2026-11-22 10:00:10"),
    ],
)
def test_the_next_time_follows_the_time_zone(cron: str, zone: str, after: str, upcoming: str) -> None:
    assert next_time(cron, zone, at(after, zone)) == at(upcoming, zone)


def test_a_repeated_hour_counts_once() -> None:
    first = next_time("30 2 * * *", "Europe/Vienna", at("2026-10-24 12:00", "Europe/Vienna"))
    second = next_time("30 2 * * *", "Europe/Vienna", first)
    assert second - first >= 24 * 3600


def test_missed_times_are_the_latest_of_them() -> None:
    first, now = at("2026-11-22 10:00"), at("2026-11-22 10:07:30")
    found, upcoming = missed_times("* * * * *", "UTC", first, now, 3)
    assert found == [at("2026-11-22 10:05"), at("2026-11-22 10:06"), at("2026-11-22 10:07")]
    assert upcoming == at("2026-11-22 10:08")
    assert missed_times("* * * * *", "UTC", upcoming, now, 3) == ([], upcoming)


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("61 * * * *", "UTC", "bad minute"), ("* * *", "UTC", "wrong number of fields"), ("", "UTC", "fields"),
        ("0 0 31 2 *", "UTC", "day-of-month"), ("* * * * *", "Mars/Base", "Mars/Base"),
        ("* * * * *", "../etc/passwd", "time zone"), ("* * * * *", "\0", "time zone"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(cron: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        next_time(cron, zone, 0.0)

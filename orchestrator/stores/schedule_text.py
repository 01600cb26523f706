"""Schedules as the rows of databases have them: what they do is one text."""

from __future__ import annotations

import json

from orchestrator.errors import InvalidValue
from orchestrator.jsontypes import canonical
from orchestrator.stores.base import Schedule
from orchestrator.values import in_calendar


def schedule_text(schedule: Schedule) -> str:
    """All of a schedule but its name and its next time."""
    data = {
        "graph": schedule.graph, "cron": schedule.cron, "timezone": schedule.timezone, "catch_up": schedule.catch_up,
        "values": dict(schedule.values), "labels": dict(schedule.labels), "approve": schedule.approve,
        "paused": schedule.paused,
    }  # fmt: skip
    return canonical(data)


def schedule_of(name: str, next_at: object, data: object) -> Schedule:
    """A schedule by its row.

    Raises:
        InvalidValue: the row is damaged.
    """
    try:
        fields = json.loads(str(data))
        if not isinstance(next_at, float) or in_calendar(next_at) != next_at:
            raise ValueError(f"its next time is {next_at!r}")
        return Schedule(name=name, next_at=next_at, **fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(str(error), where=name) from error

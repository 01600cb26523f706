"""Schedules, as functions of a connection."""

from __future__ import annotations

import json
import math
import sqlite3

from orchestrator.errors import InvalidValue, StoreError
from orchestrator.jsontypes import canonical
from orchestrator.stores.base import Schedule


def put(connection: sqlite3.Connection, schedule: Schedule) -> None:
    """See `Store.put_schedule`."""
    data = {
        "graph": schedule.graph, "cron": schedule.cron, "timezone": schedule.timezone, "catch_up": schedule.catch_up,
        "values": dict(schedule.values), "labels": dict(schedule.labels), "approve": schedule.approve,
        "paused": schedule.paused,
    }  # fmt: skip
    connection.execute(
        "INSERT OR REPLACE INTO schedules (name, next_at, data) VALUES (?, ?, ?)",
        (schedule.name, schedule.next_at, canonical(data)),
    )


def listed(connection: sqlite3.Connection, url: str) -> list[Schedule]:
    """See `Store.schedules`."""
    found = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            found.append(read(name, next_at, data))
        except InvalidValue as error:
            raise StoreError(f"store {url}: schedule {name!r} is damaged; remove it and schedule it again") from error
    return found


def read(name: str, next_at: object, data: object) -> Schedule:
    """A schedule by its row.

    Raises:
        InvalidValue: the row is damaged.
    """
    try:
        fields = json.loads(str(data))
        if not isinstance(next_at, float) or not math.isfinite(next_at):
            raise ValueError(f"its next time is {next_at!r}")
        return Schedule(name=name, next_at=next_at, **fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(str(error), where=name) from error


def move(connection: sqlite3.Connection, name: str, at: float, to: float) -> bool:
    """See `Store.move_schedule`."""
    changed = connection.execute("UPDATE schedules SET next_at = ? WHERE name = ? AND next_at = ?", (to, name, at))
    return changed.rowcount == 1


def delete(connection: sqlite3.Connection, name: str) -> bool:
    """See `Store.delete_schedule`."""
    return connection.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount == 1

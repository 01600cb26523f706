"""Schedules, as functions of a connection."""

from __future__ import annotations

import sqlite3

from orchestrator.errors import InvalidValue, StoreError
from orchestrator.stores.base import Schedule
from orchestrator.stores.stored import schedule_of, schedule_text


def put(connection: sqlite3.Connection, schedule: Schedule) -> None:
    """See `Store.put_schedule`."""
    connection.execute(
        "INSERT OR REPLACE INTO schedules (name, next_at, data) VALUES (?, ?, ?)",
        (schedule.name, schedule.next_at, schedule_text(schedule)),
    )


def listed(connection: sqlite3.Connection, url: str) -> list[Schedule]:
    """See `Store.schedules`."""
    found = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            found.append(schedule_of(name, next_at, data))
        except InvalidValue as error:
            raise StoreError(f"store {url}: schedule {name!r} is damaged; remove it and schedule it again") from error
    return found


def move(connection: sqlite3.Connection, name: str, at: float, to: float) -> bool:
    """See `Store.move_schedule`."""
    changed = connection.execute("UPDATE schedules SET next_at = ? WHERE name = ? AND next_at = ?", (to, name, at))
    return changed.rowcount == 1


def delete(connection: sqlite3.Connection, name: str) -> bool:
    """See `Store.delete_schedule`."""
    return connection.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount == 1

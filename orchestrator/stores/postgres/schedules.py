"""Schedules, as functions of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValue, StoreError
from orchestrator.stores.base import Schedule
from orchestrator.stores.stored import schedule_of, schedule_text

if TYPE_CHECKING:
    from orchestrator.stores.postgres.connections import Connection


def put(connection: Connection, schedule: Schedule) -> None:
    """See `Store.put_schedule`."""
    connection.execute(
        "INSERT INTO schedules (name, next_at, data) VALUES (%s, %s, %s)"
        " ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, data = excluded.data",
        (schedule.name, schedule.next_at, schedule_text(schedule)),
    )


def listed(connection: Connection, url: str) -> list[Schedule]:
    """See `Store.schedules`."""
    found = []
    for name, schedule in read_all(connection):
        if schedule is None:
            raise StoreError(f"store {url}: schedule {name!r} is damaged; remove it and schedule it again")
        found.append(schedule)
    return found


def read_all(connection: Connection) -> list[tuple[str, Schedule | None]]:
    """The names of all schedules, and the schedules; None: the row is damaged."""
    found: list[tuple[str, Schedule | None]] = []
    for name, next_at, data in connection.execute("SELECT name, next_at, data FROM schedules ORDER BY name"):
        try:
            found.append((name, schedule_of(name, next_at, data)))
        except InvalidValue:
            found.append((name, None))
    return found


def move(connection: Connection, name: str, at: float, to: float) -> bool:
    """See `Store.move_schedule`."""
    changed = connection.execute("UPDATE schedules SET next_at = %s WHERE name = %s AND next_at = %s", (to, name, at))
    return changed.rowcount == 1


def delete(connection: Connection, name: str) -> bool:
    """See `Store.delete_schedule`."""
    return connection.execute("DELETE FROM schedules WHERE name = %s", (name,)).rowcount == 1

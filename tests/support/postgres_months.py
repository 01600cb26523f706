"""Months of a PostgreSQL store: moving the calendar, what is on the disk, and processes that die in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from orchestrator.stores.postgres import record_partitions, writes
from tests.support.postgres import PostgresDatabase

_CLOCK = record_partitions.THIS_MONTH


def move_calendar(monkeypatch: pytest.MonkeyPatch, months_on: int) -> None:
    """Have the database be in another month for this process, so many behind the present one."""
    for module in (record_partitions, writes):
        monkeypatch.setattr(module, "THIS_MONTH", f"({_CLOCK} + {months_on})")


def month(database: PostgresDatabase, months_on: int = 0) -> int:
    """The present month of a database, or one behind it."""
    ((now,),) = database.execute(f"SELECT {_CLOCK}")
    return int(now) + months_on


def partitions(database: PostgresDatabase) -> list[str]:
    """The names of the partitions of `records`."""
    rows = database.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
        " WHERE inhparent = 'records'::regclass ORDER BY 1"
    )
    return [name for (name,) in rows]


def month_of_run(database: PostgresDatabase, run_id: str) -> int:
    """The month to which a run is counted."""
    ((number,),) = database.execute(f"SELECT id FROM runs WHERE run_id = '{run_id}'")
    return record_partitions.month_of(int(number))


def room(database: PostgresDatabase, name: str) -> int:
    """Bytes of a partition and its index on the disk."""
    ((size,),) = database.execute(f"SELECT pg_total_relation_size('{name}')")
    return int(size)


def paths(database: PostgresDatabase, name: str) -> list[str]:
    """The files of a partition, of its long records and of their indexes."""
    rows = database.execute(
        f"SELECT pg_relation_filepath(oid) FROM pg_class WHERE oid = '{name}'::regclass OR oid ="
        f" (SELECT reltoastrelid FROM pg_class WHERE oid = '{name}'::regclass)"
        f" OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = '{name}'::regclass)"
    )
    return [str(path) for (path,) in rows]


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Work in a process that is killed when it is about to send its n-th statement; whether it came so far."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(number)
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def _die_at(number: int) -> None:
    sent = 0
    execute: Any = psycopg.Connection.execute

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(self, *args, **options)

    psycopg.Connection.execute = counted  # type: ignore[method-assign]

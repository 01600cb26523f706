"""Months of a PostgreSQL store: moving the calendar, files of partitions, and processes that are killed midway."""

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
    """Move the database's calendar, for this process, this many months ahead."""
    for module in (record_partitions, writes):
        monkeypatch.setattr(module, "THIS_MONTH", f"({_CLOCK} + {months_on})")


def month(database: PostgresDatabase, months_on: int = 0) -> int:
    """Return the number of a database's present month, or of one this many months later."""
    ((now,),) = database.execute(f"SELECT {_CLOCK}")
    return int(now) + months_on


def partitions(database: PostgresDatabase) -> list[str]:
    """Return the names of the partitions of `records`."""
    rows = database.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
        " WHERE inhparent = 'records'::regclass ORDER BY 1"
    )
    return [name for (name,) in rows]


def month_of_run(database: PostgresDatabase, run_id: str) -> int:
    """Return the month whose partition has a run's records."""
    ((number,),) = database.execute(f"SELECT id FROM runs WHERE run_id = '{run_id}'")
    return record_partitions.month_of(int(number))


def room(database: PostgresDatabase, name: str) -> int:
    """Return the bytes on disk of a partition and its indexes."""
    ((size,),) = database.execute(f"SELECT pg_total_relation_size('{name}')")
    return int(size)


def paths(database: PostgresDatabase, name: str) -> list[str]:
    """Return the files of a partition, of its long records and of their indexes."""
    rows = database.execute(
        f"SELECT pg_relation_filepath(oid) FROM pg_class WHERE oid = '{name}'::regclass OR oid ="
        f" (SELECT reltoastrelid FROM pg_class WHERE oid = '{name}'::regclass)"
        f" OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = '{name}'::regclass)"
    )
    return [str(path) for (path,) in rows]


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Do work in a process that is killed before it sends its n-th statement. Return True if it was killed."""
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

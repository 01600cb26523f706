"""The upgrade of stores with many runs, on both databases: the seconds that it takes, and that every run is there.

    python -m tests.stores.upgrade_figures [RUNS]

The stores are written by today's code, and then have the tables of the oldest version that is read.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psycopg

from orchestrator.stores import NewRun, Store, open_store
from orchestrator.stores.postgres import schema as database_schema
from orchestrator.stores.sqlite import schema
from orchestrator.stores.upgrading import back_up, tables_of, upgrade
from orchestrator.testing.store_conformance.helpers import events, new_run
from tests.support.postgres import PostgresServer

AT_ONCE = 200
RECORDS = 5


async def fill(store: Store, runs: int) -> None:
    """Add runs of some records each."""

    async def add() -> None:
        info, records = new_run(labels={"user": "ann"})
        records += events(2, RECORDS - 1)
        await store.create(NewRun(replace(info, head=RECORDS), records))

    for _ in range(runs // AT_ONCE):
        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(add)
    await store.close()


def counted(url: str) -> tuple[int, int, int]:
    """Runs, records and the sum of the records' checksums."""
    query = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM records), (SELECT sum(crc) FROM records)"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return tuple(file.execute(query).fetchone())  # type: ignore[return-value]

    with psycopg.connect(url) as connection:
        return tuple(map(int, connection.execute(query.encode()).fetchone() or ()))  # type: ignore[return-value]


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measured(url: str) -> float:
    """Upgrade a store, and check that its runs are what they were; return the seconds of the upgrade."""
    before = counted(url)
    assert tables_of(url).steps
    took = seconds(lambda: upgrade(url))
    assert tables_of(url).steps == ()
    assert counted(url) == before, (before, counted(url))
    return took


def main(runs: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        url = f"sqlite:///{path}"
        anyio.run(fill, open_store(url), runs)
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("DROP TABLE notes")
            file.execute(f"PRAGMA user_version = {schema.OLDEST}")
        size = path.stat().st_size / 1e6
        copied = seconds(lambda: back_up(url, Path(folder) / "backup.db"))
        print(f"SQLite: {runs:,} runs, {size:.0f} MB: backup {copied:.1f} s, upgrade {measured(url):.3f} s", flush=True)
        assert counted(f"sqlite:///{folder}/backup.db") == counted(url)
    server = PostgresServer.make(durable=True)
    try:
        server.create_database("many", tables=False)
        url = server.url("many")
        anyio.run(fill, open_store(url), runs)
        with psycopg.connect(server.conninfo("many"), autocommit=True) as connection:
            connection.execute("DROP TABLE notes")
            connection.execute(f"UPDATE orchestrator_schema SET version = {database_schema.OLDEST}".encode())
        print(f"PostgreSQL: {runs:,} runs: upgrade {measured(url):.3f} s", flush=True)
    finally:
        server.remove()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

"""The tables of a database are made by a process that may die at any point, and limits of statements end nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from orchestrator.stores import open_store
from orchestrator.stores.postgres.connections import address_of, connect
from orchestrator.stores.postgres.schema import VERSION, make_tables, version_of
from tests.stores.runs import add_run, events
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_months import killed_at, month, month_of_run, partitions
from tests.support.sizes import sized

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def empty(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database without tables."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    return postgres


async def test_a_process_dies_while_it_makes_the_tables(empty: PostgresDatabase) -> None:
    """Killed before any of its statements: the database has no tables, or all of them."""

    def make() -> None:
        connect(address_of(empty.url)).close()

    numbers = sized([1, 20, 60], range(1, 1000))
    for number in numbers:
        killed = killed_at(number, make)
        with closing(psycopg.connect(empty.url, autocommit=True)) as connection:
            assert version_of(connection) in (0, VERSION)
            assert (version_of(connection) == VERSION) == (empty.execute("SELECT to_regclass('runs')") != [(None,)])
        if not killed:
            break
    make()
    assert empty.execute("SELECT version FROM orchestrator_schema") == [(VERSION,)]


async def test_a_process_dies_before_the_first_month_begins(empty: PostgresDatabase) -> None:
    """New runs are counted to the time before there were months, until one is added."""
    with closing(psycopg.connect(empty.url, autocommit=True)) as connection:
        make_tables(connection, empty.url)
    assert partitions(empty) == ["records_earlier"]
    store = open_store(empty.url)
    await add_run(store, "a")
    await add_run(store, "b")
    assert [month_of_run(empty, name) for name in "ab"] == [0, month(empty)]
    assert await store.read("a") == events(1)
    await store.close()


async def test_a_limit_for_statements_ends_no_check(postgres: PostgresDatabase) -> None:
    """The server ends a statement of this user after half a second, which is too little for a large table."""
    store = open_store(postgres.url_with(options="-cstatement_timeout%3D500"))
    for repair in (False, True):
        with held(postgres, "payload_uses", "ACCESS EXCLUSIVE"):
            assert await store.check(repair=repair) == []
    await store.close()


@contextmanager
def held(database: PostgresDatabase, table: str, mode: str) -> Iterator[None]:
    """Hold a lock of a table for a second, after which others have it."""
    with psycopg.connect(database.conninfo) as connection:
        connection.execute(f"LOCK TABLE {table} IN {mode} MODE".encode())
        timer = threading.Timer(1.0, connection.commit)
        timer.start()
        try:
            yield
        finally:
            timer.join(60)

"""Stores that tests and their processes open by URL, of each kind: a file, or a database of the tests' server."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.stores import open_store
from tests.support.postgres import PostgresServer
from tests.support.sizes import sized

KINDS = ("sqlite", "postgresql")


class Places:
    """Makes the stores of a test, and removes them."""

    def __init__(self, folder: Path, server: Callable[[], PostgresServer] | None) -> None:
        self._folder, self._server = folder, server
        self._count = 0
        self._databases: dict[str, str] = {}

    def new(self) -> str:
        """Return the URL of a new, empty store."""
        self._count += 1
        if self._server is None:
            return f"sqlite:///{self._folder}/runs{self._count}.db"
        name = f"test_{time.monotonic_ns()}"
        self._server().create_database(name)
        url = self._server().url(name)
        self._databases[url] = name
        return url

    def drop(self, url: str) -> None:
        """Remove a store that is a database; a file is kept."""
        if self._server is not None:
            self._server().drop_database(self._databases.pop(url))

    def drop_all(self) -> None:
        """Remove all stores that are databases."""
        for url in [*self._databases]:
            self.drop(url)


@pytest.fixture(params=sized(KINDS[:1], KINDS))
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Stores of one kind: files; with `--full` also databases; see `kinds`."""

    def server() -> PostgresServer:
        found: PostgresServer = request.getfixturevalue("postgres_server")
        return found

    found = Places(tmp_path, server if request.param == "postgresql" else None)
    yield found
    found.drop_all()


@pytest.fixture
def url(places: Places) -> str:
    """The URL of an empty store; see `places`."""
    return places.new()


def kinds(*quick: str) -> pytest.MarkDecorator:
    """Run a test that has `places` or `url` on stores of these kinds; with `--full` on all."""
    return pytest.mark.parametrize("places", sized(quick, KINDS), indirect=True)


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement of standard SQL in the database of a store, and return its rows."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            return file.execute(statement).fetchall()
    import psycopg

    with closing(psycopg.connect(url, autocommit=True)) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def in_a_transaction(url: str) -> bool:
    """Return True if any process is writing to a store now."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), 0, isolation_level=None)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False
    return bool(
        execute(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
            "AND state <> 'idle' AND pid <> pg_backend_pid()",
        )
    )


def assert_at_rest(url: str, run_ids: Collection[str]) -> None:
    """Check a store whose runs have ended: it is sound, no executor holds a run, and no message is left."""

    async def look() -> None:
        store = open_store(url)
        try:
            assert [finding for finding in await store.check() if not finding.note] == []
            assert [await store.lease(run_id) for run_id in run_ids] == [None] * len(run_ids)
            assert await store.inbox(run_ids) == []
        finally:
            await store.close()

    anyio.run(look)
    if url.startswith("sqlite:"):
        assert execute(url, "PRAGMA integrity_check") == [("ok",)]

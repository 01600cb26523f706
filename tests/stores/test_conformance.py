"""All stores keep every promise of the kit that is shipped to writers of stores."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing.store_conformance import STORE_CHECKS, StoreCheck, check_linear_bytes, check_store
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(_url(request, tmp_path))
    yield store
    await store.close()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "postgres":
        database: PostgresDatabase = request.getfixturevalue("postgres")
        return database.url
    return "memory://" if request.param == "memory" else f"sqlite:///{folder}/dir/runs.db"


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_promise(check: StoreCheck, store: Store) -> None:
    await check(store)


@pytest.mark.full
@quick_on("asyncio")
async def test_all_checks_run_twice_on_one_file(tmp_path: Path) -> None:
    async def open_file() -> Store:
        return open_store(f"sqlite:///{tmp_path}/runs.db")

    for _ in range(2):
        await check_store(open_file)


@pytest.mark.full  # each check has a database of its own above
@quick_on("trio")
async def test_all_checks_run_twice_on_one_database(postgres: PostgresDatabase) -> None:
    async def open_database() -> Store:
        return open_store(postgres.url)

    for _ in range(2):
        await check_store(open_database)


@quick_on("trio")
async def test_a_file_grows_linearly(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def stored_bytes(store: Store) -> int:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size

    store = open_store(f"sqlite:///{path}")
    try:
        await store.put_graph("makes the file", {})
        await check_linear_bytes(store, stored_bytes)
    finally:
        await store.close()


@pytest.mark.full
@quick_on("asyncio")
async def test_a_broken_promise_is_named() -> None:
    class Forgetful(MemoryStore):
        async def discard(self, ids: Sequence[int]) -> None:
            """Does not."""

    async def open_forgetful() -> Store:
        return Forgetful()

    with pytest.raises(AssertionError, match=r"^check_inbox: messages after discard"):
        await check_store(open_forgetful)

"""What is particular to the store in PostgreSQL: batches, and a password that nobody sees."""

from __future__ import annotations

import pytest

from orchestrator.errors import StoreUnavailable
from orchestrator.stores import open_store
from tests.support.postgres import PASSWORD, PostgresDatabase

pytestmark = pytest.mark.anyio


async def test_the_url_has_no_password(postgres: PostgresDatabase) -> None:
    store = open_store(postgres.url_with(password=True))
    try:
        assert PASSWORD not in f"{store.url} {store!r}"
    finally:
        await store.close()


async def test_a_wrong_password_is_told(postgres: PostgresDatabase) -> None:
    url = postgres.url_with(password=True).replace(PASSWORD, "wrong-sesame")
    with pytest.raises(StoreUnavailable, match="lets nobody in by this URL") as caught:
        open_store(url)
    assert "wrong-sesame" not in str(caught.value)


async def test_no_server_is_told_at_once(postgres: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_store("postgresql://me@127.0.0.1:1/runs")

"""A store with a codec keeps every promise of the store inside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.stores import Store, open_store
from orchestrator.stores.codec import AESGCMCodec, Clear
from orchestrator.testing.store_conformance import STORE_CHECKS, StoreCheck
from tests.support.postgres import PostgresDatabase
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


@pytest.fixture(params=sized(["sqlite"], ["memory", "sqlite", "postgres"]))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    clear: Clear = "accept" if request.param == "memory" else "refuse"
    store = open_store(_url(request, tmp_path), codec=AESGCMCodec({"k1": bytes(range(32))}, clear=clear))
    yield store
    await store.close()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "postgres":
        database: PostgresDatabase = request.getfixturevalue("postgres")
        return database.url
    return "memory://" if request.param == "memory" else f"sqlite:///{folder}/dir/runs.db"


SEARCHES = {"check_search", "check_search_with_filters"}
"""They look for words in inputs and outputs, which no index of the store has; see test_codec.py."""
CHECKS = [one for one in STORE_CHECKS if one.__name__ not in SEARCHES]


@pytest.mark.parametrize("check", CHECKS[:: sized(3, 1)], ids=lambda one: one.__name__)
async def test_promise(check: StoreCheck, store: Store) -> None:
    await check(store)

"""What several of these tests begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    found = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/runs.db")
    yield found
    await found.close()

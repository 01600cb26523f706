"""What several of these tests begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from orchestrator.executor.calls import irreversible_calls, perform
from orchestrator.executor.calls.under_way import patience
from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore
from tests.support.sizes import FULL


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    found = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/runs.db")
    yield found
    await found.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For nodes that do nothing beside their calls: one that is not asked for within moments never is.

    With `--full` it is waited for as long as in programs.
    """

    def moments() -> Iterator[float]:
        return (seconds for seconds in patience() if not 0.05 < seconds < 1.0)

    if not FULL:
        for module in (perform, irreversible_calls):
            monkeypatch.setattr(module, "patience", moments)

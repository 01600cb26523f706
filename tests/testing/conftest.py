"""How the crash kit starts its processes here."""

from __future__ import annotations

import pytest

from tests.support.kit import fork_processes


@pytest.fixture(autouse=True)
def lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes begin with the imports behind them; with `--full` they begin from nothing, as for its users."""
    fork_processes(monkeypatch, "tests.testing.shop")

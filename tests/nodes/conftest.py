"""Where the runs of these tests are kept."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store; every test that takes it runs once for each kind."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"

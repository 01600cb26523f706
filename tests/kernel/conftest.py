"""`STORM=1 pytest -m storm --storm-scale N` runs the generated graphs N times as often."""

from __future__ import annotations

import contextlib
import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option, unless another folder's conftest did."""
    with contextlib.suppress(ValueError):
        parser.addoption("--storm-scale", type=int, default=1, help="how many times as many rounds the storms run")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "storm: the long form of a test, run only if STORM is set")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without STORM the long forms are not there, so that nothing counts as skipped."""
    if os.environ.get("STORM"):
        return
    long = [item for item in items if item.get_closest_marker("storm")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> int:
    """How many times as many rounds a storm runs."""
    return int(request.config.getoption("--storm-scale", default=1) or 1)

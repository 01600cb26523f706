"""What all tests share. `STORM=1 pytest -m storm --storm-scale N` runs the long forms, N times as many rounds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.models.servers"]
"""Here, so that all tests share one definition: else each folder's would start servers of its own."""

# How quick a machine is, and what else it does just now, is no fault of what is tested.
# `EXAMPLES=100` draws as many examples as hypothesis does by itself; the storm does so.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("EXAMPLES", "40")),
)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the storms."""
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
    return int(request.config.getoption("--storm-scale"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every `@pytest.mark.anyio` test runs on both event loops."""
    return str(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that skipped tests are failures, where they are."""
    if os.environ.get("NO_SKIPS") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("NO_SKIPS is set: a skipped test is a failure here", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With NO_SKIPS a run in which anything was skipped fails: what should run here did not."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NO_SKIPS") and reporter is not None and reporter.stats.get("skipped") and not exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""What all tests share."""

from __future__ import annotations

import os

import pytest


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

"""Fail each test that leaves a thread: the process would wait for it at its end, and it would disturb later tests.

Daemon threads do not count: no process waits for them. Threads of a fixture for a module or a session belong to
the fixture.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

STAYING = {
    "AnyIO worker thread": "ends with its event loop, which may be that of a module's fixture, or when it is idle",
}
"""Threads that may go on, by the beginning of their names, and the reason."""
GRACE = 10.0
"""Seconds for threads to end: who shuts down an executor or closes a loop does not always wait for them."""

_before = pytest.StashKey[frozenset[threading.Thread]]()
_of_fixtures: set[threading.Thread] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note the threads before a test."""
    item.stash[_before] = _running()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Note the threads that a fixture starts that several tests share."""
    before = _running()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _of_fixtures.update(_running() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail if there are further threads after the test's fixtures have ended."""
    yield
    _of_fixtures.intersection_update(_running())
    others = item.stash[_before] | _of_fixtures
    if item.get_closest_marker("browser"):  # the event loop of Playwright, which a fixture of the session holds
        others |= {thread for thread in _running() if thread.name.startswith("asyncio_")}
    until = time.monotonic() + GRACE
    while (left := _running() - others) and time.monotonic() < until:
        time.sleep(0.005)
    if left:
        pytest.fail("\n".join(["the test leaves threads behind:", *map(_told, left)]), pytrace=False)


def _running() -> frozenset[threading.Thread]:
    return frozenset(
        thread for thread in threading.enumerate() if not thread.daemon and not thread.name.startswith((*STAYING,))
    )


def _told(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name}\n{''.join(traceback.format_stack(frame)) if frame else ''}"

"""A time limit for every test: one that hangs fails, with all stacks, and the tests after it run.

pytest-timeout knows the limit of a test (mark, option or `pyproject.toml`) and measures it. Its own ways to end a test
do not end every hang: an exception from a signal handler is lost in a task or leaves a fixture that waits, a test that
failed has no limit while its fixtures end, and stacks that a worker of xdist prints are lost. So here the process ends.
xdist counts this as a failure of the test, and starts another worker.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Iterator
from time import monotonic, sleep
from types import CoroutineType
from typing import NamedTuple

import pytest
import pytest_timeout

LIMITS = {"storm": 3600, "hosts": 900, "peer": 900, "browser": 900}
"""Seconds for a test with this mark; a storm has them for each of its scales. Others have those of `pyproject.toml`."""
FULL = 900
"""Seconds for a test in full size."""
_LATER = 30
"""Seconds after which the process ends without Python: its code may hold the lock of the interpreter."""
_TICK = 0.5
"""Seconds between two looks at the clock, by one thread for all tests: a timer for each costs more than most tests."""


class _Limit(NamedTuple):
    """The current test, its limit, and when that passes."""

    name: str
    seconds: float
    end: float


_limit: _Limit | None = None
_watch: threading.Thread | None = None
_stderr = -1


def pytest_configure(config: pytest.Config) -> None:
    """Keep the file to which stacks are written, before tests capture it."""
    global _stderr
    _stderr = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give long tests more time, unless `--timeout` is given."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        limits = [seconds for mark, seconds in LIMITS.items() if item.get_closest_marker(mark)]
        if config.option.full:
            limits.append(FULL)
        if item.get_closest_marker("storm"):
            limits.append(LIMITS["storm"] * config.option.storm_scale)
        if limits and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(limits)))


@pytest.hookimpl
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Start the time of a test, instead of pytest-timeout."""
    global _limit, _watch
    _limit = _Limit(item.nodeid, settings.timeout, monotonic() + settings.timeout)
    if _watch is None:
        _watch = threading.Thread(target=_keep, name="time limit of the tests", daemon=True)
        _watch.start()
    return True


@pytest.hookimpl
def pytest_timeout_cancel_timer() -> bool:
    """Stop the time of a test."""
    global _limit
    _limit = None
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Start the time again: pytest and pytest-timeout stop it when a test has failed."""
    settings = pytest_timeout._get_item_settings(item)
    if settings.timeout:
        pytest_timeout_set_timer(item, settings)


def _keep() -> None:
    """End the process when a test takes too long; if this thread cannot run then, faulthandler does."""
    while True:
        limit = _limit
        if limit is None or pytest_timeout.is_debugging():
            faulthandler.cancel_dump_traceback_later()
        elif limit.end <= monotonic():
            _end(limit.name, limit.seconds)
        else:
            faulthandler.dump_traceback_later(limit.end - monotonic() + _LATER, exit=True, file=_stderr)
        sleep(_TICK)


def _end(name: str, seconds: float) -> None:
    _say(f"\n++ {name} takes longer than {seconds:g} s. Stacks of its threads:\n")
    faulthandler.dump_traceback(_stderr)
    for stack in _suspended():
        _say(f"++ A coroutine waits:\n{stack}")
    os._exit(1)


def _suspended() -> Iterator[str]:
    """Yield the stacks of coroutines that wait: those of threads show only the event loop."""
    coroutines = [one for one in gc.get_objects() if isinstance(one, CoroutineType) and one.cr_await is not None]
    inner = {id(one.cr_await) for one in coroutines}
    for outer in coroutines:
        one, lines = outer, list[str]()
        while id(outer) not in inner and isinstance(one, CoroutineType) and one.cr_frame is not None:
            lines.append(f'  File "{one.cr_code.co_filename}", line {one.cr_frame.f_lineno} in {one.__qualname__}\n')
            one = one.cr_await
        if lines:
            yield "".join(lines)


def _say(text: str) -> None:
    os.write(_stderr, text.encode("utf-8", "replace"))

"""What all tests share.

Four marks name tests that only `.ci/run` and `.ci/storm` run, with `-m`: `storm`, `browser`, `peer` and `hosts`. A
fifth, `full`, names those that take long. Where they do not run they are left out of the collection, so that nothing
counts as skipped. `timed` tells `.ci/storm` which storms to run alone.

Plain `pytest` is for every change: each law once, in few examples and small sizes, on one event loop and in one store.
A table of several parameters has each value of each of them once, not each combination. What takes long, needs a
database, or starts processes is left out; of the tests that docs/promises.md names as proofs of a promise the first one
runs nevertheless, unless it needs a database. `pytest --full` runs everything, in full sizes, and on both event loops
where they matter (a storm at scale 1 on one). A test that is asked for by its file or its name runs on both, too.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from orchestrator import redaction
from orchestrator.testing import MockClock
from tests.support.processes import starts_processes
from tests.support.tables import in_tables

pytest_plugins = [
    "tests.support.postgres",
    "tests.support.s3",
    "tests.support.servers",
    "tests.support.stores",
    "tests.support.threads",
    "tests.support.time_limit",
]
"""Here, so that all tests share one definition: else each folder's would start servers of its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of the storms."""
    parser.addoption("--storm-scale", type=int, default=1, help="how many times as many rounds the storms run")
    parser.addoption("--costly", action="store_true", help="only tests that start processes or need a database")
    parser.addoption("--full", action="store_true", help="full sizes, more examples, every row on both event loops")


APART = {
    "storm": "the long form of a test: `pytest -m storm --storm-scale N` runs it, N times as many rounds",
    "browser": "needs a browser, or what npm brings to one",
    "peer": "needs a program of others that `.ci/run` installs",
    "hosts": "makes network namespaces; a browser that runs meanwhile gives up requests when interfaces come and go",
}
FULL_ONLY = "full"
TIMED = "timed"
LOOPS = ("asyncio", "trio")
ON_BOTH = {"executor", "models", "nodes", "otel", "stores", "testing", "tools"}
"""Rooms of code that waits, cancels and starts tasks: both event loops matter there. Elsewhere tests run on asyncio."""
STORES = {"memory", "memory://", "sqlite"}
"""Stores of which a test meets one, unless it is asked for."""
DATABASES = {"postgres", "postgresql"}
SERVERS = {"own_postgres", "postgres", "postgres_server"}
"""Fixtures that start PostgreSQL."""
PLAIN = {
    "test_importing_the_package_loads_nothing_heavy",
    "test_what_is_done_is_what_is_frozen",
}
"""Tests that start processes, or look as if they did, and run on every change."""
_TESTS = Path(__file__).parent
_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30
"""Bytes that must be free in memory for the files of tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and say where files go.

    Temporary files are in memory if there is room: no test is about how long a disk takes. Bytecode is written even if
    the environment says otherwise: every worker would compile every module again.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A program in the background, or under nohup, hands ignored signals on to the programs that tests start and stop.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if config.option.full:
        os.environ["TESTS_FULL"] = "1"  # read by `tests.support.sizes`, also in workers
    # How fast a machine is, and what else it does just now, is no fault of what is tested: no deadline.
    # `EXAMPLES=100` draws as many examples as hypothesis does by itself; the storm does so.
    settings.register_profile(
        "patient",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=int(os.environ.get("EXAMPLES", "20" if config.option.full else "5")),
    )
    settings.load_profile("patient")
    for mark, words in {
        **APART,
        FULL_ONLY: "takes long: runs with --full, or if it is asked for by its file or name",
        TIMED: "a storm that holds how late something is: `.ci/storm` runs it when nothing else runs",
    }.items():
        config.addinivalue_line("markers", f"{mark}: {words}")
    as_it_is = "storm" in config.option.markexpr or "TMPDIR" in os.environ
    if not as_it_is and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """More workers than there are processors: tests wait for processes and for time to pass, long ones most of all.

    Each worker costs what it takes to collect all tests, so there is only one more where the tests are short; and where
    they need a browser, which keeps a processor busy by itself.
    """
    processors = os.cpu_count() or 1
    waits = config.option.full or config.option.costly or "storm" in config.option.markexpr
    return 2 * processors if waits else processors + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect with the garbage collector off, and exempt from it all that the collection made.

    Modules and items are more than a million objects that live until the process ends; each full pass of the collector
    would traverse them. Later it runs less often than usual: a test leaves little behind, and its process has memory.
    """
    gc.disable()
    _compile_a_share(session.config)
    yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def _compile_a_share(config: pytest.Config) -> None:
    """Import the test modules ahead, each worker from a different one on: so each is compiled by one worker only."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or [Path(arg).resolve() for arg in config.args] != [_TESTS.resolve()]:
        return
    names = sorted(
        ".".join(path.relative_to(_TESTS.parent).with_suffix("").parts) for path in _TESTS.rglob("test_*.py")
    )
    first = len(names) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for name in names[first:] + names[:first]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(name)


def _in_turn(items: list[pytest.Item]) -> set[pytest.Item]:
    """What is left out of tables: their rows run on one event loop or the other, in turn.

    In a table of several parameters each value of each of them still meets both event loops. A test with no table runs
    on both.
    """
    tables: dict[tuple[object, str], dict[tuple[str, ...], dict[str, pytest.Function]]] = {}
    for item in items:
        loop = _value(item, "anyio_backend")
        if loop and isinstance(item, pytest.Function):
            row = tuple(part for part in item.callspec._idlist if part != loop)
            tables.setdefault((item.parent, item.originalname), {}).setdefault(row, {})[loop] = item
    left_out: set[pytest.Item] = set()
    for table in tables.values():
        places: dict[tuple[int, str], int] = {}
        for row in table:
            for column, part in enumerate(row):
                places.setdefault((column, part), sum(other == column for other, _ in places))
        for row, pair in table.items():
            if len(table) > 1 and len(pair) == 2:
                turn = sum(places[column, part] for column, part in enumerate(row)) % 2
                left_out.add(pair[LOOPS[turn]])
    return left_out


def _on_others(items: list[pytest.Item]) -> set[pytest.Item]:
    """Tests that run on several kinds of store, on all kinds but one, which their names decide."""
    groups: dict[tuple[object, str, tuple[str, ...]], dict[str, pytest.Item]] = {}
    for item in items:
        store = _value(item, "store")
        if store in STORES and isinstance(item, pytest.Function):
            others = tuple(part for part in item.callspec._idlist if part != store)
            groups.setdefault((item.parent, item.originalname, others), {})[store] = item
    left_out: set[pytest.Item] = set()
    for (_, name, others), group in groups.items():
        chosen = sorted(group)[crc32(f"{name} {others}".encode()) % len(group)]
        left_out |= {item for store, item in group.items() if store != chosen}
    return left_out


def _costly(items: list[pytest.Item]) -> set[pytest.Item]:
    """Tests that need a database, and those that start processes.

    Of the tests of each promise the first one is not counted, where it needs no database.
    """
    found = {item for item in items if _in_database(item)}
    one_each = {_function(item): item for item in items}
    starting = {function for function, item in one_each.items() if starts_processes(item)}
    stays = _proofs() | PLAIN
    return found | {item for item in items if (function := _function(item)) in starting and function[1] not in stays}


def _rows_of_products(items: list[pytest.Item]) -> set[pytest.Item]:
    """Rows that are left out of tables of several parameters: each value of each of them is there once at least."""
    tables: dict[tuple[object, str], list[tuple[pytest.Item, tuple[str, ...]]]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and len(item.callspec._idlist) > 1:
            tables.setdefault(_function(item), []).append((item, tuple(item.callspec._idlist)))
    left_out: set[pytest.Item] = set()
    for rows in tables.values():
        met: set[tuple[int, str]] = set()
        kept: set[pytest.Item] = set()
        for news in range(max(len(columns) for _, columns in rows), 0, -1):  # first those with the most new values
            for item, columns in rows:
                if len({*enumerate(columns)} - met) >= news:
                    met |= {*enumerate(columns)}
                    kept.add(item)
        left_out |= {item for item, _ in rows} - kept
    return left_out


def _in_database(item: pytest.Item) -> bool:
    """True if a test needs PostgreSQL."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    texts = (text for value in values for text in (value if isinstance(value, tuple) else (value,)))
    named = any(isinstance(text, str) and text in DATABASES for text in texts)
    return named or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def _function(item: pytest.Item) -> tuple[object, str]:
    return item.parent, getattr(item, "originalname", item.name)


@functools.cache
def _proofs() -> frozenset[str]:
    """The first of the tests that the documentation names as proofs of a promise."""
    rows = (_TESTS.parent / "docs/promises.md").read_text(encoding="utf-8").splitlines()
    return frozenset(found[0] for row in rows if (found := re.findall(r"`(test_\w+)`", row)))


def _value(item: pytest.Item, parameter: str) -> str:
    """The text that a parameter of a test has; empty if it has none of this name, or no text."""
    value = item.callspec.params.get(parameter) if hasattr(item, "callspec") else None
    return value if isinstance(value, str) else ""


def _room(item: pytest.Item) -> str:
    """The folder of a test, as it is below `tests`."""
    return item.path.relative_to(_TESTS).parts[0]


def _named(config: pytest.Config) -> bool:
    """True if the command line selects tests: by their file, by name or by keyword."""
    return bool(config.option.keyword) or any("::" in arg or arg.endswith(".py") for arg in config.args)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Say on which event loops a test runs, unless it says so itself."""
    if "anyio_backend" not in metafunc.fixturenames:
        return
    by_itself = any("anyio_backend" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if by_itself or metafunc._arg2fixturedefs["anyio_backend"][-1].func is not _anyio_backend:
        return
    loops: Sequence[str] = LOOPS
    option = metafunc.config.option
    bounded = metafunc.definition.get_closest_marker("storm") and option.storm_scale == 1
    if _room(metafunc.definition) not in ON_BOTH:
        loops = LOOPS[:1]
    elif (bounded or not option.full) and not _named(metafunc.config):
        loops = [LOOPS[crc32(metafunc.function.__name__.encode()) % 2]]
    metafunc.parametrize("anyio_backend", loops, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `.ci/run` and `.ci/storm` run."""
    for item in items:
        if "aimock" in getattr(item, "fixturenames", ()):
            item.add_marker("peer")
    if config.getoption("lf", False):  # those that failed before, whatever selected them
        return
    wanted = {mark for mark in APART if mark in config.option.markexpr}
    apart = {item for item in items if any(item.get_closest_marker(mark) for mark in APART.keys() - wanted)}
    apart |= _in_turn(items)
    if not config.option.full and not _named(config):
        apart |= {item for item in items if item.get_closest_marker(FULL_ONLY)} | _on_others(items)
        if not wanted:  # what is asked for by its mark may cost more
            costly = _costly(items)
            apart |= {*items} - costly if config.option.costly else costly
        apart |= _rows_of_products([item for item in items if item not in apart])
    if apart:
        config.hook.pytest_deselected(items=[*apart])
        items[:] = [item for item in items if item not in apart]
    if not _named(config):
        items[:] = in_tables(items)


@pytest.fixture(autouse=True, scope="module")
def secrets_of_one_module() -> Iterator[None]:
    """Forget the secrets that tests of a module made known: live text that may begin with one is held back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_known", {**redaction._known})
        yield


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> int:
    """How many times as many rounds a storm runs."""
    return int(request.config.getoption("--storm-scale"))


@pytest.fixture
def clock() -> MockClock:
    """A test that has it runs in an event loop that jumps over waiting."""
    return MockClock()


def _anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """The event loop of a test with the mark `anyio`."""
    if "clock" not in request.fixturenames:
        return str(request.param)
    clock: MockClock = request.getfixturevalue("clock")
    return clock.backend(request.param)


anyio_backend = pytest.fixture(_anyio_backend, name="anyio_backend")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that skipped tests are failures, where they are."""
    if os.environ.get("NO_SKIPS") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("NO_SKIPS is set: a skipped test is a failure here", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With NO_SKIPS a run in which anything was skipped fails: what should run here did not."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NO_SKIPS") and reporter is not None and reporter.stats.get("skipped") and not exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

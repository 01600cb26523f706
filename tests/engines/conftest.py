"""The engines that these tests deliver runs with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.crew import Server
from tests.support import restate, temporal

ENGINES = ["restate", *(["temporal"] if temporal.command() else [])]
"""Those whose cases run. No registry has Temporal's server for Linux, so its cases are there where it is."""
collect_ignore = [] if temporal.command() else ["test_coming_from_temporal.py", "test_temporal_server.py"]


@pytest.fixture
def restate_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Restate server of the test's own."""
    program = restate.command()
    if program is None:
        pytest.skip("no Restate server: npm install @restatedev/restate-server, and set RESTATE_SERVER to its program")
    folder: Path = tmp_path_factory.mktemp("restate")
    with restate.running(program, folder) as server:
        yield server


@pytest.fixture
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Temporal server of the test's own."""
    program = temporal.command()
    if program is None:
        pytest.skip("no Temporal server: export TEMPORAL_SERVER=$(.ci/temporal DIR)")
    with temporal.running(program, tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Server:
    """The server of an engine: each case runs with each engine."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found

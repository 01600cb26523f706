"""The engines that these tests deliver runs with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.crew import Server
from tests.support import restate


@pytest.fixture
def restate_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Restate server of the test's own."""
    program = restate.command()
    if program is None:
        pytest.skip("no Restate server: npm install @restatedev/restate-server, and set RESTATE_SERVER to its program")
    folder: Path = tmp_path_factory.mktemp("restate")
    with restate.running(program, folder) as server:
        yield server


@pytest.fixture(params=["restate"])
def server(request: pytest.FixtureRequest) -> Server:
    """The server of an engine: each case runs with each engine."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found

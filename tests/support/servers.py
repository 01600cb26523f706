"""Servers by others that speak chat completions, as fixtures. Each is started once, when a test first needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import aimock as aimock_
from tests.support import real_model as real_model_

if TYPE_CHECKING:
    from llmock.testing import LLMockServer


@pytest.fixture(scope="session")
def llmock_server() -> Iterator[LLMockServer]:
    """A fake OpenAI server by others, on a free port of 127.0.0.1."""
    from llmock.testing import LLMockServer  # not at the top: most tests have no use for it

    with LLMockServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture
def server(llmock_server: LLMockServer) -> Iterator[LLMockServer]:
    """The same server, without the state of other tests."""
    llmock_server.state.reset()
    yield llmock_server
    llmock_server.state.reset()


@pytest.fixture(scope="session")
def aimock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[aimock_.AIMock]:
    """Another fake OpenAI server, which answers as fixtures say."""
    command = aimock_.command()
    if command is None:
        pytest.skip("aimock, or node, is not there: npm install @copilotkit/aimock, and set AIMOCK to its path")
    with aimock_.running(command, tmp_path_factory.mktemp("aimock")) as server:
        yield server


@pytest.fixture
def aimock(aimock_server: aimock_.AIMock) -> Iterator[aimock_.AIMock]:
    """The same server, without fixtures and requests."""
    aimock_server.reset()
    yield aimock_server
    aimock_server.reset()


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_model_.RealModel]:
    """A small real model behind a server by others."""
    with real_model_.running(tmp_path_factory.mktemp("real_model") / "log") as server:
        yield server

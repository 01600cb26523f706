"""Servers that speak chat completions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from llmock.testing import LLMockServer

from tests.models import aimock as aimock_


@pytest.fixture(scope="session")
def llmock_server() -> Iterator[LLMockServer]:
    """A fake OpenAI server that others wrote, on a free port of 127.0.0.1."""
    with LLMockServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture
def server(llmock_server: LLMockServer) -> Iterator[LLMockServer]:
    """The same server, which has forgotten what other tests did with it."""
    llmock_server.state.reset()
    yield llmock_server
    llmock_server.state.reset()


@pytest.fixture(scope="session")
def aimock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[aimock_.AIMock]:
    """Another one, which says what fixtures tell it."""
    command = aimock_.command()
    if command is None:
        pytest.skip("aimock, or node, is not there: npm install @copilotkit/aimock, and set AIMOCK to its path")
    with aimock_.running(command, tmp_path_factory.mktemp("aimock")) as server:
        yield server


@pytest.fixture
def aimock(aimock_server: aimock_.AIMock) -> Iterator[aimock_.AIMock]:
    """The same server, which knows nothing yet."""
    aimock_server.reset()
    yield aimock_server
    aimock_server.reset()


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on, or uses, the settings of who runs it."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)

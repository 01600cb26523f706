"""Servers that speak chat completions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from llmock.testing import LLMockServer


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


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on, or uses, the settings of who runs it."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)

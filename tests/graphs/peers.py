"""What the strategies talk to in the table of test_servers: two fake servers of others, and the model that needs none.

Each takes the same replies, and tells in the same form what it was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmock.scenarios import Reply as Says
from llmock.scenarios import ToolCall as Calls
from llmock.testing import LLMockServer
from llmock.verdict import judge

from orchestrator import OfflineModel, OpenAIModel
from orchestrator.models import Model, ModelRequest, Reply
from tests.support.aimock import AIMock, fixture

_KEY = "sk-not-a-real-key-42"


@dataclass(frozen=True)
class Said:
    """A reply, and what the request must hold for it."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, object]]] = ()
    to: Mapping[str, object] = field(default_factory=dict)
    """In the words of aimock's `match`."""


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    messages: Sequence[Mapping[str, Any]]
    stream: bool


class Peer(Protocol):
    """One of them."""

    scripted: bool
    """Whether it says what it is told to say, over a wire; else it thinks for itself."""

    def says(self, replies: Sequence[Said]) -> None:
        """Say these things, each to the request that it belongs to."""

    def model(self) -> AbstractAsyncContextManager[Model]:
        """The model that talks to it."""
        ...

    def seen(self) -> list[Seen]:
        """All requests, in their order; nothing that it was to say is left."""
        ...


class LLMock:
    """It says one reply after the other, and judges the client."""

    scripted = True

    def __init__(self, server: LLMockServer) -> None:
        self._state, self._url = server.state, server.base_url()

    def says(self, replies: Sequence[Said]) -> None:
        self._state.scenarios.add(
            *(
                Says(text=said.text or None, tool_calls=tuple(Calls(name, dict(args)) for name, args in said.calls))
                for said in replies
            )
        )

    def model(self) -> AbstractAsyncContextManager[Model]:
        return OpenAIModel("gpt-4o", self._url, _KEY)

    def seen(self) -> list[Seen]:
        assert self._state.scenarios.pending() == []
        records = self._state.journal.records(wait=5)
        judge(records).assert_ok(strict=True)
        return [_seen(record.body) for record in records]


class Fixtures:
    """aimock: it says what fits the request, and refuses one that nothing fits."""

    scripted = True

    def __init__(self, server: AIMock) -> None:
        self._server = server

    def says(self, replies: Sequence[Said]) -> None:
        fixtures = []
        for said in replies:
            calls = [{"name": name, "arguments": dict(args)} for name, args in said.calls]
            response = {**({"content": said.text} if said.text else {}), **({"toolCalls": calls} if calls else {})}
            fixtures.append(fixture(response, said.to, chunkSize=4))
        self._server.says(*reversed(fixtures))  # the first that fits is said, and later requests hold the earlier ones

    def model(self) -> AbstractAsyncContextManager[Model]:
        return OpenAIModel("gpt-4o", self._server.url, _KEY)

    def seen(self) -> list[Seen]:
        journal = self._server.journal
        assert {(asked.path, asked.status) for asked in journal} == {("/v1/chat/completions", 200)}
        return [_seen(asked.body) for asked in journal]


class Offline(OfflineModel):
    """The model that needs no server, and keeps what it was asked."""

    scripted = False

    def __init__(self) -> None:
        super().__init__()
        self._requests: list[ModelRequest] = []

    async def respond(self, request: ModelRequest) -> Reply:
        self._requests.append(request)
        return await super().respond(request)

    def says(self, replies: Sequence[Said]) -> None:
        """Nothing: it works out for itself what to say."""

    def model(self) -> AbstractAsyncContextManager[Model]:
        return nullcontext(self)

    def seen(self) -> list[Seen]:
        return [Seen(request.data()["messages"], request.pieces) for request in self._requests]


def _seen(body: Mapping[str, Any]) -> Seen:
    assert body.get("stream", False) == ("stream_options" in body)
    return Seen(body["messages"], body.get("stream", False))

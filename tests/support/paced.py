"""A model that streams its replies in pieces, at times that a test chooses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelUnavailable
from orchestrator.graph.limits import Retry
from orchestrator.models import Reply
from orchestrator.models.base import ModelEvent, ModelRequest, RequestModel

BREAK = "<break>"
"""A piece in whose place the connection breaks."""


class PacedModel(RequestModel):
    """A model that streams each reply piece by piece.

    Args:
        replies: the pieces of each reply, in the order of the calls, or a function of the request.
        before: awaited before each piece, with the number of the call and that of the piece, both from 0.
        retry: how a request is repeated whose connection broke.
    """

    streams = True

    def __init__(
        self,
        replies: Sequence[Sequence[str]] | Callable[[ModelRequest], Sequence[str]],
        before: Callable[[int, int], Awaitable[object]] | None = None,
        *,
        retry: Retry | None = None,
    ) -> None:
        self.name, self.calls, self.retry = "paced", 0, retry
        self.whole = 0
        """Calls that asked for the whole reply at once."""
        self._replies, self._before = replies, before

    def _next(self, request: ModelRequest) -> tuple[int, Sequence[str]]:
        number, self.calls = self.calls, self.calls + 1
        return number, self._replies(request) if callable(self._replies) else self._replies[number]

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`."""
        self.whole += 1
        _, pieces = self._next(request)
        if BREAK in pieces:
            raise ModelUnavailable("the connection broke")
        return Reply(text="".join(pieces))

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        number, pieces = self._next(request)
        for place, piece in enumerate(pieces):
            await (anyio.lowlevel.checkpoint() if self._before is None else self._before(number, place))
            if piece == BREAK:
                raise ModelUnavailable("the connection broke")
            yield ModelEvent(text=piece)
        yield ModelEvent(reply=request.parse(Reply(text="".join(pieces))))

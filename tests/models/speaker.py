"""A model that speaks in pieces, and knows who listens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from orchestrator import Message
from orchestrator.errors import ModelUnavailable
from orchestrator.graph import Usage
from orchestrator.models import ModelEvent, Reply
from orchestrator.models.base import Output, ToolLike


class Speaker:
    """Says these pieces each time that it is asked; an error among them is raised there.

    With `wait` it says nothing before `go` is set.
    """

    def __init__(
        self,
        pieces: Sequence[str | Exception],
        *,
        name: str = "speaker",
        wait: bool = False,
        notes: list[str] | None = None,
    ) -> None:
        self.name, self.pieces, self.wait = name, pieces, wait
        self.notes = [] if notes is None else notes
        self.asked, self.go = anyio.Event(), anyio.Event()
        self.calls = self.open = 0
        self.gone = False

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.gone = True

    async def complete(
        self, messages: str | Sequence[Message], tools: Iterable[ToolLike] = (), output: Output = None, **options: Any
    ) -> Reply:
        """All pieces at once."""
        events = [event async for event in self.stream(messages, tools, output, **options)]
        assert events[-1].reply is not None
        return events[-1].reply

    async def stream(
        self, messages: str | Sequence[Message], tools: Iterable[ToolLike] = (), output: Output = None, **options: Any
    ) -> AsyncIterator[ModelEvent]:
        """One piece after the other."""
        self.calls += 1
        self.open += 1
        try:
            self.asked.set()
            await (self.go.wait() if self.wait else checkpoint())
            if not self.pieces:
                raise ModelUnavailable("nothing to say")
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield ModelEvent(text=piece)
            yield ModelEvent(reply=Reply(text="".join(map(str, self.pieces)), usage=Usage(output_tokens=1)))
        finally:
            self.open -= 1
            self.notes.append("speaker closed")

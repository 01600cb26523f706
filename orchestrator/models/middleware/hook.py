"""Layers that have nothing to do while a reply comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware


class Hook(Middleware):
    """A layer with nothing to do while the reply comes: override one method or several."""

    async def before(self, request: ModelRequest) -> ModelRequest | Reply | None:
        """Return another request, or a reply so that no model is asked; None changes nothing."""
        return None

    async def after(self, request: ModelRequest, reply: Reply) -> Reply | None:
        """Give another reply; None changes nothing. `request`: as it was asked. Pieces were handed out already."""
        return None

    async def failed(self, request: ModelRequest, error: Exception) -> Reply | None:
        """Give a reply instead of the error; None lets it pass."""
        return None

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        found = await self.before(request)
        if isinstance(found, Reply):
            yield ModelEvent(reply=found)
            return
        asked = request if found is None else found
        reply: Reply | None = None
        try:
            async for event in ask(asked):
                if event.reply is None:
                    yield event
                else:
                    reply = event.reply
        except Exception as error:
            instead = await self.failed(asked, error)
            if instead is None:
                raise
            yield ModelEvent(reply=instead)
            return
        if reply is not None:
            yield ModelEvent(reply=await self.after(asked, reply) or reply)

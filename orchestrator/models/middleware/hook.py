"""Layers that have nothing to do while a reply comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orchestrator.models.base import ModelEvent, ModelRequest
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware


class Hook(Middleware):
    """A layer with nothing to do while the reply comes: override one method or several."""

    async def before(self, request: ModelRequest) -> ModelRequest | Reply | None:
        """Change a request before it is sent, or answer it.

        Args:
            request: the request.

        Returns:
            Another request, or a reply, in which case no model is asked; None changes nothing.
        """
        return None

    async def after(self, request: ModelRequest, reply: Reply) -> Reply | None:
        """Change a reply. Pieces of it have been delivered already.

        Args:
            request: the request as it was sent.
            reply: the model's reply.

        Returns:
            Another reply; None changes nothing.
        """
        return None

    async def failed(self, request: ModelRequest, error: Exception) -> Reply | None:
        """Handle an error of the model.

        Args:
            request: the request as it was sent.
            error: the error.

        Returns:
            A reply to use instead of the error; None raises the error.
        """
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

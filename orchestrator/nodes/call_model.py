"""A model is asked to continue a conversation, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message, Reply
from orchestrator.nodes.continuation import Continuation
from orchestrator.nodes.conversation import added, ended_by


class CallModel(Continuation, Node, kind="call_model"):
    """Ask the model to continue, in one call, and write its reply for a `ReadReply` to read.

        think -> read
        read -> think : again
        read -> act : calls each pending
        read -> END : answer

    The question is added to the conversation when it is the user's turn: at the start, and after an answer. The system
    message is part of each request but not of the conversation. So are the corrections: the replies of this turn that
    `ReadReply` could not use, each with the reason. A step that an error or a spent limit led to begins without them.

    Raises:
        AgentError: there is no question, and the conversation is empty.
    """

    fills = ("messages", "reply", "corrections")
    after_model = ("done",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """What the user asks."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        reply: Reply | None = None
        """The model's reply, until it is read."""
        corrections: list[Message] = []
        """The replies of this turn that could not be used, each with the reason."""

    reply: Annotated[str, Port()] = "reply"
    """Field that gets the `Reply`."""
    corrections: Annotated[str, Port(list)] = "corrections"
    """Field with the replies that could not be used, and the reasons."""

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return self.tools_offered

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "thinks, chooses calls" if self.tools_offered else "answers without tools"

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        talk: Sequence[Message] = list(getattr(state, self.messages))
        corrections: Sequence[Message] = getattr(state, self.corrections)
        update: dict[str, object] = {}
        if corrections and ctx.error is not None:
            corrections = update[self.corrections] = []
        asked = self.asked(state, talk, ended=ended_by(talk) is not None)
        if asked:
            update[self.messages] = added(state, self.messages, asked)
        whole = [*talk, *asked]
        update[self.reply] = await self.complete(self.model_of(ctx, whole, corrections), ctx, whole, corrections)
        return update

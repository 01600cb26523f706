"""A model continues a conversation in one node: it answers, or it calls tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.graph.model import Node
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message, ToolCall
from orchestrator.nodes.continuation import Continuation
from orchestrator.nodes.conversation import answer_of, ended_by
from orchestrator.nodes.interpretation import Interpretation, corrected


class Respond(Continuation, Interpretation, Node, kind="respond"):
    """Ask the model to continue. Take `answer` and write the model's answer, or take `calls` and write its calls.

    If a call of the last round ended the work (`ends=True`), the node takes `answer` with the result of that call, and
    does not ask the model. With `unreadable="observe"`, take `unreadable` after an action that cannot be read.

    The question is added to the conversation when it is the user's turn: at the start, and after an answer. The system
    message is part of each request but not of the conversation. An unusable reply (an unreadable call, a thought
    without a call, an empty reply) is shown to the model with the error, at most `retries` times in a step. The
    conversation contains only the usable reply, the journal all of them.

    In a graph that shows each call of the model as a step of its own, use `CallModel` and `ReadReply` instead.

    Raises:
        AgentError: there is no question, the reply was refused or cut, or no reply was usable.
    """

    fills = ("messages", "calls", "answer")
    after_model = ("calls",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """What the user asks."""
        messages: Annotated[list[Message], append] = []
        """The conversation."""
        pending: list[ToolCall] = []
        """The calls of the last reply."""
        answer: str = ""
        """What the model answered."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.ways

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "thinks, chooses calls" if self.tools_offered else "answers without tools"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        talk: list[Message] = list(getattr(state, self.messages))
        ended = ended_by(talk)
        asked = self.asked(state, talk, ended=ended is not None)
        if ended is not None and not asked:
            return Outcome("answer", {self.calls: [], self.answer: answer_of(ended)})
        whole = [*talk, *asked]
        model, corrections = self.model_of(ctx, whole), list[Message]()
        while True:
            found = self.read(await self.complete(model, ctx, whole, corrections), whole, corrections)
            if not found.fault or (found.unread and self.observes):
                return self.outcome(found, state, talk, asked)
            corrections = corrected(corrections, found)

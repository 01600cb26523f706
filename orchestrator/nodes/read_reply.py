"""A model's reply is read: it answers, it calls tools, or it has to be corrected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message, Reply, ToolCall
from orchestrator.nodes.interpretation import Interpretation, corrected
from orchestrator.nodes.writers import unwritten

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition


class ReadReply(Interpretation, Node, kind="read_reply"):
    """Read the reply that a `CallModel` wrote. Take `answer` and write the answer, or `calls` and write the calls.

    Take `again` after a reply that cannot be used (an unreadable call, a thought without a call, an empty reply): an
    edge leads back to the `CallModel`, which shows the model its reply with the reason. With `unreadable="observe"`,
    take `unreadable` after an action that cannot be read. The conversation gets only the usable reply. Where there is
    no reply, because a run moved here from another version of its graph, take `again`.

    Set `protocol`, `finish` and `tools_offered` as in the `CallModel`.

    Raises:
        AgentError: the reply was refused or cut, or it cannot be used and `retries` are spent.
    """

    look = "code"

    fills = ("messages", "calls", "answer", "reply", "corrections")

    class State(BaseModel):
        """The fields that the ports name by default."""

        messages: Annotated[list[Message], append] = []
        """The conversation."""
        pending: list[ToolCall] = []
        """The calls of the last reply."""
        answer: str = ""
        """What the model answered."""
        reply: Reply | None = None
        """The model's reply, until it is read."""
        corrections: list[Message] = []
        """The replies of this turn that could not be used, each with the reason."""

    effect: Effect = "pure"
    """It looks at the reply and at the conversation only."""
    reply: Annotated[str, Port()] = "reply"
    """Field with the `Reply`."""
    corrections: Annotated[str, Port(list)] = "corrections"
    """Field with the replies that could not be used, and the reasons."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (*self.ways, "again") if self.retries else self.ways

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "reads the reply"

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        return unwritten(graph, name, self.reply, f"CallModel(reply={self.reply!r})")

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        given = getattr(state, self.reply)
        if given is None and self.retries:  # a migration led here, out of a node that asked and read
            return Outcome("again")
        if given is None:
            self._fail(f"there is no reply in {self.reply!r}: place a CallModel before it")
        talk: Sequence[Message] = getattr(state, self.messages)
        corrections: Sequence[Message] = getattr(state, self.corrections)
        found = self.read(Reply.model_validate(given), talk, corrections)
        done: dict[str, object] = {self.reply: None}
        if found.fault and not (found.unread and self.observes):
            return Outcome("again", {**done, self.corrections: corrected(corrections, found)})
        if corrections:
            done[self.corrections] = []
        taken = self.outcome(found, state, talk, ())
        return Outcome(taken.name, {**taken.update, **done})

"""Decide, after the calls of one reply have ended, whether to continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message
from orchestrator.nodes.conversation import answer_of, ended_by


class Observe(Node, kind="observe"):
    """Inspect the results of the last round of calls. Their branches meet here, so set `join="all"`.

    If a tool that ends the work (`ends=True`) succeeded in that round, it takes `finished` and writes the tool's result
    as the answer (for several, the last in the order of the calls). Otherwise it takes `more` or, with `most`, `spent`
    after that many rounds. It needs no tools, because each result records whether it ends the work.
    """

    look = "code"

    fills = ("answer", "rounds")

    class State(BaseModel):
        """The fields that the ports name by default."""

        messages: Annotated[list[Message], append] = []
        """The conversation."""
        answer: str = ""
        """The final answer."""
        rounds: int = 0
        """Rounds of calls so far."""

    effect: Effect = "pure"
    """It reads only the conversation."""
    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    rounds: Annotated[str | None, Port(int)] = None
    """Field that counts the rounds."""
    most: PositiveInt | None = None
    """The most rounds."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.most is not None and self.rounds is None:
            raise ValueError("most= needs a count: name its field, rounds=")
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "sees the results" if self.most is None else f"sees the results, {self.most} rounds"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def outcomes(self) -> tuple[str, ...]:
        return ("more", "finished") if self.most is None else ("more", "finished", "spent")

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        update: dict[str, object] = {}
        count = 1
        if self.rounds is not None:
            count += getattr(state, self.rounds)
            update[self.rounds] = count
        talk: Sequence[Message] = getattr(state, self.messages)
        ended = ended_by(talk, ctx.tools)
        if ended is not None:
            return Outcome("finished", {**update, self.answer: answer_of(talk, ended)})
        return Outcome("spent" if self.most is not None and count >= self.most else "more", update)

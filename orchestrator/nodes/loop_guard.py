"""Notice that a model repeats itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.json import canonical
from orchestrator.models.messages import Message, is_summary
from orchestrator.tools.result import as_text

_Said = tuple[str | None, ...]
"""A call, as tool, arguments and result, or a text alone."""


class LoopGuard(Node, kind="loop_guard"):
    """Take `loop` when a model made the same call, or gave the same reply, several times; else `done`.

    Calls are the same if tool, arguments and result are, in any order: a model that polls something
    until it changes repeats nothing. A call that was not made yet counts as if it gave the same result as the last
    time. `results=False` compares tool and arguments alone. Replies without calls are the same if their texts are,
    white space aside. What counts is the part of the conversation after the last question, and of that the last
    `within` messages of the model, so loops of several steps (a, b, a, b) are noticed, too.

    Place it after the node that writes the results, or after the reply, before its calls are made. It asks no model.
    """

    look = "code"

    fills = ()

    class State(BaseModel):
        """The field that the port names by default."""

        messages: Annotated[list[Message], append] = []
        """The conversation."""

    effect: Effect = "pure"
    """It reads only the conversation."""
    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation."""
    most: Annotated[int, Field(ge=2, examples=[3])] = 3
    """The number of equal calls, or replies, at which `loop` is taken."""
    within: Annotated[int, Field(ge=2, le=1000)] = 20
    """The last messages of the model that are compared."""
    results: bool = True
    """False if calls with other results are the same, too."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"notices {self.most} repetitions"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: object) -> Outcome[Literal["loop", "done"]]:
        talk: Sequence[Message] = getattr(state, self.messages)
        last, *earlier = [*islice(self._said(talk), self.within)] or [frozenset[_Said]()]
        again = any(1 + sum(_again(one, earlier) in other for other in earlier) >= self.most for one in last)
        return Outcome("loop" if again else "done")

    def _said(self, talk: Sequence[Message]) -> Iterator[frozenset[_Said]]:
        """Yield what each message of the model says, the last message first: its calls, else its text."""
        results: dict[str | None, str] = {}
        for message in reversed(talk):
            if message.role == "tool":
                results[message.tool_call_id] = message.content
            elif message.role == "user" and not is_summary(message):
                return
            elif message.role == "assistant":
                calls = [
                    (call.name, call.raw if call.arguments is None else canonical(call.arguments), results.get(call.id))
                    for call in message.tool_calls
                ]
                kept = [call if self.results else call[:2] for call in calls]
                yield frozenset(kept) or frozenset([(" ".join(as_text(message.content).split()),)])


def _again(one: _Said, earlier: Sequence[frozenset[_Said]]) -> _Said:
    """Return a call that has no result yet as one with the result that it had the last time."""
    if one[-1] is not None:
        return one
    return next((call for calls in earlier for call in calls if call[:2] == one[:2]), one)

"""A vote: the most frequent of several answers to one question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from orchestrator.errors import AgentError, StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.reducers import append


class Vote(Node, kind="vote"):
    """Write the most frequent answer; if several are equally frequent, the first of them.

    Case, white space and a full stop at the end are ignored. An empty answer does not count. This is the vote of
    self-consistency (arXiv 2203.11171).

    Raises:
        AgentError: all answers are empty.
        StepError: there are no answers.
    """

    look = "code"

    fills = ("answer", "share")

    class State(BaseModel):
        """The fields that the ports name by default."""

        answers: Annotated[list[str], append] = []
        """All answers."""
        answer: str = ""
        """The answer that was chosen."""

    effect: Effect = "pure"
    """It reads only the answers."""
    answers: Annotated[str, Port(list)] = "answers"
    """Field with the answers."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the chosen answer."""
    faults: Annotated[str | None, Port(list)] = None
    """Field with a list of reasons why answers are empty."""
    share: Annotated[str | None, Port(float)] = Field(default=None, exclude_if=lambda port: port is None)
    """Field that gets the share of the chosen answer among those given, from 0 to 1."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "takes the most frequent answer"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: object) -> dict[str, object]:
        answers: Sequence[str] = getattr(state, self.answers)
        if not answers:
            raise StepError(f"vote: there are no answers in {self.answers!r}")
        given = [answer for answer in answers if _same(answer)]
        if not given:
            faults: Sequence[str] = () if self.faults is None else getattr(state, self.faults)
            why = next(filter(None, faults), "")
            raise AgentError(f"vote: none of {len(answers)} has an answer{why and f'; {why}'}")
        counts = Counter(map(_same, given))
        chosen = max(given, key=lambda answer: counts[_same(answer)])
        share = {} if self.share is None else {self.share: round(counts[_same(chosen)] / len(given), 4)}
        return {self.answer: chosen, **share}


def _same(answer: str) -> str:
    return " ".join(answer.split()).removesuffix(".").casefold()

"""Of several answers to one question the most frequent one is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel

from orchestrator.errors import StepError
from orchestrator.graph.node import Effect, Node, Port
from orchestrator.graph.reducers import append


class Vote(Node, kind="vote"):
    """Write the answer that most of them give; of several equally frequent ones the first.

    Case, space and a full stop at the end make no difference. This is the vote of self-consistency
    (arXiv 2203.11171).

    Raises:
        StepError: there are no answers.
    """

    class State(BaseModel):
        """The fields that the ports name by default."""

        answers: Annotated[list[str], append] = []
        """All answers."""
        answer: str = ""
        """The one that was chosen."""

    effect: Effect = "pure"
    """It looks at the answers only."""
    answers: Annotated[str, Port(list)] = "answers"
    """Field with the answers."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the chosen one."""

    async def run(self, state: object, ctx: object) -> dict[str, object]:
        answers: Sequence[str] = getattr(state, self.answers)
        if not answers:
            raise StepError(f"vote: there are no answers in {self.answers!r}")
        counts = Counter(map(_same, answers))
        return {self.answer: max(answers, key=lambda answer: counts[_same(answer)])}


def _same(answer: str) -> str:
    return " ".join(answer.split()).removesuffix(".").casefold()

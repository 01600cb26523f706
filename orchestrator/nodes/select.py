"""Keep the best of several candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, JsonValue, PositiveInt

from orchestrator.errors import StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append, replace


class Select(Node, kind="select"):
    """Keep the `best` candidates by their scores, and take `more`, or `done` after `rounds` selections.

    A candidate is an object with `text` and `score`. Of equal scores, the first one is kept, and equal texts count
    once. This is the beam of a breadth-first search, such as that of Tree of Thoughts (arXiv 2305.10601). Candidates
    are removed from their field, for the next round. Without any, the last selection stays, and `done` is taken.

    Raises:
        StepError: a candidate has no text, or no score.
    """

    look = "code"

    fills = ("candidates", "into", "count")

    class State(BaseModel):
        """The fields that the ports name by default."""

        candidates: Annotated[list[dict[str, JsonValue]], append] = []
        """What to choose from: objects with `text` and `score`."""
        selected: list[str] = []
        """The texts that were kept, the best one first."""
        level: int = 0
        """Selections so far."""

    effect: Effect = "pure"
    """It reads only the candidates."""
    candidates: Annotated[str, Port(list)] = "candidates"
    """Field with the candidates, which is emptied."""
    into: Annotated[str, Port(list)] = "selected"
    """Field that gets the texts that are kept, the best one first."""
    count: Annotated[str, Port(int)] = "level"
    """Field that counts the selections."""
    best: PositiveInt = 1
    """How many are kept."""
    rounds: PositiveInt = 1
    """The selections after which `done` is taken."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"keeps the best {self.best}" if self.best > 1 else "keeps the best one"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: Any) -> Outcome[Literal["more", "done"]]:
        given: Sequence[Any] = getattr(state, self.candidates)
        scores: dict[str, float] = {}
        for one in given:
            text, score = (one.get("text"), one.get("score")) if isinstance(one, Mapping) else (None, None)
            if not isinstance(text, str) or isinstance(score, bool) or not isinstance(score, int | float):
                raise StepError(f"{ctx.node}: a candidate needs a text and a score, and this is {one!r:.200}")
            scores[text] = max(score, scores.get(text, score))
        level = getattr(state, self.count) + 1
        info = getattr(type(state), "model_fields", {}).get(self.candidates)
        emptied: object = replace([]) if info is not None and append in info.metadata else []
        update: dict[str, object] = {self.count: level, self.candidates: emptied}
        if scores:
            update[self.into] = sorted(scores, key=lambda text: -scores[text])[: self.best]
        return Outcome("more" if scores and level < self.rounds else "done", update)

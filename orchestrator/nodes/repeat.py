"""Make a list to map over, to repeat the same work several times."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from orchestrator.graph.model import Effect, Node, Port


class Repeat(Node, kind="repeat"):
    """Write the numbers from 1 to `times`, so that a map over them repeats the same work that many times."""

    look = "code"

    fills = ("into",)

    class State(BaseModel):
        """The field that the port names by default."""

        rounds: list[int] = []
        """The numbers."""

    effect: Effect = "pure"
    """It reads nothing."""
    times: Annotated[int, Field(ge=1, le=100_000, examples=[3])]
    """The last number, at most 100,000."""
    into: Annotated[str, Port(list)] = "rounds"
    """Field that gets the numbers."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"counts to {self.times}"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: object) -> dict[str, object]:
        return {self.into: list(range(1, self.times + 1))}

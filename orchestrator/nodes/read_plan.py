"""A plan that a model wrote is read: it can be used, or it has to be written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, NonNegativeInt

from orchestrator.context import Context
from orchestrator.errors import StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.nodes.plan import Form, plan_in, unusable
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.writers import unwritten

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition


class ReadPlan(Node, kind="read_plan"):
    """Read the last draft of a `Plan`, and write its steps.

    Take `again` if it cannot be used: an edge leads back to the `Plan`, which shows the planner its errors.

    Raises:
        AgentError: the plan cannot be used, and `retries` are spent.
    """

    look = "code"

    fills = ("steps", "drafts", "faults")

    class State(BaseModel):
        """The fields that the ports name by default, beside the steps (see `Plan`)."""

        drafts: list[str] = []
        """The plans as the model wrote them, until one can be used."""
        faults: list[str] = []
        """What is wrong with each of them."""

    effect: Effect = "pure"
    """It looks at the draft only."""
    form: Form = "steps"
    """What a plan is, as in the `Plan`."""
    drafts: Annotated[str, Port(list)] = "drafts"
    """Field with the drafts."""
    faults: Annotated[str, Port(list)] = "faults"
    """Field with the faults of each earlier draft."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field that gets the steps."""
    retries: NonNegativeInt = 1
    """How often the plan may be written again."""

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (DONE, "again") if self.retries else (DONE,)

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "reads the plan"

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        return unwritten(graph, name, self.drafts, f"Plan(drafts={self.drafts!r}, faults={self.faults!r})")

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        drafts: Sequence[str] = getattr(state, self.drafts)
        faults: Sequence[str] = getattr(state, self.faults)
        if len(drafts) != len(faults) + 1:
            raise StepError(f"{ctx.node}: {self.drafts!r} has no draft to read: place a Plan(drafts=) before it")
        try:
            steps = plan_in(drafts[-1], self.form)
        except PlanFault as error:
            if len(faults) >= self.retries:
                raise unusable(str(error), drafts[-1]) from None
            return Outcome("again", {self.faults: [*faults, str(error)]})
        return Outcome(DONE, {self.steps: steps, self.drafts: [], self.faults: []})

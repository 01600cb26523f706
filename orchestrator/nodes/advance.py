"""Choose the next step of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, JsonValue

from orchestrator.errors import StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message, user
from orchestrator.nodes.conversation import ended_by
from orchestrator.nodes.templates import fill, filled_by

PROMPT = """\
Task: {question}

Done so far:
{done}

Do only this step of the task now: {step}
Answer with its result."""


class Advance(Node, kind="advance"):
    """Take `step` with the next step of a plan, or `done` when there is a result for each of them.

    The number of results is the number of completed steps, so the node that works on a step adds one result. The result
    of the last step is the answer; until then `answer` is the latest result. If the node that works on a step writes
    its conversation back to `messages`, a tool that ended the work there (`ends=True`) ends the whole plan: `done` is
    taken, and the remaining steps are skipped.

    Raises:
        StepError: the plan has no steps.
    """

    look = "code"

    fills = ("answer", "step", "messages")

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The whole task."""
        steps: list[str] = []
        """The plan."""
        results: Annotated[list[str], append] = []
        """Results of the completed steps."""
        step: str = ""
        """The step to work on."""
        messages: list[Message] = []
        """The start of a conversation about the step, with the task and the earlier results."""
        answer: str = ""
        """Result of the last step."""

    effect: Effect = "pure"
    """It reads only the state."""
    prompt: Annotated[str, filled_by("question", "done", "step")] = PROMPT
    """The prompt for one step."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the whole task."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field with the plan."""
    results: Annotated[str, Port(list)] = "results"
    """Field with the results of the completed steps."""
    step: Annotated[str, Port(str)] = "step"
    """Field that gets the next step."""
    messages: Annotated[str, Port(list)] = "messages"
    """Field that gets the start of the conversation; a plain field."""
    answer: Annotated[str, Port(str)] = "answer"
    """Field that gets the last result."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "takes the next step"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: object) -> Outcome[Literal["step", "done"]]:
        question = str(getattr(state, self.question))
        steps: Sequence[str] = getattr(state, self.steps)
        results: Sequence[str] = getattr(state, self.results)
        if not steps:
            raise StepError(f"advance: the plan in {self.steps!r} has no steps")
        update: dict[str, object] = {self.answer: results[-1]} if results else {}
        if len(results) >= len(steps) or (results and ended_by(getattr(state, self.messages))):
            return Outcome("done", update)
        step = steps[len(results)]
        done = list(zip(steps, results, strict=False))
        results = "\n".join(f"{number}. {what}\nResult: {found}" for number, (what, found) in enumerate(done, 1))
        earlier: list[JsonValue] = [{"question": what, "output": found, "error": None} for what, found in done]
        text = fill(self.prompt, question=question, done=results or "nothing", step=step)
        message = user(text, data={"question": step, "task": question, "steps": earlier})
        return Outcome("step", {**update, self.step: step, self.messages: [message]})

"""Let a model decide whether it has the answer, or what to ask next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, JsonValue

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.nodes.model_decision import decide, quoted
from orchestrator.nodes.steps import Step, answer_of_steps
from orchestrator.nodes.templates import fill, filled_by

SYSTEM = """\
You lead an inquiry towards the answer of a main question. You get the main question and what was asked and found so \
far. If that is enough, answer
Final Answer: <the answer>
If it is not, answer with the one question to look into next, which will be worked on with tools:
Question: <the question>
Answer in one of these two forms and with nothing else."""

PROMPT = """\
Main question: {question}

{steps}"""

ANSWER = "Final Answer"
QUESTION = "Question"


class Think(Node, kind="think"):
    """Write the final answer and take `answer`, or write the next question and take `question`.

    Everything after the first colon of the reply counts, including further colons and lines. If the last step ended the
    work (`ends=True`), its result is the answer, and no model is called.

    Raises:
        AgentError: the reply has neither form, or nothing after the colon.
    """

    fills = ("current", "answer")
    asks = "model"
    after_model = ("question",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The main question."""
        current: str = ""
        """A follow-up question, if there is one."""
        step_history: Annotated[list[Step], append] = []
        """The questions and results so far."""
        answer: str = ""
        """The final answer."""

    system: str = SYSTEM
    """The system message, verbatim."""
    prompt: Annotated[str, filled_by("question", "steps")] = PROMPT
    """The user's message."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the main question."""
    current: Annotated[str, Port(str)] = "current"
    """Field that gets the next question."""
    steps: Annotated[str, Port(list)] = "step_history"
    """Field with the steps so far."""
    answer: Annotated[str, Port(str)] = "answer"
    """Field that gets the final answer."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "answers, or asks the next question"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["answer", "question"]]:
        question = str(getattr(state, self.question))
        steps: Sequence[Step] = getattr(state, self.steps)
        if steps and steps[-1].ended and steps[-1].question in (question, getattr(state, self.current)):
            return Outcome("answer", {self.answer: answer_of_steps(steps)})
        prompt = fill(self.prompt, question=question, steps="\n\n".join(map(_step_text, steps)))
        data = {"question": question, "steps": [_fact(step) for step in steps]}
        reply = await decide(ctx, task="think", system=self.system, prompt=prompt, data=data)
        kind, _, words = reply.partition(":")
        words = words.strip()
        if kind not in (ANSWER, QUESTION) or not words:
            raise AgentError(
                f"think: the reply {quoted(reply)} has neither form; "
                f"write '{ANSWER}: ' and the answer, or '{QUESTION}: ' and the next question"
            )
        if kind == ANSWER:
            return Outcome("answer", {self.answer: words})
        return Outcome("question", {self.current: words})


def _step_text(step: Step) -> str:
    return f"Question: {step.question}\n{'Error' if step.failed else 'Output'}: {step.text}"


def _fact(step: Step) -> dict[str, JsonValue]:
    return {
        "question": step.question,
        "output": None if step.failed else step.tool_output,
        "error": step.tool_output if step.failed else None,
    }

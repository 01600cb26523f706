"""Let a model answer from a plan and its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, JsonValue

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Node, Port
from orchestrator.graph.reducers import merge
from orchestrator.models.messages import Reply, user
from orchestrator.models.messages import system as said
from orchestrator.nodes.model_decision import kept, sent_back, whole
from orchestrator.nodes.plans.blueprint import PlannedCall
from orchestrator.nodes.steps import Step, answer_of_steps
from orchestrator.nodes.templates import fill, filled_by

SYSTEM = """\
You answer a question. A plan was made for it and carried out. You get each step of the plan with its result, the \
evidence. Some evidence may be an error or not relevant. Write only the answer, as short as possible."""
PROMPT = """\
{steps}

Task: {question}"""
EMPTY = "Your answer was empty. Answer in one short sentence."
CUT = "Your answer was cut off, because it was too long. Answer again, in one short sentence."
STOPPED = "There is no result: the work was stopped"
"""The text for a step without evidence, whose progress is not known."""


class Solve(Node, kind="solve"):
    """Write the answer to a task, from the steps of a blueprint and their evidence.

    An answer that is empty, or cut off at its length limit, is requested once more, briefly. If the second is cut off,
    too, the whole words are kept.

    If a step ended the work (`ends=True`), its result is the answer, and no model is called; for several, that of the
    last step in the plan.

    Raises:
        AgentError: the reply was refused, or both were empty.
    """

    fills = ("answer",)
    asks = "model"

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The task."""
        steps: list[PlannedCall] = []
        """The plan."""
        evidence: Annotated[dict[str, Step], merge] = {}
        """The result of each step, by its id."""
        answer: str = ""
        """The answer."""

    system: str = SYSTEM
    """The system message, verbatim."""
    prompt: Annotated[str, filled_by("question", "steps")] = PROMPT
    """The user's message."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the task."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field with the plan."""
    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field with the evidence."""
    answer: Annotated[str, Port(str)] = "answer"
    """Field that gets the answer."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "answers from the evidence"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        question = str(getattr(state, self.question))
        plan: Sequence[PlannedCall] = getattr(state, self.steps)
        evidence: Mapping[str, Step] = getattr(state, self.evidence)
        done = [evidence[call.id] for call in plan if call.id in evidence]
        if ended := [number for number, step in enumerate(done, 1) if step.ended]:
            return {self.answer: answer_of_steps(done[: ended[-1]])}
        prompt = fill(self.prompt, question=question, steps=worker_log(plan, evidence))
        steps: list[JsonValue] = [_fact(call, evidence.get(call.id)) for call in plan]
        data: dict[str, JsonValue] = {"question": question, "steps": steps}
        asked = [said(self.system), user(prompt, data=data)]
        first = reply = await ctx.model.complete(asked, task="solve")
        if reply.cut or not (reply.refused or reply.text.strip()):
            fault = CUT if reply.cut else EMPTY
            again = [sent_back(reply.text, cut=reply.cut), user(fault, data={**data, "fault": fault})]
            reply = await ctx.model.complete([*asked, *again], task="solve")
        answer = _words(reply) or _words(first) or whole(reply, "solve")
        if not answer:
            raise AgentError("solve: the reply is empty; reply with the answer")
        return {self.answer: answer}


def _words(reply: Reply) -> str:
    return "" if reply.refused else kept(reply)


def worker_log(plan: Sequence[PlannedCall], evidence: Mapping[str, Step]) -> str:
    """Return a plan with the results of its steps, in the form shown to a solver."""
    return "\n".join(
        f"Plan: {call.thought or call.written}\nEvidence:\n{_evidence_text(evidence.get(call.id))}" for call in plan
    )


def _evidence_text(step: Step | None) -> str:
    if step is None:
        return STOPPED
    return f"Error: {step.text}" if step.failed else step.text


def _fact(call: PlannedCall, step: Step | None) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {"id": call.id, "plan": call.thought, "tool": call.tool, "input": call.input}
    if step is None:
        return {**facts, "args": {}, "output": None, "error": STOPPED}
    output, error = (None, step.tool_output) if step.failed else (step.tool_output, None)
    return {**facts, "args": step.tool_args, "output": output, "error": error}

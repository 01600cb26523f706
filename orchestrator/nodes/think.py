"""Let a model decide whether it has the answer, or what to ask next."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, JsonValue, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message, Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import NoReading, json_in, labelled
from orchestrator.nodes.model_decision import Constrain, Decision, closed, form_of, quoted, whole
from orchestrator.nodes.steps import Step, answer_of_steps
from orchestrator.nodes.templates import fill, filled_by
from orchestrator.tools.result import as_text

_TASK = """\
You answer a main question in several steps. You get the main question, and the questions that were looked into so \
far, each with what was found. """
SYSTEM: Mapping[Constrain, str] = {
    "auto": _TASK
    + """\
If this is enough to answer the main question, the next step is of kind "answer", with the final answer. If it is not, \
the next step is of kind "question", with one further question, which is then looked into with tools. Answer with one \
JSON object, {"next": {"kind": "answer", "answer": "..."}} or {"next": {"kind": "question", "question": "..."}}.""",
    "never": _TASK
    + """\
If this is enough to answer the main question, write
Final Answer: the answer
If it is not, write one further question, which is then looked into with tools:
Question: the question
Write only one of these two forms.""",
}

PROMPT = """\
Main question: {question}

{steps}"""

ANSWER = "Final Answer"
QUESTION = "Question"
_FORMS: Mapping[Constrain, str] = {
    "auto": 'answer with one JSON object, {"next": {"kind": "answer", "answer": "..."}} or '
    '{"next": {"kind": "question", "question": "..."}}',
    "never": f"write '{ANSWER}: ' and the answer, or '{QUESTION}: ' and the next question",
}
LABELS = {
    "final answer": "answer",
    "answer": "answer",
    "so the final answer": "answer",
    "question": "question",
    "next question": "question",
    "follow up": "question",
    "follow-up": "question",
    "follow up question": "question",
    "follow-up question": "question",
}
_TEXT: JsonValue = {"type": "string", "minLength": 1}
NEXT = closed(
    next={
        "anyOf": [
            closed(kind={"const": "answer", "type": "string"}, answer=_TEXT),
            closed(kind={"const": "question", "type": "string"}, question=_TEXT),
        ]
    }
)
"""The schema of the next step: the final answer, or a question."""


class Think(Decision, Node, kind="think"):
    """Write the final answer and take `answer`, or write the next question and take `question`.

    The reply is an object, or has one of the forms `Final Answer: ...` and `Question: ...`, as `labelled` reads them.
    If it begins with one, everything after its colon counts, including further colons and lines. The output of the last
    step alone is the answer, too. If the last step ended the work (`ends=True`), its result is the answer, and no model
    is called.

    Raises:
        AgentError: the reply has neither form, or nothing after the colon, and no retry is left.
    """

    fills = ("current", "answer", "corrections")
    asks = "model"
    after_model = ("question", "again")

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
        corrections: list[Message] = []
        """With `corrections=`: the replies of this decision that could not be used, each with the reason."""

    system: str = SYSTEM["auto"]
    """The system message, verbatim; by default, that for the value of `constrain`."""
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

    @model_validator(mode="before")
    @classmethod
    def _words_of_the_form(cls, data: Any) -> Any:
        return form_of(data, SYSTEM, lambda fields: fields.get("constrain", "auto"))

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "answers, or asks the next question"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def outcomes(self) -> tuple[str, ...]:
        return ("answer", "question", *self.corrected)

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        question = str(getattr(state, self.question))
        steps: Sequence[Step] = getattr(state, self.steps)
        if steps and steps[-1].ended and steps[-1].question in (question, getattr(state, self.current)):
            return Outcome("answer", {self.answer: answer_of_steps(steps)})
        prompt = fill(self.prompt, question=question, steps="\n\n".join(map(_step_text, steps)))
        data: dict[str, JsonValue] = {"question": question, "steps": [_fact(step) for step in steps]}
        messages = [said(self.system), user(prompt, data=data)]
        found = as_text(steps[-1].tool_output).strip() if steps and not steps[-1].failed else ""
        return await self.decided(state, ctx, messages, NEXT, self.kind, lambda reply: self._read(reply, found))

    def _read(self, reply: Reply, output: str) -> Outcome[str]:
        """Return the outcome of a reply, after a step with this output."""
        text = _before_made_up(whole(reply, self.kind))
        found = labelled(_unwrapped(text), LABELS) or (("answer", text) if text and text == output else None)
        if found is None:
            raise AgentError(f"think: the reply {quoted(text)} has neither form; {_FORMS[self.constrain]}")
        kind, words = found
        return Outcome(kind, {self.answer if kind == "answer" else self.current: words})


_made_up = re.compile(r"\n[ \t*]{0,8}intermediate[ \t]answer\b", re.IGNORECASE)
"""Where a model that follows the examples of self-ask answers its own question."""


def _before_made_up(text: str) -> str:
    """Return a text up to an answer that the model made up for its own question."""
    found = _made_up.search(text)
    return text if found is None else text[: found.start()]


def _unwrapped(text: str) -> str:
    """Return the object inside `{"next": {"kind": ..., ...}}` as text; other replies unchanged."""
    try:
        value = json_in(text)
    except NoReading:
        return text
    inner = value.get("next", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        return text
    return json.dumps({name: item for name, item in inner.items() if name != "kind"})


def _step_text(step: Step) -> str:
    return f"Question: {step.question}\n{'Error' if step.failed else 'Output'}: {step.text}"


def _fact(step: Step) -> dict[str, JsonValue]:
    return {
        "question": step.question,
        "output": None if step.failed else step.tool_output,
        "error": step.tool_output if step.failed else None,
    }

"""Let a model choose the tool for the current question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, JsonValue, model_validator

from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.models.messages import Message, Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import choice_in
from orchestrator.nodes.model_decision import (
    Constrain,
    Decision,
    certain,
    closed,
    form_of,
    question_in_hand,
    tools_of,
    unknown_tool,
    whole,
)
from orchestrator.nodes.templates import fill, filled_by

_TASK = """\
You choose a tool that helps to answer a question. You get the question and a list of tools, each as "name: what it \
does". """
SYSTEM: Mapping[Constrain, str] = {
    "auto": _TASK + 'Answer with one JSON object, {"tool": "name"}, with the name of one tool as it is in the list.',
    "never": _TASK + "Do not answer the question itself. Answer with one word, the name of the tool.",
}

_PROMPT = """\
Question: {question}

Tools:
{tools}"""
PROMPT: Mapping[Constrain, str] = {
    "auto": _PROMPT,
    # Small models follow what is asked for at the end, and answer the question otherwise.
    "never": _PROMPT + "\n\nAnswer with one word, the name of the tool.",
}


class ChooseTool(Decision, Node, kind="choose_tool"):
    """Write the name of a tool for the current question. With only one tool, no model is called.

    The reply is an object with the name, or the name alone, as `choice_in` reads it.

    Raises:
        AgentError: the reply names none of the tools, or several, and no retry is left.
        GraphUnknown: there are no tools.
    """

    fills = ("tool", "corrections")
    asks = "model"
    after_model = ("again",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The main question."""
        current: str = ""
        """A follow-up question, if there is one."""
        tool: str = ""
        """The chosen tool's name."""
        corrections: list[Message] = []
        """With `corrections=`: the replies of this decision that could not be used, each with the reason."""

    system: str = SYSTEM["auto"]
    """The system message, verbatim; by default, that for the value of `constrain`."""
    prompt: Annotated[str, filled_by("question", "tools")] = PROMPT["auto"]
    """The user's message; by default, that for the value of `constrain`."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the main question."""
    current: Annotated[str | None, Port(str)] = None
    """Field with the follow-up question, which is asked instead if it is not empty."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name."""

    @model_validator(mode="before")
    @classmethod
    def _words_of_the_form(cls, data: Any) -> Any:
        data = form_of(data, SYSTEM, lambda fields: fields.get("constrain", "auto"))
        return form_of(data, PROMPT, lambda fields: fields.get("constrain", "auto"), "prompt")

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "chooses a tool"

    @property
    def needs_tools(self) -> bool:
        """See `Node.needs_tools`."""
        return True

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (DONE, *self.corrected)

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        tools = tools_of(ctx, self.kind)
        if len(tools) == 1:
            return Outcome(DONE, {self.tool: tools[0].name})
        question = question_in_hand(state, self.question, self.current)
        # The tools keep the caller's order, which may influence a model.
        offered: list[JsonValue] = [{"name": tool.name, "description": tool.description} for tool in tools]
        lines = "\n".join(f"{tool.name}: {' '.join(tool.description.split())}" for tool in tools)
        prompt = fill(self.prompt, question=question, tools=lines)

        def read(reply: Reply) -> Outcome[str]:
            chosen = choice_in(certain(reply), {tool.name: tool.description for tool in tools})
            if chosen is None:
                unknown_tool(ctx, whole(reply, self.kind), self.kind)
            return Outcome(DONE, {self.tool: chosen})

        schema = closed(tool={"type": "string", "enum": [tool.name for tool in tools]})
        messages = [said(self.system), user(prompt, data={"question": question, "tools": offered})]
        return await self.decided(state, ctx, messages, schema, self.kind, read)

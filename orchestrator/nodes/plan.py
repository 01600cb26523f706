"""A model plans the whole work before any of it is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, JsonValue, NonNegativeInt, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.node import Node, Port
from orchestrator.models.messages import assistant, user
from orchestrator.models.messages import system as said
from orchestrator.nodes.model_decision import quoted, tools_of, whole
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall, read_blueprint
from orchestrator.nodes.plans.steps import read_steps
from orchestrator.nodes.templates import fill, filled_by
from orchestrator.tools.tool import Tool

Form: TypeAlias = Literal["steps", "blueprint"]
SYSTEM: Mapping[Form, str] = {
    "steps": """\
You plan how a task is worked out. Write a numbered list of steps, as few as will do, each of them a task of its own \
that can be understood without the others. Each step may build on what came of those before it, and the last one \
gives the final answer. Begin with a line "Plan:", then a line for each step, then a line <END_OF_PLAN>. Do not carry \
out any step.""",
    "blueprint": """\
You plan how a task is worked out with tools, before any of them is called. Write two lines for each call:
Plan: <what the call is for>
#E1 = tool[input]
#E1, #E2 and so on number the calls, and stand for what they give: write #E1 into the input of a later call where it \
needs what came of the first one. Use the tools that you are given only, with inputs in the form that stands beside \
each. Calls that do not use one another are made at the same time. Write the plan and nothing else: the answer is \
given later, from all that the calls gave.""",
}
PROMPT = """\
Tools:
{tools}

Task: {question}"""
CORRECTION = """\
This plan cannot be used: {fault}.
Write the whole plan again."""


class Plan(Node, kind="plan"):
    """Write the steps of a plan: texts in the form `steps`, calls with their needs in the form `blueprint`.

    An unusable plan is shown to the planner with its errors, at most `retries` times. In a blueprint, errors are
    unreadable calls, duplicate numbers, references to missing calls, and cycles. Whether the tools exist, and whether
    the inputs fit them, is checked when they are called.

    Raises:
        AgentError: the reply is refused or cut, or contains no usable plan.
        GraphUnknown: there are no tools for a blueprint.
    """

    fills = ("steps",)
    after_model = ("done",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The task."""
        steps: list[str] = []
        """What is to be done, step by step."""

    class BlueprintState(BaseModel):
        """The fields for `Plan(form="blueprint")`."""

        question: str
        """The task."""
        steps: list[PlannedCall] = []
        """The calls that are to be made. An edge `each steps` makes them in the order of their needs."""

    form: Form = "steps"
    """What a plan is: a list of steps in words (Plan-and-Solve), or of calls (ReWOO)."""
    system: str = SYSTEM["steps"]
    """The system message, as it stands; that of the form, if not given."""
    prompt: Annotated[str, filled_by("question", "tools")] = PROMPT
    """The user's message."""
    correction: Annotated[str, filled_by("fault")] = CORRECTION
    """The prompt after a plan that cannot be used."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the task."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field that gets the steps."""
    retries: NonNegativeInt = 1
    """How often the planner may write the plan again."""

    @model_validator(mode="before")
    @classmethod
    def _words_of_the_form(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        form: Any = data.get("form", "steps")
        given = data.get("system")
        # The words of the other form are nobody's own: `with_(form=...)` brings them along.
        return {**data, "system": SYSTEM.get(form, "") if given is None or given in SYSTEM.values() else given}

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        question = str(getattr(state, self.question))
        tools: Sequence[Tool] = tools_of(ctx, self.kind) if self.form == "blueprint" else tuple(ctx.tools)
        facts: dict[str, JsonValue] = {"question": question, "form": self.form, "tools": [_fact(one) for one in tools]}
        prompt = fill(self.prompt, question=question, tools=_tool_list(tools, self.form))
        messages = [said(self.system), user(prompt, data=facts)]
        left = self.retries
        while True:
            reply = whole(await ctx.model.complete(messages, task="plan"), self.kind)
            try:
                return {self.steps: read_steps(reply) if self.form == "steps" else read_blueprint(reply)}
            except PlanFault as error:
                fault = str(error)
            if not left:
                raise AgentError(f"plan: this plan cannot be used: {fault}; the reply was {quoted(reply)}")
            left -= 1
            wrong = user(fill(self.correction, fault=fault), data={**facts, "fault": fault})
            messages += [assistant(reply), wrong]


def _fact(tool: Tool) -> dict[str, JsonValue]:
    parameters: Any = tool.parameters
    return {"name": tool.name, "description": tool.description, "parameters": dict(parameters)}


def _tool_list(tools: Iterable[Tool], form: Form) -> str:
    lines = [f"{_form(tool) if form == 'blueprint' else tool.name}: {_line(tool.description)}" for tool in tools]
    return "\n".join(lines) or "none"


def _form(tool: Tool) -> str:
    """How a call of the tool is written in a blueprint: `multiply[a, b]`."""
    properties: Any = tool.parameters.get("properties") or {}
    required: Any = tool.parameters.get("required") or ()
    names = [name for name in properties if name in required] or list(properties)
    return f"{tool.name}[{', '.join(names)}]"


def _line(text: str) -> str:
    return " ".join(text.split())

"""Let a model plan the whole work in advance, and read its plan or have it corrected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, JsonValue, NonNegativeInt, PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.model import Effect, GraphDefinition, Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.json import JsonObject
from orchestrator.models.messages import Message, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import NoReading, json_in, parted
from orchestrator.nodes.model_decision import (
    Constrain,
    bounded,
    closed,
    form_of,
    is_auto,
    not_refused,
    quoted,
    reopened,
    sent_back,
    tools_of,
    unwritten,
)
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall, read_blueprint, read_items
from orchestrator.nodes.plans.step_list import MOST_STEPS, NO_STEPS, read_steps
from orchestrator.nodes.plans.tasks import read_task_items, read_tasks
from orchestrator.nodes.templates import fill, filled_by
from orchestrator.tasks import away
from orchestrator.tools.tool import Tool

Form: TypeAlias = Literal["steps", "blueprint", "tasks"]
_STEPS = """\
You plan how to solve a task. Write as few steps as possible. Each step is a task of its own that can be understood \
without the others, and may use the results of earlier steps. The last step gives the final answer. Do not carry out \
any step. """
_CALLS = """\
You plan how to solve a task with tools, before any of them is called. Use only tools from the list, with inputs in \
the form that the list shows. The calls have the numbers #E1, #E2 and so on; write #E1 in the input of a later call \
where it needs the result of the first one. Calls that do not use one another are made at the same time. The answer is \
given later, from the results of all calls. """
_TASKS = """\
You plan how to solve a task with tools, before any of them is called. Use only tools from the list, with inputs in \
the form that the list shows. The calls have the numbers 1, 2 and so on; write $1 in the input of a later call where \
it needs the result of the first one. Plan as many calls as possible that do not need one another: they are made at \
the same time. What to do with the results is decided later. """
SYSTEM: Mapping[tuple[Form, Constrain], str] = {
    ("steps", "auto"): _STEPS + 'Answer with one JSON object, {"steps": ["first step", "second step"]}.',
    ("steps", "never"): _STEPS
    + 'Begin with a line "Plan:". Then write a numbered list with one line for each step, then a line <END_OF_PLAN>.',
    ("blueprint", "auto"): _CALLS
    + 'Answer with one JSON object, {"calls": [{"plan": "what the call is for", "tool": "tool", "input": "input"}]}.',
    ("blueprint", "never"): _CALLS
    + """\
Write only the plan, two lines for each call:
Plan: what the call is for
#E1 = tool[input]""",
    ("tasks", "auto"): _TASKS
    + 'Answer with one JSON object, {"calls": [{"plan": "what the call is for", "tool": "tool", "input": "input"}]}.',
    ("tasks", "never"): _TASKS
    + """\
Write only the plan, a line for each call, and at the end a line for the decision:
1. tool(input)
2. tool($1)
3. join()
<END_OF_PLAN>""",
}
_FORMS: Mapping[tuple[Form, Constrain], str] = {
    ("steps", "auto"): 'answer with one JSON object, {"steps": ["first step", "second step"]}',
    ("steps", "never"): "write each step on its own line, as `1. ...`, and <END_OF_PLAN> after the last",
    ("blueprint", "auto"): 'answer with one JSON object, {"calls": [{"plan": "...", "tool": "...", "input": "..."}]}',
    ("blueprint", "never"): "write 'Plan: ' and what is done, and on the next line '#E1 = tool[input]'",
    ("tasks", "auto"): 'answer with one JSON object, {"calls": [{"plan": "...", "tool": "...", "input": "..."}]}',
    ("tasks", "never"): "write each call on its own line, as '1. tool(input)', and 'join()' after the last",
}
"""The form of a plan, as a correction tells it."""
_json_begins = re.compile(r"""[{\[]\s*["'{\[]""")
_begun: Mapping[Form, re.Pattern[str]] = {
    "steps": re.compile(r"^[ \t*_>#]*+(?:\d{1,3}[.)]\s|[-+•]\s|step[ ]\d)", re.IGNORECASE | re.MULTILINE),
    "tasks": re.compile(
        r"#[ ]?E[ ]?\d++[*_`]*+\s*+=|^[ \t*_>`-]*+\d{1,3}[*_`]*+[.)][ \t*_`]*+\w", re.IGNORECASE | re.MULTILINE
    ),
    "blueprint": re.compile(r"#[ ]?E[ ]?\d++[*_`]*+\s*+(?:[=:：→]|->)", re.IGNORECASE),
}
"""The first step or call of a plan in words."""
_TEXT: JsonValue = {"type": "string", "minLength": 1}
PROMPT = """\
Tools:
{tools}

Task: {question}"""
CORRECTION = """\
This plan cannot be used: {fault}.
Write the whole plan again."""
CUT = "it was cut off, because it is too long: write a shorter plan"
_CUT_MARK = " [cut off]"


def _is_none(value: object) -> bool:
    """Return True for the default, so that graphs which do not use the field are stored as before."""
    return value is None


class Plan(Node, kind="plan"):
    """Write the steps of a plan: texts in the form `steps`, calls with their needs in the form `blueprint`.

    A plan in JSON, or in words, is read. An unusable plan is shown to the planner with its errors, at most
    `retries` times. In a blueprint, errors are unreadable calls, duplicate numbers, references to missing calls,
    and cycles. Whether the tools exist, and whether the inputs fit them, is checked when they are called.

    With `drafts` and `faults`, the node calls the model once and writes its reply for a `ReadPlan` to read, so that
    each correction is a separate step:

        plan -> read
        read -> plan : again
        read -> work : each steps

    Raises:
        AgentError: the reply is refused, or contains no usable plan, such as one that is truncated.
        GraphUnknown: there are no tools for a blueprint.
    """

    fills = ("steps", "drafts", "faults")
    after_model = ("done",)

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The task."""
        steps: list[str] = []
        """The steps to do."""

    class BlueprintState(BaseModel):
        """The fields for `Plan(form="blueprint")`."""

        question: str
        """The task."""
        steps: list[PlannedCall] = []
        """The calls to make. An edge `each steps` makes them in the order of their needs."""

    form: Form = "steps"
    """The form of a plan: a list of steps in words (Plan-and-Solve), or of calls (`blueprint` of ReWOO, `tasks` of
    LLMCompiler)."""
    constrain: Constrain = Field(default="auto", exclude_if=is_auto)
    """`auto`: ask for the plan by a JSON Schema. `never`: only in words."""
    system: str = SYSTEM["steps", "auto"]
    """The system message, verbatim; by default, that for the values of `form` and `constrain`."""
    prompt: Annotated[str, filled_by("question", "tools")] = PROMPT
    """The user's message."""
    correction: Annotated[str, filled_by("fault")] = CORRECTION
    """The prompt after a plan that cannot be used."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the task."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field that gets the steps."""
    drafts: Annotated[str | None, Port(list)] = Field(default=None, exclude_if=_is_none)
    """Field that gets the plan as the model wrote it, after earlier drafts that could not be used; None if the plan is
    read here.
    """
    faults: Annotated[str | None, Port(list)] = Field(default=None, exclude_if=_is_none)
    """Field with the faults of each earlier draft."""
    retries: NonNegativeInt = 1
    """The most retries of the planner, if the plan is read here."""
    max_items: PositiveInt | None = Field(default=None, le=MOST_STEPS, exclude_if=_is_none)
    """The most steps or calls of a plan, at most 300; a plan with more cannot be used. None: 300."""

    def ports(self) -> dict[str, str]:
        """See `Node.ports`."""
        return {port: field for port, field in super().ports().items() if port != "steps" or self.drafts is None}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.drafts is None) != (self.faults is None):
            raise ValueError("drafts= and faults= belong together: name both fields, or neither")
        return self

    @model_validator(mode="before")
    @classmethod
    def _words_of_the_form(cls, data: Any) -> Any:
        return form_of(data, SYSTEM, lambda it: (it.get("form", "steps"), it.get("constrain", "auto")))

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "plans steps" if self.form == "steps" else "plans calls"

    @property
    def needs_tools(self) -> bool:
        """See `Node.needs_tools`."""
        return self.form != "steps"

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        question = str(getattr(state, self.question))
        tools: Sequence[Tool] = tools_of(ctx, self.kind) if self.form != "steps" else tuple(ctx.tools)
        facts: dict[str, JsonValue] = {"question": question, "form": self.form, "tools": [_fact(one) for one in tools]}
        prompt = fill(self.prompt, question=question, tools=_tool_list(tools, self.form))
        messages = [said(self.system), user(prompt, data=facts)]
        drafts, faults, cleared = list[str](), list[str](), dict[str, object]()
        if self.faults is not None and ctx.error is not None:
            cleared = {self.faults: []}  # the drafts belong to a discarded plan
        elif self.drafts is not None and self.faults is not None:
            drafts, faults = list(getattr(state, self.drafts)), list(getattr(state, self.faults))
        for draft, fault in zip(drafts, faults, strict=False):
            messages += self._wrong(draft, fault, facts)
        while True:
            reply = await ctx.model.complete(messages, output=self._schema(tools, drafts, faults), task="plan")
            not_refused(reply, self.kind)
            draft = await away(partial(cut_plan, reply.text), reply.text) if reply.cut else reply.text.strip()
            if self.drafts is not None:
                return {self.drafts: [*drafts[: len(faults)], draft], **cleared}
            try:
                return {self.steps: await away(partial(plan_in, draft, self.form, self.max_items), draft)}
            except PlanFault as error:
                faults.append(str(error))
            if len(faults) > self.retries:
                raise unusable(faults[-1], draft)
            messages += self._wrong(draft, faults[-1], facts)
            drafts.append(draft)

    def _schema(self, tools: Sequence[Tool], drafts: Sequence[str], faults: Sequence[str]) -> JsonObject | None:
        if self.constrain == "never":
            return None
        call = closed(
            plan=_TEXT, tool={"type": "string", "enum": [tool.name for tool in tools]}, input={"type": "string"}
        )
        item: JsonValue = _TEXT if self.form == "steps" else call
        items: dict[str, JsonValue] = {"type": "array", "items": item, "minItems": 1}
        if self.max_items is not None:
            items["maxItems"] = self.max_items
        schema = closed(steps=items) if self.form == "steps" else closed(calls=items)
        lengths = [len(draft) for draft, fault in zip(drafts, faults, strict=False) if fault == CUT]
        found: JsonObject = bounded(schema, max(min(lengths) // 16, 20)) if lengths else schema
        return found

    def _wrong(self, draft: str, fault: str, facts: Mapping[str, JsonValue]) -> list[Message]:
        """Return a plan that cannot be used, and the reason, as messages."""
        words = fault if fault == CUT else f"{fault}; {_FORMS[self.form, self.constrain]}"
        shown = sent_back(draft, cut=fault == CUT)
        return [shown, user(fill(self.correction, fault=words), data={**facts, "fault": fault})]


def cut_plan(text: str) -> str:
    """Return a draft that was cut off, marked as such unless its JSON is complete."""
    try:
        json_in(text)
    except NoReading:
        return f"{text.strip()}{_CUT_MARK}"
    return text.strip()


_IN_WORDS: Mapping[Form, Callable[[str], list[str] | list[PlannedCall]]] = {
    "steps": read_steps, "blueprint": read_blueprint, "tasks": read_tasks
}  # fmt: skip


def plan_in(draft: str, form: Form, most: int | None = None) -> list[str] | list[PlannedCall]:
    """Return the steps of a plan that a model wrote: as JSON, or in words.

    Args:
        draft: the plan.
        form: its form.
        most: the most steps or calls; None for `MOST_STEPS`.

    Raises:
        PlanFault: the steps cannot be read, or cannot be carried out, or are too many.
    """
    found = _plan_in(draft, form)
    most = MOST_STEPS if most is None else most
    if len(found) > most:
        raise PlanFault(f"it has {len(found)} {'steps' if form == 'steps' else 'calls'}: plan {most} at most")
    return found


def _plan_in(draft: str, form: Form) -> list[str] | list[PlannedCall]:
    if draft.endswith(_CUT_MARK):
        raise PlanFault(CUT)
    text = _json_of(draft, form)
    if text is None:
        return _IN_WORDS[form](draft)
    try:
        value = json_in(text)
    except NoReading as error:
        raise PlanFault(f"it {error}") from None
    # Texts in JSON are not read as a plan: they may be copied from a document.
    if isinstance(value, dict):
        key = "steps" if form == "steps" else "calls"
        value = value.get(key, next(iter(value.values()), None) if len(value) == 1 else None)
    items = value if isinstance(value, list) else []
    if form != "steps":
        return read_items(items) if form == "blueprint" else read_task_items(items)
    if not items or not all(isinstance(one, str) and one.strip() for one in items):
        raise PlanFault(NO_STEPS if not items else "it has steps that are not texts")
    return [one.strip() for one in items]


def _json_of(draft: str, form: Form) -> str | None:
    """Return a plan from the bracket with which its JSON begins; None if it is a plan in words."""
    bare = parted(draft)[1]
    begin = _json_begins.search(bare)
    if begin is None or _begun[form].search(bare, 0, begin.start()):
        return None
    # Escaped, so that a fence in one of its texts is not taken for the plan.
    return bare[begin.start() :].replace("```", r"\u0060" * 3).replace("~~~", r"\u007e" * 3)


def unusable(fault: str, reply: str) -> AgentError:
    """Return the error for a plan that cannot be used and will not be written again."""
    return AgentError(f"plan: this plan cannot be used: {fault}; the reply was {quoted(reply)}")


def _fact(tool: Tool) -> dict[str, JsonValue]:
    parameters: Any = tool.parameters
    return {"name": tool.name, "description": tool.description, "parameters": dict(parameters)}


def _tool_list(tools: Iterable[Tool], form: Form) -> str:
    lines = [f"{_form(tool, form) if form != 'steps' else tool.name}: {_line(tool.description)}" for tool in tools]
    return "\n".join(lines) or "none"


def _form(tool: Tool, form: Form) -> str:
    """Return a call of the tool as a plan writes it: `multiply[a, b]`, or `multiply(a, b)`."""
    properties: Any = tool.parameters.get("properties") or {}
    required: Any = tool.parameters.get("required") or ()
    names = [name for name in properties if name in required] or list(properties)
    given = ", ".join(names)
    return f"{tool.name}[{given}]" if form == "blueprint" else f"{tool.name}({given})"


def _line(text: str) -> str:
    return " ".join(text.split())


class ReadPlan(Node, kind="read_plan"):
    """Read the last draft of a `Plan`, and write its steps.

    Take `again` if it cannot be used: an edge leads back to the `Plan`, which shows the planner its errors. If the run
    failed here and goes on (`retry=True`), the planner is asked again, without them.

    Raises:
        AgentError: the plan cannot be used, and no `retries` are left.
    """

    look = "code"

    fills = ("steps", "drafts", "faults")

    class State(BaseModel):
        """The fields that the ports name by default, in addition to the steps (see `Plan`)."""

        drafts: list[str] = []
        """The plans as the model wrote them, until one can be used."""
        faults: list[str] = []
        """The fault of each of them."""

    effect: Effect = "pure"
    """It reads only the draft."""
    form: Form = "steps"
    """The form of a plan, the same as in the `Plan`."""
    drafts: Annotated[str, Port(list)] = "drafts"
    """Field with the drafts."""
    faults: Annotated[str, Port(list)] = "faults"
    """Field with the faults of each earlier draft."""
    steps: Annotated[str, Port(list)] = "steps"
    """Field that gets the steps."""
    retries: NonNegativeInt = 1
    """The most retries of the planner."""
    max_items: PositiveInt | None = Field(default=None, le=MOST_STEPS, exclude_if=_is_none)
    """The most steps or calls of a plan, the same as in the `Plan`."""

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
            steps = await away(partial(plan_in, drafts[-1], self.form, self.max_items), drafts[-1])
        except PlanFault as error:
            if len(faults) >= self.retries:
                raised = unusable(str(error), drafts[-1])
                if not self.retries or not reopened(ctx, self.retry, raised):
                    raise raised from None
                return Outcome("again", {self.drafts: [], self.faults: []})
            return Outcome("again", {self.faults: [*faults, str(error)]})
        return Outcome(DONE, {self.steps: steps, self.drafts: [], self.faults: []})

"""Let a model choose the arguments for the chosen tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, JsonValue

from orchestrator._lazy import lazy_modules
from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.json import canonical
from orchestrator.models.messages import Message, Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import NoReading, json_in, parted
from orchestrator.nodes.model_decision import Decision, json_object, question_in_hand, tool_named, whole
from orchestrator.nodes.templates import fill, filled_by
from orchestrator.tools.tool import Tool
from orchestrator.tools.validation import kinds_taken

if TYPE_CHECKING:
    from orchestrator.nodes import planned_calls
    from orchestrator.nodes.plans import blueprint
else:  # only for a reply that writes the call as text
    (planned_calls,) = lazy_modules("orchestrator.nodes", "planned_calls")
    (blueprint,) = lazy_modules("orchestrator.nodes.plans", "blueprint")

SYSTEM = """\
You choose the arguments of a function, so that its result helps to answer a question. You get the question, a \
description of the function, and its parameters. Answer only with one JSON object whose keys are names of parameters, \
such as {"first": 1, "second": "two"}. Optional parameters can be left out."""
_WRAPPERS = ("function", "arguments", "parameters", "args", "input", "tool_input", "action_input")
"""Keys under which models write a call or its arguments, in addition to the name of the function."""
_closed = r"""(?:[^()\[\]{}"']|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')*+[)\]][\s.;]*\Z"""
_open_code = re.compile(rf"[^\n{{}}()\[\]=]+(?:=|[(\[](?!{_closed}))", re.DOTALL)
"""The beginning of a text with arguments as in code, unless it is one call whose bracket is certainly closed."""
PROMPT = """\
Question: {question}

Function: {tool}
{description}

Parameters:
{parameters}"""


class ChooseArgs(Decision, Node, kind="choose_args"):
    """Write the arguments for the chosen tool, checked in full and in their final form.

    For a tool without parameters no model is called. Texts are converted to the types of the tool's schema (`"60"` to
    the number 60), and a number or boolean to its JSON text where only a string fits; nothing that the model writes
    is evaluated.

    Raises:
        AgentError: the reply is not a JSON object, or does not fit the tool: a parameter is missing, unknown or of the
            wrong type; or there is no tool with that name.
    """

    fills = ("args", "corrections")
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
        args: dict[str, JsonValue] = {}
        """The chosen arguments."""
        corrections: list[Message] = []
        """With `corrections=`: the replies of this decision that could not be used, each with the reason."""

    system: str = SYSTEM
    """The system message, verbatim."""
    prompt: Annotated[str, filled_by("question", "tool", "description", "parameters")] = PROMPT
    """The user's message."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the main question."""
    current: Annotated[str | None, Port(str)] = None
    """Field with the follow-up question, which is asked instead if it is not empty."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field with the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "chooses the arguments"

    @property
    def needs_tools(self) -> bool:
        """See `Node.needs_tools`."""
        return True

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (DONE, *self.corrected)

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        tool = tool_named(ctx, getattr(state, self.tool), self.kind)
        if not tool.parameters.get("properties"):
            return Outcome(DONE, {self.args: {}})
        question = question_in_hand(state, self.question, self.current)
        told = {"question": question, "tool": tool.name, "description": tool.description}
        prompt = fill(self.prompt, **told, parameters=describe(tool.parameters))
        parameters: Any = dict(tool.parameters)
        data: dict[str, JsonValue] = {**told, "parameters": parameters}

        def read(reply: Reply) -> Outcome[str]:
            return Outcome(DONE, {self.args: tool.validate(_as_texts(_given(reply, tool), tool))})

        messages = [said(self.system), user(prompt, data=data)]
        return await self.decided(state, ctx, messages, dict(tool.parameters), self.kind, read)


def _given(reply: Reply, tool: Tool) -> dict[str, Any]:
    """Return the arguments in a reply: a JSON object, or a call as in code, `add(2, 4)` or `a=2, b=4`.

    An object may be the only item of a list, or the value of a wrapper (`_WRAPPERS`). `name: value` on each line is
    read, too.
    """
    properties: Any = tool.parameters["properties"]
    text = parted(reply.text)[1].strip().strip("`")
    if reply.cut and _open_code.match(text):
        whole(reply, ChooseArgs.kind)  # raises: the last value may be incomplete
    call = re.fullmatch(rf"\s*{re.escape(tool.name)}\s*[(\[](.*)[)\]][\s.;]*", text, re.DOTALL)
    name = rf"(?:{'|'.join(map(re.escape, properties))})\s*"
    if call is not None:
        return _as_code(call[1], tool)
    if re.match(rf"{name}=(?!=)", text):
        whole(reply, ChooseArgs.kind)  # the last value of a truncated reply may be incomplete
        return _as_code(text, tool)
    found = _object_in(text)
    if found is not None:
        return _unwrapped(found, tool)
    whole(reply, ChooseArgs.kind)  # a truncated reply is reported as such
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    if lines and all(re.match(rf"{name}:", line) for line in lines):
        return _as_code(", ".join(lines), tool)
    return json_object(text, ChooseArgs.kind)


def _as_code(text: str, tool: Tool) -> dict[str, Any]:
    planned = blueprint.PlannedCall(id="E1", tool=tool.name, input=text)
    return planned_calls.arguments_of(planned, {}, tool.parameters)


def _object_in(written: object) -> dict[str, Any] | None:
    """Return an object, the one in a text, or the only item of a list."""
    try:
        found = json_in(written) if isinstance(written, str) else written
    except NoReading:
        return None
    one = found[0] if isinstance(found, list) and len(found) == 1 else found
    return one if isinstance(one, dict) else None


def _unwrapped(found: dict[str, Any], tool: Tool) -> dict[str, Any]:
    """Return the arguments in an object: the object itself, or the one inside of its wrappers."""
    properties: Any = tool.parameters["properties"]
    for _ in range(3):  # `{"function": {"name": "add", "arguments": "{...}"}}`
        if {*found} & {*properties}:
            break
        inner = [one for name in (*_WRAPPERS, tool.name) if (one := _object_in(found.get(name))) is not None]
        if len(inner) != 1:
            break
        (found,) = inner
    return found


def _as_texts(args: dict[str, Any], tool: Tool) -> dict[str, Any]:
    """Return the arguments, with numbers and booleans as JSON text where a parameter is a string and nothing else."""
    properties: Any = tool.parameters["properties"]
    return {
        name: canonical(value)
        if isinstance(value, int | float) and kinds_taken(properties.get(name, True), tool.parameters) == {"string"}
        else value
        for name, value in args.items()
    }


def describe(parameters: Any) -> str:
    """Return a tool's parameters in words, one per line: name, type, meaning and default."""
    required = parameters.get("required", ())
    lines = [_line(name, schema, name in required) for name, schema in parameters["properties"].items()]
    if "$defs" in parameters:
        lines.append(f"where $defs are {canonical(parameters['$defs'])}")
    return "\n".join(lines)


def _line(name: str, schema: Any, required: bool) -> str:
    plain = set(schema) <= {"type", "description", "title", "default", "enum"} and isinstance(schema.get("type"), str)
    if "enum" in schema:
        kind = "one of " + ", ".join(canonical(value) for value in schema["enum"])
    elif plain:
        kind = schema["type"]
    else:
        kind = canonical({k: v for k, v in schema.items() if k not in ("description", "title", "default")})
    notes = [kind, "required" if required else "optional"]
    if "default" in schema:
        notes.append(f"default {canonical(schema['default'])}")
    words = " ".join(str(schema.get("description", "")).split())
    return f"{name} ({', '.join(notes)})" + (f": {words}" if words else "")

"""Shared code of the nodes in which a model decides: the current question, the call, and reading the reply.

A decision is requested by its JSON Schema (`constrain="auto"`), which many servers enforce. For others, `OpenAIModel`
writes the schema into the prompt, as its profile says. A reply that does not have the form of the schema is still read,
if it has one reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

from pydantic import BaseModel, Field, JsonValue, NonNegativeInt

from orchestrator.context import Context
from orchestrator.errors import AgentError, GraphUnknown
from orchestrator.graph.faults import Spelled
from orchestrator.graph.limits import Retry
from orchestrator.graph.model import GraphDefinition, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.json import JsonObject
from orchestrator.models.messages import Message, Reply, assistant, user
from orchestrator.models.reading import NoReading, json_in
from orchestrator.nodes.templates import fill
from orchestrator.tasks import away
from orchestrator.tools.tool import Tool
from orchestrator.tools.validation import BY_NAME, INNER, LISTS

_SHOWN = 200
"""Maximum number of characters of a reply that an error message quotes."""
_MOST_SENT_BACK = 8000
"""Maximum number of characters of a reply that a model is shown again with the reason why it cannot be used."""
_BOUNDED = INNER - {"if", "not"} | LISTS - {"allOf"}
"""Keywords with schemas that can have bounds; in the others, bounds could refuse every value, or accept more values."""


def question_in_hand(state: object, question: str, current: str | None) -> str:
    """Return the follow-up question, if there is a field for it and it is not empty, else the main question."""
    follow_up = getattr(state, current) if current is not None else ""
    return str(follow_up or getattr(state, question))


Constrain: TypeAlias = Literal["auto", "never"]
AGAIN = "again"
CORRECTION = """\
Your reply cannot be used: {fault}
Answer again, in the form that was asked for and with nothing else."""
CUT = "it was cut off, because it is too long."


def is_auto(value: object) -> bool:
    """Return True for the default, so that graphs which do not use the field are stored as before."""
    return value == "auto"


def closed(**properties: JsonValue) -> dict[str, JsonValue]:
    """Return the schema of an object with exactly these properties."""
    required: JsonValue = [*properties]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def form_of(data: Any, texts: Mapping[Any, str], key: Callable[[Mapping[str, Any]], Any], field: str = "system") -> Any:
    """Return the fields of a node with the default text of its form in one of them, unless that has another text.

    A default text belongs to the form, not to the user: `with_(constrain=...)` replaces it.

    Args:
        data: the fields.
        texts: form -> default text.
        key: returns the form of a node with these fields.
        field: the field with the text.
    """
    if not isinstance(data, Mapping) or data.get(field) not in (None, *texts.values()):
        return data
    return {**data, field: texts.get(key(data), "")}


def shortened(schema: JsonObject, cut: Sequence[int]) -> JsonObject:
    """Return the schema to ask for after replies that were cut off: with tighter bounds after each, so that the next
    one has an end.

    Args:
        schema: the schema.
        cut: numbers of characters of the replies that were cut off.
    """
    found: JsonObject = bounded(schema, max(min(cut) // 4 ** len(cut), 20)) if cut else schema
    return found


def bounded(schema: Any, most: int) -> Any:
    """Return a schema in which texts have at most `most` characters, and lists few items.

    Texts that a `format`, a `pattern` or a `minLength` may make longer have no further bound, and lists have at least
    the items that they need, so that a schema with fitting values keeps some. Only keywords beside the `type` are
    considered, not those around it, as in `{"$ref": "#/$defs/List", "minItems": 6}`.
    """
    if isinstance(schema, list):
        return [bounded(one, most) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    for keyword in schema.keys() & BY_NAME:
        if isinstance(inner := schema[keyword], Mapping):
            found[keyword] = {name: bounded(one, most) for name, one in inner.items()}
    for keyword in schema.keys() & _BOUNDED:
        found[keyword] = bounded(schema[keyword], most)
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if {"enum", "const"} & schema.keys():
        return found
    if "string" in kinds and not {"format", "pattern"} & schema.keys() and _least(schema, "minLength") <= most:
        found["maxLength"] = _tighter(schema.get("maxLength"), most)
    if "array" in kinds:
        least = max(_least(schema, "minItems"), _least(schema, "minContains"))
        found["maxItems"] = _tighter(schema.get("maxItems"), max(3 if most < 200 else 10, least))
    return found


def _least(schema: Mapping[str, Any], name: str) -> int:
    least = schema.get(name)
    return least if isinstance(least, int) else 0


def _tighter(bound: object, most: int) -> int:
    return min(bound, most) if isinstance(bound, int) else most


def wrong(reply: Reply, fault: str, facts: Mapping[str, JsonValue], template: str = CORRECTION) -> list[Message]:
    """Return the beginning of a reply that cannot be used, and the reason, as messages.

    There are always two, because chat templates of many models require that the roles alternate.
    """
    words = fill(template, fault=CUT if reply.cut else fault)
    length: dict[str, JsonValue] = {"cut": len(reply.text)} if reply.cut else {}
    return [sent_back(reply.text, cut=reply.cut), user(words, data={**facts, "fault": fault, **length})]


def sent_back(text: str, *, cut: bool = False) -> Message:
    """Return the beginning of a reply that cannot be used, as a message; a short one if the reply was cut off."""
    most = _SHOWN if cut else _MOST_SENT_BACK
    return assistant(f"{text[:most]}…" if len(text) > most else text)


def asked_for(schema: JsonObject, corrections: Sequence[Message]) -> JsonObject:
    """Return the schema to ask for: with bounds after a reply that was cut off, so that the next one has an end."""
    lengths = [(message.data or {}).get("cut") for message in corrections]
    return shortened(schema, [length for length in lengths if isinstance(length, int)])


class Decision(BaseModel, metaclass=Spelled):
    """The fields and methods of a node in which a model makes one decision."""

    constrain: Constrain = Field(default="auto", exclude_if=is_auto)
    """`auto`: ask for the decision by a JSON Schema. `never`: only in words."""
    corrections: Annotated[str | None, Port(list)] = Field(default=None, exclude_if=lambda value: value is None)
    """Field with the replies of this decision that could not be used, each with the reason. With it, the node takes
    `again` after such a reply: an edge leads back to it. None: such a reply fails the step.
    """
    retries: NonNegativeInt = Field(default=1, exclude_if=lambda value: value == 1)
    """The most retries of one decision, if there is a field for `corrections`."""

    @property
    def corrected(self) -> tuple[str, ...]:
        """The outcome after a reply that cannot be used, if there is one."""
        return (AGAIN,) if self.corrections is not None and self.retries else ()

    async def decided(
        self,
        state: object,
        ctx: Context,
        messages: Sequence[Message],
        schema: JsonObject,
        task: str,
        read: Callable[[Reply], Outcome[str]],
    ) -> Outcome[str]:
        """Ask the model, and return the outcome of its reply.

        Args:
            state: the state of the step.
            ctx: the context of the step.
            messages: the request; the last one is the user's, with its facts.
            schema: the JSON Schema of the decision.
            task: the kind of decision.
            read: reads the reply, which may be truncated; a long one in a thread. Raises `AgentError` if it cannot be
                used.

        Raises:
            AgentError: the reply cannot be used, and no retry is left.
        """
        earlier: list[Message] = []
        if self.corrections is not None and ctx.error is None:
            earlier = list(getattr(state, self.corrections))
        output = asked_for(schema, earlier) if self.constrain == "auto" else None
        reply = await ctx.model.complete([*messages, *earlier], output=output, task=task)
        not_refused(reply, task)
        try:
            found = await away(lambda: read(reply), reply.text)
        except AgentError as error:
            tried = sum(message.role == "user" for message in earlier)
            if self.corrections is None or tried >= self.retries:
                raise
            fault = str(error).removeprefix(f"{task}: ")
            again = [*earlier, *wrong(reply, fault, messages[-1].data or {})]
            return Outcome(AGAIN, {self.corrections: again})
        cleared = self.corrections is not None and bool(getattr(state, self.corrections))
        return Outcome(found.name, {**found.update, **({str(self.corrections): []} if cleared else {})})


def reopened(ctx: Context, retry: Retry | None, error: AgentError) -> bool:
    """Return True if a step that fails by this error runs again because its run was reopened, not by its own policy.

    Args:
        ctx: the context of the step.
        retry: the node's own policy.
        error: the error of this attempt.
    """
    return ctx.attempt > (retry.attempts if retry is not None and retry.matches(error) else 1)


def not_refused(reply: Reply, task: str) -> None:
    """Raise an `AgentError` if the model refused to answer."""
    if reply.refused:
        raise AgentError(f"{task}: the model refused to answer ({reply.finish}): {quoted(reply.text)}")


def whole(reply: Reply, task: str) -> str:
    """Return the text of a complete reply, without surrounding space.

    Raises:
        AgentError: the model refused to answer, or its reply was truncated.
    """
    not_refused(reply, task)
    if reply.cut:
        raise AgentError(f"{task}: the reply {quoted(reply.text)} was cut off; give the model more max_tokens")
    return reply.text.strip()


def certain(reply: Reply) -> str:
    """Return the text of a reply; of one that was cut off, what is certainly complete."""
    text = reply.text.rstrip()
    return whole_words(reply.text) if reply.cut and text[-1:] not in tuple("}])\"'`") else text


def whole_words(text: str) -> str:
    """Return a text that was cut off, without its last word, which may be incomplete."""
    return text.strip() if text[-1:].isspace() else "".join(text.rsplit(None, 1)[:-1]).strip()


def kept(reply: Reply) -> str:
    """Return the text of a reply that is used although it may be cut off: then up to its last whole word, if it has a
    space, which texts in some languages do not.
    """
    return (whole_words(reply.text) if reply.cut else "") or reply.text.strip()


def tools_of(ctx: Context, node: str) -> Sequence[Tool]:
    """Return the tools that the node may use, in the order given.

    Raises:
        GraphUnknown: there are none.
    """
    tools = tuple(ctx.tools)
    if not tools:
        raise GraphUnknown(
            f"{node}: there is no tool to use; add tools to Executor(tools=[...]), or tools=[...] to the node"
        )
    return tools


def tool_named(ctx: Context, name: str, node: str) -> Tool:
    """Return the tool with a name.

    Raises:
        AgentError: there is none; the message names the existing tools.
    """
    tool = ctx.tools.get(name)
    if tool is None:
        tools_of(ctx, node)
        unknown_tool(ctx, name, node)
    return tool


def unknown_tool(ctx: Context, name: str, node: str) -> NoReturn:
    """Raise the error for a name that no tool has."""
    known = ", ".join(tool.name for tool in ctx.tools)
    raise AgentError(f"{node}: {quoted(name)} is not an available tool; choose one of: {known}")


def json_object(reply: str, node: str) -> dict[str, Any]:
    """Return the one JSON object in a reply, see `json_in`.

    Raises:
        AgentError: the reply is not JSON, or not an object.
    """
    try:
        found = json_in(reply)
    except NoReading as error:
        raise AgentError(f"{node}: the reply {quoted(reply)} {error}; reply with one JSON object only") from None
    if not isinstance(found, dict):
        raise AgentError(
            f"{node}: the reply {quoted(reply)} is JSON but not an object; reply with one JSON object only"
        )
    return found


def quoted(text: str) -> str:
    """Return a reply as an error message quotes it, shortened."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def unwritten(graph: GraphDefinition, name: str, field: str, writer: str) -> Iterator[str]:
    """Yield a problem if no other node of a graph can write a field that a node reads.

    Args:
        graph: the graph.
        name: the node that reads the field.
        field: the field.
        writer: the node that should write it, as the message shows it.
    """
    others = (node for other, node in graph.nodes.items() if other != name)
    if not any(node.updates is None or field in node.updates for node in others):
        yield f"{name} reads {field!r}, which no other node writes: place a {writer} before it"

"""Let a model complete a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    JsonValue,
    NonNegativeInt,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.codec import Codec, JsonCodec, explain
from orchestrator.graph.model import GraphDefinition, Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.graph.refs import ref_of
from orchestrator.models.messages import Message, Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.reading import NoReading, json_in
from orchestrator.nodes.extract import AnswerForm, find_answer
from orchestrator.nodes.model_decision import kept, quoted, shortened
from orchestrator.nodes.model_decision import wrong as corrected
from orchestrator.nodes.templates import fill, filled_by, placeholders, plain
from orchestrator.tasks import away
from orchestrator.tools.result import as_text
from orchestrator.tools.validation import coerced, faults, schema_faults

_MOST_FAULTS = 10
"""Maximum number of faults of a value that a message lists."""


CORRECTION = """\
Your reply cannot be used: {fault}
Answer again, with one JSON value that fits and with nothing else."""
BRIEFLY = """\
Your reply cannot be used: {fault}
Answer again, briefly."""


def _is_none(value: object) -> bool:
    return value is None


def _is_one(value: object) -> bool:
    return value == 1


def _is_shorten(value: object) -> bool:
    return value == "shorten"


def _is_default(value: object) -> bool:
    return value == CORRECTION


def _readable(template: str) -> str:
    placeholders(template)
    return template


class Complete(Node, kind="complete"):
    """Fill the prompt from the state, and write the model's reply.

    The fields that the prompt names are also the facts of the message (`Message.data`).

    With `output=`, a pydantic model or a JSON Schema, the reply is a value of that type, and the field gets the value.

    After a reply that does not fit, or is truncated or empty, the model is shown the fault and asked again, at most
    `retries` times in a step; after a truncated one, for a shorter one. If all are truncated or empty, the text of the
    last truncated one is kept, up to its last whole word (`on_cut`); the journal and the transcript show that the reply
    was cut off.

    If the last reply is refused or does not fit, or all are empty, the node takes `unusable`, provided that it has a
    field for the `fault`.

    Raises:
        AgentError: the reply is unusable, and `fault` names no field.
    """

    fills = ("result", "fault")
    asks = "model"
    class_field = "output"
    after_model = ("done", "unusable")

    class State(BaseModel):
        """The fields that the port and the prompt name by default."""

        question: str
        """The question."""
        reply: str = ""
        """The model's reply."""

    system: str = ""
    """The system message, verbatim; empty for none."""
    prompt: Annotated[str, AfterValidator(_readable), Port()] = "{question}"
    """The user's message; its placeholders are state fields."""
    result: Annotated[str, Port(str)] = "reply"
    """Field that gets the reply: its text, or with `output` the value."""
    output: Any = Field(default=None, exclude_if=_is_none)
    """The type of the reply: a pydantic model, or a JSON Schema; None for text."""
    correction: Annotated[str, filled_by("fault")] = Field(default=CORRECTION, exclude_if=_is_default)
    """The prompt after a reply that does not fit `output`."""
    retries: NonNegativeInt = Field(default=1, exclude_if=_is_one)
    """Retries in one step after a reply that cannot be used."""
    fault: Annotated[str | None, Port(str)] = None
    """Field for the reason why a reply cannot be used; None: such a reply fails the step."""
    task: str | None = None
    """The kind of decision, which is passed to the model with the messages."""
    form: AnswerForm | None = Field(default=None, exclude_if=_is_none)
    """If `output` is a JSON Schema with one property: the form of the answer that is extracted, as by `Extract`, from a
    reply that does not fit. None: the model is asked to correct such a reply.
    """
    on_cut: Literal["shorten", "keep", "raise"] = Field(default="shorten", exclude_if=_is_shorten)
    """What happens with a text that is cut off at its length limit. `shorten`: the model is asked for a shorter one,
    and if there is none, the last one that was cut off is kept, up to its last whole word. `keep`: it is kept at once.
    `raise`: it cannot be used.
    """
    options: Mapping[str, JsonValue] = {}
    """Parameters for the provider, such as `temperature`."""

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        taken = sorted({"messages", "tools", "output", "task"}.intersection(options))
        if taken:
            raise ValueError(f"{taken[0]!r} is not a parameter for the provider: leave it out of options=")
        return options

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: object) -> object:
        if output is None or (isinstance(output, type) and issubclass(output, BaseModel)):
            return output
        if not isinstance(output, Mapping):
            raise ValueError(f"output must be a pydantic model or a JSON Schema, and this is {output!r:.60}")
        for fault in schema_faults(output):
            raise ValueError(f"output is a JSON Schema that {fault}")
        return dict(output)

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        properties = self.output.get("properties") if isinstance(self.output, Mapping) else None
        if self.form is not None and len(properties or ()) != 1:
            raise ValueError("form= needs output=, a JSON Schema of an object with one property")
        return self

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def _class(self) -> type[BaseModel] | None:
        return self.output if isinstance(self.output, type) else None

    @field_serializer("output")
    def _write_output(self, output: Any) -> object:
        if isinstance(output, type):
            return ref_of(output) or self._schema()
        return output

    def port_type(self, port: str) -> Any:
        """See `Node.port_type`."""
        return None if port == "result" and self.output is not None else super().port_type(port)

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        if self.result in graph.schema.fields and self._schema().get("type") == "object":
            annotation = graph.schema.field(self.result).annotation
            if annotation in (str, int, float, bool) or get_origin(annotation) in (list, set, tuple):
                fault = f"the output of {name} is an object, and {self.result!r} cannot hold one"
                yield f"{fault}: make the field a model or a dict, or name another one"

    @property
    def does(self) -> str:
        """See `Node.does`."""
        if self.output is None:
            return "completes a text"
        title = self.output.__name__ if isinstance(self.output, type) else self.output.get("title")
        return f"fills {title}" if title else "fills a schema"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return (DONE,) if self.fault is None else (DONE, "unusable")

    def ports(self) -> dict[str, str]:
        filled = {f"prompt[{name}]": name for name in sorted(placeholders(self.prompt))}
        return {**{port: field for port, field in super().ports().items() if port != "prompt"}, **filled}

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        facts = plain({name: getattr(state, name) for name in placeholders(self.prompt)})
        text = fill(self.prompt, **{name: as_text(value) for name, value in facts.items()})
        head = [said(self.system)] if self.system else []
        messages = [*head, user(text, data=facts)]
        ask = self._text if self.output is None else self._fitting
        found, fault = await ask(ctx, messages, facts)
        if fault is None:
            return Outcome(DONE, {self.result: found})
        if self.fault is None:
            raise AgentError(f"{ctx.node}: {fault}")
        return Outcome("unusable", {self.fault: f"{ctx.node}: {fault}"})

    async def _text(self, ctx: Context, messages: list[Message], facts: Mapping[str, Any]) -> tuple[object, str | None]:
        """Return the text of a reply, or the fault of the last reply."""
        options: dict[str, Any] = dict(self.options)
        left, text = self.retries, ""
        while True:
            reply = await ctx.model.complete(messages, task=self.task, **options)
            fault = _fault_of(reply)
            if reply.cut and self.on_cut != "raise":
                text = kept(reply) or text
            if fault is None or (reply.cut and self.on_cut == "keep" and text):
                return text if fault else reply.text.strip(), None
            if reply.refused or not left or (reply.cut and self.on_cut == "raise"):
                return (text, None) if text and not reply.refused else (None, fault)
            left -= 1
            messages = [*messages, *corrected(reply, str(fault), facts, BRIEFLY)]

    async def _fitting(
        self, ctx: Context, messages: list[Message], facts: Mapping[str, Any]
    ) -> tuple[object, str | None]:
        """Return the value of a reply that fits the output, or the fault of the last reply."""
        options: dict[str, Any] = dict(self.options)
        left, cut = self.retries, list[int]()
        while True:
            output = shortened(dict(self._schema()), cut)
            reply = await ctx.model.complete(messages, output=output, task=self.task, **options)
            fault, shown = _fault_of(reply), ""
            if fault is None:
                try:
                    return await away(partial(self._read, reply), reply.text), None
                except ValueError as error:
                    fault, shown = str(error), f"; the reply was {quoted(reply.text)}"
            if reply.refused or not left:
                return None, fault + shown
            left -= 1
            cut += [len(reply.text)] if reply.cut else []
            messages = [*messages, *corrected(reply, fault, facts, self.correction)]

    def _schema(self) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = self.output or {} if self._class is None else self._class.model_json_schema()
        return schema

    def _read(self, reply: Reply) -> object:
        """Return the value that a reply represents.

        Raises:
            ValueError: the reply is not JSON, does not fit, or cannot be stored in the state, such as one with NaN.
        """
        try:
            value = json_in(reply.text) if reply.parsed is None else reply.parsed
        except NoReading as error:
            value = None if self.form is None else self._stated(reply.text)
            if value is None:
                raise ValueError(self._no_json(reply.text, error)) from None
        if self._class is not None:
            try:
                found = self._class.model_validate(value)
            except ValidationError as error:
                raise ValueError(explain(error)) from None
            Codec(self._class).write(found)
            return found
        wrong = faults(value, self.output, self.output)
        stated = self._stated(value) if wrong and self.form is not None else None
        if stated is not None:
            value, wrong = stated, faults(stated, self.output, self.output)
        if wrong:
            raise ValueError("; ".join(wrong[:_MOST_FAULTS]))
        JsonCodec().write(value)
        return value

    def _stated(self, value: Any) -> Any:
        """Extract the answer from a text, or from the only property of an object, and return it as an object with that
        property; None if there is no answer.
        """
        (name,) = self.output["properties"]
        said = value.get(name) if isinstance(value, Mapping) else value
        text = "" if said is None or isinstance(said, list | Mapping | bool) else as_text(said)
        answer = None if text.lstrip().startswith(("{", "[")) else find_answer(text, self.form or "text")
        return None if answer is None else coerced({name: answer}, self.output, self.output)

    def _no_json(self, text: str, error: NoReading) -> str:
        """Return the fault of a reply without JSON, and what to write."""
        if any(sign in text for sign in "{["):
            return f"the reply {error}"
        names = ", ".join(map(repr, self._schema().get("properties", ())))
        return f"the reply has no JSON; write one JSON {f'object with {names}' if names else 'value'}"


def _fault_of(reply: Reply) -> str | None:
    if reply.refused:
        return f"the model refused to answer ({reply.finish}): {quoted(reply.text)}"
    if reply.cut:
        return f"the reply {quoted(reply.text)} was cut off; give the model more max_tokens"
    return None if reply.text.strip() else "the reply is empty"

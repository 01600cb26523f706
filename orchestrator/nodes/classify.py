"""Let a model decide to which of several classes a text belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, NonNegativeInt, field_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.models.messages import system as said
from orchestrator.models.messages import user
from orchestrator.models.reading import choice_in
from orchestrator.nodes.model_decision import Constrain, is_auto, not_refused, quoted, whole, wrong
from orchestrator.nodes.templates import fill, filled_by

SYSTEM = """\
You sort texts. You get a text and the classes that there are, each as "name: what belongs to it". Choose the one \
class that fits best. Answer with one JSON object, {"choice": "<name>"}, with the name exactly as it is written, and \
with nothing else."""

PROMPT = """\
Classes:
{choices}

Text:
{text}"""

CORRECTION = """\
{fault}
Answer with the name of one of the classes: {names}."""


class Classify(Node, kind="classify"):
    """Ask a model which class a text belongs to, and take the outcome of that name.

    `Classify(choices={"billing": "about money", "other": "everything else"})` has the outcomes `billing` and `other`.
    The reply is an object with the name, or the name alone, as `choice_in` reads it. After any other
    reply the model is shown the fault and asked again, at most `retries` times in a step.

    Raises:
        AgentError: the reply was refused or truncated, or no reply names a class.
    """

    in_order = ("choices",)
    fills = ("result",)
    asks = "model"

    class State(BaseModel):
        """The field that the port names by default."""

        question: str
        """The text."""

    choices: Annotated[Mapping[str, str], Field(examples=[{"billing": "about money", "other": "everything else"}])]
    """Outcome -> description of the class, in the order in which a model sees them."""
    system: str = SYSTEM
    """The system message, verbatim."""
    prompt: Annotated[str, filled_by("text", "choices")] = PROMPT
    """The user's message."""
    correction: Annotated[str, filled_by("fault", "names")] = CORRECTION
    """The prompt after a reply that names no class."""
    text: Annotated[str, Port()] = "question"
    """Field with the text."""
    result: Annotated[str | None, Port(str)] = None
    """Field that gets the name of the class; None for no field."""
    retries: NonNegativeInt = 1
    """Retries in one step after a reply that names no class."""
    constrain: Constrain = Field(default="auto", exclude_if=is_auto)
    """`auto`: ask for the name by a JSON Schema. `never`: only in words."""

    @field_validator("choices")
    @classmethod
    def _check_choices(cls, choices: Mapping[str, str]) -> Mapping[str, str]:
        if len(choices) < 2:
            raise ValueError("there is nothing to choose: name two choices or more, each with what belongs to it")
        if len({name.casefold() for name in choices}) < len(choices):
            raise ValueError("two choices differ in case alone: rename one")
        return choices

    @property
    def outcomes(self) -> tuple[str, ...]:
        return tuple(self.choices)

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"chooses one of {len(self.choices)}"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        text = str(getattr(state, self.text))
        facts: dict[str, JsonValue] = {"text": text, "choices": dict(self.choices)}
        lines = "\n".join(f"{name}: {' '.join(what.split())}" for name, what in self.choices.items())
        messages = [said(self.system), user(fill(self.prompt, text=text, choices=lines), data=facts)]
        left, output = self.retries, self._schema() if self.constrain == "auto" else None
        while True:
            reply = await ctx.model.complete(messages, output=output, task="classify")
            not_refused(reply, ctx.node)
            chosen = choice_in(reply.text, self.choices)
            if chosen is not None:
                return Outcome(chosen, {} if self.result is None else {self.result: chosen})
            names = ", ".join(self.choices)
            if not left:
                written = whole(reply, ctx.node)
                raise AgentError(f"{ctx.node}: the reply {quoted(written)} names none of the classes: {names}")
            left -= 1
            fault = f"The reply {quoted(reply.text.strip())} names none of the classes."
            messages += wrong(reply, fault, facts, fill(self.correction, fault="{fault}", names=names))

    def _schema(self) -> dict[str, JsonValue]:
        choice: JsonValue = {"type": "string", "enum": [*self.choices]}
        return {
            "type": "object",
            "properties": {"choice": choice},
            "required": ["choice"],
            "additionalProperties": False,
        }

"""Let a model decide to which of several classes a text belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, Field, JsonValue, field_validator, model_validator

from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.nodes.decide import Deciding, checked_choices, listed
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


class Classify(Deciding, Node, kind="classify"):
    """Ask a model which class a text belongs to, and take the outcome of that name.

    `Classify(choices={"billing": "about money", "other": "everything else"})` has the outcomes `billing` and `other`.
    With `threshold=` there is one more, `unsure`, for a class whose probability is lower than the threshold or not
    known, as for `Decide`.

    The reply is an object with the name, or the name alone; case, quotes and reasons around it make no difference.
    After any other reply the model is shown the fault and asked again, at most `retries` times in a step.

    Raises:
        AgentError: the reply was refused, or no reply names a class.
    """

    in_order = ("choices",)
    fills = ("result", "probability")
    asks = "model"
    task = "classify"
    noun = "classes"

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
    result: Annotated[str | None, Port(str)] = None
    """Field that gets the name of the class; None for no field."""

    @field_validator("choices")
    @classmethod
    def _check_choices(cls, choices: Mapping[str, str]) -> Mapping[str, str]:
        return checked_choices(choices)

    @model_validator(mode="after")
    def _check(self) -> Self:
        return self.checked(self.choices)

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.with_unsure(tuple(self.choices))

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"chooses one of {len(self.choices)}"

    def options(self) -> Mapping[str, str]:
        """See `Deciding.options`."""
        return self.choices

    def asked(self, text: str, criteria: str) -> tuple[str, dict[str, JsonValue]]:
        """See `Deciding.asked`."""
        return fill(self.prompt, text=text, choices=listed(self.choices)), {"text": text, "choices": dict(self.choices)}

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        decided = await self.decide(str(getattr(state, self.text)), ctx)
        return self.taken(decided, decided.choice, decided.choice)

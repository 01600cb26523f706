"""A model completes a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, JsonValue, field_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.node import Node, Port
from orchestrator.graph.outcome import DONE, Outcome
from orchestrator.models.messages import Reply, user
from orchestrator.models.messages import system as said
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.shown_fields import plain
from orchestrator.nodes.templates import fill, placeholders
from orchestrator.tools.result import as_text


def _readable(template: str) -> str:
    placeholders(template)
    return template


class Complete(Node, kind="complete"):
    """Fill the prompt from the state, and write the model's reply.

    The fields that the prompt names are also the facts of the message (`Message.data`).

    If the reply is refused, cut or empty, the node takes `unusable`, provided that it has a field for the `fault`.

    Raises:
        AgentError: the reply is unusable, and `fault` names no field.
    """

    fills = ("result", "fault")
    after_model = ("done", "unusable")

    class State(BaseModel):
        """The fields that the port and the prompt name by default."""

        question: str
        """What is asked."""
        reply: str = ""
        """What the model said."""

    system: str = ""
    """The system message, as it stands; empty: none."""
    prompt: Annotated[str, AfterValidator(_readable), Port()] = "{question}"
    """The user's message; its placeholders are state fields."""
    result: Annotated[str, Port(str)] = "reply"
    """Field that gets the reply."""
    fault: Annotated[str | None, Port(str)] = None
    """Field for the reason why a reply cannot be used; None: such a reply is a failure."""
    task: str | None = None
    """The kind of decision, which is passed to the model with the messages."""
    options: Mapping[str, JsonValue] = {}
    """Parameters for the provider, such as `temperature`."""

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        taken = sorted({"messages", "tools", "output", "task"}.intersection(options))
        if taken:
            raise ValueError(f"{taken[0]!r} is not a parameter for the provider: leave it out of options=")
        return options

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
        options: dict[str, Any] = dict(self.options)
        reply = await ctx.model.complete([*head, user(text, data=facts)], task=self.task, **options)
        fault = _fault_of(reply)
        if fault is None:
            return Outcome(DONE, {self.result: reply.text.strip()})
        if self.fault is None:
            raise AgentError(f"{ctx.node}: {fault}")
        return Outcome("unusable", {self.fault: f"{ctx.node}: {fault}"})


def _fault_of(reply: Reply) -> str | None:
    if reply.refused:
        return f"the model refused to answer ({reply.finish}): {quoted(reply.text)}"
    if reply.cut:
        return f"the reply {quoted(reply.text)} was cut off; give the model more max_tokens"
    return None if reply.text.strip() else "the reply is empty"

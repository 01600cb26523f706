"""A model goes on with a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, JsonValue, field_validator

from orchestrator.errors import AgentError
from orchestrator.graph.node import Node, Port
from orchestrator.models.messages import system as said
from orchestrator.models.messages import user
from orchestrator.nodes.deciding import quoted
from orchestrator.nodes.shown import plain
from orchestrator.nodes.templates import fill, placeholders
from orchestrator.tools.result import as_text

if TYPE_CHECKING:
    from orchestrator.context import Context


def _readable(template: str) -> str:
    placeholders(template)
    return template


class Complete(Node, kind="complete"):
    """Fill the prompt from the state, and write what the model says to it.

    The fields that the prompt names are also the facts that come with the message (`Message.data`).

    Raises:
        AgentError: the model would not answer, had no room to say all of it, or said nothing.
    """

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
    task: str | None = None
    """What the model is told of the kind of decision, beside the message."""
    options: Mapping[str, JsonValue] = {}
    """Parameters for the provider, such as `temperature`."""

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        taken = sorted({"messages", "tools", "output", "task"}.intersection(options))
        if taken:
            raise ValueError(f"{taken[0]!r} is no parameter for the provider: leave it out of options=")
        return options

    def ports(self) -> dict[str, str]:
        filled = {f"prompt[{name}]": name for name in sorted(placeholders(self.prompt))}
        return {**{port: field for port, field in super().ports().items() if port != "prompt"}, **filled}

    async def run(self, state: object, ctx: Context[Any]) -> dict[str, object]:
        facts = plain({name: getattr(state, name) for name in placeholders(self.prompt)})
        text = fill(self.prompt, **{name: as_text(value) for name, value in facts.items()})
        head = [said(self.system)] if self.system else []
        options: dict[str, Any] = dict(self.options)
        reply = await ctx.model.complete([*head, user(text, data=facts)], task=self.task, **options)
        words = reply.text.strip()
        if reply.refused:
            raise AgentError(f"{ctx.node}: the model would not answer ({reply.finish}): {quoted(reply.text)}")
        if reply.cut:
            raise AgentError(f"{ctx.node}: the reply {quoted(reply.text)} was cut; give the model more max_tokens")
        if not words:
            raise AgentError(f"{ctx.node}: the reply is empty")
        return {self.result: words}

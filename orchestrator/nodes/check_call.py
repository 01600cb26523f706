"""Check a model's call before anyone is asked about it and before it is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, JsonValue

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.models.messages import Message, ToolCall
from orchestrator.nodes.conversation import failed
from orchestrator.nodes.model_decision import quoted


class CheckCall(Node, kind="check_call"):
    """Check a call: take `valid` and write its tool and its final arguments, or take `invalid`.

    For an invalid call, the call's message lists every error with its location in the arguments, so that the model can
    correct it.

    Raises:
        AgentError: the call cannot be made, and `on_error` is `raise`.
    """

    look = "code"

    fills = ("tool", "args", "message")

    class State(BaseModel):
        """The fields that the ports name by default: all that one call needs on its way through a graph."""

        call: ToolCall
        """The call requested by the model."""
        tool: str = ""
        """The tool's name."""
        args: dict[str, JsonValue] = {}
        """The validated arguments."""
        message: Message | None = None
        """The result of the call, as a message of the conversation."""

    effect: Effect = "pure"
    """It reads only the call and the tools' schemas."""
    call: Annotated[str, Port()] = "call"
    """Field with the `ToolCall`."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments."""
    message: Annotated[str, Port()] = "message"
    """Field that gets the message for a call that cannot be made."""
    on_error: Literal["raise", "observe"] = "observe"
    """What happens if a call cannot be made: the step fails, or the model gets the reason."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "checks a call"

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["valid", "invalid"]]:
        call = ToolCall.model_validate(getattr(state, self.call))
        try:
            args = checked(ctx, call)
        except AgentError as error:
            if self.on_error == "raise":
                raise
            return Outcome("invalid", {self.message: failed(call, str(error))})
        return Outcome("valid", {self.tool: call.name, self.args: args})


def checked(ctx: Context, call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call in the form that its tool receives.

    Raises:
        there is no such tool, or the arguments do not fit it.
    """
    tool = ctx.tools.get(call.name)
    if tool is None:
        known = ", ".join(one.name for one in ctx.tools) or "none at all"
        raise AgentError(f"{quoted(call.name)} is not an available tool; there are: {known}")
    if call.arguments is None:
        raise AgentError(f"the arguments of {call.name} are not a JSON object: {quoted(call.raw)}")
    return tool.validate(call.arguments)

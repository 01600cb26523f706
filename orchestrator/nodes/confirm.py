"""A person says yes or no. A node of its own, so that nothing before it ever runs again because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, JsonValue, model_validator

from orchestrator.errors import AgentError, UserDenied
from orchestrator.graph.node import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.jsontypes import JsonObject, digest
from orchestrator.nodes.deciding import tool_named
from orchestrator.nodes.shown import plain
from orchestrator.nodes.templates import check, fill
from orchestrator.tools.result import Risk, risk_at_most

if TYPE_CHECKING:
    from orchestrator.context import Context
    from orchestrator.kernel.question import Answer


class Confirm(Node, kind="confirm"):
    """Ask for approval and wait for it, across restarts if need be.

    With `tool` and `args` it asks about a tool call, which is what the answer is bound to: the question shows exactly
    what will run. The answer may carry other arguments; they are checked like the first ones and written to the field,
    so what runs is what was approved. Without them it asks about whatever its prompt says and `show` shows.

    Raises:
        UserDenied: it was denied, and `on_denied` is `raise`.
        AgentError: the tool is not there, or the arguments do not fit it.
    """

    class State(BaseModel):
        """The fields that its ports name where a tool call is confirmed."""

        tool: str = ""
        """The chosen tool's name."""
        args: dict[str, JsonValue] = {}
        """The chosen arguments."""

    prompt: str = ""
    """What is asked. `{field}` stands for each shown field, `{tool}` and `{args}` for the call."""
    show: Annotated[tuple[str, ...], Port()] = ()
    """Fields that the question shows."""
    reason: Annotated[str | None, Port(str)] = None
    """Field that gets the reason of a denial."""
    tool: Annotated[str | None, Port(str)] = None
    """Field with the name of the tool that is about to be called."""
    args: Annotated[str | None, Port(dict)] = None
    """Field with its arguments; gets those that were approved instead."""
    above: Risk | None = None
    """Only tools of a higher risk than this are asked about; None: all are."""
    on_denied: Literal["route", "raise"] = "route"
    """`route`: take the outcome `denied`. `raise`: there is no such outcome, the step fails."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tool is None) != (self.args is None):
            raise ValueError("tool= and args= belong together: name both fields, or neither")
        if self.above is not None and self.tool is None:
            raise ValueError("above= is about a tool's risk: name the fields of the call, tool= and args=")
        check(self.prompt, {*self.show, *(("tool", "args") if self.tool is not None else ())})
        return self

    @property
    def outcomes(self) -> tuple[str, ...]:
        return ("approved", "denied") if self.on_denied == "route" else ("approved",)

    async def run(self, state: object, ctx: Context[Any]) -> Outcome[str]:
        shown = plain({name: getattr(state, name) for name in self.show})
        if self.tool is None or self.args is None:
            prompt = fill(self.prompt, **shown) or "Go on?"
            answer = await ctx.ask("approval", prompt=prompt, payload=shown)
            return self._denied(answer, prompt) or Outcome("approved")
        return await self._confirm_call(getattr(state, self.tool), getattr(state, self.args), shown, ctx)

    async def _confirm_call(
        self, name: str, args: dict[str, Any], shown: dict[str, Any], ctx: Context[Any]
    ) -> Outcome[str]:
        assert self.args is not None
        tool = tool_named(ctx, name, self.kind)
        args = tool.validate(args)
        if self.above is not None and risk_at_most(tool.risk, self.above):
            return Outcome("approved", {self.args: args})
        fault = ""
        while True:
            named = {**shown, "tool": name, "args": args}
            prompt = fill(self.prompt, **named) or f"Call {name}?"
            payload = {**named, "risk": tool.risk, "effect": tool.effect, "call_id": _call_id(ctx, name, args)}
            answer = await ctx.ask("approval", prompt=prompt + fault, payload=payload)
            denied = self._denied(answer, f"{name} with {args}")
            if denied is not None:
                return denied
            edited = getattr(answer, "args", None)
            if edited is None:
                return Outcome("approved", {self.args: args})
            try:
                return Outcome("approved", {self.args: tool.validate(edited)})
            except AgentError as error:
                # An executor refuses such an answer when it comes; whatever slips through is asked again.
                fault = f" ({error})"

    def _denied(self, answer: Answer, what: str) -> Outcome[str] | None:
        """The denial that an answer is, None if it is none."""
        if answer.type != "deny":
            return None
        if self.on_denied == "raise":
            why = f": {answer.reason}" if answer.reason else ""
            raise UserDenied(f"{what} was denied{why}")
        return Outcome("denied", {self.reason: answer.reason} if self.reason is not None else {})


def _call_id(ctx: Context[Any], tool: str, args: JsonObject) -> str:
    """Names a call that no model gave an id: the same for the same call in the same place."""
    return digest({"run": ctx.run_id, "path": ctx.path, "node": ctx.node, "tool": tool, "args": args})

"""Approval by a person, in a separate node, so that an answer never causes earlier work to run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from msgspec import Struct
from pydantic import BaseModel, Field, JsonValue, field_serializer, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, ModelError, ModelUnavailable, UserDenied
from orchestrator.graph.model import Approval, GraphDefinition, Node, Port, node_data
from orchestrator.graph.outcome import Outcome
from orchestrator.json import JsonObject, digest
from orchestrator.models.messages import Message, ToolCall
from orchestrator.nodes.check_call import checked
from orchestrator.nodes.conversation import CHANGED, added, failed
from orchestrator.nodes.decide import Decide
from orchestrator.nodes.model_decision import tool_named
from orchestrator.nodes.templates import check, fill, plain
from orchestrator.tools.result import RISKS, Risk, risk_at_most
from orchestrator.tools.tool import Tool

CRITERIA = """\
An agent wants to make the tool call below. May it be made? Approve it (yes) only if it is clearly harmless."""
"""Criteria of a review that does not set `criteria`."""
_REVIEWED: tuple[Risk, ...] = ("none", "read", "write")
"""Risks of tools whose calls a model may approve."""
_FORMS = "tool= and args=, or calls= and results="
_VERDICTS = {"yes": "approve", "approve": "approve", "no": "deny", "deny": "deny"}
_OF_REVIEW = Decide.model_fields.keys() - Node.model_fields.keys() - {"text", "result", "probability"}
"""Fields of the `Decide` of a review; the others belong to a node of a graph."""


def _is_none(value: object) -> bool:
    """Return True for the default, so that graphs which do not use the field are stored as before."""
    return value is None


class Denial(Struct, frozen=True):
    """A denial of a call, or of what the node shows."""

    reason: str
    by: str = ""
    """Empty: a person."""

    def sentence(self, what: str) -> str:
        """Return the message of the error."""
        return f"{what} was denied{f' by {self.by}' if self.by else ''}{self._why}"

    def of(self, call: ToolCall) -> Message:
        """Return the message that reports the denial to the model as the result of its call."""
        return failed(call, f"{self.by or 'the user'} denied this call{self._why}")

    @property
    def _why(self) -> str:
        return f": {self.reason}" if self.reason else ""


class Confirm(Node, kind="confirm"):
    """Ask for approval and wait for it, across restarts if necessary.

    With `tool` and `args` it asks about a tool call. The question shows exactly the call that will be made, and the
    answer is valid for this call only. The answer may contain other arguments: they are checked and written to the
    field, so that the call that is made is the approved one. Without `tool` and `args` it shows its prompt and the
    fields of `show`.

    With `calls` and `results` it asks about each call of a list, one after the other, before any of them is made:
    `Confirm(calls="pending", results="messages")` before `Execute(calls="pending", results="messages")`. The list keeps
    the calls that may be made, with the approved arguments. Calls that were denied, or that cannot be made, get a
    result that tells the model why. The outcome is `denied` if no call is left and at least one was denied. To show all
    calls with each question, add `show=("pending",)`.

    With `review=Decide(yes_no=True, threshold=0.9)` a model decides about a tool call first. A person is asked only if
    the decision is unsure, or could not be made; the question shows it. Calls of tools of risk `dangerous` are never
    reviewed: a person is asked about them.

    Raises:
        UserDenied: the person, or the review, denied, and `on_denied` is `raise`.
        AgentError: the tool of a single call does not exist, or the arguments do not fit it.
    """

    fills = ("reason", "args", "message", "calls", "results")
    asks = "person"

    class State(BaseModel):
        """The fields that its ports name when it confirms a tool call."""

        tool: str = ""
        """The chosen tool's name."""
        args: dict[str, JsonValue] = {}
        """The chosen arguments."""

    prompt: str = ""
    """The question. `{field}` is replaced by the value of each shown field, `{tool}` and `{args}` by the call."""
    show: Annotated[tuple[str, ...], Port()] = ()
    """Fields that the question shows."""
    reason: Annotated[str | None, Port(str)] = None
    """Field that gets the reason for a denial."""
    tool: Annotated[str | None, Port(str)] = None
    """Field with the name of the tool that is about to be called."""
    args: Annotated[str | None, Port(dict)] = None
    """Field with its arguments; gets the approved arguments if they differ."""
    call: Annotated[str | None, Port()] = None
    """Field with the model's `ToolCall` that the tool and its arguments come from."""
    message: Annotated[str | None, Port()] = None
    """Field that gets, after a denial, the message that reports it to the model as the result of that call."""
    calls: Annotated[str | None, Port(list), Field(exclude_if=_is_none)] = None
    """Field with a list of `ToolCall`s; keeps those that may be made."""
    results: Annotated[str | None, Port(list), Field(exclude_if=_is_none)] = None
    """Field that gets a message for each of the others; one with the reducer `append`, because `Execute` adds to it."""
    above: Risk | None = None
    """Ask only about tools of a higher risk than this; None to ask about all."""
    from_risk: Risk | None = None
    """Ask only about tools of this risk or a higher one: another way to set `above`."""
    on_denied: Literal["route", "raise"] = "route"
    """`route`: take the outcome `denied`. `raise`: there is no such outcome, the step fails."""
    review: Annotated[Decide | None, Field(exclude_if=_is_none)] = None
    """How a model, the one that `model` names, decides about a call first: yes or no, or between `approve` and `deny`;
    after any other choice a person is asked. Its `criteria` say which calls to approve. None: no review."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tool is None) != (self.args is None):
            raise ValueError("tool= and args= belong together: name both fields, or neither")
        if (self.calls is None) != (self.results is None):
            raise ValueError("calls= and results= belong together: name both fields, or neither")
        single = [name for name in ("tool", "call", "reason") if getattr(self, name) is not None]
        if self.calls is not None and single:
            raise ValueError(f"{single[0]}= is for a single approval and calls= for several: name one of them")
        for name in ("above", "from_risk"):
            if getattr(self, name) is not None and not self.confirms_calls:
                raise ValueError(f"{name}= is about a tool's risk: name the fields of the call, {_FORMS}")
        if self.above is not None and self.from_risk is not None:
            raise ValueError("above= and from_risk= are two forms of the same setting: use one of them")
        if (self.call is None) != (self.message is None) or (self.call is not None and self.tool is None):
            raise ValueError(
                "call= and message= belong together, beside tool= and args=: name all of them; a list of calls has "
                "calls= and results="
            )
        check(self.prompt, {*self.show, *(("tool", "args") if self.confirms_calls else ())})
        if self.review is not None:
            self._check_review(self.review)
        return self

    def _check_review(self, review: Decide) -> None:
        if not self.confirms_calls:
            raise ValueError(f"review= is about a tool's call, whose risk is known: name its fields, {_FORMS}")
        if not any(self.asks_about(risk) for risk in _REVIEWED):
            raise ValueError("review= has nothing to review: calls of risk dangerous are left to a person")
        if not review.yes_no and not {"approve", "deny"} <= review.choices.keys():
            raise ValueError(
                "review= approves or denies: Decide(yes_no=True), or Decide(choices=) with the choices approve and deny"
            )
        if review.threshold is None:
            raise ValueError("review= needs a threshold=, below which a person is asked, such as 0.9")
        unused = review.model_fields_set - _OF_REVIEW
        if unused:
            raise ValueError(
                f"review= is not a node of the graph: set {min(unused)}= on the Confirm instead, or leave it out"
            )

    @field_serializer("review")
    def _review_data(self, review: Decide | None) -> dict[str, object] | None:
        if review is None:
            return None
        data = node_data(review)
        return {name: data[name] for name in type(review).model_fields if name in data and name in _OF_REVIEW}

    @property
    def does(self) -> str:
        """See `Node.does`."""
        if not self.confirms_calls:
            return "asks for approval"
        if self.review is not None:
            return "reviews calls, asks if unsure"
        if self.above is not None:
            return f"asks above risk {self.above}"
        return "asks about each call" if self.from_risk is None else f"asks from risk {self.from_risk}"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return ("approved", "denied") if self.on_denied == "route" else ("approved",)

    @property
    def confirms_calls(self) -> bool:
        """True if it asks about tool calls, one or several."""
        return self.tool is not None or self.calls is not None

    @property
    def sees_tools(self) -> bool:
        return self.confirms_calls

    @property
    def needs_tools(self) -> bool:
        return self.tool is not None

    @property
    def asks_model(self) -> bool:
        """See `Node.asks_model`."""
        return self.review is not None

    @property
    def approves(self) -> Approval:
        if not self.confirms_calls:
            return Approval("approved")
        asked = tuple(risk for risk in RISKS if self.asks_about(risk))
        reviewed = tuple(risk for risk in asked if self.review is not None and risk in _REVIEWED)
        unasked = tuple(risk for risk in RISKS if risk not in asked or risk in reviewed)
        return Approval("approved", self._call_fields, unasked, reviewed)

    @property
    def _call_fields(self) -> tuple[str, str] | None:
        """The fields with the tools and the arguments of the calls: see `Node.called_from`."""
        if self.calls is not None:
            return self.calls, self.calls
        return None if self.tool is None or self.args is None else (self.tool, self.args)

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        calls, results = (graph.schema.fields.get(field or "") for field in (self.calls, self.results))
        if calls is not None and not calls.plain:
            yield (
                f"{name}: Confirm(calls={self.calls!r}) replaces the list by the calls that may be made, which the "
                f"field's reducer {calls.reducer} prevents: use a field without one"
            )
        if results is not None and results.plain:
            yield (
                f"{name}: Confirm(results={self.results!r}) and Execute both add messages to this field: give it a "
                f"reducer, as in {self.results}: Annotated[list[Message], append] = []"
            )

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        shown = plain({name: getattr(state, name) for name in self.show})
        if self.calls is not None and self.results is not None:
            return await self._confirm_calls(state, self.calls, self.results, shown, ctx)
        if self.tool is None or self.args is None:
            prompt = fill(self.prompt, **shown) or "Go on?"
            answer = await ctx.ask("approval", prompt=prompt, payload={"shown": shown} if shown else {})
            return self._denied(Denial(answer.reason), prompt) if answer.type == "deny" else Outcome("approved")
        name = getattr(state, self.tool)
        tool = tool_named(ctx, name, self.kind)
        args = tool.validate(getattr(state, self.args))
        call = None if self.call is None else ToolCall.model_validate(getattr(state, self.call))
        call_id = _call_id(ctx, name, args) if call is None else call.id
        found = await self.confirm_call(tool, args, call_id, shown, ctx)
        if isinstance(found, Denial):
            return self._denied(found, f"{name} with {args}", call)
        return Outcome("approved", {self.args: found})

    async def _confirm_calls(
        self, state: object, calls: str, results: str, shown: dict[str, object], ctx: Context
    ) -> Outcome[str]:
        allowed: list[ToolCall] = []
        refused: list[Message] = []
        denied = False
        for call in map(ToolCall.model_validate, getattr(state, calls)):
            try:
                args = checked(ctx, call)
            except AgentError as error:
                refused.append(failed(call, str(error)))
                continue
            found = await self.confirm_call(tool_named(ctx, call.name, self.kind), args, call.id, shown, ctx)
            if not isinstance(found, Denial):
                allowed.append(_approved(call, args, found))
            elif self.on_denied == "raise":
                raise UserDenied(found.sentence(f"{call.name} with {args}"))
            else:
                denied = True
                refused.append(found.of(call))
        update: dict[str, object] = {calls: allowed}
        if refused:
            update[results] = added(state, results, refused)
        return Outcome("denied" if denied and not allowed else "approved", update)

    async def confirm_call(
        self, tool: Tool, args: dict[str, object], call_id: str, shown: dict[str, object], ctx: Context
    ) -> dict[str, object] | Denial:
        """Return the approved arguments of a call, or the denial.

        Args:
            tool: the tool.
            args: its validated arguments.
            call_id: identifies the call in its step.
            shown: what the question shows with it, as plain JSON.
            ctx: the context of the step.

        Returns:
            The arguments; the person may have changed them.
        """
        if not self.asks_about(tool.risk):
            return args
        reviewed: dict[str, object] = {}
        if self.review is not None and tool.risk in _REVIEWED:
            verdict, words = await self._reviewed(self.review, tool, args, shown, ctx)
            if verdict:
                return args if verdict == "approve" else Denial(words, by="a model's review")
            reviewed["model_review"] = words
        fault = ""
        while True:
            named = {**shown, "tool": tool.name, "args": args}
            prompt = fill(self.prompt, **named) or f"Call {tool.name}?"
            payload: dict[str, object] = {"tool": tool.name, "args": args, "risk": tool.risk, "effect": tool.effect}
            payload |= {"call_id": call_id, **reviewed, **({"shown": shown} if shown else {})}
            answer = await ctx.ask("approval", prompt=prompt + fault, payload=payload)
            if answer.type == "deny":
                return Denial(answer.reason)
            edited = getattr(answer, "args", None)
            if edited is None:
                return args
            try:
                return tool.validate(edited)
            except AgentError as error:
                # The executor refuses such an answer when it arrives; if one gets through, the question is asked again.
                fault = f" ({error})"

    def asks_about(self, risk: Risk) -> bool:
        """Return whether the node asks about calls of tools with a given risk.

        Args:
            risk: the risk.

        Returns:
            True if it asks.
        """
        if self.above is not None:
            return not risk_at_most(risk, self.above)
        return self.from_risk is None or risk_at_most(self.from_risk, risk)

    def _denied(self, denial: Denial, what: str, call: ToolCall | None = None) -> Outcome[str]:
        if self.on_denied == "raise":
            raise UserDenied(denial.sentence(what))
        update: dict[str, object] = {self.reason: denial.reason} if self.reason is not None else {}
        if call is not None and self.message is not None:
            update[self.message] = denial.of(call)
        return Outcome("denied", update)

    async def _reviewed(
        self, review: Decide, tool: Tool, args: dict[str, object], shown: dict[str, object], ctx: Context
    ) -> tuple[str, str]:
        """Return a model's decision, `approve`, `deny` or empty if a person has to decide, and its words."""
        # As JSON, no value can pass for a part of the prompt.
        facts = {"tool": tool.name, "description": tool.description, "risk": tool.risk, "args": args}
        text = json.dumps(facts | ({"shown": shown} if shown else {}), ensure_ascii=False)
        try:
            decided = await review.decide(text, ctx, criteria=CRITERIA, bare=True)
        except ModelUnavailable:
            raise  # the run goes on once the model is reached
        except (AgentError, ModelError) as error:
            return "", f"no decision: {error}"
        likely = "not known" if decided.probability is None else decided.probability
        words = f"{decided.choice}, by model {ctx.model.name[:100]!r}, probability {likely}"
        if not review.is_sure(decided):
            return "", f"{words}; the threshold is {review.threshold}"
        return _VERDICTS.get(decided.choice, ""), words


def _approved(call: ToolCall, args: dict[str, object], approved: dict[str, object]) -> ToolCall:
    """Return a call of a list with the approved arguments, and a mark if they are not the model's."""
    extras = {name: value for name, value in call.extras.items() if name != CHANGED}
    if approved != args:
        extras[CHANGED] = True
    return call.model_copy(update={"arguments": approved, "extras": extras})


def _call_id(ctx: Context, tool: str, args: JsonObject) -> str:
    """Return an id for a call without one from a model: the same for the same call in the same place."""
    return digest({"run": ctx.run_id, "path": ctx.path, "node": ctx.node, "tool": tool, "args": args})

"""Planned calls, each in a branch of a map: evidence is inserted into its input, and its result becomes evidence.

The input in a plan is read according to the tool's schema: `Encyclopedia[The Hennchata]` is the one text that the tool
takes, `multiply[#E1, 4]` two numbers, `multiply[{"a": #E1, "b": 4}]` and `multiply[a=#E1, b=4]` the same. It is parsed
before evidence is inserted, so the output of a tool is never read as a plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, JsonValue, PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import local, merge
from orchestrator.json import JsonObject
from orchestrator.models.text.forms import OfferedTool, Unread
from orchestrator.models.text.inputs import read_input
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.plans.blueprint import REFERENCE, PlannedCall, needs_of, quoted_references
from orchestrator.nodes.steps import Step, step_of
from orchestrator.tools.result import ToolFailure, ToolResult, as_text
from orchestrator.tools.tool import Tool
from orchestrator.tools.validation import coerced, faults

NONE_LEFT = "this call was not made: no calls are left"
WORK_ENDED = "this call was not made: a call that it comes after ended the work"


class PlannedCallState(BaseModel):
    """The fields that the nodes of planned calls name by default. All but the evidence are local to a branch."""

    evidence: Annotated[dict[str, Step], merge] = {}
    """The result of each step, by its id."""
    tool: Annotated[str, local] = ""
    """Name of the tool that is about to be called."""
    args: Annotated[dict[str, JsonValue], local] = {}
    """Its arguments."""
    result: Annotated[ToolResult | None, local] = None
    """Result of the call."""
    denial: Annotated[str, local] = ""
    """The reason why a person denied it."""


class Fill(Node, kind="fill"):
    """Insert the evidence so far into the input of one step of a blueprint. The step is the item of its map.

    It checks the arguments and takes `call`. A step that needs no call takes `done` with its result: a step that is
    only text, or a call that cannot be made, whose result gives the reason. `Record` writes the evidence of either:

        plan -> fill       : each steps
        fill -> confirm    : call
        fill -> record     : done
        confirm -> execute : approved
        confirm -> record  : denied
        execute -> record
        record -> solve

    Names of tools match regardless of case, if only one tool matches.

    With `max_calls`, only the calls that can start first are made, and the evidence of all others is that no calls are
    left. So no limit ends the work between a call and its evidence.

    Steps that need a step that ended the work (`ends=True`), directly or through others, are not called, and their
    evidence records that. Steps that do not need it are carried out anyway.

    Raises:
        AgentError: the tool does not exist or the arguments do not fit it, and `on_error` is `raise`.
        StepError: the node is not in a map of planned calls.
    """

    look = "code"

    fills = ("tool", "args", "result")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

    effect: Effect = "pure"
    """It reads only the state and the tools' declarations."""
    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field with the evidence so far."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments."""
    result: Annotated[str, Port()] = "result"
    """Field that gets the result of a step that needs no call."""
    steps: Annotated[str | None, Port(list)] = None
    """Field with the whole plan, in which `max_calls` is counted."""
    max_calls: PositiveInt | None = None
    """The most calls of the plan to make; None for all."""
    on_error: Literal["raise", "observe"] = "observe"
    """What happens if a call cannot be made: the step fails, or the evidence gives the reason."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.steps is None) != (self.max_calls is None):
            raise ValueError("steps= and max_calls= belong together: name the field with the plan, and how many")
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "inserts evidence"

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["call", "done"]]:
        call = planned_call(ctx)
        # The call was made, or denied, by a node that an earlier version of the graph had here.
        if getattr(state, self.tool):
            return Outcome("done")
        evidence: Mapping[str, Step] = getattr(state, self.evidence)
        plan = None if self.steps is None else getattr(state, self.steps)
        found = filled(call, evidence, ctx, plan=plan, max_calls=self.max_calls, on_error=self.on_error)
        called = {self.tool: found.call.tool, self.args: found.args}
        if found.result is None:
            return Outcome("call", called)
        return Outcome("done", {**called, self.result: found.result})


class Record(Node, kind="record"):
    """Write the evidence of one step of a blueprint, the item of its map. No other node of the branch writes evidence.

    The evidence is the result of the call, or of a step that needed none. Without a result the call was denied, and the
    evidence records that. The branch's fields are then cleared for another round of planned calls. See `Fill`.

    Raises:
        StepError: the node is not in a map of planned calls.
    """

    look = "code"

    fills = ("evidence", "tool", "result", "denial")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

    effect: Effect = "pure"
    """It reads only the state."""
    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field that gets the evidence, one with the reducer `merge`."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field with the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field with the arguments that it was called with."""
    result: Annotated[str, Port()] = "result"
    """Field with the result; None: the call was denied."""
    denial: Annotated[str | None, Port(str)] = None
    """Field with the reason of a denial."""

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "writes evidence"

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        result: ToolResult | None = getattr(state, self.result)
        if result is None:
            result = denied_call(getattr(state, self.denial) if self.denial is not None else "")
        evidence = evidence_of(planned_call(ctx), getattr(state, self.tool), getattr(state, self.args), result)
        own = {self.tool: "", self.result: None} | ({} if self.denial is None else {self.denial: ""})
        return {self.evidence: evidence, **own}


class Work(Node, kind="work"):
    """Prepare the call of one step of a blueprint, and write its evidence afterwards. The step is the item of its map.

    `Fill` and `Record` do the same in two nodes, which drawings show separately; prefer them in new graphs.

    Before the call it inserts the evidence so far into the step's input, checks the arguments, writes the call and
    takes `call`. After the call, or its denial, it writes the step's evidence and takes `done`:

        plan -> work    : each steps
        work -> confirm : call
        confirm -> execute : approved
        confirm -> work : denied
        execute -> work
        work -> solve   : done

    An invalid call takes `done` without a call, with the error as its evidence; so does a step that is only text.

    Names of tools match regardless of case, if only one tool matches.

    With `max_calls`, only the calls that can start first are made, and the evidence of all others is that no calls are
    left. So no limit ends the work between a call and its evidence.

    Steps that need a step that ended the work (`ends=True`), directly or through others, are not called, and their
    evidence records that. Steps that do not need it are carried out anyway.

    Raises:
        AgentError: the tool does not exist or the arguments do not fit it, and `on_error` is `raise`.
        StepError: the node is not in a map of planned calls.
    """

    look = "code"

    fills = ("evidence", "tool", "args", "result", "denial")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field with the evidence, one with the reducer `merge`."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name, until the call is done."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments; after the call, those that were used."""
    result: Annotated[str, Port()] = "result"
    """Field with the result of the call."""
    denial: Annotated[str | None, Port(str)] = None
    """Field with the reason of a denial."""
    steps: Annotated[str | None, Port(list)] = None
    """Field with the whole plan, in which `max_calls` is counted."""
    max_calls: PositiveInt | None = None
    """The most calls of the plan to make; None for all."""
    on_error: Literal["raise", "observe"] = "observe"
    """What happens if a call cannot be made: the step fails, or the evidence gives the reason."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.steps is None) != (self.max_calls is None):
            raise ValueError("steps= and max_calls= belong together: name the field with the plan, and how many")
        return self

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "fills a call, records evidence"

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["call", "done"]]:
        call = planned_call(ctx)
        if called := getattr(state, self.tool):
            return self._made(state, call.model_copy(update={"tool": called}))
        evidence: Mapping[str, Step] = getattr(state, self.evidence)
        plan = None if self.steps is None else getattr(state, self.steps)
        found = filled(call, evidence, ctx, plan=plan, max_calls=self.max_calls, on_error=self.on_error)
        if found.result is None:
            return Outcome("call", {self.tool: found.call.tool, self.args: found.args})
        return Outcome("done", {self.evidence: evidence_of(call, found.call.tool, {}, found.result)})

    def _made(self, state: object, call: PlannedCall) -> Outcome[Literal["call", "done"]]:
        """Write the evidence after the call was made or denied."""
        result: ToolResult | None = getattr(state, self.result)
        if result is None:
            result = denied_call(getattr(state, self.denial) if self.denial is not None else "")
        own = {self.tool: "", self.result: None} | ({} if self.denial is None else {self.denial: ""})
        return Outcome("done", {self.evidence: evidence_of(call, call.tool, getattr(state, self.args), result), **own})


# -- calls with their evidence -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilledCall:
    """A step of a blueprint with the evidence so far inserted into its input."""

    call: PlannedCall
    """The step, with the tool's real name if the tool exists."""
    args: dict[str, Any] = field(default_factory=dict)
    """Arguments for the tool."""
    result: ToolResult | None = None
    """The result, if no call is needed; None if the tool has to be called."""


def planned_call(ctx: Context) -> PlannedCall:
    """Return the step that a branch is for.

    Raises:
        StepError: the node is not in a map of planned calls.
    """
    if not isinstance(ctx.item, PlannedCall | Mapping):
        raise StepError(f"{ctx.node}: it runs planned calls: reach it by an `each` edge from a Plan")
    return PlannedCall.model_validate(ctx.item)


def filled(
    call: PlannedCall,
    evidence: Mapping[str, Step],
    ctx: Context,
    *,
    plan: Sequence[object] | None,
    max_calls: int | None,
    on_error: Literal["raise", "observe"],
) -> FilledCall:
    """Insert evidence into the input of a step, and check the call.

    Args:
        call: the step.
        evidence: the results of the steps that it needs.
        ctx: the context, which has the tools.
        plan: the whole plan, in which `max_calls` is counted; None to allow all calls.
        max_calls: the most calls of the plan to make.
        on_error: `raise` to raise for a call that cannot be made, `observe` to return the error as its result.

    Raises:
        AgentError: the tool does not exist or the arguments do not fit it, and `on_error` is `raise`.
    """
    if any(step.ended for step in evidence.values()):
        return FilledCall(call, result=ToolFailure(error=WORK_ENDED))
    if not call.tool:
        return FilledCall(call, result=ToolResult(output=evidence_in(call.input, evidence)))
    try:
        tool = _tool_of(call, ctx)
        if tool is None:
            known = ", ".join(one.name for one in ctx.tools)
            raise AgentError(f"{quoted(call.tool)} is not an available tool; choose one of: {known}")
        call = call.model_copy(update={"tool": tool.name})
        if plan is not None and not _may_call(call, plan, max_calls, ctx):
            return FilledCall(call, result=ToolFailure(error=NONE_LEFT))
        return FilledCall(call, tool.validate(arguments_of(call, evidence, tool.parameters)))
    except AgentError as error:
        if on_error == "raise":
            raise
        return FilledCall(call, result=ToolFailure(error=str(error)))


def denied_call(reason: str) -> ToolResult:
    """Return the result of a call that a person denied."""
    return ToolFailure(error="the user denied this call" + (f": {reason}" if reason else ""))


def evidence_of(call: PlannedCall, tool: str, args: dict[str, Any], result: ToolResult) -> dict[str, Step]:
    """Return the evidence of a step, by its id: the tool, the arguments and the result."""
    return {call.id: step_of(call.thought, tool, args, result)}


def _may_call(call: PlannedCall, steps: Sequence[object], max_calls: int | None, ctx: Context) -> bool:
    """Return True if `max_calls` allows this call, whatever the order in which the branches run."""
    plan = {one.id: one for one in map(PlannedCall.model_validate, steps)}
    order = TopologicalSorter({name: [need for need in one.needs if need in plan] for name, one in plan.items()})
    wanted = [name for name in order.static_order() if _tool_of(plan[name], ctx) is not None]
    return call.id in wanted[:max_calls]


def _tool_of(call: PlannedCall, ctx: Context) -> Tool | None:
    """Return the tool that a call names; the name may differ in case if only one tool matches."""
    tool = ctx.tools.get(call.tool) if call.tool else None
    if tool is not None:
        return tool
    alike = [one for one in ctx.tools if one.name.isascii() and one.name.lower() == call.tool.lower()]
    return alike[0] if len(alike) == 1 else None


Evidence: TypeAlias = Mapping[str, Step]
"""Results of the calls, by their ids."""


def arguments_of(call: PlannedCall, evidence: Evidence, parameters: JsonObject) -> dict[str, Any]:
    """Return the arguments for the tool; not validated yet.

    An input that is only one reference is the evidence itself, of any type; in a longer input the evidence is inserted
    as text.

    Raises:
        AgentError: the input has several readings, or none.
    """
    try:
        pieces = read_input(OfferedTool(call.tool, parameters=parameters), call.input, quoted_references)
    except Unread as why:
        raise AgentError(str(why)) from None
    properties: Any = parameters.get("properties") or {}
    return {name: _fitting(piece, evidence, properties.get(name, True), parameters) for name, piece in pieces.items()}


def evidence_in(text: str, evidence: Evidence) -> Any:
    """Return a text with its evidence inserted; the evidence itself, of any type, if the text is only one reference."""
    whole = REFERENCE.fullmatch(text.strip())
    if whole is not None:
        return _value(whole, evidence)
    # In one pass: inserted text is not searched again.
    return REFERENCE.sub(lambda match: as_text(_value(match, evidence)), text)


def _value(match: re.Match[str], evidence: Evidence) -> Any:
    (name,) = needs_of(match[0])
    step = evidence.get(name)
    if step is None:
        return f"Error: there is no evidence {name}"
    return f"Error: {step.text}" if step.failed else step.tool_output


def _filled(piece: Any, evidence: Evidence, *, as_texts: bool = False) -> Any:
    if isinstance(piece, str):
        found = evidence_in(piece, evidence)
        return as_text(found) if as_texts else found
    if isinstance(piece, list):
        return [_filled(one, evidence, as_texts=as_texts) for one in piece]
    if isinstance(piece, dict):
        return {key: _filled(one, evidence, as_texts=as_texts) for key, one in piece.items()}
    return piece


def _fitting(piece: Any, evidence: Evidence, schema: Any, root: JsonObject) -> Any:
    """Return one argument with its evidence, as text if the tool takes only texts."""
    value = _filled(piece, evidence)
    if faults(coerced(value, schema, root), schema, root):
        text = _filled(piece, evidence, as_texts=True)
        return value if faults(coerced(text, schema, root), schema, root) else text
    return value

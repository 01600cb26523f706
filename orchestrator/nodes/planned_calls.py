"""Planned calls on their way: what a step of a blueprint is called with, and the evidence that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, JsonValue

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.reducers import local, merge
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.plans.blueprint import PlannedCall
from orchestrator.nodes.plans.inputs import arguments_of, evidence_in
from orchestrator.nodes.steps import Step, step_of
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.tool import Tool

NONE_LEFT = "this call was not made: no calls are left"
WORK_ENDED = "this call was not made: a call that it comes after ended the work"


class PlannedCallState(BaseModel):
    """The fields that the nodes of planned calls name by default. All but the evidence are a branch's own."""

    evidence: Annotated[dict[str, Step], merge] = {}
    """What came of each step, by its id."""
    tool: Annotated[str, local] = ""
    """Name of the tool that is about to be called."""
    args: Annotated[dict[str, JsonValue], local] = {}
    """Its arguments."""
    result: Annotated[ToolResult | None, local] = None
    """What the call gave."""
    denial: Annotated[str, local] = ""
    """Why a person refused it."""


@dataclass(frozen=True, slots=True)
class FilledCall:
    """A step of a blueprint with the evidence so far in its input."""

    call: PlannedCall
    """The step, with the tool's own name if the tool is there."""
    args: dict[str, Any] = field(default_factory=dict)
    """What the tool is to be called with."""
    result: ToolResult | None = None
    """What it comes to without a call; None: it is to be called."""


def planned_call(ctx: Context) -> PlannedCall:
    """The step that a branch is for.

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
        evidence: what came of the steps that it needs.
        ctx: has the tools.
        plan: the whole plan, which `max_calls` is counted in; None: all calls may be made.
        max_calls: how many of its calls may be made.
        on_error: whether a call that cannot be made raises, or has the error as its result.

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
    """The result of a call that a person refused."""
    return ToolFailure(error="the user denied this call" + (f": {reason}" if reason else ""))


def evidence_of(call: PlannedCall, tool: str, args: dict[str, Any], result: ToolResult) -> dict[str, Step]:
    """The evidence of a step, by its id: which tool was meant, with which arguments, and what came of it."""
    return {call.id: step_of(call.thought, tool, args, result)}


def _may_call(call: PlannedCall, steps: Sequence[object], max_calls: int | None, ctx: Context) -> bool:
    """Whether `max_calls` reaches to this call; the same however the branches follow one another."""
    plan = {one.id: one for one in map(PlannedCall.model_validate, steps)}
    order = TopologicalSorter({name: [need for need in one.needs if need in plan] for name, one in plan.items()})
    wanted = [name for name in order.static_order() if _tool_of(plan[name], ctx) is not None]
    return call.id in wanted[:max_calls]


def _tool_of(call: PlannedCall, ctx: Context) -> Tool | None:
    """The tool that a call names, also in another case of letters if that is the name of one tool only."""
    tool = ctx.tools.get(call.tool) if call.tool else None
    if tool is not None:
        return tool
    alike = [one for one in ctx.tools if one.name.isascii() and one.name.lower() == call.tool.lower()]
    return alike[0] if len(alike) == 1 else None

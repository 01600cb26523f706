"""One planned call: its input is prepared, and its result becomes evidence."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, JsonValue, PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.node import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import local, merge
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.plans.blueprint import PlannedCall
from orchestrator.nodes.plans.inputs import arguments_of, evidence_in
from orchestrator.nodes.steps import Step, step_of
from orchestrator.tools.result import ToolFailure, ToolResult
from orchestrator.tools.tool import Tool

NONE_LEFT = "this call was not made: no calls are left"
WORK_ENDED = "this call was not made: a call that it comes after ended the work"


class Work(Node, kind="work"):
    """Prepare the call of one step of a blueprint, and write its evidence afterwards. The step is the item of its map.

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

    With `max_calls`, the calls that can start first are made, and the evidence of all others says that none is left. So
    no limit ends the work between a call and its evidence.

    Steps that need a step that ended the work (`ends=True`), directly or through others, are not called, and their
    evidence says so. Steps that do not need it are carried out anyway.

    Raises:
        AgentError: the tool does not exist or the arguments do not fit it, and `on_error` is `raise`.
        StepError: the node is not in a map of planned calls.
    """

    fills = ("evidence", "tool", "args", "result", "denial")

    class State(BaseModel):
        """The fields that the ports name by default. All but the evidence are a branch's own."""

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

    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field with the evidence, one with the reducer `merge`."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name, until the call is done."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments; what it holds behind the call is what was called with."""
    result: Annotated[str, Port()] = "result"
    """Field with what the call gave."""
    denial: Annotated[str | None, Port(str)] = None
    """Field with the reason of a denial."""
    steps: Annotated[str | None, Port(list)] = None
    """Field with the whole plan, which `max_calls` is counted in."""
    max_calls: PositiveInt | None = None
    """How many of the plan's calls may be made; None: all."""
    on_error: Literal["raise", "observe"] = "observe"
    """What becomes of a call that cannot be made: the step fails, or the evidence says why."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.steps is None) != (self.max_calls is None):
            raise ValueError("steps= and max_calls= belong together: name the field with the plan, and how many")
        return self

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["call", "done"]]:
        if not isinstance(ctx.item, PlannedCall | Mapping):
            raise StepError(f"{ctx.node}: it runs planned calls: reach it by an `each` edge from a Plan")
        call = PlannedCall.model_validate(ctx.item)
        if called := getattr(state, self.tool):
            return self._made(state, call.model_copy(update={"tool": called}))
        evidence: Mapping[str, Step] = getattr(state, self.evidence)
        if any(step.ended for step in evidence.values()):
            return self._done(call, {}, ToolFailure(error=WORK_ENDED))
        if not call.tool:
            return self._done(call, {}, ToolResult(output=evidence_in(call.input, evidence)))
        try:
            tool = _tool_of(call, ctx)
            if tool is None:
                known = ", ".join(one.name for one in ctx.tools)
                raise AgentError(f"{quoted(call.tool)} is not an available tool; choose one of: {known}")
            call = call.model_copy(update={"tool": tool.name})
            if not self._may_call(call, state, ctx):
                return self._done(call, {}, ToolFailure(error=NONE_LEFT))
            args = tool.validate(arguments_of(call, evidence, tool.parameters))
        except AgentError as error:
            if self.on_error == "raise":
                raise
            return self._done(call, {}, ToolFailure(error=str(error)))
        return Outcome("call", {self.tool: call.tool, self.args: args})

    def _may_call(self, call: PlannedCall, state: object, ctx: Context) -> bool:
        """Whether `max_calls` reaches to this call; the same however the branches follow one another."""
        if self.steps is None:
            return True
        plan = {one.id: one for one in map(PlannedCall.model_validate, getattr(state, self.steps))}
        order = TopologicalSorter({name: [need for need in one.needs if need in plan] for name, one in plan.items()})
        wanted = [name for name in order.static_order() if _tool_of(plan[name], ctx) is not None]
        return call.id in wanted[: self.max_calls]

    def _made(self, state: object, call: PlannedCall) -> Outcome[Literal["call", "done"]]:
        """The call was made, or refused."""
        result: ToolResult | None = getattr(state, self.result)
        if result is None:
            reason = getattr(state, self.denial) if self.denial is not None else ""
            result = ToolFailure(error="the user denied this call" + (f": {reason}" if reason else ""))
        own = {self.tool: "", self.result: None} | ({} if self.denial is None else {self.denial: ""})
        return self._done(call, getattr(state, self.args), result, own)

    def _done(
        self, call: PlannedCall, args: dict[str, Any], result: ToolResult, more: Mapping[str, object] = {}
    ) -> Outcome[Literal["call", "done"]]:
        step = step_of(call.thought, call.tool, args, result)
        return Outcome("done", {self.evidence: {call.id: step}, **more})


def _tool_of(call: PlannedCall, ctx: Context) -> Tool | None:
    """The tool that a call names, also in another case of letters if that is the name of one tool only."""
    tool = ctx.tools.get(call.tool) if call.tool else None
    if tool is not None:
        return tool
    alike = [one for one in ctx.tools if one.name.isascii() and one.name.lower() == call.tool.lower()]
    return alike[0] if len(alike) == 1 else None

"""One planned call: its input is prepared, and its result becomes evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.nodes.planned_calls import PlannedCallState, denied_call, evidence_of, filled, planned_call
from orchestrator.nodes.plans.blueprint import PlannedCall
from orchestrator.nodes.steps import Step
from orchestrator.tools.result import ToolResult


class Work(Node, kind="work"):
    """Prepare the call of one step of a blueprint, and write its evidence afterwards. The step is the item of its map.

    `Fill` and `Record` do the same in two nodes, which shows both in the drawing; new graphs use them.

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

    look = "code"

    fills = ("evidence", "tool", "args", "result", "denial")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

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
        """The call was made, or refused."""
        result: ToolResult | None = getattr(state, self.result)
        if result is None:
            result = denied_call(getattr(state, self.denial) if self.denial is not None else "")
        own = {self.tool: "", self.result: None} | ({} if self.denial is None else {self.denial: ""})
        return Outcome("done", {self.evidence: evidence_of(call, call.tool, getattr(state, self.args), result), **own})

"""The input of one planned call: evidence is inserted and the arguments are checked, before anything is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import PositiveInt, model_validator

from orchestrator.context import Context
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.nodes.planned_calls import PlannedCallState, filled, planned_call
from orchestrator.nodes.steps import Step


class Fill(Node, kind="fill"):
    """Insert the evidence so far into the input of one step of a blueprint. The step is the item of its map.

    It checks the arguments and takes `call`. A step that needs no call takes `done` with its result: a step that is
    only text, and a call that cannot be made, whose result says why. `Record` writes the evidence of either:

        plan -> fill       : each steps
        fill -> confirm    : call
        fill -> record     : done
        confirm -> execute : approved
        confirm -> record  : denied
        execute -> record
        record -> solve

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

    fills = ("tool", "args", "result")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

    effect: Effect = "pure"
    """It reads the state and the tools' declarations only."""
    evidence: Annotated[str, Port(dict)] = "evidence"
    """Field with the evidence so far."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name."""
    args: Annotated[str, Port(dict)] = "args"
    """Field that gets the arguments."""
    result: Annotated[str, Port()] = "result"
    """Field that gets the result of a step that needs no call."""
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
        return "inserts evidence"

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["call", "done"]]:
        call = planned_call(ctx)
        if getattr(state, self.tool):  # called, or denied, by a node that an earlier version of the graph had here
            return Outcome("done")
        evidence: Mapping[str, Step] = getattr(state, self.evidence)
        plan = None if self.steps is None else getattr(state, self.steps)
        found = filled(call, evidence, ctx, plan=plan, max_calls=self.max_calls, on_error=self.on_error)
        called = {self.tool: found.call.tool, self.args: found.args}
        if found.result is None:
            return Outcome("call", called)
        return Outcome("done", {**called, self.result: found.result})

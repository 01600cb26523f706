"""The evidence of one planned call: what it gave, or why it was not made."""

from __future__ import annotations

from typing import Annotated

from orchestrator.context import Context
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.nodes.planned_calls import PlannedCallState, denied_call, evidence_of, planned_call
from orchestrator.tools.result import ToolResult


class Record(Node, kind="record"):
    """Write the evidence of one step of a blueprint, the item of its map. No other node of the branch writes evidence.

    The evidence is the result of the call, or of a step that needed none. Without a result the call was denied, and the
    evidence says so. The fields of the branch are empty then, for another round of planned calls in it. See `Fill`.

    Raises:
        StepError: the node is not in a map of planned calls.
    """

    look = "code"

    fills = ("evidence", "tool", "result", "denial")

    class State(PlannedCallState):
        """The fields that the ports name by default."""

    effect: Effect = "pure"
    """It reads the state only."""
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

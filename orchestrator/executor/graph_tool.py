"""A graph as a tool: each call of it is a run of its own, in the same store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio

from orchestrator.errors import (
    GraphChanged,
    GraphUnknown,
    InvalidAnswer,
    ModelError,
    ReplayMismatch,
    RunConflict,
    StoreError,
)
from orchestrator.executor.children import child_id
from orchestrator.executor.signals import Lost
from orchestrator.kernel.ledger import LASTING
from orchestrator.tools.result import Risk, ToolFailure, ToolResult
from orchestrator.tools.tool import Tool

if TYPE_CHECKING:
    from orchestrator.executor.step_context import StepContext
    from orchestrator.graph.graph import Graph


class GraphTool(Tool):
    """A tool that runs a graph. Its arguments are the fields of the graph's input, its output the graph's.

    The run's id follows from the call's idempotency key, so a call that is made again after a crash goes on with
    the run that it began. That makes the tool `idempotent`, whatever tools the graph uses. What its run asks, the
    calling step asks; the answer is handed on. A call that is cancelled, or out of time, cancels its run.
    """

    effect = "idempotent"
    passes = (ModelError,)  # its run is interrupted, and goes on when the call is made again

    def __init__(self, graph: Graph, name: str, description: str, *, risk: Risk = "dangerous") -> None:
        self.graph = graph
        self.name = name
        self.description = description
        self.risk = risk
        self.parameters = _parameters(graph)

    async def call(self, ctx: object, idempotency_key: str, **args: object) -> ToolResult:
        """Run the graph to its end."""
        if getattr(ctx, "live", None) is None:
            raise GraphUnknown(
                f"tool {self.name!r} runs a graph, which only an executor can: "
                f"let a node call it, await ctx.tool({self.name!r}, ...)"
            )
        step = cast("StepContext", ctx)
        run_id = child_id(step.run_id, idempotency_key)
        children = step.live.given.children
        try:
            async with step.aside():
                with step.live.holdings.inside(run_id, step.run_id):
                    run = await children.start(self.graph, args, run_id, step.run_id)
            faults: dict[str, list[str]] = {}
            while run.status == "paused" and run.waiting:
                question = run.waiting[0]
                answer = await step.pass_on(question, faults.get(question.id, ()))
                try:
                    async with step.aside():
                        with step.live.holdings.inside(run_id, step.run_id):
                            run = await children.answer(run, question.id, answer, step.run_id)
                except InvalidAnswer as error:  # whoever took the answer had not the tools to check it by
                    faults.setdefault(question.id, []).append(str(error))
        except (StoreError, RunConflict, ReplayMismatch, GraphChanged) as error:
            raise step.signalled(Lost(error)) from error  # no result of the call: the run inside can go on later
        except BaseException:
            if step.stopped() is not None:
                with anyio.CancelScope(shield=True):
                    await children.cancel(run_id)
            raise
        metadata: dict[str, Any] = {"run_id": run_id, "status": run.status}
        if run.machine.root is not None and run.machine.root.lasting:
            metadata[LASTING] = True
        if run.status == "completed":
            return ToolResult(output=run.output, metadata=metadata)
        why = str(run.error) if run.error is not None else run.status
        return ToolFailure(output=run.output, error=f"run {run_id}: {why}", metadata=metadata)


def graph_tool(graph: Graph, name: str, description: str, *, risk: Risk = "dangerous") -> GraphTool:
    """A tool that runs `graph`; see `GraphTool`.

    Args:
        name: what a model calls it.
        description: what a model is told that it does.
        risk: what its calls can do to the world, which follows from the tools that the graph uses.
    """
    return GraphTool(graph, name, description, risk=risk)


def _parameters(graph: Graph) -> Mapping[str, Any]:
    """JSON Schema of the graph's input: the fields that `input` names, else all that have no default."""
    cls = graph.schema.cls
    schema: Mapping[str, Any] = {} if cls is None else cls.model_json_schema()
    properties: Mapping[str, Any] = schema.get("properties", {})
    if graph.input is not None:
        names = [graph.input] if isinstance(graph.input, str) else list(graph.input)
    else:
        names = list(schema.get("required", ())) or list(graph.schema.fields)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: dict(properties.get(name, {})) for name in names},
        "required": names if cls is None else [name for name in names if name in schema.get("required", ())],
        "additionalProperties": False,
    }
    if "$defs" in schema and "#/$defs/" in str(found):
        found["$defs"] = schema["$defs"]
    return found

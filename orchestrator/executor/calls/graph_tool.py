"""A graph as a tool: each call is a separate run in the same store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

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
from orchestrator.executor.calls.limits import child_id, depth_of, total_up
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.calls.questions import answer_to, passed_on
from orchestrator.executor.calls.under_way import UnderWay
from orchestrator.executor.failures import Lost
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.state import fields_form
from orchestrator.json import JsonObject
from orchestrator.kernel.ledger import IRREVERSIBLE
from orchestrator.kernel.question import Answer, Question
from orchestrator.kernel.records import Caller
from orchestrator.tools.result import Risk, ToolFailure, ToolResult, as_text
from orchestrator.tools.tool import Tool
from orchestrator.views.run import Run

DEPTH = 10
"""Number of runs that may be nested, unless a tool declares another depth."""


class GraphTool(Tool):
    """A tool that runs a graph. Its arguments are the fields of the graph's input, its output the graph's.

    The run's id derives from the call's idempotency key, so a call repeated after a crash continues the run that it
    started. That makes the tool `idempotent`, whatever tools the graph uses. The calling step asks the questions of its
    run, and passes the answers on. A call that is cancelled, or out of time, cancels its run.
    """

    effect = "idempotent"
    continues = True
    propagates = (ModelError,)  # its run is interrupted, and continues when the call is made again

    def __init__(
        self,
        graph: GraphDefinition,
        name: str,
        description: str,
        *,
        risk: Risk = "dangerous",
        limits: Limits | None = None,
        depth: int = DEPTH,
    ) -> None:
        if depth < 1:
            raise ValueError(f"tool {name!r}: depth={depth}: give the number of runs that may be nested, 1 or more")
        self.graph = graph
        self.name = name
        self.description = description
        self.risk = risk
        self.limits = limits
        self.depth = depth
        self.parameters = _parameters(graph)

    def _output_schema(self) -> JsonObject:
        found, output = fields_form(self.graph.schema, self.graph.output_fields), self.graph.output
        return {**found["properties"][output], "$defs": found["$defs"]} if isinstance(output, str) else found

    def as_data(self) -> Mapping[str, Any]:
        """Return the tool in the form of a graph's data, except that its `graph` is the graph object."""
        data: dict[str, Any] = {"graph": self.graph, "name": self.name, "description": self.description}
        if self.risk != "dangerous":
            data["risk"] = self.risk
        if self.limits is not None:
            data["limits"] = self.limits.model_dump(mode="json", exclude_unset=True)
        if self.depth != DEPTH:
            data["depth"] = self.depth
        return data

    async def call(self, ctx: object, idempotency_key: str, **args: object) -> ToolResult:
        """Run the graph until it ends, and return its output as the tool's result."""
        effects = getattr(ctx, "effects", None)
        if not isinstance(effects, AttemptEffects):
            raise GraphUnknown(
                f"tool {self.name!r} runs a graph, which needs an executor: "
                f"call it from a node, await ctx.tool({self.name!r}, ...)"
            )
        attempt, log = effects.attempt, effects.attempt.log
        depth = depth_of(log.machine) + 1
        if depth > self.depth:
            return ToolFailure(error=self._too_deep(log.machine.plan.name))
        children = attempt.log.children
        entry = log.machine.ledger.entry(idempotency_key)
        again = entry is not None and entry.intended.again
        run_id = child_id(log.run_id, idempotency_key)
        asks = log.machine.in_fork or log.restored
        caller = Caller(run_id=log.run_id, key=idempotency_key, depth=depth, in_fork=asks)
        try:
            async with attempt.while_waiting():
                with log.holdings.inside(run_id, log.run_id):
                    run = await children.start(self.graph, args or None, run_id, caller, self.limits)
                    reopened = attempt.activation.reopened
                    if again and entry is not None and entry.began < reopened:
                        run = await children.reopen(run, f"run {log.run_id}@{reopened}", self.limits)
            faults: dict[str, list[str]] = {}
            while run.status == "paused" and run.waiting:
                question = run.waiting[0]
                answer = await pass_on(effects.under_way, question, faults.get(question.id, ()))
                try:
                    async with attempt.while_waiting():
                        with log.holdings.inside(run_id, log.run_id):
                            run = await children.answer(run, question.id, answer, log.run_id)
                except InvalidAnswer as error:  # the caller had no tools to check the answer against
                    faults.setdefault(question.id, []).append(str(error))
        except (StoreError, RunConflict, ReplayMismatch, GraphChanged) as error:
            raise attempt.signalled(Lost(error)) from error  # not a result: the inner run can continue later
        except BaseException:
            if attempt.stopped() is not None:
                with anyio.CancelScope(shield=True), contextlib.suppress(StoreError, RunConflict):
                    await log.durable()  # journal the cause first, so that a crash leaves no other reason
                    total_up(log, idempotency_key, await children.cancel(run_id))
            raise
        total_up(log, idempotency_key, run)
        metadata: dict[str, Any] = {"run_id": run_id, "status": run.status}
        if run.machine.root is not None and run.machine.root.irreversible:
            metadata[IRREVERSIBLE] = True
        if run.status == "completed":
            return ToolResult(output=run.output, metadata=metadata)
        where = "" if run.error is None else run.error.traceback
        return ToolFailure(output=run.output, error=_why(run), metadata=metadata, traceback=where)

    def _too_deep(self, calling: str) -> str:
        own = self.graph.name == calling
        return (
            f"{self.name}: not called: this run is {self.depth} deep inside the runs that called it, and depth="
            f"{self.depth} is the limit of this tool"
            f"{', whose graph is the one that calls it' if own else ''}; to let it nest deeper, raise the limit: "
            f"as_tool({self.name!r}, ..., depth={2 * self.depth}); else take the tool away from that graph, tools=[...]"
        )


async def pass_on(under_way: UnderWay, question: Question, faults: Sequence[str] = ()) -> Answer:
    """Return the answer to a question of a run that this step started. The step asks it, unchanged.

    Args:
        faults: why earlier answers did not fit.

    Raises:
        Suspend: there is no answer yet.
    """
    attempt = under_way.attempt
    await attempt.wait_if_stopped()
    own = passed_on(attempt, question, faults)
    if own.id not in attempt.activation.answers:
        await under_way.settle_down()
    return answer_to(attempt, own)


def _why(run: Run) -> str:
    """Return why an inner run gave no result, for a model; with its output so far, if its limits stopped it."""
    if run.status != "exhausted":
        return f"run {run.run_id}: {run.error if run.error is not None else run.status}"
    spent = "" if run.error is None else f": {run.error.message}"
    made = "" if run.output in (None, "") else f"; its output so far: {as_text(run.output)}"
    return f"run {run.run_id}: exhausted{spent}{made}"


def _parameters(graph: GraphDefinition) -> Mapping[str, Any]:
    """Return the JSON Schema of the graph's input: the fields that `input` names, else all without a default."""
    cls = graph.schema.cls
    schema: Mapping[str, Any] = {} if cls is None else cls.model_json_schema()
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = list(graph.input_fields if graph.input else graph.input or ())
    if graph.input is None:
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

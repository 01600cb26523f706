"""Plan-and-execute: plan, carry out a step, look at its result and plan the rest again, until there is an answer.

START -> plan -> read -> advance -> act (function_call_agent) -> replan -> revise -> END : finished
           ^ again |        ^                                                |
           +-------+        +------------------ step ------------------------+

`plan_and_solve` carries out the first plan to its end; here each result may change what is still to do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, JsonValue

from orchestrator import Graph, Limits, Outcome, Retry, node
from orchestrator.nodes import Advance, CallProtocol, Complete, Constrain, Plan, ReadPlan, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.plan_and_solve import CONCLUDE, SYSTEM
from orchestrator.tools import Risk
from orchestrator.values import check_options

REPLAN = """\
Task: {question}

The plan: {steps}
The results of its first steps, which are done: {results}

Is the task done? If it is, give the answer, and no steps. If it is not, give no answer, and the steps that are still \
to do, in their order: the rest of the plan as it is, or a better one if the results ask for it. Do not repeat steps \
that are done. Answer with one JSON object, {{"answer": "...", "steps": ["...", "..."]}}."""


REVISION: dict[str, JsonValue] = {
    "title": "Revision",
    "type": "object",
    "properties": {
        "answer": {"type": ["string", "null"], "description": "The answer to the task; empty if it is not done."},
        "steps": {"type": "array", "items": {"type": "string"}, "description": "The steps that are still to do."},
    },
    "required": ["answer", "steps"],
    "additionalProperties": False,
}


class PlanAndExecuteState(ReadPlan.State, Advance.State, BaseModel):
    """Inherits `question`, `drafts` and `faults` (of the plan), `steps` (done ones first), `results`, `step`,
    `messages` and `answer`."""

    revision: dict[str, JsonValue] = {}
    """The planner's reply after a step: an answer, or the steps that are still to do."""
    progress: list[dict[str, str]] = []
    """All steps ever planned: `task`, `status` (`pending`, `done`, or `dropped` by a later plan) and `result`."""


@node(effect="pure")
def revise(state: PlanAndExecuteState) -> Outcome[Literal["finished", "step"]]:
    """Replace the steps that are still to do, or finish."""
    answer, steps = state.revision.get("answer"), state.revision.get("steps")
    done = state.steps[: len(state.results)]
    ahead = (
        [step.strip() for step in steps if isinstance(step, str) and step.strip()] if isinstance(steps, list) else []
    )
    dropped = [one["task"] for one in state.progress if one["status"] == "dropped"]
    dropped += state.steps[len(done) :]
    progress = [
        *(_step(step, "done", found) for step, found in zip(done, state.results, strict=False)),
        *(_step(step, "dropped") for step in dict.fromkeys(dropped) if step not in (*done, *ahead)),
        *(_step(step, "pending") for step in ahead),
    ]
    update: dict[str, object] = {"steps": [*done, *ahead], "progress": progress}
    if ahead:
        return Outcome("step", update)
    return Outcome("finished", {**update, "answer": str(answer or "").strip() or state.results[-1]})


def _step(task: str, status: Literal["pending", "done", "dropped"], result: str = "") -> dict[str, str]:
    return {"task": task, "status": status, "result": result}


EDGES = """
    START   -> plan -> read
    read    -> plan    : again
    read    -> advance
    advance -> act     : step
    advance -> END     : done
    act     -> replan -> revise
    revise  -> advance : step
    revise  -> END     : finished
"""
WHEN_SPENT = """
    *        -> conclude : exhausted
    conclude -> END
    conclude -> END : error
"""


@checks_names
def plan_and_execute(
    max_steps: int = 20,
    max_seconds: float | None = None,
    *,
    name: str = "plan_and_execute",
    tools: Collection[object] | None = None,
    model: str | None = None,
    planner: str | None = None,
    solver: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    last_answer: bool = False,
    max_rounds: int = 5,
    protocol: CallProtocol = "native",
    constrain: Constrain = "auto",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
) -> Graph:
    """Return the strategy as a graph, to run with a task, models and tools. Its output is the answer, a text.

    After `max_steps` steps the run ends as `exhausted` with the result of the last one.

    Args:
        max_steps: the most steps to carry out.
        max_seconds: seconds that the run may be alive, in all steps together; None for no limit.
        name: the graph's name.
        tools: the only tools for the models: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        planner: name of the model that plans; None for that of `model`.
        solver: name of the model that carries out the steps; None for that of `model`.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the solver receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the solver receives the
            reason.
        last_answer: when the steps or seconds are used up, ask the planner for an answer from the results so far.
        max_rounds: rounds of calls in one step, after which the solver answers from what it has.
        protocol: the form of the solver's tool calls: the provider's own, or a form of text.
        constrain: `auto`: ask for the first plan by a JSON Schema, which many servers enforce. `never`: only in words.
        context: what keeps the solver's conversation within its model's window, see `function_call_agent`.
        offload: number of characters of a result above which the solver is shown its start and end, see `Execute`.

    Raises:
        ValueError: `max_steps`, `max_rounds` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain, "context": context}
    check_options("plan_and_execute", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("plan_and_execute: max_steps and max_rounds must be at least 1, and max_seconds more than 0")
    agent = function_call_agent(
        max_rounds,
        model=solver or model,
        system=SYSTEM,
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
        last_answer=True,
        context=context,
        offload=offload,
    )
    own = agent.limits.steps
    steps = None if own is None else 4 + max_steps * (4 + own)  # one step may use everything that the solver is allowed
    asked = Complete(result="answer", model=planner or model, retry=Retry())
    graph = Graph(
        name=name,
        description="Plan, carry out the first step, and plan the rest again, until there is an answer.",
        state=PlanAndExecuteState,
        input="question",
        nodes={
            "plan": Plan(drafts="drafts", faults="faults", constrain=constrain, model=planner or model, retry=Retry()),
            "read": ReadPlan(),
            "advance": Advance(),
            "act": Subgraph(
                agent,
                inputs={"question": "step", "messages": "messages"},
                outputs={"results": "answer", "messages": "messages"},
            ),
            "replan": asked.with_(prompt=REPLAN, output=REVISION, result="revision", retries=2, task="replan"),
            "revise": revise,
            **({"conclude": asked.with_(prompt=CONCLUDE)} if last_answer else {}),
        },
        edges=EDGES + (WHEN_SPENT if last_answer else ""),
        output="answer",
        limits=Limits(steps=steps, visits={"act": max_steps}, seconds=max_seconds),
    )
    return graph.with_tools(tools)


graph = plan_and_execute()

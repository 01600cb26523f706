"""Orchestrator and workers: split a task into parts, work on all of them at once, combine the results.

START -> plan -> read -> worker (each of the parts, an agent that calls tools) -> combine -> END
           ^ again |
           +-------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Retry, append
from orchestrator.nodes import ITEM, CallProtocol, Complete, Constrain, Plan, ReadPlan, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import Risk
from orchestrator.values import check_options

SPLIT = """\
You lead a team. Split a task into parts that can be worked on at the same time: no part may need the result of \
another one. Each part goes to a worker who sees nothing but its text, so say in it all that the worker has to know, \
and what the result has to contain. Write as few parts as are useful; one is enough for a simple task. Do not work on \
any part. Answer with one JSON object, {"steps": ["first part", "second part"]}."""
SPLIT_IN_WORDS = SPLIT.partition(" Answer with one JSON")[0] + (
    ' Begin with a line "Plan:". Then write a numbered list with one line for each part, then a line <END_OF_PLAN>.'
)
WORK = "You work on one part of a larger task, and can call tools. Give the result of your part, and nothing else."
COMBINE = """\
Task: {question}

The task was split into these parts: {parts}
The results of the parts, in the same order: {results}

Give the answer to the task from these results. Where results contradict each other, or are missing, say so."""


class OrchestratorWorkersState(ReadPlan.State, BaseModel):
    """Inherits `drafts` and `faults` (of the plan)."""

    question: str
    parts: list[str] = []
    """The parts of the task."""
    results: Annotated[list[str], append] = []
    """The result of each part."""
    answer: str = ""


EDGES = """
    START   -> plan -> read
    read    -> plan : again
    read    -> worker : each parts
    worker  -> combine -> END
"""


@checks_names
def orchestrator_workers(
    max_steps: int = 10,
    max_seconds: float | None = None,
    *,
    name: str = "orchestrator_workers",
    tools: Collection[object] | None = None,
    model: str | None = None,
    planner: str | None = None,
    worker: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    protocol: CallProtocol = "native",
    constrain: Constrain = "auto",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
    max_parts: int = 20,
) -> Graph:
    """Return the strategy as a graph, to run with a task, models and tools. Its output is the answer, a text.

    Args:
        max_steps: rounds of calls of each worker, after which it answers from what it has.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for the workers: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        planner: name of the model that splits the task and combines the results; None for that of `model`.
        worker: name of the model of the workers; None for that of `model`.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the worker receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the worker receives the
            reason.
        protocol: the form of the workers' tool calls: the provider's own, or a form of text.
        constrain: `auto`: ask for the parts by a JSON Schema, which many servers enforce. `never`: only in words.
        context: what keeps a worker's conversation within its model's window, see `function_call_agent`.
        offload: number of characters of a result above which a worker is shown its start and end, see `Execute`.
        max_parts: the most parts, and so of workers, 300 at most; a list of more goes back to the planner.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, `max_parts` is not from 1 to 300, or an option has
            another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain, "context": context}
    check_options("orchestrator_workers", max_steps=max_steps, max_parts=max_parts, seconds=max_seconds, **given)
    if max_steps < 1 or not 1 <= max_parts <= 300 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("orchestrator_workers: max_steps and max_seconds must be above 0, and max_parts from 1 to 300")
    agent = function_call_agent(
        max_steps,
        model=worker or model,
        system=WORK,
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
        last_answer=True,
        context=context,
        offload=offload,
    )
    own = agent.limits.steps
    graph = Graph(
        name=name,
        description="Split a task into parts, let agents work on them at the same time, and combine their results.",
        state=OrchestratorWorkersState,
        input="question",
        nodes={
            "plan": Plan(
                system=SPLIT if constrain == "auto" else SPLIT_IN_WORDS,
                steps="parts",
                drafts="drafts",
                faults="faults",
                constrain=constrain,
                max_items=max_parts,
                model=planner or model,
                retry=Retry(),
            ),
            "read": ReadPlan(steps="parts", max_items=max_parts),
            "worker": Subgraph(agent, inputs={"question": ITEM}, outputs={"results": "answer"}),
            "combine": Complete(prompt=COMBINE, result="answer", model=planner or model, join="all", retry=Retry()),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=None if own is None else 5 + max_parts * (1 + own), seconds=max_seconds),
    )
    return graph.with_tools(tools)


graph = orchestrator_workers()

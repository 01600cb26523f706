"""PlanAndSolve: a plan first, then its steps one after the other, each by an agent that calls tools.

START -> plan -> read -> advance -> END : every step is done
           ^ again |      ^    -> solve (function_call_agent)
           +-------+      +---------+

Known elsewhere as plan-and-execute. What the paper of this name (arXiv 2305.04091) does is `plan_and_solve_prompt`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.graph import Node
from orchestrator.nodes import Advance, CallProtocol, Complete, Plan, ReadPlan, Subgraph
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import Risk
from orchestrator.values import check_options

SYSTEM = """\
You work on one step of a task, with the tools that you have. What came of the steps before is given to you: use it, \
and do not do them again."""


CONCLUDE = """\
Task: {question}

There is no room for further steps. The steps of the plan were: {steps}
What came of those that were done: {results}

Give the final answer to the task from this, and say so if it does not suffice."""


class PlanAndSolveState(ReadPlan.State, Advance.State):
    """Inherits `question`, `drafts` and `faults` (of the plan), `steps` (the plan), `results`, `step`, `messages` and
    `answer`."""


EDGES = """
    START   -> plan -> read
    read    -> plan    : again
    read    -> advance
    advance -> solve : step
    advance -> END   : done
    solve   -> advance
"""

WHEN_SPENT = """
    *        -> conclude : exhausted
    conclude -> END
    conclude -> END : error
"""


def plan_and_solve(
    max_steps: int = 20,
    max_seconds: float | None = None,
    *,
    name: str = "plan_and_solve",
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
) -> Graph:
    """The strategy as a graph: give it a question, models and tools. Its output is what came of the last step.

    Where the plan has more than `max_steps` steps, the run ends as `exhausted` with what came of the last one done.

    Args:
        max_steps: steps that are worked on at most.
        max_seconds: seconds alive, all steps together; None: no bound.
        name: the graph's name.
        tools: the only tools that the models are offered: names, tools, functions; None: all that a run is given.
        model: name of one of the executor's models; None: its default one.
        planner: name of the model that plans; None: that of `model`.
        solver: name of the model that works on the steps; None: that of `model`.
        confirm: calls of tools of this risk or a higher one are asked about; None: nothing is.
        on_denied: what becomes of a denied call: the run fails with `UserDenied`, or the solver is told.
        on_error: what becomes of a call that cannot be made: the run fails with `AgentError`, or the solver is told.
        last_answer: when steps or seconds are spent, ask the planner for an answer from what the steps gave.
        max_rounds: rounds of calls in one step after which the run fails with a `ValueError`.
        protocol: how the solver calls tools: by itself, or in text of some form.

    Raises:
        ValueError: `max_steps`, `max_rounds` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error}
    check_options("plan_and_solve", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError(
            "plan_and_solve: max_steps, max_rounds and max_seconds are at least 1 step, 1 round and more than 0 seconds"
        )
    agent = function_call_agent(
        max_rounds,
        model=solver or model,
        system=SYSTEM,
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
    )
    own = agent.limits.steps
    steps = None if own is None else 4 + max_steps * (2 + own)  # a step may take all that the solver is allowed
    nodes: dict[str, Node] = {
        "plan": Plan(drafts="drafts", faults="faults", model=planner or model, retry=Retry()),
        "read": ReadPlan(),
        "advance": Advance(),
        "solve": Subgraph(
            agent,
            inputs={"question": "step", "messages": "messages"},
            outputs={"results": "answer", "messages": "messages"},
        ),
    }
    if last_answer:
        nodes["conclude"] = Complete(prompt=CONCLUDE, result="answer", model=planner or model, retry=Retry())
    graph = Graph(
        name=name,
        description="Plans the steps of a task, then has an agent that calls tools do one after the other.",
        state=PlanAndSolveState,
        input="question",
        nodes=nodes,
        edges=EDGES + (WHEN_SPENT if last_answer else ""),
        output="answer",
        limits=Limits(steps=steps, visits={"solve": max_steps}, seconds=max_seconds),
    )
    return graph.with_tools(tools)


graph = plan_and_solve()

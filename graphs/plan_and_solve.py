"""PlanAndSolve: a plan first, then its steps one after the other, each by an agent that calls tools.

START -> plan -> advance -> END : every step is done
                  ^    -> solve (function_call_agent)
                  +---------+

Known elsewhere as plan-and-execute. What the paper of this name (arXiv 2305.04091) does is `plan_and_solve_prompt`.
"""

from __future__ import annotations

from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.nodes import Advance, CallProtocol, Plan, Subgraph
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import Risk

SYSTEM = """\
You work on one step of a task, with the tools that you have. What came of the steps before is given to you: use it, \
and do not do them again."""


class PlanAndSolveState(Advance.State):
    """Inherits `question`, `steps` (the plan), `results`, `step`, `messages` and `answer`."""


EDGES = """
    START   -> plan -> advance
    advance -> solve : step
    advance -> END   : done
    solve   -> advance
"""


def plan_and_solve(
    planner_model: str | None = None,
    solver_model: str | None = None,
    max_steps: int = 20,
    max_retries: int = 5,
    protocol: CallProtocol = "native",
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
) -> Graph:
    """The strategy as a graph: give it a question, models and tools. Its output is what came of the last step.

    Where the plan has more than `max_steps` steps, the run ends as `exhausted` with what came of the last one done.

    Args:
        planner_model: name of the executor's model that plans; None: its default one.
        solver_model: name of the executor's model that works on the steps; None: its default one.
        max_steps: steps that are worked on at most.
        max_retries: rounds of calls in one step after which the run fails with a `ValueError`.
        protocol: how the solver calls tools: by itself, or in text of some form.
        confirm: calls of tools of this risk or a higher one are asked about; None: nothing is.
        on_denied: what becomes of a denied call: the run fails with `UserDenied`, or the solver is told.
        on_error: what becomes of a call that cannot be made: the run fails with `AgentError`, or the solver is told.

    Raises:
        ValueError: `max_steps` or `max_retries` is not positive.
    """
    if max_steps < 1:
        raise ValueError("plan_and_solve: max_steps is at least 1")
    solver = function_call_agent(
        max_retries=max_retries,
        system=SYSTEM,
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
    )
    if solver_model is not None:
        solver = solver.replace(respond=solver.nodes["respond"].with_(model=solver_model))
    own = solver.limits.steps
    steps = None if own is None else 2 + max_steps * (2 + own)  # a step may take all that the solver is allowed
    return Graph(
        name="plan_and_solve",
        description="Plans the steps of a task, then has an agent that calls tools do one after the other.",
        state=PlanAndSolveState,
        input="question",
        nodes={
            "plan": Plan(model=planner_model, retry=Retry()),
            "advance": Advance(),
            "solve": Subgraph(
                solver,
                inputs={"question": "step", "messages": "messages"},
                outputs={"results": "answer", "messages": "messages"},
            ),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=steps, visits={"solve": max_steps}),
    )


graph = plan_and_solve()

"""PlanAndSolve: make a plan, then carry out its steps one after the other, each by an agent that calls tools.

START -> plan -> read -> advance -> END : every step is done
           ^ again |      ^    -> solve (function_call_agent)
           +-------+      +---------+

Also known as plan-and-execute. `plan_and_solve_prompt` is the method of the paper with this name (arXiv 2305.04091).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.graph import Migration, Node
from orchestrator.nodes import Advance, CallProtocol, Complete, Constrain, Plan, ReadPlan, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.tools import Risk
from orchestrator.values import check_options

SYSTEM = """\
You work on one step of a task and can call tools. You get the results of the earlier steps: use them, and do not \
repeat these steps."""


CONCLUDE = """\
Task: {question}

No more steps can be carried out. The steps of the plan: {steps}
The results of the steps that were carried out: {results}

Give the final answer to the task from these results. If they are not enough, say so."""


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


@checks_names
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
    constrain: Constrain = "auto",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
) -> Graph:
    """Return the strategy as a graph, to run with a question, models and tools. Its output is the last step's result.

    If the plan has more than `max_steps` steps, the run ends as `exhausted` with the result of the last completed step.

    Args:
        max_steps: the most steps to work on.
        max_seconds: seconds that the run may be alive, in all steps together; None for no limit.
        name: the graph's name.
        tools: the only tools for the models: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        planner: name of the model that plans; None for that of `model`.
        solver: name of the model that works on the steps; None for that of `model`.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the solver receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the solver receives the
            reason.
        last_answer: when the steps or seconds are used up, ask the planner for an answer from the results so far.
        max_rounds: rounds of calls in one step after which the run fails with a `ValueError`.
        protocol: the form of the solver's tool calls: the provider's own, or a form of text.
        constrain: `auto`: ask for the plan by a JSON Schema, which many servers enforce. `never`: only in words.
        context: what keeps the solver's conversation within its model's window: a summary of older rounds (`compact`),
            one line in place of each older result, and a summary when that is not enough (`clear`), or nothing. If the
            window is not known, it acts after a request that was too long.
        offload: number of characters of a result above which the solver is shown its start and end, and is offered a
            tool `read_result` that reads the rest; None for no such tool, see `Execute`.

    Raises:
        ValueError: `max_steps`, `max_rounds` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain, "context": context}
    check_options("plan_and_solve", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("plan_and_solve: max_steps and max_rounds must be at least 1, and max_seconds more than 0")
    agent = function_call_agent(
        max_rounds,
        model=solver or model,
        system=SYSTEM,
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
        context=context,
        offload=offload,
    )
    own = agent.limits.steps
    steps = None if own is None else 4 + max_steps * (2 + own)  # one step may use everything that the solver is allowed
    nodes: dict[str, Node] = {
        "plan": Plan(drafts="drafts", faults="faults", constrain=constrain, model=planner or model, retry=Retry()),
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
        description="Plan the steps of a task, then let an agent that calls tools carry them out one after the other.",
        state=PlanAndSolveState,
        input="question",
        nodes=nodes,
        edges=EDGES + (WHEN_SPENT if last_answer else ""),
        output="answer",
        limits=Limits(steps=steps, visits={"solve": max_steps}, seconds=max_seconds),
        migrations=[Migration(accept=True)] if context != "none" or offload else (),  # runs from before these options
    )
    return graph.with_tools(tools)


graph = plan_and_solve()

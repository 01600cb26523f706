"""ReWOO: plan all calls, make them in the order of their needs, answer from their results (arXiv 2305.18323).

START -> plan -> read -> fill (each of the calls) -> confirm -> execute -> record -> solve -> END
           ^ again |       fill -> record : what needs no call
           +-------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.graph import Node
from orchestrator.nodes import Confirm, Constrain, Execute, Fill, Plan, ReadPlan, Record, Solve
from orchestrator.spelling import checks_names
from orchestrator.tools import Risk
from orchestrator.values import check_options


class RewooState(Solve.State, Record.State, ReadPlan.State, Plan.BlueprintState):
    """Inherits the fields for `question`, `drafts`, `faults`, `steps`, `evidence` and `answer`, and those of each
    branch.
    """


EDGES = """
    START   -> plan -> read
    read    -> plan    : again
    read    -> fill    : each steps
    fill    -> record  : done
    execute -> record
    record  -> solve -> END
"""
CONFIRMED = """
    fill    -> confirm : call
    confirm -> execute : approved
"""
UNCONFIRMED = """
    fill    -> execute : call
"""
WHEN_DENIED = """
    confirm -> record  : denied
"""
WHEN_SPENT = """
    *       -> solve   : exhausted
"""


@checks_names
def rewoo(
    max_steps: int = 50,
    max_seconds: float | None = None,
    *,
    name: str = "rewoo",
    tools: Collection[object] | None = None,
    model: str | None = None,
    planner: str | None = None,
    solver: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    last_answer: bool = False,
    constrain: Constrain = "auto",
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools.

    Calls that do not need one another are made at the same time. The failure of a tool, or a missing tool, is evidence
    like any other, and the run continues.

    Args:
        max_steps: the most calls of the plan to make; the evidence of all others is that no calls are left.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for the plan: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        planner: name of the model that plans; None for that of `model`.
        solver: name of the model that answers; None for that of `model`.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the evidence records that.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the evidence gives the
            reason.
        last_answer: when the limits are spent, answer from the evidence so far.
        constrain: `auto`: ask for the plan by a JSON Schema, which many servers enforce. `never`: only in words.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain}
    check_options("rewoo", max_steps=max_steps, seconds=max_seconds, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("rewoo: max_steps must be at least 1, and max_seconds more than 0")
    again = Retry()
    nodes: dict[str, Node] = {
        "plan": Plan(
            form="blueprint", drafts="drafts", faults="faults", constrain=constrain, model=planner or model, retry=again
        ),
        "read": ReadPlan(form="blueprint"),
        "fill": Fill(steps="steps", max_calls=max_steps, on_error=on_error),
        "execute": Execute(on_error=on_error, on_failure="observe"),
        "record": Record(denial=None if confirm is None else "denial"),
        "solve": Solve(join="all", model=solver or model, retry=again),
    }
    edges = EDGES + (UNCONFIRMED if confirm is None else CONFIRMED)
    if confirm is not None:
        ask = Confirm(tool="tool", args="args", from_risk=confirm, reason="denial")
        nodes["confirm"] = ask if on_denied == "observe" else ask.with_(on_denied="raise", reason=None)
        edges += WHEN_DENIED if on_denied == "observe" else ""
    graph = Graph(
        name=name,
        description="Plan all tool calls, make them in the order of their needs, answer from their results.",
        state=RewooState,
        input="question",
        nodes=nodes,
        edges=edges + (WHEN_SPENT if last_answer else ""),
        output="answer",
        # A call takes four steps; the rest is for steps without a call, which take two, and for tools that are graphs.
        limits=Limits(seconds=max_seconds, steps=1000 + 4 * max_steps),
    )
    return graph.with_tools(tools)


graph = rewoo()

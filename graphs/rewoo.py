"""ReWOO: plan all calls, make them in the order of their needs, answer from what they gave (arXiv 2305.18323).

START -> plan -> work (each of the calls) -> solve -> END
                 work -> confirm -> execute -> work
"""

from __future__ import annotations

from typing import Literal

from orchestrator import Graph, Limits, Node, Retry
from orchestrator.nodes import Confirm, Execute, Plan, Solve, Work
from orchestrator.tools import Risk


class RewooState(Solve.State, Work.State, Plan.BlueprintState):
    """Inherits `question`, `steps` (the plan), `evidence` and `answer`, and of each branch `tool`, `args`, `result`
    and `denial`."""


EDGES = """
    START   -> plan
    plan    -> work    : each steps
    execute -> work
    work    -> solve   : done
    solve   -> END
"""
CONFIRMED = """
    work    -> confirm : call
    confirm -> execute : approved
"""
UNCONFIRMED = """
    work    -> execute : call
"""
WHEN_DENIED = """
    confirm -> work    : denied
"""
WHEN_SPENT = """
    *       -> solve   : exhausted
"""


def rewoo(
    planner: str | None = None,
    solver: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_calls: int = 50,
    max_seconds: float | None = None,
    last_answer: bool = False,
) -> Graph:
    """The strategy as a graph: give it a question, a model and tools.

    Calls that do not need one another are made at the same time. A tool that fails, or is not there, is evidence like
    any other, and the run goes on.

    Args:
        planner: name of the model that plans; None: the executor's default one.
        solver: name of the model that answers; None: the executor's default one.
        confirm: calls of tools of this risk or a higher one are asked about; None: nothing is.
        on_denied: what becomes of a denied call: the run fails with `UserDenied`, or the evidence says so.
        on_error: what becomes of a call that cannot be made: the run fails with `AgentError`, or the evidence says so.
        max_calls: calls of the plan that may be made; the evidence of all others says that no calls are left.
        max_seconds: how long a run may be alive; None: as long as it takes.
        last_answer: when the limits are spent, answer from the evidence that is there.

    Raises:
        ValueError: `max_calls` or `max_seconds` is not positive.
    """
    if max_calls < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("rewoo: max_calls and max_seconds are at least 1 call and more than 0 seconds")
    again = Retry()
    nodes: dict[str, Node] = {
        "plan": Plan(form="blueprint", model=planner, retry=again),
        "work": Work(
            steps="steps", max_calls=max_calls, denial=None if confirm is None else "denial", on_error=on_error
        ),
        "execute": Execute(on_error=on_error, on_failure="observe"),
        "solve": Solve(join="all", model=solver, retry=again),
    }
    edges = EDGES + (UNCONFIRMED if confirm is None else CONFIRMED)
    if confirm is not None:
        ask = Confirm(tool="tool", args="args", from_risk=confirm, reason="denial")
        nodes["confirm"] = ask if on_denied == "observe" else ask.with_(on_denied="raise", reason=None)
        edges += WHEN_DENIED if on_denied == "observe" else ""
    return Graph(
        name="rewoo",
        description="Plans all calls of tools, makes them in the order of their needs, answers from what they gave.",
        state=RewooState,
        input="question",
        nodes=nodes,
        edges=edges + (WHEN_SPENT if last_answer else ""),
        output="answer",
        # A call takes four steps; the rest is for steps without one, and for tools that are graphs.
        limits=Limits(seconds=max_seconds, steps=1000 + 4 * max_calls),
    )


graph = rewoo()

"""ToolUser: choose a tool, choose its arguments, ask for approval, run it, think; repeat until there is an answer.

START -> choose_tool -> choose_args -> confirm -> execute -> think -> END
              ^                                                |
              +------------------- next question --------------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from orchestrator import Context, Graph, Limits, Retry, Update, node
from orchestrator.errors import AgentError, StepError
from orchestrator.graph import Migration, Node
from orchestrator.nodes import ChooseArgs, ChooseTool, Confirm, Constrain, Execute, Step, Think
from orchestrator.spelling import checks_names
from orchestrator.tools import Risk
from orchestrator.values import check_options


class ToolUserState(ChooseArgs.State, Think.State):
    """Inherits `question` (the main one), `current` (a follow-up), `tool`, `args`, `step_history`, `answer` and
    `corrections` (of one decision)."""

    denial: str = ""
    """The reason for the last denial of a call."""
    exit_code: int = 0
    """0: `answer` is an answer; 1: the run timed out, and `answer` is the last tool's output."""


@node(effect="pure")
def time_out(state: ToolUserState) -> Update:
    """Fall back to the last tool's output, because the steps or seconds are used up.

    Raises:
        AgentError: no tool ran, because no reply could be used.
    """
    if state.corrections and not state.step_history:
        fault = (state.corrections[-1].data or {}).get("fault")
        raise AgentError(
            f"corrections used up the steps or seconds before a tool ran: raise max_steps or max_seconds; the last "
            f"reply could not be used: {fault}"
        )
    last = state.step_history[-1].text if state.step_history else ""
    return {"answer": last, "exit_code": 1}


@node(effect="pure")
def denied(state: ToolUserState) -> Update:
    """Record a denied tool call as a failed step, to think about."""
    why = f": {state.denial}" if state.denial else ""
    return {"step_history": failed_step(state, "execute", f"the user denied this call{why}")}


@node(effect="pure")
def mistake(state: ToolUserState, ctx: Context[object]) -> Update:
    """Record an unusable reply as a failed step, to think about."""
    error = ctx.error
    if error is None or error.type != "AgentError":
        raise StepError(f"{error or 'nothing failed'}; another reply cannot fix this")
    return {"step_history": failed_step(state, error.node, error.message)}


def failed_step(state: ToolUserState, node: str, why: str) -> Step:
    """Return the current step as one that failed at `node`, with whatever was chosen by then."""
    return Step(
        question=state.current or state.question,
        tool_choice=state.tool if node in ("choose_args", "execute") else "",
        tool_args=state.args if node == "execute" else {},
        tool_exit_code=1,
        tool_output=why,
    )


EXECUTE = Execute(steps="step_history", question="question", current="current", result=None, on_failure="observe")
ON_ERROR = ("correct", "observe", "raise")
CONFIRMED = """
    START       -> choose_tool -> choose_args -> confirm
    confirm     -> execute     : approved
"""
UNCONFIRMED = """
    START       -> choose_tool -> choose_args -> execute
"""
EDGES = """
    execute     -> think
    think       -> choose_tool : question
    think       -> END         : answer
    *           -> time_out    : exhausted
    time_out    -> END
"""
WHEN_DENIED = """
    confirm     -> denied      : denied
    denied      -> think
"""
WHEN_CORRECTED = """
    choose_tool -> choose_tool : again
    choose_args -> choose_args : again
    think       -> think       : again
"""
WHEN_MISTAKEN = """
    choose_tool, choose_args, think -> mistake : error
    mistake     -> think
"""


@checks_names
def tool_user(
    max_steps: int = 10,
    max_seconds: float | None = 60,
    *,
    name: str = "tool_user",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "none",
    on_denied: Literal["raise", "observe"] = "raise",
    on_error: Literal["correct", "observe", "raise"] = "correct",
    constrain: Constrain = "auto",
    last_answer: bool = False,
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools.

    It ends with the final answer or, after `max_steps` tools or `max_seconds` seconds alive, with the last tool's
    output; the run's status is then `exhausted`, and `exit_code` is 1.

    Args:
        max_steps: the most tools to run; fewer if replies are corrected, as each correction is one of the
            `5 * max_steps` steps of the run.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools to choose from: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one: with "none" all calls; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a reply cannot be used. `correct`: the model is shown the reason and decides again, at
            most twice for each decision, which counts as a step; then the run fails with `AgentError`. `observe`: it
            is a failed step to think about. `raise`: the run fails. The failure of a tool is always reported to the
            model.
        constrain: `auto`: ask for each decision by a JSON Schema, which many servers enforce. `never`: only in words.
        last_answer: after the last of `max_steps` tools, ask the model once more whether it has the answer.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain}
    check_options("tool_user", max_steps=max_steps, seconds=max_seconds, errors=ON_ERROR, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("tool_user: max_steps must be at least 1, and max_seconds more than 0")
    corrections = "corrections" if on_error == "correct" else None
    deciding: dict[str, Any] = {"retry": Retry(), "constrain": constrain, "corrections": corrections, "retries": 2}
    nodes: dict[str, Node] = {
        "choose_tool": ChooseTool(current="current", **deciding),
        "choose_args": ChooseArgs(current="current", **deciding),
        "execute": EXECUTE.with_(on_error="raise" if on_error == "raise" else "observe"),
        "think": Think(**deciding),
        "time_out": time_out,
    }
    edges = (UNCONFIRMED if confirm is None else CONFIRMED) + EDGES
    if confirm is not None:
        ask = Confirm(tool="tool", args="args", on_denied="raise")
        if confirm != "none":
            ask = ask.with_(from_risk=confirm)
        nodes["confirm"] = ask
        if on_denied == "observe":
            nodes |= {"confirm": ask.with_(on_denied="route", reason="denial"), "denied": denied}
            edges += WHEN_DENIED
    if on_error == "correct":
        edges += WHEN_CORRECTED
    if on_error == "observe":
        nodes |= {"mistake": mistake}
        edges += WHEN_MISTAKEN
    rounds = 4 if confirm is None else 5
    graph = Graph(
        name=name,
        description="Choose a tool and its arguments, ask for approval, run it, think; repeat until it has an answer.",
        state=ToolUserState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        limits=Limits(
            # Every round visits this many nodes; without a last answer, the last round ends before `think`.
            steps=rounds * max_steps - (not last_answer),
            seconds=max_seconds,
            visits={"choose_tool": max_steps},
        ),
        # Runs of versions whose decisions had no outcome `again` continue.
        migrations=[Migration(accept=True)],
    )
    return graph.with_tools(tools).with_model(model)


graph = tool_user()

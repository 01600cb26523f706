"""ToolUser: choose a tool, choose its arguments, have a person confirm, run it, think; again until it is answered.

START -> choose_tool -> choose_args -> confirm -> execute -> think -> END
              ^                                                |
              +------------------- next question --------------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Context, Graph, Limits, Retry, Update, node
from orchestrator.errors import StepError
from orchestrator.graph import Node
from orchestrator.nodes import ChooseArgs, ChooseTool, Confirm, Execute, Step, Think
from orchestrator.tools import Risk
from orchestrator.values import check_options


class ToolUserState(ChooseArgs.State, Think.State):
    """Inherits `question` (the main one), `current` (a follow-up), `tool`, `args`, `step_history` and `answer`."""

    denial: str = ""
    """Why a person refused the last call that was refused."""
    exit_code: int = 0
    """0: `answer` is an answer; 1: the run timed out, and `answer` is what the last tool gave."""


@node(effect="pure")
def time_out(state: ToolUserState) -> Update:
    """Steps or seconds are spent: what the last tool gave has to do."""
    last = state.step_history[-1].text if state.step_history else ""
    return {"answer": last, "exit_code": 1}


@node(effect="pure")
def denied(state: ToolUserState) -> Update:
    """A person would not have the tool called: a failed step, to think about."""
    why = f": {state.denial}" if state.denial else ""
    return {"step_history": failed_step(state, "execute", f"the user denied this call{why}")}


@node(effect="pure")
def mistake(state: ToolUserState, ctx: Context[object]) -> Update:
    """A reply could not be used: a failed step, to think about."""
    error = ctx.error
    if error is None or error.type != "AgentError":
        raise StepError(f"{error or 'nothing failed'}; no other reply mends that")
    return {"step_history": failed_step(state, error.node, error.message)}


def failed_step(state: ToolUserState, node: str, why: str) -> Step:
    """The step in hand, as one that came to nothing at `node`: it has no more than was chosen by then."""
    return Step(
        question=state.current or state.question,
        tool_choice=state.tool if node in ("choose_args", "execute") else "",
        tool_args=state.args if node == "execute" else {},
        tool_exit_code=1,
        tool_output=why,
    )


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
WHEN_MISTAKEN = """
    choose_tool, choose_args, think -> mistake : error
    mistake     -> think
"""


def tool_user(
    max_steps: int = 10,
    max_seconds: float | None = 60,
    *,
    name: str = "tool_user",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "none",
    on_denied: Literal["raise", "observe"] = "raise",
    on_error: Literal["raise", "observe"] = "raise",
    last_answer: bool = False,
) -> Graph:
    """The strategy as a graph: give it a question, a model and tools.

    It ends with the final answer, or, when `max_steps` tools were run or `max_seconds` seconds alive have passed,
    with what the last tool gave; the run's status is `exhausted` then, and `exit_code` is 1.

    Args:
        max_steps: tools that are run at most.
        max_seconds: seconds alive; None: no bound.
        name: the graph's name.
        tools: the only tools that the model chooses from: names, tools, functions; None: all that a run is given.
        model: name of one of the executor's models; None: its default one.
        confirm: calls of tools of this risk or a higher one are asked about: with "none" all calls; None: nothing is.
        on_denied: what becomes of a denied call: the run fails with `UserDenied`, or the model sees why.
        on_error: what becomes of a reply that cannot be used: the run fails with `AgentError`, or the model sees why.
            A tool that fails is always told to the model.
        last_answer: after the last of `max_steps` tools, ask once more whether the answer is there.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, or an option has another type or value.
    """
    check_options("tool_user", max_steps=max_steps, seconds=max_seconds, on_denied=on_denied, on_error=on_error)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("tool_user: max_steps and max_seconds are at least 1 step and more than 0 seconds")
    again = Retry()
    nodes: dict[str, Node] = {
        "choose_tool": ChooseTool(current="current", retry=again),
        "choose_args": ChooseArgs(current="current", retry=again),
        "execute": Execute(
            steps="step_history",
            question="question",
            current="current",
            result=None,
            on_error=on_error,
            on_failure="observe",
        ),
        "think": Think(retry=again),
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
    if on_error == "observe":
        nodes |= {"mistake": mistake}
        edges += WHEN_MISTAKEN
    rounds = 4 if confirm is None else 5
    graph = Graph(
        name=name,
        description="Chooses a tool and its arguments, has a person confirm, runs it, thinks; until it is answered.",
        state=ToolUserState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        limits=Limits(
            # Every round visits so many nodes; without a last answer, the last round ends before `think`.
            steps=rounds * max_steps - (not last_answer),
            seconds=max_seconds,
            visits={"choose_tool": max_steps},
        ),
    )
    return graph.with_tools(tools).with_model(model)


graph = tool_user()

"""FunctionCallAgent: rounds of calls, until the model answers.

START -> respond -> END : answer
            ^    -> call (each of the calls) -> observe
            +----------------- more --------------+
"""

from __future__ import annotations

from typing import Literal

from orchestrator import Graph, Limits, Retry, node
from orchestrator.nodes import ITEM, CallProtocol, Observe, Respond, Subgraph
from orchestrator.strategies.function_call import one_call
from orchestrator.tools import Risk


class FunctionCallAgentState(Respond.State, Observe.State):
    """Inherits `question`, `messages`, `pending`, `answer` and `rounds`."""


@node(effect="pure")
def give_up(state: FunctionCallAgentState) -> None:
    """All rounds were made, and there is no answer.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"After retrying {state.rounds} times, the function call agent still failed to call successfully.")


EDGES = """
    START   -> respond
    respond -> END     : answer
    respond -> call    : calls each pending
    call    -> observe
    observe -> respond : more
    observe -> END     : finished
    observe -> give_up : spent
    give_up -> END
"""


def function_call_agent(
    max_retries: int = 5,
    system: str = "",
    protocol: CallProtocol = "native",
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    parallel_tool_calls: bool | None = None,
) -> Graph:
    """The strategy as a graph: give it a question, a model and tools. Its output is the answer, a text.

    A tool that ends the work (`ends=True`) gives the answer itself.

    Args:
        max_retries: rounds after which the run fails with a `ValueError`; the one that answers is counted too.
        system: what the model is told about its part.
        protocol: how the model calls tools: by itself, or in text of some form.
        confirm: calls of tools of this risk or a higher one are asked about; None: nothing is.
        on_denied: what becomes of a denied call: the run fails with `UserDenied`, or the model is told.
        on_error: what becomes of a call that cannot be made: the run fails with `AgentError`, or the model is told.
            A tool that fails is always told to the model.
        parallel_tool_calls: whether the model is told that it may make several calls at once.

    Raises:
        ValueError: `max_retries` is not positive.
    """
    if max_retries < 1:
        raise ValueError("function_call_agent: max_retries is at least 1")
    return Graph(
        name="function_call_agent",
        description="Calls tools, all of one reply at the same time, round by round until the model answers.",
        state=FunctionCallAgentState,
        input="question",
        nodes={
            "respond": Respond(
                system=system,
                question="question",
                protocol=protocol,
                parallel_tool_calls=parallel_tool_calls,
                retry=Retry(),
            ),
            "call": Subgraph(
                one_call(confirm, on_denied, on_error), inputs={"call": ITEM}, outputs={"messages": "message"}
            ),
            "observe": Observe(rounds="rounds", most=max_retries, join="all"),
            "give_up": give_up,
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=10_000 * max_retries),  # room for as many calls as a reply can hold
    )


graph = function_call_agent()

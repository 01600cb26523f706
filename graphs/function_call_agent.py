"""FunctionCallAgent: rounds of calls, until the model answers.

START -> compact -> think -> read -> END : answer
            ^         ^ again |   -> act (each of the calls) -> observe
            |         +-------+                                   |
            +------------------------ more -----------------------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry, node
from orchestrator.graph import Migration, Node
from orchestrator.nodes import ITEM, CallModel, CallProtocol, Compact, Observe, ReadReply, Rule, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, last_answer_nodes, one_call, shortening, watching
from orchestrator.tools import Risk
from orchestrator.values import check_options


class FunctionCallAgentState(CallModel.State, ReadReply.State, Observe.State):
    """Inherits `question`, `messages`, `reply`, `corrections`, `pending`, `answer` and `rounds`."""


class LongFunctionCallAgentState(FunctionCallAgentState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


@node(effect="pure")
def give_up(state: FunctionCallAgentState) -> None:
    """Fail after the last round without an answer.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"After retrying {state.rounds} times, the function call agent still failed to call successfully.")


SYSTEM_AT_THE_END = """\
No more tools can be called. Answer the question now from the results so far; if they are not enough, say so."""

EDGES = """
    START   -> {entry}
    think   -> read
    read    -> think   : again
    read    -> act     : calls each pending
    read    -> END     : answer
    act     -> observe
    observe -> {more} : more
    observe -> END     : finished
"""
WHEN_SPENT = """
    observe -> give_up : spent
    give_up -> END
"""
WHEN_SPENT_ASKED = """
    observe     -> conclude : spent
    *           -> conclude : exhausted
"""
LAST_ANSWER = """
    conclude    -> read_answer
    read_answer -> conclude : again
    read_answer -> END      : answer
"""


@checks_names
def function_call_agent(
    max_steps: int = 5,
    max_seconds: float | None = None,
    *,
    name: str = "function_call_agent",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    last_answer: bool = False,
    protocol: CallProtocol = "native",
    system: str = "",
    parallel_tool_calls: bool | None = None,
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
    loops: int | None = None,
    result_rules: Collection[Rule] = (),
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    The result of a tool that ends the work (`ends=True`) is the answer.

    Args:
        max_steps: rounds after which the run fails with a `ValueError`, including the one that answers.
        max_seconds: seconds that the run may be alive, in all rounds together; None for no limit.
        name: the graph's name.
        tools: the only tools for the model: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason. The failure of a tool is always reported to the model.
        last_answer: when the rounds or seconds are used up, ask the model for an answer without tools instead of
            failing.
        protocol: the form of tool calls: the provider's own, or a form of text.
        system: the system message; empty: none.
        parallel_tool_calls: whether the model may make several calls at once.
        context: what keeps the conversation within the model's window: a summary of older rounds (`compact`), one line
            in place of each older result, and a summary when that is not enough (`clear`), or nothing. If the window is
            not known, it acts after a request that was too long.
        offload: number of characters of a result above which the model is shown its start and end, and is offered a
            tool `read_result` that reads the rest; None for no such tool, see `Execute`.
        loops: number of equal calls with equal results after which the model has to answer without tools; None: it may
            repeat itself. See `LoopGuard`.
        result_rules: rules by which results of tools are changed or withheld before the model sees them, see `Guard`.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "context": context}
    check_options("function_call_agent", max_steps=max_steps, seconds=max_seconds, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("function_call_agent: max_steps must be at least 1, and max_seconds more than 0")
    shorten, edges = shortening(context, "think")
    think = CallModel(
        system=system,
        question="question",
        protocol=protocol,
        parallel_tool_calls=parallel_tool_calls,
        usage="context_usage" if shorten else None,
        retry=Retry(),
    )
    nodes: dict[str, Node] = {
        "think": think,
        "read": ReadReply(protocol=protocol, usage="context_usage" if shorten else None),
        "act": Subgraph(
            one_call(confirm, on_denied, on_error, offload, result_rules),
            inputs={"call": ITEM},
            outputs={"messages": "message"},
        ),
        "observe": Observe(rounds="rounds", most=max_steps, join="all"),
        **shorten,
    }
    entry = next(iter(shorten), "think")
    watch, when_watched, more = watching(loops, entry)
    nodes |= watch
    spent = WHEN_SPENT_ASKED if last_answer else WHEN_SPENT
    if last_answer or watch:
        words = f"{system}\n\n{SYSTEM_AT_THE_END}" if system else SYSTEM_AT_THE_END
        last, when_last = last_answer_nodes(
            context, think.with_(system=words, tools_offered=False, parallel_tool_calls=None)
        )
        nodes |= {**last, "read_answer": ReadReply(protocol=protocol, tools_offered=False)}
        spent += LAST_ANSWER
        edges += when_last
    if not last_answer:
        nodes["give_up"] = give_up
    graph = Graph(
        name=name,
        description="Call tools, all of one reply at the same time; repeat until the model answers.",
        state=LongFunctionCallAgentState if shorten else FunctionCallAgentState,
        input="question",
        nodes=nodes,
        edges=EDGES.format(entry=entry, more=more) + spent + edges + when_watched,
        output="answer",
        limits=Limits(steps=10_000 * max_steps, seconds=max_seconds),  # enough for as many calls as a reply can contain
        migrations=[Migration(accept=True)] if shorten or offload else (),  # runs from before `context` and `offload`
    )
    return graph.with_tools(tools).with_model(model)


graph = function_call_agent()

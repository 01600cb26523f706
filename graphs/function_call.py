"""FunctionCall: one round. A model answers a question, or calls tools, which run at the same time.

START -> think -> read -> END : answer
           ^ again |   -> act (each of the calls) -> pack -> END
           +-------+
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from orchestrator import Graph, Limits, Retry, ToolCall, Update, node
from orchestrator.graph import Node
from orchestrator.nodes import (
    ITEM,
    CallModel,
    CallProtocol,
    CheckCall,
    ClearResults,
    Compact,
    Confirm,
    Execute,
    Guard,
    LoopGuard,
    ReadReply,
    Rule,
    Subgraph,
)
from orchestrator.spelling import checks_names
from orchestrator.tools import Risk
from orchestrator.values import check_options

ONE_CALL = """
    START   -> check
    check   -> END     : invalid
    execute -> {after}
"""
CONFIRMED = """
    check   -> confirm : valid
    confirm -> execute : approved
"""
WHEN_DENIED = """
    confirm -> END     : denied
"""
UNCONFIRMED = """
    check   -> execute : valid
"""
GUARDED = """
    guard   -> END     : passed
"""
WHEN_WITHHELD = """
    guard   -> END     : stopped
"""


def one_call(
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    offload: int | None = None,
    result_rules: Collection[Rule] = (),
) -> Graph:
    """Return the graph of one call: check it, ask for approval, make it. Its message contains the result.

    Args:
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason.
        offload: number of characters above which the message shows an excerpt of the result, see `Execute`.
        result_rules: rules by which a result is changed or withheld before the model sees it, see `Guard`.

    Raises:
        ValueError: `result_rules` is not a list of rules, or one of them asks.
    """
    if isinstance(result_rules, Rule | Mapping | str):
        raise ValueError("result_rules: give a list of rules, such as [Rule(name=..., patterns=[...])]")
    nodes: dict[str, Node] = {
        "check": CheckCall(on_error=on_error),
        "execute": Execute(call="call", message="message", result=None, on_failure="observe", offload=offload),
    }
    edges = ONE_CALL.format(after="guard" if result_rules else "END")
    edges += UNCONFIRMED if confirm is None else CONFIRMED
    if result_rules:
        guard = Guard(value="message", rules=tuple(result_rules), retry=Retry())
        if "ask" in guard.outcomes:
            raise ValueError("result_rules: a result is changed or stopped, this graph has no step that asks about it")
        nodes["guard"] = guard
        edges += GUARDED + (WHEN_WITHHELD if "stopped" in guard.outcomes else "")
    if confirm is not None:
        ask = Confirm(tool="tool", args="args", call="call", message="message", from_risk=confirm)
        nodes["confirm"] = ask if on_denied == "observe" else ask.with_(on_denied="raise")
        edges += WHEN_DENIED if on_denied == "observe" else ""
    return Graph(
        name="one_call",
        description="Check a call, ask for approval, and make it.",
        state=CheckCall.State,
        input="call",
        nodes=nodes,
        edges=edges,
        output="message",
    )


class FunctionCallState(CallModel.State, ReadReply.State):
    """Inherits `question`, `messages`, `reply`, `corrections` and `pending`."""

    result: JsonValue = None
    """A text; or, after calls, a list of the question, the model's message, and the list of their results."""


ContextPolicy: TypeAlias = Literal["compact", "clear", "none"]
"""What keeps a conversation within the model's window: see `shortening`."""
COMPACTED = """
    {compact} -> {then} : done
    {compact} -> {then} : compacted
"""
CLEARED = """
    {clear} -> {then}    : done
    {clear} -> {compact} : cleared
    {clear} -> {compact} : too_long
"""


def shortening(context: ContextPolicy, *asks: str, suffix: str = "") -> tuple[dict[str, Node], str]:
    """Return the nodes that keep a conversation within the window, the first one first, and their edges.

    Args:
        context: `compact`: a summary replaces the older rounds. `clear`: one line replaces each older result of a tool,
            and a summary the older rounds when that is not enough. `none`: there is no such node.
        asks: names of the nodes that ask; the last one is asked with the shorter conversation.
        suffix: end of the names of the nodes.
    """
    if context == "none":
        return {}, ""
    compact = f"compact{suffix}"
    nodes: dict[str, Node] = {compact: Compact(usage="context_usage", retry=Retry())}
    edges = COMPACTED.format(compact=compact, then=asks[-1])
    if context == "clear":
        clear = f"clear{suffix}"
        nodes = {clear: ClearResults(usage="context_usage"), **nodes}
        edges += CLEARED.format(clear=clear, compact=compact, then=asks[-1])
    return nodes, f"{edges}    {', '.join(asks)} -> {next(iter(nodes))} : too_long\n"


def last_answer_nodes(context: ContextPolicy, conclude: Node) -> tuple[dict[str, Node], str]:
    """Return the nodes that ask for an answer after a spent limit, and the edges that shorten their conversation.

    After a spent limit no node runs twice, so another one asks again.
    """
    shorten, when_long = shortening(context, "conclude", "conclude_again", suffix="_answer")
    nodes = {"conclude": conclude, **shorten, **({"conclude_again": conclude} if shorten else {})}
    return nodes, when_long + ("    conclude_again -> read_answer\n" if shorten else "")


def watching(loops: int | None, then: str) -> tuple[dict[str, Node], str, str]:
    """Return the node that notices repeated calls, its edges, and where the results of calls go on to.

    Args:
        loops: the number of equal calls at which the model has to answer; None for no such node.
        then: the node that asks the model again.

    Raises:
        ValueError: `loops` is not such a number.
    """
    if loops is None:
        return {}, "", then
    if type(loops) is not int or loops < 2:
        raise ValueError(f"loops={loops!r}: give the number of equal calls, at least 2, or None")
    edges = f"    watch -> {then}\n    watch -> conclude : loop\n"
    return {"watch": LoopGuard(most=loops)}, edges, "watch"


@node(effect="pure", join="all")
def pack(state: FunctionCallState) -> Update:
    """Write the round as plain data, in the form of chat completions but with arguments as objects."""
    made = len(state.pending)
    asked, results = state.messages[-made - 1], state.messages[-made:]
    said = {"role": "assistant", "content": asked.content, "tool_calls": [as_data(call) for call in state.pending]}
    told = [
        {"role": "tool", "content": one.content, "tool_call_id": one.tool_call_id, "name": one.name} for one in results
    ]
    return {"result": [state.question, said, told]}


def as_data(call: ToolCall) -> dict[str, Any]:
    """Return a call in the form of chat completions."""
    arguments = call.raw if call.arguments is None else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


EDGES = """
    START -> think -> read
    read  -> act   : calls each pending
    read  -> END   : answer
    act   -> pack -> END
"""
WHEN_CORRECTED = """
    read  -> think : again
"""


@checks_names
def function_call(
    max_steps: int = 2,
    max_seconds: float | None = None,
    *,
    name: str = "function_call",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    protocol: CallProtocol = "native",
    system: str = "",
    parallel_tool_calls: bool | None = None,
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools.

    Its output is the model's answer, a text, if it called no tools. Otherwise it is a list: the question, the
    assistant's message with its `tool_calls`, and the list of the messages with their results, in the order of the
    calls.

    Args:
        max_steps: the most model calls; each after the first corrects a reply that could not be used. After the last
            one the run fails with an `AgentError`.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for the model: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the call's result gives the
            reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or its result gives the
            reason.
        protocol: the form of tool calls: the provider's own, or a form of text.
        system: the system message; empty for none.
        parallel_tool_calls: whether the model may make several calls at once.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, or an option has another type or value.
    """
    check_options("function_call", max_steps=max_steps, seconds=max_seconds, on_denied=on_denied, on_error=on_error)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("function_call: max_steps must be at least 1, and max_seconds more than 0")
    graph = Graph(
        name=name,
        description="Answer in one round, or make all tool calls of the reply.",
        state=FunctionCallState,
        input="question",
        nodes={
            "think": CallModel(
                system=system,
                question="question",
                protocol=protocol,
                parallel_tool_calls=parallel_tool_calls,
                retry=Retry(),
            ),
            "read": ReadReply(answer="result", protocol=protocol, retries=max_steps - 1),
            "act": Subgraph(
                one_call(confirm, on_denied, on_error), inputs={"call": ITEM}, outputs={"messages": "message"}
            ),
            "pack": pack,
        },
        edges=EDGES + (WHEN_CORRECTED if max_steps > 1 else ""),
        output="result",
        limits=Limits(steps=None, visits={"think": max_steps}, seconds=max_seconds),
    )
    return graph.with_tools(tools).with_model(model)


graph = function_call()

"""ReAct (https://arxiv.org/abs/2210.03629): a thought, an action, an observation; repeat until the model finishes.

START -> compact -> think -> read -> END : answer
            ^         ^ again |   -> act (each of the calls) -> observe
            |         +-------+                                   |
            +------------------------ more -----------------------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.graph import Migration, Node
from orchestrator.nodes import ITEM, CallModel, CallProtocol, Compact, Observe, ReadReply, Rule, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, last_answer_nodes, one_call, shortening, watching
from orchestrator.tools import Risk
from orchestrator.values import check_options

SYSTEM = """\
Answer the question step by step. In each step, first write one or two sentences: what you know so far, and what you \
need to find out next. Then call a tool, or several at once if none of them needs the result of another. You will \
receive the results before the next step. When you know enough, give the final answer without calling a tool."""

SYSTEM_IN_WORDS = """\
Answer the question step by step. In each step, write one thought and one action, in two lines:
Thought: what you know so far, and what you need to find out next
Action: tool[input]
Then stop. You will receive the result as an Observation before the next step. When you know enough, write the last \
action:
Action: Finish[the final answer]"""

TOOLS_IN_WORDS = """\
An action can use one of these tools:

{tools}

Write the input of the tool in the brackets: as it is, if the tool takes one input; several inputs in the order of its \
parameters, separated by commas, as in tool[1, 2]; or inputs by name, as in tool[{"parameter": "value"}]. Take one \
action at a time, and never write an Observation yourself."""

SYSTEM_AT_THE_END = """\
You worked on the question step by step, and no further steps are possible. Give the final answer now, based on the \
results so far. If they are not sufficient, say so. You cannot call any tool."""

LAST_ACTION = """\
Write the answer in words, or as the only action that is left, Action: Finish[the final answer]:

{tools}"""


class ReactState(CallModel.State, ReadReply.State, Observe.State):
    """Inherits `question`, `messages` (thoughts, actions and observations), `reply`, `corrections`, `pending`, `answer`
    and `rounds`."""


class LongReactState(ReactState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


EDGES = """
    START   -> {entry}
    think   -> read
    read    -> act     : calls each pending
    read    -> END     : answer
    act     -> observe
    observe -> {more} : more
    observe -> END     : finished
"""
WHEN_CORRECTED = """
    read    -> think   : again
"""
WHEN_UNREADABLE = """
    read    -> think   : unreadable
"""
WHEN_SPENT = """
    *           -> conclude : exhausted
"""
CONCLUDED = """
    conclude    -> read_answer
    read_answer -> END      : answer
    conclude, read_answer -> END : error
"""


@checks_names
def react(
    max_steps: int = 10,
    max_seconds: float | None = None,
    *,
    name: str = "react",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    last_answer: bool = False,
    protocol: CallProtocol = "native",
    system: str | None = None,
    thought: Literal["optional", "required"] = "required",
    retries: int = 2,
    on_unreadable: Literal["retry", "observe"] = "retry",
    parallel_tool_calls: bool | None = None,
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
    loops: int | None = None,
    result_rules: Collection[Rule] = (),
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    The calls of one reply are made at the same time, each with its own confirmation. The result of a tool that ends the
    work (`ends=True`) is the answer. After `max_steps` rounds, or `max_seconds` seconds alive, the run's status is
    `exhausted`, and its output is empty, or the result of `last_answer`.

    Args:
        max_steps: the most thoughts of the model, including the one before the answer and corrected ones.
        max_seconds: seconds that the run may be alive, in all rounds together; None for no limit.
        name: the graph's name.
        tools: the only tools for the model: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason. The failure of a tool is always reported to the model.
        last_answer: when the steps or seconds are used up, ask the model for an answer from the conversation so far.
            Without one the output is empty; a spent limit is not a failure.
        protocol: the form of tool calls: the provider's own, or a form of text; `bracket` is the form of the paper,
            with `Action: tool[input]` and `Action: Finish[answer]`.
        system: the system message; None for this module's text for the protocol.
        thought: whether each call needs a thought next to it; reasoning that the provider returns is one.
        retries: the most retries in one round after a reply that cannot be used (it has no thought, or its action
            cannot be read).
        on_unreadable: what happens if an action in text cannot be read: the model is asked again, or receives the
            reason as an observation, as in the paper.
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
    check_options("react", max_steps=max_steps, seconds=max_seconds, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("react: max_steps must be at least 1, and max_seconds more than 0")
    in_words = protocol == "bracket"
    finish = "Finish" if in_words else ""
    shorten, when_long = shortening(context, "think")
    nodes: dict[str, Node] = {
        "think": CallModel(
            system=(SYSTEM_IN_WORDS if in_words else SYSTEM) if system is None else system,
            question="question",
            protocol=protocol,
            tools_prompt=TOOLS_IN_WORDS if in_words else None,
            finish=finish,
            parallel_tool_calls=parallel_tool_calls,
            usage="context_usage" if shorten else None,
            retry=Retry(),
        ),
        "read": ReadReply(
            protocol=protocol,
            thought=thought,
            finish=finish,
            retries=retries,
            unreadable=on_unreadable,
            usage="context_usage" if shorten else None,
        ),
        "act": Subgraph(
            one_call(confirm, on_denied, on_error, offload, result_rules),
            inputs={"call": ITEM},
            outputs={"messages": "message"},
        ),
        "observe": Observe(rounds="rounds", join="all"),
        **shorten,
    }
    entry = next(iter(shorten), "think")
    watch, when_watched, more = watching(loops, entry)
    nodes |= watch
    edges = EDGES.format(entry=entry, more=more) + when_long + when_watched
    edges += (WHEN_CORRECTED if retries else "") + (WHEN_UNREADABLE if on_unreadable == "observe" else "")
    if last_answer or watch:
        last, when_last = _last_answer(protocol, finish, context)
        nodes |= last
        edges += (WHEN_SPENT if last_answer else "") + CONCLUDED + when_last
    graph = Graph(
        name=name,
        description="Think, call tools, observe the results; repeat until the question is answered.",
        state=LongReactState if shorten else ReactState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        limits=Limits(steps=10_000 * max_steps, visits={"think": max_steps}, seconds=max_seconds),
        migrations=[Migration(accept=True)] if shorten or offload else (),  # runs from before `context` and `offload`
    )
    return graph.with_tools(tools).with_model(model)


graph = react()


def _last_answer(protocol: CallProtocol, finish: str, context: ContextPolicy) -> tuple[dict[str, Node], str]:
    """Return the nodes that answer after the last round, and the edges that shorten their conversation."""
    conclude = CallModel(
        system=SYSTEM_AT_THE_END,
        question="question",
        protocol=protocol,
        tools_prompt=LAST_ACTION if finish else None,
        finish=finish,
        tools_offered=False,
        usage=None if context == "none" else "context_usage",
        retry=Retry(),
    )
    nodes, edges = last_answer_nodes(context, conclude)
    read_answer = ReadReply(protocol=protocol, finish=finish, tools_offered=False, retries=0)
    failing = "    conclude_again -> END : error\n" if "conclude_again" in nodes else ""
    return {**nodes, "read_answer": read_answer}, edges + failing

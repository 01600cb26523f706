"""CodeAct (https://arxiv.org/abs/2402.01030): an action is Python code, whose functions are the tools; repeat.

START -> compact -> think -> read -> END : answer
            ^         ^ again |   -> act -> observe
            |         +-------+                |
            +-------------- more --------------+
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Graph, Limits, Retry
from orchestrator.graph import Node
from orchestrator.nodes import CallModel, Code, Compact, Observe, ReadReply
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, last_answer_nodes, shortening
from orchestrator.tools import Risk
from orchestrator.values import check_options

SYSTEM = """\
Answer the question step by step. In each step, first write one or two sentences: what you know so far, and what you \
need to find out next. Then write one block of Python code. You will receive what it prints before the next step. Its \
variables and functions are kept for later blocks. When you know enough, give the final answer in plain text, without \
code; code that is part of the answer stands in a block that is marked as text."""

FUNCTIONS = """\
The code can use the built-in functions of Python, modules such as math, json, re, datetime, itertools, collections, \
statistics and random, and the functions below. It has no files, no network, no other packages and no `yield`. The \
functions are called directly, also in loops and comprehensions: nothing has to be imported or awaited. `map`, \
`filter`, `sorted`, `min` and `max` cannot call them.

{tools}

{how}"""

SYSTEM_AT_THE_END = """\
You worked on the question step by step, and no further steps are possible. Give the final answer now, in plain text, \
based on the results so far. If they are not sufficient, say so. No code can be run any more."""


class CodeActState(CallModel.State, ReadReply.State, Observe.State, Code.ListState):
    """Inherits `question`, `messages` (thoughts, code and observations), `reply`, `corrections`, `pending`, `answer`,
    `rounds` and `blocks` (the code that ran, with the results of its calls).
    """


class LongCodeActState(CodeActState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


THINK = CallModel(question="question", protocol="code", tools_prompt=FUNCTIONS, task="code", retry=Retry())
ACT = Code(calls="pending", results="messages", blocks="blocks")
EDGES = """
    START   -> {entry}
    think   -> read
    read    -> think   : again
    read    -> act     : calls
    read    -> END     : answer
    act     -> observe
    observe -> {entry} : more
    observe -> END     : finished
"""
WHEN_SPENT = """
    *           -> conclude : exhausted
    conclude    -> read_answer
    read_answer -> END      : answer
    conclude, read_answer -> END : error
"""


@checks_names
def code_act(
    max_steps: int = 10,
    max_seconds: float | None = None,
    *,
    name: str = "code_act",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    last_answer: bool = False,
    system: str | None = None,
    retries: int = 2,
    max_calls: int = 100,
    code_seconds: float = 10.0,
    memory: int = 64 << 20,
    output_limit: int = 10_000,
    context: ContextPolicy = "compact",
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    The code runs in a sandbox, which needs the package pydantic-monty. After `max_steps` rounds, or `max_seconds`
    seconds alive, the run's status is `exhausted`, and its output is empty, or the result of `last_answer`. The result
    of a tool that ends the work (`ends=True`) is the answer.

    Args:
        max_steps: the most replies of the model, including the answer and corrected ones.
        max_seconds: seconds that the run may be alive, in all rounds together; None for no limit.
        name: the graph's name.
        tools: the only tools that code can call: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; the question shows the code. None to ask about
            none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the code gets an exception.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the code gets an exception.
        last_answer: when the steps or seconds are used up, ask the model for an answer from the conversation so far.
        system: the system message, before the description of the functions; None for this module's text.
        retries: the most retries in one round after a reply that cannot be used.
        max_calls: the most calls of tools that one block may make.
        code_seconds: seconds that one block may compute, without the time that its calls take.
        memory: bytes of memory that the code may use.
        output_limit: characters of what a block prints that the model is shown, and again of its value and its error.
        context: what keeps the conversation within the model's window: a summary of older rounds (`compact`), one line
            in place of each older output, and a summary when that is not enough (`clear`), or nothing. If the window is
            not known, it acts after a request that was too long.

    Raises:
        ValueError: a number is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "context": context}
    check_options("code_act", max_steps=max_steps, seconds=max_seconds, **given)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("code_act: max_steps must be at least 1, and max_seconds more than 0")
    shorten, when_long = shortening(context, "think")
    usage = "context_usage" if shorten else None
    think = THINK.with_(system=SYSTEM if system is None else system, usage=usage)
    act = ACT.with_(confirm=confirm, on_denied=on_denied, on_error=on_error)
    nodes: dict[str, Node] = {
        "think": think,
        "read": ReadReply(protocol="code", usage=usage, retries=retries),
        "act": act.with_(most_calls=max_calls, seconds=code_seconds, memory=memory, output_limit=output_limit),
        "observe": Observe(rounds="rounds"),
        **shorten,
    }
    edges = EDGES.format(entry=next(iter(shorten), "think")) + when_long
    if last_answer:
        last, when_last = last_answer_nodes(
            context, think.with_(system=SYSTEM_AT_THE_END, tools_offered=False, task=None)
        )
        nodes |= {**last, "read_answer": ReadReply(protocol="code", tools_offered=False, retries=0)}
        edges += WHEN_SPENT + when_last + ("    conclude_again -> END : error\n" if shorten else "")
    graph = Graph(
        name=name,
        description="Write code that calls tools, and see what it prints; repeat until the answer.",
        state=LongCodeActState if shorten else CodeActState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        limits=Limits(steps=10_000 * max_steps, visits={"think": max_steps}, seconds=max_seconds),
    )
    return graph.with_tools(tools).with_model(model)


graph = code_act()

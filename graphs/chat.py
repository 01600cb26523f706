"""Chat: one run that waits for the user between turns; the model answers, with tools.

START -> heard -> compact -> think -> read -> ask : answer
          ^          ^         ^ again |   -> deal -> act (each of the calls) -> observe
          |          |         +-------+                                           |
          |          +------------------------- more ------------------------------+
          +---- ask
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from orchestrator import Context, Graph, Limits, Outcome, Retry, Update, extend, node, replace
from orchestrator.errors import StepError
from orchestrator.graph import Migration
from orchestrator.models import assistant, user
from orchestrator.nodes import ITEM, Ask, CallModel, CallProtocol, Compact, Observe, ReadReply, Rule, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, one_call, shortening, watching
from orchestrator.tools import Risk
from orchestrator.values import check_options

SYSTEM = """\
You talk with a user and help with their questions. Call a tool if it helps. If no tool helps, say so. Use only facts \
that you know or were given, and be brief."""

SYSTEM_WITHOUT_TOOLS = """\
You talk with a user and help with their questions. No more tools can be called for this answer. Answer from the \
results so far; if they are not enough, say so."""

FAREWELLS = ("", "/bye", "/exit", "/quit")


class ChatState(CallModel.State, ReadReply.State, Observe.State):
    """Inherits `messages`, `reply`, `corrections`, `pending`, and `rounds`, those of this turn."""

    question: str = ""
    """The user's last message; empty at the start to ask the user."""
    answer: str = "What can I do for you?"
    """The model's last message."""


class LongChatState(ChatState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


@node(effect="pure")
def heard(state: ChatState) -> Outcome[Literal["something", "nothing", "farewell"]]:
    """Start a turn, if the user wrote anything.

    A message that interrupted the previous turn is added here: `think` assigns whatever follows a question or calls to
    the same turn.
    """
    words = state.question.strip()
    if not words and not state.messages:
        return Outcome("nothing")
    if words.lower() in FAREWELLS:
        return Outcome("farewell", rounds=0)
    fresh: dict[str, object] = {"rounds": 0}
    if state.corrections:
        fresh["corrections"] = []
    last = state.messages[-1] if state.messages else None
    if last is not None and (last.role in ("user", "tool") or last.tool_calls):
        message = user(state.question, data={"question": state.question})
        return Outcome("something", {**fresh, "messages": extend([message])})
    return Outcome("something", fresh)


@node(effect="pure")
def deal() -> None:
    """Fork the calls in a separate node: no fork is open while the run waits for the user, and its state is whole."""


@node(effect="pure")
def sorry(state: ChatState, ctx: Context[object]) -> Update:
    """Report to the user that the model gave no usable reply, or that a message is too long, and continue."""
    if ctx.error is None or ctx.error.type not in ("AgentError", "RequestTooLong"):
        raise StepError(f"{ctx.error or 'nothing failed'}; asking another question cannot fix this")
    answer = f"There is no answer to that: {ctx.error.message}"
    roles = [message.role for message in state.messages[-2:]]
    if roles[-1:] == ["user"] and "tool" not in roles:  # remove the question, which would disturb later turns
        return {"answer": answer, "messages": replace(state.messages[:-1])}
    return {"answer": answer, "messages": extend([assistant(answer)] if "tool" in roles else [])}


@node(effect="pure")
def left(ctx: Context[object]) -> None:
    """End the chat when the user does not continue."""
    if ctx.error is None or ctx.error.type != "UserDenied":
        raise StepError(str(ctx.error or "nothing failed"))


EDGES = """
    START    -> heard
    heard    -> ask      : nothing
    heard    -> {entry}  : something
    heard    -> END      : farewell
    think    -> read
    read     -> think    : again
    read     -> ask      : answer
    read     -> deal     : calls
    deal     -> act      : each pending
    act      -> observe
    observe  -> {more}   : more
    observe  -> conclude : spent
    observe  -> END      : finished
    conclude -> read_answer
    read_answer -> conclude : again
    read_answer -> ask      : answer
    {asking} -> sorry : error
    sorry    -> ask
    ask      -> heard
    ask      -> left     : error
    left     -> END
"""


@checks_names
def chat(
    max_steps: int = 10,
    max_seconds: float | None = None,
    *,
    name: str = "chat",
    tools: Collection[object] | None = None,
    model: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    protocol: CallProtocol = "native",
    system: str = SYSTEM,
    keep: int | None = None,
    deadline: float | None = None,
    parallel_tool_calls: bool | None = None,
    on_busy: Literal["reject", "queue", "interrupt"] = "reject",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
    loops: int | None = None,
    result_rules: Collection[Rule] = (),
) -> Graph:
    """Return the strategy as a graph, to run with a model and tools, and optionally a first question.

    The run waits at `ask` with the model's last answer as the prompt. It ends when the user answers nothing, `/bye`,
    `/exit` or `/quit`, denies the question or lets its deadline pass, or when a tool that ends the work is called; its
    output is the last answer.

    Args:
        max_steps: rounds of calls in one turn after which the model has to answer without calls.
        max_seconds: seconds that the run may be alive, in all turns together, without the time that the user takes;
            None for no limit.
        name: the graph's name.
        tools: the only tools for the model: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason.
        protocol: the form of tool calls: the provider's own, or a form of text.
        system: the system message.
        keep: the model sees at least this many of the latest messages, without a summary of the others; None for all.
        deadline: seconds that the user has to continue.
        parallel_tool_calls: whether the model may make several calls at once.
        on_busy: what happens to a message (`Executor.send(run_id, "ask", text)`) that arrives during a turn, see `Ask`.
            `interrupt`: calls and replies in progress end, no others start, and the message is the next turn.
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
    _check(max_steps, max_seconds, on_denied=on_denied, on_error=on_error, context=context)
    shorten, when_long = shortening(context, "think")
    usage = "context_usage" if shorten else None
    think = CallModel(
        system=system,
        question="question",
        protocol=protocol,
        keep=keep,
        parallel_tool_calls=parallel_tool_calls,
        usage=usage,
        retry=Retry(),
    )
    call = one_call(confirm, on_denied, on_error, offload, result_rules)
    shorten_last, when_last = shortening(context, "conclude", suffix="_answer")
    entry = next(iter(shorten), "think")
    watch, when_watched, more = watching(loops, entry)
    asking = ", ".join(("think", "read", "conclude", "read_answer", *shorten, *shorten_last))
    graph = Graph(
        name=name,
        description="Talk with a user, turn by turn, and call tools.",
        state=LongChatState if shorten else ChatState,
        input="question",
        nodes={
            "heard": heard,
            "think": think,
            "read": ReadReply(protocol=protocol, usage=usage),
            "deal": deal,
            "act": Subgraph(call, inputs={"call": ITEM}, outputs={"messages": "message"}),
            "observe": Observe(rounds="rounds", most=max_steps, join="all"),
            "conclude": think.with_(system=SYSTEM_WITHOUT_TOOLS, tools_offered=False, parallel_tool_calls=None),
            "read_answer": ReadReply(protocol=protocol, tools_offered=False, usage=usage),
            "ask": Ask(prompt="{answer}", show=("answer",), answer="question", deadline=deadline, on_busy=on_busy),
            "sorry": sorry,
            "left": left,
            **(shorten | shorten_last | watch),
        },
        edges=EDGES.format(entry=entry, more=more, asking=asking) + when_long + when_last + when_watched,
        output="answer",
        limits=Limits(steps=10_000, seconds=max_seconds),
        migrations=[Migration(accept=True)],  # runs from before `context`, `offload`, and another default of `keep`
    )
    return graph.with_tools(tools).with_model(model)


def _check(max_steps: int, max_seconds: float | None, **choices: str) -> None:
    check_options("chat", max_steps=max_steps, seconds=max_seconds, **choices)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("chat: max_steps must be at least 1, and max_seconds more than 0")


graph = chat()

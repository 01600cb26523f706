"""Chat: one run that waits for the user between turns; the model answers, with tools.

START -> heard -> respond -> ask : answer
          ^          ^    -> deal -> call (each of the calls) -> observe
          |          +----------------- more --------------------+
          +---- ask
"""

from __future__ import annotations

from typing import Literal

from orchestrator import Context, Graph, Limits, Outcome, Retry, Update, extend, node
from orchestrator.errors import StepError
from orchestrator.models import assistant, user
from orchestrator.nodes import ITEM, Ask, CallProtocol, Observe, Respond, Subgraph
from orchestrator.strategies.function_call import one_call
from orchestrator.tools import Risk

SYSTEM = """\
You talk with a user and help with what they ask. Call a tool where one helps, and say so where none does. Keep to \
what you know or were told; be brief."""

SYSTEM_WITHOUT_TOOLS = """\
You talk with a user and help with what they ask. For this answer you have called all the tools that you can: answer \
from what they gave, and say so if it does not suffice."""

FAREWELLS = ("", "/bye", "/exit", "/quit")


class ChatState(Respond.State, Observe.State):
    """Inherits `messages`, `pending`, and `rounds`, those of this turn."""

    question: str = ""
    """What the user said last; at the start empty if the user is to be asked."""
    answer: str = "What can I do for you?"
    """What the model said last."""


@node(effect="pure")
def heard(state: ChatState) -> Outcome[Literal["something", "nothing", "farewell"]]:
    """A turn begins, if the user said anything.

    A message that interrupted the turn before is added here: `respond` takes what follows calls for the same turn.
    """
    words = state.question.strip()
    if not words and not state.messages:
        return Outcome("nothing")
    if words.lower() in FAREWELLS:
        return Outcome("farewell", rounds=0)
    last = state.messages[-1] if state.messages else None
    if last is not None and (last.role == "tool" or last.tool_calls):
        message = user(state.question, data={"question": state.question})
        return Outcome("something", rounds=0, messages=extend([message]))
    return Outcome("something", rounds=0)


@node(effect="pure")
def deal() -> None:
    """The fork of the calls, on its own: so none is open while the run waits for the user, and its values are whole."""


@node(effect="pure")
def sorry(state: ChatState, ctx: Context[object]) -> Update:
    """The model gave no reply that can be used: the user is told, and the chat goes on with the next turn."""
    if ctx.error is None or ctx.error.type != "AgentError":
        raise StepError(f"{ctx.error or 'nothing failed'}; no other question mends that")
    answer = f"There is no answer to that: {ctx.error.message}"
    begun = bool(state.messages) and state.messages[-1].role in ("user", "tool")
    return {"answer": answer, "messages": extend([assistant(answer)] if begun else [])}


@node(effect="pure")
def left(ctx: Context[object]) -> None:
    """The user would not go on."""
    if ctx.error is None or ctx.error.type != "UserDenied":
        raise StepError(str(ctx.error or "nothing failed"))


EDGES = """
    START    -> heard
    heard    -> ask      : nothing
    heard    -> respond  : something
    heard    -> END      : farewell
    respond  -> ask      : answer
    respond  -> deal     : calls
    deal     -> call     : each pending
    call     -> observe
    observe  -> respond  : more
    observe  -> conclude : spent
    observe  -> END      : finished
    conclude -> ask
    respond, conclude -> sorry : error
    sorry    -> ask
    ask      -> heard
    ask      -> left     : error
    left     -> END
"""


def chat(
    system: str = SYSTEM,
    protocol: CallProtocol = "native",
    keep: int | None = 40,
    max_rounds: int = 10,
    confirm: Risk | None = "write",
    deadline: float | None = None,
    parallel_tool_calls: bool | None = None,
    on_busy: Literal["reject", "queue", "interrupt"] = "reject",
) -> Graph:
    """The strategy as a graph: give it a model and tools, and a first question or none.

    The run waits at `ask` with the model's last answer as the prompt. It ends when the user says nothing, `/bye`,
    `/exit` or `/quit`, denies the question or lets its deadline pass, or when a tool that ends the work is called;
    its output is the last answer.

    Args:
        system: what the model is told about its part.
        protocol: how the model calls tools: by itself, or in text of some form.
        keep: how many messages the model sees at least, the latest ones; None: all.
        max_rounds: rounds of calls in one turn after which the model answers without.
        confirm: calls of tools of this risk or a higher one are asked about; None: nothing is.
        deadline: seconds that the user has to go on.
        parallel_tool_calls: whether the model is told that it may make several calls at once.
        on_busy: what becomes of a message (`Executor.send(run_id, "ask", text)`) that comes in mid-turn, see `Ask`.
            `interrupt`: calls and replies under way end, no others begin, and the message is the next turn.
    """
    respond = Respond(
        system=system,
        question="question",
        protocol=protocol,
        keep=keep,
        parallel_tool_calls=parallel_tool_calls,
        retry=Retry(),
    )
    return Graph(
        name="chat",
        description="Talks with a user, turn by turn, and calls tools.",
        state=ChatState,
        input="question",
        nodes={
            "heard": heard,
            "respond": respond,
            "deal": deal,
            "call": Subgraph(one_call(confirm), inputs={"call": ITEM}, outputs={"messages": "message"}),
            "observe": Observe(rounds="rounds", most=max_rounds, join="all"),
            "conclude": respond.with_(system=SYSTEM_WITHOUT_TOOLS, tools_offered=False, parallel_tool_calls=None),
            "ask": Ask(prompt="{answer}", show=("answer",), answer="question", deadline=deadline, on_busy=on_busy),
            "sorry": sorry,
            "left": left,
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=10_000),
    )


graph = chat()

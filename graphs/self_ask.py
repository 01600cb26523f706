"""Self-ask (https://arxiv.org/abs/2210.03350): ask follow-up questions and answer them, until the main one is answered.

START -> ask -> END                : answer
         ^   -> look -> note       : question
         +---------------+

    look: an agent that calls tools, or a model alone
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Retry, Update, node
from orchestrator.nodes import CallProtocol, Constrain, Step, Subgraph, Think
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.router import direct_answer
from orchestrator.tools import Risk
from orchestrator.values import check_options

_ASK = """\
You answer a main question by asking simpler follow-up questions first. You get the main question, and the follow-up \
questions so far with their answers. If more has to be known, ask one follow-up question that can be understood on its \
own, without the others. If not, give the final answer to the main question. """
SYSTEM = (
    _ASK + 'Answer with one JSON object, {"next": {"kind": "question", "question": "..."}} or '
    '{"next": {"kind": "answer", "answer": "..."}}.'
)
SYSTEM_IN_WORDS = (
    _ASK
    + """\
Write only one of these two lines:
Follow up: the question
So the final answer is: the answer"""
)
LOOK = "Answer the question in one sentence, with what the tools tell if you have any. If you do not know, say so."


class SelfAskState(Think.State, BaseModel):
    """Inherits `question`, `current` (the follow-up question), `step_history`, `answer` and `corrections`."""

    found: str = ""
    """The answer to the latest follow-up question."""


@node(effect="pure")
def note(state: SelfAskState) -> Update:
    """Add the follow-up question and its answer to the history."""
    return {"step_history": Step(question=state.current, tool_choice="", tool_output=state.found)}


EDGES = """
    START -> ask
    ask   -> END  : answer
    ask   -> look : question
    ask   -> ask  : again
    look  -> note -> ask
"""


@checks_names
def self_ask(
    max_steps: int = 10,
    max_seconds: float | None = None,
    *,
    name: str = "self_ask",
    tools: Collection[object] | None = None,
    model: str | None = None,
    follow_up: Literal["tools", "model"] = "tools",
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_rounds: int = 5,
    protocol: CallProtocol = "native",
    constrain: Constrain = "auto",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    After `max_steps` decisions the run ends as `exhausted`.

    Args:
        max_steps: the most decisions of the model: follow-up questions, and the answer.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for follow-up questions: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        follow_up: who answers follow-up questions: an agent that calls tools, or the model alone, as in the paper
            without a search engine.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason.
        max_rounds: rounds of calls for one follow-up question, after which it is answered from what is there.
        protocol: the form of tool calls: the provider's own, or a form of text.
        constrain: `auto`: ask for decisions by a JSON Schema, which many servers enforce. `never`: only in words, those
            of the paper.
        context: what keeps the conversation about a follow-up question within the model's window, see
            `function_call_agent`.
        offload: number of characters of a result above which the model is shown its start and end, see `Execute`.

    Raises:
        ValueError: `max_steps`, `max_rounds` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain, "context": context}
    check_options("self_ask", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("self_ask: max_steps and max_rounds must be at least 1, and max_seconds more than 0")
    if follow_up not in ("tools", "model"):
        raise ValueError(f"self_ask: follow_up={follow_up!r:.60}: use 'tools' or 'model'")
    look = direct_answer()
    if follow_up == "tools":
        look = function_call_agent(
            max_rounds,
            system=LOOK,
            protocol=protocol,
            confirm=confirm,
            on_denied=on_denied,
            on_error=on_error,
            last_answer=True,
            context=context,
            offload=offload,
        )
    own = look.limits.steps
    graph = Graph(
        name=name,
        description="Ask follow-up questions, answer them, and answer the main question.",
        state=SelfAskState,
        input="question",
        nodes={
            "ask": Think(
                system=SYSTEM if constrain == "auto" else SYSTEM_IN_WORDS,
                corrections="corrections",
                retries=2,
                constrain=constrain,
                retry=Retry(),
            ),
            "look": Subgraph(look, inputs={"question": "current"}, outputs={"found": "answer"}),
            "note": note,
        },
        edges=EDGES,
        output="answer",
        limits=Limits(
            steps=None if own is None else max_steps * (4 + own), visits={"ask": max_steps}, seconds=max_seconds
        ),
    )
    return graph.with_tools(tools).with_model(model)


graph = self_ask()

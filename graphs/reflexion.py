"""Reflexion (https://arxiv.org/abs/2303.11366): try, evaluate, reflect in words on the failure, and try again.

START -> recall -> act (react) -> judge -> END : accepted
           ^                        -> reflect : rejected
           +---------------------------+
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Message, Retry, Update, node
from orchestrator.nodes import CallProtocol, Complete, Constrain, Judge, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy
from orchestrator.strategies.react import react
from orchestrator.tools import Risk
from orchestrator.values import check_options

RUBRIC = {"correct": "the answer solves the task, and each fact and each step that it rests on is right"}
REFLECT = """\
You tried to solve a task and failed. Find out why.

Task: {question}

What you did:
{trajectory}

Your answer: {attempt}
What is wrong with it: {feedback}

Say in a few sentences what went wrong, and what you will do differently next time. Do not solve the task now."""
TASK = """\
{question}

You tried this before and failed. This is what you learned from it:
{reflections}"""
MEMORY = 3
"""Reflections that a trial is shown, the latest ones: the paper keeps one to three."""
SHOWN = 8_000
"""Maximum number of characters of a trial that the model reflects on."""


class ReflexionState(BaseModel):
    """The state from a task to an answer that is accepted."""

    question: str
    task: str = ""
    """The task, with what earlier trials taught."""
    attempt: str = ""
    """The answer of the latest trial."""
    messages: list[Message] = []
    """Its conversation."""
    trajectory: str = ""
    """Its conversation as text."""
    score: float = 0.0
    """The mean of the scores of its answer."""
    scores: dict[str, int] = {}
    feedback: str = ""
    """What is wrong with it."""
    corrections: list[Message] = []
    """Judgements that could not be used."""
    reflection: str = ""
    """What the model wrote about it."""
    reflections: list[str] = []
    """What all trials taught, the first one first."""
    best_score: float | None = None
    answer: str = ""
    """The answer with the best score, of the first trial that has it."""


@node(effect="pure")
def recall(state: ReflexionState) -> Update:
    """Add the latest reflection to the memory, and write the task for the next trial."""
    learned = [*state.reflections, *([state.reflection] if state.reflection else [])]
    reflections = "\n".join(f"- {' '.join(text.split())}" for text in learned[-MEMORY:])
    task = TASK.format(question=state.question, reflections=reflections) if learned else state.question
    return {"reflections": learned, "reflection": "", "task": task, "messages": []}


@node(effect="pure")
def review(state: ReflexionState) -> Update:
    """Write the conversation of the trial as text."""
    return {"trajectory": _shown(text_of(state.messages))}


def text_of(talk: Sequence[Message]) -> str:
    """Return a conversation as text: thoughts, actions and observations, without the task."""
    lines: list[str] = []
    for message in talk:
        if message.role == "tool":
            lines.append(f"Observation: {message.content}")
        elif message.role == "assistant":
            lines += [f"Thought: {message.content}"] if message.content else []
            lines += [
                f"Action: {call.name}[{json.dumps(dict(call.arguments or {}), ensure_ascii=False)}]"
                for call in message.tool_calls
            ]
    return "\n".join(lines) or "nothing"


def _shown(text: str) -> str:
    """Return a text without its middle if it is long."""
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN // 2]}\n[...]\n{text[-SHOWN // 2 :]}"


EDGES = """
    START   -> recall -> act -> review -> judge
    act     -> review  : exhausted
    judge   -> END     : accepted
    judge   -> reflect : rejected
    judge   -> judge   : again
    reflect -> recall
"""


@checks_names
def reflexion(
    max_steps: int = 3,
    max_seconds: float | None = None,
    *,
    name: str = "reflexion",
    tools: Collection[object] | None = None,
    model: str | None = None,
    judge: str | None = None,
    rubric: Mapping[str, str] = RUBRIC,
    scale: tuple[int, int] = (0, 1),
    threshold: float = 1.0,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_rounds: int = 10,
    protocol: CallProtocol = "native",
    constrain: Constrain = "auto",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
) -> Graph:
    """Return the strategy as a graph, to run with a task, models and tools. Its output is the answer of the best score.

    When the trials or seconds are used up, the run's status is `exhausted`. A check of your own, such as tests of code,
    replaces the judge: `graph.replace(judge=...)`, a node with the outcomes `accepted` and `rejected` that writes
    `feedback` and `answer`.

    Args:
        max_steps: the most trials.
        max_seconds: seconds that the run may be alive, in all trials together; None for no limit.
        name: the graph's name.
        tools: the only tools for the trials: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        judge: name of the model that evaluates; None for that of `model`.
        rubric: criterion -> description, by which an answer is evaluated.
        scale: lowest and highest score of a criterion; by default an answer is right or wrong, as in the paper.
        threshold: the lowest mean of the scores that is accepted.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the model receives the reason.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the model receives the
            reason.
        max_rounds: the most thoughts in one trial.
        protocol: the form of tool calls: the provider's own, or a form of text.
        constrain: `auto`: ask for judgements by a JSON Schema, which many servers enforce. `never`: only in words.
        context: what keeps the conversation of a trial within the model's window, see `react`.
        offload: number of characters of a result above which the model is shown its start and end, see `Execute`.

    Raises:
        ValueError: `max_steps`, `max_rounds` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain, "context": context}
    check_options("reflexion", max_steps=max_steps, max_rounds=max_rounds, seconds=max_seconds, **given)
    if max_steps < 1 or max_rounds < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("reflexion: max_steps and max_rounds must be at least 1, and max_seconds more than 0")
    actor = react(
        max_rounds,
        model=model,
        thought="optional",
        protocol=protocol,
        confirm=confirm,
        on_denied=on_denied,
        on_error=on_error,
        context=context,
        offload=offload,
    )
    own = actor.limits.steps
    steps = None if own is None else max_steps * (8 + own)  # one trial may use everything that the actor is allowed
    graph = Graph(
        name=name,
        description="Try, evaluate, reflect on the failure, and try again.",
        state=ReflexionState,
        input="question",
        nodes={
            "recall": recall,
            "act": Subgraph(actor, inputs={"question": "task"}, outputs={"attempt": "answer", "messages": "messages"}),
            "review": review,
            "judge": Judge(
                rubric=rubric,
                scale=scale,
                threshold=threshold,
                answer="attempt",
                best="answer",
                best_score="best_score",
                corrections="corrections",
                retries=2,
                constrain=constrain,
                model=judge or model,
                retry=Retry(),
            ),
            "reflect": Complete(prompt=REFLECT, result="reflection", on_cut="keep", model=model, retry=Retry()),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=steps, visits={"act": max_steps}, seconds=max_seconds),
    )
    return graph.with_tools(tools)


graph = reflexion()

"""Evaluator-optimizer: write, judge by a rubric, revise with the feedback; repeat until the rubric is met.

START -> write -> judge -> END : accepted
                    ^  -> revise : rejected
                    +-------+

Also known as self-refine (https://arxiv.org/abs/2303.17651), here with a judge that may be another model.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from orchestrator import Graph, Limits, Message, Retry
from orchestrator.nodes import Complete, Constrain, Judge
from orchestrator.spelling import checks_names
from orchestrator.values import check_options

RUBRIC = {
    "correct": "every statement is right, and nothing in it is made up",
    "complete": "each part of the task is done",
    "clear": "it is easy to read, and has no word too many",
}
REVISE = """\
Task: {question}

Your draft:
{draft}

What a reviewer says about it:
{feedback}

Write a better version that answers the review. Give only the new version."""


class EvaluatorOptimizerState(BaseModel):
    """The state from a task to an answer that meets the rubric."""

    question: str
    draft: str = ""
    """The latest version."""
    score: float = 0.0
    """The mean of its scores."""
    scores: dict[str, int] = {}
    """Its score in each criterion."""
    feedback: str = ""
    """What is wrong with it."""
    corrections: list[Message] = []
    """Judgements that could not be used."""
    best_score: float | None = None
    """The highest score so far."""
    answer: str = ""
    """The version that has it."""


EDGES = """
    START  -> write -> judge
    judge  -> END    : accepted
    judge  -> revise : rejected
    judge  -> judge  : again
    revise -> judge
"""


@checks_names
def evaluator_optimizer(
    max_steps: int = 3,
    max_seconds: float | None = None,
    *,
    name: str = "evaluator_optimizer",
    model: str | None = None,
    judge: str | None = None,
    rubric: Mapping[str, str] = RUBRIC,
    scale: tuple[int, int] = (1, 5),
    threshold: float = 4.5,
    system: str = "",
    constrain: Constrain = "auto",
) -> Graph:
    """Return the strategy as a graph, to run with a task and a model. Its output is the version with the best score.

    When the revisions or seconds are used up, the run's status is `exhausted`.

    Args:
        max_steps: the most revisions.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        model: name of one of the executor's models; None for the default one.
        judge: name of the model that judges; None for that of `model`.
        rubric: criterion -> description.
        scale: lowest and highest score of a criterion, whole numbers.
        threshold: the lowest mean of the scores that is accepted.
        system: the system message of the writer; empty: none.
        constrain: `auto`: ask for judgements by a JSON Schema, which many servers enforce. `never`: only in words.

    Raises:
        ValueError: `max_steps` or `max_seconds` is not positive, the rubric is empty, or another option does not fit.
    """
    check_options("evaluator_optimizer", max_steps=max_steps, seconds=max_seconds, constrain=constrain)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("evaluator_optimizer: max_steps must be at least 1, and max_seconds more than 0")
    write = Complete(system=system, result="draft", model=model, retry=Retry())
    return Graph(
        name=name,
        description="Write, judge by a rubric, and revise until the rubric is met.",
        state=EvaluatorOptimizerState,
        input="question",
        nodes={
            "write": write,
            "judge": Judge(
                rubric=rubric,
                scale=scale,
                threshold=threshold,
                answer="draft",
                best="answer",
                best_score="best_score",
                corrections="corrections",
                retries=2,
                constrain=constrain,
                model=judge or model,
                retry=Retry(),
            ),
            "revise": write.with_(prompt=REVISE),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=10 + 10 * max_steps, visits={"revise": max_steps}, seconds=max_seconds),
    )


graph = evaluator_optimizer()

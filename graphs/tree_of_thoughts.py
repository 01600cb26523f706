"""Tree of Thoughts (https://arxiv.org/abs/2305.10601): several next thoughts, each rated, the best ones go on (BFS).

START -> grow -> propose (each of the kept thoughts) -> spread -> rate (each new thought) -> select -> answer -> END
          ^                                                                                  | more
          +----------------------------------------------------------------------------------+
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, JsonValue

from orchestrator import Graph, Limits, Retry, Update, append, node, replace
from orchestrator.nodes import ITEM, Complete, Constrain, Decide, Select, Subgraph
from orchestrator.spelling import checks_names
from orchestrator.values import check_options

PROPOSE = """\
Task: {question}

What was thought so far, step by step:
{thought}

Give <branches> different possible next steps. Each is one short step, not the whole solution; if the task is solved \
already, give the solution as the step. Answer with one JSON object, {{"thoughts": ["...", "..."]}}."""
RATE = """\
How likely do these steps lead to a right solution of the task, from 1 (impossible) to 10 (certain)? Check each step \
that was made before you decide."""
ANSWER = """\
Task: {question}

These steps were found to be the best ones:
{solution}

Give the answer to the task from them, as short as the task allows."""
NOTHING = "(nothing yet)"


class BranchState(BaseModel):
    """The state of one thought."""

    question: str
    thought: str = ""
    """The steps so far."""
    proposed: dict[str, list[str]] = {}
    """The next steps, as the model wrote them."""
    fault: str = ""
    """The reason why there are none."""
    thoughts: list[str] = []
    """The steps so far, with each of the next ones."""


class RatingState(BaseModel):
    """The state of a new thought."""

    question: str
    thought: str
    text: str = ""
    """The task and the thought."""
    score: int = 1
    candidate: dict[str, JsonValue] = {}
    """The thought with its score."""


class TreeOfThoughtsState(Select.State, BaseModel):
    """Inherits `candidates` (thoughts with scores), `selected` (the thoughts that go on) and `level`."""

    question: str
    frontier: list[str] = []
    """The thoughts to go on from."""
    branches: Annotated[list[list[str]], append] = []
    """The new thoughts of each of them."""
    thoughts: list[str] = []
    """All new thoughts of a level."""
    solution: str = ""
    """The best thought."""
    answer: str = ""


@node(effect="pure")
def grow(state: TreeOfThoughtsState) -> Update:
    """Go on from the thoughts that were kept, at first from none."""
    return {"frontier": state.selected or [NOTHING], "branches": replace([])}


@node(effect="pure")
def extend(state: BranchState) -> Update:
    """Add each next step to the steps so far."""
    before = "" if state.thought == NOTHING else f"{state.thought}\n"
    steps = (" ".join(step.split()) for step in state.proposed.get("thoughts", []))
    return {"thoughts": [f"{before}{step}" for step in steps if step]}


@node(effect="pure", join="all")
def spread(state: TreeOfThoughtsState) -> Update:
    """Write all new thoughts, each once."""
    return {"thoughts": list(dict.fromkeys(thought for branch in state.branches for thought in branch))}


@node(effect="pure")
def present(state: RatingState) -> Update:
    """Write the task and the thought as one text."""
    return {"text": f"Task: {state.question}\n\nSteps:\n{state.thought}"}


@node(effect="pure")
def score(state: RatingState) -> Update:
    """Write the thought with its score."""
    return {"candidate": {"text": state.thought, "score": state.score}}


@node(effect="pure")
def choose(state: TreeOfThoughtsState) -> Update:
    """Take the best thought."""
    return {"solution": next(iter(state.selected), NOTHING)}


PROPOSING = """
    START   -> propose
    propose -> extend : done
    propose -> END    : unusable
    extend  -> END
"""
RATING = """
    START -> present -> rate -> score -> END
"""
EDGES = """
    START   -> grow
    grow    -> propose : each frontier
    propose -> spread
    spread  -> rate    : each thoughts
    rate    -> select
    select  -> grow    : more
    select  -> choose  : done
    choose  -> answer -> END
"""


@checks_names
def tree_of_thoughts(
    max_steps: int = 3,
    max_seconds: float | None = None,
    *,
    name: str = "tree_of_thoughts",
    model: str | None = None,
    judge: str | None = None,
    branches: int = 3,
    beam: int = 2,
    temperature: float | None = None,
    constrain: Constrain = "auto",
) -> Graph:
    """Return the strategy as a graph, to run with a task and a model. Its output is the answer, a text.

    Args:
        max_steps: the depth of the tree: steps of a solution.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        model: name of one of the executor's models; None for the default one.
        judge: name of the model that rates thoughts; None for that of `model`.
        branches: the next steps that are proposed for each thought (k in the paper).
        beam: the thoughts of each level that go on (b in the paper).
        temperature: the sampling temperature of proposals; None for the model's default.
        constrain: `auto`: ask for ratings by a JSON Schema, which many servers enforce. `never`: only in words.

    Raises:
        ValueError: `max_steps`, `branches`, `beam` or `max_seconds` is not positive.
    """
    check_options(
        "tree_of_thoughts",
        max_steps=max_steps,
        branches=branches,
        beam=beam,
        seconds=max_seconds,
        constrain=constrain,
    )
    if min(max_steps, branches, beam) < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError(
            "tree_of_thoughts: max_steps, branches and beam must be at least 1, and max_seconds more than 0"
        )
    each = {"question": "question", "thought": ITEM}
    return Graph(
        name=name,
        description="Propose several next thoughts, rate each, and go on from the best ones.",
        state=TreeOfThoughtsState,
        input="question",
        nodes={
            "grow": grow,
            "propose": Subgraph(
                _proposing(branches, temperature, model), inputs=each, outputs={"branches": "thoughts"}
            ),
            "spread": spread,
            "rate": Subgraph(_rating(constrain, judge or model), inputs=each, outputs={"candidates": "candidate"}),
            "select": Select(best=beam, rounds=max_steps, join="all"),
            "choose": choose,
            "answer": Complete(prompt=ANSWER, result="answer", model=model, retry=Retry()),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=10 + max_steps * (10 + 4 * beam + 5 * beam * branches), seconds=max_seconds),
    )


def _proposing(branches: int, temperature: float | None, model: str | None) -> Graph:
    """Return the graph that proposes the next steps of a thought."""
    thoughts: JsonValue = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": branches}
    return Graph(
        name="propose",
        description="Propose the next steps of a thought.",
        state=BranchState,
        input=("question", "thought"),
        nodes={
            "propose": Complete(
                prompt=PROPOSE.replace("<branches>", str(branches)),
                output={
                    "type": "object",
                    "properties": {"thoughts": thoughts},
                    "required": ["thoughts"],
                    "additionalProperties": False,
                },
                result="proposed",
                fault="fault",
                options={} if temperature is None else {"temperature": temperature},
                model=model,
                retry=Retry(),
            ),
            "extend": extend,
        },
        edges=PROPOSING,
        output="thoughts",
    )


def _rating(constrain: Constrain, model: str | None) -> Graph:
    """Return the graph that rates a thought."""
    rate = Decide(
        criteria=RATE, score=(1, 10), text="text", result="score", constrain=constrain, model=model, retry=Retry()
    )
    return Graph(
        name="rate",
        description="Rate a thought.",
        state=RatingState,
        input=("question", "thought"),
        nodes={"present": present, "rate": rate, "score": score},
        edges=RATING,
        output="candidate",
    )


graph = tree_of_thoughts()

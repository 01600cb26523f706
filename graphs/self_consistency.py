"""Self-consistency (https://arxiv.org/abs/2203.11171): reason several times at once, take the most frequent answer.

START -> repeat -> sample (each of the samples) -> vote -> END

    sample: START -> reason -> read -> END
"""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import Graph, Limits, Retry
from orchestrator.nodes import AnswerForm, Complete, Extract, Repeat, Subgraph, Vote
from orchestrator.spelling import checks_names
from orchestrator.strategies.plan_and_solve_prompt import VotesState
from orchestrator.values import check_options

PROMPT = """\
Q: {question}
A: Think step by step. Write down each step, and end with a sentence that begins with "The answer is"."""


class ReasoningState(BaseModel):
    """The state of one sample."""

    question: str
    reasoning: str = ""
    """A chain of thought, with its answer at the end."""
    answer: str = ""
    """The answer; empty if the reasoning has none."""
    fault: str = ""
    """The reason why there is no answer."""


class SelfConsistencyState(VotesState):
    """Inherits `question`, `rounds`, `answers`, `faults` and `answer`."""

    agreement: float = 0.0
    """The share of the samples with an answer that have the chosen one, from 0 to 1."""


SAMPLE = """
    START  -> reason
    reason -> read : done
    reason -> END  : unusable
    read   -> END  : found
    read   -> END  : missing
"""
EDGES = """
    START  -> repeat
    repeat -> sample : each rounds
    sample -> vote -> END
"""


@checks_names
def self_consistency(
    votes: int = 5,
    form: AnswerForm = "text",
    temperature: float | None = 0.7,
    *,
    name: str = "self_consistency",
    model: str | None = None,
    prompt: str = PROMPT,
    max_seconds: float | None = None,
) -> Graph:
    """Return the strategy as a graph, to run with a question and a model. Its output is the answer, a text.

    A sample without an answer has no vote; the run fails with an `AgentError` if no sample has one.

    Args:
        votes: the number of samples.
        form: the form of an answer, by which it is found in a reply and compared with others.
        temperature: the sampling temperature; None for the model's default. Samples differ only if the model's replies
            do.
        name: the graph's name.
        model: name of one of the executor's models; None for the default one.
        prompt: the prompt of a sample, with `{question}`; the paper's has examples before the question.
        max_seconds: seconds that the run may be alive; None for no limit.

    Raises:
        ValueError: `votes` or `max_seconds` is not positive.
    """
    check_options("self_consistency", votes=votes, seconds=max_seconds)
    if votes < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("self_consistency: votes must be at least 1, and max_seconds more than 0")
    options = {} if temperature is None else {"temperature": temperature}
    sample = Graph(
        name="sample",
        description="Reason step by step, and read the answer.",
        state=ReasoningState,
        input="question",
        nodes={
            "reason": Complete(
                prompt=prompt, result="reasoning", fault="fault", on_cut="keep", options=options, retry=Retry()
            ),
            "read": Extract(text="reasoning", form=form, fault="fault"),
        },
        edges=SAMPLE,
        output="answer",
    )
    graph = Graph(
        name=name,
        description="Reason several times at once, and take the most frequent answer.",
        state=SelfConsistencyState,
        input="question",
        nodes={
            "repeat": Repeat(times=votes),
            "sample": Subgraph(
                sample, inputs={"question": "question"}, outputs={"answers": "answer", "faults": "fault"}
            ),
            "vote": Vote(faults="faults", share="agreement", join="all"),
        },
        edges=EDGES,
        output="answer",
        limits=Limits(steps=max(2 + 3 * votes, 1000), seconds=max_seconds),
    )
    return graph.with_model(model)


graph = self_consistency()

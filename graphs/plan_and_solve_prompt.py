"""Plan-and-Solve prompting (arXiv 2305.04091): one model, no tools, no examples; a plan in its own reasoning.

START -> reason -> look -> END : the reasoning says what the answer is
                   look -> conclude -> read -> END
                                       read -> restate -> check -> END : asked for the answer alone, by schema

With votes, this is repeated several times at once, and the most frequent answer is taken; replies without an answer do
not count.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, JsonValue

from orchestrator import Graph, Limits, Retry, append
from orchestrator.graph import Migration
from orchestrator.nodes import AnswerForm, Complete, Extract, Repeat, Subgraph, Vote
from orchestrator.spelling import checks_names
from orchestrator.values import check_options

PS = """\
Q: {question}
A: First work out what the question asks, and make a plan to answer it. Then follow the plan step by step, until you \
have the answer."""

PS_PLUS = """\
Q: {question}
A: First work out what the question asks. List the quantities that matter, with their values, and make a plan to \
answer the question. Then follow the plan step by step: calculate each intermediate result carefully, check that it \
makes sense, and state the answer."""

CONCLUDE = "\n{reasoning}\n"
ENDINGS = {
    "text": "So the answer is",
    "number": "So the answer, as a number, is",
    "choice": "So of the choices A to E the answer is",
    "yes_no": "So the answer, yes or no, is",
}


_VALUES: dict[AnswerForm, dict[str, JsonValue]] = {
    "text": {"type": ["string", "null"]},
    "number": {"type": ["number", "null"]},
    "choice": {"type": ["string", "null"], "enum": ["A", "B", "C", "D", "E", None]},
    "yes_no": {"type": ["string", "null"], "enum": ["yes", "no", None]},
}


def _schema(form: AnswerForm) -> dict[str, JsonValue]:
    """Return the schema of an answer; null: the text has none."""
    value = {**_VALUES[form], "description": "The answer; null if the text gives none."}
    return {"type": "object", "properties": {"answer": value}, "required": ["answer"], "additionalProperties": False}


class PlanAndSolvePromptState(BaseModel):
    """The state from a question to one answer."""

    question: str
    reasoning: str = ""
    """The reply to the first prompt."""
    stated: dict[str, JsonValue] = {}
    """The answer by its schema, if the reply to the second prompt has none that can be read."""
    answer: str = ""


class SampleState(PlanAndSolvePromptState):
    """The state of one of several answers, which may be empty."""

    conclusion: str = ""
    """The reply to the second prompt."""
    fault: str = ""
    """The reason why there is no answer."""


class VotesState(BaseModel):
    """The state from a question to several answers, one of which is chosen."""

    question: str
    rounds: list[int] = []
    """A number for each of the answers."""
    answers: Annotated[list[str], append] = []
    """All answers; empty where there is none."""
    faults: Annotated[list[str], append] = []
    """The reasons why answers are missing; empty texts for those that exist."""
    answer: str = ""
    """The most frequent answer."""


EDGES = """
    START    -> reason -> look
    look     -> END      : found
    look     -> conclude : missing
    conclude -> read
    read     -> END      : found
    read     -> restate  : missing
    restate  -> check -> END
"""
SAMPLE = """
    START    -> reason
    reason   -> look     : done
    reason   -> END      : unusable
    look     -> END      : found
    look     -> conclude : missing
    conclude -> read     : done
    conclude -> END      : unusable
    read     -> END      : found
    read     -> restate  : missing
    restate  -> check    : done
    restate  -> END      : unusable
    check    -> END
"""
VOTING = """
    START  -> repeat
    repeat -> sample : each rounds
    sample -> vote -> END
"""


@checks_names
def plan_and_solve_prompt(
    plus: bool = True,
    form: AnswerForm = "text",
    votes: int = 1,
    temperature: float | None = None,
    *,
    name: str | None = None,
    model: str | None = None,
    max_seconds: float | None = None,
) -> Graph:
    """Return the strategy as a graph, to run with a question and a model. Its output is the answer, a text.

    A conclusion without an answer of the form is asked for once more, by its schema. A refused reply, and an answer
    that is missing then, too, fail the run with an `AgentError`; among several votes such a reply does not count, and
    the run fails if no vote is left. A reply that is cut off counts as far as it goes.

    Args:
        plus: True for the longer prompt (PS+), which also asks for the quantities and for careful intermediate results.
        form: the form of an answer, by which it is found in a reply.
        votes: the number of independent answers, the most frequent of which is taken (self-consistency).
        temperature: the sampling temperature; None for the model's default. Votes differ only if the model's answers
            do.
        name: the graph's name; None: `plan_and_solve_prompt`, with votes `plan_and_solve_votes`.
        model: name of one of the executor's models; None for the default one.
        max_seconds: seconds that the run may be alive; None for no limit.

    Raises:
        ValueError: `votes` or `max_seconds` is not positive.
    """
    check_options("plan_and_solve_prompt", votes=votes, seconds=max_seconds)
    if votes < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("plan_and_solve_prompt: votes must be at least 1, and max_seconds more than 0")
    prompt = PS_PLUS if plus else PS
    options = {} if temperature is None else {"temperature": temperature}
    alone = votes == 1
    last, fault = ("answer", None) if alone else ("conclusion", "fault")
    asked = Complete(fault=fault, options=options, model=model, retry=Retry())
    one = Graph(
        name=name or "plan_and_solve_prompt",
        description="Plan and carry out the plan in one reply, then extract the answer.",
        state=PlanAndSolvePromptState if alone else SampleState,
        input="question",
        nodes={
            "reason": asked.with_(prompt=prompt, result="reasoning", on_cut="keep"),
            "look": Extract(text="reasoning", form=form, announced=True),
            "conclude": asked.with_(prompt=prompt + CONCLUDE + ENDINGS[form], result=last, on_cut="keep"),
            "read": Extract(text=last, form=form),
            "restate": asked.with_(
                prompt=prompt + CONCLUDE + ENDINGS[form], result="stated", output=_schema(form), form=form, retries=2
            ),
            "check": Extract(text="stated", form=form, required=alone, fault=fault),
        },
        edges=EDGES if alone else SAMPLE,
        output="answer",
        limits=Limits(seconds=max_seconds),
        migrations=[Migration(accept=True)],  # `read` had no way to `restate`
    )
    if alone:
        return one
    steps = 2 + votes * (1 + len(one.nodes))  # every node runs once
    return Graph(
        name=name or "plan_and_solve_votes",
        description="Answer several times, each with a new plan; choose the most frequent answer.",
        state=VotesState,
        input="question",
        nodes={
            "repeat": Repeat(times=votes),
            "sample": Subgraph(one, inputs={"question": "question"}, outputs={"answers": "answer", "faults": "fault"}),
            "vote": Vote(faults="faults", join="all"),
        },
        edges=VOTING,
        output="answer",
        limits=Limits(steps=max(steps, 1000), seconds=max_seconds),
    )


graph = plan_and_solve_prompt()

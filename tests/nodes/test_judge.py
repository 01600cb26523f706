"""A judge scores an answer by a rubric."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Executor, Graph
from orchestrator.models import Reply
from orchestrator.nodes import CallModel, Judge
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
RUBRIC = {"correct": "every fact is right", "brief": "no word too many"}


class State(Judge.State, CallModel.State):
    """With corrections."""


def judged(correct: Any, brief: Any, feedback: str = "Say less.") -> str:
    return json.dumps({"feedback": feedback, "scores": {"correct": correct, "brief": brief}})


def graph_of(**fields: Any) -> Graph:
    judge = Judge(rubric=RUBRIC, **fields)
    ways = "\n".join(f"judge -> {'judge' if one == 'again' else 'END'} : {one}" for one in judge.outcomes)
    return Graph(name="g", state=State, nodes={"judge": judge}, edges=f"START -> judge\n{ways}")


async def run_of(*replies: Any, **fields: Any) -> tuple[str, Any, ScriptedModel]:
    model = ScriptedModel([*replies])
    async with Executor(model=model) as executor:
        run = await executor.start(graph_of(**fields), {"question": "Why?", "answer": "Because."})
        last = (await executor.history(run.run_id))[-1].outcome or ""
    return (last if run.status == "completed" else run.status), run, model


async def test_the_scores_their_mean_and_the_feedback_are_written() -> None:
    outcome, run, model = await run_of(judged(5, 2))
    assert outcome == "done"
    assert (run.values["score"], run.values["scores"], run.values["feedback"]) == (
        3.5, {"correct": 5, "brief": 2}, "Say less.",
    )  # fmt: skip
    prompt = model.requests[0].messages[-1].content
    assert "correct: every fact is right\nbrief: no word too many" in prompt
    assert "from 1 (worst) to 5 (best)" in prompt
    assert model.requests[0].output is not None


@pytest.mark.parametrize(("scores", "outcome"), [((4, 4), "accepted"), ((5, 3), "accepted"), ((4, 3), "rejected")])
async def test_a_threshold_decides(scores: tuple[int, int], outcome: str) -> None:
    assert (await run_of(judged(*scores), threshold=4))[0] == outcome


# Replies of judges; written before the reader.
READ: list[tuple[str, str]] = [
    (judged("4", 4.0), "Say less."),
    (f"```json\n{judged(4, 4)}\n```", "Say less."),
    (f"Here is my judgement:\n{judged(4, 4)}", "Say less."),
    (f"<think>It is {{fine}}.</think>{judged(4, 4)}", "Say less."),
    (judged("4/5", "4 / 5"), "Say less."),
    (judged("4 out of 5", "4.0/5"), "Say less."),
    ('{"Feedback": "Say less.", "Scores": {"Correct": 4, "BRIEF": 4}}', "Say less."),
    ('{"scores": {"correct": 4, "brief": 4}}', ""),
    ('{"feedback": "Say less.", "correct": 4, "brief": "4/5"}', "Say less."),
    ("Feedback: Say less.\nScores: correct: 4, brief: 4", "Say less."),
    ("Feedback: Say less.\nScores:\n- correct: 4\n- brief: 4/5", "Say less."),
    ("**Feedback:** Say less.\n\n**Scores:**\n1. **Correct:** 4/5\n2. **Brief**: **4**", "Say less."),
    ("correct: 4\nbrief: 4", ""),
    ("Correct: all of it.\nSay 2: less.\n\nCorrect = 4\nBrief = 4", "Correct: all of it.\nSay 2: less."),
    ("```\nFeedback: Say less.\ncorrect: 4\nbrief: 4\n```", "Say less."),
    ("correct: 4\nbrief: 4\ncorrect: 4", ""),
]


@pytest.mark.parametrize(("reply", "feedback"), READ)
async def test_a_reply_as_models_write_it_is_read(reply: str, feedback: str) -> None:
    _, run, _ = await run_of(reply)
    assert run.values.get("scores") == {"correct": 4, "brief": 4}, run.error
    assert run.values["feedback"] == feedback


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (judged(7, 4), "at most 5"),
        (judged(4.5, 4), "whole number"),
        (judged("4.5/5", 4), "whole number"),
        (judged("4/10", 4), "whole number"),
        ("correct: 4\nbrief: 4/4", "whole number"),
        ("correct: 4\nbrief: 4\nCorrect: 5", "two scores for 'correct'"),
        ('{"scores": {"correct": 4, "Correct": 5, "brief": 4}}', "two scores for 'correct'"),
        ("correct: 4", "brief"),
        ("Correct: 4.\nBrief: yes.", "brief"),
        ('{"feedback": "", "scores": {"correct": 4}}', "brief"),
        ("It is fine.", "JSON"),
        (Reply(text=judged(4, 4)[:-9], finish="length"), "cut off"),
    ],
)
async def test_a_reply_that_cannot_be_used_goes_back_or_fails(reply: Any, words: str) -> None:
    outcome, run, _ = await run_of(reply)
    assert outcome == "failed"
    assert run.error.type == "AgentError"
    assert words in run.error.message
    outcome, run, model = await run_of(reply, judged(4, 4), corrections="corrections")
    assert (outcome, run.values["corrections"], len(model.requests)) == ("done", [], 2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rubric": {}}, "no criterion"),
        ({"scale": (5, 1)}, "lowest and the highest"),
        ({"threshold": 6}, "all answers or none"),
        ({"threshold": 1}, "all answers or none"),
    ],
)
def test_a_judge_that_cannot_work_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Judge(**{"rubric": RUBRIC, **fields})


async def test_names_that_differ_only_in_case_are_told_apart() -> None:
    rubric = {"Fact": "facts of the text", "fact": "facts of the world"}
    graph = Graph(name="g", state=State, nodes={"judge": Judge(rubric=rubric)}, edges="START -> judge -> END")
    for reply, status in (("Fact: 4\nfact: 2", "completed"), ("FACT: 4\nfact: 2", "failed")):
        run = await graph.run({"question": "Why?", "answer": "Because."}, model=ScriptedModel([reply]))
        assert run.status == status


def test_the_order_of_the_rubric_is_kept_in_a_file(tmp_path: Any) -> None:
    graph = graph_of(threshold=4)
    graph.save(tmp_path / "g.yaml")
    loaded = Graph.load(tmp_path / "g.yaml")
    assert list(loaded.nodes["judge"].rubric) == ["correct", "brief"]  # type: ignore[attr-defined]
    assert loaded.content == graph.content


async def test_the_best_answer_is_kept() -> None:
    class Kept(Judge.State):
        best: str = ""
        best_score: float | None = None

    judge = Judge(rubric=RUBRIC, best="best", best_score="best_score")
    for before, kept in ((None, ("Because.", 3.0)), (2.5, ("Because.", 3.0)), (3.0, ("Earlier.", 3.0))):
        graph = Graph(name="g", state=Kept, nodes={"judge": judge}, edges="START -> judge -> END")
        given = {"question": "Why?", "answer": "Because.", "best": "Earlier.", "best_score": before}
        run = await graph.run(given, model=ScriptedModel([judged(3, 3)]))
        assert (run.values["best"], run.values["best_score"]) == kept
    with pytest.raises(ValidationError, match="belong together"):
        Judge(rubric=RUBRIC, best="best")


class Letter(BaseModel):
    """A structured answer."""

    subject: str


class Structured(Judge.State):
    """An answer that is no text."""

    letter: Letter = Letter(subject="Über uns")


async def test_an_answer_that_is_no_text_is_judged_as_json() -> None:
    judge = Judge(rubric=RUBRIC, answer="letter")
    graph = Graph(name="g", state=Structured, input="question", nodes={"judge": judge}, edges="START -> judge -> END")
    model = ScriptedModel([judged(5, 2)])
    run = await graph.run("Why?", model=model)
    assert run.status == "completed", run.error
    assert '{"subject": "Über uns"}' in model.requests[0].messages[-1].content

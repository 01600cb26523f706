"""What the strategies do that judge, reflect and plan again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator import Graph, Run, ToolCall
from orchestrator.models import Reply
from orchestrator.strategies.evaluator_optimizer import evaluator_optimizer
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.plan_and_execute import plan_and_execute
from orchestrator.strategies.react import react
from orchestrator.strategies.reflexion import MEMORY, SHOWN, reflexion
from orchestrator.strategies.router import direct_answer, router
from orchestrator.strategies.self_consistency import self_consistency
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
RUBRIC = {"right": "it is right"}


def judged(score: int, feedback: str = "Do better.") -> str:
    return json.dumps({"feedback": feedback, "scores": {"right": score}})


async def run_of(graph: Graph, script: Any, question: str = "Why?") -> tuple[Run, ScriptedModel]:
    model = ScriptedModel(script)
    return await graph.run(question, model=model, tools="arithmetic"), model


# -- evaluator_optimizer -------------------------------------------------------------------------------------------


async def test_the_best_version_is_the_answer_when_no_version_is_accepted() -> None:
    scores = [judged(2), judged(4), judged(3)]
    graph = evaluator_optimizer(2, rubric=RUBRIC, threshold=5)
    run, model = await run_of(graph, {"write": ["a"], "judge": scores, "revise": ["b", "c"]})
    assert (run.status, run.output, run.values["draft"]) == ("exhausted", "b", "c")
    revision = model.requests[2].messages[-1].content
    assert "Your draft:\na\n" in revision
    assert "Do better." in revision


# -- reflexion -----------------------------------------------------------------------------------------------------


async def test_a_trial_sees_the_last_reflections_and_nothing_of_earlier_trials() -> None:
    trials = 5
    script = {
        "think": [f"answer {n}" for n in range(trials)],
        "judge": [judged(0, f"wrong {n}") for n in range(trials)],
        "reflect": [f"lesson\n{n}" for n in range(trials)],
    }
    run, model = await run_of(reflexion(trials, rubric=RUBRIC), script)
    assert (run.status, run.output) == ("exhausted", "answer 0")
    asked = [request.messages for request in model.requests if request.tools]
    assert all([message.role for message in talk] == ["system", "user"] for talk in asked)
    lessons = [line for line in asked[-1][-1].content.splitlines() if line.startswith("- ")]
    assert lessons == [f"- lesson {n}" for n in range(trials - 1 - MEMORY, trials - 1)]


async def test_the_reflection_is_about_what_was_done() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 2, "b": 3})
    thought = Reply(text="I add.", tool_calls=(call,))
    script = {"think": [thought, "6", "5"], "judge": [judged(0), judged(1)], "reflect": ["Copy the result."]}
    run, model = await run_of(reflexion(rubric=RUBRIC), script)
    assert run.output == "5"
    told = model.requests[3].messages[-1].content
    assert 'Thought: I add.\nAction: add[{"a": 2, "b": 3}]\nObservation: 5\nThought: 6' in told
    assert "Your answer: 6\nWhat is wrong with it: Do better." in told


async def test_a_trial_whose_thoughts_are_used_up_is_reflected_on() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 2, "b": 3})
    script = {
        "think": [Reply(text="", tool_calls=(call,)), "5"],
        "judge": [judged(0), judged(1)],
        "reflect": ["Answer at once."],
    }
    run, _ = await run_of(reflexion(rubric=RUBRIC, max_rounds=1), script)
    assert (run.status, run.output) == ("completed", "5")


async def test_of_a_long_trial_its_start_and_end_are_shown() -> None:
    script = {"think": ["a" * SHOWN + "the end", "5"], "judge": [judged(0), judged(1)], "reflect": ["Be brief."]}
    _, model = await run_of(reflexion(rubric=RUBRIC), script)
    told = model.requests[2].messages[-1].content
    assert "aaa\n[...]\naaa" in told
    assert "athe end" in told


# -- plan_and_execute ----------------------------------------------------------------------------------------------


def plan(*steps: str) -> str:
    return json.dumps({"steps": steps})


def again(answer: str | None, *steps: str) -> str:
    return json.dumps({"answer": answer, "steps": steps})


@pytest.mark.parametrize(
    ("replies", "output", "states"),
    [
        ([again("", "b"), again("done", )], "done", "a:done b:done"),
        ([again("done")], "done", "a:done b:dropped"),
        ([again("too early", "b"), again("done")], "done", "a:done b:done"),
        ([again("", "c"), again(None, "b"), again("done")], "done", "a:done c:done b:done"),
        ([again("", "c", "d"), again("", "d"), again("x")], "x", "a:done c:done d:done b:dropped"),
        ([again(""), ], "result 1", "a:done b:dropped"),
        ([again(None)], "result 1", "a:done b:dropped"),
        ([again("", " ", "")], "result 1", "a:done b:dropped"),
        (["```json\n" + again("done") + "\n```"], "done", "a:done b:dropped"),
        (["I think we are done.\n\n" + again("done")], "done", "a:done b:dropped"),
        (["<think>Is it?</think>" + again("done")], "done", "a:done b:dropped"),
        (["We are done.", again("done")], "done", "a:done b:dropped"),
        (['{"steps": ["b"]}', again("", "b"), again("done")], "done", "a:done b:done"),
        (['{"answer": "done"}', again("done")], "done", "a:done b:dropped"),
    ],
)  # fmt: skip
async def test_each_reply_of_the_planner_is_followed(replies: list[str], output: str, states: str) -> None:
    numbers = iter(range(1, 9))
    script = {"plan": [plan("a", "b")], "think": lambda _: f"result {next(numbers)}", "replan": replies}
    run, _ = await run_of(plan_and_execute(), script)
    assert (run.status, run.output) == ("completed", output), run.error
    assert " ".join(f"{step['task']}:{step['status']}" for step in run.values["progress"]) == states


async def test_a_plan_that_grows_without_end_is_bounded() -> None:
    script = {"plan": [plan("a")], "think": lambda _: "r", "replan": lambda _: again("", "more")}
    run, _ = await run_of(plan_and_execute(3), script)
    assert (run.status, run.output, run.values["results"]) == ("exhausted", "r", ["r"] * 3)
    script = {**script, "conclude": ["so far"]}
    run, _ = await run_of(plan_and_execute(3, last_answer=True), script)
    assert (run.status, run.output) == ("exhausted", "so far")


# -- router, orchestrator_workers, self_consistency ----------------------------------------------------------------


async def test_only_the_chosen_agent_runs() -> None:
    agents = {"a": direct_answer("greetings"), "b": direct_answer("questions")}
    run, model = await run_of(router(agents), ["b", "because"])
    assert (run.values["chosen"], run.output, len(model.requests)) == ("b", "because", 2)


def test_agents_that_cannot_be_chosen_are_refused() -> None:
    undescribed = direct_answer().model_copy(update={"description": ""})
    for agents, words in (
        ({"a": direct_answer(), "b": undescribed}, "'b' has no description"),
        ({"a": direct_answer()}, "at least two"),
        (
            {"a": direct_answer(), "b": direct_answer().model_copy(update={"output": None})},
            "one input= and one output=",
        ),
        ({"a": direct_answer(), "b": "react"}, "give a Graph"),
    ):
        with pytest.raises(ValueError, match=words):
            router(agents)  # type: ignore[arg-type]


async def test_results_of_workers_are_in_the_order_of_the_parts() -> None:
    script = {
        "plan": [plan("one", "two", "three")],
        "think": lambda request: request.messages[-1].content.upper(),
        "combine": lambda request: request.messages[-1].content,
    }
    run, _ = await run_of(orchestrator_workers(), script)
    assert run.values["results"] == ["ONE", "TWO", "THREE"]
    assert 'parts: ["one", "two", "three"]' in str(run.output)


async def test_samples_without_an_answer_have_no_vote() -> None:
    said = iter(
        ["The answer is 7.", "I cannot say.", Reply(text="", finish="content_filter"), "The answer is 7", "= 8"]
    )
    run, _ = await run_of(self_consistency(5, form="number"), {"reason": lambda _: next(said)})
    assert (run.output, run.values["agreement"]) == ("7", 0.6667)
    assert len([fault for fault in run.values["faults"] if fault]) == 2
    run, _ = await run_of(self_consistency(2, form="number"), {"reason": lambda _: "no idea"})
    assert (run.status, run.error.type if run.error else "") == ("failed", "AgentError")


async def test_a_strategy_is_a_node_and_a_tool_of_another_one() -> None:
    tool = self_consistency(2, form="number").as_tool("ask_twice", "Answers questions.", risk="none")
    call = ToolCall(id="1", name="ask_twice", arguments={"question": "What is 2 + 3?"})
    script = {"think": [Reply(text="I ask.", tool_calls=(call,)), "It is 5."], "reason": lambda _: "The answer is 5."}
    model = ScriptedModel(script)
    run = await react().run("What is 2 + 3?", model=model, tools=[tool])
    assert run.output == "It is 5."
    inner = router({"votes": self_consistency(2), "chat": direct_answer("small talk")})
    run, _ = await run_of(inner, {"sort": ["votes"], "reason": lambda _: "The answer is 5."})
    assert run.output == "5"

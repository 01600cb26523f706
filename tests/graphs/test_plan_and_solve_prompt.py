"""Plan-and-Solve prompting: two calls, an answer taken out of text, and a vote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, OfflineModel, Update, node
from orchestrator.models import ModelRequest, Reply
from orchestrator.nodes import Complete, Subgraph
from orchestrator.strategies.plan_and_solve_prompt import PS, PS_PLUS, graph, plan_and_solve_prompt
from orchestrator.testing import ScriptedModel, assert_crash_safe
from tests.support.one_node import error_of, executing
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio

QUESTION = "What is 20+(2*4)?"
NONE = '{"answer": null}'
NUMBER = plan_and_solve_prompt(form="number")
VOTES = plan_and_solve_prompt(form="number", votes=5, temperature=0.7)


async def answer(replies: Any, definition: Graph = graph) -> tuple[object, list[ModelRequest]]:
    with ScriptedModel(replies) as model:
        async with Executor(model=model) as executor:
            run = await executor.start(definition, QUESTION)
    assert run.status == "completed", run.error
    return run.output, model.requests


async def test_the_second_call_asks_for_the_answer_of_what_the_first_one_gave() -> None:
    found, (first, second) = await answer(["2 * 4 = 8, then 20 + 8 = 28", "28."])
    assert found == "28"
    assert first.messages[-1].content == PS_PLUS.format(question=QUESTION)
    assert second.messages[-1].content == (
        first.messages[-1].content + "\n2 * 4 = 8, then 20 + 8 = 28\nSo the answer is"
    )
    assert not first.tools
    assert not second.tools


async def test_the_second_call_is_left_out_where_the_answer_is_said() -> None:
    assert (await answer(["Plan. Work.\nThe answer is 28."]))[0] == "28"


@pytest.mark.parametrize(
    ("form", "replies", "expected"),
    [
        ("number", ["8, then 28", "It is $28.00, I think"], "28"),
        ("number", ["the answer is nice", "28 apples"], "28"),
        ("choice", ["hm", "(B)"], "B"),
        ("yes_no", ["The answer is: Yes, certainly"], "yes"),
    ],
)
async def test_answers_have_the_form_that_was_asked_for(form: Any, replies: list[str], expected: str) -> None:
    assert (await answer(replies, plan_and_solve_prompt(form=form)))[0] == expected


@pytest.mark.parametrize(
    ("form", "replies", "why"),
    [
        ("number", ["hm", "nobody knows", NONE], f"check: the reply {NONE!r} has no number"),
        ("choice", ["hm", "none", NONE], f"check: the reply {NONE!r} has no letter from A to E"),
        (
            "yes_no",
            ["hm", "perhaps", *["perhaps"] * 3],
            "restate: the reply has no JSON; write one JSON object with 'answer'",
        ),
        ("text", [Reply(text="I", finish="refusal")], "reason: the model refused to answer (refusal): 'I'"),
    ],
)
async def test_a_single_answer_that_is_none_fails_the_run(form: Any, replies: list[Any], why: str) -> None:
    async with executing(replies) as (executor, _):
        run = await executor.start(plan_and_solve_prompt(form=form), QUESTION)
    kind, message = error_of(run)
    assert (kind, message[: len(why)]) == ("AgentError", why)


@pytest.mark.parametrize(
    ("form", "concluded", "value", "expected"),
    [
        ("number", "28 coins (20 + 8)", 28, "28"),
        ("number", "Answer:\nx = 20 + 8\ny = 3", -2.5, "-2.5"),
        ("choice", "(B) or (E)", "B", "B"),
        ("yes_no", "yes and no", "no", "no"),
    ],
)
async def test_a_conclusion_that_cannot_be_read_is_asked_for_by_its_schema(
    form: Any, concluded: str, value: object, expected: str
) -> None:
    stated = json.dumps({"answer": value})
    found, requests = await answer(["hm", concluded, stated], plan_and_solve_prompt(form=form))
    assert found == expected
    assert requests[2].messages == requests[1].messages
    assert requests[2].output is not None


@pytest.mark.parametrize(
    ("form", "stated", "expected"),
    [
        ("number", ["28"], "28"),
        ("number", ["The answer is 28."], "28"),
        ("number", ['{"answer": "28"}'], "28"),
        ("number", ["28 coins (20 + 8)", "28"], "28"),
        ("number", [Reply(text='{"answer": 2', finish="length"), "", "28"], "28"),
        ("number", ['{"answer": "28", "question": "20"}'], "28"),
        ("choice", ["B"], "B"),
        ("choice", ['{"answer": "B or C"}', "(B)"], "B"),
        ("yes_no", ["yes"], "yes"),
        ("yes_no", ['{"answer": "Yes"}'], "yes"),
    ],
)
@pytest.mark.parametrize("votes", [1, 2])
async def test_an_answer_without_its_schema_is_read_or_corrected(
    form: Any, stated: list[Any], expected: str, votes: int
) -> None:
    replies = {"reason": ["hm"] * votes, "conclude": ["20 or 28, (A) or (B), yes and no"] * votes}
    strategy = plan_and_solve_prompt(form=form, votes=votes)
    async with executing({**replies, "restate": stated * votes}, concurrency=1) as (executor, _):
        run = await executor.start(strategy, QUESTION)
    assert (run.status, run.output) == ("completed", expected), run.error


async def test_what_is_cut_off_counts_up_to_its_last_whole_word() -> None:
    long = Reply(text="20 + 8 makes more. The answer is 2", finish="length")
    found, requests = await answer([long, Reply(text="28. Let me ex", finish="length")], NUMBER)
    assert found == "28"
    assert (
        requests[1].messages[-1].content.endswith("\n20 + 8 makes more. The answer is\nSo the answer, as a number, is")
    )
    found, _ = await answer([Reply(text="The answer is 28. And", finish="length")], NUMBER)
    assert found == "28"
    found, _ = await answer(["hm", Reply(text="Therefore", finish="length"), '{"answer": 28}'], NUMBER)
    assert found == "28"


REFUSED = Reply(text="I", finish="refusal")
CUT = Reply(text="It", finish="length")


@pytest.mark.parametrize(
    ("reasoned", "concluded", "answers"),
    [
        (["Hm.", "Hm.", "The answer is 7"], ["not possible.", "not possible."], ["", "", "7"]),
        (["The answer is 7", REFUSED, "Hm.", "Hm.", "The answer is 8"], ["7", CUT], ["7", "", "7", "", "8"]),
    ],
)
async def test_a_sample_without_an_answer_has_no_vote(
    reasoned: list[Any], concluded: list[Any], answers: list[str]
) -> None:
    replies = {"reason": reasoned, "conclude": concluded, "restate": lambda request: NONE}
    async with executing(replies, concurrency=1) as (executor, _):
        run = await executor.start(plan_and_solve_prompt(form="number", votes=len(reasoned)), QUESTION)
    assert (run.status, run.output) == ("completed", "7")
    assert sorted(run.values["answers"]) == sorted(answers)
    assert sum(map(bool, run.values["faults"])) == answers.count("")


async def test_votes_without_any_answer_fail_the_run_and_say_why() -> None:
    async with executing(lambda request: NONE if request.output else "not possible.") as (executor, _):
        run = await executor.start(plan_and_solve_prompt(form="number", votes=3), QUESTION)
    why = f"vote: none of 3 has an answer; check: the reply {NONE!r} has no number"
    assert error_of(run) == ("AgentError", why)


@pytest.mark.full
@quick_on("asyncio")
async def test_many_votes_are_not_stopped_by_the_limit_of_steps() -> None:
    definition = plan_and_solve_prompt(form="number", votes=210)

    def says(request: ModelRequest) -> str:
        concluding = "So the answer" in request.messages[-1].content
        return '{"answer": 28}' if request.output else "20 or 28" if concluding else "Hm."

    async with executing(says) as (ex, _):
        run = await ex.start(definition, QUESTION)
    assert (run.status, run.output) == ("completed", "28")
    assert run.steps == definition.limits.steps == 2 + 210 * 7


async def test_the_shorter_prompt() -> None:
    _, requests = await answer(["The answer is 28"], plan_and_solve_prompt(plus=False))
    assert requests[0].messages[-1].content == PS.format(question=QUESTION)
    assert len(PS) < len(PS_PLUS)


async def test_the_most_frequent_of_several_answers_counts(store: str) -> None:
    said = iter(["27", "28", "8", "28", "27", "28"])
    with ScriptedModel(lambda request: f"The answer is {next(said)}") as model:
        async with Executor(store, model=model, concurrency=1) as executor:
            run = await executor.start(plan_and_solve_prompt(votes=6), QUESTION)
    assert run.output == "28"
    assert sorted(run.values["answers"]) == ["27", "27", "28", "28", "28", "8"]
    assert len(model.requests) == 6


async def test_options_and_model_are_those_that_were_named() -> None:
    with ScriptedModel(["hm", "28"]) as named:
        async with Executor(model=OfflineModel(), models={"bright": named}) as executor:
            run = await executor.start(plan_and_solve_prompt(model="bright", temperature=0.7), QUESTION)
    assert run.output == "28"
    assert [request.options for request in named.requests] == [{"temperature": 0.7}] * 2


@pytest.mark.parametrize("definition", [graph, VOTES], ids=["one", "votes"])
async def test_offline_from_a_file_and_in_other_words_the_answer_is_the_same(definition: Graph, tmp_path: Path) -> None:
    definition.save(tmp_path / "graph.yaml")
    loaded = Graph.load(tmp_path / "graph.yaml")
    assert loaded == definition
    assert "make a plan" in (tmp_path / "graph.yaml").read_text()
    async with Executor(model=OfflineModel()) as executor:
        runs = [await executor.start(each, QUESTION) for each in (definition, loaded)]
    assert [run.output for run in runs] == ["28", "28"]
    assert runs[0].values == runs[1].values


async def test_offline_with_reworded_prompts() -> None:
    reworded = graph.replace(
        reason=Complete(prompt="Bitte: {question}", result="reasoning"),
        conclude=Complete(prompt="Und? {question} {reasoning}", result="answer"),
    )
    async with Executor(model=OfflineModel()) as executor:
        assert (await executor.start(reworded, QUESTION)).output == "28"


class Outer(BaseModel):
    ask: str
    told: str = ""


class Asking(BaseModel):
    question: str
    told: str = ""


@node
async def ask(state: Asking, ctx: Context[object]) -> Update:
    return {"told": str((await ctx.tool("reckon", question=state.question)).output)}


OUTSIDE = Graph(
    name="outside", state=Asking, input="question", nodes={"ask": ask}, edges="START -> ask -> END", output="told"
)


async def test_inside_another_graph_and_as_a_tool() -> None:
    outer = Graph(
        name="outer",
        state=Outer,
        input="ask",
        nodes={"inner": Subgraph(VOTES, inputs={"question": "ask"}, outputs={"told": "answer"})},
        edges="START -> inner -> END",
        output="told",
    )
    async with Executor(model=OfflineModel()) as executor:
        assert (await executor.start(outer, QUESTION)).output == "28"
    async with Executor(model=OfflineModel(), tools=[graph.as_tool("reckon", "Answers.")]) as executor:
        run = await executor.start(OUTSIDE, QUESTION)
    assert run.output == "28"


@pytest.mark.parametrize("definition", [graph, plan_and_solve_prompt(votes=2)], ids=["one", "votes"])
async def test_it_survives_a_crash_at_any_write(definition: Graph) -> None:
    await assert_crash_safe(definition, QUESTION, model=OfflineModel(), most=sized(2, 6))


def test_votes_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="votes must be at least 1"):
        plan_and_solve_prompt(votes=0)


def earlier(votes: int) -> Graph:
    """The strategy before it asked by schema for an answer that cannot be read."""
    alone = votes == 1
    new = plan_and_solve_prompt(form="number", votes=votes)
    one = new if alone else new.nodes["sample"].graph
    state: type[BaseModel] = EarlierState if alone else EarlierSample
    read = one.nodes["read"].with_(required=alone, fault=None if alone else "fault")
    asks = {name: one.nodes[name].with_(on_cut="raise") for name in ("reason", "conclude")}
    edges = "START -> reason -> look\nlook -> END : found\nlook -> conclude : missing\nconclude -> read -> END"
    if not alone:
        edges = edges.replace("reason -> look", "reason\nreason -> look : done\nreason -> END : unusable")
        edges = edges.replace("conclude -> read ->", "conclude -> read : done\nconclude -> END : unusable\nread ->")
    nodes = {**asks, "look": one.nodes["look"], "read": read}
    before = Graph(name=one.name, state=state, input="question", nodes=nodes, edges=edges, output="answer")
    return before if alone else new.replace(sample=new.nodes["sample"].with_(graph=before))


class EarlierState(BaseModel):
    """The state of one answer."""

    question: str
    reasoning: str = ""
    answer: str = ""


class EarlierSample(EarlierState):
    """The state of one of several."""

    conclusion: str = ""
    fault: str = ""


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("place", ["reason", "look", "conclude", "read"])
async def test_runs_of_the_earlier_version_go_on_at_every_place(tmp_path: Path, place: str, votes: int) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"

    def says(request: ModelRequest) -> str:
        concluding = "So the answer" in request.messages[-1].content
        return '{"answer": 28}' if request.output else "20 or 28" if concluding else "Hm."

    with ScriptedModel(says) as model:
        async with Executor(store, model=model) as executor:
            at = place if votes == 1 else f"sample/{place}"
            run = await executor.start(earlier(votes), QUESTION, run_id="r", pause_before={at})
            assert run.status == "paused"
        async with Executor(store, model=model, graphs=[plan_and_solve_prompt(form="number", votes=votes)]) as executor:
            run = await executor.resume("r", pause_before=set())
    assert (run.status, run.output) == ("completed", "28"), run.error

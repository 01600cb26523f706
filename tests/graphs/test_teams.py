"""What the strategies do in which agents work together, and the one that searches a tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Deny, Executor, Graph, Run, ToolCall, tool
from orchestrator.errors import GraphChanged
from orchestrator.models import ModelRequest
from orchestrator.nodes import Constrain, Select
from orchestrator.nodes.execute import NOT_HANDED_OVER
from orchestrator.nodes.respond import TOO_MANY
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.router import direct_answer, router
from orchestrator.strategies.supervisor import supervisor
from orchestrator.strategies.swarm import Member, swarm
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
from orchestrator.testing import ScriptedModel

pytestmark = pytest.mark.anyio
TEAM = {"a": direct_answer("does a"), "b": direct_answer("does b")}


@tool(risk="write", effect="idempotent")
def book(day: str) -> str:
    """Book a day."""
    return f"booked {day}"


def call(name: str, number: int = 1, **arguments: Any) -> ToolCall:
    return ToolCall(id=str(number), name=name, arguments=arguments)


async def run_of(graph: Graph, script: Any, question: str = "Why?") -> tuple[Run, ScriptedModel]:
    model = ScriptedModel(script)
    return await graph.run(question, model=model), model


# -- supervisor ----------------------------------------------------------------------------------------------------


async def test_an_agent_sees_its_task_alone_and_the_lead_its_report() -> None:
    script = {"lead": [[call("transfer_to_b", message="Do b.")], "done"], "answer": ["b is done"]}
    run, model = await run_of(supervisor(TEAM), script)
    assert run.output == "done"
    assert [message.content for message in model.requests[1].messages] == ["Do b."]
    assert model.requests[2].messages[-1].content == "Report of b:\nb is done"
    assert [one["function"]["name"] for one in model.requests[0].tools] == ["transfer_to_a", "transfer_to_b"]


async def test_without_a_message_the_task_is_the_question() -> None:
    _, model = await run_of(supervisor(TEAM), {"lead": [[call("transfer_to_a")], "done"], "answer": ["ok"]})
    assert model.requests[1].messages[-1].content == "Why?"


async def test_of_several_agents_the_first_one_works_and_the_lead_is_told_so() -> None:
    both = [call("transfer_to_b", 1, message="b!"), call("transfer_to_a", 2, message="a!")]
    run, model = await run_of(supervisor(TEAM), {"lead": [both, "done"], "answer": ["ok"]})
    assert run.status == "completed"
    assert [request.messages[-1].content for request in model.requests] == ["Why?", "b!", "Report of b:\nok"]
    assert [message.content for message in model.requests[-1].messages[-3:-1]] == [
        "Handed over to b. b!",
        f"Error: {NOT_HANDED_OVER}",
    ]


@pytest.mark.parametrize("first", [call("transfer_to_c", message="c!"), call("transfer_to_a", words="a!")])
async def test_after_a_call_that_cannot_be_made_the_next_agent_gets_its_own_task(first: ToolCall) -> None:
    both = [first, call("transfer_to_b", 2, message="b!")]
    run, model = await run_of(supervisor(TEAM), {"lead": [both, "done"], "answer": ["ok"]})
    assert run.status == "completed"
    assert [request.messages[-1].content for request in model.requests] == ["Why?", "b!", "Report of b:\nok"]


async def test_an_agent_that_does_not_exist_goes_back_to_the_lead() -> None:
    run, model = await run_of(supervisor(TEAM), {"lead": [[call("transfer_to_c")], "done"]})
    assert run.output == "done"
    assert "not an available tool" in model.requests[-1].messages[-1].content


async def test_a_lead_that_never_answers_is_bounded() -> None:
    numbers = iter(range(1, 99))
    again = lambda _: [call("transfer_to_a", next(numbers))]  # noqa: E731
    run, model = await run_of(supervisor(TEAM, max_steps=3), {"lead": again, "answer": lambda _: "ok"})
    assert (run.status, len(model.requests)) == ("exhausted", 6)


@pytest.mark.parametrize("place", ["hand_over", "assign"])
async def test_a_run_asks_before_it_goes_on_with_another_team(place: str, tmp_path: Path) -> None:
    model = ScriptedModel({"lead": [[call("transfer_to_a", message="a!")], "done"], "answer": ["ok"]})
    async with Executor(f"sqlite:///{tmp_path}/runs.db", model=model) as executor:
        run = await executor.start(supervisor(TEAM), "Why?", pause_before=[place])
    larger = supervisor({**TEAM, "c": direct_answer("does c")})
    async with Executor(f"sqlite:///{tmp_path}/runs.db", model=model, graphs=[larger]) as executor:
        with pytest.raises(GraphChanged, match="accept_changes=True"):
            await executor.resume(run.run_id)
        run = await executor.resume(run.run_id, accept_changes=True)
        assert run.output == "done"
    assert [message.role for message in model.requests[-1].messages].count("tool") == 1


# -- work that one reply asks for -------------------------------------------------------------------------------------


def parts(number: int) -> str:
    return json.dumps({"steps": [f"part {n}" for n in range(number)]})


@pytest.mark.parametrize("constrain", ["auto", "never"])
async def test_a_plan_of_too_many_parts_goes_back_and_starts_no_worker(constrain: Constrain) -> None:
    script = {"plan": [parts(800), parts(2)], "think": lambda _: "found", "combine": ["done"]}
    run, model = await run_of(orchestrator_workers(max_parts=3, constrain=constrain, tools=[book]), script)
    assert (run.output, len(model.requests)) == ("done", 5)
    assert "it has 800 steps: plan 3 at most" in model.requests[1].messages[-1].content
    output: Any = model.requests[0].output
    assert constrain == "never" or output["properties"]["steps"]["maxItems"] == 3


async def test_a_planner_that_insists_on_too_many_parts_ends_the_run() -> None:
    run, model = await run_of(orchestrator_workers(tools=[book]), {"plan": lambda _: parts(21)})
    assert (run.status, len(model.requests)) == ("failed", 2)
    assert "it has 21 steps: plan 20 at most" in str(run.error)


async def test_a_reply_of_too_many_calls_goes_back_and_starts_no_agent() -> None:
    agent = direct_answer().with_model("paid").as_tool("ask", "Ask an agent.")
    paid = ScriptedModel(lambda _: "found")
    asked = [[call("ask", number, question="?") for number in range(many)] for many in (800, 2)]
    model = ScriptedModel([*asked, "done"])
    run = await function_call_agent().run(
        "Why?", model=model, models={"paid": paid}, tools=[agent], approve="dangerous"
    )
    assert (run.output, len(paid.requests)) == ("done", 2)
    assert [one.content for one in model.requests[1].messages[-800:]] == [f"Error: {TOO_MANY}"] * 800


# -- swarm ---------------------------------------------------------------------------------------------------------

CREW = {
    "sales": Member("questions before buying", "You sell bicycles."),
    "repair": Member("defects", "You repair bicycles.", (book,)),
}


async def test_whoever_has_the_conversation_goes_on_with_all_of_it() -> None:
    script = {
        "sales": [[call("transfer_to_repair", message="A flat tyre.")]],
        "repair": [[call("book", 2, day="Monday")], "Come on Monday."],
    }
    model = ScriptedModel(script)
    run = await swarm(CREW).run("My tyre is flat.", model=model, approve="write")
    assert run.output == "Come on Monday."
    last = model.requests[-1].messages
    assert last[0].content.startswith("You are repair, one of several agents")
    assert [message.role for message in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    offered = [[one["function"]["name"] for one in request.tools] for request in model.requests]
    assert offered == [["transfer_to_repair"], ["book", "transfer_to_sales"], ["book", "transfer_to_sales"]]


async def test_of_two_members_only_the_first_gets_the_conversation_and_is_told_so() -> None:
    crew = {name: Member(name) for name in ("one", "two", "three")}
    both = [call("transfer_to_two", 1, message="2!"), call("transfer_to_three", 2, message="3!")]
    _, model = await run_of(swarm(crew), {"one": [both], "two": ["ok"]})
    results = [message.content for message in model.requests[-1].messages[-2:]]
    assert results == ["Handed over to two. 2!", f"Error: {NOT_HANDED_OVER}"]


async def test_a_risky_call_waits_for_a_person_and_a_denial_is_told() -> None:
    model = ScriptedModel({"repair": [[call("book", 2, day="Monday")], "Then not."]})
    async with Executor(model=model) as executor:
        run = await executor.start(swarm(CREW, first="repair"), "My tyre is flat.")
        assert run.waiting[0].payload["tool"] == "book"
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="closed"))
    assert run.output == "Then not."
    assert "denied this call: closed" in model.requests[-1].messages[-1].content


async def test_members_that_hand_over_in_a_circle_are_bounded() -> None:
    numbers = iter(range(1, 99))
    script = {
        "sales": lambda _: [call("transfer_to_repair", next(numbers))],
        "repair": lambda _: [call("transfer_to_sales", next(numbers))],
    }
    run, model = await run_of(swarm(CREW, max_steps=4), script)
    assert (run.status, len(model.requests)) == ("exhausted", 8)


async def test_another_member_reads_on_in_a_long_result() -> None:
    text = "".join(f"line {n}\n" for n in range(3_000))

    @tool(risk="none")
    def manual() -> str:
        """Return the manual."""
        return text

    crew = {**CREW, "repair": Member("defects", tools=(manual,))}

    def sells(request: ModelRequest) -> Any:
        last = request.messages[-1].content
        found = re.search(r'read_result\(id="(\w+)"\)', "".join(one.content for one in request.messages))
        read = call("read_result", 3, id=found and found[1], offset=20_000)
        return last if last.startswith("[Characters") else [read]

    script = {"repair": [[call("manual")], [call("transfer_to_sales", 2)]], "sales": sells}
    run, _ = await run_of(swarm(crew, first="repair"), script)
    assert run.output.partition("\n")[2] == text[20_000:24_000].strip()


async def test_a_tool_that_ends_the_work_gives_the_answer() -> None:
    crew = {**CREW, "repair": Member("defects", tools=(book.with_(ends=True),))}
    run = await swarm(crew, first="repair").run(
        "My tyre is flat.", model=ScriptedModel([[call("book", day="Monday")]]), approve="write"
    )
    assert (run.status, run.output) == ("completed", "booked Monday")


def test_a_swarm_needs_two_members_and_a_first_one() -> None:
    for members, first, words in (({"a": Member("x")}, None, "at least two"), (CREW, "nobody", "first='nobody'")):
        with pytest.raises(ValueError, match=words):
            swarm(members, first=first)


def test_agents_that_are_none_are_refused_by_name() -> None:
    names: Any = ["a", "b"]
    for strategy in (router, supervisor, swarm):
        with pytest.raises(ValueError, match="give the agents with their names"):
            strategy(names)
    with pytest.raises(ValueError, match=r"member 'b' is 'writes': give a Member\(description\)"):
        swarm({"a": Member("x"), "b": "writes"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="tree_of_thoughts: beam='2': give a whole number"):
        tree_of_thoughts(beam="2")  # type: ignore[arg-type]


def test_an_agent_cannot_have_the_name_of_a_node_of_the_strategy() -> None:
    agent = direct_answer("x")
    for make in (
        lambda: router({"sort": agent, "b": agent}),
        lambda: supervisor({"lead": agent}),
        lambda: supervisor({"compact": agent}),
        lambda: swarm({"a": Member("x"), "a_read": Member("y")}),
        lambda: swarm({"a": Member("x"), "ended": Member("y")}),
    ):
        with pytest.raises(ValueError, match="is the name of a node of the graph: rename that agent"):
            make()


# -- tree_of_thoughts ----------------------------------------------------------------------------------------------


async def test_the_best_thoughts_of_each_level_go_on() -> None:
    def propose(request: Any) -> str:
        before = request.messages[-1].content.partition("by step:\n")[2].partition("\n\nGive")[0]
        last = before.splitlines()[-1].strip()
        return json.dumps({"thoughts": [f"{'' if last == '(nothing yet)' else last}{one}" for one in "abc"]})

    def rate(request: Any) -> str:
        return str({"a": 2, "b": 9, "c": 5}[request.messages[-1].content.strip()[-1]])

    script = {"propose": propose, "rate": rate, "answer": lambda request: request.messages[-1].content}
    run, model = await run_of(tree_of_thoughts(2, branches=3, beam=2), script)
    assert run.values["selected"] == ["b\nbb", "c\ncb"]
    assert "best ones:\nb\nbb\n" in str(run.output)
    assert len(model.requests) == (1 + 3) + (2 + 6) + 1


async def test_equal_thoughts_are_rated_once_and_a_thought_without_a_step_ends() -> None:
    said = iter(['{"thoughts": ["x", " x ", ""]}', "no JSON", "none", '{"thoughts": ["y"]}'])
    script = {"propose": lambda _: next(said), "rate": lambda _: "7", "answer": lambda _: "done"}
    run, model = await run_of(tree_of_thoughts(3, branches=3, beam=2), script)
    assert (run.output, run.values["selected"], run.values["level"]) == ("done", ["x"], 2)
    assert len(model.requests) == 5


async def test_a_selection_keeps_the_best_and_counts_its_rounds() -> None:
    candidates = [
        {"text": "a", "score": 1},
        {"text": "b", "score": 3},
        {"text": "c", "score": 3},
        {"text": "a", "score": 4},
    ]
    graph = Graph(
        name="g",
        state=Select.State,
        nodes={"it": Select(best=2, rounds=2)},
        edges="START -> it\nit -> END : more\nit -> END : done",
    )
    async with Executor() as executor:
        for level, outcome in ((0, "more"), (1, "done")):
            run = await executor.start(graph, {"candidates": candidates, "level": level})
            assert (run.values["selected"], run.values["candidates"]) == (["a", "b"], [])
            assert (await executor.history(run.run_id))[-1].outcome == outcome
        run = await executor.start(graph, {"selected": ["kept"]})
        assert run.values["selected"] == ["kept"]
        run = await executor.start(graph, {"candidates": [{"text": "a"}]})
        assert "needs a text and a score" in str(run.error)

"""A tool that ends the work (`ends=True`) ends all of it, in every strategy and in graphs made of the same nodes."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import Executor, Graph, Run, ToolCall, tool
from orchestrator.errors import ToolError
from orchestrator.models import Reply
from orchestrator.nodes import ITEM, ChooseArgs, ChooseTool, Execute, Observe, Respond, Subgraph, Think
from orchestrator.nodes.planned_calls import WORK_ENDED
from orchestrator.strategies.chat import chat
from orchestrator.strategies.function_call import function_call, one_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.react import react
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref

pytestmark = pytest.mark.anyio

(TERMINATE,) = tools_from_ref("terminate")
made: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    made.clear()


@tool(risk="none", effect="pure")
def look(what: str) -> str:
    """Look something up."""
    made.append(what)
    return f"{what}: seen"


@tool(risk="none", effect="pure", ends=True)
def hand_in(text: str) -> str:
    """Hand in the answer."""
    if text == "nothing":
        raise ToolError("hand in something")
    return text


TOOLS = (look, hand_in, TERMINATE)


def calls(*wanted: tuple[str, dict[str, Any]]) -> Reply:
    made = tuple(ToolCall(id=str(number), name=name, arguments=args) for number, (name, args) in enumerate(wanted))
    return Reply(text="Let me see.", tool_calls=made)


async def go(graph: Graph, replies: Any, question: str = "Why?") -> Run:
    with ScriptedModel(replies) as model:  # fails if a model is asked more than this, or less
        async with Executor(model=model, tools=TOOLS) as executor:
            return await executor.start(graph, question)


@pytest.mark.parametrize("strategy", [react(), function_call_agent(), chat()], ids=lambda graph: graph.name)
async def test_the_whole_run_of_an_agent_in_rounds(strategy: Graph) -> None:
    found = await go(strategy, [calls(("look", {"what": "a"})), calls(("terminate", {"message": "that is all"}))])
    assert (found.status, found.output) == ("completed", "that is all")


@pytest.mark.parametrize("strategy", [react, function_call_agent])
async def test_nodes_with_tools_of_their_own_need_not_give_them_to_observe(strategy: Any) -> None:
    own = strategy()
    call = own.nodes["act"].with_(tools=[look, hand_in])
    own = own.replace(think=own.nodes["think"].with_(tools=[look, hand_in]), act=call)
    with ScriptedModel([calls(("hand_in", {"text": "42"}))]) as model:
        async with Executor(model=model) as executor:
            found = await executor.start(own, "Why?")
    assert (found.status, found.output) == ("completed", "42")


async def test_all_calls_of_the_reply_are_made_and_the_last_one_that_ends_gives_the_answer() -> None:
    round_ = calls(("hand_in", {"text": "one"}), ("look", {"what": "b"}), ("hand_in", {"text": "two"}))
    found = await go(react(), [round_])
    assert (found.output, made) == ("two", ["b"])
    assert len([message for message in found.values["messages"] if message["role"] == "tool"]) == 3


async def test_one_that_fails_ends_nothing() -> None:
    found = await go(react(), [calls(("hand_in", {"text": "nothing"})), Reply(text="I know it: 7")])
    assert (found.status, found.output) == ("completed", "I know it: 7")


async def test_function_call_is_one_round_either_way() -> None:
    found = await go(function_call(), [calls(("hand_in", {"text": "42"}))])
    assert (found.status, found.output[2][0]["content"]) == ("completed", "42")


async def test_tool_user_does_not_think_on() -> None:
    script = {"choose_tool": ["hand_in"], "choose_args": ['{"text": "42"}']}
    graph = tool_user()
    with ScriptedModel(script) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            found = await executor.start(graph, "Why?", approve="dangerous")
    assert (found.status, found.output, found.values["exit_code"]) == ("completed", "42", 0)
    assert found.values["step_history"][0]["ended"] is True


async def test_rewoo_carries_out_what_does_not_come_after_it_and_answers_with_it() -> None:
    plan = """\
Plan: look
#E1 = look[a]
Plan: that is it
#E2 = hand_in[found #E1]
Plan: too late
#E3 = look[b #E2]
Plan: much too late
#E4 = look[c #E3]
Plan: beside it
#E5 = look[d]"""
    found = await go(rewoo(), {"plan": [plan]})
    assert (found.status, found.output) == ("completed", "found a: seen")
    assert sorted(made) == ["a", "d"]
    late = [found.values["evidence"][name]["tool_output"] for name in ("E3", "E4")]
    assert late == [WORK_ENDED, WORK_ENDED]


async def test_plan_and_solve_works_on_no_further_step() -> None:
    plan = "Plan:\n1. Look.\n2. Hand it in.\n3. Look again.\n<END_OF_PLAN>"
    script = {
        "plan": [plan],
        "think": [calls(("look", {"what": "a"})), "It is a.", calls(("hand_in", {"text": "42"}))],
    }
    found = await go(plan_and_solve(), script)
    assert (found.status, found.output, found.values["results"]) == ("completed", "42", ["It is a.", "42"])
    assert made == ["a"]


async def test_a_loop_of_respond_and_execute_without_an_edge_for_it() -> None:
    class Talk(Respond.State):
        pass

    graph = Graph(
        name="loop",
        state=Talk,
        input="question",
        output="answer",
        nodes={
            "respond": Respond(question="question"),
            "execute": Execute(calls="pending", results="messages", on_failure="observe", tools=("look", "hand_in")),
        },
        edges="START -> respond\nrespond -> END : answer\nrespond -> execute : calls\nexecute -> respond",
    )
    found = await go(graph, [calls(("look", {"what": "a"})), calls(("hand_in", {"text": "42"}))])
    assert (found.status, found.output) == ("completed", "42")

    # What was said before is over: another question is asked, and not answered with what ended the last one.
    earlier = {"question": "And then?", "messages": found.values["messages"]}
    graph = graph.model_copy(update={"input": ("question", "messages")})
    with ScriptedModel(["43"]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            assert (await executor.start(graph, earlier)).output == "43"


async def test_a_loop_of_choose_execute_and_think_without_an_edge_for_it() -> None:
    class Inquiry(ChooseArgs.State, Think.State):
        pass

    graph = Graph(
        name="inquiry",
        state=Inquiry,
        input="question",
        output="answer",
        nodes={
            "choose_tool": ChooseTool(),
            "choose_args": ChooseArgs(),
            "execute": Execute(steps="step_history", question="question", result=None),
            "think": Think(),
        },
        edges="""
            START -> choose_tool -> choose_args -> execute -> think
            think -> END : answer
            think -> choose_tool : question
        """,
    )
    script = {
        "choose_tool": ["look", "hand_in"], "choose_args": ['{"what": "a"}', '{"text": "42"}'],
        "think": ["Question: what now?"],
    }  # fmt: skip
    assert (await go(graph, script)).output == "42"


async def test_a_round_of_calls_that_meet_at_observe_without_tools() -> None:
    class Rounds(Respond.State, Observe.State):
        pass

    graph = Graph(
        name="rounds",
        state=Rounds,
        input="question",
        output="answer",
        nodes={
            "respond": Respond(question="question"),
            "call": Subgraph(one_call(None), inputs={"call": ITEM}, outputs={"messages": "message"}, tools=[hand_in]),
            "observe": Observe(join="all", tools=()),
        },
        edges="""
            START -> respond
            respond -> END : answer
            respond -> call : calls each pending
            call -> observe
            observe -> respond : more
            observe -> END : finished
        """,
    )
    assert (await go(graph, [calls(("hand_in", {"text": "42"}))])).output == "42"

"""What FunctionCall and FunctionCallAgent promise (S42, S45 to S59)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Approve, Deny, Executor, Graph, OfflineModel, OpenAIModel, Run, ToolCall, append, tool
from orchestrator.errors import ToolError
from orchestrator.models import Reply
from orchestrator.nodes import ITEM, Subgraph
from orchestrator.strategies.function_call import function_call, one_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel, assert_crash_safe
from orchestrator.tools import tools_from_ref
from tests.support.wire import called, said, served

pytestmark = pytest.mark.anyio

QUERY = "What's the weather like today in celsius in Tokyo and Paris."


@tool(risk="read", effect="read")
def get_current_weather(location: str, unit: Literal["fahrenheit", "celsius"] = "fahrenheit") -> str:
    """Get the current weather in a given location.

    Args:
        location: The city and state.
        unit: The temperature unit.
    """
    degrees = {"tokyo": "10", "paris": "22"}[location.lower()]
    return json.dumps({"location": location, "temperature": degrees, "unit": unit})


@tool(risk="read", effect="read")
def listed() -> list[int]:
    """List numbers."""
    return [1, 2]


@tool(risk="write")
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return f"paid {amount}"


@tool(risk="none", effect="pure")
def broken() -> str:
    """Break."""
    raise ToolError("out of order")


@tool(risk="none", effect="pure", ends=True)
def hand_in(text: str) -> str:
    """Hand in the answer."""
    return text


paid: list[int] = []
TOOLS = (get_current_weather, listed, pay, broken, hand_in)


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def weather(number: int, city: str) -> ToolCall:
    args: dict[str, Any] = {"location": city, "unit": "celsius"}
    return ToolCall(id=f"get_current_weather:{number}", name="get_current_weather", arguments=args)


def call(name: str, number: int = 0, **args: Any) -> ToolCall:
    return ToolCall(id=f"{name}:{number}", name=name, arguments=args)


BOTH = [weather(0, "Tokyo"), weather(1, "Paris")]


async def run(graph: Graph, replies: Any, question: str = QUERY, store: str = "memory://", **options: Any) -> Run:
    with ScriptedModel(replies) as model:
        async with Executor(store, model=model, tools=TOOLS) as executor:
            return await executor.start(graph, question, **options)


# -- one round -----------------------------------------------------------------------------------------------------


async def test_s45_without_a_call_the_output_is_a_text() -> None:
    found = await run(function_call(), ["It is 10 and 22."])
    assert (found.status, found.output) == ("completed", "It is 10 and 22.")


async def test_s46_to_s54_with_calls_it_is_the_list_of_input_message_and_results() -> None:
    found = await run(function_call(), [Reply(text="I ask.", tool_calls=tuple(BOTH))])
    calls = [
        {
            "id": f"get_current_weather:{n}",
            "type": "function",
            "function": {"name": "get_current_weather", "arguments": {"location": city, "unit": "celsius"}},
        }
        for n, city in enumerate(("Tokyo", "Paris"))
    ]
    results = [
        {
            "role": "tool",
            "content": json.dumps({"location": city, "temperature": degrees, "unit": "celsius"}),
            "tool_call_id": f"get_current_weather:{n}",
            "name": "get_current_weather",
        }
        for n, (city, degrees) in enumerate((("Tokyo", "10"), ("Paris", "22")))
    ]
    assert found.output == [QUERY, {"role": "assistant", "content": "I ask.", "tool_calls": calls}, results]


async def test_s49_results_are_texts_and_failures_too() -> None:
    unread = ToolCall(id="x", name="listed", arguments=None, raw="{oops")
    found = await run(function_call(), [[call("listed"), call("broken"), call("nobody"), unread]])
    _, said, results = found.output
    assert [one["content"] for one in results[:2]] == ["[1, 2]", "Error: out of order"]
    assert "'nobody' is not an available tool" in results[2]["content"]
    assert "not a JSON object" in results[3]["content"]
    assert said["tool_calls"][3]["function"]["arguments"] == "{oops"


TEXT = 'I look.<|action_start|><|plugin|>\n{"name": "get_current_weather", "parameters": {"location": "Tokyo"}}'


async def test_s50_to_s53_a_model_of_text_gives_the_same_shape_with_an_id_of_its_own() -> None:
    found = await run(function_call(protocol="plugin"), [TEXT + "<|action_end|><|im_end|>"])
    question, said, (result,) = found.output
    (made,) = said["tool_calls"]
    assert (question, said["content"], len(made["id"])) == (QUERY, "I look.", 32)
    assert made["function"] == {"name": "get_current_weather", "arguments": {"location": "Tokyo"}}
    assert (result["tool_call_id"], json.loads(result["content"])["unit"]) == (made["id"], "fahrenheit")


async def test_s54_calls_of_a_server_are_made_and_their_results_sent_back_in_order() -> None:
    made = [
        {"index": n, "id": f"w:{n}", "type": "function", "function": {"name": "get_current_weather", "arguments": args}}
        for n, args in enumerate(('{\n "location": "Tokyo",\n "unit": "celsius"}', '{"location": 7}'))
    ]
    with served(called(*made), said("10 degrees.")) as server:
        model = OpenAIModel("m", server.url, "key")
        async with Executor(model=model, tools=TOOLS) as executor:
            found = await executor.start(function_call_agent(system="Be brief."), QUERY)
        await model.aclose()
    assert (found.status, found.output) == ("completed", "10 degrees.")
    first, second = (seen.body["messages"] for seen in server.seen)
    assert [message["role"] for message in first] == ["system", "user"]
    assert second[:2] == first
    assert [one["id"] for one in second[2]["tool_calls"]] == ["w:0", "w:1"]
    assert [(one["role"], one["tool_call_id"]) for one in second[3:]] == [("tool", "w:0"), ("tool", "w:1")]
    assert json.loads(second[3]["content"])["temperature"] == "10"
    assert second[4]["content"].startswith("Error: ")


async def test_calls_are_confirmed_one_by_one_and_edited_ones_told(store: str) -> None:
    replies = [[call("pay", 1, amount=1), call("listed"), call("pay", 2, amount=2), call("pay", 3, amount=3)]]
    with ScriptedModel(replies) as model:
        async with Executor(store, model=model, tools=TOOLS) as executor:
            found = await executor.start(function_call(), "Pay!")
            assert (found.status, paid) == ("paused", [])
            waiting = {question.payload["call_id"]: question for question in found.waiting}
            assert sorted(waiting) == ["pay:1", "pay:2", "pay:3"]
            await executor.answer(found.run_id, waiting["pay:3"].id, Approve(args={"amount": 30}))
            await executor.answer(found.run_id, waiting["pay:1"].id, Deny(reason="too early"))
            found = await executor.answer(found.run_id, waiting["pay:2"].id, Approve())
    assert [one["content"] for one in found.output[2]] == [
        "Error: the user denied this call: too early",
        "[1, 2]",
        "paid 2",
        'The user changed the arguments of this call: {"amount":30}\npaid 30',
    ]
    assert sorted(paid) == [2, 30]


async def test_faults_and_denials_may_end_the_run() -> None:
    found = await run(function_call(on_error="raise"), [[call("nobody")]])
    assert found.error is not None
    assert (found.status, found.error.type) == ("failed", "AgentError")
    with ScriptedModel([[call("pay", amount=1)]]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            found = await executor.start(function_call(on_denied="raise"), "Pay!")
            found = await executor.answer(found.run_id, found.waiting[0].id, Deny())
    assert found.error is not None
    assert (found.error.type, paid) == ("UserDenied", [])


@pytest.mark.parametrize(
    ("confirm", "approve", "asked"),
    [("write", None, True), ("write", "write", False), ("dangerous", None, False), (None, None, False)],
)
async def test_what_is_asked_about_is_a_matter_of_risk(confirm: Any, approve: str | None, asked: bool) -> None:
    found = await run(function_call(confirm=confirm), [[call("pay", amount=1)]], approve=approve)
    assert (found.status == "paused", paid) == (asked, [] if asked else [1])


# -- rounds --------------------------------------------------------------------------------------------------------


async def test_s57_it_goes_on_until_there_is_a_text() -> None:
    replies = [[weather(0, "Tokyo")], [weather(0, "Paris")], "10 and 22 degrees."]
    found = await run(function_call_agent(), replies)
    assert (found.status, found.output) == ("completed", "10 and 22 degrees.")
    roles = [message["role"] for message in found.values["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("rounds", [1, 5])
async def test_s58_after_so_many_rounds_it_fails_in_these_words(rounds: int) -> None:
    found = await run(function_call_agent(max_steps=rounds), [[call("listed", n)] for n in range(rounds)])
    assert found.error is not None
    assert (found.status, found.error.type) == ("failed", "ValueError")
    assert found.error.message == (
        f"After retrying {rounds} times, the function call agent still failed to call successfully."
    )
    assert len([message for message in found.values["messages"] if message["role"] == "tool"]) == rounds
    with pytest.raises(ValueError, match="at least 1"):
        function_call_agent(max_steps=0)


async def test_what_went_wrong_is_told_to_the_model() -> None:
    wrong = call("get_current_weather", 0, location="Tokyo", unit="kelvin")
    with ScriptedModel([[wrong], [call("broken")], "No."]) as model:
        async with Executor(model=model, tools=TOOLS) as executor:
            assert (await executor.start(function_call_agent(), QUERY)).output == "No."
    assert "'unit' must be one of" in model.requests[1].messages[-1].content
    assert model.requests[2].messages[-1].content == "Error: out of order"


async def test_a_tool_that_ends_the_work_gives_the_answer() -> None:
    found = await run(function_call_agent(), [[call("listed"), call("hand_in", text="done")]])
    assert (found.status, found.output) == ("completed", "done")


# -- data, offline, inside of others -------------------------------------------------------------------------------

ARITHMETIC = tools_from_ref("arithmetic")
SUM = "What is (20+1)*(2*4)?"


@pytest.mark.parametrize("graph", [function_call(), function_call_agent(), one_call("read", "raise"), one_call(None)])
def test_it_is_data_and_holds_what_it_claims(graph: Graph, tmp_path: Path) -> None:
    graph.save(tmp_path / "graph.yaml")
    loaded = Graph.load(tmp_path / "graph.yaml")
    assert (loaded, loaded.content) == (graph, graph.content)
    unproven = [proof.claim for proof in graph.check(prove=True).proofs if not proof.holds]
    unguarded = graph.name == "one_call" and "confirm" not in graph.nodes
    assert unproven == (["every path to execute passes a confirmation"] if unguarded else [])


def reworded(graph: Graph) -> Graph:
    think = graph.nodes["think"]
    return graph.replace(think=think.with_(system="Tu, was du kannst.", prompt="Hier: {question} Und nun?"))


@pytest.mark.parametrize("parallel", [None, True])
async def test_offline_it_works_out_sums_however_it_is_worded(parallel: bool | None, tmp_path: Path) -> None:
    agent = function_call_agent(parallel_tool_calls=parallel)
    agent.save(tmp_path / "agent.yaml")
    async with Executor(model=OfflineModel(), tools=ARITHMETIC) as executor:
        for graph in (agent, reworded(agent), Graph.load(tmp_path / "agent.yaml")):
            found = await executor.start(graph, SUM)
            assert (found.status, found.output) == ("completed", "168")
            assert found.values["rounds"] == (2 if parallel else 3)
        one = await executor.start(function_call(parallel_tool_calls=parallel), SUM)
    assert [result["content"] for result in one.output[2]] == (["21", "8"] if parallel else ["21"])


class Sums(BaseModel):
    sums: list[str] = ["What is 2*3?", "What is 4+5?"]
    results: Annotated[list[str], append] = []


async def test_it_runs_in_another_graph_and_as_a_tool() -> None:
    agent = function_call_agent()
    outer = Graph(
        name="outer",
        state=Sums,
        nodes={"agent": Subgraph(agent, inputs={"question": ITEM}, outputs={"results": "answer"})},
        edges="START -> agent : each sums\nagent -> END",
        output="results",
    )
    async with Executor(model=OfflineModel(), tools=ARITHMETIC) as executor:
        assert (await executor.start(outer, {})).output == ["6", "9"]
    as_tool = agent.as_tool("calculator", "Answers questions about numbers.")
    assert as_tool.parameters["required"] == ["question"]
    replies = {"think": [[call("calculator", question="2*4")], [call("multiply", a=2, b=4)], "8", "It is 8."]}
    with ScriptedModel(replies) as model:
        async with Executor(model=model, tools=[as_tool, *ARITHMETIC]) as executor:
            found = await executor.start(agent, "Ask the calculator.", approve="dangerous")
    assert (found.status, found.output) == ("completed", "It is 8.")


@pytest.mark.parametrize("graph", [function_call(), function_call_agent(max_steps=400), react(max_steps=400)])
def test_no_bound_is_hidden(graph: Graph) -> None:
    assert graph.limits.steps is None or graph.limits.steps >= 400 * 10_000


async def test_limits_of_the_user_end_it_as_exhausted() -> None:
    agent = function_call_agent()
    async with Executor(model=OfflineModel(), tools=ARITHMETIC) as executor:
        found = await executor.start(agent.with_limits(steps=8), SUM)
    assert (found.status, found.output) == ("exhausted", "")


def in_words() -> dict[str, Any]:
    return {"model": ScriptedModel([TEXT + "<|action_end|>"]), "tools": TOOLS}


def offline() -> dict[str, Any]:
    return {"model": OfflineModel(), "tools": ARITHMETIC}


CRASHES = [(function_call(protocol="plugin"), in_words), (function_call_agent(parallel_tool_calls=True), offline)]


@pytest.mark.parametrize(("graph", "setup"), CRASHES)
async def test_it_survives_crashes(graph: Graph, setup: Any) -> None:
    await assert_crash_safe(graph, SUM, setup=setup, most=2)


@pytest.mark.storm
@pytest.mark.parametrize(("graph", "setup"), CRASHES)
async def test_it_survives_crashes_at_every_write(graph: Graph, setup: Any) -> None:
    await assert_crash_safe(graph, SUM, setup=setup, store="sqlite")


@pytest.mark.parametrize(("last", "output"), [("It is 10.", "It is 10."), ([call("listed")], "")])
async def test_the_agent_gives_a_last_answer_when_its_seconds_are_spent(last: Any, output: str) -> None:
    @tool(risk="none", effect="pure")
    async def hang() -> None:
        """Hang."""
        await anyio.sleep_forever()

    model = ScriptedModel({"think": [[call("hang")]], "conclude": [last]})
    async with Executor(model=model, tools=[hang]) as executor:
        found = await executor.start(function_call_agent(max_seconds=0.3, last_answer=True), QUERY)
    assert (found.status, found.output) == ("exhausted", output)
    assert model.requests[-1].tools == ()

"""The contract of models, and of what a node's context gives."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from orchestrator import (
    Context,
    Executor,
    Graph,
    Message,
    OfflineModel,
    OpenAIModel,
    Retry,
    Toolbox,
    ToolCall,
    Update,
    append,
    node,
    tool,
)
from orchestrator.errors import AgentError, ModelError, ModelUnavailable
from orchestrator.graph import LimitsLeft, Usage
from orchestrator.models import Model, ModelEvent, Reply, RequestModel, assistant, system, tool_result, user
from orchestrator.nodes import ChooseArgs, ChooseTool, Think
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.support.wire import called, refused, said, served

pytestmark = pytest.mark.anyio


class Answer(BaseModel):
    value: int


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def models() -> Mapping[str, Model]:
    return {
        "scripted": ScriptedModel(lambda request: '{"value": 7}'),
        "offline": OfflineModel(),
        "own": Own(),
    }


class Own(RequestModel):
    """A model of one's own."""

    name = "own"

    async def respond(self, request: Any) -> Reply:
        return Reply(text='{"value": 7}', usage=Usage(input_tokens=1, output_tokens=2))


# -- the protocol ---------------------------------------------------------------------------------------------------


def test_the_protocol() -> None:
    parameters = list(inspect.signature(Model.complete).parameters)
    assert parameters[1:4] == ["messages", "tools", "output"]
    assert list(Reply.model_fields)[:6] == ["text", "tool_calls", "parsed", "usage", "finish", "extras"]
    for model in (*models().values(), OpenAIModel("m", "http://127.0.0.1:1/v1")):
        assert isinstance(model, Model)
        assert isinstance(model.name, str)


def test_messages_calls_replies_and_usage_are_frozen_and_keep_extras() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 1}, extras={"index": 0})
    message = Message(role="assistant", content="", tool_calls=(call,), extras={"reasoning_content": "hm"})
    reply = Reply(text="x", extras={"reasoning_content": "hm"})
    assert reply.message.extras == {"reasoning_content": "hm"}
    for frozen, field in ((call, "name"), (message, "content"), (reply, "text"), (Usage(), "calls")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(frozen, field, "y")
        assert type(frozen).model_validate_json(frozen.model_dump_json()) == frozen


@pytest.mark.parametrize("name", ["scripted", "own"])
@pytest.mark.parametrize("messages", ["2+5?", [system("You add."), user("2+5?")], (user("2+5?"),)])
async def test_complete_takes_a_text_or_messages_tools_and_an_output(name: str, messages: Any) -> None:
    model = models()[name]
    reply = await model.complete(messages)
    assert isinstance(reply, Reply)
    assert reply.parsed is None
    assert (await model.complete(messages, [add], Answer)).parsed == Answer(value=7)
    assert (await model.complete(messages, Toolbox(add), output=Answer.model_json_schema())).parsed == {"value": 7}
    assert (await model.complete(messages, [add.to_param()], temperature=0)).text == '{"value": 7}'
    with pytest.raises(AgentError, match="is not a valid list"):
        await model.complete(messages, output=list[int])
    events = [event async for event in model.stream(messages)]
    assert all(isinstance(event, ModelEvent) for event in events)
    assert events[-1].reply == reply


# -- OpenAI ---------------------------------------------------------------------------------------------------------


async def test_openai_speaks_chat_completions_and_keeps_extras() -> None:
    first = {
        "role": "assistant", "content": None, "reasoning_content": "I should add.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}],
    }  # fmt: skip
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    with served(said(first, usage=usage), said("3")) as wire:
        async with OpenAIModel("m", base_url=wire.url, api_key="sk-1", temperature=0) as model:
            question = [system("Add."), user("1+2?", data={"secret": "facts"})]
            reply = await model.complete(question, tools=[add])
            (call,) = reply.tool_calls
            assert (call.id, call.name, call.arguments) == ("c1", "add", {"a": 1, "b": 2})
            assert reply.extras == {"reasoning_content": "I should add."}
            assert (reply.usage, reply.finish) == (Usage(input_tokens=11, output_tokens=3), "tool_calls")
            last = await model.complete([*question, reply.message, tool_result(call, "3")], tools=[add])
        assert last.text == "3"
        one, two = wire.seen
        assert one.path == "/v1/chat/completions"
        assert one.headers["authorization"] == "Bearer sk-1"
        assert one.body["tools"] == [add.to_param()]
        assert (one.body["model"], one.body["temperature"]) == ("m", 0)
        assert "secret" not in json.dumps(one.body)
        assert two.body["messages"][2]["reasoning_content"] == "I should add."
        assert two.body["messages"][3] == {"role": "tool", "content": "3", "tool_call_id": "c1"}


class State(BaseModel):
    log: Annotated[list[JsonValue], append] = []


def asking(**options: Any) -> Graph:
    @node(**options)
    async def ask(ctx: Context) -> Update:
        return {"log": (await ctx.model.complete("?")).text}

    return Graph(name="g", state=State, nodes={"ask": ask}, edges="START -> ask -> END", output="log")


async def test_retries_belong_to_the_executor_and_are_journaled() -> None:
    with served(refused(503, "busy"), said("late")) as wire:
        async with OpenAIModel("m", wire.url, "sk-1") as model, Executor(model=model) as ex:
            run = await ex.start(asking(retry=Retry(attempts=2, wait=0)))
            assert run.output == ["late"]
            told = [event.type async for event in ex.events(run.run_id)]
    assert told.count("step_retried") == 1
    with served(refused(503, "busy")) as wire:
        async with OpenAIModel("m", wire.url, "sk-1") as model:
            with pytest.raises(ModelUnavailable, match="busy"):
                await model.complete("?")
            assert len(wire.seen) == 1
    with served(refused(400, "bad request")) as wire:
        async with OpenAIModel("m", wire.url, "sk-1") as model:
            with pytest.raises(ModelError, match="bad request"):
                await model.complete("?")


async def test_a_key_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-2")
    with served(
        said("x"), called({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}})
    ) as wire:
        async with OpenAIModel("m", wire.url, "env:MY_KEY") as model:
            assert (await model.complete("?")).text == "x"
            (call,) = (await model.complete("?")).tool_calls
        assert wire.seen[0].headers["authorization"] == "Bearer sk-2"
    assert (call.arguments, call.raw) == (None, "{")
    assert "sk-2" not in repr(model)


# -- offline --------------------------------------------------------------------------------------------------------


async def test_offline_parses_arithmetic_and_plans_tool_calls() -> None:
    model = OfflineModel()
    tools = tools_from_ref("arithmetic")
    assert (await model.complete("What is 20+(2*4)?")).text == "28"
    conversation: list[Message] = [user("What is 20+(2*4)? Calculate step by step.")]
    called: list[str] = []
    while True:
        reply = await model.complete(conversation, tools)
        if not reply.tool_calls:
            break
        conversation.append(reply.message)
        for call in reply.tool_calls:
            called.append(call.name)
            result = await Toolbox(*tools).execute(name=call.name, tool_input=call.arguments)
            conversation.append(tool_result(call, result.text))
    assert reply.text == "28"
    assert len(called) == 2
    assert (await model.complete("What is 3*5?", output=Answer)).parsed == Answer(value=15)


@pytest.mark.parametrize("question", ["Who wrote Faust?", "", "Tell me a joke about graphs."])
async def test_asked_anything_else_it_says_that_it_only_does_arithmetic(question: str) -> None:
    assert "arithmetic" in (await OfflineModel().complete(question)).text


async def test_rewording_every_prompt_changes_nothing_offline() -> None:
    from orchestrator.strategies.tool_user import tool_user

    graph = tool_user()
    reworded = graph.replace(
        choose_tool=ChooseTool(
            current="current", corrections="corrections", system="Nimm ein Werkzeug.", prompt="{tools} || {question}"
        ),
        choose_args=ChooseArgs(
            current="current", corrections="corrections", system="", prompt="{parameters}{description}{tool}{question}"
        ),
        think=Think(corrections="corrections", system="Denk nach.", prompt="{steps} {question}"),
    )
    found = []
    for one in (graph, reworded):
        run = await one.run(
            "What is 20+(2*4)?", model=OfflineModel(), tools=tools_from_ref("arithmetic"), approve="none"
        )
        found.append((run.status, run.output, run.values["step_history"]))
    assert found[0] == found[1]
    assert found[0][:2] == ("completed", "28")


# -- scripted -------------------------------------------------------------------------------------------------------


async def test_a_script_is_a_list_or_a_mapping_by_node() -> None:
    with ScriptedModel({"a": ["1. look"], "b": lambda request: f"found {request.messages[-1].content}"}) as model:

        async def work(ctx: Context) -> Update:
            return {"log": (await ctx.model.complete("it")).text}

        graph = Graph(
            name="g", state=State, nodes={"s": node(lambda: None), "a": node(work), "b": node(work)},
            edges="START -> s -> a, b -> END", output="log",
        )  # fmt: skip
        assert (await graph.run(model=model)).output == ["1. look", "found it"]


async def test_a_list_fails_on_unexpected_concurrent_and_unconsumed_calls() -> None:
    import anyio

    model = ScriptedModel(["one"])
    await model.complete("?")
    with pytest.raises(AssertionError, match="unexpected call 2"):
        await model.complete("again")
    with pytest.raises(AssertionError, match="unexpected call"):
        model.assert_done()
    with pytest.raises(AssertionError, match="not used: 1 reply"), ScriptedModel(["left"]):
        pass
    model = ScriptedModel(["one", "two"])
    failed: list[BaseException] = []

    async def call() -> None:
        try:
            await model.complete("?")
        except AssertionError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        tasks.start_soon(call)
    assert len(failed) == 1
    assert "came while another was in progress" in str(failed[0])


async def test_what_a_script_can_say() -> None:
    replies: Sequence[Any] = [
        "text", Reply(text="reply"), [ToolCall(id="1", name="add", arguments={})], lambda request: "made",
        ModelError("no"),
    ]  # fmt: skip
    with ScriptedModel(replies) as model:
        assert (await model.complete("?")).text == "text"
        assert (await model.complete("?")).text == "reply"
        assert (await model.complete("?")).tool_calls[0].name == "add"
        assert (await model.complete("?")).text == "made"
        with pytest.raises(ModelError, match="no"):
            await model.complete("?")
    assert assistant("x").role == "assistant"


# -- the context ----------------------------------------------------------------------------------------------------


async def test_all_that_a_context_has() -> None:
    seen: dict[str, Any] = {}

    @node
    async def look(state: State, ctx: Context[str]) -> Update:
        for name in (
            "deps", "model", "models", "tools", "item", "items", "run_id", "path", "attempt", "limits", "error",
        ):  # fmt: skip
            seen[name] = getattr(ctx, name)
        result = await ctx.tool("add", a=1, b=2)
        made = await ctx.effect(
            "double", lambda n: Answer(value=2 * n), 4, returns=Answer, effect="read", reconcile=None
        )
        await ctx.emit("progress", {"done": 1})
        return {"log": [result.output, made.value]}

    graph = Graph(name="g", state=State, nodes={"look": look}, edges="START -> look -> END", output="log")
    offline = OfflineModel()
    run = await graph.run(deps="deps", model=offline, models={"cheap": offline}, tools=[add], run_id="r")
    assert run.output == [[3, 8]]
    assert (seen["deps"], seen["run_id"], seen["path"], seen["attempt"]) == ("deps", "r", "", 1)
    assert (seen["item"], tuple(seen["items"]), seen["error"]) == (None, (), None)
    assert isinstance(seen["model"], Model)
    assert list(seen["models"]) == ["cheap"]
    assert isinstance(seen["tools"], Toolbox)
    assert isinstance(seen["limits"], LimitsLeft)
    assert seen["limits"].steps == 999
    for method in (Context.tool, Context.effect, Context.emit):
        assert inspect.iscoroutinefunction(method)
    assert list(inspect.signature(Context.effect).parameters)[1:] == [
        "name",
        "fn",
        "args",
        "returns",
        "effect",
        "reconcile",
    ]

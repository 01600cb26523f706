"""Messages, calls and replies are plain frozen data; requests say everything and nothing twice."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from orchestrator import OfflineModel, Toolbox, tool
from orchestrator.errors import AgentError
from orchestrator.graph import Usage
from orchestrator.graph.isolation import isolated
from orchestrator.models import (
    Message,
    Model,
    ModelEvent,
    ModelRequest,
    OpenAIModel,
    Reply,
    RequestModel,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from orchestrator.testing import ScriptedModel
from orchestrator.tools import ToolResult

pytestmark = pytest.mark.anyio

CALL = ToolCall(id="c1", name="add", arguments={"a": 1}, raw='{"a": 1}', extras={"index": 3})


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


FULL = Reply(
    text="So.",
    tool_calls=(CALL,),
    usage=Usage(input_tokens=3, output_tokens=4),
    finish="tool_calls",
    extras={"reasoning_content": "hm"},
    details={"id": "x"},
    model="m",
)


@pytest.mark.parametrize(
    "value", [CALL, FULL, FULL.message, user("x", data={"a": [1]}), tool_result(CALL, "3", data={"output": 3})]
)
def test_they_are_frozen_and_come_back_from_json(value: BaseModel) -> None:
    assert type(value).model_validate_json(value.model_dump_json()) == value
    with pytest.raises(ValidationError, match="frozen"):
        setattr(value, next(iter(type(value).model_fields)), "other")


def test_a_message_has_no_other_fields_and_roles() -> None:
    with pytest.raises(ValidationError, match="Message has no 'text': it has role, content"):
        Message(role="user", text="x")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="Input should be"):
        Message(role="robot")  # type: ignore[arg-type]


def test_short_forms() -> None:
    assert system("a") == Message(role="system", content="a")
    assert user("a") == Message(role="user", content="a")
    assert assistant("a", [CALL]) == Message(role="assistant", content="a", tool_calls=(CALL,))
    assert tool_result(CALL, "3") == Message(role="tool", content="3", tool_call_id="c1", name="add")


def test_a_reply_goes_on_as_a_message_with_its_calls_and_extras() -> None:
    assert FULL.message == Message(
        role="assistant", content="So.", tool_calls=(CALL,), extras={"reasoning_content": "hm"}
    )


def test_a_reply_is_stored_without_what_is_made_again() -> None:
    reply = FULL.model_copy(update={"parsed": object()})
    assert Reply.model_validate(reply.data()) == FULL
    assert Reply().data() == {}


# -- requests ------------------------------------------------------------------------------------------------------


def test_a_text_is_one_message_of_the_user() -> None:
    assert ModelRequest.of("Hi").messages == (user("Hi"),)
    assert ModelRequest.of("Hi").data() == {"messages": [{"role": "user", "content": "Hi"}]}


def test_a_request_as_data_says_all_of_it() -> None:
    request = ModelRequest.of([user("Hi")], [add], int, task="think", options={"temperature": 0})
    assert request.data() == {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [add.to_param()],
        "output": {"type": "integer"},
        "task": "think",
        "options": {"temperature": 0},
    }


def test_tools_are_offered_in_any_form_and_in_order() -> None:
    other = tool(add, name="plus")
    forms: list[Any] = [[add, other], Toolbox(add, other), [add.to_param(), other.to_param()]]
    for tools in forms:
        assert [one["function"]["name"] for one in ModelRequest.of("Hi", tools).tools] == ["add", "plus"]  # type: ignore[index, call-overload]
    with pytest.raises(TypeError, match="is not a tool: use Tool objects, a Toolbox, or function parameters"):
        ModelRequest.of("Hi", [len])  # type: ignore[list-item]


# -- answers in a form ---------------------------------------------------------------------------------------------


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Pair:
    left: str
    right: str


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Point, '{"x": 1}', Point(x=1)),
        (Point, '```json\n{"x": 1}\n```', Point(x=1)),
        (Pair, '{"left": "a", "right": "b"}', Pair("a", "b")),
        (list[int], "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"x": 1}', {"x": 1}),
        ({"type": "object"}, "nothing", None),
    ],
)
def test_a_reply_is_read_as_the_output(output: Any, text: str, value: object) -> None:
    assert ModelRequest.of("Hi", output=output).parse(Reply(text=text)).parsed == value


def test_a_reply_that_does_not_fit_is_an_agent_error_that_names_the_field() -> None:
    with pytest.raises(AgentError, match=r"the model's reply is not a valid Point: .*x"):
        ModelRequest.of("Hi", output=Point).parse(Reply(text='{"x": "many"}'))


def test_without_an_output_or_with_a_call_nothing_is_read() -> None:
    assert ModelRequest.of("Hi").parse(Reply(text="5")).parsed is None
    assert ModelRequest.of("Hi", output=Point).parse(Reply(text="", tool_calls=(CALL,))).parsed is None


# -- models --------------------------------------------------------------------------------------------------------


class Echo(RequestModel):
    """The least that a model of one's own has to do."""

    name = "echo"

    async def respond(self, request: ModelRequest) -> Reply:
        return Reply(text=request.messages[-1].content)


@pytest.mark.parametrize("model", [Echo(), OfflineModel(), ScriptedModel([]), OpenAIModel("m")])
def test_every_model_keeps_the_protocol(model: object) -> None:
    assert isinstance(model, Model)


async def test_a_model_that_streams_nothing_gives_the_whole_reply_as_one_event() -> None:
    events: AsyncIterator[ModelEvent] = Echo().stream('{"x": 1}', output=Point)
    found = [event async for event in events]
    assert len(found) == 1
    assert found[0].reply is not None
    assert found[0].reply.parsed == Point(x=1)


@pytest.mark.parametrize("kind", [Message, ToolCall, Reply, ToolResult])
def test_an_empty_default_is_made_for_each_message_and_not_copied(kind: type[BaseModel]) -> None:
    """Pydantic copies a default that can be changed deeply: half of what it cost to read a message."""
    for name, field in kind.model_fields.items():
        if not field.is_required() and field.default_factory is None:
            assert isinstance(field.default, Hashable), name


# -- messages cannot change ----------------------------------------------------------------------------------------


def message() -> Message:
    return Message(
        role="assistant",
        content="x",
        tool_calls=(ToolCall(id="1", name="f", arguments={"a": [{"b": 1}]}, extras={"e": {}}),),
        extras={"reasoning": "r"},
        data={"d": [1]},
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.extras.update(a=1),
        lambda said: said.data.pop("d"),
        lambda said: said.data["d"].append(2),
        lambda said: said.tool_calls[0].arguments.__setitem__("a", 1),
        lambda said: said.tool_calls[0].arguments["a"][0].clear(),
        lambda said: said.tool_calls[0].extras["e"].setdefault("k", 1),
        lambda said: Message(role="user").extras.update(a=1),
        lambda said: said.model_copy(update={"extras": {"n": 1}}).extras.clear(),
    ],
)
def test_nothing_in_a_message_can_be_changed(change: Callable[[Message], object]) -> None:
    with pytest.raises(TypeError, match=r"immutable object: change a copy, such as copy.deepcopy"):
        change(message())


def test_what_is_taken_from_a_message_can_be_copied_and_changed() -> None:
    arguments = message().tool_calls[0].arguments
    assert arguments is not None
    for copied in (copy.deepcopy(arguments), json.loads(json.dumps(arguments))):
        copied["a"][0]["b"] = 2
        copied["new"] = 1
    for shallow in (dict(arguments), copy.copy(arguments), arguments.copy(), arguments | {}, {**arguments}):
        shallow["new"] = 1
    assert arguments == {"a": [{"b": 1}]}


def test_what_is_kept_with_a_message_is_no_part_of_it() -> None:
    said, other = message(), message()
    digest = said.json_form.digest
    assert said.json_form is said.json_form
    assert (said, repr(said), said.model_dump()) == (other, repr(other), other.model_dump())
    read = pickle.loads(pickle.dumps(said))
    assert read == said
    assert not hasattr(read, "_kept")
    changed = said.model_copy(update={"content": "y"})
    assert changed.json_form == {**said.json_form, "content": "y"}
    assert changed.json_form.digest != digest == read.json_form.digest == copy.deepcopy(said).json_form.digest


def test_a_subclass_may_have_fields_that_change() -> None:
    class Noted(Message):
        notes: list[str] = Field(default_factory=list)

    said = Noted(role="user", content="x")
    copied = isolated(said)
    said.notes.append("a")
    assert (said.json_form["notes"], copied.notes) == (["a"], [])
    assert isolated(message()).__class__ is Message

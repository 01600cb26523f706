"""`ChooseArgs`: a model gives the arguments of the chosen tool."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import tool
from orchestrator.models import Reply
from orchestrator.nodes import ChooseArgs
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio


@tool
def send(text: str, times: int = 1) -> str:
    """Send a text.

    As often as you like.

    Args:
        text: what to send.
        times: how often.
    """
    return text * times


@tool
def now() -> str:
    """Tell the time."""
    return "noon"


class Ports(BaseModel):
    main: str = "The main question"
    later: str = ""
    name: str = "send"
    given: dict[str, JsonValue] = {}


PORTS = ChooseArgs(question="main", current="later", tool="name", args="given")


async def args_of(reply: str | Reply) -> Any:
    found = await run(ChooseArgs(), ChooseArgs.State, {"question": "?", "tool": "send"}, [reply], (send, now))
    return found.values["args"] if found.status == "completed" else error_of(found)


async def test_arguments_are_written_as_the_tool_will_get_them() -> None:
    assert await args_of('{"text": "60", "times": "2"}') == {"text": "60", "times": 2}
    assert (await run(PORTS, Ports, None, ['{"text": "x"}'], (send,))).values["given"] == {"text": "x"}


async def test_the_model_is_told_the_question_and_all_of_the_tool() -> None:
    async with executing(['{"text": "x"}'], (now, send)) as (executor, model):
        await executor.start(of_one(PORTS, Ports), {"later": "A later one"})
    (request,) = model.requests
    assert request.messages[0].content == PORTS.system
    assert request.messages[1].content == (
        "Question: A later one\n\nFunction: send\nSend a text.\n\nAs often as you like.\n\nParameters:\n"
        "text (string, required): what to send.\ntimes (integer, optional, default 1): how often."
    )
    assert request.messages[1].data == {
        "question": "A later one",
        "tool": "send",
        "description": send.description,
        "parameters": send.parameters,
    }
    assert request.task == "choose_args"


async def test_what_a_tool_says_is_no_template() -> None:
    odd = send.with_(description="Use {question} and {0}.")
    async with executing(['{"text": "x"}'], (odd,)) as (executor, model):
        await executor.start(of_one(PORTS, Ports), {"main": "{description}"})
    assert "Question: {description}\n\nFunction: send\nUse {question} and {0}." in model.requests[0].messages[1].content


async def test_a_tool_without_parameters_needs_no_model() -> None:
    given = {"question": "?", "tool": "now", "args": {"left": "over"}}
    assert (await run(ChooseArgs(), ChooseArgs.State, given, [], (send, now))).values["args"] == {}


@tool
def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    ("reply", "args"),
    [
        ("add(1, 2)", {"a": 1, "b": 2}),
        ("add[1,2]", {"a": 1, "b": 2}),
        ("add(1, b=2)", {"a": 1, "b": 2}),
        ("add(1)", {"a": 1}),
        ("a: 1", {"a": 1}),
        ("a: 1,\nb: 2", {"a": 1, "b": 2}),
        ('[{"a": 1}]', {"a": 1}),
        ('{"add": {"a": 1}}', {"a": 1}),
        ('{"tool_input": {"a": 1}}', {"a": 1}),
        ('{"arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"function": {"name": "add", "arguments": {"a": 1}}}', {"a": 1}),
        ("add(1,000)", None),  # a thousand, or 1 and 0
        ('[{"a": 1}, {"a": 2}]', None),
        ('{"args": {"a": 1}, "input": {"a": 2}}', None),
        ("a: 1\nwhich is enough", None),
    ],
)
async def test_a_call_with_one_reading_is_read(reply: str, args: dict[str, int] | None) -> None:
    found = await run(ChooseArgs(), ChooseArgs.State, {"question": "?", "tool": "add"}, [reply], (add,))
    assert (found.values["args"] if found.status == "completed" else None) == args


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('{"text": 5}', "5"),
        ('{"text": -1.5}', "-1.5"),
        ('{"text": true}', "true"),
        ("text: x, y", "x, y"),
        ('send("x, y", times=1)', "x, y"),
        ("send(x, times=1)", "x, times=1"),
    ],
)
async def test_a_value_for_a_text_is_its_text(reply: str, text: str) -> None:
    assert (await args_of(reply))["text"] == text


async def test_a_text_that_was_cut_is_not_used() -> None:
    cut = Reply(text="text: The first ha", finish="length")
    found = await run(ChooseArgs(), ChooseArgs.State, {"question": "?", "tool": "send"}, [cut], (send,))
    assert "was cut off" in error_of(found)[1]


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("the text x", "is not JSON"),
        ("[]", "is JSON but not an object"),
        ('{"text": "x"} {"text": "y"}', "contains several JSON values"),
        ('{"text": "x", "text": "y"}', "'text' occurs twice in it"),
        ("{}", "'text' is missing"),
        ('{"text": "x", "loud": true}', "'loud' is unknown; it takes text, times"),
        ('{"text": "x", "times": "many"}', "'times' must be a whole number"),
        ('{"text": null}', "'text' must be a string"),
    ],
)
async def test_what_does_not_fit_is_an_agent_error(reply: str, fault: str) -> None:
    kind, message = await args_of(reply)
    assert kind == "AgentError"
    assert fault in message


@pytest.mark.parametrize(
    ("reply", "args"),
    [
        ("text=/home/us", None),
        ("send(text=/home/us", None),
        ("send(/home/(us)", None),
        ('send("/home/us)', None),
        ("send(text='a) b', times=1)", {"text": "a) b", "times": 1}),
        ('{"text": "x(y"} and', {"text": "x(y"}),
    ],
)
async def test_arguments_of_a_reply_that_is_cut_off_are_used_only_if_closed(reply: str, args: Any) -> None:
    found = await args_of(Reply(text=reply, finish="length"))
    assert found == args if args else "was cut off" in found[1], found


async def test_a_tool_that_is_not_there() -> None:
    found = await run(ChooseArgs(), ChooseArgs.State, {"question": "?", "tool": "sned"}, [], (send, now))
    assert error_of(found) == (
        "AgentError", "choose_args: 'sned' is not an available tool; choose one of: send, now",
    )  # fmt: skip
    only = ChooseArgs(tools=("now",))
    found = await run(only, ChooseArgs.State, {"question": "?", "tool": "send"}, [], (send, now))
    assert error_of(found)[1].endswith("choose one of: now")

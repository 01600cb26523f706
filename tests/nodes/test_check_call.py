"""`CheckCall`: what cannot be called is told to the model before anybody is asked about it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from orchestrator import Graph, Message, Run, ToolCall, tool
from orchestrator.nodes import CheckCall
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    city: str
    zone: int = 0


@tool(risk="none", effect="pure")
def weather(places: list[Place], days: int = 1) -> str:
    """Tell the weather."""
    return f"{places} {days}"


def graph(it: CheckCall, state: type[BaseModel] = CheckCall.State) -> Graph:
    return Graph(name="g", state=state, nodes={"it": it}, edges="START -> it\nit -> END : valid\nit -> END : invalid")


async def checked(call: ToolCall, it: CheckCall | None = None, tools: Any = (weather,)) -> tuple[str, Run]:
    async with executing(tools=tools) as (executor, _):
        found = await executor.start(graph(it or CheckCall()), {"call": call})
        points = await executor.history(found.run_id)
    return points[-1].outcome if points else "", found


async def test_a_call_that_fits_is_written_as_its_tool_will_get_it() -> None:
    call = ToolCall(id="c", name="weather", arguments={"places": [{"city": "Bonn"}], "days": "3"})
    outcome, found = await checked(call)
    assert outcome == "valid"
    assert (found.values["tool"], found.values["args"]) == ("weather", {"places": [{"city": "Bonn"}], "days": 3})
    assert found.values["message"] is None


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ({"name": "wether", "arguments": {}}, "'wether' is not an available tool; there are: weather"),
        ({"name": "weather", "arguments": None, "raw": "{places"}, "the arguments of weather are not a JSON object"),
        ({"name": "weather", "arguments": {}}, "'places' is missing"),
        ({"name": "weather", "arguments": {"places": [], "when": 1}}, "'when'"),
        (
            {"name": "weather", "arguments": {"places": [{"city": "Bonn"}, {"city": "Ulm", "zone": "west"}]}},
            "'places'[1].zone must be a whole number",
        ),
    ],
)
async def test_one_that_does_not_is_told_with_the_place_of_the_fault(call: dict[str, Any], fault: str) -> None:
    wanted = ToolCall(id="c7", **call)
    outcome, found = await checked(wanted)
    message = Message.model_validate(found.values["message"])
    assert (outcome, message.role, message.tool_call_id, message.name) == ("invalid", "tool", "c7", wanted.name)
    assert message.content.startswith("Error: ")
    assert fault in message.content
    assert message.data is not None
    assert (message.data["output"], message.data["exit_code"]) == (None, 1)
    _, failed = await checked(wanted, CheckCall(on_error="raise"))
    kind, words = error_of(failed)
    assert (kind, fault in words) == ("AgentError", True)


async def test_without_any_tool_every_call_is_invalid() -> None:
    outcome, found = await checked(ToolCall(id="c", name="weather", arguments={}), tools=())
    assert (outcome, "there are: none at all" in found.values["message"]["content"]) == ("invalid", True)


class Other(BaseModel):
    wanted: ToolCall
    which: str = ""
    given: dict[str, JsonValue] = {}
    told: Message | None = None


async def test_ports_can_be_renamed() -> None:
    it = CheckCall(call="wanted", tool="which", args="given", message="told")
    async with executing(tools=(weather,)) as (executor, _):
        call = ToolCall(id="c", name="weather", arguments={"places": []})
        found = await executor.start(graph(it, Other), {"wanted": call})
        none = await executor.start(graph(it, Other), {"wanted": call.model_copy(update={"arguments": {}})})
    assert (found.values["which"], found.values["given"]) == ("weather", {"places": []})
    assert none.values["told"]["tool_call_id"] == "c"

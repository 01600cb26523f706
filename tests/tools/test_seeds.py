"""The tools of the systems that came before, as their documents write them, with our names."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from orchestrator import Executor, Registry, Tool, Toolbox, ToolResult, tool
from orchestrator.errors import GraphUnknown, ToolError
from orchestrator.models import Reply, ToolCall
from orchestrator.strategies.function_call import function_call
from orchestrator.testing import ScriptedModel
from orchestrator.tools import ToolFailure

pytestmark = pytest.mark.anyio

# -- LazyLLM: two weather tools, by group, under another name, by name or as they are -------------------------


def get_current_weather(location: str, unit: Literal["fahrenheit", "celsius"] = "fahrenheit"):  # type: ignore[no-untyped-def]
    """
    Get the current weather in a given location

    Args:
        location (str): The city and state, e.g. San Francisco, CA.
        unit (str): The temperature unit to use. Infer this from the users location.
    """
    if "tokyo" in location.lower():
        return json.dumps({"location": "Tokyo", "temperature": "10", "unit": "celsius"})
    if "paris" in location.lower():
        return json.dumps({"location": "Paris", "temperature": "22", "unit": "celsius"})
    return json.dumps({"location": location, "temperature": "unknown"})


def get_n_day_weather_forecast(  # type: ignore[no-untyped-def]
    location: str, num_days: int, unit: Literal["celsius", "fahrenheit"] = "fahrenheit"
):
    """
    Get an N-day weather forecast

    Args:
        location (str): The city and state, e.g. San Francisco, CA.
        num_days (int): The number of days to forecast.
        unit (Literal['celsius', 'fahrenheit']): The temperature unit to use. Infer this from the users location.
    """
    return json.dumps({"location": location, "temperature": "10", "unit": unit, "num_days": num_days})


UNIT = "The temperature unit to use. Infer this from the users location."
PLACE = {"type": "string", "description": "The city and state, e.g. San Francisco, CA."}
QUERY = "What's the weather like today in celsius in Tokyo and Paris."


def model() -> ScriptedModel:
    calls = [
        ToolCall(
            id=f"get_current_weather:{number}",
            name="get_current_weather",
            arguments={"location": city, "unit": "celsius"},
        )
        for number, city in enumerate(("Tokyo", "Paris"))
    ]
    return ScriptedModel([Reply(text="I look it up.", tool_calls=tuple(calls))])


def test_name_description_and_schema_of_the_weather() -> None:
    registry = Registry()
    registered = registry.register("tool")(get_current_weather)
    registry.register("tool")(get_n_day_weather_forecast)
    another = registry.register("tool")(get_current_weather, "another_get_current_weather")
    assert [one.name for one in registry.in_group("tool")] == [
        "get_current_weather", "get_n_day_weather_forecast", "another_get_current_weather",
    ]  # fmt: skip
    assert registered.to_param() == {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": PLACE,
                    "unit": {
                        "type": "string", "enum": ["fahrenheit", "celsius"], "default": "fahrenheit",
                        "description": UNIT,
                    },
                },
                "required": ["location"],
                "additionalProperties": False,
            },
        },
    }  # fmt: skip
    assert another.parameters == registered.parameters
    forecast = registry.get("get_n_day_weather_forecast").parameters
    assert forecast["required"] == ["location", "num_days"]


async def test_a_decorated_function_is_registered_too() -> None:
    registry = Registry()

    @registry.register("tool")
    def multiply_tool(a: int, b: int) -> int:
        """
        Multiply two integers and return the result integer

        Args:
            a (int): multiplier
            b (int): multiplier
        """
        return a * b

    assert registry.get("multiply_tool") is multiply_tool
    assert await multiply_tool(a=3, b=4) == 12


@pytest.mark.parametrize("by_name", [True, False])
async def test_one_round_with_tools_by_name_or_as_functions(by_name: bool) -> None:
    registry = Registry()
    registry.register("tool")(get_current_weather)
    registry.register("tool")(get_n_day_weather_forecast)
    names = ("get_current_weather", "get_n_day_weather_forecast")
    tools = registry.pick(*names) if by_name else [get_current_weather, get_n_day_weather_forecast]
    run = await function_call(confirm=None).run(QUERY, model=model(), tools=tools)
    question, said, results = run.output  # type: ignore[misc]  # JSON
    assert question == QUERY
    assert [call["function"]["arguments"]["location"] for call in said["tool_calls"]] == ["Tokyo", "Paris"]
    assert results[0] == {
        "role": "tool", "content": '{"location": "Tokyo", "temperature": "10", "unit": "celsius"}',
        "tool_call_id": "get_current_weather:0", "name": "get_current_weather",
    }  # fmt: skip
    assert json.loads(results[1]["content"])["location"] == "Paris"


async def test_a_function_that_was_given_is_local_to_where_it_was_given() -> None:
    assert len(Registry()) == 0
    graph = function_call(confirm=None)
    async with Executor(tools=[get_current_weather], model=model()) as executor:
        assert (await executor.start(graph, QUERY)).status == "completed"
    with pytest.raises(GraphUnknown, match="neither a shipped group"):
        Executor(tools=["get_current_weather"])
    with pytest.raises(GraphUnknown, match="no tool 'get_current_weather' is registered"):
        Registry().pick("get_current_weather")


# -- AgentFly: a function, a class, a method ------------------------------------------------------------------


@tool(name="AdditionTool", description="Adds two numbers.")
def add(a, b: int = 1):  # type: ignore[no-untyped-def]
    """
    Adds two numbers.

    Args:
        a (int): The first number.
        b (int): The second number which should be a non-negative integer.

    Returns:
        int: The sum of a and b.
    """
    return a + b


async def test_addition_has_the_type_of_a_from_its_docstring() -> None:
    assert (add.name, add.description) == ("AdditionTool", "Adds two numbers.")
    assert add.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first number."},
            "b": {
                "type": "integer", "default": 1,
                "description": "The second number which should be a non-negative integer.",
            },
        },
        "required": ["a"],
        "additionalProperties": False,
    }  # fmt: skip
    assert await add(2) == 3
    assert await add(2, b=5) == 7
    assert (await Toolbox(add).execute(name="AdditionTool", tool_input={"a": "2"})).output == "3"


@tool(name="tool_name", description="Description about the tool")
async def custom_tool(arg1, arg2):  # type: ignore[no-untyped-def]
    """
    Description about the tool.

    Args:
        arg1: arg1 of the tool
        arg2: arg2 of the tool

    Returns:
        An observation string.
    """
    return f"This is the return of {arg1} and {arg2}"


async def test_an_async_function_without_a_single_hint() -> None:
    assert custom_tool.parameters["properties"] == {
        "arg1": {"description": "arg1 of the tool"}, "arg2": {"description": "arg2 of the tool"},
    }  # fmt: skip
    assert await custom_tool("x", arg2="y") == "This is the return of x and y"


class APITool(Tool):
    name = "api_tool"
    description = "This is a tool that uses API key"

    def __init__(self, api_key: str) -> None:
        self.api_key = api_key

    def call(self, query):  # type: ignore[no-untyped-def]
        """
        This is a tool that uses API key

        Args:
            query (str): query to use for the tool

        Returns:
            observation: observation string
        """
        return f"Call with query {query} and key {self.api_key}"


async def test_a_class_with_data_of_its_own() -> None:
    one, other = APITool("k1"), APITool(api_key="k2")
    assert one.parameters["properties"] == {"query": {"type": "string", "description": "query to use for the tool"}}
    assert one.parameters["required"] == ["query"]
    assert await one(query="x") == "Call with query x and key k1"
    assert await other("x") == "Call with query x and key k2"


class CustomAgent:
    def __init__(self, special_api_key: str) -> None:
        self.special_api_key = special_api_key

    def processing_query(self, query: str) -> str:
        return query.upper()

    @tool(name="specialized_tool")
    async def specialized_tool(self, query: str) -> str:
        query = self.processing_query(query)
        return f"Call query {query} with special api key: {self.special_api_key}"


async def test_a_method_reaches_its_object_which_is_no_part_of_the_schema() -> None:
    agent = CustomAgent("k")
    assert list(agent.specialized_tool.parameters["properties"]) == ["query"]
    assert await agent.specialized_tool(query="x") == "Call query X with special api key: k"
    box = Toolbox(agent.specialized_tool, tool(CustomAgent("other").specialized_tool, "another"))
    assert (await box.execute(name="another", tool_input={"query": "y"})).output == (
        "Call query Y with special api key: other"
    )


# -- OpenManus: a class with a schema of its own, and a collection --------------------------------------------


class EchoTool(Tool):
    """A simple tool that echoes the input text."""

    name: str = "echo_message"
    description: str = "Repeats back the text provided in the 'message' parameter."
    parameters: dict = {  # type: ignore[type-arg]  # noqa: RUF012  as it is written there
        "type": "object",
        "properties": {
            "message": {
                "type": "string",
                "description": "The text to be echoed back.",
            },
        },
        "required": ["message"],
    }

    async def execute(self, message: str) -> ToolResult:
        """Takes a message and returns it."""
        return ToolResult(output=f"You said: {message}")


async def test_a_class_with_a_schema_and_a_collection_of_tools() -> None:
    echo_tool = EchoTool()
    assert (echo_tool.name, echo_tool.description) == (
        "echo_message", "Repeats back the text provided in the 'message' parameter.",
    )  # fmt: skip
    my_toolbox = Toolbox(echo_tool, add)
    assert [one.name for one in my_toolbox] == ["echo_message", "AdditionTool"]
    assert my_toolbox.tools == (echo_tool, add)
    assert my_toolbox.tool_map["echo_message"] is echo_tool
    assert my_toolbox.to_params()[0] == {
        "type": "function",
        "function": {
            "name": "echo_message",
            "description": "Repeats back the text provided in the 'message' parameter.",
            "parameters": {
                "type": "object",
                "properties": {"message": {"type": "string", "description": "The text to be echoed back."}},
                "required": ["message"],
            },
        },
    }
    result = await my_toolbox.execute(name="echo_message", tool_input={"message": "hello"})
    assert result == ToolResult(output="You said: hello")
    assert (await echo_tool(message="hello")).output == "You said: hello"


async def test_a_collection_gives_a_result_whatever_happens() -> None:
    @tool
    def refuses() -> None:
        raise ToolError("not today")

    @tool
    def breaks() -> None:
        raise ValueError("oh")

    @tool
    def gives(what: Any) -> Any:
        return what

    box = Toolbox(refuses, breaks).add_tool(gives)
    assert await box.execute(name="X") == ToolFailure(error="Tool X is invalid")
    assert (await box.execute(name="refuses", tool_input=None)).error == "not today"
    assert (await box.execute(name="breaks", tool_input={})).error == "Unexpected error executing tool breaks: oh"
    assert await box.execute(name="gives", tool_input={"what": 3}) == ToolResult(output="3")
    with pytest.raises(TypeError):
        await box.execute("gives", {"what": 3})  # type: ignore[misc]

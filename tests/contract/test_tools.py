"""The contract of tools, toolboxes and their results."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, Literal

import anyio
import pytest

from orchestrator import Executor, Graph, Retry, Tool, Toolbox, ToolResult, node, tool
from orchestrator.errors import ToolError
from orchestrator.nodes import Execute
from orchestrator.tools import ToolFailure, risk_at_most
from tests.contract.sample import called, google

pytestmark = pytest.mark.anyio


# -- what a tool is -------------------------------------------------------------------------------------------------


@tool
def numpy(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """The weather of some days.

    It may be wrong.

    Parameters
    ----------
    city : str
        name of the city
    days : int
        how many days
    unit
        of temperatures
    """
    return f"{city} {days} {unit}"


@tool
def sphinx(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """The weather of some days.

    It may be wrong.

    :param city: name of the city
    :param days: how many days
    :param unit: of temperatures
    """
    return f"{city} {days} {unit}"


class Weather(Tool):
    """Not what the tool does."""

    name = "weather"
    risk = "read"

    def __init__(self, home: str) -> None:
        self.home = home

    def call(self, city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
        """The weather of some days.

        It may be wrong.

        Args:
            city: name of the city
            days: how many days
            unit: of temperatures
        """
        return f"{city} {days} {unit}"


class Agent:
    word = "agent's"

    @tool
    def method(self, city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
        """The weather of some days.

        It may be wrong.

        Args:
            city: name of the city
            days: how many days
            unit: of temperatures
        """
        return f"{city} {days} {unit}"


TOOLS = {"google": google, "numpy": numpy, "sphinx": sphinx, "weather": Weather("x"), "method": Agent().method}


@pytest.mark.parametrize("name", TOOLS)
async def test_name_description_and_schema_come_from_hints_and_docstring(name: str) -> None:
    one = TOOLS[name]
    assert isinstance(one, Tool)
    assert one.name == name
    assert one.description == "The weather of some days.\n\nIt may be wrong."
    function = one.to_param()["function"]
    assert one.to_param()["type"] == "function"
    properties = function["parameters"]["properties"]
    assert function["name"] == name
    assert function["parameters"]["required"] == ["city"]
    assert {key: value["description"] for key, value in properties.items()} == {
        "city": "name of the city", "days": "how many days", "unit": "of temperatures",
    }  # fmt: skip
    assert (properties["city"]["type"], properties["days"]["type"]) == ("string", "integer")
    assert properties["days"]["default"] == 3
    assert properties["unit"]["enum"] == ["C", "F"]
    assert await one(city="Bonn") == "Bonn 3 C"
    assert await one("Bonn", 2) == "Bonn 2 C"
    assert (await called(one, city="Bonn", days="2"))["output"] == "Bonn 2 C"


def test_the_defaults_are_dangerous_and_irreversible() -> None:
    assert (google.risk, google.effect, google.timeout, google.retry, google.ends) == (
        "dangerous", "irreversible", None, None, False,
    )  # fmt: skip
    assert (Weather.risk, Weather.effect) == ("read", "irreversible")
    order: list[Any] = ["none", "read", "write", "dangerous"]
    for lower, higher in pairwise(order):
        assert risk_at_most(lower, higher)
        assert not risk_at_most(higher, lower)
    for option, value in (("risk", "huge"), ("effect", "maybe"), ("timeout", 0), ("timeout", -1)):
        with pytest.raises(TypeError, match=option):
            tool(name="x", **{option: value})(lambda: None)


async def test_rename_and_groups() -> None:
    renamed = tool(google, "weather_of")
    assert (renamed.name, google.name) == ("weather_of", "google")
    also = tool(google, name="again")
    grouped = tool(group="outside", name="third")(lambda: "x")
    box = Toolbox(google, renamed, also, grouped)
    assert [one.name for one in box] == ["google", "weather_of", "again", "third"]
    assert [one.name for one in box.in_group("outside")] == ["third"]
    assert await renamed(city="Bonn") == "Bonn 3 C"


async def test_timeout() -> None:
    @tool(timeout=0.03)
    async def slow() -> None:
        """Sleep."""
        await anyio.sleep(5)

    @tool(timeout=0.03)
    def sleepy() -> None:
        """Sleep."""
        time.sleep(0.2)

    for one in (slow, sleepy):
        result = await called(one)
        assert result["exit_code"] == 1
        assert "took longer than 0.03 s" in result["error"]


async def test_retry_is_inside_the_call() -> None:
    tries: list[int] = []

    @tool(retry=Retry(attempts=3, wait=0, on=("ValueError",)))
    def flaky() -> str:
        """Fails twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ValueError
        return "ok"

    assert (await called(flaky))["output"] == "ok"
    assert len(tries) == 3


async def test_a_call_of_a_tool_that_ends_takes_the_outcome_finished() -> None:
    @tool(ends=True, risk="none", effect="pure")
    def terminate(status: str) -> str:
        """End."""
        return status

    @tool(risk="none", effect="pure")
    def other() -> None:
        """Go on."""

    graph = Graph(
        name="g", state=Execute.State, nodes={"x": Execute(), "y": node(lambda: {"tool": "went on"})},
        edges="START -> x\nx -> END : finished\nx -> y : done\ny -> END", output="tool",
    )  # fmt: skip
    async with Executor(tools=[terminate, other]) as ex:
        run = await ex.start(graph, {"tool": "terminate", "args": {"status": "success"}})
        assert (run.output, run.values["result"]["output"]) == ("terminate", "success")
        assert (await ex.start(graph, {"tool": "other"})).output == "went on"


# -- toolboxes ------------------------------------------------------------------------------------------------------


async def test_a_toolbox_is_iterable_and_gives_params_and_executes() -> None:
    box = Toolbox(google, Weather("x"))
    assert list(box) == [google, *list(box)[1:]]
    assert [param["function"]["name"] for param in box.to_params()] == ["google", "weather"]
    result = await box.execute(name="google", tool_input={"city": "Bonn"})
    assert isinstance(result, ToolResult)
    assert result.output == "Bonn 3 C"
    box.add_tool(numpy)
    assert [one.name for one in box] == ["google", "weather", "numpy"]
    with pytest.raises(TypeError):
        await box.execute("google", {"city": "Bonn"})  # type: ignore[misc]
    with pytest.raises(ValueError, match="two tools are named 'google'"):
        Toolbox(google, google)
    with pytest.raises(TypeError, match="not a tool"):
        Toolbox(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given", "error"),
    [
        ("nobody", {}, "Tool nobody is invalid"),
        ("says", None, "I cannot"),
        ("breaks", None, "Unexpected error executing tool breaks: broken"),
        ("google", {"days": 1}, "'city' is missing"),
        ("google", {"city": "Bonn", "colour": 1}, "'colour' is unknown"),
        ("google", {"city": "Bonn", "days": "many"}, "days"),
        ("google", {"city": "Bonn", "unit": "K"}, "unit"),
    ],
)
async def test_execute_raises_nothing(name: str, given: Any, error: str) -> None:
    @tool
    def says() -> None:
        """Says why."""
        raise ToolError("I cannot")

    @tool
    def breaks() -> None:
        """Breaks."""
        raise RuntimeError("broken")

    result = await Toolbox(google, says, breaks).execute(name=name, tool_input=given)
    assert isinstance(result, ToolFailure)
    assert error in (result.error or "")
    assert result.exit_code == 1
    assert result.output is None


def test_one_result() -> None:
    assert list(ToolResult.model_fields)[:4] == ["output", "error", "exit_code", "metadata"]
    assert (ToolResult().output, ToolResult().error, ToolResult().exit_code, ToolResult().metadata) == (
        None,
        None,
        0,
        {},
    )
    assert issubclass(ToolFailure, ToolResult)

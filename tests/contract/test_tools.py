"""The contract of tools, toolboxes and their results."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field, JsonValue

from orchestrator import Context, Executor, Graph, Retry, Tool, Toolbox, ToolCall, ToolResult, Update, node, tool
from orchestrator.errors import AgentError, SecretInState, ToolError
from orchestrator.nodes import Execute
from orchestrator.tools import ToolFailure, risk_at_most

pytestmark = pytest.mark.anyio


class State(BaseModel):
    out: JsonValue = None


async def called(*tools: Tool, name: str | None = None, deps: Any = None, **args: Any) -> Any:
    @node
    async def work(ctx: Context) -> Update:
        return {"out": (await ctx.tool(name or tools[0].name, **args)).model_dump()}

    graph = Graph(name="g", state=State, nodes={"work": work}, edges="START -> work -> END", output="out")
    run = await graph.run(tools=tools, deps=deps)
    if run.status != "completed":
        raise AssertionError(run.error)
    return run.output


# -- what a tool is -------------------------------------------------------------------------------------------------


@tool
def google(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """The weather of some days.

    It may be wrong.

    Args:
        city: name of the city
        days: how many days
        unit: of temperatures
    """
    return f"{city} {days} {unit}"


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
    with pytest.raises(TypeError, match="no tool"):
        Toolbox(len)  # type: ignore[arg-type]


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
    assert list(ToolResult.model_fields) == ["output", "error", "exit_code", "metadata"]
    assert (ToolResult().output, ToolResult().error, ToolResult().exit_code, ToolResult().metadata) == (
        None,
        None,
        0,
        {},
    )
    assert issubclass(ToolFailure, ToolResult)


# -- calls ----------------------------------------------------------------------------------------------------------


async def test_sync_tools_run_in_threads() -> None:
    seen: list[int] = []

    @tool
    def sync() -> None:
        """Sync."""
        seen.append(threading.get_ident())

    @tool
    async def asynchronous() -> None:
        """Async."""
        seen.append(threading.get_ident())

    await called(sync)
    await called(asynchronous)
    assert seen[0] != threading.get_ident() == seen[1]


async def test_parallel_calls_run_at_the_same_time_and_keep_call_order() -> None:
    running = most = 0

    @tool(risk="none", effect="pure")
    async def wait(seconds: float) -> float:
        """Wait."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(seconds)
        running -= 1
        return seconds

    calls = [ToolCall(id=str(n), name="wait", arguments={"seconds": s}) for n, s in enumerate((0.09, 0.01, 0.05))]
    graph = Graph(
        name="g", state=Execute.ListState, nodes={"x": Execute(calls="pending", results="observations")},
        edges="START -> x -> END", output="observations",
    )  # fmt: skip
    run = await graph.run({"pending": calls}, tools=[wait])
    assert [(m["tool_call_id"], m["content"]) for m in run.output] == [("0", "0.09"), ("1", "0.01"), ("2", "0.05")]
    assert most == 3


async def test_arguments_are_validated_before_confirm() -> None:
    from orchestrator.nodes import Confirm

    graph = Graph(
        name="g", state=Confirm.State, nodes={"ok": Confirm(tool="tool", args="args")}, edges="START -> ok -> END"
    )  # fmt: skip
    run = await graph.run({"tool": "google", "args": {"town": "Bonn"}}, tools=[google])
    assert run.status == "failed"
    assert run.error.type == "AgentError"
    assert "'town' is unknown" in run.error.message
    run = await graph.run({"tool": "google", "args": {"city": "Bonn", "days": "5"}}, tools=[google])
    assert run.waiting[0].payload["args"] == {"city": "Bonn", "days": 5}


class Point(BaseModel):
    x: int
    y: int = 0


async def test_types_of_arguments_arrive_as_they_are_declared() -> None:
    seen: list[Any] = []

    @tool
    def take(
        point: Point,
        points: list[Point],
        names: set[str],
        size: Annotated[int, Field(ge=1, le=9)],
        more: dict[str, float],
    ) -> None:
        """Take them."""
        seen.append((point, points, names, size, more))

    good = {"point": {"x": 1}, "points": [{"x": 2, "y": 3}], "names": ["b", "a"], "size": 5, "more": {"a": 1.5}}
    result = await called(take, **good)
    assert result["error"] is None, result
    assert seen == [(Point(x=1), [Point(x=2, y=3)], {"a", "b"}, 5, {"a": 1.5})]
    for name, value in (("size", 0), ("size", 10), ("point", {"y": 1}), ("points", [{"x": "one"}]), ("more", [1])):
        with pytest.raises(AgentError, match=name):
            take.validate({**good, name: value})


async def test_context_and_key_are_injected_and_no_part_of_the_schema() -> None:
    @tool(risk="none", effect="read")
    def inject(n: int, ctx: Context[Any], idempotency_key: str) -> list[Any]:
        """Inject."""
        return [n, ctx.deps, bool(idempotency_key)]

    assert list(inject.parameters["properties"]) == ["n"]
    assert (await called(inject, deps="d", n=1))["output"] == [1, "d", True]


async def test_a_method_reaches_its_instance_and_self_is_no_part_of_the_schema() -> None:
    class Speaker:
        def __init__(self, word: str) -> None:
            self.word = word

        @tool
        def say(self, times: int) -> str:
            """Say it."""
            return self.word * times

    one, two = Speaker("a").say, Speaker("b").say
    assert list(one.parameters["properties"]) == ["times"]
    assert (await one(times=2), await two(times=3)) == ("aa", "bbb")


async def test_a_class_with_a_schema_of_its_own_is_taken_at_its_word() -> None:
    class Bash(Tool):
        name = "bash"
        description = "Runs a command."
        parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}  # noqa: RUF012

        async def execute(self, command: str) -> ToolResult:
            return ToolResult(output=f"$ {command}", metadata={"pid": 1})

    assert (await called(Bash(), command="ls"))["output"] == "$ ls"
    assert (await called(Bash(), command="ls"))["metadata"] == {"pid": 1}
    assert (await Bash()(command="ls")).output == "$ ls"


async def test_a_secret_in_arguments_is_refused() -> None:
    from orchestrator import Secret

    with pytest.raises(SecretInState):
        google.validate({"city": Secret("hush")})


async def test_ctx_tool_is_validated_ledgered_and_journaled() -> None:
    @node
    async def work(ctx: Context) -> Update:
        with pytest.raises(AgentError, match="'city' is missing"):
            await ctx.tool("google")
        with pytest.raises(AgentError, match="'nobody' is not an available tool"):
            await ctx.tool("nobody")
        return {"out": (await ctx.tool("google", city="Bonn")).output}

    graph = Graph(name="g", state=State, nodes={"work": work}, edges="START -> work -> END", output="out")
    async with Executor(tools=[google]) as ex:
        run = await ex.start(graph)
        assert run.output == "Bonn 3 C"
        (call,) = [event.data async for event in ex.events(run.run_id) if event.type == "effect_intended"]
    assert (call["kind"], call["name"], call["request"]["args"]) == ("tool", "google", {"city": "Bonn"})

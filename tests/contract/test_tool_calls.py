"""The contract of calls of tools."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel, Field

from orchestrator import Context, Executor, Graph, Tool, ToolCall, ToolResult, Update, node, tool
from orchestrator.errors import AgentError, SecretInState
from tests.contract.sample import Out, called, google
from tests.support.one_node import of_calls

pytestmark = pytest.mark.anyio


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
    graph = of_calls()
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
    from pydantic import SecretStr

    with pytest.raises(SecretInState):
        google.validate({"city": SecretStr("hush")})


async def test_ctx_tool_is_validated_ledgered_and_journaled() -> None:
    @node
    async def work(ctx: Context) -> Update:
        with pytest.raises(AgentError, match="'city' is missing"):
            await ctx.tool("google")
        with pytest.raises(AgentError, match="'nobody' is not an available tool"):
            await ctx.tool("nobody")
        return {"out": (await ctx.tool("google", city="Bonn")).output}

    graph = Graph(name="g", state=Out, nodes={"work": work}, edges="START -> work -> END", output="out")
    async with Executor(tools=[google]) as ex:
        run = await ex.start(graph)
        assert run.output == "Bonn 3 C"
        (call,) = [event.data async for event in ex.events(run.run_id) if event.type == "effect_intended"]
    assert (call["kind"], call["name"], call["request"]["args"]) == ("tool", "google", {"city": "Bonn"})

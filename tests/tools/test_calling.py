"""How tools run: threads, time, what is injected, what comes of errors."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, SecretStr

from orchestrator import Context, Executor, Graph, Retry, Tool, Toolbox, ToolResult, node, tool
from orchestrator.errors import ResultRefused, ToolError
from orchestrator.kernel.records import encode
from orchestrator.tools import IdempotencyKey, ToolFailure

pytestmark = pytest.mark.anyio


# -- threads and time ----------------------------------------------------------------------------------------------


async def test_a_sync_tool_runs_in_a_thread_and_an_async_one_here() -> None:
    @tool
    def sync_() -> int:
        """Sync."""
        return threading.get_ident()

    @tool
    async def async_() -> int:
        """Async."""
        return threading.get_ident()

    assert await sync_() != threading.get_ident()
    assert await async_() == threading.get_ident()


async def test_sync_tools_run_at_the_same_time_and_leave_the_loop_free() -> None:
    together = threading.Barrier(3, timeout=10)

    @tool
    def meet() -> str:
        """Wait for the others."""
        together.wait()
        return "met"

    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await meet.invoke({}))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        group.start_soon(call)
        await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(together.wait)
    assert [result.output for result in results] == ["met", "met"]


async def test_a_sync_function_may_give_what_has_to_be_awaited() -> None:
    async def later(a: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + 1

    @tool
    def hidden(a: int) -> Any:
        """Hide it."""
        return later(a)

    async def body(state: Told, ctx: Context[Any]) -> dict[str, object]:
        found = await ctx.effect("hidden", lambda a: later(a), 2, returns=int)
        return {"told": [found, (await ctx.tool("hidden", a=3)).output]}

    assert await hidden(a=1) == 2
    assert (await run(body, hidden))[0].output == [3, 4]


async def test_a_tool_that_takes_too_long_is_a_failure() -> None:
    cancelled: list[bool] = []
    free = threading.Event()

    @tool(timeout=0.3)
    async def hang() -> None:
        """Hang."""
        try:
            await anyio.sleep(60)
        except BaseException:
            cancelled.append(True)
            raise

    @tool(timeout=0.3)
    def block() -> None:
        """Block."""
        free.wait(30)

    with anyio.fail_after(10):
        for one in (hang, block):
            result = await one.invoke({})
            assert result.error == (
                f"Unexpected error executing tool {one.name}: tool {one.name!r} took longer than 0.3 s"
            )
            assert result.metadata == {"exception": "TimeoutError"}
    free.set()
    assert cancelled == [True]


async def test_a_time_out_of_the_tools_own_is_its_error() -> None:
    @tool(timeout=60)
    async def inner() -> None:
        """Run out of time inside."""
        with anyio.fail_after(0.01):
            await anyio.sleep(60)

    result = await inner.invoke({})
    assert result.failed
    assert result.metadata == {"exception": "TimeoutError"}
    assert "took longer than 60 s" not in str(result.error)


async def test_a_call_can_be_cancelled() -> None:
    @tool
    def slow() -> None:
        """Slow."""
        time.sleep(0.5)

    with anyio.move_on_after(0.05) as scope:
        await slow.invoke({})
    assert scope.cancelled_caught


# -- results and errors --------------------------------------------------------------------------------------------


@dataclass
class Foreign:
    output: object
    exit_code: int = 0
    error: str | None = None


class Sent(BaseModel):
    to: str
    words: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, ToolResult()),
        ("text", ToolResult(output="text")),
        (5, ToolResult(output=5)),
        ({"a": [1]}, ToolResult(output={"a": [1]})),
        (Sent(to="ann", words=("hi",)), ToolResult(output={"to": "ann", "words": ["hi"]})),
        (ToolResult(output=1, exit_code=2), ToolResult(output=1, exit_code=2)),
        (Foreign("34"), ToolResult(output="34")),
        (Foreign("no file", exit_code=2), ToolResult(output="no file", error="no file", exit_code=2)),
        (Foreign(None, error="broken"), ToolResult(error="broken", exit_code=1)),
        (b"bytes", ToolResult(output="bytes")),
    ],
)
async def test_whatever_a_tool_returns_is_one_kind_of_result(value: Any, result: ToolResult) -> None:
    @tool
    def give() -> Any:
        """Give."""
        return value

    assert await give.invoke({}) == result


async def test_what_json_cannot_say_becomes_its_text() -> None:
    class Thing:
        def __str__(self) -> str:
            return "a thing"

    @tool
    def give() -> Any:
        """Give."""
        return Thing()

    assert (await give.invoke({})).output == "a thing"


async def test_a_secret_that_a_tool_returns_is_refused() -> None:
    @tool
    def leak() -> Any:
        """Leak."""
        return {"key": SecretStr("s3cret-value")}

    with pytest.raises(ResultRefused, match="a secret must not enter the state") as caught:
        await leak.perform({})
    assert "s3cret-value" not in caught.value.returned
    assert "s3cret-value" not in str(caught.value)
    assert "s3cret-value" not in str(await leak.invoke({}))


async def test_an_error_that_the_tool_means_and_one_that_it_does_not() -> None:
    @tool
    def say(why: str) -> None:
        """Fail."""
        raise ToolError(why) if why == "meant" else ValueError(why)

    assert await say.invoke({"why": "meant"}) == ToolFailure(error="meant")
    found = await say.invoke({"why": "not meant"})
    assert found == ToolFailure(
        error="Unexpected error executing tool say: not meant", metadata={"exception": "ValueError"}
    )


def test_a_result_as_a_model_reads_it() -> None:
    assert [str(ToolResult(output=value)) for value in ("a", 5, {"ü": 1}, None)] == ["a", "5", '{"ü": 1}', "null"]
    failure = ToolFailure(error="broken", output="half")
    assert (failure.text, failure.exit_code, failure.failed) == ("Error: broken", 1, True)
    assert (ToolResult(exit_code=3).failed, ToolResult().failed) == (True, False)
    assert isinstance(failure, ToolResult)
    assert ToolResult.model_validate_json(failure.model_dump_json()) == ToolResult(**failure.model_dump())


# -- what is injected, in runs -------------------------------------------------------------------------------------


class Told(BaseModel):
    told: list[Any] = []


async def run(body: Any, *tools: Tool, deps: object = None, store: str = "memory://") -> Any:
    graph = Graph(name="told", state=Told, nodes={"body": node(body)}, edges="START -> body -> END", output="told")
    async with Executor(store, tools=tools, deps=deps) as executor:
        found = await executor.start(graph, {})
        return found, await executor.store.read(found.run_id)


async def test_a_tool_gets_the_context_and_the_key_of_its_call() -> None:
    seen: list[Any] = []

    @tool(effect="idempotent")
    async def use(a: int, context: Context[Any], key: IdempotencyKey) -> str:
        """Use them."""
        seen.append((context.deps, context.run_id, context.node, key))
        return f"{a}"

    @tool(effect="idempotent")
    def name(ctx: Any, idempotency_key: str) -> str:
        """Use them by name, in a thread."""
        seen.append((ctx.deps, ctx.run_id, ctx.node, idempotency_key))
        return "x"

    async def body(state: Told, ctx: Context[Any]) -> dict[str, object]:
        results = [await ctx.tool("use", a=1), await ctx.tool("use", a=1), await ctx.tool("name")]
        return {"told": [result.output for result in results]}

    found, records = await run(body, use, name, deps="the deps")
    assert found.output == ["1", "1", "x"]
    assert [each[:3] for each in seen] == [("the deps", found.run_id, "body")] * 3
    keys = [each[3] for each in seen]
    assert keys == [record.key for record in records if record.type == "effect_intended"]
    assert len(set(keys)) == 3  # the same call twice is two calls


async def test_outside_of_a_run_they_can_be_given_or_are_none() -> None:
    @tool
    async def use(ctx: Any, idempotency_key: str | None) -> list[Any]:
        """Use them."""
        return [ctx, idempotency_key]

    assert await use() == [None, None]
    assert await use(ctx="c", idempotency_key="k") == ["c", "k"]
    assert (await use.invoke({}, key="k")).output == [None, "k"]


async def test_a_secret_comes_by_deps_and_never_into_the_journal(tmp_path: Path) -> None:
    used: list[str] = []

    @tool
    def call(ctx: Context[Any]) -> str:
        """Call with a key."""
        used.append(ctx.deps["key"].get_secret_value())
        return "ok"

    async def body(state: Told, ctx: Context[Any]) -> dict[str, object]:
        return {"told": [(await ctx.tool("call")).output]}

    found, records = await run(
        body, call, deps={"key": SecretStr("s3cret-value")}, store=f"sqlite:///{tmp_path}/runs.db"
    )
    assert (found.output, used) == (["ok"], ["s3cret-value"])
    assert "s3cret-value" not in "".join(encode(record).decode() for record in records)
    assert all(b"s3cret-value" not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_failed_call_is_made_again_under_the_same_key_if_the_tool_says_so() -> None:
    keys: list[str] = []

    @tool(effect="idempotent", retry=Retry(attempts=3, wait=0))
    def shaky(idempotency_key: str) -> str:
        """Shaky."""
        keys.append(idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("lost")
        return "done"

    @tool(retry=Retry(attempts=3, wait=0))
    def wrong() -> str:
        """Wrong."""
        keys.append("wrong")
        raise ToolError("no such thing")  # another attempt mends nothing

    async def body(state: Told, ctx: Context[Any]) -> dict[str, object]:
        return {"told": [(await ctx.tool("shaky")).text, (await ctx.tool("wrong")).text]}

    found, records = await run(body, shaky, wrong)
    assert found.output == ["done", "Error: no such thing"]
    assert len(set(keys[:3])) == 1
    assert keys[3:] == ["wrong"]
    assert [record.type for record in records].count("effect_intended") == 2


async def test_every_call_of_a_run_is_in_its_journal_and_counts() -> None:
    @tool(risk="none", effect="pure")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def body(state: Told, ctx: Context[Any]) -> dict[str, object]:
        one = await ctx.tools.execute(name="add", tool_input={"a": "1", "b": 2})
        two = await ctx.tools.execute(name="nobody")
        three = await ctx.tools.execute(name="add", tool_input={"a": 1})
        return {"told": [one.output, two.error, three.error]}

    found, records = await run(body, add)
    told = found.output
    assert told[:2] == ["3", "Tool nobody is invalid"]
    assert "'b' is missing" in told[2]
    calls = [record for record in records if record.type == "effect_intended"]
    assert [(call.name, call.effect, call.request["args"]) for call in calls] == [("add", "pure", {"a": 1, "b": 2})]
    assert found.usage.calls == 1


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([ToolError("no such city")], "no such city"),
        ([ValueError("bad")], "Unexpected error executing tool tasks: bad"),
        (
            [ValueError("bad"), KeyError("worse")],
            "Unexpected error executing tool tasks: in tasks (2 sub-exceptions); ValueError: bad; KeyError: 'worse'",
        ),
    ],
)
async def test_what_goes_wrong_in_tasks_of_a_tool_is_told(errors: list[Exception], said: str) -> None:
    @tool
    async def tasks() -> None:
        """Group."""
        raise ExceptionGroup("in tasks", [ExceptionGroup("inner", errors[:1]), *errors[1:]])

    assert (await tasks.invoke({})).error == said
    assert (await Toolbox(tasks).execute(name="tasks")).error == said

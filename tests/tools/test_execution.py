"""How calls are made: how many at a time, what an error becomes, when time runs out, how much of a result is kept."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from pydantic import ValidationError

from orchestrator import Context, Executor, Graph, Image, Run, Tool, ToolCall, ToolResult, node, tool
from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import assistant, user
from orchestrator.nodes import Execute
from orchestrator.nodes.execute import gather
from orchestrator.nodes.steps import Step
from orchestrator.tools import Blob, ToolFailure
from orchestrator.tools.result import CONTENT, KEPT, SHOWN, truncated
from tests.support.one_node import of_calls

pytestmark = pytest.mark.anyio


def calls_of(name: str, *arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Calls of one tool, as a graph's input."""
    return {"pending": [ToolCall(id=f"c{n}", name=name, arguments=a) for n, a in enumerate(arguments)]}


async def called(of: Tool, *arguments: dict[str, Any] | None, **given: Any) -> list[Any]:
    """The messages that come of calls of a tool."""
    run = await of_calls(**given).run(calls_of(of.name, *arguments), tools=[of])
    assert run.status == "completed", run.error
    return list(run.state.observations)


# -- side by side --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 50])
async def test_so_many_at_a_time_and_no_more(most: int) -> None:
    running = peak = 0
    begun: list[int] = []

    @tool(risk="none", effect="pure")
    async def wait(n: int) -> int:
        """Wait."""
        nonlocal running, peak
        running, peak = running + 1, max(peak, running + 1)
        begun.append(n)
        await anyio.sleep(0.002 * (n % 3))
        running -= 1
        return n

    found = await called(wait, *({"n": n} for n in range(20)), most=most)
    assert [message.content for message in found] == [str(n) for n in range(20)]
    assert [message.tool_call_id for message in found] == [f"c{n}" for n in range(20)]
    assert peak == min(most, 20)
    if most == 1:
        assert begun == list(range(20))


async def test_the_bound_is_at_least_one_and_sixteen_if_not_given() -> None:
    assert Execute(calls="a", results="b").most == 16
    with pytest.raises(ValidationError, match="greater than 0"):
        Execute(calls="a", results="b", most=0)


async def test_lanes_are_in_order_and_stop_at_an_error() -> None:
    order: list[int] = []

    async def call(n: int) -> int:
        await anyio.sleep(0.001 * (3 - n % 3))
        order.append(n)
        if n == 2:
            raise ValueError(n)
        return n

    calls = [lambda n=n: call(n) for n in range(6)]
    with pytest.raises(ValueError, match="2"):
        await gather(calls, lanes=["a", None, "a", "b", "a", "b"])
    assert [n for n in order if n in (0, 2, 4)] == [0, 2]
    assert sorted(order) == [0, 1, 2, 3, 5]


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, "'n' is missing"), ({"n": "x"}, "'n'"), (None, "are not a JSON object"), ({"n": 1, "m": 2}, "is unknown")],
)
async def test_a_call_that_cannot_be_made_is_raised_or_observed(arguments: dict[str, Any] | None, words: str) -> None:
    @tool(risk="none", effect="pure")
    async def double(n: int) -> int:
        """Double."""
        return 2 * n

    found = await called(double, arguments, {"n": 2})
    assert found[0].content.startswith("Error: ")
    assert words in found[0].content
    assert found[1].content == "4"
    run = await of_calls(on_error="raise").run(calls_of("double", arguments, {"n": 2}), tools=[double])
    assert (run.status, run.error.type if run.error else None) == ("failed", "AgentError")


async def test_an_error_of_one_call_is_its_result_and_harms_no_other() -> None:
    @tool(risk="none", effect="pure")
    async def fragile(n: int) -> int:
        """Break now and then."""
        if n % 2:
            raise ValueError(f"no {n}")
        return n

    for policy in ("observe", "raise"):  # what a tool itself reports is a result under both
        found = await called(fragile, {"n": 0}, {"n": 1}, {"n": 2}, on_error=policy)
        words = "Error: Unexpected error executing tool fragile: no 1"
        assert [message.content for message in found] == ["0", words, "2"]


async def test_every_call_has_one_result_also_when_the_run_is_cancelled(tmp_path: Path) -> None:
    """Whoever goes on from a run that was cancelled in the middle of its calls sends each with exactly one result."""
    began = anyio.Event()

    @tool(risk="none", effect="pure")
    async def slow(n: int) -> str:
        """Slow, but for the first."""
        if n:
            began.set()
            await anyio.sleep(60)
        return "quick"

    executor = Executor(f"sqlite:///{tmp_path}/r.db", tools=[slow])
    calls = calls_of("slow", {"n": 0}, {"n": 1}, {"n": 2})
    async with executor, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: executor.start(of_calls(), calls, run_id="r"))
        await began.wait()
        run = await executor.cancel("r")
        assert run.status == "cancelled"
        events = [event async for event in executor.events("r")]
        ended = {str(e.data["key"]): bool(e.data.get("ok", True)) for e in events if e.type == "effect_settled"}
        assert ended.keys() == {e.data["key"] for e in events if e.type == "effect_intended"}
        assert sorted(ended.values()) == [False, False, True]
        said = [user("x"), assistant("", calls["pending"]), *run.state.observations, user("So?")]
        talk = ModelRequest.of(said).messages
        assert [message.role for message in talk] == ["user", "assistant", "tool", "tool", "tool", "user"]
        assert [message.tool_call_id for message in talk[2:5]] == ["c0", "c1", "c2"]


# -- time ----------------------------------------------------------------------------------------------------------


async def test_time_out_kills_the_process_that_the_tool_started(tmp_path: Path) -> None:
    @tool(risk="write", effect="idempotent", timeout=1.0)
    async def start(ctx: Context[Any]) -> str:
        """Start a process."""
        code = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))"
        await anyio.run_process([sys.executable, "-S", "-c", f"{code}; time.sleep(60)"])
        return "never"

    found = await called(start, {})
    assert found[0].content == "Error: Unexpected error executing tool start: tool 'start' took longer than 1 s"
    process = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_sync_tool_learns_that_nobody_waits_for_it() -> None:
    stopped = threading.Event()

    @tool(risk="none", effect="pure", timeout=0.4)
    def patient() -> str:
        """Ask, now and then, whether anybody still wants it."""
        try:
            for _ in range(1000):
                anyio.from_thread.check_cancelled()
                threading.Event().wait(0.005)
        except BaseException:
            stopped.set()
            raise
        return "never"

    assert isinstance(await patient.invoke({}), ToolFailure)
    assert await anyio.to_thread.run_sync(stopped.wait, 20)


# -- how much is kept ----------------------------------------------------------------------------------------------


@tool(risk="none", effect="pure")
async def much(n: int, kind: str = "text") -> Any:
    """Give much."""
    if kind == "fails":
        raise ValueError("x" * n)
    return "x" * n if kind == "text" else ["x"] * n


async def settled_of(of: Tool, arguments: dict[str, Any]) -> tuple[Run, ToolResult]:
    """The run of one call, and its result in the journal."""
    async with Executor(tools=[of]) as executor:
        run = await executor.start(of_calls(), calls_of(of.name, arguments))
        (found,) = [e.data["result"] async for e in executor.events(run.run_id) if e.type == "effect_settled"]
    return run, ToolResult.model_validate(found)


async def test_a_model_is_shown_the_ends_and_the_journal_has_all() -> None:
    run, result = await settled_of(much, {"n": SHOWN + 10})
    assert result.output == "x" * (SHOWN + 10)
    (message,) = run.state.observations
    assert "\n[... 10 of 20,010 characters are left out here ...]\n" in message.content
    assert message.content.count("x") == SHOWN
    run, _ = await settled_of(much.with_(max_shown=30), {"n": 31})
    assert "1 of 31 characters" in run.state.observations[0].content


@pytest.mark.parametrize(
    ("kind", "n", "most"), [("text", KEPT + 7, KEPT), ("list", 10_000, 40_000), ("fails", KEPT, KEPT)]
)
async def test_beyond_its_limit_the_journal_too_has_the_ends_only(kind: str, n: int, most: int) -> None:
    run, result = await settled_of(much.with_(max_kept=most), {"n": n, "kind": kind})
    said = result.error if kind == "fails" else result.output
    assert isinstance(said, str)
    assert "characters are left out here; not kept ...]" in said
    assert most < len(said) < most + 200
    assert len(run.state.observations[0].content) < SHOWN + 200
    assert result.failed is (kind == "fails")


async def test_a_tool_says_how_much_is_kept() -> None:
    _, result = await settled_of(much.with_(max_kept=10), {"n": 100})
    assert result.output == "xxxxxxx\n[... 90 of 100 characters are left out here; not kept ...]\nxxx"


def test_what_is_not_too_large_is_the_same_object() -> None:
    for result in (ToolResult(output={"a": [1, "b"]}), ToolFailure(error="x"), ToolResult(content=[Blob.of(b"x")])):
        assert truncated(result) is result
    big = ToolFailure(error="e" * 20, metadata={"m": "x" * 20})
    small = truncated(big, 10)
    assert isinstance(small, ToolFailure)
    assert small.metadata == {"left_out": "metadata of more than 10 characters"}


def test_of_content_that_is_too_large_a_word_is_left() -> None:
    picture, sound = Image.of(bytes(CONTENT // 2)), Blob.of(bytes(CONTENT // 2), "audio/wav")
    found = truncated(ToolResult(output="x", content=[picture, sound, picture]))
    assert [type(part) for part in found.content] == [Image, Blob, Blob]
    assert found.text.splitlines()[2:] == [
        "['data of 13,333,336 characters, too large to be kept', application/octet-stream, 0 bytes, not shown]",
        "['an image of 13,333,358 characters, too large to be kept', application/octet-stream, 0 bytes, not shown]",
    ]


def test_steps_are_shown_cut_too() -> None:
    step = Step(question="q", tool_choice="much", tool_output="x" * (SHOWN + 1))
    assert "1 of 20,001 characters" in step.text
    assert len(str(step.tool_output)) == SHOWN + 1


async def test_a_node_is_given_what_the_journal_keeps() -> None:
    seen: list[int] = []

    @node
    async def work(state: Execute.ListState, ctx: Context[Any]) -> None:
        seen.append(len(str((await ctx.tool("much", n=KEPT)).output)))
        seen.append(len(str((await ctx.tool("much", n=KEPT + 1)).output)))

    graph = Graph(name="g", state=Execute.ListState, nodes={"w": work}, edges="START -> w -> END")
    await graph.run({}, tools=[much])
    assert seen[0] == KEPT
    assert seen[1] == KEPT + len("\n[... 1 of 1,000,001 characters are left out here; not kept ...]\n")

"""Tools that tell what they do while they do it."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.from_thread
import pytest

from orchestrator import Context, Executor, Graph, Tool, ToolCall, ToolResult, Update, node, tool
from orchestrator.executor import Event
from orchestrator.tools import ToolFailure
from orchestrator.tools.result import Gathered, cut, truncated
from tests.contract.sample import Out
from tests.support.one_node import of_calls
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

graph = of_calls()


async def watched(*tools: Tool, calls: int = 1) -> tuple[Any, list[Event]]:
    """Each tool called once, and what a watcher sees."""
    pending = [ToolCall(id=one.name, name=one.name, arguments={}) for one in tools for _ in range(calls)]
    async with Executor(tools=tools) as executor, executor.stream(graph, {"pending": pending}) as live:
        events = [event async for event in live]
        return live.run, events


def progress_in(events: list[Event]) -> list[Event]:
    return [event for event in events if event.type == "progress"]


@tool
async def counted() -> AsyncIterator[str]:
    """Count."""
    for n in range(3):
        yield f"{n}\n"


@tool
def threaded() -> Iterator[str]:
    """Count in threads."""
    assert threading.current_thread() is not threading.main_thread()
    yield "a"
    yield "b"


@tool
async def told(ctx: Context[Any]) -> str:
    """Tell how far it is."""
    await ctx.progress("half", done=1, total=2)
    return "done"


@tool
def told_from_a_thread(ctx: Context[Any]) -> str:
    """Tell from a thread."""
    anyio.from_thread.run(ctx.progress, "from afar")
    return "done"


@pytest.mark.parametrize(
    ("of", "output", "said"),
    [
        (counted, "0\n1\n2\n", ["0\n", "1\n", "2\n"]),
        (threaded, "ab", ["a", "b"]),
        (told, "done", ["half"]),
        (told_from_a_thread, "done", ["from afar"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_what_a_tool_tells_is_live_with_the_key_of_its_call(of: Tool, output: str, said: list[str]) -> None:
    run, events = await watched(of)
    assert run.output[0]["content"] == output
    found = progress_in(events)
    assert [event.data["text"] for event in found] == said
    (intended,) = [event for event in events if event.type == "effect_intended"]
    assert {(event.seq, event.node, event.data["key"], event.data["tool"]) for event in found} == {
        (None, "x", intended.data["key"], of.name)
    }
    settled = next(n for n, event in enumerate(events) if event.type == "effect_settled")
    assert all(events.index(event) < settled for event in found)


async def test_how_much_is_done() -> None:
    _, events = await watched(told)
    assert {name: progress_in(events)[0].data.get(name) for name in ("done", "total")} == {"done": 1, "total": 2}


async def test_calls_side_by_side_are_told_apart() -> None:
    _, events = await watched(counted, told)
    keys = {event.data["tool"]: event.data["key"] for event in progress_in(events)}
    assert keys.keys() == {"counted", "told"}
    assert len(set(keys.values())) == 2


async def test_a_task_that_serves_several_calls_names_the_call() -> None:
    @tool
    async def served(ctx: Context[Any], idempotency_key: str) -> str:
        """Served from elsewhere."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ctx.progress("x", key=idempotency_key))
        return "done"

    _, events = await watched(served)
    assert progress_in(events)[0].data["tool"] == "served"


async def test_a_node_tells_too_outside_of_any_call() -> None:
    @node
    async def work(state: Out, ctx: Context[Any]) -> Update:
        await ctx.progress("now", done=0.5)
        return {"out": "x"}

    plain = Graph(name="g", state=Out, nodes={"work": work}, edges="START -> work -> END", output="out")
    async with Executor() as executor, executor.stream(plain, {}) as live:
        found = progress_in([event async for event in live])
    assert found[0].data.keys() == {"activation", "path", "node", "text", "done"}


async def test_nobody_watches() -> None:
    async with Executor(tools=[counted, told]) as executor:
        run = await executor.start(
            graph, {"pending": [ToolCall(id=name, name=name, arguments={}) for name in ("counted", "told")]}
        )
        assert [message.content for message in run.state.observations] == ["0\n1\n2\n", "done"]
        assert not progress_in([event async for event in executor.events(run.run_id)])
    assert await counted() == "0\n1\n2\n"
    assert (await threaded.invoke({})).output == "ab"


async def test_what_is_yielded_and_is_no_text_is_the_result() -> None:
    @tool
    async def mixed() -> AsyncIterator[Any]:
        """Mixed."""
        yield "working"
        yield {"n": 1}
        yield ToolResult(output="x", exit_code=3)

    @tool
    def silent() -> Iterator[str]:
        """Nothing."""
        yield from ()

    assert await mixed.invoke({}) == ToolResult(output="x", exit_code=3)
    assert (await silent.invoke({})).output == ""


async def test_an_error_after_some_output() -> None:
    @tool
    async def breaks() -> AsyncIterator[str]:
        """Break."""
        yield "so far"
        raise ValueError("and no further")

    run, events = await watched(breaks)
    assert progress_in(events)[0].data["text"] == "so far"
    assert run.output[0]["content"] == "Error: Unexpected error executing tool breaks: and no further"


@pytest.mark.parametrize("sync", [True, False])
async def test_time_out_closes_the_generator(sync: bool) -> None:
    closed = threading.Event()
    go_on = threading.Event()

    @tool(timeout=0.4)
    def slow_sync() -> Iterator[str]:
        """Slow."""
        try:
            yield "a"
            go_on.wait(5)
            yield "b"
        finally:
            closed.set()

    @tool(timeout=0.4)
    async def slow_async() -> AsyncIterator[str]:
        """Slow."""
        try:
            yield "a"
            await anyio.sleep(5)
        finally:
            closed.set()

    found = await (slow_sync if sync else slow_async).invoke({})
    assert isinstance(found, ToolFailure)
    assert "took longer than 0.4 s" in (found.error or "")
    go_on.set()
    del found
    if not sync:  # a thread cannot be stopped: it ends by itself, and its generator when nobody holds it
        assert closed.is_set()


@pytest.mark.parametrize("piece", ["x", 1])
async def test_one_that_never_waits_and_never_ends_is_stopped(piece: object) -> None:
    """Nothing else could go on either, not even the clock of its time-out."""
    yielded = 0

    @tool(timeout=0.4)
    async def endless() -> AsyncIterator[object]:
        """Endless."""
        nonlocal yielded
        while yielded < 1_000_000:  # the test ends, whatever becomes of it
            yielded += 1
            yield piece

    found = await endless.invoke({})
    assert "took longer than 0.4 s" in (found.error or "")
    assert yielded < 1_000_000


@quick_on("trio")
async def test_no_more_of_a_long_output_is_held_than_is_kept() -> None:
    pieces = ["beginning", *["x" * 700] * 1000, "", "end"]

    @tool
    async def long() -> AsyncIterator[str]:
        """Long."""
        for piece in pieces:
            yield piece

    short = long.with_(max_kept=5000)
    tracemalloc.start()
    output = (await short.invoke({})).output
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(output, str)
    assert (output[:9], output[-4:], len(output) <= 5000) == ("beginning", "xend", True)
    assert "695,112 of 700,012 characters are left out here; not kept" in output
    assert most < 300_000
    assert truncated(ToolResult(output=output), 5000).output == output
    assert (await long.invoke({})).output == "".join(pieces)


@pytest.mark.parametrize("most", [0, 1, 2, 7, 100, 250])
def test_gathered_pieces_are_cut_as_the_whole_text_is(most: int) -> None:
    for size in (1, 3, 40):
        gathered, text = Gathered(most), "".join(str(n) for n in range(200))
        for at in range(0, len(text), size):
            gathered.add(text[at : at + size])
        assert gathered.whole() == cut(text, max(0, most - 100), "not kept")
    gathered = Gathered(most)
    gathered.add(text[:most])
    assert gathered.whole() == text[:most]


async def test_odd_and_long_texts() -> None:
    @tool
    async def odd() -> AsyncIterator[str]:
        """Odd."""
        yield "\ud800"
        yield "x" * 50_000

    run, events = await watched(odd)
    first, second = progress_in(events)
    assert first.data["text"] == "\ufffd"
    assert "30,000 of 50,000 characters are left out here" in str(second.data["text"])
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("text", "most", "found"),
    [
        ("abc", 3, "abc"),
        ("abcdef", 3, "ab\n[... 3 of 6 characters are left out here ...]\nf"),
        ("abcdef", 1, "a\n[... 5 of 6 characters are left out here ...]\n"),
        ("abcdef", 0, "\n[... 6 of 6 characters are left out here ...]\n"),
    ],
)
def test_cutting(text: str, most: int, found: str) -> None:
    assert cut(text, most) == found


def test_cutting_says_where_the_rest_is() -> None:
    assert cut("abcdef", 3, "ask for less").splitlines()[1].endswith("left out here; ask for less ...]")

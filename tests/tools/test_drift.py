"""A run that goes on needs the tools that it was started with, as far as it may still call them."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, Tool, Update, node, tool
from orchestrator.errors import GraphChanged, GraphUnknown, ToolsChanged
from orchestrator.graph import Node
from orchestrator.graph.model import is_shipped
from orchestrator.nodes import Ask, Confirm, Execute, Subgraph
from tests.kinds.shipped import shipped

pytestmark = pytest.mark.anyio


class S(BaseModel):
    said: str = ""
    reply: str = ""


def weather(city: str) -> str:
    """The weather now."""
    return f"sunny in {city}"


def other_weather(city: str, unit: str = "C") -> str:
    """The weather now."""
    return f"sunny in {city}, {unit}"


def reworded(city: str) -> str:
    """How the sky looks.

    Args:
        city: where.
    """
    return f"sunny in {city}"


def news(topic: str) -> str:
    """The news."""
    return topic


OTHER = tool(other_weather, name="weather")
REWORDED = tool(reworded, name="weather", risk="read")
"""What it takes is the same: words and risk are no part of the digest."""


@node
async def call(state: S, ctx: Context) -> Update:
    return {"said": (await ctx.tool("weather", city="Bonn")).text}


@node
def plain(state: S) -> Update:
    return {"said": "no tools"}


def graph_of(before: Any = plain, after: Any = call, name: str = "g") -> Graph:
    return Graph(
        name=name, state=S, output="said", edges="START -> before -> ask -> after -> END",
        nodes={"before": before, "ask": Ask(prompt="Go on?", answer="reply"), "after": after},
    )  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


async def started(url: str, graph: Graph, *tools: Tool | Callable[..., Any]) -> str:
    async with Executor(url, tools=tools) as executor:
        run = await executor.start(graph, run_id="r")
        assert run.status == "paused"
        return run.waiting[0].id


async def gone_on(url: str, graph: Graph, question: str, *tools: Tool | Callable[..., Any], **options: Any) -> str:
    async with Executor(url, graphs=[graph], tools=tools, **options) as executor:
        return str((await executor.answer("r", question, "yes")).output)


async def test_the_journal_holds_each_tool_that_may_be_called_and_the_digest_of_its_schema(url: str) -> None:
    await started(url, graph_of(), weather, news)
    async with Executor(url) as executor:
        (first,) = [event async for event in executor.events("r") if event.type == "run_started"]
    assert first.data["tools"] == {one.name: one.schema_digest for one in (tool(weather), tool(news))}


@pytest.mark.parametrize(
    ("tools", "line"),
    [
        ([], "tool 'weather' is missing; there are: none"),
        ([news], "tool 'weather' is missing; there are: news"),
        ([OTHER, news], r"tool 'weather' takes other arguments; now: city, unit \(schema \w+, it was \w+\)"),
    ],
)
async def test_a_missing_or_changed_tool_is_an_error_that_names_it(url: str, tools: Any, line: str) -> None:
    question = await started(url, graph_of(), weather)
    async with Executor(url, graphs=[graph_of()], tools=tools) as executor:
        before = (await executor.load("r")).seq
        for go_on in (lambda: executor.resume("r"), lambda: executor.answer("r", question, "yes")):
            with pytest.raises(ToolsChanged, match=f"(?s)run 'r': its tools changed .*{line}.*accept_changes=True"):
                await go_on()
        assert (await executor.load("r")).seq == before
        assert await executor.store.lease("r") is None
    assert await gone_on(url, graph_of(), question, weather) == "sunny in Bonn"
    assert issubclass(ToolsChanged, GraphChanged)


async def test_a_run_is_not_recovered_without_its_tools(url: str, caplog: pytest.LogCaptureFixture) -> None:
    question = await started(url, graph_of(), weather)
    async with Executor(url, graphs=[graph_of()], tools=[weather]) as executor:
        await executor.answer("r", question, "yes", resume=False)
    async with Executor(url, graphs=[graph_of()]) as executor:
        with caplog.at_level(logging.WARNING, "orchestrator"):
            assert await executor.recover() == []
    assert "tool 'weather' is missing" in caplog.text


async def test_what_was_accepted_is_what_it_has_from_then_on(url: str) -> None:
    question = await started(url, graph_of(), weather)
    async with Executor(url, graphs=[graph_of()], tools=[OTHER]) as executor:
        assert (await executor.resume("r", accept_changes=True)).status == "paused"
        (told,) = [event.data async for event in executor.events("r") if event.type == "resumed"]
        assert told["tools"] == {"weather": OTHER.schema_digest}
        assert told["changes"][0].startswith("tool 'weather' takes other arguments")
        assert (await executor.resume("r")).status == "paused"
    with pytest.raises(ToolsChanged):
        await gone_on(url, graph_of(), question, weather)
    assert await gone_on(url, graph_of(), question, OTHER) == "sunny in Bonn, C"


async def test_words_and_new_tools_are_no_reason_to_stop(url: str) -> None:
    question = await started(url, graph_of(), weather)
    assert await gone_on(url, graph_of(), question, REWORDED, news) == "sunny in Bonn"
    async with Executor(url) as executor:
        (told,) = [event.data async for event in executor.events("r") if event.type == "resumed"]
    assert [*told["changes"]] == ["tool 'news' is new"]


async def test_strict_refuses_new_tools_too(url: str) -> None:
    question = await started(url, graph_of(), weather)
    with pytest.raises(ToolsChanged, match="tool 'news' is new"):
        await gone_on(url, graph_of(), question, weather, news, on_change="strict")
    assert await gone_on(url, graph_of(), question, weather, on_change="strict") == "sunny in Bonn"


async def test_only_what_may_still_be_called_counts(url: str) -> None:
    graph = graph_of(before=call, after=plain)
    question = await started(url, graph, weather)
    assert await gone_on(url, graph, question) == "no tools"


async def test_a_node_that_names_its_tools_needs_those(url: str) -> None:
    graph = graph_of(after=call.with_(tools=("weather",)))
    question = await started(url, graph, weather, news)
    with pytest.raises(ToolsChanged, match="'weather' takes other") as caught:
        await gone_on(url, graph, question, OTHER)
    assert "news" not in str(caught.value)
    assert await gone_on(url, graph, question, weather) == "sunny in Bonn"


async def test_a_tool_that_a_node_names_and_is_missing_is_named_with_the_node(url: str) -> None:
    graph = graph_of(after=call.with_(tools=("weather",)))
    question = await started(url, graph, weather)
    with pytest.raises(GraphUnknown, match="node 'after' uses tool 'weather', and tools= has news: add it"):
        await gone_on(url, graph, question, news)


async def test_a_tool_of_a_node_is_compared_with_the_same_one(url: str) -> None:
    before, after = graph_of(after=call.with_(tools=[weather])), graph_of(after=call.with_(tools=[OTHER]))
    question = await started(url, before)
    with pytest.raises(ToolsChanged, match="tool 'weather' of node 'after' takes other arguments; now: city, unit"):
        await gone_on(url, after, question)
    assert await gone_on(url, before, question, OTHER) == "sunny in Bonn"


async def test_tools_inside_a_subgraph(url: str) -> None:
    inner = Graph(name="inner", state=S, nodes={"call": call}, edges="START -> call -> END", output="said")

    def outer(one: Any) -> Graph:
        return graph_of(after=Subgraph(inner, outputs={"said": "said"}, tools=[one]))

    question = await started(url, outer(weather))
    with pytest.raises(ToolsChanged, match="tool 'weather' of node 'after' takes other arguments"):
        await gone_on(url, outer(OTHER), question)
    assert await gone_on(url, outer(weather), question) == "sunny in Bonn"


async def test_a_tool_changed_while_its_call_waits_for_approval(url: str) -> None:
    graph = Graph(
        name="g", state=Execute.State, output="result",
        nodes={"confirm": Confirm(tool="tool", args="args"), "execute": Execute()},
        edges="START -> confirm -> execute -> END\nconfirm -> END : denied",
    )  # fmt: skip
    async with Executor(url, tools=[weather]) as executor:
        run = await executor.start(graph, {"tool": "weather", "args": {"city": "Bonn"}}, run_id="r")
    async with Executor(url, graphs=[graph], tools=[OTHER]) as executor:
        with pytest.raises(ToolsChanged, match="'weather' takes other arguments"):
            await executor.answer("r", run.waiting[0].id, Approve())


def sees_none(kind: type[Node]) -> bool:
    """Whether a kind of the library says that it sees no tools, whatever its fields are."""
    said = kind.sees_tools.fget  # type: ignore[attr-defined]
    return is_shipped(kind) and said is not Node.sees_tools.fget and "return False" in inspect.getsource(said)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", sorted(name for name, kind in shipped().items() if sees_none(kind)))
def test_a_kind_of_node_that_is_said_to_call_no_tools_calls_none(kind: str) -> None:
    source = inspect.getsource(Node.kinds[kind])
    assert not re.search(r"ctx\.tool\(|ctx\.tools\.execute|tools_of\(", source)

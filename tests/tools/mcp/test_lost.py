"""Servers that are lost in the middle of a call, alone and under a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Update, node
from orchestrator.errors import ToolUnavailable
from orchestrator.tools.mcp import McpToolbox
from tests.tools.mcp.by_hand import ByHand, serving
from tests.tools.mcp.conftest import TOKEN

pytestmark = pytest.mark.anyio
Rough = Callable[..., McpToolbox]


async def test_it_is_connected_again_for_the_next_call(rough: Rough, tmp_path: Path) -> None:
    async with rough() as box:
        lost = await box.execute(name="die")
        assert lost.metadata == {"exception": "ToolDisconnected"}
        assert str(lost.error) == (
            "MCP server 'python' was lost during the call, so the outcome of the call is unknown; "
            "its last output: dying with [redacted]"
        ).replace("'python'", repr(box.server.name))
        assert (await box.execute(name="echo", tool_input={"text": "a"})).error is None
    assert len((tmp_path / "pids").read_text().split()) == 2


async def test_all_calls_under_way_are_told(rough: Rough) -> None:
    async with rough() as box, anyio.create_task_group() as tasks:
        found: list[Any] = []

        async def call(name: str) -> None:
            found.append(await box.execute(name=name))

        for name in ("wait", "wait", "die"):
            tasks.start_soon(call, name)
        with anyio.fail_after(20):
            while len(found) < 3:  # noqa: ASYNC110 - what is waited for is that all have come
                await anyio.sleep(0.01)
        assert {one.metadata["exception"] for one in found} == {"ToolDisconnected"}


async def test_a_server_that_does_not_come_back(rough: Rough) -> None:
    async with rough() as box:
        tool = box.get("die")
        assert tool is not None
        await tool.invoke({})
        box._connection.server = type(box.server)("no-such-program", name="gone")
        found = await box.execute(name="echo", tool_input={"text": "a"})
    assert "'gone' cannot be started" in str(found.error)
    assert found.metadata == {}  # nothing was called: that is certain


async def test_a_server_that_ends_whenever_it_has_listed(rough: Rough, tmp_path: Path) -> None:
    """It may be connected just so, or not at all; what is said is never that it took too long."""
    try:
        async with rough("lists_and_ends") as box:
            said = str((await box.execute(name="echo", tool_input={"text": "a"})).error)
    except ToolUnavailable as error:
        said = str(error)
    assert re.search("ended|lost|cannot be reached", said)
    assert "did not answer within" not in said
    assert len((tmp_path / "pids").read_text().split()) <= 4


class Paying(BaseModel):
    """What a run that pays knows."""

    said: str = ""


@node(retry=Retry(attempts=2, wait=0, jitter=0))
async def pay(state: Paying, ctx: Context) -> Update:
    """Pays through the server, and fails if that does."""
    found = await ctx.tool("pay", text="10")
    if found.failed:
        raise ConnectionError(found.error)
    return {"said": str(found.output)}


paying = Graph(name="paying", state=Paying, nodes={"pay": pay}, edges="START -> pay -> END", output="said")


async def test_an_irreversible_call_whose_server_died_is_not_made_again_without_asking(
    rough: Rough, tmp_path: Path
) -> None:
    async with Executor(store=f"sqlite:///{tmp_path / 'runs.db'}", graphs=[paying], tools=[rough()]) as executor:
        run = await executor.start(paying, {})
        assert (run.status, [question.kind for question in run.waiting]) == ("paused", ["unknown_outcome"])
        assert run.waiting[0].payload["why"] == "connection"
        assert "the outcome of the call is unknown" in str(run.waiting[0].payload["error"])
        run = await executor.answer(run.run_id, run.waiting[0].id, {"choice": "happened", "result": "paid"})
        assert (run.status, run.output) == ("completed", "paid")
    assert (tmp_path / "paid").read_text() == "10\n"
    assert TOKEN.encode() not in (tmp_path / "runs.db").read_bytes()


# -- streamable HTTP -----------------------------------------------------------------------------------------------


class Old(ByHand):
    """An older server, which forgets sessions."""

    tools = ("echo", "drop", "teapot", "busy", "big")

    def call(self, answer: Mapping[str, object], params: Mapping[str, Any]) -> None:
        name = params["name"]
        self.seen.append(name)
        if name == "drop":
            self.close_connection = True
            return None
        if name in ("teapot", "busy"):
            return self.say(418 if name == "teapot" else 500)
        text = "x" * 17 * 1024 * 1024 if name == "big" else "hi"
        return self.say(200, {**answer, "result": {"content": [{"type": "text", "text": text}]}})


@pytest.fixture
def old() -> Iterator[tuple[str, type[Old]]]:
    with serving(Old) as found:
        yield found


async def test_a_forgotten_connection_is_made_again_within_the_call(old: tuple[str, type[Old]]) -> None:
    url, kind = old
    async with McpToolbox.http(url) as box:
        assert (await box.execute(name="echo")).output == "hi"
        kind.valid = "forgotten"
        assert (await box.execute(name="echo")).output == "hi"
    assert (kind.seen, kind.sessions) == (["echo", "echo"], 2)


async def test_a_server_that_was_restarted_and_answers_400_is_found_again(old: tuple[str, type[Old]]) -> None:
    url, kind = old
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    kind.unknown = (400, {"jsonrpc": "2.0", "error": error, "id": None})
    async with McpToolbox.http(url) as box:
        assert (await box.execute(name="echo")).output == "hi"
        kind.valid = "another process"
        assert (await box.execute(name="echo")).output == "hi"
    assert (kind.seen, kind.sessions) == (["echo", "echo"], 2)


async def test_another_400_is_an_error_with_what_the_server_says(old: tuple[str, type[Old]]) -> None:
    url, kind = old
    kind.unknown = (400, {"detail": "Unsupported protocol version"})
    async with McpToolbox.http(url) as box:
        kind.valid = "another"
        found = await box.execute(name="echo")
    assert 'it answered with HTTP 400: {"detail": "Unsupported protocol version"}' in str(found.error)
    assert kind.sessions == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "words", "open_end"),
    [
        ("drop", "was lost during the call (the connection broke: ", True),
        ("busy", "was lost during the call (it answered with HTTP 500)", True),
        ("teapot", "cannot be reached: it answered with HTTP 418", False),
        ("big", "it answered with more than 16,777,216 bytes", False),
    ],
)
async def test_what_goes_wrong_with_one_call_stays_with_it(
    old: tuple[str, type[Old]], name: str, words: str, open_end: bool
) -> None:
    url, kind = old
    async with McpToolbox.http(url) as box:
        found = await box.execute(name=name)
        assert words in str(found.error)
        assert (found.metadata == {"exception": "ToolDisconnected"}) is open_end
        assert (await box.execute(name="echo")).output == "hi"
    assert kind.sessions == 1

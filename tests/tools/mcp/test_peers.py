"""Servers of others over stdio: one speaks the newest protocol, the other the one before."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.models.messages import Image
from orchestrator.tools.mcp import McpToolbox
from tests.tools.mcp.asking import Paying
from tests.tools.mcp.peers import command

pytestmark = [pytest.mark.anyio, pytest.mark.peer]


@pytest.fixture
def server_time() -> McpToolbox:
    """`mcp-server-time` of PyPI."""
    return McpToolbox.stdio(command("MCP_SERVER_TIME", "mcp-server-time"), "--local-timezone", "UTC", backoff=0.01)


@pytest.fixture
def memory(tmp_path: Path) -> McpToolbox:
    """`@modelcontextprotocol/server-memory` of npm."""
    found = command("MCP_SERVER_MEMORY", "mcp-server-memory")
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json"), "PATH": os.environ["PATH"]}
    return McpToolbox.stdio(found, env=env, backoff=0.01)


def _started(words: str) -> list[psutil.Process]:
    """The processes that this one started, and theirs, whose command has these words."""
    return [one for one in psutil.Process().children(recursive=True) if words in " ".join(one.cmdline())]


async def test_time(server_time: McpToolbox) -> None:
    async with server_time as box:
        assert [tool.name for tool in box] == ["get_current_time", "convert_time"]
        assert {(tool.risk, tool.effect) for tool in box} == {("dangerous", "irreversible")}
        tool = box.get("convert_time")
        assert tool is not None
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        found: Any = (await tool.invoke(tool.validate(asked))).output
        assert found["time_difference"] == "+9.0h"
        wrong = await box.execute(name="get_current_time", tool_input={"timezone": "Nowhere"})
        assert "Nowhere" in str(wrong.error)
    assert not _started("mcp-server-time")


async def test_memory(memory: McpToolbox) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
    async with memory as box:
        assert len(box) == 9
        assert "$schema" not in box.get("create_entities").parameters  # type: ignore[union-attr]
        made = await box.execute(name="create_entities", tool_input={"entities": [entity]})
        assert made.error is None
    async with memory as box:
        tool = box.get("search_nodes")
        assert tool is not None
        assert (await tool(query="Ada")).output == {"entities": [entity], "relations": []}
        refused = await box.execute(name="create_entities", tool_input={"entities": [{"name": 1}]})
        assert "entities" in str(refused.error)
    assert not _started("mcp-server-memory")


@pytest.mark.parametrize("which", ["server_time", "memory"])
async def test_killed_in_the_middle_of_a_call(which: str, request: pytest.FixtureRequest) -> None:
    """The process is stopped, so that it cannot answer, called, and killed; the next call has a new one."""
    box: McpToolbox = request.getfixturevalue(which)
    name, args = ("get_current_time", {"timezone": "UTC"}) if which == "server_time" else ("read_graph", {})
    words = "mcp-server-time" if which == "server_time" else "mcp-server-memory"
    async with box:
        (process,) = _started(words)
        found: list[Any] = []

        async def call() -> None:
            found.append(await box.execute(name=name, tool_input=args))

        process.send_signal(signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.sleep(0.2)
            assert found == []
            process.kill()
        assert found[0].metadata == {"exception": "ToolDisconnected"}
        assert (await box.execute(name=name, tool_input=args)).error is None
        (again,) = _started(words)
        assert again.pid != process.pid
    assert not _started(words)


@pytest.fixture
def everything() -> McpToolbox:
    """`@modelcontextprotocol/server-everything` of npm."""
    found = command("MCP_SERVER_EVERYTHING", "mcp-server-everything")
    return McpToolbox.stdio(found, env={"PATH": os.environ["PATH"]}, resources=True, prompts=True, backoff=0.01)


def calling(tool: str, **args: object) -> Graph[Paying]:
    """A graph that calls a tool."""

    @node
    async def call(state: Paying, ctx: Context) -> Update:
        return {"said": (await ctx.tool(tool, args, check=True)).text}

    return Graph(name=tool, state=Paying, nodes={"call": call}, edges="START -> call -> END", output="said")


async def test_everything(everything: McpToolbox) -> None:
    async with everything as box:
        assert len(box) > 15
        assert (await box.execute(name="get-sum", tool_input={"a": 2, "b": 40})).output == "The sum of 2 and 40 is 42."
        (picture,) = (await box.execute(name="get-tiny-image")).content
        assert isinstance(picture, Image)
        offered = await box.offers()
        assert "template demo://resource/dynamic/text/{resourceId}" in offered
        assert "prompt args-prompt" in offered
        assert "Resource 1" in (await box.read("demo://resource/dynamic/text/1")).text
        (message,) = await box.prompt("args-prompt", {"city": "Bonn"})
        assert "Bonn" in message.content
    assert not _started("server-everything")


async def test_a_task_that_asks_and_an_address(everything: McpToolbox) -> None:
    research = calling("simulate-research-query", topic="tea", ambiguous=True)
    address = calling("trigger-url-elicitation", url="https://page.example/x")
    async with Executor(graphs=[research, address], tools=[everything]) as executor:
        run = await executor.start(research, {})
        run = await executor.answer(run.run_id, run.waiting[0].id, {"interpretation": "technical"})
        assert "Research Report: tea (technical)" in str(run.output)
        run = await executor.start(address, {})
        assert "a page of page.example: https://page.example/x" in run.waiting[0].prompt
        run = await executor.answer(run.run_id, run.waiting[0].id, {"action": "decline"})
        assert '"action": "decline"' in str(run.output)


async def test_filesystem(tmp_path: Path) -> None:
    found, env = command("MCP_SERVER_FILESYSTEM", "mcp-server-filesystem"), {"PATH": os.environ["PATH"]}
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_text("secret plans")
    async with McpToolbox.stdio(found, str(tmp_path / "in"), env=env) as box:
        note = str(tmp_path / "in" / "note.txt")
        assert (await box.execute(name="write_file", tool_input={"path": note, "content": "well"})).error is None
        assert "well" in (await box.execute(name="read_text_file", tool_input={"path": note})).text
        refused = await box.execute(name="read_text_file", tool_input={"path": str(tmp_path / "out")})
        assert "outside allowed directories" in str(refused.error)
        assert box.tool_map["read_text_file"].risk == "dangerous"  # the hint that it only reads is not believed


async def test_git(tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(tmp_path)])
    (tmp_path / "a.txt").write_text("a")
    async with McpToolbox.stdio(command("MCP_SERVER_GIT", "mcp-server-git"), "--repository", str(tmp_path)) as box:
        asked = {"repo_path": str(tmp_path)}
        assert "a.txt" in (await box.execute(name="git_status", tool_input=asked)).text
        assert (await box.execute(name="git_add", tool_input={**asked, "files": ["a.txt"]})).error is None
        assert "new file" in (await box.execute(name="git_status", tool_input=asked)).text


async def test_fetch() -> None:
    async with McpToolbox.stdio(command("MCP_SERVER_FETCH", "mcp-server-fetch"), prompts=True) as box:
        refused = await box.execute(name="fetch", tool_input={"url": "http://127.0.0.1:9/"})
        assert refused.failed
        assert "prompt fetch" in await box.offers()


async def test_in_a_run(memory: McpToolbox, tmp_path: Path) -> None:
    """An executor opens the toolbox; the call is journaled with the schema that the tool had."""
    from tests.tools.mcp.sample import remembering

    async with Executor(store=f"sqlite:///{tmp_path / 'runs.db'}", graphs=[remembering], tools=[memory]) as executor:
        run = await executor.start(remembering, {"name": "Ada"})
        assert run.status == "completed", run.error
        assert "Ada" in run.output
    assert not _started("mcp-server-memory")

"""Graphs as tools of an MCP server: `orchestrator serve-mcp`."""

from __future__ import annotations

import os
import re
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from orchestrator import Approve
from orchestrator.cli import serve_mcp
from orchestrator.cli.launch_refs import Launch
from orchestrator.cli.report import NextCommands
from orchestrator.tools.mcp import McpToolbox
from tests.tools.mcp.serving import called, doing, served

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


async def test_each_graph_is_a_tool() -> None:
    async with served() as (client, _):
        tool, result = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("doing-now", "Does it.")
        assert tool.input_schema["required"] == ["question"]
        assert "$defs" not in tool.input_schema
        assert result.name == "run_result"
        assert tool.output_schema is not None  # the client checks each result against it
        output = tool.output_schema["properties"]["output"]
        assert output["anyOf"] == [{"type": "string", "default": ""}, {"type": "null"}]
        assert result.output_schema is not None
        assert tool.output_schema["required"] == ["run_id", "status", "output"]
        text, document, failed = await called(client, "doing-now", question="it")
        assert (text, failed, document["status"], document["output"]) == ("did it", False, "completed", "did it")
        assert await called(client, "run_result", run_id=document["run_id"]) == (text, document, False)


async def test_a_run_that_pauses_says_how_a_person_goes_on() -> None:
    async with served("memory://") as (client, executor):
        text, document, failed = await called(client, "doing-now", question="ask")
        run_id = document["run_id"]
        command = document["waiting"][0]["command"]
        assert (failed, document["status"]) == (False, "paused")
        assert text.startswith(f"Not done: {run_id} is paused and waits for:\n  approval at work\n    | Really?\n")
        assert f"approve {run_id}" in command
        assert command in text
        assert "Only a person may decide this" in text
        # Nothing that a client can send approves it.
        for args in ({"run_id": run_id}, {"run_id": run_id, "approve": True}):
            assert (await called(client, "run_result", **args))[1]["status"] == "paused"
        run = await executor.load(run_id)
        await executor.answer(run_id, run.waiting[0].id, Approve())
        assert (await called(client, "run_result", run_id=run_id))[0] == "did ask"


async def test_what_goes_wrong_is_told() -> None:
    async with served() as (client, executor):
        other = await executor.start(doing, "of somebody else")
        text, document, failed = await called(client, "doing-now", question="fail")
        assert failed
        assert text == f"Run {document['run_id']} is failed: ValueError: it cannot, with api_key=[redacted]"
        assert "'question' is missing; 'x' is unknown" in (await called(client, "doing-now", x=1))[0]
        assert (await called(client, "nope"))[0] == "there is no tool 'nope'; there are: doing-now, run_result"
        for name in (other.run_id, "nobody", 7):
            text, _, failed = await called(client, "run_result", run_id=name)
            assert (failed, text.partition(";")[0]) == (True, f"no run {str(name)!r} in this store")


async def test_progress_and_a_client_that_gives_up() -> None:
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with served() as (client, executor):
        await client.call_tool("doing-now", {"question": "it"}, progress_callback=tell)
        assert told == [(1.0, "work")]
        with anyio.move_on_after(0.2):
            await client.call_tool("doing-now", {"question": "wait"})
        with anyio.fail_after(10):
            while not (await executor.runs(status="interrupted")).runs:  # noqa: ASYNC110 - no event tells of it
                await anyio.sleep(0.01)


async def test_runs_and_graphs_are_resources() -> None:
    from mcp.shared.exceptions import MCPError
    from mcp.types import TextResourceContents

    async with served() as (client, executor):
        document = (await called(client, "doing-now", question="<b>it</b>"))[1]
        other = await executor.start(doing, "of somebody else")
        listed = {one.uri: one.mime_type for one in (await client.list_resources()).resources}
        drawing = f"orchestrator://runs/{document['run_id']}/drawing.svg"
        assert listed == {
            "orchestrator://graphs/doing-now.svg": "image/svg+xml",
            document["page"]: "text/html",
            drawing: "image/svg+xml",
        }
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == [
            "orchestrator://runs/{run_id}/page.html",
            "orchestrator://runs/{run_id}/drawing.svg",
        ]
        for uri, start in ((document["page"], "<!doctype html>"), (drawing, "<svg"), (next(iter(listed)), "<svg")):
            (found,) = (await client.read_resource(uri)).contents
            assert isinstance(found, TextResourceContents)
            assert start in found.text[:500].lower()
            assert "<b>it" not in found.text
        for uri in (
            "x://y", "orchestrator://", "orchestrator://graphs/other.svg", "orchestrator://runs/nobody/page.html",
            f"orchestrator://runs/{other.run_id}/page.html", f"orchestrator://runs/{document['run_id']}/../x",
            drawing + "x",
        ):  # fmt: skip
            with pytest.raises(MCPError, match="there is no r"):
                await client.read_resource(uri)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # one process to start is enough
async def test_over_stdio_and_the_command_that_goes_on(tmp_path: Path) -> None:
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    words = ("-m", "orchestrator", "serve-mcp", "tool_user", "--no-ask")
    async with McpToolbox.stdio(sys.executable, *words, env=env, cwd=str(tmp_path)) as box:
        ask, result = box
        document: Any = (await ask.invoke({"question": "What is 20+8?"})).output
        assert document["status"] == "paused"
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        done = await anyio.run_process(document["waiting"][0]["command"], env=env, cwd=elsewhere)
        assert done.stdout.strip() == b"28"
        document = (await result.invoke({"run_id": document["run_id"]})).output
        assert (document["status"], document["output"]) == ("completed", "28")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn runs on nothing else
async def test_over_http_for_this_machine_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    launch = Launch("tool_user", ("arithmetic",), "offline", str(tmp_path))
    serve = partial(serve_mcp._http, 0)
    port = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            serve_mcp._serve, url, [launch.load()], {"tool_user": launch}, NextCommands(url), "none", serve
        )
        address = await _address(capsys)
        port = int(address.rpartition(":")[2].partition("/")[0])
        async with McpToolbox.http(address) as box:
            answer = await box.execute(name="tool_user", tool_input={"question": "What is 20+8?"})
            assert answer.output == "28"
        async with httpx2.AsyncClient(headers={"accept": "application/json, text/event-stream"}, timeout=60) as client:
            for headers, status in (
                ({"host": "evil.example"}, 421),
                ({"host": "127.0.0.1:1"}, 421),
                ({"origin": "http://evil.example"}, 403),
            ):
                asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                assert (await client.post(address, json=asked, headers=headers)).status_code == status
        with socket.socket(socket.AF_INET6) as sock:
            assert sock.connect_ex(("::1", port)) != 0
        tasks.cancel_scope.cancel()
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


async def _address(capsys: pytest.CaptureFixture[str]) -> str:
    """Where the command says that it serves."""
    said = ""
    with anyio.fail_after(20):
        while True:
            said += capsys.readouterr().err
            found = re.search(r"http://127\.0\.0\.1:\d+/mcp", said)
            if found is not None:
                return found[0]
            await anyio.sleep(0.01)

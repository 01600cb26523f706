"""Resources and prompts of servers: tools of a model, and inputs of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import GraphUnknown, ToolError
from orchestrator.models.messages import Image, Message
from orchestrator.tools.mcp import McpToolbox
from tests.tools.mcp.asking import Paying, toolbox
from tests.tools.mcp.test_rounds import MODERN, accepted, asks, elicits, form, told

pytestmark = pytest.mark.anyio
NAMES = ["list_resources", "read_resource", "list_prompts", "get_prompt"]


async def test_they_are_tools_if_that_is_wanted(address: str) -> None:
    async with McpToolbox.http(address) as box:
        assert not set(NAMES) & set(box.current())
    async with McpToolbox.http(address, resources=True, prompts=True, prefix="made_") as box:
        assert list(box.current())[-4:] == [f"made_{name}" for name in NAMES]
        assert {(box.tool_map[f"made_{name}"].risk, box.tool_map[f"made_{name}"].effect) for name in NAMES} == {
            ("read", "read")
        }
        listed = json.loads((await box.execute(name="made_list_resources")).text)
        assert [(one["uri"], one.get("description")) for one in listed["resources"]] == [
            ("note://today", "What is due today"),
            ("note://picture", ""),
        ]
        assert [one["uriTemplate"] for one in listed["resourceTemplates"]] == ["note://{day}"]
        assert (
            await box.execute(name="made_read_resource", tool_input={"uri": "note://today"})
        ).output == "Water the plants"
        assert (
            await box.execute(name="made_read_resource", tool_input={"uri": "note://monday"})
        ).output == "Nothing on monday"
        listed = json.loads((await box.execute(name="made_list_prompts")).text)
        assert [(one["name"], [each["name"] for each in one["arguments"]]) for one in listed["prompts"]] == [
            ("review", ["language"])
        ]
        asked = {"name": "review", "arguments": {"language": "Latin"}}
        assert json.loads((await box.execute(name="made_get_prompt", tool_input=asked)).text) == [
            {"role": "user", "content": "Review it in Latin."},
            {"role": "assistant", "content": "Which text?"},
        ]
        refused = await box.execute(name="made_read_resource", tool_input={"uri": "none://such"})
        assert "MCP server" in str(refused.error)


async def test_they_are_inputs(address: str) -> None:
    async with McpToolbox.http(address) as box:
        assert (await box.read("note://today")).output == "Water the plants"
        (picture,) = (await box.read("note://picture")).content
        assert isinstance(picture, Image)
        assert await box.prompt("review", {"language": "Latin"}) == [
            Message(role="user", content="Review it in Latin."),
            Message(role="assistant", content="Which text?"),
        ]
        with pytest.raises(ToolError, match="MCP server"):
            await box.read("note://none/such/x")
        with pytest.raises(ToolError, match="MCP server"):
            await box.prompt("none")


READ: dict[str, Any] = {"result": {"contents": [{"uri": "a://b", "text": "secret plans"}]}}


@node
async def reads(state: Paying, ctx: Context) -> Update:
    return {"said": str((await ctx.tool("read_resource", check=True, uri="a://b")).output)}


reading = Graph(name="reading", state=Paying, nodes={"reads": reads}, edges="START -> reads -> END", output="said")


@pytest.mark.parametrize("generation", ["newer", "older"])
async def test_what_a_resource_needs_is_asked_in_a_run(tmp_path: Path, generation: str) -> None:
    newer = {
        "server/discover": [[{"result": MODERN}]],
        "resources/read": [[asks("s", you=form("Who are you?"))], [READ]],
    }
    older = {"resources/read": [[elicits("Who are you?")]], "answer": [[READ]]}
    box = toolbox(tmp_path, newer if generation == "newer" else older, resources=True)
    async with Executor(graphs=[reading], tools=[box]) as executor:
        run = await executor.start(reading, {})
        (question,) = run.waiting
        assert question.prompt.endswith("asks: Who are you?")
        run = await executor.answer(run.run_id, question.id, {"name": "Ann"})
        assert run.output == "secret plans"
    assert generation == "newer" or told(tmp_path) == [{"result": accepted("Ann")}]


ODD: dict[str, Any] = {
    "resources/list": [
        [
            {
                "result": {
                    "resources": [7, {"uri": "a://b", "description": "\u202eevil\x1b[2J", "size": 3}],
                    "nextCursor": "2",
                }
            }
        ],
        [{"result": {"resources": "none", "nextCursor": "2"}}],
    ],
    "resources/read": [
        [{"result": {"contents": [{"uri": "a://b", "blob": "!"}, 7, {"uri": "a://b", "text": "well"}]}}]
    ],
    "prompts/get": [[{"result": {"messages": [7, {"role": "king", "content": {"type": "text", "text": "Hello"}}]}}]],
    "prompts/list": [[{"error": {"code": -32000, "message": "Not today"}}]],
}


async def test_what_is_malformed_costs_only_itself(tmp_path: Path) -> None:
    async with toolbox(tmp_path, ODD, resources=True, prompts=True) as box:
        listed = json.loads((await box.execute(name="list_resources")).text)
        assert listed == {"resources": [{"uri": "a://b", "description": "evil", "size": 3}], "resourceTemplates": []}
        assert str((await box.read("a://b")).output).endswith("well")
        assert [one.content for one in await box.prompt("x")][-1] == "Hello"
        assert "Not today" in str((await box.execute(name="list_prompts")).error)


async def test_a_tool_of_the_server_keeps_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tools = {"tools": [{"name": "get_prompt", "inputSchema": {"type": "object"}}]}
    async with toolbox(tmp_path, {"tools/list": [[{"result": tools}]]}, prompts=True) as box:
        assert (await box.execute(name="get_prompt")).output == "paid"
        assert list(box.current()) == ["get_prompt", "list_prompts"]
    assert "has a tool 'get_prompt'" in caplog.text


async def test_a_file_of_servers_may_want_them(tmp_path: Path, address: str) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"made": {"url": address, "resources": True, "prompts": False}}}))
    async with McpToolbox.from_file(str(file), "made") as box:
        assert [name for name in NAMES if name in box.current()] == ["list_resources", "read_resource"]
    file.write_text(json.dumps({"mcpServers": {"made": {"url": address, "resources": "yes"}}}))
    with pytest.raises(GraphUnknown, match="'resources' is neither true nor false"):
        McpToolbox.from_file(str(file), "made")


def test_the_command_line_shows_them(address: str) -> None:
    words = [sys.executable, "-m", "orchestrator", "tools", f"mcp:{address}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert [one.strip() for one in done.stdout.partition("besides tools:")[2].splitlines() if one] == [
        "resource note://today",
        "resource note://picture",
        "template note://{day}",
        "prompt review",
    ]

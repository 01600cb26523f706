"""Runs of `orchestrator serve-mcp` that go on without their clients: tasks of both generations, and `--wait`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import pytest

from tests.tools.mcp import serving as graphs_here
from tests.tools.mcp.serving import called, served, serving

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.anyio
EXTENSION = "io.modelcontextprotocol/tasks"


async def sent(client: Client, method: str, **params: object) -> Any:
    """The result of a request, as the server wrote it: the library's client refuses tasks."""
    data: Any = {"method": method, "params": params}
    options: Any = {}
    client.session._stamp(data, options)
    return await client.session._dispatcher.send_raw_request(method, data["params"], options)


async def until(client: Client, task: str, *statuses: str) -> Any:
    with anyio.fail_after(60):
        while True:
            found = await sent(client, "tasks/get", taskId=task)
            if found["status"] in statuses:
                return found
            await anyio.sleep(0.02)


async def accepts(ctx: Any, params: Any) -> Any:
    from mcp.types import ElicitResult

    return ElicitResult(action="accept", content={"decision": "approve"})


# -- protocol 2025-11-25: the client asks for a task -------------------------------------------------------------------


@asynccontextmanager
async def older(**options: Any) -> AsyncIterator[Client]:
    from mcp import Client

    async with serving() as (graphs, _), Client(graphs.server(), mode="legacy", **options) as client:
        yield client


async def test_a_call_as_a_task() -> None:
    graphs_here.held["hold"] = anyio.Event()
    async with older() as client:
        assert client.server_capabilities.tasks is not None
        assert [one.execution and one.execution.task_support for one in (await client.list_tools()).tools] == [
            "optional",
            None,
        ]
        made = await sent(client, "tools/call", name="doing-now", arguments={"question": "hold"}, task={"ttl": 1000})
        task = made["task"]
        assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", None, 1000)
        assert (await sent(client, "tasks/get", taskId=task["taskId"]))["status"] == "working"
        graphs_here.held["hold"].set()
        result = await sent(client, "tasks/result", taskId=task["taskId"])  # waits for it
        assert result["content"] == [{"type": "text", "text": "did hold"}]
        assert result["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task["taskId"]}}
        assert (await sent(client, "tasks/get", taskId=task["taskId"]))["status"] == "completed"
        assert [one["taskId"] for one in (await sent(client, "tasks/list"))["tasks"]] == [task["taskId"]]


async def test_a_task_asks_when_its_result_is_asked_for() -> None:
    async with older(elicitation_callback=accepts) as client:
        made = await sent(client, "tools/call", name="doing-now", arguments={"question": "ask"}, task={"ttl": 1})
        await until(client, made["task"]["taskId"], "input_required")
        result = await sent(client, "tasks/result", taskId=made["task"]["taskId"])
        assert result["structuredContent"]["output"] == "did ask"


async def test_a_task_is_cancelled_and_what_is_wrong_is_told() -> None:
    from mcp.shared.exceptions import MCPError

    graphs_here.held["hold"] = anyio.Event()
    async with older() as client:
        made = await sent(client, "tools/call", name="doing-now", arguments={"question": "hold"}, task={"ttl": 1})
        task = made["task"]["taskId"]
        assert (await sent(client, "tasks/cancel", taskId=task))["status"] == "cancelled"
        for method, of, why in (("cancel", task, "has ended"), ("get", "x", "there is no task 'x'")):
            with pytest.raises(MCPError, match=why):
                await sent(client, f"tasks/{method}", taskId=of)
        with pytest.raises(MCPError, match="'question' is missing"):
            await sent(client, "tools/call", name="doing-now", arguments={}, task={"ttl": 1})
        made = await sent(client, "tools/call", name="doing-now", arguments={"question": "fail"}, task={"ttl": 1})
        failed = await until(client, made["task"]["taskId"], "failed")
        assert "ValueError: it cannot, with api_key=[redacted]" in failed["statusMessage"]
        assert (await sent(client, "tasks/result", taskId=made["task"]["taskId"]))["isError"] is True


# -- protocol 2026-07-28: the server makes a task for a client that knows the extension --------------------------------


@asynccontextmanager
async def newer(**options: Any) -> AsyncIterator[Client]:
    from mcp import Client
    from mcp.client.extension import advertise

    async with (
        serving() as (graphs, _),
        Client(graphs.server(), mode="2026-07-28", extensions=[advertise(EXTENSION)], **options) as client,
    ):
        yield client


async def test_the_server_makes_a_task() -> None:
    graphs_here.held["hold"] = anyio.Event()
    async with newer() as client:
        assert EXTENSION in (await sent(client, "server/discover"))["capabilities"]["extensions"]
        task = await sent(client, "tools/call", name="doing-now", arguments={"question": "hold"})
        assert (task["resultType"], task["status"], task["ttlMs"]) == ("task", "working", None)
        graphs_here.held["hold"].set()
        done = await until(client, task["taskId"], "completed")
        assert done["result"]["structuredContent"]["output"] == "did hold"


async def test_its_questions_are_answered_by_an_update() -> None:
    from mcp.shared.exceptions import MCPError

    async with newer(elicitation_callback=accepts) as client:
        task = (await sent(client, "tools/call", name="doing-now", arguments={"question": "ask"}))["taskId"]
        ((key, request),) = (await until(client, task, "input_required"))["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        for answer, why in (({"decision": "yes"}, "'decision' is neither"), ({}, "'decision' is missing")):
            said: Any = {key: {"action": "accept", "content": answer}}
            with pytest.raises(MCPError, match=why):
                await sent(client, "tasks/update", taskId=task, inputResponses=said)
        said = {key: {"action": "accept", "content": {"decision": "approve"}}, "other": {"action": "accept"}}
        await sent(client, "tasks/update", taskId=task, inputResponses=said)
        done = await until(client, task, "completed")
        assert done["result"]["structuredContent"]["output"] == "did ask"


async def test_a_task_that_fails_is_completed_with_an_error_as_its_result() -> None:
    async with newer() as client:
        task = (await sent(client, "tools/call", name="doing-now", arguments={"question": "fail"}))["taskId"]
        assert (await until(client, task, "completed"))["result"]["isError"] is True
        graphs_here.held["hold"] = anyio.Event()
        task = (await sent(client, "tools/call", name="doing-now", arguments={"question": "hold"}))["taskId"]
        await sent(client, "tasks/cancel", taskId=task)
        assert (await sent(client, "tasks/get", taskId=task))["status"] == "cancelled"


# -- clients without tasks ---------------------------------------------------------------------------------------------


async def test_with_wait_a_long_call_returns_the_id_of_its_run() -> None:
    graphs_here.held["hold"] = anyio.Event()
    async with served(wait=0) as (client, _):
        text, document, failed = await called(client, "doing-now", question="hold")
        assert (document["status"], document["output"], failed) == ("running", None, False)
        assert "Call run_result" in text
        graphs_here.held["hold"].set()
        with anyio.fail_after(60):
            while document["status"] == "running":
                text, document, _ = await called(client, "run_result", run_id=document["run_id"])
        assert (text, document["output"]) == ("did hold", "did hold")


# -- restarts ----------------------------------------------------------------------------------------------------------

SLOW = """
from pathlib import Path
import anyio
from pydantic import BaseModel
from orchestrator import Graph, node

class Slow(BaseModel):
    question: str
    steps: list[str] = []

async def step(state, name):
    with open("log", "a") as log:
        log.write(name + "\\n")
    while name == "two" and not Path("go").exists():
        await anyio.sleep(0.02)
    return {"steps": [*state.steps, name]}

@node
async def one(state: Slow):
    return await step(state, "one")

@node
async def two(state: Slow):
    return await step(state, "two")

slow = Graph(name="slow", state=Slow, input="question", nodes={"one": one, "two": two},
             edges="START -> one -> two -> END", output="steps")
"""


@contextmanager
def command(folder: Path, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server over HTTP as a process, and its address."""
    words = (
        "-m",
        "orchestrator",
        "serve-mcp",
        "slow.py:slow",
        "--http",
        "--port",
        port,
        "--store",
        "sqlite:///runs.db",
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen((sys.executable, *words), cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("serving http://"):
                break
        assert process.poll() is None, lines
        try:
            yield process, lines[-1].split()[1]
        finally:
            process.kill()


@pytest.mark.full
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("mode", "end"), [("legacy", signal.SIGKILL), ("2026-07-28", signal.SIGKILL), ("2026-07-28", signal.SIGTERM)]
)
async def test_a_run_outlives_a_restart_of_its_server(
    tmp_path: Path, mode: Literal["legacy", "2026-07-28"], end: signal.Signals
) -> None:
    from mcp import Client
    from mcp.client.extension import advertise

    (tmp_path / "slow.py").write_text(SLOW)
    extensions = [advertise(EXTENSION)]
    asked: dict[str, Any] = {"name": "slow", "arguments": {"question": "?"}}
    if mode == "legacy":
        asked["task"] = {"ttl": 1}
    with command(tmp_path) as (process, address):
        async with Client(address, mode=mode, extensions=extensions) as client:
            made = await sent(client, "tools/call", **asked)
            task = made.get("task", made)["taskId"]
            while not (tmp_path / "log").exists() or "two" not in (tmp_path / "log").read_text():  # noqa: ASYNC110
                await anyio.sleep(0.02)
            process.send_signal(end)
            await anyio.to_thread.run_sync(process.wait)
    (tmp_path / "go").touch()
    with command(tmp_path) as (process, address):
        async with Client(address, mode=mode, extensions=extensions) as client:
            done = await until(client, task, "completed")
            if mode == "legacy":
                done["result"] = await sent(client, "tasks/result", taskId=task)
            assert json.loads(done["result"]["content"][0]["text"]) == ["one", "two"]
    assert (tmp_path / "log").read_text().split() == ["one", "two", "two"]  # the step that was stopped ran again

"""Errors of servers: whatever their code, they are the server's words, and no call is made again because of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Update, node
from orchestrator.tools.mcp import McpToolbox
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio
Rough = Callable[..., McpToolbox]

CODES = (
    -32700, -32603, -32602, -32601, -32600,  # of JSON-RPC
    -32000, -32001, -32002, -32022, -32042, -32099,  # of servers, the SDK's clients and transports
    -32091, -32092, -32093,  # of our own transport
    -1, 0, 1, 404, 500, 2**31,
)  # fmt: skip


class Refusing(BaseHTTPRequestHandler):
    """A server that keeps connections, and answers each call with the error, in the form, that its arguments name."""

    protocol_version = "HTTP/1.1"
    paid: list[Any]
    sessions = 0

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base class's name

    def _say(self, status: int, body: object = None, kind: str = "application/json", **headers: str) -> None:
        text = "" if body is None else json.dumps(body)
        if kind == "text/event-stream":
            text = f": hello\r\nid: 1\r\nevent: message\r\ndata: {text[:-1]}\r\ndata: {text[-1:]}\r\n\r\n"
        data = text.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._say(405)

    def do_DELETE(self) -> None:
        self._say(204)

    def do_POST(self) -> None:
        kind = type(self)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = asked["method"], asked.get("id")
        if method == "initialize":
            kind.sessions += 1
            about = {"name": "refusing", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            return self._say(200, {"jsonrpc": "2.0", "id": number, "result": result}, **{"mcp-session-id": "s"})
        if method == "server/discover":
            return self._say(400)
        if number is None:
            return self._say(202)
        if method == "tools/list":
            tools = [{"name": "pay", "inputSchema": {"type": "object", "additionalProperties": True}}]
            return self._say(200, {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})
        args = asked["params"]["arguments"]
        kind.paid.append(args)
        answer = {"jsonrpc": "2.0", "id": number}
        match args["form"]:
            case "json" | "text" | "events" | "status 400" | "status 404" | "status 500" as form:
                said = {
                    **answer,
                    "error": {"code": args["code"], "message": "Quota exceeded", "data": args.get("data")},
                }
                media = {"events": "text/event-stream", "text": "text/plain"}.get(form, "application/json")
                return self._say(int(form[7:]) if form.startswith("status") else 200, said, media)
            case "accepted":
                return self._say(202)
            case "no error":
                return self._say(200, {**answer, "error": "Quota exceeded"})
            case "no result":
                return self._say(200, {**answer, "result": {"structuredContent": {"receipt": 5}}})
            case "broken events":
                return self._say(200, None, "text/event-stream")
            case "cut events":
                self.close_connection = True
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self.wfile.write(b": nothing follows\n\n")
        return None


@pytest.fixture
def refusing() -> Iterator[tuple[str, type[Refusing]]]:
    kind = type("Own", (Refusing,), {"paid": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp", kind
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its generators open
@pytest.mark.parametrize("form", ["json", "text", "events", "status 400", "status 404", "status 500"])
async def test_over_http_each_code_is_the_servers_and_costs_one_call(
    refusing: tuple[str, type[Refusing]], form: str
) -> None:
    url, kind = refusing
    async with McpToolbox.http(url) as box:
        for code in CODES:
            found = await box.execute(name="pay", tool_input={"form": form, "code": code, "data": {"a": [1]}})
            assert (str(found.error), found.metadata) == (f"MCP server {box.server.name!r}: Quota exceeded", {})
    assert [args["code"] for args in kind.paid] == [*CODES]
    assert kind.sessions == 1


async def test_over_stdio_each_code_is_the_servers_and_costs_one_call(rough: Rough, tmp_path: Path) -> None:
    async with rough() as box:
        for code in CODES:
            found = await box.execute(name="refuse", tool_input={"text": str(code)})
            assert (str(found.error), found.metadata) == (f"MCP server {box.server.name!r}: Quota exceeded", {})
    assert (tmp_path / "refused").read_text().split() == [*map(str, CODES)]
    assert len((tmp_path / "pids").read_text().split()) == 1


class Paying(BaseModel):
    """What a run that pays knows."""

    said: str = ""
    form: str = ""


@node(retry=Retry(attempts=3, wait=0, jitter=0, on=("Exception",)))
async def pay(state: Paying, ctx: Context) -> Update:
    """Pays through the server, and fails if that does."""
    found = await ctx.tool("pay", check=True, form=state.form, code=-32093)
    return {"said": str(found.output)}


paying = Graph(name="paying", state=Paying, nodes={"pay": pay}, edges="START -> pay -> END", output="said")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("form", "why", "error"),
    [
        ("accepted", "refused", "202 Accepted"),
        ("no error", "refused", "Failed to parse JSON response"),
        ("no result", "refused", "Field required"),
        ("broken events", "refused", "Failed to parse SSE message"),
        ("cut events", "connection", "was lost during the call"),
    ],
)
async def test_an_answer_that_is_none_is_asked_about(
    refusing: tuple[str, type[Refusing]], form: str, why: str, error: str
) -> None:
    url, kind = refusing
    async with Executor(graphs=[paying], tools=[McpToolbox.http(url)]) as executor:
        run = await executor.start(paying, {"form": form})
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", why)
        assert error in question.payload["error"]
        if form == "no result":
            assert "receipt" in question.payload["returned"]
        run = await executor.answer(run.run_id, question.id, {"choice": "happened", "result": "paid"})
        assert (run.status, run.output) == ("completed", "paid")
    assert len(kind.paid) == 1


@quick_on("asyncio")
@pytest.mark.parametrize("name", ["big", "deep", "nonsense", "endless"])
async def test_over_stdio_too(rough: Rough, name: str) -> None:
    @node(retry=Retry(attempts=3, wait=0, jitter=0, on=("Exception",)))
    async def work(state: Paying, ctx: Context) -> Update:
        return {"said": str((await ctx.tool(name, check=True)).output)}

    graph = Graph(name="g", state=Paying, nodes={"work": work}, edges="START -> work -> END", output="said")
    async with Executor(graphs=[graph], tools=[rough()]) as executor:
        run = await executor.start(graph, {})
        (question,) = run.waiting
        assert (question.kind, question.payload["why"]) == ("unknown_outcome", "refused")
        assert "gave no result: " in question.prompt

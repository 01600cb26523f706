"""Servers that break the protocol: each call ends right, or in the server's words, and no call is made twice."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator.errors import ToolUnavailable
from orchestrator.tools.mcp import McpToolbox
from tests.support.sizes import quick_on
from tests.tools.mcp import by_hand, odd

pytestmark = pytest.mark.anyio
ODD = Path(__file__).with_name("odd.py")
TEXT = {"type": "text", "text": "paid"}
OBJECT = {"type": "object"}
PAY = {"name": "pay", "inputSchema": OBJECT}
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
NONE = {"error": {"code": -32601, "message": "Method not found"}}


class Row(NamedTuple):
    """What a server says, and what comes of it."""

    says: Mapping[str, Any]
    """What it does at a request of a method, in place of the usual; see `odd.py`."""
    output: str = "paid"
    """Output of the call of `pay`."""
    error: str = ""
    """What the error of the call says."""
    lost: bool = False
    """True if the outcome of the call is unknown."""
    tools: tuple[str, ...] = ("pay",)
    unreachable: str = ""
    """What the error of connecting says."""
    starts: int = 1
    """How often it was started, or greeted."""
    calls: int = 1
    logged: str = ""


def call(*lines: Any) -> dict[str, Any]:
    return {"tools/call": [lines]}


def result(**found: Any) -> dict[str, Any]:
    return call({"result": found})


def listing(*pages: Any) -> dict[str, Any]:
    return {"tools/list": [[{"result": page} if "error" not in page else page] for page in pages]}


def tools(*more: Any) -> dict[str, Any]:
    return listing({"tools": [*more, PAY]})


def discover(*lines: Any, **others: Any) -> dict[str, Any]:
    return {"server/discover": [lines], **others}


STDIO = {
    # -- which generation it speaks
    "it ends at server/discover": Row(discover(1), starts=2),
    "it ends at server/discover without an error": Row(discover(0), starts=2),
    "it writes a trace at server/discover and ends": Row(discover("Traceback: expected initialize", 1), starts=2),
    "it closes its output at server/discover": Row(discover(None), starts=2),
    "it ignores server/discover": Row(discover()),
    "it answers server/discover with method not found": Row({}),
    "it answers server/discover with invalid params": Row(discover({"error": {"code": -32602, "message": "no"}})),
    "it answers server/discover with a code of transports": Row(discover({"error": {"code": -32000, "message": "no"}})),
    "it answers server/discover without its id": Row(discover('{"jsonrpc":"2.0","id":null,"error":{"code":-32600}}')),
    "it answers server/discover with an empty result": Row(discover({"result": {}})),
    "it answers server/discover with a list": Row(discover({"result": []})),
    "it answers server/discover with older versions": Row(discover({"result": {"supportedVersions": ["2025-11-25"]}})),
    "it answers nothing after server/discover": Row(
        {"server/discover": [[]], "initialize": [[]]}, unreachable="did not answer within", starts=2, calls=0
    ),
    "it is stateless": Row(discover({"result": MODERN}, initialize=[[NONE]])),
    "it is stateless and starts slowly": Row({"server/discover": [[], [{"result": MODERN}]], "initialize": [[NONE]]}),
    "it only speaks a later version": Row(
        {
            "server/discover": [[{"error": {"code": -32022, "message": "2031 only", "data": {"supported": ["2031"]}}}]],
            "initialize": [[NONE]],
        },
        unreachable="2031 only",
        calls=0,
    ),
    "it initializes with an unknown version": Row(
        {"initialize": [[{"result": {"protocolVersion": "2031-01-01", "capabilities": {"tools": {}}}}]]},
        logged="the protocol version '2031-01-01', which is unknown",
    ),
    "it initializes with nothing": Row({"initialize": [[{"result": {}}]]}, logged="the protocol version None"),
    "it refuses to initialize": Row(
        {"initialize": [[{"error": {"code": -32000, "message": "No licence"}}]]},
        unreachable="No licence",
        starts=2,
        calls=0,
    ),
    "it has no tools": Row(
        {"initialize": [[{"result": {"protocolVersion": "2025-06-18", "capabilities": {}}}]], "tools/list": [[NONE]]},
        tools=(),
        calls=0,
    ),
    # -- what it lists
    "a tool is null": Row(tools(None), logged="it is not an object"),
    "a tool is a text": Row(tools("pay"), logged="tool 'pay' is left out: it is not an object"),
    "a tool has no schema": Row(tools({"name": "bad"}), logged="tool 'bad' is left out: it has no 'inputSchema'"),
    "a schema is a list": Row(tools({"name": "bad", "inputSchema": []}), logged="its schema is not an object"),
    "a name is a number": Row(tools({"name": 5, "inputSchema": OBJECT}), logged="it has no usable name"),
    "a description is a number": Row(tools({"name": "b", "description": 5, "inputSchema": OBJECT}), tools=("b", "pay")),
    "hints are no object": Row(tools({"name": "b", "annotations": [], "inputSchema": OBJECT}), tools=("b", "pay")),
    "a hint is a text": Row(
        tools({"name": "b", "annotations": {"readOnlyHint": "yes"}, "inputSchema": OBJECT}), tools=("b", "pay")
    ),
    "an output schema is of another type": Row(
        tools({"name": "b", "outputSchema": {"type": "array"}, "inputSchema": OBJECT}), tools=("b", "pay")
    ),
    "icons and execution are texts": Row(
        tools({"name": "b", "icons": "x", "execution": "y", "inputSchema": OBJECT}), tools=("b", "pay")
    ),
    "tools are an object": Row(listing({"tools": {}}), tools=(), calls=0, logged="a page of its tools is not a list"),
    "tools are missing": Row(listing({}), tools=(), calls=0, logged="a page of its tools is not a list"),
    "the second page is an error": Row(
        listing({"tools": [PAY], "nextCursor": "2"}, {"error": {"code": -32603, "message": "Out of memory"}}),
        logged="a page of its tools cannot be listed: Out of memory",
    ),
    "the second page is no list": Row(
        listing({"tools": [PAY], "nextCursor": "2"}, {"tools": 7}), logged="a page of its tools is not a list"
    ),
    "a cursor is a number": Row(listing({"tools": [PAY], "nextCursor": 2})),
    "cursors go in a circle": Row(listing({"tools": [PAY], "nextCursor": "1"}, {"tools": [], "nextCursor": "1"})),
    "it refuses to list": Row(
        listing({"error": {"code": -32093, "message": "Not today"}}), unreachable="Not today", calls=0
    ),
    # -- how it answers a call
    "structured content alone": Row(result(structuredContent={"receipt": 5}), output='{"receipt": 5}'),
    "an unknown block": Row(
        result(content=[TEXT, {"type": "hologram", "size": 3}]),
        output='paid\n{"type": "hologram", "size": 3}',
        logged="a block of a result has an unknown form",
    ),
    "a block without its text": Row(result(content=[{"type": "text"}, TEXT]), output='{"type": "text"}\npaid'),
    "a block is null": Row(result(content=[None, TEXT]), output="null\npaid"),
    "a picture without its type": Row(
        result(content=[{"type": "image", "data": "AAAA"}]), output='{"type": "image", "data": "AAAA"}'
    ),
    "content is null": Row(result(content=None), output=""),
    "content is a text": Row(result(content="paid")),
    "content is one block": Row(result(content=TEXT)),
    "a result is empty": Row(result(), output=""),
    "a result has unknown keys": Row(result(content=[TEXT], ttlMs=-1, cacheScope=7, resultType="odd")),
    "a failure says so in a text": Row(result(content=[TEXT], isError="true"), error="^paid$"),
    "a result is a list": Row(call({"result": [1]}), error="gave no result: its result is not an object"),
    "a result is null": Row(call({"result": None}), error="gave no result: its result is not an object"),
    "a stateless result of an unknown kind": Row(
        discover({"result": MODERN}, **result(content=[TEXT], resultType="odd")), error="of the unknown kind 'odd'"
    ),
    "an error is a text": Row(call({"error": "Quota exceeded"}), error="Quota exceeded$"),
    "a code is a text": Row(call({"error": {"code": "E7", "message": "Quota exceeded"}}), error="Quota exceeded$"),
    "an error without words": Row(call({"error": {"code": 7}}), error=r'\{"code": 7\}$'),
    "an error is null": Row(call({"error": None, "result": {"content": [TEXT]}})),
    "its id is a text": Row(call('{"jsonrpc":"2.0","id":"$ID","result":{"content":[{"type":"text","text":"paid"}]}}')),
    "its id has a point": Row(call('{"id":$ID.0,"result":{"content":[{"type":"text","text":"paid"}]}}')),
    "no version of JSON-RPC": Row(call('{"id":$ID,"result":{"content":[{"type":"text","text":"paid"}]}}')),
    "a batch": Row(call('[{"id":99,"result":{}},{"id":$ID,"result":{"content":[{"type":"text","text":"paid"}]}}]')),
    "a mark of the byte order": Row(call('\ufeff{"id":$ID,"result":{"content":[{"type":"text","text":"paid"}]}}\r')),
    "bytes that are not UTF-8": Row(
        call('LATIN{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"gr\xfcn"}]}}'),
        output="gr\ufffdn",
    ),
    "half of a pair": Row(
        call('{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"a\\ud83d"}]}}'), output="a?"
    ),
    "two answers": Row(call({"result": {"content": [TEXT]}}, {"error": {"code": 1, "message": "no"}})),
    "an answer to another request first": Row(call('{"id":77,"error":"no"}', {"result": {"content": [TEXT]}})),
    "noise on its output": Row(call("Loading...", "", "{", "[1]", '"x"', "null", {"result": {"content": [TEXT]}})),
    "odd notifications": Row(
        call(
            '{"method":"notifications/progress","params":[]}',
            '{"method":"notifications/progress","params":{"progressToken":{},"progress":"x"}}',
            '{"method":"made/up"}',
            '{"method":5}',
            {"result": {"content": [TEXT]}},
        )
    ),
    "a request that nobody knows": Row(
        call('{"jsonrpc":"2.0","id":"s1","method":"made/up"}', {"result": {"content": [TEXT]}})
    ),
    "an answer that is no JSON": Row(call('{"jsonrpc":"2.0","id":$ID,"result":{'), error="its answer cannot be read"),
    "it ends after the call": Row(call(3), error="was lost during the call", lost=True),
    "it closes its output after the call": Row(call(None), error="was lost during the call", lost=True),
    "it answers nothing": Row(call(), error="0.5 s", lost=True),
}  # fmt: skip


@quick_on("asyncio")
@pytest.mark.parametrize("row", STDIO.values(), ids=STDIO.keys())
async def test_over_stdio(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orchestrator.tools.mcp.session.PROBE", 0.3)
    monkeypatch.setattr("orchestrator.tools.mcp.stdio.GRACE", 0.1)
    words = ("-S", str(ODD), str(tmp_path), json.dumps(row.says))
    silent = "did not answer" in row.unreachable
    box = McpToolbox.stdio(sys.executable, *words, timeout=0.5, connect_timeout=2 if silent else 30, backoff=0.01)
    await _check(row, box, caplog)
    assert len((tmp_path / "starts").read_text().split()) == row.starts
    assert _lines(tmp_path / "calls") == row.calls


async def _check(row: Row, box: McpToolbox, caplog: pytest.LogCaptureFixture) -> None:
    if row.unreachable:
        with pytest.raises(ToolUnavailable, match=row.unreachable):
            async with box:
                pass
    else:
        async with box:
            assert tuple(tool.name for tool in box) == row.tools
            assert {tool.risk for tool in box} <= {"dangerous"}
            if row.calls:
                found = await box.execute(name="pay")
                if row.error:
                    assert re.search(row.error, str(found.error)), found
                else:
                    assert (found.output, found.error) == (row.output, None)
                assert ("exception" in found.metadata) is row.lost
    assert row.logged in caplog.text


class Odd(BaseHTTPRequestHandler):
    """A server that does what its row says at a request of a method: `(status, body, headers)`, `drop` or `silence`."""

    protocol_version = "HTTP/1.1"
    says: Mapping[str, Any]
    asked: list[str]
    """Methods, in order."""
    seen: list[str]
    """What was called: the path, and the version in the headers."""
    over: threading.Event

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base class's name

    def do_GET(self) -> None:
        self.say(405)

    def do_DELETE(self) -> None:
        self.say(204)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = asked["method"], asked.get("id")
        if self.says.get("moved") and self.path == "/mcp":
            return self.say(307, location="/mcp/")
        earlier = self.asked.count(method)
        self.asked.append(method)
        if number is None:
            return self.say(202)
        if method == "tools/call":
            self.seen.append(self.headers.get("mcp-protocol-version", ""))
        told = self.says.get(method)
        match told[min(earlier, len(told) - 1)] if told else None:
            case "drop":
                self.close_connection = True
            case "silence":
                self.over.wait(30)
                self.close_connection = True
            case (status, body, headers):
                text = body if isinstance(body, str) else json.dumps(body)
                self.say(status, text.replace("$ID", json.dumps(number)), **headers)
            case _:
                usual = {"jsonrpc": "2.0", "id": number, **odd.USUAL.get(method, NONE)}
                self.say(200, json.dumps(usual))
        return None

    def say(self, status: int, text: str = "", **headers: str | None) -> None:
        data = text.encode()
        self.send_response(status)
        usual = {"content_type": "application/json", "content_length": str(len(data)), "mcp_session_id": "s1"}
        for name, value in {**usual, **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)


PAID = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"paid"}]}}'
REFUSED = '{"jsonrpc":"2.0","id":$ID,"error":{"code":-32093,"message":"Quota exceeded"}}'
OAUTH = {"error": "invalid_token", "error_description": "Missing access token"}


def answered(body: Any = PAID, status: int = 200, **headers: str | None) -> dict[str, Any]:
    return {"tools/call": [(status, body, headers)]}


def events(*data: str, **headers: str) -> dict[str, Any]:
    text = "".join(one if one.startswith(":") else f"data: {one}\n\n" for one in data)
    return answered(text, content_type="text/event-stream", **headers)


def probed(*told: Any, **others: Any) -> dict[str, Any]:
    return {"server/discover": [*told], **others}


HTTP = {
    # -- which generation it speaks, and connecting
    "it answers server/discover with 400": Row(probed((400, "", {}))),
    "it answers server/discover with 404": Row(probed((404, "Not Found", {"content_type": "text/plain"}))),
    "it answers server/discover with 405": Row(probed((405, {"detail": "no"}, {}))),
    "it answers server/discover with 500": Row(probed((500, "<html>oops</html>", {"content_type": "text/html"}))),
    "it answers server/discover with a page": Row(probed((200, "<html>hello</html>", {"content_type": "text/html"}))),
    "it drops server/discover": Row(probed("drop")),
    "it holds server/discover": Row(probed("silence")),
    "it is stateless": Row(
        probed((200, {"jsonrpc": "2.0", "id": 1, "result": MODERN}, {"mcp_session_id": None})),
        starts=0,
    ),
    "it wants a token": Row(
        probed((401, OAUTH, {}), initialize=[(401, OAUTH, {})]),
        unreachable='HTTP 401: {"error": "invalid_token", "error_description": "Missing access token"}',
        calls=0,
    ),
    "it forbids": Row(
        probed((403, REFUSED, {}), initialize=[(403, REFUSED, {})]), unreachable="HTTP 403: Quota exceeded", calls=0
    ),
    "it fails at connecting": Row(
        {"initialize": [(500, {"detail": "no disk"}, {})]}, unreachable='HTTP 500: {"detail": "no disk"}', calls=0
    ),
    "it is elsewhere": Row(
        {"initialize": [(308, "", {"location": "http://127.0.0.1:9/mcp"})]},
        unreachable="it redirects to http://127.0.0.1:9/mcp; if that is the server, use this address",
        calls=0,
    ),
    "it has no session": Row({"initialize": [(200, {"jsonrpc": "2.0", "id": "$ID", **odd.USUAL["initialize"]}, {})]}),
    # -- what it answers
    "another media type": Row(answered(content_type="text/plain")),
    "no media type": Row(answered(content_type=None)),
    "the id of another request": Row(answered(PAID.replace("$ID", "99"))),
    "no id": Row(answered(PAID.replace("$ID", "null"))),
    "many lines": Row(answered(PAID.replace(",", ",\r\n"))),
    "a batch": Row(answered(f"[{PAID}]")),
    "a result with 500": Row(answered(status=500)),
    "a result with 201": Row(answered(status=201)),
    "accepted": Row(answered("", 202), error="202 Accepted"),
    "an empty body": Row(answered(""), error="gave no result: its answer is not a message of JSON-RPC$"),
    "a page": Row(
        answered("<html>Sign in</html>", content_type="text/html"), error="its answer is not a message of JSON-RPC$"
    ),
    "a text": Row(answered("out of order", content_type=None), error="is not a message of JSON-RPC: out of order"),
    "a result that is a list": Row(answered({"id": 1, "result": []}), error="its result is not an object"),
    "an error with 500": Row(answered(REFUSED, 500), error="Quota exceeded$"),
    "an error with 401": Row(answered(REFUSED, 401), error="HTTP 401: Quota exceeded$"),
    "an error that is a text": Row(answered({"jsonrpc": "2.0", "error": "Quota exceeded"}), error="Quota exceeded$"),
    "401 with words": Row(answered(OAUTH, 401), error='HTTP 401: {"error": "invalid_token"'),
    "403 with words": Row(answered({"error": {"message": "Not yours"}}, 403), error='HTTP 403: {"error": {"message"'),
    "429 with words": Row(answered({"error": "slow down"}, 429), error='HTTP 429: {"error": "slow down"}'),
    "500 with words": Row(answered({"error": "oops"}, 500), error=r'lost .* HTTP 500: {"error": "oops"}', lost=True),
    "503": Row(answered("", 503), error="HTTP 503"),
    "it drops the call": Row({"tools/call": ["drop"]}, error="the connection broke", lost=True),
    "it holds the call": Row({"tools/call": ["silence"]}, error="2 s", lost=True),
    "half a body": Row(answered(content_length="9999", connection="close"), error="the connection broke", lost=True),
    "no gzip": Row(answered(content_encoding="gzip"), error="its answer cannot be read"),
    "another place on the same host": Row({"moved": True}),
    "another host": Row(answered("", 307, location="http://127.0.0.1:9/"), error="it redirects to http://127.0.0.1:9/"),
    "another place, with 303": Row(answered("", 303, location="/done"), error="Redirect to .*/done not followed"),
    "the session is lost with 404": Row(
        {"tools/call": [(404, "", {}), (200, PAID, {})]}, starts=2, calls=2
    ),
    "the session is lost with 400": Row(
        {"tools/call": [(400, {"error": {"message": "Invalid session ID"}}, {}), (200, PAID, {})]}, starts=2, calls=2
    ),
    "each session is lost": Row({"tools/call": [(404, "", {})]}, error="it closes every connection", starts=2, calls=2),
    # -- streams of events
    "events": Row(events(": hello\n\n", "", "noise", '{"method":"made/up"}', PAID)),
    "an event of another type": Row(answered(f"event: response\ndata: {PAID}\n\n", content_type="text/event-stream")),
    "events that name another request": Row(events(PAID.replace("$ID", "99"))),
    "a batch of events": Row(events(f'[{{"method":"made/up"}},{PAID}]')),
    "an error that is a text, as an event": Row(events('{"id":$ID,"error":"Quota exceeded"}'), error="Quota exceeded$"),
    "events that end": Row(events(": nothing\n\n"), error="was lost during the call", lost=True),
}  # fmt: skip


@quick_on("asyncio")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves its generators open
@pytest.mark.parametrize("row", HTTP.values(), ids=HTTP.keys())
async def test_over_http(row: Row, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("orchestrator.tools.mcp.session.PROBE", 0.3)
    over = threading.Event()
    kind = type("Own", (Odd,), {"says": row.says, "asked": [], "seen": [], "over": over})
    with by_hand.served(kind) as url:
        try:
            await _check(row, McpToolbox.http(url, timeout=2, backoff=0.01), caplog)
        finally:
            over.set()
    assert len(kind.seen) == row.calls
    assert set(kind.seen) <= {"2026-07-28" if row.starts == 0 else "2025-06-18"}
    if not row.unreachable:
        assert kind.asked.count("initialize") == row.starts


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0

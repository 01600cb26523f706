"""Servers over streamable HTTP that are written by hand: they answer as no SDK would."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

KindT = TypeVar("KindT", bound="ByHand")


class ByHand(BaseHTTPRequestHandler):
    """A server of 2025-06-18 that keeps connections. A subclass names its tools, and answers their calls."""

    protocol_version = "HTTP/1.1"
    tools: tuple[str, ...] = ()
    seen: list[Any]
    """What was called, as the subclass notes it."""
    sessions = 0
    valid = ""
    unknown: tuple[Any, ...] = (404,)
    """The answer to a session that it does not know."""

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base class's name

    def say(self, status: int, body: object = None, kind: str = "application/json", **headers: str) -> None:
        """Send a response."""
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
        self.say(405)

    def do_DELETE(self) -> None:
        self.say(204)

    def do_POST(self) -> None:
        kind = type(self)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = asked["method"], asked.get("id")
        if method == "server/discover":
            return self.say(400)
        if method == "initialize":
            kind.sessions += 1
            kind.valid = f"s{kind.sessions}"
            about = {"name": "by hand", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            return self.say(200, {"jsonrpc": "2.0", "id": number, "result": result}, **{"mcp-session-id": kind.valid})
        if self.headers.get("mcp-session-id") != kind.valid:
            return self.say(*kind.unknown)
        if number is None:
            return self.say(202)
        if method == "tools/list":
            schema = {"type": "object", "additionalProperties": True}
            result = {"tools": [{"name": name, "inputSchema": schema} for name in self.tools]}
            return self.say(200, {"jsonrpc": "2.0", "id": number, "result": result})
        return self.call({"jsonrpc": "2.0", "id": number}, asked["params"])

    def call(self, answer: Mapping[str, object], params: Mapping[str, Any]) -> None:
        """Answer the call of a tool."""
        raise NotImplementedError


@contextmanager
def serving(base: type[KindT]) -> Iterator[tuple[str, type[KindT]]]:
    """The address of a server, and its class, which nothing else uses."""
    kind = type("Own", (base,), {"seen": []})
    with served(kind) as url:
        yield url, kind


@contextmanager
def served(kind: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join(60)

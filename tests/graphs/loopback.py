"""A real HTTP server on this machine that speaks chat completions, and says what a script says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Loopback:
    """Where it listens, and every request that it got."""

    replies: list[str]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def loopback(replies: Sequence[str]) -> Iterator[Loopback]:
    """Serve these replies, one after the other, on a free port."""
    script = Loopback(list(replies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: two would wait for each other's acknowledgement

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append({"path": self.path, **request})
            if not script.replies:
                self._send(500, {"error": {"message": "no reply is left"}})
                return
            text = script.replies.pop(0)
            words = sum(len(message["content"].split()) for message in request["messages"])
            usage = {"prompt_tokens": words, "completion_tokens": len(text.split())}
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            self._send(
                200,
                {
                    "id": f"chatcmpl-{len(script.requests)}", "object": "chat.completion", "created": 0,
                    "model": request["model"], "choices": [choice],
                    "usage": {**usage, "total_tokens": sum(usage.values())},
                },
            )  # fmt: skip

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)

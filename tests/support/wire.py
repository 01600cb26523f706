"""A real HTTP server on this machine that answers chat completions byte for byte as a test says, faults included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any


@dataclass(frozen=True)
class Raw:
    """An answer as it goes over the wire."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    """Bytes that are promised beside the body and never sent: the connection is closed instead."""
    silent: bool = False
    """Close the connection without a word."""
    hangs: bool = False
    """Say nothing (more) until the client goes away or the server is closed."""
    parts: Sequence[bytes] = ()
    """A stream: these, each sent by itself, instead of the body."""
    gap: float = 0.0
    """Seconds between two of them."""


@dataclass(frozen=True)
class Seen:
    """A request of a client."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    port: int
    """The client's, so its connection."""


@dataclass
class Wire:
    """The server's answers, in order, or a function that answers every request; and the requests that came."""

    answers: list[Raw | Mapping[str, Any]] | Callable[[Seen], Raw | Mapping[str, Any]]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    closed: Event = field(default_factory=Event)
    left: Event = field(default_factory=Event)
    """A client went away from an answer that hangs."""
    lock: Any = field(default_factory=Lock)

    def next(self, seen: Seen) -> Raw:
        with self.lock:
            self.seen.append(seen)
            answers = self.answers
            found = None if callable(answers) else answers.pop(0) if answers else refused(500, "no answer is left")
        if callable(answers):
            found = answers(seen)
        assert found is not None
        return found if isinstance(found, Raw) else Raw(json.dumps(found).encode())


def said(message: Mapping[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """Return a chat completion with this message, or with this text."""
    written = {"role": "assistant", "content": message} if isinstance(message, str) else dict(message)
    choice = {"index": 0, "finish_reason": "tool_calls" if written.get("tool_calls") else "stop", "message": written}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **fields}


def called(*calls: Mapping[str, Any], content: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a chat completion that makes these calls."""
    return said({"role": "assistant", "content": content, "tool_calls": list(calls)}, **fields)


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a piece of a streamed chat completion."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice],
            **fields}  # fmt: skip


def sse(*chunks: Mapping[str, Any] | str, done: bool = True) -> bytes:
    """Return pieces as server-sent events; a string is the data of one, unchanged."""
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, *(["[DONE]"] if done else [])]).encode()


def streamed(*chunks: Mapping[str, Any] | str, done: bool = True, **how: Any) -> Raw:
    """Return an answer with these events, all in one packet."""
    return Raw(parts=[sse(*chunks, done=done)], **how)


def told(text: str, **how: Any) -> Raw:
    """Return a complete answer that streams a text, character by character."""
    return streamed(chunk({"role": "assistant", "content": ""}), *(chunk({"content": sign}) for sign in text),
                    chunk(finish="stop"), **how)  # fmt: skip


def refused(status: int, message: str, code: object = None, **headers: str) -> Raw:
    """Return an error as OpenAI writes it."""
    body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}})
    return Raw(body.encode(), status, {name.replace("_", "-"): value for name, value in headers.items()})


@contextmanager
def served(*answers: Raw | Mapping[str, Any] | Callable[[Seen], Raw | Mapping[str, Any]]) -> Iterator[Wire]:
    """Serve these answers, or those of one function, on a free port of 127.0.0.1."""
    first = answers[0] if answers else None
    wire = Wire(first if callable(first) else list(answers))  # type: ignore[arg-type]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: two would wait for each other's acknowledgement

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
            answer = wire.next(Seen(self.path, headers, body, self.client_address[1]))
            if answer.parts:
                self.stream(answer)
                return
            if answer.hangs:
                self.hang()
            if answer.silent or answer.hangs:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body) + answer.missing))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = self.close_connection or answer.missing > 0

        def stream(self, answer: Raw) -> None:
            self.send_response(answer.status)
            for name, value in {"Content-Type": "text/event-stream", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in answer.parts:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.flush()
                if answer.gap:
                    wire.closed.wait(answer.gap)
            if answer.hangs:
                self.hang()
            if answer.silent or answer.hangs:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def hang(self) -> None:
            self.connection.settimeout(0.02)
            while not wire.closed.is_set():
                try:
                    if not self.connection.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            wire.left.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Write no log."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128  # many may come at once

        def handle_error(self, *_: object) -> None:
            """Ignore errors: clients that close the connection are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    wire.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield wire
    finally:
        wire.closed.set()
        server.shutdown()
        server.server_close()
        thread.join(60)

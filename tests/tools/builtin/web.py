"""A real HTTP server on this machine that gives what a table says, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias

Answer: TypeAlias = tuple[int, dict[str, str], bytes]


@dataclass
class Web:
    """Where it listens, what it gives, and what it was asked for."""

    pages: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address, without a slash behind."""
        return f"http://{self.host}:{self.port}"

    def page(self, path: str, body: str | bytes, kind: str = "text/html", status: int = 200, **headers: str) -> str:
        """Give something under a path, whose whole address is returned."""
        data = body.encode() if isinstance(body, str) else body
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (status, {"Content-Type": kind, **more}, data)
        return self.url + path

    def moved(self, path: str, to: str, status: int = 302) -> str:
        """Lead from a path to elsewhere."""
        return self.page(path, "", status=status, Location=to)


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Web]:
    """A server on a free port."""
    web = Web(host=host)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet: two would wait for each other's acknowledgement

        def do_GET(self) -> None:
            web.asked.append(self.path)
            web.headers.append({name.lower(): value for name, value in self.headers.items()})
            found = web.pages.get(self.path.partition("?")[0], (404, {"Content-Type": "text/plain"}, b"nothing here"))
            with suppress(ConnectionError):  # who has enough goes away
                if callable(found):
                    found(self)
                    return
                status, headers, data = found
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of who went away."""

    server = Server((host, 0), Handler)
    web.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)

"""A collector of traces on this machine: it takes what the OTLP exporter sends over HTTP, hangs, or refuses."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Literal

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What a collector received."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    asked: Event = field(default_factory=Event)
    """Set once something was sent to it."""

    def named(self, name: str) -> list[Span]:
        """The spans with a name, in the order of their starts."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time_unix_nano)


@contextmanager
def collecting(how: Literal["takes", "hangs", "refuses"] = "takes") -> Iterator[Collector]:
    """Run a collector on a free port of 127.0.0.1."""
    found, released = Collector(), Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.asked.set()
            if how == "hangs":
                released.wait(60)
                return
            if how == "takes" and self.path.endswith("traces"):
                data = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                request = ExportTraceServiceRequest.FromString(data)
                scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
                found.spans.extend(span for scope in scopes for span in scope.spans)
            self.send_response(200 if how == "takes" else 400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield found
        finally:
            released.set()
            server.shutdown()
            thread.join()

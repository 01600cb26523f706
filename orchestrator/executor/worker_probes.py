"""The probes and metrics of a worker by HTTP: a small server in a thread of its own.

A thread of its own answers also while the event loop of the worker is blocked, which is what `/healthz` is asked for.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from orchestrator.distribution import install

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client.core import Metric

    from orchestrator.executor.worker_health import WorkerHealth

_PATIENCE = 5.0
"""Seconds for which a client may be silent."""
_MOST = 16
"""Clients that are answered at the same time. A probe takes milliseconds: the longest connected client is hung up on
when another one comes, so that silent or slow ones neither fill the process with threads nor keep probes from it."""
_TEXT = "text/plain; charset=utf-8"


@contextmanager
def serve(health: WorkerHealth, host: str, port: int) -> Iterator[int]:
    """See `WorkerHealth.serving`."""
    with make_server(host, port, application(health), server_class=_Server, handler_class=_Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="health", daemon=True
        )
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST)
        self._lock = threading.Lock()
        self._clients: dict[socket, None] = {}
        """Those that are being answered, the longest connected first."""
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread, when fewer than the most are answered."""
        if not self._free.acquire(blocking=False):
            with self._lock, suppress(OSError):
                for longest in [*self._clients][:1]:
                    longest.shutdown(SHUT_RDWR)  # its thread meets the end of the connection
            if not self._free.acquire(timeout=_PATIENCE):
                self.shutdown_request(request)
                return
        with self._lock:
            self._clients[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread that would do it
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See `ThreadingMixIn`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, request: socket) -> None:
        with self._lock:
            self._clients.pop(request, None)
        self._free.release()

    def server_bind(self) -> None:
        # not that of `HTTPServer`, which looks the host's name up in the DNS
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Write nothing of a client that was silent or hung up, as load balancers do; of any other error, all."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the standard library
        """Write no line for each probe."""


def application(health: WorkerHealth) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """The probes as a WSGI application."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        kind, status, body = _TEXT, "200 OK", "ok\n"
        if path not in ("/healthz", "/readyz", "/metrics"):
            status, body = "404 Not Found", "there are /healthz, /readyz and /metrics\n"
        elif method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", "use GET\n"
        elif path == "/metrics":
            status, kind, body = _metrics(health)
        else:
            reason = health.liveness() if path == "/healthz" else health.readiness()
            if reason:
                status, body = "503 Service Unavailable", f"{reason}\n"
        data = body.encode()
        start(status, [("Content-Type", kind), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")])
        return [] if method == "HEAD" else [data]

    return answer


def _metrics(health: WorkerHealth) -> tuple[str, str, str]:
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST
    except ImportError:
        return "404 Not Found", _TEXT, f"metrics need the extra `metrics`: {install('metrics')}\n"
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(health))
    return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry).decode()


class _Collector:
    """What the worker counted, as metrics of Prometheus. Labels have the names of its graphs and statuses alone."""

    def __init__(self, health: WorkerHealth) -> None:
        self._health = health

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: the registry is made for one answer."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Make the metrics of this moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        health, counts = self._health, self._health.counts
        by_graph: list[tuple[Any, str, str, dict[str, int]]] = [
            (CounterMetricFamily, "runs_taken", "Runs that this worker took up.", counts.taken),
            (CounterMetricFamily, "runs_given_up", "Drives that stopped because of an error.", counts.given_up),
            (GaugeMetricFamily, "runs_driving", "Runs that this worker drives now.", counts.driving),
        ]
        for family, name, text, numbers in by_graph:
            found = family(_PREFIX + name, text, labels=["graph"])
            for graph in sorted(health.graphs):
                found.add_metric([graph], numbers.get(graph, 0))
            yield found
        ended = CounterMetricFamily(
            f"{_PREFIX}runs_ended", "Drives that ended, by the run's status then.", labels=["graph", "status"]
        )
        for (graph, status), count in sorted(counts.ended.copy().items()):
            if graph in health.graphs:
                ended.add_metric([graph, status], count)
        yield ended
        yield GaugeMetricFamily(f"{_PREFIX}slots", "Runs that this worker drives at most.", value=health.slots)
        yield GaugeMetricFamily(f"{_PREFIX}ready", "1 while the worker takes runs.", value=not health.readiness())
        yield GaugeMetricFamily(f"{_PREFIX}runs_parked", "Parked runs of the store.", value=counts.parked)
        yield CounterMetricFamily(f"{_PREFIX}store_errors", "Failures of the store.", value=counts.store_errors)
        age = health.beat_age
        if age is not None:
            yield GaugeMetricFamily(f"{_PREFIX}heartbeat_age_seconds", "Time since the last heartbeat.", value=age)
        total, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, health.claim_buckets), "+Inf"), list(counts.claims), strict=True):
            total += count
            buckets.append((bound, total))
        yield HistogramMetricFamily(
            f"{_PREFIX}claim_seconds", "How long claims took.", buckets=buckets, sum_value=counts.claim_seconds
        )


_PREFIX = "orchestrator_worker_"

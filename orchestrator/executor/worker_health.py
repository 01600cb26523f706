"""The health of a worker and its counters, for probes and metrics. Threads may read them at any time."""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunConflict, install_command

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client.core import Metric


CLAIM_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Seconds: upper bounds of the classes of a histogram of claim durations."""


@dataclass(slots=True)
class WorkerCounts:
    """Counters of a worker since it started, by graph name."""

    taken: Counter[str] = field(default_factory=Counter)
    """Number of runs taken."""
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Drives that ended, by graph and the run's status at that time."""
    given_up: Counter[str] = field(default_factory=Counter)
    """Drives that stopped with an error."""
    driving: Counter[str] = field(default_factory=Counter)
    """Runs that are driven now."""
    store_errors: int = 0
    """Failures of the store that the worker met."""
    claims: list[int] = field(default_factory=lambda: [0] * (len(CLAIM_BUCKETS) + 1))
    """Claims, by how long they took: one class for each of `CLAIM_BUCKETS`, and one for longer ones."""
    claim_seconds: float = 0.0
    """The sum of these durations."""
    parked: int = 0
    """Parked runs of the store, at most 1,000."""


class WorkerHealth:
    """Probes and metrics of one call of `Executor.work(health=)`.

        health = WorkerHealth()
        with health.serving("127.0.0.1", 9090):
            await executor.work(health=health)

    Attributes:
        counts: counters of its work.
        graphs: its graphs; only these names become labels of metrics.
        slots: number of runs that it drives at the same time.
    """

    def __init__(self) -> None:
        self.counts = WorkerCounts()
        self.graphs: frozenset[str] = frozenset()
        self.claim_buckets = CLAIM_BUCKETS
        self.slots = 0
        self.delivery_slots = 0
        """Additional slots, for runs that an engine delivers."""
        self.asked = False
        """True if probes are served, so that the worker also checks the store while it is idle."""
        self._ttl = 30.0
        self._turned: float | None = None
        """Time of the event loop's last turn, by the steady clock; None: the worker is not running."""
        self._asked: float | None = None
        """Time at which a pending request to the store started; None if there is none."""
        self._answered: float | None = None
        self._beat: float | None = None
        self._failure = ""
        self._draining = False

    # -- questions of probes -------------------------------------------------------------------------------------

    def liveness(self) -> str:
        """Return why the worker should be restarted; empty if it should not.

        A failing store is not a reason: a restart would not help, and would interrupt runs. Draining is not one either.
        """
        if self._turned is None:
            return "the worker has stopped"
        silent = SYSTEM_CLOCK.steady() - self._turned
        if silent > self._ttl:
            return f"the event loop has been blocked for {silent:.0f} s: a node computes or waits without `await`"
        return ""

    def readiness(self) -> str:
        """Return why the worker takes no runs now; empty if it takes them."""
        reason = self.liveness()
        if reason:
            return reason
        if self._draining:
            return "the worker is draining: it was asked to stop"
        now = SYSTEM_CLOCK.steady()
        if self._asked is not None and now - self._asked > self._ttl / 3:
            return f"the store has not answered for {now - self._asked:.0f} s"
        if self._failure:
            return f"the store fails: {self._failure}"
        if self._answered is None:
            return "the store has not answered yet"
        age = self.beat_age
        if age is not None and age > self._ttl:
            return f"the last heartbeat was {age:.0f} s ago: leases have expired"
        return ""

    @property
    def beat_age(self) -> float | None:
        """Return the seconds since the last heartbeat that the store accepted; None if there was none yet."""
        return None if self._beat is None else max(0.0, SYSTEM_CLOCK.steady() - self._beat)

    @contextlib.contextmanager
    def serving(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
        """Serve `/healthz`, `/readyz` and `/metrics` by HTTP, in a thread of its own, until the block ends.

        Args:
            host: the address to listen on.
            port: the port; 0: a free one.

        Returns:
            The port, as the value of the `with` statement.

        Raises:
            OSError: the address cannot be used.
        """
        with _serve(self, host, port) as bound:
            self.asked = True
            yield bound

    # -- records of the worker -----------------------------------------------------------------------------------

    def begin(self, graphs: Collection[str], slots: int, ttl: float) -> None:
        """Record that the worker starts."""
        self.graphs, self.slots, self._ttl, self._draining = frozenset(graphs), slots + self.delivery_slots, ttl, False
        self.turn(None)

    def turn(self, beat: float | None) -> None:
        """Record a turn of the event loop. `beat`: time of the last heartbeat, by the steady clock."""
        self._turned = SYSTEM_CLOCK.steady()
        if beat is not None:
            self._beat = beat

    def drain(self) -> None:
        """Record that the worker takes no more runs."""
        self._draining = True

    def end(self) -> None:
        """Record that the worker has ended."""
        self._turned = None

    def ask(self) -> None:
        """Record the start of a request to the store."""
        self._asked = SYSTEM_CLOCK.steady()

    def answer(self) -> None:
        """Record that the store answered."""
        self._answered, self._asked, self._failure = SYSTEM_CLOCK.steady(), None, ""

    def fail(self, error: Exception) -> None:
        """Record a failure. Keeps only the class of the error, since its message may contain secrets."""
        self._asked, self._failure = None, type(error).__name__
        self.counts.store_errors += 1

    def claim(self, seconds: float) -> None:
        """Record how long a claim took."""
        self.counts.claims[bisect.bisect_left(CLAIM_BUCKETS, seconds)] += 1
        self.counts.claim_seconds += seconds

    @contextlib.contextmanager
    def counting(self, graph: str) -> Iterator[Callable[[str], None]]:
        """Count a drive. The `with` statement's value is called with the run's status at the end of the drive."""
        statuses: list[str] = []
        given_up = False
        self.take(graph)
        try:
            yield statuses.append
        except Exception as error:
            given_up = not isinstance(error, RunConflict)
            raise
        finally:
            self.leave(graph, statuses[-1] if statuses else None, given_up=given_up)

    def take(self, graph: str) -> None:
        """Record that a run was taken."""
        self.counts.taken[graph] += 1
        self.counts.driving[graph] += 1

    def leave(self, graph: str, status: str | None, *, given_up: bool) -> None:
        """Record that a run is no longer driven. `status`: its status; None: it was lost, or given up."""
        self.counts.driving[graph] -= 1
        if status is not None:
            self.counts.ended[graph, status] += 1
        if given_up:
            self.counts.given_up[graph] += 1


_PATIENCE = 5.0
"""Seconds for which a client may send nothing."""
_MOST = 16
"""Maximum number of clients answered at the same time. A probe takes milliseconds: when another client comes, the
longest connected one is disconnected, so that silent or slow ones neither fill the process with threads nor block
probes.
"""
_TEXT = "text/plain; charset=utf-8"


@contextmanager
def _serve(health: WorkerHealth, host: str, port: int) -> Iterator[int]:
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
        """Connections in progress, the longest connected first."""
        super().__init__(*args, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a client in a thread, when fewer than the maximum are in progress."""
        if not self._free.acquire(blocking=False):
            with self._lock, suppress(OSError):
                for longest in [*self._clients][:1]:
                    longest.shutdown(SHUT_RDWR)  # its thread notices the end of the connection
            if not self._free.acquire(timeout=_PATIENCE):
                self.shutdown_request(request)
                return
        with self._lock:
            self._clients[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread would close it
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
        # not that of `HTTPServer`, which looks up the host's name in the DNS
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Write nothing about clients that were silent or disconnected, as load balancers do; report other errors."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the standard library
        """Write no line for each probe."""


def application(health: WorkerHealth) -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """Return the probes as a WSGI application."""

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
        return "404 Not Found", _TEXT, f"metrics need the extra `metrics`: {install_command('metrics')}\n"
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(health))
    return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry).decode()


class _Collector:
    """Counters of the worker as Prometheus metrics. Labels contain only names of its graphs and statuses."""

    def __init__(self, health: WorkerHealth) -> None:
        self._health = health

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: the registry is made for one answer."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Make the current metrics."""
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

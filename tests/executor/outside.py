"""What a run touches outside of itself: a real HTTP server in this process that remembers who asked for what."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Moment = Callable[[], object]


@dataclass(frozen=True)
class Asked:
    """One request for something to be done."""

    life: str
    """Which process asked."""
    what: str
    """`model`, or the name of a tool, an effect or a node."""
    key: str
    """Of a tool or an effect its idempotency key, of a model the prompt."""
    began: float = field(compare=False)
    """When the function that asks was called, Unix seconds. What is stopped, or lost and sent again, on its way from
    there arrives later, and nothing in the process that asks can change that."""
    at: float = field(default_factory=time.time, compare=False)
    """When it arrived, by the same clock."""


def now() -> float:
    """Unix seconds, also in a process that was given a wrong clock."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def ask(url: str, *, began: float | None = None, **body: object) -> Any:
    """Ask the server, and wait for what it says.

    Args:
        began: see `Asked.began`; None: now.

    Raises:
        ConnectionError: it says that it cannot.
    """
    body["began"] = now() if began is None else began
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["result"]
    except urllib.error.HTTPError as error:
        error.close()
        raise ConnectionError(f"status {error.code}") from None


class Outside(ThreadingHTTPServer):
    """Does things: its results follow from what is asked alone. Counts every request when it arrives."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, seed: int = 0, slowest: float = 0.01, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Handler)
        self.url = f"http://{address}:{self.server_address[1]}/"
        self.asked: list[Asked] = []
        self.results: dict[str, Any] = {}
        """What was done, by key."""
        self.gates: dict[str, threading.Event] = {}
        """Requests for `what` get their answers when its gate is opened."""
        self.slowest = slowest
        self._random = random.Random(seed)
        self._lock = threading.Condition()
        self._busy = 0
        self._moments: dict[str, tuple[int, Moment]] = {}

    def close(self, what: str) -> threading.Event:
        """Let nothing of this kind be answered until the gate that this gives is opened."""
        gate = self.gates[what] = threading.Event()
        return gate

    def forget(self) -> None:
        """Nothing was ever asked for."""
        with self._lock:
            self.asked.clear()
            self.results.clear()

    def count(self, what: str) -> int:
        """How many requests there were for it."""
        with self._lock:
            return sum(asked.what == what for asked in self.asked)

    def arrived(self, what: str, number: int = 1, seconds: float = 20) -> None:
        """Wait until so many requests for it were made; blocks."""
        with self._lock:
            if not self._lock.wait_for(lambda: sum(one.what == what for one in self.asked) >= number, seconds):
                raise AssertionError(f"{number} requests for {what!r} never came; there were {self.asked}")

    def crowded(self, what: str, number: int, after: int = 0, seconds: float = 20) -> str | None:
        """Wait until one process made so many requests for it after the first `after`; which one. None: none did."""

        def most() -> tuple[int, str]:
            lives = Counter(asked.life for asked in self.asked[after:] if asked.what == what)
            return max(((times, life) for life, times in lives.items()), default=(0, ""))

        with self._lock:
            self._lock.wait_for(lambda: most()[0] >= number, seconds)
            times, life = most()
            return life if times >= number else None

    def at(self, phase: str, number: int, moment: Moment | None) -> None:
        """Call `moment` when the request after the next `number` ones is `asked` or `answered`; None: never."""
        with self._lock:
            self._moments.clear()
            if moment is not None:
                self._moments[phase] = (number, moment)

    def settle(self) -> None:
        """Wait until every request of processes that are gone has been counted."""
        ask(self.url, what="settle")  # accepted after all that were made before

    # -- serving ---------------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._busy += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A process that was killed hears no answer."""

    def answer(self, body: dict[str, Any]) -> tuple[int, object]:
        """Do what is asked: HTTP status and result."""
        what, key = body["what"], body.get("key", "")
        if what == "settle":
            with self._lock:
                assert self._lock.wait_for(lambda: self._busy == 1, 20)
            return 200, None
        if what == "known":
            with self._lock:
                return 200, self.results.get(key)
        with self._lock:
            self.asked.append(Asked(body.get("life", ""), what, key, body["began"]))
            self._lock.notify_all()
            if body.get("fails"):
                return 503, None
            result = self.results[key] = f"{what}({body.get('args', '')})"
            seconds = self._random.uniform(0, self.slowest)
        self.reached("asked")
        gate = self.gates.get(what)
        if gate is not None:
            gate.wait(60)
        time.sleep(seconds)
        return 200, result

    def reached(self, phase: str) -> None:
        """A request is at this point: is it the moment?"""
        with self._lock:
            number, moment = self._moments.get(phase, (0, None))
            if moment is None:
                return
            if number:
                self._moments[phase] = (number - 1, moment)
                return
            del self._moments[phase]
        moment()


class _Handler(BaseHTTPRequestHandler):
    server: Outside

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, result = self.server.answer(body)
        data = json.dumps({"result": result}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        if body["what"] not in ("settle", "known"):
            self.server.reached("answered")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        """Say nothing."""


@contextmanager
def outside(seed: int = 0, slowest: float = 0.01, address: str = "127.0.0.1") -> Iterator[Outside]:
    """A server on a free port of an address."""
    server = Outside(seed, slowest, address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        for gate in server.gates.values():
            gate.set()
        server.shutdown()
        server.server_close()
        thread.join(60)

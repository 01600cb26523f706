"""Whether a worker is well, and what it did: for probes and metrics, which threads may ask for at any time."""

from __future__ import annotations

import bisect
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunConflict

CLAIM_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Seconds: upper bounds of the classes in which durations of claims are counted."""


@dataclass(slots=True)
class WorkerCounts:
    """What a worker did since it began, by the names of its graphs."""

    taken: Counter[str] = field(default_factory=Counter)
    """Runs that were taken up."""
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Drives that came to an end, by graph and the run's status then."""
    given_up: Counter[str] = field(default_factory=Counter)
    """Drives that stopped because of an error."""
    driving: Counter[str] = field(default_factory=Counter)
    """Runs that are driven now."""
    store_errors: int = 0
    """Failures of the store that the worker met."""
    claims: list[int] = field(default_factory=lambda: [0] * (len(CLAIM_BUCKETS) + 1))
    """Claims, by how long they took: one class for each of `CLAIM_BUCKETS`, and one for longer ones."""
    claim_seconds: float = 0.0
    """The sum of these durations."""
    parked: int = 0
    """Parked runs of the store, 1,000 at most."""


class WorkerHealth:
    """Probes and metrics of one call of `Executor.work(health=)`.

        health = WorkerHealth()
        with health.serving("127.0.0.1", 9090):
            await executor.work(health=health)

    Attributes:
        counts: what the worker did.
        graphs: its graphs; only these names become labels of metrics.
        slots: how many runs it drives at the same time.
    """

    def __init__(self) -> None:
        self.counts = WorkerCounts()
        self.graphs: frozenset[str] = frozenset()
        self.claim_buckets = CLAIM_BUCKETS
        self.slots = 0
        self.delivery_slots = 0
        """Further slots, for runs that an engine delivers."""
        self.asked = False
        """Whether probes are served, so that the worker asks the store also while it rests."""
        self._ttl = 30.0
        self._turned: float | None = None
        """When the event loop had its turn last, by the steady clock; None: the worker does not work."""
        self._asked: float | None = None
        """Since when a question to the store is open."""
        self._answered: float | None = None
        self._beat: float | None = None
        self._failure = ""
        self._draining = False

    # ------------------------------------------------------------------------------- asked

    def liveness(self) -> str:
        """Why the worker should be restarted; empty: it should not.

        A store that fails is no reason: a restart mends nothing and interrupts runs. Neither is draining.
        """
        if self._turned is None:
            return "the worker does not work"
        silent = SYSTEM_CLOCK.steady() - self._turned
        if silent > self._ttl:
            return f"the event loop has been blocked for {silent:.0f} s: a node computes or waits without `await`"
        return ""

    def readiness(self) -> str:
        """Why the worker takes no runs now; empty: it takes them."""
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
        """Seconds since the last heartbeat that the store took; None: there was none yet."""
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
        from orchestrator.executor.worker_probes import serve

        with serve(self, host, port) as bound:
            self.asked = True
            yield bound

    # ------------------------------------------------------------------------------- written by the worker

    def begin(self, graphs: Collection[str], slots: int, ttl: float) -> None:
        """Note that the worker begins."""
        self.graphs, self.slots, self._ttl, self._draining = frozenset(graphs), slots + self.delivery_slots, ttl, False
        self.turn(None)

    def turn(self, beat: float | None) -> None:
        """Note that the event loop has its turn. `beat`: when the last heartbeat was, by the steady clock."""
        self._turned = SYSTEM_CLOCK.steady()
        if beat is not None:
            self._beat = beat

    def drain(self) -> None:
        """Note that the worker takes no more runs."""
        self._draining = True

    def end(self) -> None:
        """Note that the worker has ended."""
        self._turned = None

    def ask(self) -> None:
        """Note that the store is asked."""
        self._asked = SYSTEM_CLOCK.steady()

    def answer(self) -> None:
        """Note that it answered."""
        self._answered, self._asked, self._failure = SYSTEM_CLOCK.steady(), None, ""

    def fail(self, error: Exception) -> None:
        """Note that it failed. What the error says may have secrets, so its kind alone is kept."""
        self._asked, self._failure = None, type(error).__name__
        self.counts.store_errors += 1

    def claim(self, seconds: float) -> None:
        """Note how long a claim took."""
        self.counts.claims[bisect.bisect_left(CLAIM_BUCKETS, seconds)] += 1
        self.counts.claim_seconds += seconds

    @contextlib.contextmanager
    def counting(self, graph: str) -> Iterator[Callable[[str], None]]:
        """Count a drive. What the `with` statement gives is called with the run's status at the end of the drive."""
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
        """Note that a run was taken up."""
        self.counts.taken[graph] += 1
        self.counts.driving[graph] += 1

    def leave(self, graph: str, status: str | None, *, given_up: bool) -> None:
        """Note that a run is driven no longer. `status`: what it came to; None: it was lost, or given up."""
        self.counts.driving[graph] -= 1
        if status is not None:
            self.counts.ended[graph, status] += 1
        if given_up:
            self.counts.given_up[graph] += 1

"""Limits of requests and tokens in a time, and of concurrent requests, for a model."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError
from orchestrator.json import canonical
from orchestrator.models.base import ModelEvent, ModelRequest, closing
from orchestrator.models.messages import Reply
from orchestrator.models.middleware.base import Ask, Middleware, jsonable

_LONGEST_HOLD = 60.0
"""Maximum number of seconds for which a server's `Retry-After` delays other requests."""
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class RateStatistics:
    """The current load."""

    waiting: int
    running: int
    requests: int
    """Requests started within the last `per` seconds."""
    tokens: int
    """Tokens spent within the last `per` seconds, plus estimates for running requests."""
    held: float
    """Seconds of delay that a server has requested."""


class RateLimit(Middleware):
    """Delays requests, in order of arrival, until they fit.

    In any `per` seconds at most `requests` start, and at most `concurrency` run at a time. A request starts only if the
    tokens of the last `per` seconds leave room for it. The tokens of running requests are estimated from their length,
    and corrected by the usage of their replies. If a server asks for a delay (`Retry-After`), other requests wait, too.

    One object limits all the models, runs, event loops and threads of this process that share it.
    """

    def __init__(
        self,
        requests: int | None = None,
        per: float = 60.0,
        *,
        tokens: int | None = None,
        concurrency: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            requests: maximum number of requests that may start in any `per` seconds; None: no limit.
            per: the length of the window in seconds.
            tokens: maximum number of tokens, input and output together, in any `per` seconds; None: no limit. The last
                request may exceed the rest.
            concurrency: maximum number of requests that may run at the same time; None: no limit.
            clock: returns seconds; the same clock in all threads that share the limit.

        Raises:
            ValueError: a limit is 0 or less.
        """
        for name, value in (("requests", requests), ("per", per), ("tokens", tokens), ("concurrency", concurrency)):
            if value is not None and value <= 0:
                other = "" if name == "per" else ", or None for no limit"
                raise ValueError(f"RateLimit({name}={value}): it must be more than 0{other}")
        self._requests, self._per, self._tokens, self._concurrency = requests, per, tokens, concurrency
        self._clock = clock
        self._lock = Lock()
        self._begun: deque[float] = deque()
        self._spent: deque[tuple[float, int]] = deque()
        self._running: dict[object, int] = {}
        """Running requests, each with its estimated tokens."""
        self._queue: deque[_QueuedRequest] = deque()
        self._held_until = float("-inf")

    def statistics(self) -> RateStatistics:
        """Return the current load."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            tokens = sum(self._running.values()) + sum(spent for _, spent in self._spent)
            held = max(0.0, self._held_until - now)
            return RateStatistics(len(self._queue), len(self._running), len(self._begun), tokens, held)

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        guess = len(canonical(jsonable(ask.name, request))) // _CHARS_PER_TOKEN if self._tokens is not None else 0
        slot = object()
        await self._enter(slot, guess)
        spent, hold = guess, 0.0
        try:
            async with closing(ask(request)) as events:
                async for event in events:
                    if event.reply is not None:
                        spent = _spent(event.reply, guess)
                    yield event
        except ModelError as error:
            used = getattr(error, "usage", None)
            spent = 0 if used is None else used.tokens  # servers do not count requests that they refuse
            hold = min(getattr(error, "retry_after", None) or 0.0, _LONGEST_HOLD)
            raise
        finally:
            self._leave(slot, spent, hold)

    async def _enter(self, slot: object, guess: int) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        waiter = _QueuedRequest()
        with self._lock:
            if not self._queue and self._wait(guess) <= 0:
                self._begin(slot, guess)
                return
            self._queue.append(waiter)
        try:
            while True:
                with self._lock:
                    waiter.event = anyio.Event()
                    # Only the first request in the queue checks the clock; it wakes the next one when it starts.
                    wait = self._wait(guess) if self._queue[0] is waiter else float("inf")
                    if wait <= 0:
                        self._begin(slot, guess)
                        return
                with anyio.move_on_after(wait):
                    await waiter.event.wait()
        finally:
            with self._lock:
                self._queue.remove(waiter)
                self._call_first()

    def _begin(self, slot: object, guess: int) -> None:
        self._running[slot] = guess
        if self._requests is not None:
            self._begun.append(self._clock())

    def _leave(self, slot: object, spent: int, hold: float) -> None:
        with self._lock:
            now = self._clock()
            del self._running[slot]
            if self._tokens is not None and spent:
                self._spent.append((now, spent))
            if hold:
                self._held_until = max(self._held_until, now + hold)
            self._call_first()

    def _wait(self, guess: int) -> float:
        """Return the seconds until a request may start as far as is known now; infinite if another must end first."""
        now = self._clock()
        self._forget(now)
        wait = self._held_until - now
        if self._concurrency is not None and len(self._running) >= self._concurrency:
            return float("inf")
        if self._requests is not None and len(self._begun) >= self._requests:
            wait = max(wait, self._begun[-self._requests] + self._per - now)
        if self._tokens is None:
            return wait
        # A request larger than the whole budget starts when nothing else is spent.
        room = self._tokens - min(guess, self._tokens) - sum(self._running.values())
        spent = sum(tokens for _, tokens in self._spent)
        for at, tokens in self._spent:
            if spent <= room:
                break
            wait = max(wait, at + self._per - now)
            spent -= tokens
        return wait if spent <= room else float("inf")

    def _forget(self, now: float) -> None:
        while self._begun and self._begun[0] + self._per <= now:
            self._begun.popleft()
        while self._spent and self._spent[0][0] + self._per <= now:
            self._spent.popleft()

    def _call_first(self) -> None:
        if self._queue:
            self._queue[0].call()


def _spent(reply: Reply, guess: int) -> int:
    if reply.usage is not None:
        return reply.usage.tokens
    return 0 if reply.details.get("cached") else guess


class _QueuedRequest:
    """A waiting request, which other threads can wake in its event loop."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self._token = anyio.lowlevel.current_token()

    def call(self) -> None:
        """Wake the request, so that it checks again."""
        loop: Any = self._token.native_token
        with suppress(RuntimeError):  # its loop has ended in the meantime
            if anyio.lowlevel.current_token() == self._token:
                self.event.set()
            elif hasattr(loop, "run_sync_soon"):  # trio
                loop.run_sync_soon(self.event.set)
            else:
                loop.call_soon_threadsafe(self.event.set)

"""Small layers: another model if the first one fails, a log of requests and replies, and rate limits."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable, ReplyIncomplete, message_of
from orchestrator.graph.limits import Usage
from orchestrator.json import canonical
from orchestrator.models.base import Model, ModelEvent, ModelRequest, calling_key, calling_node, closing
from orchestrator.models.http_errors import quoted
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.models.middleware.base import Ask, Middleware, asked, jsonable
from orchestrator.redaction import redact as redact_patterns

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
                raise ValueError(f"RateLimit({name}={value}): it must be more than 0, or None for no limit")
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


class Fallback(Middleware):
    """Sends the request to the next model if one fails before the first piece of its reply.

    `details["fallback"]` of such a reply names the model that answered, and the preceding failure. If all models fail,
    the error lists each failure. It is a `ModelUnavailable` if a retry may help, else `ModelMisconfigured` if a person
    can help, else a `ModelError`.
    """

    def __init__(self, *others: Model, on: tuple[type[Exception], ...] = (ModelError,)) -> None:
        """
        Args:
            others: the models to ask next, in this order.
            on: the errors after which the next model is asked; any other error is raised.

        Raises:
            TypeError: no other model is given.
        """
        if not others:
            raise TypeError("Fallback() needs at least one other model")
        self.members = others
        """The models that may be asked instead."""
        self._on = on

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.members))})"

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        key = calling_key.get()
        failed: list[tuple[str, Exception]] = []
        ways: list[tuple[str, Callable[[ModelRequest], AsyncIterator[ModelEvent]]]]
        ways = [(ask.name, ask), *((member.name, partial(asked, member)) for member in self.members)]
        for place, (name, way) in enumerate(ways):
            if place and key is not None:
                # Each model needs its own key: a server of two of them must not take their calls for the same call.
                calling_key.set(f"{key}-{place}")
            begun = False
            try:
                async with closing(way(request)) as events:
                    async for event in events:
                        begun = True
                        yield (
                            event
                            if event.reply is None or not failed
                            else _with_failures(event, event.reply, name, failed)
                        )
                return
            except self._on as error:
                if begun:
                    raise
                failed.append((name, error))
        raise _all(failed) from failed[0][1]


def _with_failures(event: ModelEvent, reply: Reply, name: str, failed: list[tuple[str, Exception]]) -> ModelEvent:
    after = "; ".join(_line(error) for _, error in failed)
    details = {**reply.details, "fallback": {"model": name, "after": after}}
    update = {"details": details, "model": reply.model or name, "usage": _used(failed, reply.usage)}
    return event.model_copy(update={"reply": reply.model_copy(update=update)})


def _used(failed: list[tuple[str, Exception]], usage: Usage | None = None) -> Usage | None:
    """Return a usage and that of the replies that could not be taken as complete."""
    for _, error in failed:
        if isinstance(error, ReplyIncomplete) and error.usage is not None:
            usage = error.usage if usage is None else usage + error.usage
    return usage


def _all(failed: list[tuple[str, Exception]]) -> ModelError:
    summary = f"all {len(failed)} models failed: " + "; ".join(f"{name!r}: {_line(error)}" for name, error in failed)
    again = [error for _, error in failed if getattr(error, "retryable", False) or isinstance(error, OSError)]
    if not again:
        mended = any(isinstance(error, ModelMisconfigured) for _, error in failed)
        return (ModelMisconfigured if mended else ModelError)(summary)
    if all(isinstance(error, ReplyIncomplete) for error in again):
        return ReplyIncomplete(summary, usage=_used(failed))
    waits: list[Any] = [getattr(error, "retry_after", None) for error in again]
    # A model that names no delay may be available at once.
    return ModelUnavailable(
        summary, retry_after=None if None in waits else min(wait for wait in waits if wait is not None)
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {quoted(message_of(error))}"


class Logged(Middleware):
    """Logs each request, and its reply or error, as one line each; text that looks like a secret is redacted.

        model 'gpt' is asked by 'plan': 3 messages, 2 tools: user 'What is the…'
        model 'gpt' replied to 'plan' in 0.812 s: stop, 120 tokens in and 31 out: 'It is…'

    Errors, and readers that stop early or are cancelled, are logged in the same way.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        level: int = logging.INFO,
        *,
        redact: Callable[[str], str] = redact_patterns,
        content: bool = True,
        length: int = 200,
    ) -> None:
        """
        Args:
            logger: the logger. Default: `orchestrator.models`.
            level: the level of requests and replies; errors are logged as warnings or higher.
            redact: applied to everything that is logged.
            content: whether to log the last message, the reply's text and its tool calls as well.
            length: maximum number of characters of each of those.
        """
        self._logger = logger or logging.getLogger("orchestrator.models")
        self._level, self._redact, self._content, self._length = level, redact, content, length

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        node = calling_node.get()
        began = time.monotonic()

        def log(said: str, rest: Callable[[], str], level: int = self._level) -> None:
            if self._logger.isEnabledFor(level):
                whose = "" if node is None else f" {self._shown(node)}"
                line = f"model {self._shown(ask.name)} {said if whose else said.rpartition(' ')[0]}{whose}{rest()}"
                self._logger.log(level, "%s", self._redact(line))

        def after() -> str:
            return f"{time.monotonic() - began:.3f} s"

        log("is asked by", lambda: f": {self._of_request(request)}")
        reply: Reply | None = None
        try:
            async for event in ask(request):
                reply = event.reply or reply
                yield event
        except Exception as error:
            words = f"{type(error).__name__}: {self._shown(message_of(error))}"
            log("failed for", lambda: f" after {after()}: {words}", max(self._level, logging.WARNING))
            raise
        except BaseException:
            log("was left by", lambda: f" after {after()}")
            raise
        if reply is not None:
            summary = self._of_reply(reply)
            log("replied to", lambda: f" in {after()}: {summary}")

    def _of_request(self, request: ModelRequest) -> str:
        summary = f"{len(request.messages)} messages, {len(request.tools)} tools"
        last = request.messages[-1] if request.messages else None
        if last is None or not self._content:
            return summary
        return f"{summary}: {last.role} {self._shown(last.content)}{self._calls(last.tool_calls)}"

    def _of_reply(self, reply: Reply) -> str:
        usage = reply.usage
        spent = "" if usage is None else f", {usage.input_tokens} tokens in and {usage.output_tokens} out"
        summary = f"{self._shown(reply.finish)[1:-1]}{spent}{', cached' if reply.details.get('cached') else ''}"
        return f"{summary}: {self._shown(reply.text)}{self._calls(reply.tool_calls)}" if self._content else summary

    def _calls(self, calls: tuple[ToolCall, ...]) -> str:
        written = ((call.name, call.raw if call.arguments is None else json.dumps(call.arguments)) for call in calls)
        return "".join(f", calls {self._shown(f'{name}({arguments})')}" for name, arguments in written)

    def _shown(self, text: str) -> str:
        """Redact a text, then cut it, as a cut could halve a secret; quote it, so that it stays on one line."""
        text = self._redact(text)
        return repr(text if len(text) <= self._length else text[: self._length] + "…")

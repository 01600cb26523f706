"""Which failed attempts and calls are made again, and after how long: one policy for nodes, calls and subgraphs."""

from __future__ import annotations

import builtins
import http.client
import math
from typing import TYPE_CHECKING

import anyio

from orchestrator import errors
from orchestrator.errors import AgentError, EffectFailed, StepTimeout, ToolError

if TYPE_CHECKING:
    from orchestrator.graph.limits import Retry

PATIENCE = 300.0
"""Seconds: what asks to wait for longer is not waited for."""

_BROKEN = (
    OSError, TimeoutError, EOFError, http.client.HTTPException,
    anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream,
)  # fmt: skip
"""Errors of connections and of time."""
_OF_CLIENTS = {
    "httpx": {"TransportError"}, "httpx2": {"TransportError"}, "httpcore": {"NetworkError", "ProtocolError"},
    "httpcore2": {"NetworkError", "ProtocolError"}, "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "urllib3": {"HTTPError"},
}  # fmt: skip
"""The same, of HTTP clients whose errors have no such base: package -> class."""


def wait_before(retry: Retry, tries: int, error: BaseException, random: float) -> float | None:
    """Seconds to wait before another try; None if none is to be made.

    A server that asks for more than `PATIENCE` gets no other try now.
    """
    asked = getattr(error, "retry_after", None) or 0.0
    if math.isnan(asked):
        asked = 0.0
    if tries >= retry.attempts or not _mends(retry, error) or asked > PATIENCE:
        return None
    return max(retry.delay(tries, random), asked)


def mends_named(retry: Retry, kind: str) -> bool:
    """Whether another attempt may mend an error of which only the class's name is known."""
    if kind in retry.on:
        return True
    known = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if not isinstance(known, type) or not issubclass(known, Exception):
        return False
    if retry.on:
        return not {base.__name__ for base in known.__mro__}.isdisjoint(retry.on)
    return bool(getattr(known, "retryable", False)) or issubclass(known, OSError | TimeoutError | StepTimeout)


def _mends(retry: Retry, error: BaseException) -> bool:
    if isinstance(error, EffectFailed):
        return mends_named(retry, error.type)
    return retry.matches(error) or (not retry.on and isinstance(error, StepTimeout))


def uncertain(error: BaseException) -> bool:
    """Whether an error leaves open what the other side did: a connection broke or time ran out, or this caused it.

    What a tool says itself (`ToolError`, `AgentError`) is certain, whatever made it say so.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ToolError | AgentError):
            return False
        if isinstance(cause, _BROKEN) or _is_of_client(cause):
            return True
        if isinstance(cause, BaseExceptionGroup):
            return any(uncertain(inner) for inner in cause.exceptions)
        cause = cause.__cause__
    return False


def _is_of_client(error: BaseException) -> bool:
    return any(kind.__name__ in _OF_CLIENTS.get(kind.__module__.partition(".")[0], ()) for kind in type(error).__mro__)

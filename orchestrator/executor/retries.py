"""Decides if a failed step or call is tried again, and when.

`decide` applies the declared `Retry` in the same way to:

    a node            `Node.retry`, before another attempt of the step
    a model call      `Model.retry`, before another try of the same call
    a tool call       `Tool.retry`, inside the same call
    a subgraph        the `retry` of its node, before the whole graph runs again

A retry never repeats an action that may have happened and cannot be undone.
"""

from __future__ import annotations

import builtins
import math
import random
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct

from orchestrator import errors
from orchestrator.errors import (
    AgentError,
    EffectFailed,
    StepTimeout,
    ToolError,
)
from orchestrator.graph.limits import Retry
from orchestrator.kernel.records import Failure

PATIENCE = 300.0
"""Maximum delay in seconds that a server may request; with a longer one the call is not retried."""
_BROKEN = (
    OSError,
    TimeoutError,
    EOFError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)
"""Errors of connections and time-outs."""
_OF_CLIENTS = {
    "http": {"HTTPException"},
    "httpx": {"TransportError"},
    "httpx2": {"TransportError"},
    "httpcore": {"NetworkError", "ProtocolError"},
    "httpcore2": {"NetworkError", "ProtocolError"},
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "urllib3": {"HTTPError"},
}
"""Errors of HTTP clients without such a base class: package -> classes. No package is imported for this."""


class TryAgain(Struct, frozen=True):
    """The decision to try again."""

    wait: float
    """Seconds until then."""


class GiveUp(Struct, frozen=True):
    """The decision not to try again."""

    why: Literal["attempts", "error", "patience", "irreversible"]
    """All attempts are made; the error is not retried; the server requests too long a wait; or an irreversible action
    was done, or may have been, so that no other try is made.
    """


Decision: TypeAlias = TryAgain | GiveUp


def decide(
    retry: Retry, failure: BaseException | Failure, tries: int, random: float, *, irreversible: bool = False
) -> Decision:
    """Decide whether an attempt or call that failed is tried again.

    Args:
        failure: the error, or its known facts.
        tries: number of tries, including the failed one.
        random: in [0, 1), varies the wait.
        irreversible: whether another try might repeat an irreversible action.
    """
    kind = failure.type if isinstance(failure, Failure | EffectFailed) else type(failure).__name__
    most = errors.ReplyIncomplete.attempts if kind == "ReplyIncomplete" else retry.attempts
    if tries >= min(retry.attempts, most):
        return GiveUp("attempts")
    if not is_retried(retry, failure):
        return GiveUp("error")
    asked = getattr(failure, "retry_after", None)
    least = float(asked) if isinstance(asked, int | float) and not math.isnan(asked) else 0.0
    if least > PATIENCE:
        return GiveUp("patience")
    return GiveUp("irreversible") if irreversible else TryAgain(max(retry.delay(tries, random), least))


def wait_before(own: Retry | None, retry: Retry | None, error: Exception, tries: int) -> float | None:
    """Return the seconds until the next try of a call; None if there is none, or if the node's own policy decides.

    Args:
        own: the policy of the node.
        retry: the policy of the call.
        error: the error of the last try.
        tries: number of tries so far.
    """
    if retry is None or (own is not None and own.matches(error)):
        return None
    decision = decide(retry, error, tries, random.random())
    return decision.wait if isinstance(decision, TryAgain) else None


def is_retried(retry: Retry, failure: BaseException | Failure) -> bool:
    """Return True if the policy retries this error. For errors of a replay, only the class name is known."""
    if isinstance(failure, Failure | EffectFailed):
        return _names(retry, failure.type)
    return retry.matches(failure) or (not retry.on and isinstance(failure, StepTimeout))


def why_not_retried(retry: Retry, kind: str) -> str:
    """Say why a policy does not retry an error of a class, and how it would."""
    usual = "" if retry.on else ", and it is no OSError or TimeoutError and not marked retryable"
    return f"not retried: {kind} is not in `on` of the retry{usual}"


def _names(retry: Retry, kind: str) -> bool:
    """Return True if the policy retries the errors of a class."""
    if kind in retry.on:
        return True
    known = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if not isinstance(known, type) or not issubclass(known, Exception):
        return False
    if retry.on:
        return not {base.__name__ for base in known.__mro__}.isdisjoint(retry.on)
    return bool(getattr(known, "retryable", False)) or issubclass(known, OSError | TimeoutError | StepTimeout)


def outcome_is_open(error: BaseException) -> bool:
    """Return True if an error leaves the outcome open: it is, or was caused by, a broken connection or a time-out.

    Errors that are not an `Exception`, such as the call's own `CancelledError`, also leave it open: they do not show
    that the call failed. An error that a tool raises on purpose (`ToolError`, `AgentError`) is certain, whatever its
    cause.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ToolError | AgentError):
            return False
        if isinstance(cause, _BROKEN) or _is_of_client(cause):
            return True
        if isinstance(cause, BaseExceptionGroup):
            return any(outcome_is_open(inner) for inner in cause.exceptions)
        if not isinstance(cause, Exception):
            return True
        cause = cause.__cause__
    return False


def _is_of_client(error: BaseException) -> bool:
    return any(kind.__name__ in _OF_CLIENTS.get(kind.__module__.partition(".")[0], ()) for kind in type(error).__mro__)

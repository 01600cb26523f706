"""Effects whose end nobody knows: which errors leave it open, what is known, and what an answer to it means.

why           what is known
interrupted   the process, or what in the node waited for the call, was stopped while it was under way
timeout       time ran out before the other side said anything
connection    the connection to the other side broke
cancelled     the run stopped it: a cancel, a lost race, a limit
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import anyio

from orchestrator.errors import AgentError, ToolError
from orchestrator.jsontypes import digest
from orchestrator.kernel.question import Answer, Question, Value
from orchestrator.kernel.token import mix

if TYPE_CHECKING:
    from orchestrator.executor.step.context import StepContext
    from orchestrator.kernel.ledger import EffectEntry

CHOICES = ("retry", "happened", "failed")
"""What can be answered when nobody knows whether an effect happened."""

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

_WORDS = {
    "interrupted": "it was under way when the run was stopped",
    "timeout": "time ran out while it was under way",
    "connection": "the connection broke while it was under way",
    "cancelled": "it was cancelled while it was under way",
}


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


def why_unknown(entry: EffectEntry) -> str:
    """Why the end of an effect is not known, as one word."""
    kind, _ = _error_of(entry)
    if kind in ("", "Cancelled"):
        return "cancelled" if kind else "interrupted"
    return "timeout" if "Timeout" in kind else "connection"


def _error_of(entry: EffectEntry) -> tuple[str, str]:
    """Class and words of the error that an effect ended with; empty if it did not end."""
    settled = entry.settled
    if settled is None or settled.seq < entry.intended.seq:
        return "", ""
    if settled.error is not None:
        return settled.error.type, settled.error.message
    # A tool's result that stands for an error.
    result: Mapping[str, object] = settled.result if isinstance(settled.result, Mapping) else {}
    told = result.get("metadata")
    kind = told.get("exception") if isinstance(told, Mapping) else None
    return str(kind or "Error"), str(result.get("error", ""))


def unknown_question(context: StepContext, entry: EffectEntry, again: int, doubts: Mapping[str, str]) -> Question:
    """The question what became of an effect.

    Args:
        again: how often it was asked before, and the answer did not fit.
        doubts: what went wrong when it was to be found out otherwise, or with the last answer.
    """
    intended = entry.intended
    why, (_, error) = why_unknown(entry), _error_of(entry)
    began = datetime.fromtimestamp(intended.ts, UTC).isoformat(timespec="seconds")
    prompt = (
        f"Whether {intended.name} happened is not known: {_WORDS[why]}. "
        f"Try it again (retry), go on as if it had happened (happened, with its result), or fail (failed)?"
    )
    payload: dict[str, object] = {
        "tool": intended.name,
        "args": intended.request.get("args", intended.request),
        "effect": intended.effect,
        "key": intended.key,
        "attempt": intended.attempt,
        "began": began,
        "why": why,
        **({"error": error} if error else {}),
        **doubts,
    }
    parts = [str(intended.seq)] if not again else [str(intended.seq), str(again)]
    withdrawn = context.activation.withdrawn
    name = mix(
        context.activation.key, "unknown", intended.key, *parts, *(("again", str(withdrawn)) if withdrawn else ())
    )
    return Question(
        id=name,
        kind="unknown_outcome",
        node=context.node,
        path=context.path,
        prompt=prompt + "".join(f" ({words})" for words in doubts.values()),
        payload=payload,
        choices=CHOICES,
        digest=digest([context.run_id, context.path, context.node, intended.key, name]),
    )


class Verdict(NamedTuple):
    """What somebody who looked says."""

    choice: str
    result: object


def verdict(answer: Answer) -> Verdict:
    """The answer to an `unknown_question`, as one of its choices."""
    value = answer.value if isinstance(answer, Value) else answer.type
    if isinstance(value, Mapping):
        return Verdict(str(value.get("choice", "failed")), value.get("result"))
    return Verdict({"approve": "retry", "deny": "failed"}.get(str(value), str(value)), None)

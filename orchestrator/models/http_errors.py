"""Errors for the refusals of servers: whether and when to retry, or how to fix the request."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable

_AGAIN = (408, 409, 425, 429)
_QUOTED = 300
"""Characters of a server's message that an error message quotes."""
_MENDS = {
    400: "the server rejects this request",
    401: "the key is wrong or missing: set OPENAI_API_KEY, or pass api_key='env:NAME'",
    403: "the key has no access to this model",
    404: "the model does not exist, or base_url is not the server's API root (it often ends in /v1)",
    413: "the request is too long: shorten the conversation",
    422: "the server rejects this request",
}
_SURROUNDINGS = (401, 402, 403, 404)
"""Statuses whose cause is outside the request."""
_CODES = {
    "context_length_exceeded": "the conversation is longer than the model accepts: shorten it",
    "content_filter": "the provider's content filter rejected this request",
    "content_policy_violation": "the provider's content filter rejected this request",
}
_BOUNDS = "the server does not support a bound in the schema: use Profile(strict_output=True), which leaves bounds out"
_WORDS = {
    "is not permitted": _BOUNDS,
    "not supported by xgrammar": _BOUNDS,
    "response_format": "the server does not support answers in a schema: use Profile(output='json_object') or 'prompt'",
    "json_schema": "the server does not support answers in a schema: use Profile(output='json_object') or 'prompt'",
    "stream_options": "the server does not support stream_options: use Profile(stream_usage=False)",
    "tool_choice": "the server does not support this tool_choice: use Profile(tool_choice_required=False)",
    "max_completion_tokens": "the model needs the other name of max_tokens: use Profile(max_tokens=...)",
    "'stop'": "the model does not support the option stop: use Profile(stop=False)",
    "parallel_tool_calls": "the server does not support parallel_tool_calls: use Profile(parallel_calls=False)",
}
"""Parts of a request that some servers reject, and how to leave them out."""


_LOADING = re.compile(r"\b(?:loading|warming up|starting up|not (?:yet )?ready)\b", re.IGNORECASE)
_BROKEN = re.compile(r"\b(?:fail\w*|unable|cannot|could not|error (?:while )?loading)\b", re.IGNORECASE)
_NAMES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 503,
    "server_error": 500,
    "api_error": 500,
    "internal_error": 500,
    "timeout": 504,
    "insufficient_quota": 402,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "invalid_request_error": 400,
    **dict.fromkeys(_CODES, 400),
}


def status_of(name: str) -> int | None:
    """Return the HTTP status that a provider's name for an error means, or that it is; None if it is unknown."""
    if name.isascii() and name.isdecimal() and len(name) == 3 and 400 <= int(name) < 600:
        return int(name)
    return _NAMES.get(name)


def refusal(
    model: str, status: int, words: str, code: str | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """Return the error for an answer with this HTTP status. `code`: the provider's own name for it."""
    said = quoted(words)
    if code == "insufficient_quota":
        return ModelMisconfigured(f"model {model!r}: the account has no credit left: {said}")
    if 300 <= status < 400:
        return ModelMisconfigured(f"model {model!r}: HTTP {status}: the server has moved: correct base_url: {said}")
    if status in _AGAIN or status >= 500:
        wait = retry_after(headers or {})
        until = "" if wait is None else f", and asks to wait {wait:g} s"
        return ModelUnavailable(
            f"model {model!r}: the server is refusing requests (HTTP {status}){until}: {said}", retry_after=wait
        )
    mend = _CODES.get(code or "") or _MENDS.get(status, "see the server's message")
    if status in (400, 422) and code not in _CODES:
        mend = next((words for name, words in _WORDS.items() if name in said), mend)
    kind = ModelMisconfigured if status in _SURROUNDINGS else ModelError
    return kind(f"model {model!r}: HTTP {status}: {mend}: {said}")


def is_loading(status: int, words: str) -> bool:
    """Return True if a server refuses a request because it still loads the model."""
    return status == 503 and _LOADING.search(words) is not None and _BROKEN.search(words) is None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that a server asks for: `Retry-After` (RFC 9110) or `Retry-After-Ms`."""
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    written = headers.get("retry-after")
    seconds = _number(written)
    if seconds is not None or not written:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(written).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def quoted(words: str) -> str:
    """Return a server's message as one line of limited length."""
    line = " ".join(words.split())
    return line if len(line) <= _QUOTED else line[:_QUOTED] + "…"

"""Errors for the refusals of servers: whether and when to retry, or how to fix the request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from html import unescape
from http import HTTPStatus
from itertools import islice

from orchestrator.errors import ModelError, ModelMisconfigured, ModelUnavailable, RequestTooLong
from orchestrator.visible import shown

OPENAI_KEY = "OPENAI_API_KEY"
"""The environment variable with the key for OpenAI-compatible servers."""
_AGAIN = (408, 409, 425, 429)
_QUOTED = 300
"""Characters of a server's message that an error message quotes."""
_FIXES = {
    400: "the server rejects this request",
    401: "the key is wrong or missing: set {key}, or pass api_key='env:NAME'",
    403: "the key has no access to this model",
    404: "the model does not exist, or base_url is not the server's API root (it often ends in /v1)",
    422: "the server rejects this request",
}
_SURROUNDINGS = (401, 402, 403, 404)
"""Statuses whose cause is outside the request."""
_CODES = {
    "content_filter": "the provider's content filter rejected this request",
    "content_policy_violation": "the provider's content filter rejected this request",
}
_TOO_LONG = "the request is longer than the model accepts: shorten the conversation, or use a model with more context"
_TOO_LONG_NAMES = frozenset(
    ("context_length_exceeded", "exceed_context_size_error", "request_too_large", "tokens_limit_reached")
)
"""Names of servers for a request that is too long: OpenAI, llama.cpp, Anthropic, GitHub."""
_TEXT = r"(?:messages\[\d+\]\.content|input(?:\[\d+\]\.(?:content|output))?)"
_too_long = re.compile(
    "|".join(
        (
            r"context[ _](?:length|size|window)[ _](?:is )?exceed",
            r"context overflow",
            r"\b(?:exceed(?:s|ed)?|overflows|(?:longer|greater) than) (?:[\w'`]+ ){0,4}?(?:context|window|model len)",
            r"\b(?:exceeds|exceeded) (?:\w+ ){0,3}?(?:maximum number of tokens allowed|token limit)",
            r"\bmax(?:imum)? (?:context|prompt|input|model) (?:length|size)",
            r"\b(?:prompt|input|request|conversation) (?:is|was) too (?:long|large)",
            r"\b(?:prompt|input) exceeds max",
            r"\btoken count\b.{0,60}\bexceeds the (?:maximum|limit)",
            r"\binput length should be",
            r"\breduce the length of the (?:messages|prompt|input)",
            r"`inputs` (?:tokens|must have less)",
            rf"(?<![\w.]){_TEXT}(?:\[\d+\](?:\.text)?)?['\"`]?: string too long",
        )
    ),
    re.IGNORECASE,
)
"""Words of servers for a request that is too long."""
_size = re.compile(r"\b(?:context|model) (?:length|size|window) (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_answer = re.compile(
    r"\bmax_(?:completion_|new_|output_)?tokens\b\D{0,60}(\d+)|\b(\d+) (?:tokens )?(?:in|for) the completion",
    re.IGNORECASE,
)
"""The tokens that a request asked for as its answer, as servers repeat them."""
_foreign = re.compile(
    r"encrypted[ _]content|\binvalid `?signature`? in `?thinking|\b(?:corrupted|invalid) thought signature",
    re.IGNORECASE,
)
"""Words of servers for thoughts that the model cannot read: OpenAI, Anthropic, Google."""
_THOUGHTS = (
    "the model cannot read the thoughts in the conversation, which another model or account gave: continue under that "
    "one, or under another interface, which gets no thoughts"
)
_LIMIT = "max_tokens is not smaller than the model's context window: give a lower max_tokens"


_FLAGS = {
    "strict_output": "the server does not support a bound in the schema: use Profile(strict_output=True), which leaves "
    "bounds out",
    "output": "the server does not support answers in a schema: use Profile(output='json_object') or 'prompt'",
    "stream_usage": "the server does not support stream_options: use Profile(stream_usage=False)",
    "tool_choice_required": "the server does not support this tool_choice: use Profile(tool_choice_required=False)",
    "max_tokens": "the model needs the other name of max_tokens: use Profile(max_tokens=...)",
    "stop": "the model does not support the option stop: use Profile(stop=False)",
    "logprobs": "the server does not support logprobs, or not so many: use Profile(logprobs=0), or a lower number",
    "parallel_calls": "the server does not support parallel_tool_calls: use Profile(parallel_calls=False)",
}
"""Flags of a profile for parts of a request that some servers reject, and how to leave these out."""
_WORDS = {
    "is not permitted": "strict_output",
    "not supported by xgrammar": "strict_output",
    "response_format": "output",
    "response format": "output",
    "json_schema": "output",
    "json schema": "output",
    "structured output": "output",
    "text.format": "output",
    "output_config": "output",
    "output_format": "output",
    "responsejsonschema": "output",
    "response_json_schema": "output",
    "response schema": "output",
    "stream_options": "stream_usage",
    "tool_choice": "tool_choice_required",
    "max_completion_tokens": "max_tokens",
    "'stop'": "stop",
    "logprobs": "logprobs",
    "parallel_tool_calls": "parallel_calls",
}
"""Words in refusals -> flag."""


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
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "tool_use_failed": 400,
    **dict.fromkeys((*_CODES, *_TOO_LONG_NAMES), 400),
}


def status_of(name: str) -> int | None:
    """Return the HTTP status for a provider's error name, which may be the status itself; None if it is unknown."""
    if name.isascii() and name.isdecimal() and len(name) == 3 and 400 <= int(name) < 600:
        return int(name)
    return _NAMES.get(name)


def refusal(
    model: str,
    status: int,
    words: str,
    names: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
    *,
    named: bool = True,
    key: str = OPENAI_KEY,
) -> ModelError:
    """Return the error for an answer with this HTTP status.

    Args:
        names: the provider's own names for it.
        named: False if the server named no status, so that the message names none.
        key: the environment variable with the key.
    """
    said = quoted(words)
    if "API_KEY_INVALID" in names:  # Google's status for it is 400
        status = 401
    if "insufficient_quota" in names:
        return ModelMisconfigured(f"model {model!r}: the account has no credit left: {said}")
    if 300 <= status < 400:
        return ModelMisconfigured(f"model {model!r}: HTTP {status}: the server has moved: correct base_url: {said}")
    if is_too_long(status, words, names):
        return RequestTooLong(f"model {model!r}: {f'HTTP {status}: ' if named else ''}{_TOO_LONG}: {said}")
    if status in _AGAIN or status >= 500:
        wait = retry_after(headers or {})
        until = "" if wait is None else f", and asks to wait {wait:g} s"
        return ModelUnavailable(
            f"model {model!r}: the server {f'is refusing requests (HTTP {status})' if named else 'reports an error'}"
            f"{until}: {said}",
            retry_after=wait,
        )
    known = next((fix for name in names if (fix := _CODES.get(name))), None)
    if _asks_too_much(words):
        known = _LIMIT
    elif status in (400, 422) and _foreign.search(words):
        known = _THOUGHTS
    fix = known or _FIXES.get(status, "see the server's message")
    flag = ""
    if status in (400, 422) and known is None:
        low = words.lower()
        flag = next((flag for name, flag in _WORDS.items() if name in low), "")
        fix = _FLAGS.get(flag, fix)
    fix = fix.replace("{key}", key)
    error = (ModelMisconfigured if status in _SURROUNDINGS else ModelError)(
        f"model {model!r}: {f'HTTP {status}: ' if named else ''}{fix}: {said}"
    )
    error.flag = flag
    return error


def is_too_long(status: int, words: str, names: tuple[str, ...]) -> bool:
    """Return True if a server refuses a request because of its length. Some servers call that an error of theirs."""
    if _asks_too_much(words):
        return False
    if status == 413 or not _TOO_LONG_NAMES.isdisjoint(names):
        return True
    return status in (400, 422, 500) and _too_long.search(words) is not None


def _asks_too_much(words: str) -> bool:
    """Return True if the answer that a request asked for alone would fill the window, however short the request is."""
    size, answer = _size.search(words), _answer.search(words)
    return size is not None and answer is not None and int(answer[1] or answer[2]) >= int(size[1])


def is_loading(status: int, words: str) -> bool:
    """Return True if a server refuses a request because it still loads the model."""
    return status == 503 and _LOADING.search(words) is not None and _BROKEN.search(words) is None


# -- error messages of servers -----------------------------------------------------------------------------------------

_SAID = (
    "title",
    "loc",
    "error",
    "errors",
    "message",
    "msg",
    "detail",
    "reason",
    "description",
    "error_msg",
    "status_msg",
    "metadata",
    "raw",
    "failed_generation",
)
"""Fields of error bodies with words for people, in lower case and in the order in which they are quoted.

Of other fields, only texts of several words are quoted.
"""
_NO_WORDS = ("input", "ctx", "url", "flagged_input", "request_id", "stack", "trace")
"""Fields that repeat the request, or say nothing to people."""
_NAMED = ("code", "type", "status", "error_type", "reason")
_ITEMS = 8
_PARTS = 50
_MOST = 10_000
"""Maximum number of characters of a page or text that are read."""
_hidden = re.compile(r"<(script|style)\b.*?</\1|<!--.*?-->|<[^>]*>?", re.DOTALL | re.IGNORECASE)


def words_of(text: str, status: int) -> tuple[str, tuple[str, ...]]:
    """Return the words in the body of an error, and the provider's names for it."""
    try:
        return words_in(json.loads(text))
    except (ValueError, RecursionError):
        pass
    text = text[:_MOST].strip()
    if text.startswith("<"):
        text = unescape(_hidden.sub(" ", text)).strip()
    if not text:
        text = next((known.phrase for known in HTTPStatus if known == status), "no message")
    return text, ()


def words_in(body: object) -> tuple[str, tuple[str, ...]]:
    """Return the words in an error that is already parsed, and the provider's names for it."""
    inner = body[0] if isinstance(body, list) and body else body
    if isinstance(inner, Mapping) and isinstance(inner.get("error"), Mapping):
        inner = inner["error"]
    names: tuple[str, ...] = ()
    if isinstance(inner, Mapping):
        details = inner.get("details")
        told = [inner, *(details if isinstance(details, list) else ())][:_ITEMS]
        found = (one.get(key) for one in told if isinstance(one, Mapping) for key in _NAMED)
        names = tuple(str(name) for name in found if isinstance(name, str | int))
    said = dict.fromkeys(islice(_said(body, 0), _PARTS))
    return ": ".join(said) or json.dumps(body, ensure_ascii=False), names


def _said(body: object, depth: int) -> Iterator[str]:
    """Yield the words in a part of an error."""
    if depth > _ITEMS:
        return
    if isinstance(body, str) and body.strip():
        inner: object = None
        if body.lstrip().startswith(("{", "[")):  # the answer of a server behind this one
            try:
                inner = json.loads(body)
            except (ValueError, RecursionError):
                inner = None
        yield from [*_said(inner, depth + 1)] or [body.strip()]
    elif isinstance(body, list):
        for one in body[:_ITEMS]:
            yield from _said(one, depth + 1)
    elif isinstance(body, Mapping):
        fields = {str(key).lower(): value for key, value in islice(body.items(), _PARTS)}
        for key in (*_SAID, *(key for key in fields if key not in _SAID and key not in _NO_WORDS)):
            value = fields.get(key)
            if key == "loc" and isinstance(value, list):
                yield ".".join(map(str, value[:_ITEMS]))
            elif value:  # the names of wrong fields, too, are keys in `errors`
                named = key == "errors" and isinstance(value, Mapping)
                words = _said(list(value.values()) if named else value, depth + 1)
                yield from words if key in _SAID else (text for text in words if " " in text)


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


def delay_in(body: str) -> dict[str, str]:
    """Return the delay that Google asks for in the body of an error, as a header; none if it asks for none."""
    try:
        details = json.loads(body)["error"]["details"]
        found = next(one["retryDelay"] for one in details if "retryDelay" in one)
        return {"retry-after": str(found).removesuffix("s")}
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return {}


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def quoted(words: str) -> str:
    """Return a server's message as one line of limited length, with characters that cannot be seen as escapes."""
    line = " ".join(words.split())
    return shown(line if len(line) <= _QUOTED else line[:_QUOTED] + "…")

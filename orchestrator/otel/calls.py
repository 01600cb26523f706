"""Calls of models, tools and functions as spans and metrics."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind, Tracer

from orchestrator.executor.calls.effect import Effect, Witness
from orchestrator.executor.tracing import Callees
from orchestrator.kernel.records import EffectSettled
from orchestrator.models.base import Model, ModelEvent, closing
from orchestrator.models.messages import Reply
from orchestrator.otel import names as n
from orchestrator.otel.spans import Attributes, OpenSpan, ignoring_faults
from orchestrator.redaction import redact, redacted, without_known, without_known_in
from orchestrator.tools.result import ToolResult
from orchestrator.visible import shown

T = TypeVar("T")

_PROVIDERS = {"openai": "openai", "responses": "openai", "anthropic": "anthropic", "gemini": "gcp.gemini"}
"""Word for a model in references -> its provider's name in the conventions."""
_MOST = 100_000
"""Maximum number of characters of the messages, arguments or result of one span."""
_LONGEST_SECRET = 4_000
"""Characters before a cut in which a secret may be that is no longer recognised as one."""
_OPTIONS = {
    "max_tokens": n.REQUEST_MAX_TOKENS,
    "temperature": n.REQUEST_TEMPERATURE,
    "top_p": n.REQUEST_TOP_P,
}


class Meters:
    """The metrics of calls."""

    def __init__(self, meter: Meter) -> None:
        seconds: dict[str, Any] = {"unit": "s", "explicit_bucket_boundaries_advisory": n.DURATION_BUCKETS}
        self.duration = meter.create_histogram(n.INFERENCE_DURATION, **seconds)
        self.first_chunk = meter.create_histogram(n.INFERENCE_FIRST_CHUNK, **seconds)
        self.tool_duration = meter.create_histogram(n.TOOL_DURATION, **seconds)
        self.tokens = {name: meter.create_counter(one, unit="{token}") for name, one in n.INFERENCE_TOKENS.items()}


_call: ContextVar[TracedCall | None] = ContextVar("traced_call", default=None)
"""The call in progress in this task."""


class TracedCalls(Witness):
    """Traces the calls of the steps of one drive.

    Args:
        tracer: makes the spans.
        meters: the metrics.
        called: the models and tools, which are described in the spans.
        content: whether spans have messages, arguments and results.
    """

    def __init__(self, tracer: Tracer, meters: Meters, called: Callees, *, content: bool) -> None:
        self._tracer, self._meters, self._called, self.content = tracer, meters, called, content

    async def call(self, effect: Effect[T], key: str) -> T:
        """See `Witness.call`."""
        call = self._begin(effect, key)
        token = _call.set(call)
        try:
            with call.recorded(), call.span.active():
                value = await effect.run(key)
                call.returned(value)
                return value
        finally:
            _call.reset(token)

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        """See `Witness.reuse`."""
        with ignoring_faults():
            trace.get_current_span().add_event(n.REUSED, {n.CALL_KEY: settled.key, "name": effect.name})

    async def stream(
        self, effect: Effect[Reply], key: str, open_stream: Callable[[], AsyncIterator[ModelEvent]]
    ) -> AsyncIterator[ModelEvent]:
        """See `Witness.stream`. The span is the current one until the first piece is there: then the reader's is."""
        call = self._begin(effect, key)
        with call.recorded():
            contexts.attach(call.span.context)
            try:
                async with closing(call.timed(open_stream())) as events:
                    async for event in events:
                        contexts.attach(call.span.parent)
                        if event.reply is not None:
                            call.returned(event.reply)
                        yield event
            finally:
                contexts.attach(call.span.parent)

    def pieces(self, events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        """See `Witness.pieces`."""
        call = _call.get()
        return events if call is None else call.timed(events)

    def _begin(self, effect: Effect[Any], key: str) -> TracedCall:
        about: Attributes = {n.CALL_KEY: key}
        kind = SpanKind.INTERNAL
        name, measured = f"{effect.kind} {effect.name}", {}
        with ignoring_faults():
            if effect.kind == "model":
                name, kind, measured = f"{n.CHAT} {effect.name}", SpanKind.CLIENT, self._of_model(effect)
                options = effect.request.get("options")
                given = options if isinstance(options, Mapping) else {}
                about = {**about, **{ours: _number(given.get(theirs)) for theirs, ours in _OPTIONS.items()}}
                if self.content:
                    about = {**about, n.INPUT_MESSAGES: _messages(effect.request.get("messages"))}
            elif effect.kind == "tool":
                tool = self._called.tool_map.get(effect.name)
                name, measured = f"{n.EXECUTE_TOOL} {effect.name}", {n.OPERATION: n.EXECUTE_TOOL, n.TOOL: effect.name}
                words = None if tool is None else getattr(tool, "description", None)
                about = {**about, n.TOOL_TYPE: "function", n.TOOL_DESCRIPTION: words or None}
                if self.content:
                    about = {**about, n.TOOL_ARGUMENTS: _text(effect.request.get("args"))}
        span = OpenSpan(self._tracer, name, {**measured, **about}, kind=kind)
        return TracedCall(effect, span, self._meters, measured, content=self.content)

    def _of_model(self, effect: Effect[Any]) -> dict[str, Any]:
        """Return the attributes of a call of a model that its metrics have, too."""
        known = (self._called.model, *self._called.models.values())
        model = next((one for one in known if one is not None and one.name == effect.name), None)
        inner = None if model is None else _innermost(model)
        provider = _PROVIDERS.get(getattr(getattr(inner, "wire", None), "ref", ""), "_OTHER")
        found: dict[str, Any] = {n.OPERATION: n.CHAT, n.PROVIDER: provider, n.REQUEST_MODEL: effect.name}
        address = getattr(inner, "base_url", None)
        if isinstance(address, str):
            parts = urlsplit(address)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            found.update({} if parts.hostname is None else {n.SERVER_ADDRESS: parts.hostname, n.SERVER_PORT: port})
        return found


def _innermost(model: Model) -> object:
    """Return the model inside of middleware."""
    found: Any = model
    while members := getattr(found, "members", ()):
        found = members[0]
    return found


class TracedCall:
    """A call in progress: its span, and what is measured of it."""

    def __init__(
        self, effect: Effect[Any], span: OpenSpan, meters: Meters, measured: Mapping[str, Any], *, content: bool
    ) -> None:
        self._effect, self.span, self._meters, self._measured, self._content = effect, span, meters, measured, content
        self._began = time.perf_counter()
        self._first: float | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """End the span, and measure the call, at the end of the block."""
        error: str | None = None
        try:
            yield
        except Exception as raised:
            error = type(raised).__name__
            self.span.fail(error, words(str(raised)) if self._content else None)
            raise
        finally:
            with ignoring_faults():
                self._measure(error)
            self.span.end()

    def _measure(self, error: str | None) -> None:
        about = self._measured if error is None else {**self._measured, n.ERROR_TYPE: error}
        seconds = time.perf_counter() - self._began
        if self._effect.kind == "tool":
            self._meters.tool_duration.record(seconds, about)
        elif self._effect.kind == "model":
            self._meters.duration.record(seconds, about)
            if self._first is not None:
                self._meters.first_chunk.record(self._first, self._measured)

    async def timed(self, events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        """Yield the pieces of a streamed reply, and note when the first one came. Closes the iterator at the end."""
        async with closing(events):
            async for event in events:
                if self._first is None and event.reply is None:
                    self._first = time.perf_counter() - self._began
                    self.span.set({n.REQUEST_STREAM: True, n.FIRST_CHUNK: self._first})
                yield event

    def returned(self, value: object) -> None:
        """Describe what the call returned."""
        with ignoring_faults():
            if isinstance(value, Reply):
                self._replied(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], ToolResult):
                result = value[0]
                if result.failed:
                    self.span.fail("tool_error", words(result.error or "") if self._content else None)
                elif self._content:
                    self.span.set({n.TOOL_RESULT: _text(self._effect.encode(value))})

    def _replied(self, reply: Reply) -> None:
        usage = reply.usage
        found: dict[str, Any] = {n.RESPONSE_MODEL: reply.model or None, n.FINISH_REASONS: [reply.finish]}
        identity = reply.details.get("id")
        found[n.RESPONSE_ID] = identity if isinstance(identity, str) else None
        if usage is not None:
            counts = (
                usage.input_tokens,
                usage.output_tokens,
                usage.cached_tokens,
                usage.written_tokens,
                _reasoning(reply.details.get("usage")),
            )
            spent = dict(zip(n.INFERENCE_TOKENS, counts, strict=True))
            for name, count in spent.items():
                if count:
                    self._meters.tokens[name].add(count, self._measured)
            found |= {name: count or None for name, count in spent.items()}
            found |= {n.INPUT_TOKENS: usage.input_tokens, n.OUTPUT_TOKENS: usage.output_tokens}
            found[n.COST] = usage.cost or None
        if self._content:
            calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
            message = {"role": "assistant", "content": reply.text, "tool_calls": calls}
            found[n.OUTPUT_MESSAGES] = _messages([message], finish_reason=reply.finish)
        self.span.set(found)


def _reasoning(usage: object) -> int:
    """Return the tokens that the model thought with, in the vendor's own words for usage; 0 if it does not say."""
    given = usage if isinstance(usage, Mapping) else {}
    places = [given, *(given.get(name) for name in ("completion_tokens_details", "output_tokens_details"))]
    names = ("reasoning_tokens", "thoughtsTokenCount", "thoughts_token_count")
    found = (place.get(name) for place in places if isinstance(place, Mapping) for name in names)
    return next((count for count in found if type(count) is int and count > 0), 0)


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def words(text: str) -> str:
    """Return a text without secrets. A long one is cut."""
    return shown(_beginning(text))


def _beginning(text: str, most: int = _MOST) -> str:
    """Return at most this many characters of a text, without secrets: one that the cut goes through is left out."""
    if len(text) <= most:
        return redact(without_known(text))
    return redact(without_known(text[:most]))[:-_LONGEST_SECRET]


def _text(value: object) -> str:
    """Return a value as JSON, without secrets. A long one is cut."""
    text = json.dumps(without_known_in(value), ensure_ascii=False, default=str)
    return _beginning(text) if len(text) > _MOST else json.dumps(redacted(json.loads(text)), ensure_ascii=False)


def _messages(given: object, **more: str) -> str:
    """Return messages in the form of the conventions. The earliest ones are left out if they are too long."""
    found: list[str] = []
    size = 0
    for message in reversed(given if isinstance(given, list | tuple) else ()):
        text = _text({**_message(message), **more})
        size += len(text)
        if found and size > _MOST:
            break
        found.append(text)
    return f"[{', '.join(reversed(found))}]"


def _message(given: Mapping[str, Any]) -> dict[str, object]:
    content, result = _beginning(str(given.get("content") or ""), _MOST // 4), given.get("tool_call_id")
    parts: list[dict[str, object]] = []
    if result is not None:
        parts.append({"type": "tool_call_response", "id": result, "response": content})
    elif content:
        parts.append({"type": "text", "content": content})
    for call in given.get("tool_calls") or ():
        parts.append({"type": "tool_call", **{name: call.get(name) for name in ("id", "name", "arguments")}})
    return {"role": given.get("role", "user"), "parts": parts}

"""The part of a model's context window that a conversation takes, and the rounds that a conversation consists of."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from orchestrator.context import Context
from orchestrator.errors import RequestTooLong
from orchestrator.models.messages import REPLY_LIMIT, WINDOW, Message, Reply
from orchestrator.models.prices import tokens_of

GAIN = 0.1
"""The part of the window that shortening a conversation must free at least, unless a request was refused. It keeps the
beginning of requests the same for many rounds, so that providers can cache it."""
_CAREFUL = 0.9
"""The part of the tokens left by `max_tokens` that a request may take: what came since the last one is estimated."""

_FULL = ("model_context_window_exceeded", "context_length_exceeded", "model_length")
"""Words of servers for the end of a reply that filled the window: Anthropic, gateways, Mistral."""


def _is_zero(value: object) -> bool:
    return value == 0


class ContextUsage(BaseModel):
    """The size of a conversation at its last request, for the nodes that shorten it. It follows from the journal."""

    model_config = ConfigDict(frozen=True)

    window: int = 0
    """Tokens of the model's context window; 0 if it is unknown."""
    tokens: int = 0
    """Tokens of the last request and its reply, as the server reported them; 0 if it reported none."""
    messages: int = 0
    """Number of messages of the conversation after that reply."""
    refusals: int = 0
    """Number of times in a row that a request was refused because of its length."""
    rests: int = 0
    """Number of messages up to which no further summary is tried, because the last one was of no use."""
    # The next two are not in the JSON Schema, as it is part of the structure of graphs.
    reply_limit: SkipJsonSchema[int] = Field(default=0, exclude_if=_is_zero)
    """Tokens of the window that requests keep free for the reply, by `max_tokens`; 0 if they set no limit."""
    refused: SkipJsonSchema[int] = Field(default=0, exclude_if=_is_zero)
    """Estimated tokens of the conversation that was refused because of its length; 0 after a reply."""

    def limit(self, at: float) -> float:
        """Return the most tokens of a request: `at` of the window, or fewer if the reply needs more than the rest."""
        left = self.window - self.reply_limit
        return min(at * self.window, _CAREFUL * left if left > 0 else self.window)

    def is_refused(self, ctx: Context, talk: Sequence[Message]) -> bool:
        """Return True if a request was refused because of its length, and the conversation is as long as it was then.

        A fork may have shortened it since.
        """
        if ctx.error is None or ctx.error.type != RequestTooLong.__name__ or len(talk) < self.messages:
            return False
        return not self.refused or tokens_of(talk) >= self.refused

    def after_refusal(self, talk: Sequence[Message]) -> ContextUsage:
        """Return the usage after a request with this conversation was refused because of its length."""
        return self.model_copy(update={"refused": tokens_of(talk)})

    def size(self, talk: Sequence[Message]) -> int:
        """Return the estimated tokens of the next request: the reported ones, and an estimate of what came since."""
        wrong = self.window and self.tokens > self.window  # the server counts wrongly, or the window is another
        if not self.tokens or wrong or len(talk) < self.messages:
            return tokens_of(talk)
        return self.tokens + tokens_of(talk[self.messages :])

    def after(self, reply: Reply, messages: int) -> ContextUsage:
        """Return the usage after a reply, with which the conversation has this number of messages."""
        used, window, most = reply.usage, reply.details.get(WINDOW), reply.details.get(REPLY_LIMIT)
        tokens = 0
        if used is not None:  # some servers do not count what their cache holds
            held = used.cached_tokens + used.written_tokens
            tokens = used.tokens + (held if held > used.input_tokens else 0)
        known = window if isinstance(window, int) else 0
        kept = most if isinstance(most, int) else 0
        return ContextUsage(window=known, tokens=tokens, messages=messages, rests=self.rests, reply_limit=kept)

    def shortened(self, before: Sequence[Message], now: Sequence[Message], *, refusals: int) -> ContextUsage:
        """Return the usage after a conversation was shortened; `refusals`: how often in a row requests were refused."""
        size, old, new = self.size(before), tokens_of(before), tokens_of(now)
        tokens = max(size - (old - new), size * new // max(1, old))  # the system message and the tools stay
        found = {"tokens": tokens, "messages": len(now), "refusals": refusals, "rests": 0, "refused": 0}
        return self.model_copy(update=found)


def refused_usage(state: object, field: str | None, talk: Sequence[Message]) -> dict[str, object]:
    """Return the update with the usage after this conversation was refused; empty without a field for it."""
    if field is None:
        return {}
    return {field: ContextUsage.model_validate(getattr(state, field) or {}).after_refusal(talk)}


def within_window(reply: Reply, field: str | None) -> Reply:
    """Return a reply, unless the conversation left too little of the window for it.

    That is so if the server cut the reply off because the window is full, most of it with the request. A reply that
    filled most of the window is too long itself.

    Args:
        reply: the reply.
        field: the field with the `ContextUsage`; None: nothing shortens the conversation, so any reply is returned.

    Raises:
        RequestTooLong: the conversation left too little.
    """
    word, used = str(reply.details.get("finish_reason", "")).lower(), reply.usage
    full = reply.cut and word in _FULL and used is not None and used.input_tokens > used.output_tokens
    if field is None or not full:
        return reply
    raise RequestTooLong(
        f"model {reply.model!r}: the context window was full before the reply was complete ({word}): shorten the "
        "conversation, or use a model with more context"
    )


def rounds(talk: Sequence[Message]) -> list[list[Message]]:
    """Split a conversation into rounds: one reply each, with the question before it and the results of its calls.

    A call and its results are in one round, also if other messages are between them.
    """
    found: list[list[Message]] = []
    places: dict[str, int] = {}  # id of a call -> its round
    for message in talk:
        last = found[-1] if found else None
        asks = message.role == "user" and last is not None and last[-1].role != "user"
        replies = message.role == "assistant" and last is not None and any(one.role == "assistant" for one in last)
        if last is None or asks or replies:
            found.append([message])
        else:
            last.append(message)
        if message.role == "tool" and message.tool_call_id is not None:
            place = places.get(message.tool_call_id, len(found))
            if place < len(found) - 1:
                found[place:] = [[message for one in found[place:] for message in one]]
                places.update((call.id, place) for one in found[place] for call in one.tool_calls)
        places.update((call.id, len(found) - 1) for call in message.tool_calls)
    return found


def recent(parts: Sequence[Sequence[Message]], keep: int, most: float) -> int:
    """Return the number of the last rounds to keep: at most `keep` of at most `most` estimated tokens together, but at
    least one.
    """
    size, count = 0, 0
    for part in reversed(parts[-keep:]):
        size += tokens_of(part)
        if count and size > most:
            break
        count += 1
    return count

"""The part of a model's context window that a conversation takes, and the rounds that a conversation consists of."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from orchestrator.models.messages import WINDOW, Message, Reply
from orchestrator.models.prices import tokens_of


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

    def size(self, talk: Sequence[Message]) -> int:
        """Return the estimated tokens of the next request: the reported ones, and an estimate of what came since."""
        wrong = self.window and self.tokens > self.window  # the server counts wrongly, or the window is another
        if not self.tokens or wrong or len(talk) < self.messages:
            return tokens_of(talk)
        return self.tokens + tokens_of(talk[self.messages :])

    def after(self, reply: Reply, messages: int) -> ContextUsage:
        """Return the usage after a reply, with which the conversation has this number of messages."""
        used, window = reply.usage, reply.details.get(WINDOW)
        tokens = 0
        if used is not None:  # some servers do not count what their cache holds
            held = used.cached_tokens + used.written_tokens
            tokens = used.tokens + (held if held > used.input_tokens else 0)
        known = window if isinstance(window, int) else 0
        return ContextUsage(window=known, tokens=tokens, messages=messages, rests=self.rests)

    def shortened(self, before: Sequence[Message], now: Sequence[Message], *, refused: bool) -> ContextUsage:
        """Return the usage after a conversation was shortened; `refused`: because a request was refused."""
        size, old, new = self.size(before), tokens_of(before), tokens_of(now)
        tokens = max(size - (old - new), size * new // max(1, old))  # the system message and the tools stay
        return ContextUsage(
            window=self.window, tokens=tokens, messages=len(now), refusals=(self.refusals + 1) * refused
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

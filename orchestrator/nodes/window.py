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
        if not self.tokens or len(talk) < self.messages:
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
        share = tokens_of(now) / max(1, tokens_of(before))
        tokens = int(self.size(before) * share)
        return ContextUsage(
            window=self.window, tokens=tokens, messages=len(now), refusals=(self.refusals + 1) * refused
        )


def rounds(talk: Sequence[Message]) -> list[list[Message]]:
    """Split a conversation into rounds: one reply each, with the question before it and the results of its calls.

    A call and its results are in one round, also if other messages are between them.
    """
    found: list[list[Message]] = []
    for message in talk:
        last = found[-1] if found else None
        asks = message.role == "user" and last is not None and last[-1].role != "user"
        replies = message.role == "assistant" and last is not None and any(one.role == "assistant" for one in last)
        if last is None or asks or replies:
            found.append([message])
            continue
        last.append(message)
        if message.role == "tool" and message.tool_call_id is not None:
            calling = [place for place, one in enumerate(found) if _calls(one, message.tool_call_id)]
            if calling and calling[-1] < len(found) - 1:
                found[calling[-1] :] = [[message for one in found[calling[-1] :] for message in one]]
    return found


def _calls(messages: Sequence[Message], call_id: str) -> bool:
    return any(call.id == call_id for message in messages for call in message.tool_calls)


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

"""Prices of tokens, and estimates of their number where the provider reports none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.graph.faults import Spelled
from orchestrator.graph.limits import UNKNOWN_REPLY, Reserve, Usage
from orchestrator.json import canonical
from orchestrator.models.base import ModelRequest
from orchestrator.models.messages import Message, Reply

_MILLION = 1_000_000
_BYTES = 4
_WORD = re.compile(r"[^\W_]+")
_MESSAGE = 4
_IMAGE = 800
_MOST = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Options that limit the tokens of a reply, by the names that providers use."""


class Price(BaseModel, metaclass=Spelled):
    """The price of a model per million tokens, in the currency of the cost limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of input tokens from the provider's cache; None: the price of other input tokens."""
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Price of input tokens that are written to the provider's cache; None: the price of other input tokens."""

    def of(self, usage: Usage) -> float:
        """Return the cost of a call.

        Args:
            usage: the tokens of the call.

        Returns:
            The cost, in the currency of the price.
        """
        whole = usage.input_tokens * self.input + usage.output_tokens * self.output
        return whole / _MILLION - self.saved(usage)

    def saved(self, usage: Usage) -> float:
        """Return what the provider's cache saved of the cost of a call.

        Negative if more was paid for writing than saved by reading.
        """
        cached = max(0, min(usage.cached_tokens, usage.input_tokens))
        written = max(0, min(usage.written_tokens, usage.input_tokens - cached))
        read = self.input if self.cached_input is None else self.cached_input
        kept = self.input if self.cache_write is None else self.cache_write
        return (cached * (self.input - read) + written * (self.input - kept)) / _MILLION


FREE = Price()
"""The price of a model that costs nothing."""


def price_in(given: Price | Mapping[str, Price] | None, model: str) -> Price | None:
    """Return a model's price: the given one, or the entry for the model's name in a table."""
    return given.get(model) if isinstance(given, Mapping) else given


def unpriced(model: Any) -> list[str]:
    """Return the names of the models, of this one and its members, that have an unset price.

    A model without the attribute `price` reports the cost of its replies itself, in their usage.
    """
    members = getattr(model, "members", None)
    if isinstance(members, tuple) and members:
        return [name for member in members for name in unpriced(member)]
    return [str(model.name)] if getattr(model, "price", FREE) is None else []


def expected(
    request: ModelRequest, price: object, longest: int, dearest: float | None, left: float | None, *, waited_for: bool
) -> Reserve:
    """Return the expected usage of a call, to be reserved before it is made; see `Reserve`.

    Args:
        price: the model's price, if it is known.
        longest: tokens of the longest reply so far, 0 if there was none.
        dearest: the cost of the most expensive call so far, None if there was none.
        left: the cost left within the limits: reserved if nothing else is known, so that the first call runs alone.
        waited_for: whether other calls wait until this one has ended.
    """
    usage = Usage(input_tokens=_prompt(request), output_tokens=reply_limit(request.options) or longest or UNKNOWN_REPLY)
    cost = dearest
    if isinstance(price, Price):
        cost = price.of(usage)
    return Reserve(tokens=usage.tokens, cost=(left or 0.0) if cost is None else cost, calls=int(waited_for))


def reply_limit(options: object) -> int | None:
    """Return the most tokens of a reply that the options of a request allow; None if they set no limit."""
    given = options if isinstance(options, Mapping) else {}
    return next((most for name in _MOST if type(most := given.get(name)) is int and most > 0), None)


def reply_limit_of(model: object, options: Mapping[str, object]) -> int | None:
    """Return the most tokens of the reply to a request with these options; of several inner models, the largest."""
    members = getattr(model, "members", None)
    if isinstance(members, tuple) and members:
        return max(filter(None, (reply_limit_of(member, options) for member in members)), default=None)
    own = getattr(model, "reply_limit", None)
    if callable(own):
        most = own(options)
        return most if type(most) is int else None
    return reply_limit(options) or reply_limit(getattr(model, "options", None))


def approximated(request: ModelRequest, reply: Reply, given: int | None = None, made: int | None = None) -> Usage:
    """Return the usage of a call, with missing counts estimated and marked as `estimated`.

    An estimate is one token for every four bytes of UTF-8, four more for every message, 800 for every image.
    """
    said = [reply.text, *(call.name + call.raw for call in reply.tool_calls)]
    return Usage(
        input_tokens=_prompt(request) if given is None else given,
        output_tokens=max(1, _tokens(said)) if made is None else made,
        estimated=True,
    )


def least_tokens(request: ModelRequest) -> int:
    """Return the least number of input tokens that a tokenizer can give for a request with tools: one for each word.

    Of the tools, names, types and descriptions count, because servers write schemas in different forms.
    """
    words = sum(len(_WORD.findall(message.content)) for message in request.messages)
    return words + sum(_described(tool.get("function")) for tool in request.tools)


def _described(value: object) -> int:
    """Return the number of words in the description of a tool or parameter: at least a type or a bracket."""
    if not isinstance(value, Mapping):
        return 0
    texts = [text for key in ("name", "description") if isinstance(text := value.get(key), str)]
    properties = value.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        texts.append(f"{name} type {'x ' * _described(part)}")
    return 1 + sum(len(_WORD.findall(text)) for text in texts) + _described(value.get("parameters"))


def _prompt(request: ModelRequest) -> int:
    """Return the estimated number of tokens of a request."""
    around = sum(_MESSAGE + _IMAGE * len(message.images) for message in request.messages)
    words = [message.content for message in request.messages]
    words += [call.raw or canonical(call.arguments) for message in request.messages for call in message.tool_calls]
    words += [canonical(tool) for tool in request.tools]
    if request.output is not None:
        words.append(canonical(request.output))
    return around + _tokens(words)


def tokens_of(messages: Iterable[Message]) -> int:
    """Return the estimated number of tokens of messages, as in `approximated`, including the provider's own fields."""
    messages = tuple(messages)
    extras = [canonical(message.extras) for message in messages if message.extras]
    return _prompt(ModelRequest(messages)) + _tokens(extras)


def _tokens(words: list[str]) -> int:
    return -(-sum(len(text.encode("utf-8", "surrogatepass")) for text in words) // _BYTES)

"""A model that makes mistakes at a stated rate: for tests, examples and tables without a key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.json import digest
from orchestrator.models.base import ModelRequest, WordsModel
from orchestrator.models.messages import Reply, ToolCall
from orchestrator.models.offline import OfflineModel
from orchestrator.models.prices import FREE, Price

_WHOLE = 16**12


class SimulatedModel(WordsModel):
    """Answers as the offline model does, except for a share of its replies: these have a number that is off by one.

    Whether a reply is wrong follows from the request, its option `seed` and the seed of the model, so equal requests
    get equal replies. Its name says that it is simulated.

    Args:
        error_rate: the share of wrong replies, from 0 to 1.
        seed: other seeds make other mistakes.
        price: the price of its tokens, which are words.

    Raises:
        ValueError: the rate is not from 0 to 1.
    """

    takes_seed = True

    def __init__(self, error_rate: float = 0.1, *, seed: int = 0, price: Price = FREE) -> None:
        if not 0 <= error_rate <= 1:
            raise ValueError(f"error_rate={error_rate!r}: use a number from 0 to 1")
        self.error_rate, self.seed, self.price = error_rate, seed, price
        self.name = f"simulated-{error_rate:g}" + (f"-seed-{seed}" if seed else "")
        self._inner = OfflineModel()

    def __repr__(self) -> str:
        return f"SimulatedModel({self.error_rate!r}, seed={self.seed!r})"

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`."""
        chance = int(digest([self.seed, request.data()])[:12], 16) / _WHOLE
        plain = replace(request, options={name: one for name, one in request.options.items() if name != "seed"})
        reply = await self._inner.respond(plain)
        if chance < self.error_rate:
            reply = reply.model_copy(
                update={"text": _off_by_one(reply.text), "tool_calls": tuple(map(_mistaken, reply.tool_calls))}
            )
        usage = reply.usage
        if usage is not None:
            usage = usage.model_copy(update={"cost": self.price.of(usage)})
        return reply.model_copy(update={"model": self.name, "usage": usage})


def is_simulated(model: object) -> bool:
    """Return True if a model is simulated, or has a simulated one inside."""
    members = getattr(model, "members", ())
    return isinstance(model, SimulatedModel) or any(map(is_simulated, members))


def _off_by_one(text: str) -> str:
    """Return a text whose last whole number is one more."""
    end = next((at for at in range(len(text), 0, -1) if text[at - 1].isdecimal()), 0)
    begin = end
    while begin and text[begin - 1].isdecimal():
        begin -= 1
    return text if begin == end or end - begin > 15 else f"{text[:begin]}{int(text[begin:end]) + 1}{text[end:]}"


def _mistaken(call: ToolCall) -> ToolCall:
    """Return a call whose last number is one more."""
    args: dict[str, Any] = dict(call.arguments or {})
    numbers = [name for name, value in args.items() if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers:
        args[numbers[-1]] += 1
    return call.model_copy(update={"arguments": args, "raw": ""})

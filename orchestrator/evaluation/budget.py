"""The budget of an evaluation: one purse for all calls of all its models, judges included.

A call reserves what it is expected to cost before it is made, and waits while the rest of the purse is reserved by
calls in progress. When no call is in progress and the next one does not fit, the purse is spent: no call was cut off,
and what was paid is in the journals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from math import inf

import anyio

from orchestrator.errors import InvalidValue, ModelError
from orchestrator.graph.limits import UNKNOWN_REPLY, Usage
from orchestrator.json import digest
from orchestrator.models.base import Model, ModelEvent, ModelRequest, calling_key, closing
from orchestrator.models.messages import Reply
from orchestrator.models.middleware import Ask, Hook, Middleware, RateLimit, with_middleware
from orchestrator.models.prices import Price, expected, reply_limit_of, unpriced


@dataclass
class Purse:
    """The money of an evaluation."""

    limit: float = inf
    """What may be spent; infinite: costs are only added up."""
    spent: float = 0.0
    """What was paid, also in earlier parts of the evaluation."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when the next call does not fit."""
    needed: float = inf
    """What that call may cost; infinite: not known, but it reserves all that is left."""
    dearest: float | None = None
    """Cost of the most expensive call so far."""
    longest: int = 0
    """Tokens of the longest reply so far."""
    _reserved: float = 0.0
    _in_progress: int = 0
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def left(self) -> float:
        """What is neither paid nor reserved."""
        return self.limit - self.spent - self._reserved

    @property
    def stop(self) -> str:
        """Why no further call fits, as text."""
        if self.left <= 0 or self.needed == inf:
            return f"the budget of {self.limit:g} is spent"
        return (
            f"the next call may cost {self.needed:.4g}, and {self.left:.4g} of {self.limit:g} is left: raise the "
            "budget, or bound the reply with `max_tokens`"
        )

    async def take(self, cost: Callable[[Purse], float]) -> float:
        """Reserve the expected cost of a call, and return it. Waits until it fits; for ever once the purse is spent."""
        if self.limit == inf:
            self._in_progress += 1
            return 0.0
        while True:
            need = cost(self)
            if need <= self.left:
                self._reserved += need
                self._in_progress += 1
                return need
            if not self._in_progress:
                self.needed = need
                self.over.set()
            await self._changed.wait()

    def settle(self, reserved: float, usage: Usage | None) -> None:
        """Replace what a call reserved by what it cost."""
        self._reserved -= reserved
        self._in_progress -= 1
        if usage is not None:
            self.spent += usage.cost
            self.dearest = max(self.dearest or 0.0, usage.cost)
            self.longest = max(self.longest, usage.output_tokens)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class PurseGate(Middleware):
    """Lets a request of a model pass when its expected cost fits into the purse."""

    def __init__(self, purse: Purse, model: Model) -> None:
        self._purse, self._price, self._model = purse, getattr(model, "price", None), model

    async def handle(self, request: ModelRequest, ask: Ask) -> AsyncIterator[ModelEvent]:
        """See `Middleware.handle`."""
        reserved = await self._purse.take(lambda purse: self._expected(request, purse))
        usage: Usage | None = None
        try:
            async with closing(ask(request)) as events:
                async for event in events:
                    if event.reply is not None:
                        usage = event.reply.usage
                    yield event
        except ModelError as error:
            usage = getattr(error, "usage", None)
            raise
        finally:
            self._purse.settle(reserved, usage)

    def _expected(self, request: ModelRequest, purse: Purse) -> float:
        if purse.left <= 0 and not isinstance(self._price, Price):
            return inf  # the first call of a model that only reports its costs reserves all that is left
        most, longest = reply_limit_of(self._model, request.options), purse.longest
        longest = longest if most is None else min(longest or UNKNOWN_REPLY, most)
        return expected(request, self._price, longest, purse.dearest, purse.left, waited_for=False).cost


class Seeded(Hook):
    """Adds a seed to the options of requests that have none: another one for each call of a run.

    Equal requests of a run, such as the votes of `self_consistency`, would otherwise have equal replies. The key of a
    call follows from its run, its step and its number, so a call that is repeated after a crash has its seed again.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    async def before(self, request: ModelRequest) -> ModelRequest | Reply | None:
        """See `Hook.before`."""
        seed = int(digest([self._seed, calling_key.get()])[:8], 16) >> 1  # 31 bits: some providers take no more
        return replace(request, options={"seed": seed, **request.options})


def guarded(model: Model, purse: Purse, rate: RateLimit | None, seed: int | None) -> Model:
    """Return a model whose calls all pass the purse, the rate limit and the seed of an evaluation.

    Args:
        model: the model.
        purse: the purse.
        rate: the limit that holds for all rows together; None: no limit.
        seed: the seed from which those of calls follow, for a model whose provider takes one.
    """
    layers: list[Middleware] = [PurseGate(purse, model)]
    if rate is not None:
        layers.append(rate)
    if seed is not None and takes_seed(model):
        layers.append(Seeded(seed))
    return with_middleware(model, *layers)


def takes_seed(model: object) -> bool:
    """Return True if the provider of a model takes a seed: its attribute `takes_seed`, also of a model in layers."""
    members = getattr(model, "members", ())
    return bool(getattr(model, "takes_seed", False)) or (bool(members) and all(map(takes_seed, members)))


def check_amounts(budget: float | None, **counts: int) -> None:
    """Check the options that bound an evaluation.

    Args:
        budget: what it may cost; None: any amount.
        counts: other options, each a number of at least 1.

    Raises:
        InvalidValue: one cannot be used.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidValue(f"{name}={value!r}: use 1 or more", where=name)
    if budget is not None and not 0 < budget < inf:
        raise InvalidValue(f"budget={budget!r}: use an amount above 0", where="budget")


def check_prices(models: list[Model]) -> None:
    """Check that the price of each model is known.

    Raises:
        InvalidValue: one is unknown, so that a budget could not stop in time.
    """
    lacking = sorted({name for model in models for name in unpriced(model)})
    if lacking:
        raise InvalidValue(
            f"a budget needs the price of each model, and that of {', '.join(map(repr, lacking))} is unknown: give "
            "`price=`, the price table ORCHESTRATOR_PRICES, or install the extra `prices`",
            where="budget",
        )

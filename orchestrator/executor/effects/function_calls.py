"""Functions as a node calls them through `ctx.effect`: every call an effect, its result journaled as plain JSON."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orchestrator.errors import InvalidUpdate
from orchestrator.executor.effects.effect import Effect
from orchestrator.fence import waits_at_fence
from orchestrator.graph.codec import Codec, Unfit, as_json
from orchestrator.tools.running import run_function

if TYPE_CHECKING:
    from orchestrator.executor.effects.perform import AttemptEffects
    from orchestrator.kernel.records import EffectClass

T = TypeVar("T")


async def call_function(
    effects: AttemptEffects,
    name: str,
    fn: Callable[..., Awaitable[T] | T],
    args: Sequence[object],
    returns: type[T],
    effect: EffectClass,
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None,
) -> T:
    """See `Context.effect`."""
    codec, threads = Codec(returns), effects.attempt.resources.threads

    async def run(key: str) -> object:
        given: dict[str, Any] = {"idempotency_key": key} if _wants_key(fn) else {}
        waits_at_fence(key)
        return encode(cast(T, await run_function(partial(fn, *args, **given), limiter=threads)))

    def encode(value: T) -> object:
        try:
            return codec.encode(value)
        except Unfit as error:
            raise InvalidUpdate(f"effect {name!r} gave what it cannot give: {error}") from None

    async def look(key: str) -> object:
        assert reconcile is not None
        found = await run_function(partial(reconcile, key), limiter=threads)
        return None if found is None else encode(cast(T, found))

    found = await effects.perform(
        Effect[object](
            kind="effect",
            name=name,
            effect=effect,
            request={"args": as_json(list(args), f"the arguments of effect {name!r}", inside=1)},
            run=run,
            encode=lambda value: value,
            decode=lambda value: value,
            validate=lambda value: encode(codec.load(value)),
            reconcile=None if reconcile is None else look,
        )
    )
    # Read from its JSON also when it has just been made, so that a replay gives the same.
    try:
        return cast(T, codec.load(found))
    except Unfit as error:
        raise InvalidUpdate(f"effect {name!r} has a result that it cannot have: {error}") from None


def _wants_key(function: Callable[..., object]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False

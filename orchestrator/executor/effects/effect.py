"""What an effect is: one thing to do outside, how its end is written down, and what the journal says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic_core import to_jsonable_python

from orchestrator import errors
from orchestrator.errors import EffectFailed, InvalidValue, ModelError, ModelUnavailable
from orchestrator.kernel.ledger import IRREVERSIBLE
from orchestrator.kernel.records import EffectSettled
from orchestrator.tools.tool import Tool
from orchestrator.values import MAX_DEPTH, MAX_REQUEST_BYTES, checked, fault_in

if TYPE_CHECKING:
    from orchestrator.executor.step.context import StepContext
    from orchestrator.graph.limits import Reserve, Retry, Usage
    from orchestrator.kernel.ledger import EffectEntry
    from orchestrator.kernel.records import EffectClass, EffectKind
    from orchestrator.kernel.state import Activation

T = TypeVar("T")

INSIDE = 10
"""Levels of lists and objects that requests and results are themselves, around the values in them."""

SUSPENDED = "Suspended"
"""Type of the failure that stands for an effect which asked something itself, and is begun anew with the answer."""
NOT_MADE = "NotMade"
"""Type of the failure that stands for an effect which was stopped while its call still waited for its turn."""


@dataclass(frozen=True, kw_only=True)  # no slots: on Python 3.11 `Effect[T](...)` then raises TypeError
class Effect(Generic[T]):
    """One thing to do outside, and how its end is written down."""

    kind: EffectKind
    name: str
    effect: EffectClass
    request: dict[str, object]
    """What is asked, as plain JSON: its digest is what the effect is recognised by."""
    run: Callable[[str], Awaitable[T]]
    """Does it; is given the idempotency key."""
    encode: Callable[[T], object]
    """The result as plain JSON."""
    decode: Callable[[object], T]
    stored: Callable[[], dict[str, object]] | None = None
    """The request as the journal keeps it, where that is shorter."""
    usage: Callable[[T], Usage | None] | None = None
    unknown: Callable[[T], bool] | None = None
    """Whether a result says that nobody knows whether it happened."""
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None = None
    taken: Callable[[object], object] | None = None
    """What a person says came of it, as it is journaled; raises if it cannot have come of it. Else `decode` does."""
    retry: Retry | None = None
    """Which failures another try of the same call may mend. The tries are journaled."""
    reserve: Callable[[int, float | None, float | None], Reserve] | None = None
    """What it is expected to use, from the tokens of the longest reply so far, the cost of the dearest call so far, and
    the cost that is left."""


class Witness(Protocol):
    """Sees every effect that really happens, and every result that is given back instead."""

    async def call(self, effect: Effect[T], key: str) -> T:
        """Do what `effect.run(key)` does."""
        ...

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        """The journal's result is about to be given to who asks for this effect."""
        ...


witness: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""Who watches the effects of this task and of those that it starts: the crash kit does."""


@dataclass(slots=True, eq=False)
class Ticket:
    """An effect that is under way. It is the fence that its call passes."""

    key: str
    started: float
    irreversible: bool
    context: StepContext
    digest: str = ""
    occurrence: int = 0
    tries: int = 1
    entered: bool | None = None
    """Whether the call was made; False: it still waits, None: not known."""

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.context.held

    async def ensure_held(self) -> None:
        """See `Fence.ensure_held`."""
        await self.context.ensure_held()


def irreversible_happened(entry: EffectEntry) -> bool:
    """Whether it was a call of a graph in whose run something irreversible happened, or may have."""
    settled = settled_of(entry)
    result = None if settled is None else settled.result
    told = result.get("metadata") if isinstance(result, Mapping) else None
    return isinstance(told, Mapping) and bool(told.get(IRREVERSIBLE))


def is_suspended(entry: EffectEntry) -> bool:
    """Whether it did nothing so far, since it asked something first or never got its turn, and may begin anew."""
    settled = settled_of(entry)
    return settled is not None and settled.error is not None and settled.error.type in (SUSPENDED, NOT_MADE)


def settled_of(entry: EffectEntry) -> EffectSettled | None:
    """How it ended. What was settled before it was last intended is about the time before."""
    settled = entry.settled
    return settled if settled is not None and settled.seq > entry.intended.seq else None


def result_of(settled: EffectSettled | None, effect: Effect[T]) -> T:
    """The result of an effect that was settled before.

    Raises:
        EffectFailed: it failed.
    """
    if settled is not None and settled.ok:
        return effect.decode(settled.result)
    error = None if settled is None else settled.error
    if error is None:
        raise EffectFailed(f"{effect.name}: failed")
    kind = getattr(errors, error.type, None)
    if isinstance(kind, type) and issubclass(kind, ModelError):  # as it was raised the first time
        raised = kind(error.message)
        if isinstance(raised, ModelUnavailable):
            raised.retry_after = error.retry_after
        raise raised
    raise EffectFailed(f"{effect.name}: {error.message}", type=error.type)


def said_around(activation: Activation, attribute: str) -> Any:
    """What the node, or the nearest subgraph node around it, says that it uses; None if none of them does."""
    at: Activation | None = activation
    while at is not None:
        graph = at.frame.plan.graph
        found = None if graph is None else getattr(graph.nodes[at.node], attribute)
        if found is not None:
            return found
        at = at.frame.parent
    return None


def own_tools(activation: Activation) -> dict[str, Tool]:
    """The tools that the node, and the subgraph nodes around it, have for themselves; the nearest of each name."""
    found: dict[str, Tool] = {}
    at: Activation | None = activation
    while at is not None:
        graph = at.frame.plan.graph
        for one in (() if graph is None else graph.nodes[at.node].toolset) or ():
            if isinstance(one, Tool):
                found.setdefault(one.name, one)
        at = at.frame.parent
    return found


def written(where: str, value: Any) -> Any:
    """What is nearly plain JSON, such as a request to a model, as plain JSON.

    Raises:
        InvalidValue: it has no JSON form, or could not be read back.
    """
    try:
        found = to_jsonable_python(value)
    except (ValueError, TypeError, RecursionError) as error:  # also of bytes, surrogates and values too deep
        why = fault_in(value, MAX_DEPTH + INSIDE) or f"it has no JSON form: {error}"
        raise InvalidValue(f"{where}: {why}", where=where) from None
    checked(found, where, depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
    return found

"""Effects as data, and the attempt of a step that makes them. `calls.reuse` makes their idempotency keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct

from orchestrator import errors
from orchestrator.errors import EffectFailed, ModelError, ModelUnavailable
from orchestrator.executor.concurrency import Slot
from orchestrator.executor.failures import Lost, Signal, TimedOut, failure_of
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.limits import Reserve, Retry, Usage
from orchestrator.graph.model import Node
from orchestrator.json import JsonObject, joined_digest
from orchestrator.kernel.records import EffectClass, EffectKind, EffectSettled, Failure
from orchestrator.kernel.state import Activation
from orchestrator.models.base import ModelEvent
from orchestrator.models.messages import Reply
from orchestrator.redaction import without_known_in
from orchestrator.tools.result import Risk
from orchestrator.tools.tool import Tool
from orchestrator.values import MAX_DEPTH, MAX_REQUEST_BYTES, checked

T = TypeVar("T")

_REFUSALS = (errors.InvalidValue, errors.InvalidOutcome, errors.SecretInState, errors.ResultRefused)
INSIDE = 10
"""Levels of nesting that requests and results add to the values in them."""


# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)  # no slots: on Python 3.11 `Effect[T](...)` then raises TypeError
class Effect(Generic[T]):
    """A call of an external service, and the journaled form of its end."""

    kind: EffectKind
    name: str
    effect: EffectClass
    request: dict[str, object]
    """The request as plain JSON. The journal identifies the effect by its digest."""
    run: Callable[[str], Awaitable[T]]
    """Makes the call; receives the idempotency key."""
    encode: Callable[[T], object]
    """Converts the result to plain JSON."""
    decode: Callable[[object], T]
    stored: Callable[[], dict[str, object]] | None = None
    """Returns the request in its journaled form, if that is shorter."""
    risk: Risk = "dangerous"
    """Risk of the tool that it calls."""
    usage: Callable[[T], Usage | None] | None = None
    unknown: Callable[[T], bool] | None = None
    """Returns True for a result that does not say whether the call happened."""
    reread: bool = False
    """True if the caller gets the result as read back from its journaled form, also right after the call."""
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None = None
    validate: Callable[[object], object] | None = None
    """Converts a person's result to its journaled form; raises if it cannot be the result. None: it is used unchanged.
    """
    returns: Callable[[], JsonObject | None] | None = None
    """Returns the JSON Schema of a person's result; None: not known."""
    retry: Retry | None = None
    """Policy for further tries of the same call. The tries are journaled."""
    continues: bool = False
    """True for the call of a graph: repeated under its key, it continues the run that it started."""
    graph: str = ""
    """Digest of the content of that graph."""
    recall: Callable[[Mapping[str, Any]], Effect[T]] | None = None
    """Returns the call with the journaled request; None: the call is made with the arguments of the step."""
    identity: str = ""
    """Digest that identifies the effect, if its request was changed: that of the request that the step makes."""
    resumed_with: dict[str, object] | None = None
    """Request of the step, if it differs from that of the stopped call."""
    reserve: Callable[[int, float | None, float | None], Reserve] | None = None
    """Returns the expected usage, from the tokens of the longest reply so far, the cost of the most expensive call so
    far, and the remaining cost.
    """

    @property
    def irreversible(self) -> bool:
        """Return True if the call is never repeated without asking, once it may have happened."""
        return self.effect == "irreversible"

    @cached_property
    def digest(self) -> str:
        """The digest that, with its name, identifies the effect in the journal."""
        return self.identity or joined_digest({"kind": self.kind, "name": self.name, "request": self.request})

    def encoded(self, value: T) -> object:
        """Return the result in its journaled form.

        Raises:
            InvalidValue: its journaled form could not be read.
        """
        result = self.encode(value)
        checked(result, f"the result of {self.name!r}", depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
        return result

    def result(self, settled: EffectSettled | None) -> T:
        """Return the result of an effect that was settled before.

        Raises:
            EffectFailed: it failed.
            ModelError: it failed with this error, which is raised again.
            InvalidValue, InvalidOutcome, SecretInState, ResultRefused: its result was refused; the same error is
                raised again.
        """
        if settled is not None and settled.ok:
            return self.decode(settled.result)
        error = None if settled is None else settled.error
        if error is None:
            raise EffectFailed(f"{self.name}: failed")
        kind = getattr(errors, error.type, None)
        refused = settled is not None and settled.returned is not None
        if isinstance(kind, type) and issubclass(kind, (ModelError, *_REFUSALS) if refused else ModelError):
            raised = kind(error.message)
            if isinstance(raised, ModelUnavailable):
                raised.retry_after = error.retry_after
            raise raised
        # The same type and message as if the effect had failed in this attempt.
        raise EffectFailed(error.message, type=error.type)


class Call(Struct, frozen=True):
    """An effect that a step requests, with its identity among the effects of the step."""

    effect: Effect[Any]
    digest: str
    """Digest of the effect, see `Effect.digest`."""
    occurrence: int
    """Number of earlier effects of the attempt with this name and digest."""
    key: str
    """Idempotency key."""


class Witness(Protocol):
    """Observes every effect that is made, and every result that is reused instead."""

    async def call(self, effect: Effect[T], key: str) -> T:
        """Called in place of `effect.run(key)`; returns its result."""
        ...

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        """Called when a step is about to get the journaled result of this effect."""

    def stream(
        self, effect: Effect[Reply], key: str, open_stream: Callable[[], AsyncIterator[ModelEvent]]
    ) -> AsyncIterator[ModelEvent]:
        """Called in place of `open_stream()` when a node reads a reply in pieces. Default: `call` gives it whole."""
        return _whole(self.call(effect, key))

    def pieces(self, events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        """Called during `call` with the pieces of a reply that a reader of the run watches; returns them."""
        return events


async def _whole(reply: Awaitable[Reply]) -> AsyncIterator[ModelEvent]:
    yield ModelEvent(reply=await reply)


witness: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""Observes the effects of this task and of those that it starts; set by the crash kit and by traces."""


# -- attempts --------------------------------------------------------------------------------------------------------


class Attempt:
    """An attempt of a step: its place in the run, and whether it may continue.

    It is also the fence of its node, which may wait for a thread, or for a place in the concurrency limit.
    """

    scope: anyio.CancelScope | None = None
    """The attempt's time limit."""
    place: Slot | None = None
    """Its place in the concurrency limits."""
    signal: Signal | None = None
    """The reason why the attempt ends without an outcome, regardless of how its node handles errors."""
    failed_calls: int = 0
    """Calls of tools by the node that failed or could not be made."""
    cached: bool = False
    """True if its outcome and update come from an earlier step, through the cache."""
    varies: str = ""
    """The attribute of `ctx` that makes its result valid for this run only; empty if there is none, as far as is known.
    """
    key: str = ""
    entered: bool | None = None

    def __init__(self, log: RunLog, resources: Resources, activation: Activation, spec: Node) -> None:
        self.log, self.resources, self.activation, self.spec = log, resources, activation, spec

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.log.held

    async def ensure_held(self) -> None:
        """Check in the store that this process still holds the run's lease, before an external action.

        Raises:
            Lost: it does not, or the store failed.
        """
        try:
            await self.log.ensure_held()
        except Exception as error:
            raise self.signalled(Lost(error)) from error

    def setting(self, attribute: str) -> Any:
        """Return an attribute of the node, or of the innermost enclosing subgraph node that sets it; else None."""
        at: Activation | None = self.activation
        while at is not None:
            graph = at.frame.plan.graph
            found = None if graph is None else getattr(graph.nodes[at.node], attribute)
            if found is not None:
                return found
            at = at.frame.parent
        return None

    def check_may_call(self, tool: str) -> None:
        """Refuse calls of tools by functions that cannot await them; proofs rely on this.

        Raises:
            TypeError: the node is such a function.
        """
        if not getattr(self.spec, "awaits", True):
            node = self.activation.node
            raise TypeError(f"{node} is a sync function and calls tool {tool}: make it async def, and await the call")

    def own_tools(self) -> dict[str, Tool]:
        """Return the tools that the node and its enclosing subgraph nodes declare; the innermost of each name."""
        found: dict[str, Tool] = {}
        at: Activation | None = self.activation
        while at is not None:
            graph = at.frame.plan.graph
            for one in (() if graph is None else graph.nodes[at.node].toolset) or ():
                if isinstance(one, Tool):
                    found.setdefault(one.name, one)
            at = at.frame.parent
        return found

    def while_waiting(self) -> AbstractAsyncContextManager[None]:
        """Wait for other steps inside this context; it frees the step's place in the concurrency limit."""
        return nullcontext() if self.place is None else self.place.while_waiting()

    # -- stopping ------------------------------------------------------------------------------------------------

    def signalled(self, signal: Signal) -> Signal:
        """Record why the attempt ends without an outcome, and return the signal to raise in its node."""
        if self.signal is None:
            self.signal = TimedOut() if self.timed_out else signal
        return self.signal

    @property
    def timed_out(self) -> bool:
        """Return True if the attempt's time has run out, even if the node ignores it."""
        scope = self.scope
        return scope is not None and (scope.cancel_called or anyio.current_time() >= scope.deadline)

    def check_running(self) -> None:
        """Refuse further calls of a node that caught a signal or whose time has run out.

        Raises:
            Suspend, Refused, Lost, TimedOut: the signal.
        """
        if self.signal is not None or self.timed_out:
            raise self.signal or self.signalled(TimedOut())

    async def wait_if_stopped(self) -> None:
        """Like `check_running`, but yields first, so that a node that retries endlessly does not block others."""
        if self.signal is not None or self.timed_out:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            self.check_running()

    def stopped(self) -> tuple[str, str] | None:
        """Return the reason why the run stopped this attempt, as type and message; None if only this process stops."""
        if self.activation.key not in self.log.machine.running:
            return "Cancelled", "cancelled while it was under way"
        if self.timed_out:
            return "StepTimeout", f"{self.activation.node} took longer than {self.spec.timeout} s"
        return None

    # -- live events ---------------------------------------------------------------------------------------------

    def failure(self, error: BaseException) -> Failure:
        """Return an error as data."""
        return failure_of(error, self.activation)

    def failure_named(self, kind: str, message: str) -> Failure:
        """Make a failure without an exception."""
        return Failure(type=kind, message=message, node=self.activation.node, path=self.activation.path)

    def about(self) -> dict[str, object]:
        """Return the fields of a live event that identify the step."""
        at = self.activation
        return {"activation": at.key, "path": at.path, "node": at.node}

    def tell(self, kind: str, **data: object) -> None:
        """Send a live event about this step to all watchers, without known secrets."""
        if self.log.watchers:
            self.log.tell(kind, {**self.about(), **{name: without_known_in(value) for name, value in data.items()}})


@dataclass(slots=True, eq=False)
class Ticket:
    """An effect in progress. It is also the fence of its call."""

    key: str
    started: float
    irreversible: bool
    attempt: Attempt
    digest: str = ""
    occurrence: int = 0
    tries: int = 1
    entered: bool | None = None
    """True once the call was made; False while it waits; None: not known."""
    returned: str | None = None
    """The returned value as text, once the call has returned and its result was refused."""

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.attempt.held

    async def ensure_held(self) -> None:
        """See `Fence.ensure_held`."""
        await self.attempt.ensure_held()

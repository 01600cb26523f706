"""Effects as data, and the attempt of a step that makes them. `effects.decide` makes their idempotency keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel

from orchestrator import errors
from orchestrator.errors import EffectFailed, ModelError, ModelUnavailable
from orchestrator.executor.concurrency import Place
from orchestrator.executor.failures import Lost, Signal, TimedOut, failure_of
from orchestrator.executor.resources import Resources
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.limits import Reserve, Retry, Usage
from orchestrator.graph.model import Node
from orchestrator.json import JsonObject, digest
from orchestrator.kernel.records import EffectClass, EffectKind, EffectSettled, Failure
from orchestrator.kernel.state import Activation
from orchestrator.redaction import without_known_in
from orchestrator.tools.result import Risk
from orchestrator.tools.tool import Tool
from orchestrator.values import MAX_DEPTH, MAX_REQUEST_BYTES, checked

T = TypeVar("T")

_REFUSALS = (errors.InvalidValue, errors.InvalidOutcome, errors.SecretInState, errors.ResultRefused)
INSIDE = 10
"""Levels of lists and objects that requests and results are themselves, around the values in them."""


# -- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)  # no slots: on Python 3.11 `Effect[T](...)` then raises TypeError
class Effect(Generic[T]):
    """A call of something outside, and the form in which its end is journaled."""

    kind: EffectKind
    name: str
    effect: EffectClass
    request: dict[str, object]
    """The request as plain JSON. The journal recognises the effect by its digest."""
    run: Callable[[str], Awaitable[T]]
    """Makes the call; is given the idempotency key."""
    encode: Callable[[T], object]
    """The result as plain JSON."""
    decode: Callable[[object], T]
    stored: Callable[[], dict[str, object]] | None = None
    """The request as the journal keeps it, where that is shorter."""
    risk: Risk = "dangerous"
    """Risk of the tool that it calls."""
    usage: Callable[[T], Usage | None] | None = None
    unknown: Callable[[T], bool] | None = None
    """Returns True for a result that does not say whether the call happened."""
    reread: bool = False
    """True if the caller gets the result as it is read back, also if the call has just been made."""
    reconcile: Callable[[str], Awaitable[T | None] | T | None] | None = None
    validate: Callable[[object], object] | None = None
    """The result that a person gives, as it is journaled; raises if it cannot be the result. None: as it was given."""
    returns: Callable[[], JsonObject | None] | None = None
    """JSON Schema of the result that a person gives; None: not known."""
    retry: Retry | None = None
    """Policy for further tries of the same call. The tries are journaled."""
    continues: bool = False
    """True for the call of a graph: made again under its key, it continues the run that it started."""
    graph: str = ""
    """Digest of the content of that graph."""
    recall: Callable[[Mapping[str, Any]], Effect[T]] | None = None
    """Returns the call with the request that the journal has; None: the call is made with the arguments of the step."""
    resumed_with: dict[str, object] | None = None
    """Request of the step, if that differs from the one with which it was making the call when it was stopped."""
    reserve: Callable[[int, float | None, float | None], Reserve] | None = None
    """Expected usage, from the tokens of the longest reply so far, the cost of the dearest call so far, and
    the cost that is left."""

    @property
    def irreversible(self) -> bool:
        """True if the call is never made again without asking, once it may have happened."""
        return self.effect == "irreversible"

    @property
    def digest(self) -> str:
        """Digest by which the journal recognises the effect, with its name."""
        return digest({"kind": self.kind, "name": self.name, "request": self.request})

    def encoded(self, value: T) -> object:
        """The result as the journal keeps it.

        Raises:
            InvalidValue: it could not be read back.
        """
        result = self.encode(value)
        checked(result, f"the result of {self.name!r}", depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
        return result

    def result(self, settled: EffectSettled | None) -> T:
        """The result of an effect that was settled before.

        Raises:
            EffectFailed: it failed.
            ModelError: it failed so, as it was raised the first time.
            InvalidValue, InvalidOutcome, SecretInState, ResultRefused: its result was refused, as the first time.
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
        # Type and message as the step's failure has them where the effect fails before its eyes.
        raise EffectFailed(error.message, type=error.type)


@dataclass(frozen=True, slots=True)
class Call:
    """An effect that a step asks for, and how the journal tells it from the others of the step."""

    effect: Effect[Any]
    digest: str
    """Digest of the effect, see `Effect.digest`."""
    occurrence: int
    """Number of effects with this name and digest that the attempt asked for before."""
    key: str
    """Idempotency key."""


class Witness(Protocol):
    """Sees every effect that really happens, and every result that is given back instead."""

    async def call(self, effect: Effect[T], key: str) -> T:
        """Do what `effect.run(key)` does."""
        ...

    def reuse(self, effect: Effect[Any], settled: EffectSettled) -> None:
        """A step is about to get the journal's result of this effect."""


witness: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""Watches the effects of this task and of those that it starts: the crash kit sets it."""


# -- the attempt that makes them -------------------------------------------------------------------------------------


class Attempt:
    """An attempt of a step: its place in the run, and whether it may continue.

    It is also the fence of its node, which may wait for a thread, or for a place among the steps that run at a time.
    """

    scope: anyio.CancelScope | None = None
    """The attempt's time limit."""
    place: Place | None = None
    """Its place, where only so many steps run at a time."""
    signal: Signal | None = None
    """The reason why the attempt ends without an outcome, whatever its node makes of what was raised."""
    failed_calls: int = 0
    """Calls of tools that the node made, and that failed or could not be made."""
    cached: bool = False
    """True if its outcome and update are those of an earlier step, from the cache."""
    varies: str = ""
    """The attribute of `ctx` that makes its result valid for this run only; empty: none, as far as is known."""
    key: str = ""
    entered: bool | None = None

    def __init__(self, log: RunLog, resources: Resources, activation: Activation, spec: Node) -> None:
        self.log, self.resources, self.activation, self.spec = log, resources, activation, spec

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.log.held

    async def ensure_held(self) -> None:
        """Ask the store whether the run is still held here, before something outside is done.

        Raises:
            Lost: it is not, or the store failed.
        """
        try:
            await self.log.ensure_held()
        except Exception as error:
            raise self.signalled(Lost(error)) from error

    def setting(self, attribute: str) -> Any:
        """An attribute of the node, or of the nearest subgraph node around it that sets it; None if none does."""
        at: Activation | None = self.activation
        while at is not None:
            graph = at.frame.plan.graph
            found = None if graph is None else getattr(graph.nodes[at.node], attribute)
            if found is not None:
                return found
            at = at.frame.parent
        return None

    def check_may_call(self, tool: str) -> None:
        """Refuse calls of tools to functions that cannot await them, as proofs rely on it.

        Raises:
            TypeError: the node is such a function.
        """
        if not getattr(self.spec, "awaits", True):
            node = self.activation.node
            raise TypeError(f"{node} is a sync function and calls tool {tool}: make it async def, and await the call")

    def own_tools(self) -> dict[str, Tool]:
        """The tools that the node, and the subgraph nodes around it, have for themselves; the nearest of each name."""
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
        """Note why the attempt ends without an outcome, and return the signal to raise in its node."""
        if self.signal is None:
            self.signal = TimedOut() if self.timed_out else signal
        return self.signal

    @property
    def timed_out(self) -> bool:
        """True if the attempt's time has run out, even if the node has not noticed or ignores it."""
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
        """Like `check_running`, but yields first: a node that retries in an endless loop does not block others."""
        if self.signal is not None or self.timed_out:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            self.check_running()

    def stopped(self) -> tuple[str, str] | None:
        """The reason why the run stopped this attempt, as type and message; None if only this process stops."""
        if self.activation.key not in self.log.machine.running:
            return "Cancelled", "cancelled while it was under way"
        if self.timed_out:
            return "StepTimeout", f"{self.activation.node} took longer than {self.spec.timeout} s"
        return None

    # -- telling -------------------------------------------------------------------------------------------------

    def failure(self, error: BaseException) -> Failure:
        """An error, as data."""
        return failure_of(error, self.activation)

    def failure_named(self, kind: str, message: str) -> Failure:
        """A failure that no exception stands for."""
        return Failure(type=kind, message=message, node=self.activation.node, path=self.activation.path)

    def about(self) -> dict[str, object]:
        """The fields of a live event that name the step."""
        at = self.activation
        return {"activation": at.key, "path": at.path, "node": at.node}

    def tell(self, kind: str, **data: object) -> None:
        """Send a live event about this step, without known secrets, to all watchers."""
        if self.log.watchers:
            self.log.tell(kind, {**self.about(), **{name: without_known_in(value) for name, value in data.items()}})


@dataclass(slots=True, eq=False)
class Ticket:
    """An effect that is under way. It is the fence that its call passes."""

    key: str
    started: float
    irreversible: bool
    attempt: Attempt
    digest: str = ""
    occurrence: int = 0
    tries: int = 1
    entered: bool | None = None
    """True once the call was made; False while it still waits; None: not known."""
    returned: str | None = None
    """The returned value in words, once the call has returned and its result was refused."""

    @property
    def held(self) -> bool:
        """See `Fence.held`."""
        return self.attempt.held

    async def ensure_held(self) -> None:
        """See `Fence.ensure_held`."""
        await self.attempt.ensure_held()

"""Effects of an attempt that are in progress: journaled before and after, and closed with the step.

A step is suspended only between effects: a task that asks a question waits until no other effect is in progress.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError
from orchestrator.executor.calls.effect import Attempt, Call, Ticket
from orchestrator.executor.calls.limits import Callers
from orchestrator.executor.calls.reuse import Ending
from orchestrator.executor.failures import Lost, Suspend, in_step_task
from orchestrator.graph.limits import Reserve
from orchestrator.kernel.records import EffectIntended, EffectSettled

inside: ContextVar[tuple[str, ...]] = ContextVar("inside", default=())
"""Keys of the effects inside which this task runs, outermost first. A task for which they wait must not wait for them.
"""


def innermost() -> str:
    """Return the key of the effect in which this task runs, or the empty string."""
    around = inside.get()
    return around[-1] if around else ""


def patience() -> Iterator[float]:
    """Yield the pauses, in seconds, in which a node may still request effects that it made before.

    In the node's own task, a call that is not requested by now will not be. Concurrent tasks may have been further
    when the run was stopped: only a long silence means that one is missing.
    """
    yield from (0.0, 0.0, 0.0, 0.01, 0.05, 0.2, 0.5)
    if not in_step_task():
        yield from (1.0,) * 60


class UnderWay:
    """The effects of an attempt that are intended and not settled."""

    __slots__ = ("_asking", "_landed", "_open", "_readers", "_reading", "attempt", "before", "callers")

    def __init__(self, attempt: Attempt, callers: Callers | None) -> None:
        self.attempt = attempt
        self.callers = callers
        """Calling runs of the attempt's run."""
        self.before = attempt.log.machine.ledger.of(attempt.activation.key)
        """Effects of the step that earlier attempts made, or this one before the step was stopped or suspended."""
        self._open: set[str] = set()
        self._landed = anyio.Event()
        self._asking: list[str] = []
        """Effects that contain an open question: they wait for the suspension, which does not wait for them."""
        self._reading: dict[str, tuple[Ticket, int]] = {}
        """Effects whose results the node is streaming, with the id of the reading task."""
        self._readers: list[Callable[[], Awaitable[None]]] = []
        """Functions that close the streams that the node opened."""

    def __contains__(self, key: str) -> bool:
        return key in self._open

    # -- the journal ---------------------------------------------------------------------------------------------

    async def intend(self, call: Call, *, again: bool, tries: int, reserve: Reserve | None) -> Ticket:
        """Journal the intent of a call and wait until it is durable.

        For a call of a model or a tool, also wait until the journals of the calling runs are durable.

        Raises:
            Lost: the journal cannot be written, or another process has taken over the run.
        """
        attempt, log = self.attempt, self.attempt.log
        effect, key = call.effect, call.key
        self._note_intent(call, again=again, reserve=reserve)
        self._open.add(key)
        try:
            if self.callers is None or effect.kind == "effect":
                await log.durable()
            else:
                self.callers.hurry()
                await log.durable()
                await self.callers.durable()
            if not log.lease.fresh:  # this process may have been suspended for an hour just now
                await log.ensure_held()
        except BaseException as error:
            why = attempt.stopped()
            if why is not None and log.journal.fault is None:
                ticket = Ticket(key, log.clock.now(), False, attempt)
                self.land(ticket, Ending(error=attempt.failure_named(*why)))
            else:
                self.forget(key)
            if isinstance(error, Exception):
                raise attempt.signalled(Lost(error)) from error
            raise
        return Ticket(key, log.clock.now(), effect.irreversible, attempt, call.digest, call.occurrence, tries)

    def adopt(self, call: Call, result: object) -> EffectSettled:
        """Journal a call that is not made, with its result in another run."""
        self._note_intent(call)
        return self.settle_now(call.key, Ending(result))

    def _note_intent(self, call: Call, *, again: bool = False, reserve: Reserve | None = None) -> None:
        attempt, log, effect = self.attempt, self.attempt.log, call.effect
        log.push(
            EffectIntended(
                **log.at(attempt.activation),
                key=call.key,
                kind=effect.kind,
                name=effect.name,
                effect=effect.effect,
                digest=call.digest,
                occurrence=call.occurrence,
                attempt=attempt.activation.attempt,
                request=effect.request if effect.stored is None else effect.stored(),
                again=again,
                inside=innermost(),
                reserve=reserve,
            )
        )

    def land(self, ticket: Ticket, ending: Ending) -> None:
        """Remove an effect from those in progress, and journal its end."""
        self.forget(ticket.key)
        self.settle(ticket.key, ticket.started, ending, tries=ticket.tries)

    def settle(self, key: str, started: float, ending: Ending, *, tries: int = 1) -> EffectSettled:
        """Journal the end of an effect.

        Args:
            started: Unix seconds.
            tries: the number of tries so far.
        """
        log = self.attempt.log
        stamp = log.at(self.attempt.activation)
        record = EffectSettled(
            **stamp,
            key=key,
            ok=ending.error is None,
            result=ending.result,
            error=ending.error,
            usage=ending.usage,
            started=started,
            ended=stamp["ts"],
            unknown=ending.unknown,
            returned=ending.returned,
            answered=ending.answered,
            tries=tries,
            next_at=ending.next_at,
            secret=ending.secret,
        )
        log.push(record)
        if self.callers is not None:
            self.callers.report(key)
        log.hurry()
        return record

    def settle_now(self, key: str, ending: Ending) -> EffectSettled:
        """Like `settle`, for an effect that is not in progress: its outcome was determined in another way."""
        return self.settle(key, self.attempt.log.clock.now(), ending)

    def forget(self, key: str) -> None:
        """Drop an effect without a record: it stays unsettled for the next holder of the run."""
        self._open.discard(key)
        self._reading.pop(key, None)
        self._landed.set()

    # -- suspension ----------------------------------------------------------------------------------------------

    async def settle_down(self) -> None:
        """Wait until no effect of this attempt is in progress: a step is suspended only between effects."""
        task = anyio.get_current_task().id
        around = [*inside.get(), *(key for key, (_, reader) in self._reading.items() if reader == task)]
        self._asking.extend(around)
        self._landed.set()
        try:
            for _ in range(2):
                await anyio.lowlevel.checkpoint()  # those that start at the same time
            while self._open.difference(self._asking):
                if self._landed.is_set():
                    self._landed = anyio.Event()
                await self._landed.wait()
        except BaseException:
            if self.attempt.signal is None:  # the node no longer asks; otherwise, another question came first
                for key in around:
                    self._asking.remove(key)
            raise

    def is_suspended_in(self, key: str) -> bool:
        """Return True if a question inside this effect suspends the step."""
        return key in self._asking and isinstance(self.attempt.signal, Suspend)

    # -- replies that are read piece by piece --------------------------------------------------------------------

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Register `close`, which closes a stream that the node reads and its connection."""
        self._readers.append(close)

    async def close_readers(self) -> None:
        """Close the streams that the node left open, without waiting for the garbage collector."""
        readers, self._readers = self._readers, []
        if readers:
            with anyio.move_on_after(1, shield=True):
                for close in readers:
                    with contextlib.suppress(Exception):  # it was read to its end, or has raised its error
                        await close()

    def read_here(self, ticket: Ticket) -> None:
        """Record that this task streams the effect's result, and that the node runs between two pieces."""
        self._reading[ticket.key] = (ticket, anyio.get_current_task().id)

    def pause_reading(self, ticket: Ticket) -> None:
        """Pause a stream that the node stopped reading; a replay of the attempt reads it again up to this point."""
        self._open.discard(ticket.key)
        self._landed.set()

    def stop_reading(self, *, will_resume: bool) -> None:
        """End the streams that were not read to their end, because the attempt is over.

        Args:
            will_resume: the attempt runs again later and may read them then.
        """
        for ticket, _ in list(self._reading.values()):
            if will_resume:
                self.forget(ticket.key)
            else:
                error = self.attempt.failure(ModelError("the node stopped reading the reply"))
                self.land(ticket, Ending(error=error))

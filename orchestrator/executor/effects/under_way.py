"""The effects of one attempt between their intent and their end: journaled before and after, and closed with the step.

A step is suspended between effects only: a task that asks something waits until nothing else is under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError
from orchestrator.executor.effects.effect import Attempt, Effect, Ticket
from orchestrator.executor.effects.replay import Ending
from orchestrator.executor.effects.shared_limits import Callers
from orchestrator.executor.interrupts import Lost, Suspend
from orchestrator.graph.limits import Reserve
from orchestrator.kernel.records import EffectIntended, EffectSettled

inside: ContextVar[tuple[str, ...]] = ContextVar("inside", default=())
"""Keys of the effects inside of which this task runs, outermost first: what they wait for must not wait for them."""


def innermost() -> str:
    """The key of the effect that this task works on, or an empty text."""
    around = inside.get()
    return around[-1] if around else ""


class UnderWay:
    """The effects of an attempt that are intended and have not ended."""

    __slots__ = ("_asking", "_landed", "_open", "_readers", "_reading", "attempt", "callers")

    def __init__(self, attempt: Attempt, callers: Callers | None) -> None:
        self.attempt, self.callers = attempt, callers
        """The runs around the attempt's run."""
        self._open: set[str] = set()
        self._landed = anyio.Event()
        self._asking: list[str] = []
        """Those inside of which something asks: they wait for the step's suspension, and it not for them."""
        self._reading: dict[str, tuple[Ticket, int]] = {}
        """Those whose results the node reads piece by piece, and the id of the task that does."""
        self._readers: list[Callable[[], Awaitable[None]]] = []
        """What closes the streams that the node began to read."""

    def __contains__(self, key: str) -> bool:
        return key in self._open

    # -- the journal ---------------------------------------------------------------------------------------------

    async def intend(
        self,
        effect: Effect[Any],
        key: str,
        digest: str,
        occurrence: int,
        *,
        again: bool,
        tries: int,
        reserve: Reserve | None,
    ) -> Ticket:
        """Journal the intent of a call. When it is durable, in the runs around too, the call may be made.

        Raises:
            Lost: it cannot be made durable, or another process has taken the run over.
        """
        attempt, log = self.attempt, self.attempt.log
        log.push(
            EffectIntended(
                **log.at(attempt.activation),
                key=key,
                kind=effect.kind,
                name=effect.name,
                effect=effect.effect,
                digest=digest,
                occurrence=occurrence,
                attempt=attempt.activation.attempt,
                request=effect.request if effect.stored is None else effect.stored(),
                again=again,
                inside=innermost(),
                reserve=reserve,
            )
        )
        self._open.add(key)
        try:
            if self.callers is None or effect.kind == "effect":
                await log.durable()
            else:
                self.callers.hurry()
                await log.durable()
                await self.callers.durable()
            if not log.lease.fresh:  # this process may have been stopped for an hour just now
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
        return Ticket(key, log.clock.now(), effect.irreversible, attempt, digest, occurrence, tries)

    def land(self, ticket: Ticket, ending: Ending) -> None:
        """Journal how an effect ended that is under way."""
        self.forget(ticket.key)
        self.settle(ticket.key, ticket.started, ending, tries=ticket.tries)

    def settle(self, key: str, started: float, ending: Ending, *, tries: int = 1) -> EffectSettled:
        """Journal how an effect ended.

        Args:
            started: Unix seconds.
            tries: how many tries of it were made.
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
            tries=tries,
            next_at=ending.next_at,
        )
        log.push(record)
        if self.callers is not None:
            self.callers.report(key)
        log.hurry()
        return record

    def settle_now(self, key: str, ending: Ending) -> EffectSettled:
        """The same, of one that is not under way: its outcome was found out otherwise."""
        return self.settle(key, self.attempt.log.clock.now(), ending)

    def forget(self, key: str) -> None:
        """An effect ends here without a record: it stays unsettled, and the run's next holder finds it so."""
        self._open.discard(key)
        self._reading.pop(key, None)
        self._landed.set()

    # -- suspension ----------------------------------------------------------------------------------------------

    async def settle_down(self) -> None:
        """Wait until no effect of this attempt is under way: a step is suspended between effects only."""
        task = anyio.get_current_task().id
        around = [*inside.get(), *(key for key, (_, reader) in self._reading.items() if reader == task)]
        self._asking.extend(around)
        self._landed.set()
        try:
            for _ in range(2):
                await anyio.lowlevel.checkpoint()  # those that begin at the same time
            while self._open.difference(self._asking):
                if self._landed.is_set():
                    self._landed = anyio.Event()
                await self._landed.wait()
        except BaseException:
            if self.attempt.signal is None:  # the node asks no longer; else another question was quicker
                for key in around:
                    self._asking.remove(key)
            raise

    def is_suspended_in(self, key: str) -> bool:
        """Whether the step is suspended while something inside of this effect asks."""
        return key in self._asking and isinstance(self.attempt.signal, Suspend)

    # -- replies that are read piece by piece --------------------------------------------------------------------

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """The node reads a stream; `close` closes it, and with it its connection."""
        self._readers.append(close)

    async def close_readers(self) -> None:
        """Close what the node left open: a connection does not wait for the garbage collector."""
        readers, self._readers = self._readers, []
        if readers:
            with anyio.move_on_after(1, shield=True):
                for close in readers:
                    with contextlib.suppress(Exception):  # it was read to its end, or has raised its error
                        await close()

    def read_here(self, ticket: Ticket) -> None:
        """The result of this effect comes in pieces, and what this task does between two of them is up to the node."""
        self._reading[ticket.key] = (ticket, anyio.get_current_task().id)

    def put_down(self, ticket: Ticket) -> None:
        """The node reads no further, for now: a replay of this attempt begins to read anew, up to where it stops."""
        self._open.discard(ticket.key)
        self._landed.set()

    def stop_reading(self, *, goes_on: bool) -> None:
        """The attempt is over: nothing reads on in what was not read to its end.

        Args:
            goes_on: it begins anew later, and may read it then.
        """
        for ticket, _ in list(self._reading.values()):
            if goes_on:
                self.forget(ticket.key)
            else:
                error = self.attempt.failure(ModelError("the node stopped reading the reply"))
                self.land(ticket, Ending(error=error))

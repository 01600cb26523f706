"""The effect ledger: what touches the outside is journaled before and after, and never done twice without asking.

An effect is recognised by its activation, name, digest of the request, and occurrence (the how-manieth call of
that kind in the attempt). What the journal knows of it decides:

    settled                                   its result is given back, nothing is called
    intended, end unknown, may run again      called again under the same key
    intended, end unknown, irreversible       `reconcile` if there is one, else (or if it fails) a question
    failed, and to be tried again             tried again, at the time that the journal says
    suspended by a question of its own        begun anew when that is answered
    not there                                 called, unless that would leave a settled irreversible one behind

In a new attempt (a retry) the effects of earlier attempts do not count, except irreversible ones.

Whatever ends the attempt (a question, a spent limit, a lost journal) is noted in `StepContext.signal`: from then on
the step touches nothing outside any more, whatever its node catches.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel

from orchestrator.errors import ModelError, ReplayMismatch, RunConflict, StoreError, message_of
from orchestrator.executor.answers import verdict
from orchestrator.executor.effects.callers import Denied
from orchestrator.executor.effects.effect import (
    INSIDE,
    NOT_MADE,
    SUSPENDED,
    Effect,
    Ticket,
    irreversible_happened,
    is_suspended,
    result_of,
    settled_of,
    witness,
)
from orchestrator.executor.effects.questions import answer_to, unknown_question
from orchestrator.executor.interrupts import Lost, Refused, Suspend, at_home
from orchestrator.executor.retry import uncertain, wait_before
from orchestrator.fence import current_fence
from orchestrator.graph.limits import Reserve
from orchestrator.jsontypes import digest
from orchestrator.kernel.ids import hash_id
from orchestrator.kernel.queries import exceeded_limit, must_reserve, must_wait, reserve_of
from orchestrator.kernel.records import EffectIntended, EffectSettled, Failure, LimitSpent
from orchestrator.redacting import without_known_in
from orchestrator.values import MAX_DEPTH, MAX_REQUEST_BYTES, checked

if TYPE_CHECKING:
    from orchestrator.executor.run_log import RunLog
    from orchestrator.executor.step.context import StepContext
    from orchestrator.graph.limits import Usage
    from orchestrator.kernel.ledger import EffectEntry

T = TypeVar("T")

_PATIENCE = (0.0, 0.0, 0.0, 0.01, 0.05, 0.2, 0.5)
"""Seconds in which effects that run beside each other in one node get to say that they are still wanted."""
_LONG_PATIENCE = (1.0,) * 60
"""The same, where the call that waits for them is itself made in a task that the node started."""

_inside: ContextVar[tuple[str, ...]] = ContextVar("inside", default=())
"""Keys of the effects inside of which this task runs, outermost first: what they wait for must not wait for them."""


def innermost() -> str:
    """The key of the effect that this task works on, or an empty text."""
    inside = _inside.get()
    return inside[-1] if inside else ""


class Ledger:
    """The effects of one attempt of one activation, against what the journal knows of them."""

    __slots__ = (
        "_asking",
        "_context",
        "_counts",
        "_failed",
        "_flying",
        "_landed",
        "_readers",
        "_reading",
        "_reused",
        "_used",
    )

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._counts: dict[tuple[str, str], int] = {}
        self._used: set[str] = set()
        self._reused: set[str] = set()
        """Those of them whose results were given back: what was done inside of them is not asked for again."""
        self._flying: set[str] = set()
        self._landed = anyio.Event()
        self._asking: list[str] = []
        """Those inside of which something asks: they wait for the step's suspension, and it not for them."""
        self._reading: dict[str, tuple[Ticket, int]] = {}
        """Those whose results the node reads piece by piece, and the id of the task that does."""
        self._readers: list[Callable[[], Awaitable[None]]] = []
        """What closes the streams that the node began to read."""
        self._failed: list[tuple[BaseException, Ticket]] = []
        """What the surroundings made fail, as it was raised into the node."""

    async def perform(self, effect: Effect[T]) -> T:
        """Do an effect, or give back what the journal says came of it.

        Raises:
            EffectFailed: the journal says that it failed.
            ReplayMismatch: see `Context.effect`.
            Refused: a limit forbids it.
            Suspend: somebody has to say first what became of it.
        """
        settled, ticket = await self.begin(effect)
        while ticket is not None:
            watching = witness.get()
            inside = _inside.set((*_inside.get(), ticket.key))
            outside = current_fence.set(ticket)
            try:
                done = await (effect.run(ticket.key) if watching is None else watching.call(effect, ticket.key))
                if self._suspended_in(ticket.key):
                    self._context.go_on()
                return self.end(ticket, effect, done)
            except BaseException as error:
                if not self.broke(ticket, error, effect):
                    raise
            finally:
                current_fence.reset(outside)
                _inside.reset(inside)
            ticket = await self.once_more(effect, ticket)
        return self.known(settled, effect)

    async def begin(self, effect: Effect[T]) -> tuple[EffectSettled | None, Ticket | None]:
        """How the effect ended, if that is known; else its ticket, the intent being durable: do it, then `end` it."""
        context = self._context
        await context.may_go_on()
        wanted = digest({"kind": effect.kind, "name": effect.name, "request": effect.request})
        occurrence = self._counts.get((effect.name, wanted), 0)
        self._counts[effect.name, wanted] = occurrence + 1
        entry = self._known(effect.name, wanted, occurrence)
        if entry is None:
            if effect.effect == "irreversible":
                await self._leave_nothing_behind(effect.name)
            activation = context.activation
            key = hash_id(context.run_id, activation.key, str(activation.attempt), effect.name, wanted, str(occurrence))
            return None, await self._intend(effect, key, wanted, occurrence, again=False)
        key = entry.intended.key
        self._used.add(key)
        if entry.failed_try is not None:
            waits = Ticket(key, 0.0, False, context, wanted, occurrence, entry.failed_try.tries)
            return None, await self.once_more(effect, waits)
        settled = None if is_suspended(entry) else settled_of(entry)
        if settled is not None and not (settled.unknown and entry.intended.attempt != context.attempt):
            watching = witness.get()
            if watching is not None:
                watching.reuse(effect, settled)
            self._reused.add(key)
            return settled, None
        if entry.intended.effect == "irreversible" and not is_suspended(entry):
            found = await self._what_became_of(effect, entry)
            if found is not None:
                self._reused.add(key)
                return found, None
        before = entry.settled
        tries = before.tries + 1 if before is not None and before.next_at is not None else 1
        return None, await self._intend(effect, key, wanted, occurrence, again=True, tries=tries)

    def is_due(self, effect: Effect[Any]) -> tuple[bool, str]:
        """Whether asking for the effect now would do it, as far as the journal says, and its key if it has one."""
        wanted = digest({"kind": effect.kind, "name": effect.name, "request": effect.request})
        entry = self._known(effect.name, wanted, self._counts.get((effect.name, wanted), 0))
        if entry is None:
            return True, ""
        settled = None if entry.failed_try is not None or is_suspended(entry) else settled_of(entry)
        known = settled is not None and not (settled.unknown and entry.intended.attempt != self._context.attempt)
        return not known, entry.intended.key

    def known(self, settled: EffectSettled | None, effect: Effect[T]) -> T:
        """What the journal says came of an effect; see `result_of`."""
        try:
            return result_of(settled, effect)
        except ModelError as error:
            if settled is not None and error.resumable:
                self._failed.append((error, Ticket(settled.key, settled.started, False, self._context)))
            raise

    def reads(self, close: Callable[[], Awaitable[None]]) -> None:
        """The node reads a stream; `close` closes it, and with it its connection."""
        self._readers.append(close)

    async def close_readers(self) -> None:
        """Close what the node left open: a connection is not to wait until somebody finds it as garbage."""
        readers, self._readers = self._readers, []
        if readers:
            with anyio.move_on_after(1, shield=True):
                for close in readers:
                    with contextlib.suppress(Exception):  # it was read to its end, or failed: it has said so
                        await close()

    def read_here(self, ticket: Ticket) -> None:
        """The result of this effect comes in pieces, and what this task does between two of them is up to the node."""
        self._reading[ticket.key] = (ticket, anyio.get_current_task().id)

    def end(self, ticket: Ticket, effect: Effect[T], value: T) -> T:
        """Journal the result of an effect, and give it as a replay will."""
        unknown = ticket.irreversible and effect.unknown is not None and effect.unknown(value)
        usage = None if effect.usage is None else effect.usage(value)
        encoded = _encoded(effect, value)
        result = without_known_in(encoded)
        if result is not encoded:  # a key that was repeated: the node gets what a replay will give it
            value = effect.decode(result)
        self._land(ticket, result=result, usage=usage, unknown=unknown)
        return value

    def broke(self, ticket: Ticket, error: BaseException, effect: Effect[Any] | None = None) -> bool:
        """Journal that an effect raised, or was stopped by the run. Stopped with the process, it stays unsettled.

        Args:
            effect: it, if it may be tried again.

        Returns:
            whether it is to be tried again, `once_more`.
        """
        if ticket.key not in self._flying:
            return False  # the attempt is over; only now somebody closed what read it
        if self._suspended_in(ticket.key):
            if ticket.irreversible:
                self._land(ticket, error=self._context.failure_named(SUSPENDED, "it asked something first"))
            else:
                self._flew(ticket.key)
            return False
        if isinstance(error, Exception):
            wait = None if effect is None else self._wait_before(effect, ticket, error)
            unknown = ticket.irreversible and ticket.entered is not False and uncertain(error)
            failure = self._context.failure(error)
            if isinstance(error, ModelError) and error.resumable:
                self._failed.append((error, ticket))
            self._land(ticket, error=failure, unknown=unknown, next_at=None if wait is None else time.time() + wait)
            return wait is not None
        why = self._context.stopped()
        if why is not None and ticket.entered is False:
            self._land(ticket, error=self._context.failure_named(NOT_MADE, "stopped before the call was made"))
        elif why is not None:
            self._land(ticket, error=self._context.failure_named(*why), unknown=ticket.irreversible)
        else:
            self._flew(ticket.key)
        return False

    def _wait_before(self, effect: Effect[Any], ticket: Ticket, error: Exception) -> float | None:
        """Seconds until the call is tried again; None if it is not, or if that is up to the node's own `retry`."""
        own = self._context.spec.retry
        if effect.retry is None or (own is not None and own.matches(error)):
            return None
        return wait_before(effect.retry, ticket.tries, error, random.random())

    async def once_more(self, effect: Effect[Any], ticket: Ticket) -> Ticket:
        """Wait until a failed call is due again, and intend it: the ticket of the next try."""
        entry = self._context.live.machine.ledger.entry(ticket.key)
        tried = None if entry is None else entry.failed_try
        if tried is not None and tried.next_at is not None:
            await anyio.sleep(self._context.live.clock.left(tried.next_at, tried.next_at - tried.ended))
        self._context.go_on()
        return await self._intend(
            effect, ticket.key, ticket.digest, ticket.occurrence, again=True, tries=ticket.tries + 1
        )

    def reopen(self, errors: Sequence[BaseException]) -> bool:
        """Journal that calls are to be made again when the run is taken up the next time.

        These are those that raised the errors, and those that failed beside them for the like of it. What the node
        had dealt with before stays as it was: what it did then follows from it.

        Args:
            errors: what was raised out of the node.

        Returns:
            False: none of them is of a call of this attempt.
        """
        failed = [(raised, ticket, found) for raised, ticket in self._failed if (found := self._ended(ticket))]
        spans = [found for raised, _, found in failed if any(raised is error for error in errors)]
        for raised, ticket, (begun, ended) in failed:
            if any(begun <= last and first <= ended for first, last in spans):
                # No try counts any more: whoever takes the run up has mended something, or waited.
                failure = self._context.failure(raised)
                self._settle(ticket.key, ticket.started, error=failure, tries=0, next_at=time.time())
        return bool(spans)

    def _ended(self, ticket: Ticket) -> tuple[int, int] | None:
        """From which record to which a call went on that failed for good, and may be made again; else None."""
        entry = self._context.live.machine.ledger.entry(ticket.key)
        settled = None if entry is None else settled_of(entry)
        if entry is None or settled is None or settled.ok or settled.next_at is not None:
            return None
        return None if entry.intended.effect == "irreversible" else (entry.intended.seq, settled.seq)

    async def settle_down(self) -> None:
        """Wait until no effect of this attempt is under way: a step is suspended between effects only."""
        task = anyio.get_current_task().id
        inside = [*_inside.get(), *(key for key, (_, reader) in self._reading.items() if reader == task)]
        self._asking.extend(inside)
        self._landed.set()
        try:
            for _ in range(2):
                await anyio.lowlevel.checkpoint()  # those that begin at the same time
            while self._flying.difference(self._asking):
                if self._landed.is_set():
                    self._landed = anyio.Event()
                await self._landed.wait()
        except BaseException:
            if self._context.signal is None:  # the node asks no longer; else another question was quicker
                for key in inside:
                    self._asking.remove(key)
            raise

    def _suspended_in(self, key: str) -> bool:
        """Whether the step is suspended while something inside of this effect asks."""
        return key in self._asking and isinstance(self._context.signal, Suspend)

    def put_down(self, ticket: Ticket) -> None:
        """The node reads no further, for now: a replay of this attempt begins to read anew, up to where it stops."""
        self._flying.discard(ticket.key)
        self._landed.set()

    def stop_reading(self, *, goes_on: bool) -> None:
        """The attempt is over: nobody reads on in what it has not read to its end.

        Args:
            goes_on: it begins anew later, and may read it then.
        """
        for ticket, _ in list(self._reading.values()):
            if goes_on:
                self._flew(ticket.key)
            else:
                self._land(ticket, error=self._context.failure(ModelError("the node stopped reading the reply")))

    def check(self) -> None:
        """Refuse to end the step while a settled irreversible effect is left behind; end what is open still.

        Raises:
            ReplayMismatch: one is.
        """
        entry = self._left_behind()
        if entry is not None:
            raise _mismatch(self._context, entry, f"{self._context.node} ended without it")
        self._give_up()

    def _give_up(self) -> None:
        """Journal an end for what the node itself stopped waiting for: nobody will ask for it any more."""
        context = self._context
        for entry in context.live.machine.ledger.of(context.activation.key):
            intended = entry.intended
            if intended.attempt == context.attempt and settled_of(entry) is None and intended.key not in self._flying:
                error = context.failure_named("Cancelled", f"{context.node} stopped waiting for it")
                irreversible = intended.effect == "irreversible"
                self._settle(intended.key, intended.ts, error=error, unknown=irreversible)

    def _left_behind(self) -> EffectEntry | None:
        """An irreversible effect of this attempt that is settled, and that the code did not ask for any more."""
        hidden = set(self._reused)
        for entry in self._context.live.machine.ledger.of(self._context.activation.key):
            intended, settled = entry.intended, settled_of(entry)
            if intended.inside in hidden:
                hidden.add(intended.key)
            if (
                intended.effect == "irreversible"
                and intended.attempt == self._context.attempt
                and intended.key not in self._used
                and settled is not None
                and settled.ok
                and intended.inside not in hidden
            ):
                return entry
        return None

    async def _leave_nothing_behind(self, name: str) -> None:
        # In the node's own task a call that is not asked for by now will not be. Tasks beside each other may have
        # been at other places when the run was stopped: only a long silence says that one is missing.
        for patience in _PATIENCE if at_home() else (*_PATIENCE, *_LONG_PATIENCE):
            if self._left_behind() is None:
                return
            await anyio.sleep(patience)
        entry = self._left_behind()
        if entry is not None:
            raise _mismatch(self._context, entry, f"the code now calls {name!r} with another request instead")

    def _known(self, name: str, wanted: str, occurrence: int) -> EffectEntry | None:
        found = None
        for entry in self._context.live.machine.ledger.of(self._context.activation.key):
            intended = entry.intended
            if (intended.name, intended.digest, intended.occurrence) == (name, wanted, occurrence):
                if intended.attempt == self._context.attempt:
                    return entry
                if intended.effect == "irreversible" or irreversible_happened(entry):
                    found = entry
        return found

    async def _intend(
        self, effect: Effect[Any], key: str, wanted: str, occurrence: int, *, again: bool, tries: int = 1
    ) -> Ticket:
        context = self._context
        live, activation = context.live, context.activation
        inside = _inside.get()
        reserve = None if effect.kind == "effect" else await self._allowed(effect, key, again=again)
        self._used.add(key)
        live.push(
            EffectIntended(
                seq=live.machine.head + 1,
                ts=time.time(),
                activation=activation.key,
                path=activation.path,
                node=activation.node,
                key=key,
                kind=effect.kind,
                name=effect.name,
                effect=effect.effect,
                digest=wanted,
                occurrence=occurrence,
                attempt=activation.attempt,
                request=effect.request if effect.stored is None else effect.stored(),
                again=again,
                inside=inside[-1] if inside else "",
                reserve=reserve,
            )
        )
        self._flying.add(key)
        try:
            if live.callers is None or effect.kind == "effect":
                await live.durable()
            else:
                live.callers.hurry()
                await live.durable()
                await live.callers.durable()
            if not live.lease.fresh:  # this process may have been stopped for an hour just now
                await live.ensure_held()
        except BaseException as error:
            self._broke_before(key)
            if isinstance(error, Exception):
                raise context.signalled(Lost(error)) from error
            raise
        return Ticket(key, time.time(), effect.effect == "irreversible", context, wanted, occurrence, tries)

    def _broke_before(self, key: str) -> None:
        """Journal that the run stopped an effect that was intended and not begun."""
        why = self._context.stopped()
        if why is not None and self._context.live.journal.fault is None:
            self._land(Ticket(key, time.time(), False, self._context), error=self._context.failure_named(*why))
        else:
            self._flew(key)

    async def _allowed(self, effect: Effect[Any], key: str, *, again: bool) -> Reserve | None:
        """Wait until the limits leave room for a call; what it reserves, if that is to be journaled.

        A call that is made again was allowed before: it is neither refused nor does it wait.

        Raises:
            Refused: a limit is spent, of the run or of one around it.
        """
        context = self._context
        live, activation = context.live, context.activation
        machine, callers = live.machine, live.callers
        while True:
            if not again:
                refusal = exceeded_limit(activation)
                if refusal is not None:
                    limit, frame = refusal
                    seq = machine.head + 1
                    live.push(LimitSpent(seq=seq, ts=time.time(), frame=frame, limit=limit, activation=activation.key))
                    raise context.signalled(Refused())
            reserve = None
            if effect.reserve is not None and (must_reserve(activation) or (callers is not None and callers.reserve)):
                reserve = effect.reserve(machine.longest_reply, machine.costliest_call, context.limits.cost)
                if not again and must_wait(activation, reserve):
                    await self._wait_for(live)
                    continue
            if callers is None:
                return reserve
            try:
                said = await callers.admit(key, reserve or Reserve(), reserve_of(machine, key), new=not again)
            except (StoreError, RunConflict) as error:
                raise context.signalled(Lost(error)) from error
            if said is None:
                context.go_on()
                return reserve
            if isinstance(said, Denied):
                said.cancel(live)  # the run around it does so as well, unless it is not driven now
                raise context.signalled(Refused())
            await self._wait_for(said)

    async def _wait_for(self, what: RunLog | float) -> None:
        """Wait until a run journals something, or for so many seconds; other steps can have this one's place."""
        async with self._context.aside():
            await (anyio.sleep(what) if isinstance(what, float | int) else what.moved())
        self._context.go_on()

    def _flew(self, key: str) -> None:
        self._flying.discard(key)
        self._reading.pop(key, None)
        self._landed.set()

    def _land(
        self,
        ticket: Ticket,
        *,
        result: object = None,
        error: Failure | None = None,
        usage: Usage | None = None,
        unknown: bool = False,
        next_at: float | None = None,
    ) -> None:
        self._flew(ticket.key)
        self._settle(
            ticket.key, ticket.started, result=result, error=error, usage=usage, unknown=unknown, tries=ticket.tries,
            next_at=next_at,
        )  # fmt: skip

    def _settle(
        self,
        key: str,
        started: float,
        *,
        result: object = None,
        error: Failure | None = None,
        usage: Usage | None = None,
        unknown: bool = False,
        tries: int = 1,
        next_at: float | None = None,
    ) -> EffectSettled:
        live, activation = self._context.live, self._context.activation
        now = time.time()
        record = EffectSettled(
            seq=live.machine.head + 1,
            ts=now,
            activation=activation.key,
            path=activation.path,
            node=activation.node,
            key=key,
            ok=error is None,
            result=result,
            error=error,
            usage=usage,
            started=started,
            ended=now,
            unknown=unknown,
            tries=tries,
            next_at=next_at,
        )
        live.push(record)
        if live.callers is not None:
            live.callers.report(key)
        live.hurry()
        return record

    async def _what_became_of(self, effect: Effect[T], entry: EffectEntry) -> EffectSettled | None:
        """How an effect of unknown end is to be taken: as settled, or (None) to be done again."""
        context, key = self._context, entry.intended.key
        answers = context.activation.answers
        doubts: dict[str, str] = {}
        question = unknown_question(context, entry, 0, doubts)
        # An answer counts as given, whatever could be found out by now: so a replay takes it the same way.
        if effect.reconcile is not None and question.id not in answers:
            try:
                found = effect.reconcile(key)
                value = cast("T | None", await found if inspect.isawaitable(found) else found)
                result = None if value is None else _encoded(effect, value)
            except Exception as error:
                doubts["reconcile"] = f"reconcile failed: {message_of(error)}"
                question = unknown_question(context, entry, 0, doubts)
            else:
                return None if value is None else self._settle(key, time.time(), result=result)
        asked = 0
        while True:
            if question.id not in answers:
                await self.settle_down()
            said = verdict(answer_to(context, question))
            if said.choice == "retry":
                return None
            if said.choice != "happened":
                failure = context.failure_named(
                    "EffectFailed", f"{entry.intended.name} failed, as somebody who looked said"
                )
                return self._settle(key, time.time(), error=failure)
            try:
                result = said.result if effect.taken is None else effect.taken(said.result)
                effect.decode(result)
            except Exception as error:
                doubts["result"] = f"that cannot be its result: {message_of(error)}"
            else:
                return self._settle(key, time.time(), result=result)
            asked += 1
            question = unknown_question(context, entry, asked, doubts)


def _encoded(effect: Effect[T], value: T) -> object:
    """The result of an effect as the journal keeps it.

    Raises:
        InvalidValue: it could not be read back.
    """
    result = effect.encode(value)
    checked(result, f"the result of {effect.name!r}", depth=MAX_DEPTH + INSIDE, size=MAX_REQUEST_BYTES)
    return result


def _mismatch(context: StepContext, entry: EffectEntry, why: str) -> ReplayMismatch:
    intended = entry.intended
    return ReplayMismatch(
        f"run {context.run_id!r}: {context.node} did {intended.name} (request {intended.digest}), "
        f"which cannot be undone, and then crashed; {why}. Resume it with the code that it was started with"
    )

"""Effects of one attempt: what touches the outside is journaled before and after, and never done twice without asking.

`orchestrator.executor.effects.replay` decides what is done with an effect; here it is done. Whatever ends the attempt
(a question, a spent limit, a lost journal) is noted in `Attempt.signal`: from then on the step touches nothing outside
any more, whatever its node catches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from orchestrator.containment import contained
from orchestrator.errors import ModelError, ResultRefused
from orchestrator.executor.effects import mismatches, replay
from orchestrator.executor.effects.effect import Attempt, Effect, Ticket, witness
from orchestrator.executor.effects.questions import find_outcome, outcome_question_id
from orchestrator.executor.effects.replay import Ending
from orchestrator.executor.effects.shared_limits import admit, callers_of
from orchestrator.executor.effects.taking import without_call
from orchestrator.executor.effects.under_way import UnderWay, innermost, inside, patience
from orchestrator.executor.interrupts import in_step_task
from orchestrator.executor.retry import outcome_is_open, wait_before
from orchestrator.fence import current_fence
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.records import EffectSettled
from orchestrator.redaction import without_known_in
from orchestrator.tools.truncation import in_words

T = TypeVar("T")


class AttemptEffects:
    """The effects of one attempt of a step, against what the journal knows of them."""

    __slots__ = ("_asked_for", "_counts", "_failed", "_reused", "_within", "attempt", "under_way")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.under_way = UnderWay(attempt, callers_of(attempt.resources.children, attempt.log))
        self._counts: dict[tuple[str, str], int] = {}
        self._asked_for: set[str] = set()
        self._reused: set[str] = set()
        """Those of them whose results were given back: what was done inside of them is not asked for again."""
        self._within: dict[str, set[str]] = {}
        """What is asked for inside a call, of that which may not be done again: key of the call -> their keys."""
        self._failed: list[tuple[BaseException, Ticket]] = []
        """What the surroundings made fail, as it was raised into the node."""

    # -- doing one -----------------------------------------------------------------------------------------------

    async def perform(self, effect: Effect[T]) -> T:
        """Do an effect, or return the outcome that is journaled.

        Raises:
            EffectFailed: it failed before, by the journal.
            ReplayMismatch: see `Context.effect`.
            Refused: a limit forbids it.
            Suspend: a person is asked for its outcome.
        """
        if effect.irreversible and self.under_way.before:
            effect = self._resumed(effect)
        settled, ticket = await self.begin(effect)
        while ticket is not None:
            watching = witness.get()
            outer = inside.set((*inside.get(), ticket.key))
            fence = current_fence.set(ticket)
            try:
                with contained():
                    done = await (effect.run(ticket.key) if watching is None else watching.call(effect, ticket.key))
                    if self.under_way.is_suspended_in(ticket.key):
                        self.attempt.check_running()
                    return self.end(ticket, effect, done)
            except BaseException as error:
                if not self.settle_failure(ticket, error, effect):
                    raise
            finally:
                current_fence.reset(fence)
                inside.reset(outer)
            ticket = await self.intend_retry(effect, ticket)
        return self.result(settled, effect)

    async def begin(self, effect: Effect[T]) -> tuple[EffectSettled | None, Ticket | None]:
        """Return the settled result if it is known, else a ticket with a durable intent: make the call, then `end`."""
        await self.attempt.wait_if_stopped()
        wanted = effect.digest
        occurrence = self._counts.get((effect.name, wanted), 0)
        self._counts[effect.name, wanted] = occurrence + 1
        entry = self._find(effect, wanted, occurrence)
        if entry is not None:
            self._ask_for(effect, entry.intended.key)
            if replay.waits_for_tape(entry):
                return await self._begin_new(effect, wanted, occurrence, entry)
        decision = await self._decide(entry, effect)
        match decision:
            case replay.Reuse(settled):
                watching = witness.get()
                if watching is not None:
                    watching.reuse(effect, settled)
                self._reused.add(settled.key)
                return settled, None
            case replay.LeftBehind(other):
                why = f"the code now calls {effect.name!r} with another request instead"
                raise mismatches.mismatch(self.attempt.log.run_id, other, why)
            case replay.Begin():
                if entry is not None:  # a fork may make it again: what its parent knows of it is asked for
                    self._asked_for.discard(entry.intended.key)
                return await self._begin_new(effect, wanted, occurrence)
            case replay.RetryLater(key, until, meant, tries):
                await self._sleep(until, meant)
                return None, await self._intend(effect, key, wanted, occurrence, tries)
            case replay.Again(key, tries):
                return None, await self._intend(effect, key, wanted, occurrence, tries)
            case _:
                found = await find_outcome(self.under_way, effect, decision)
                if found is not None:
                    self._reused.add(found.key)
                    return found, None
                if decision.entry.intended.taken is not None:  # a replay makes no call that the replayed run made again
                    return await self._begin_new(effect, wanted, occurrence, decision.entry)
                more = replay.again(decision.entry)
                return None, await self._intend(effect, more.key, wanted, occurrence, more.tries)

    def _resumed(self, effect: Effect[T]) -> Effect[T]:
        """The call that the step was making, or had made, when it was stopped, if it asks for it with other arguments.

        So it is for arguments that differ each time the step runs, such as `uuid4()`: what became of the call is asked
        once. Calls in tasks of the node's own have no order that could distinguish them.
        """
        if not in_step_task() or effect.continues or self.attempt.log.tape is not None:
            return effect
        if self._find(effect, effect.digest, self._counts.get((effect.name, effect.digest), 0)) is not None:
            return effect
        at, forked_at = self.attempt.activation, self.attempt.log.machine.forked_at
        wanted = effect.kind, effect.name, effect.effect, at.attempt, innermost()
        for entry in self.under_way.before:
            made = entry.intended
            alike = (made.kind, made.name, made.effect, made.attempt, made.inside) == wanted
            if alike and made.key not in self._asked_for and made.seq > forked_at and replay.lasts(entry):
                known = effect if effect.recall is None else effect.recall(made.request)
                return replace(known, request=dict(made.request), resumed_with=effect.request)
        return effect

    async def _begin_new(
        self, effect: Effect[Any], wanted: str, occurrence: int, entry: EffectEntry | None = None
    ) -> tuple[EffectSettled | None, Ticket | None]:
        """Find the result without the call, as a replay or a fork may; else intend it."""
        run_id, activation = self.attempt.log.run_id, self.attempt.activation
        own = replay.idempotency_key(run_id, activation, effect.name, wanted, occurrence)
        key = own if entry is None else entry.intended.key
        self._ask_for(effect, key)
        found, tries = await without_call(self.under_way, effect, key, wanted, occurrence, entry, self._asked_for)
        if found is not None:
            self._reused.add(key)
            return found, None
        return None, await self._intend(effect, key, wanted, occurrence, tries)

    async def _decide(self, entry: EffectEntry | None, effect: Effect[Any]) -> replay.Decision:
        """What is done with an effect, after effects that run beside it had time to be asked for."""
        activation = self.attempt.activation
        answered = entry is not None and outcome_question_id(activation, entry) in activation.answers
        waits = patience()
        while True:
            other = self._left_behind() if entry is None and effect.irreversible else None
            decision = replay.decide(
                entry, effect, attempt=activation.attempt, answered=answered, left_behind=other,
                forked_at=self.attempt.log.machine.forked_at, reopened=activation.reopened,
            )  # fmt: skip
            pause = next(waits, None) if isinstance(decision, replay.LeftBehind) else None
            if pause is None:
                return decision
            await anyio.sleep(pause)

    async def _intend(
        self, effect: Effect[Any], key: str, wanted: str, occurrence: int, tries: int | None = None
    ) -> Ticket:
        """Have a call admitted by the limits, and journal its intent. `tries`: None for the first time."""
        again = tries is not None
        reserve = None
        if again and effect.resumed_with is not None and effect.recall is None:
            effect = replace(effect, request=effect.resumed_with)  # it is called with these arguments
            wanted = effect.digest
        if effect.kind != "effect":
            reserve = await admit(self.attempt, self.under_way.callers, effect, key, again=again)
        return await self.under_way.intend(
            effect, key, wanted, occurrence, again=again, tries=tries or 1, reserve=reserve
        )

    async def intend_retry(self, effect: Effect[Any], ticket: Ticket) -> Ticket:
        """Wait until a failed call is due again, journal its intent and return the ticket of the next try."""
        entry = self.attempt.log.machine.ledger.entry(ticket.key)
        tried = None if entry is None else entry.failed_try
        if tried is not None and tried.next_at is not None:
            await self._sleep(tried.next_at, tried.next_at - tried.ended)
        else:
            self.attempt.check_running()
        return await self._intend(effect, ticket.key, ticket.digest, ticket.occurrence, ticket.tries + 1)

    async def _sleep(self, until: float, meant: float) -> None:
        await anyio.sleep(self.attempt.log.clock.left(until, meant))
        self.attempt.check_running()

    # -- how it ended --------------------------------------------------------------------------------------------

    def end(self, ticket: Ticket, effect: Effect[T], value: T) -> T:
        """Journal the result of an effect and return it in the form in which a replay returns it.

        What it raises refuses the result of a call that has happened.
        """
        unknown = ticket.irreversible and effect.unknown is not None and effect.unknown(value)
        usage = None if effect.usage is None else effect.usage(value)
        try:
            encoded = effect.encoded(value)
            result = without_known_in(encoded)
            # A key that was repeated: the node gets what a replay will give it.
            found = effect.decode(result) if effect.reread or result is not encoded else value
        except BaseException:
            ticket.returned = in_words(value)
            raise
        self.under_way.land(ticket, Ending(result, usage=usage, unknown=unknown))
        return found

    def settle_failure(self, ticket: Ticket, error: BaseException, effect: Effect[Any] | None = None) -> bool:
        """Journal that an effect failed or was stopped by the run. If the process stops, it stays unsettled.

        Args:
            effect: the effect, if it may be retried.

        Returns:
            Whether to retry it, see `intend_retry`.
        """
        if ticket.key not in self.under_way:
            return False  # the attempt is over; only now something closed what read it
        ending = self._ending(ticket, error, effect)
        if ending is None:
            self.under_way.forget(ticket.key)
            return False
        self.under_way.land(ticket, ending)
        return ending.next_at is not None

    def _ending(self, ticket: Ticket, error: BaseException, effect: Effect[Any] | None) -> Ending | None:
        """Return how an effect that raised or was stopped ended; None if it stays unsettled for the next holder."""
        attempt = self.attempt
        if self.under_way.is_suspended_in(ticket.key):
            asked = attempt.failure_named(replay.SUSPENDED, "it asked something first")
            return Ending(error=asked) if ticket.irreversible else None
        if isinstance(error, Exception):
            returned = error.returned if isinstance(error, ResultRefused) else ticket.returned
            open_ = ticket.entered is not False and outcome_is_open(error)
            unknown = ticket.irreversible and (open_ or returned is not None)
            wait = (
                None
                if effect is None or unknown
                else wait_before(attempt.spec.retry, effect.retry, error, ticket.tries)
            )
            if isinstance(error, ModelError) and error.resumable:
                self._failed.append((error, ticket))
            next_at = None if wait is None else attempt.log.clock.now() + wait
            return Ending(error=attempt.failure(error), unknown=unknown, next_at=next_at, returned=returned)
        why = attempt.stopped()
        if why is None:
            return None
        if ticket.entered is False:
            return Ending(error=attempt.failure_named(replay.NOT_MADE, "stopped before the call was made"))
        return Ending(error=attempt.failure_named(*why), unknown=ticket.irreversible)

    def result(self, settled: EffectSettled | None, effect: Effect[T]) -> T:
        """The journaled outcome of an effect; see `Effect.result`."""
        try:
            return effect.result(settled)
        except ModelError as error:
            if settled is not None and error.resumable:
                self._failed.append((error, Ticket(settled.key, settled.started, False, self.attempt)))
            raise

    # -- the end of the attempt ----------------------------------------------------------------------------------

    def reopen(self, errors: Sequence[BaseException]) -> bool:
        """Journal that calls are to be made again when the run is taken up the next time.

        These are those that raised the errors, and those that failed beside them for the like of it. What the node
        had dealt with before stays as it was: what it did then follows from it.

        Args:
            errors: what was raised out of the node.

        Returns:
            False: none of them is of a call of this attempt.
        """
        log = self.attempt.log
        entry = log.machine.ledger.entry
        failed = [
            (raised, ticket, span) for raised, ticket in self._failed if (span := replay.failed_span(entry(ticket.key)))
        ]
        spans = [span for raised, _, span in failed if any(raised is error for error in errors)]
        for raised, ticket, (begun, ended) in failed:
            if any(begun <= last and first <= ended for first, last in spans):
                # No try counts any more: before the run is taken up again, something was repaired, or time has passed.
                ending = Ending(error=self.attempt.failure(raised), next_at=log.clock.now())
                self.under_way.settle(ticket.key, ticket.started, ending, tries=0)
        return bool(spans)

    def check(self) -> None:
        """Refuse to end the step while a settled irreversible effect is left behind; end what is open still.

        Raises:
            ReplayMismatch: one is.
        """
        attempt = self.attempt
        entry = self._left_behind()
        if entry is not None:
            raise mismatches.mismatch(attempt.log.run_id, entry, f"{attempt.activation.node} ended without it")
        # What the node itself stopped waiting for: it will not ask for it any more.
        for entry in attempt.log.machine.ledger.of(attempt.activation.key):
            intended = entry.intended
            own = intended.attempt == attempt.activation.attempt
            if own and replay.settled_of(entry) is None and intended.key not in self.under_way:
                error = attempt.failure_named("Cancelled", f"{intended.node} stopped waiting for it")
                ending = Ending(error=error, unknown=intended.effect == "irreversible")
                self.under_way.settle(intended.key, intended.ts, ending)

    # -- what the journal knows ----------------------------------------------------------------------------------

    def lasts_inside(self, key: str) -> bool:
        """Whether something happened inside a call, or may have, that cannot be undone."""
        entry = self.attempt.log.machine.ledger.entry
        return any(known is not None and replay.lasts(known) for known in map(entry, self._within.get(key, ())))

    def _ask_for(self, effect: Effect[Any], key: str) -> None:
        self._asked_for.add(key)
        if effect.irreversible or effect.continues:
            for around in inside.get():
                self._within.setdefault(around, set()).add(key)

    def is_due(self, effect: Effect[Any]) -> tuple[bool, str]:
        """Whether the effect would be done now, by the journal, and its key if it has one."""
        wanted = effect.digest
        entry, at = self._find(effect, wanted, self._counts.get((effect.name, wanted), 0)), self.attempt.activation
        forked_at = self.attempt.log.machine.forked_at
        decision = replay.decide(entry, effect, attempt=at.attempt, forked_at=forked_at, reopened=at.reopened)
        return not isinstance(decision, replay.Reuse), "" if entry is None else entry.intended.key

    def _find(self, effect: Effect[Any], wanted: str, occurrence: int) -> EffectEntry | None:
        at = self.attempt.activation
        entries = self.attempt.log.machine.ledger.of(at.key)
        subject = effect.name, wanted, occurrence, at.attempt
        return replay.find(entries, *subject, reopened=at.reopened, continues=effect.continues)

    def _left_behind(self) -> EffectEntry | None:
        activation = self.attempt.activation
        entries = self.attempt.log.machine.ledger.of(activation.key)
        attempt, forked_at = activation.attempt, self.attempt.log.machine.forked_at
        return replay.left_behind(entries, self._asked_for, self._reused, attempt, forked_at)

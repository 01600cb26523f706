"""Effects of one attempt: external actions are journaled before and after, and never repeated without asking.

`calls.reuse` decides how to handle an effect; this module does it. Whatever ends the attempt (a question, a spent
limit, a lost journal) is recorded in `Attempt.signal`: from then on the step makes no external call, whatever its node
catches.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.lowlevel
from msgspec import structs

from orchestrator._lazy import lazy_modules
from orchestrator.errors import ModelError, ReplayMismatch, ReplyIncomplete, ResultRefused, described, message_of
from orchestrator.executor.calls import reuse
from orchestrator.executor.calls.effect import Attempt, Call, Effect, Ticket, witness
from orchestrator.executor.calls.limits import admit, callers_of
from orchestrator.executor.calls.questions import (
    answer_to,
    failed_words,
    outcome_question,
    outcome_question_id,
    returned_by,
    why_unknown,
)
from orchestrator.executor.calls.reuse import Ending
from orchestrator.executor.calls.under_way import UnderWay, innermost, inside, patience
from orchestrator.executor.commands import outcome_answer
from orchestrator.executor.failures import Suspend, in_step_task
from orchestrator.executor.retries import outcome_is_open, wait_before
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.records import EffectSettled
from orchestrator.redaction import without_known_in
from orchestrator.tools.result import in_words
from orchestrator.user_code import contained, current_fence

if TYPE_CHECKING:
    from orchestrator.executor.calls import irreversible_calls
    from orchestrator.executor.replay import calls as replayed_calls
else:
    (irreversible_calls,) = lazy_modules("orchestrator.executor.calls", "irreversible_calls")
    (replayed_calls,) = lazy_modules("orchestrator.executor.replay", "calls")

T = TypeVar("T")


class AttemptEffects:
    """The effects of one attempt of a step, checked against the journal."""

    __slots__ = ("_asked_for", "_counts", "_failed", "_reused", "_within", "attempt", "under_way")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.under_way = UnderWay(attempt, callers_of(attempt.log))
        self._counts: dict[tuple[str, str], int] = {}
        self._asked_for: set[str] = set()
        self._reused: set[str] = set()
        """Requested effects whose results were reused: nothing inside them is requested again."""
        self._within: dict[str, set[str]] = {}
        """Key of a call -> keys of the effects requested inside it that must not be made again."""
        self._failed: list[tuple[BaseException, Ticket]] = []
        """Calls that failed because of the environment, with the errors raised into the node."""

    # -- making an effect ----------------------------------------------------------------------------------------

    async def perform(self, effect: Effect[T]) -> T:
        """Make an effect, or return its journaled outcome.

        Raises:
            EffectFailed: it failed before, according to the journal.
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

    def occurrence(self, name: str, digest: str) -> int:
        """Return how many calls with this name and digest the attempt has begun."""
        return self._counts.get((name, digest), 0)

    async def begin(self, effect: Effect[T]) -> tuple[EffectSettled | None, Ticket | None]:
        """Return the settled result if there is one, else a ticket with a durable intent: make the call, then `end`."""
        await self.attempt.wait_if_stopped()
        digest = effect.digest
        occurrence = self.occurrence(effect.name, digest)
        self._counts[effect.name, digest] = occurrence + 1
        entry, decision = await self._decide(effect, digest, occurrence)
        if entry is not None:
            self._ask_for(effect, entry.intended.key)
        match decision:
            case reuse.Reuse(settled):
                watching = witness.get()
                if watching is not None:
                    watching.reuse(effect, settled)
                self._reused.add(settled.key)
                return settled, None
            case reuse.LeftBehind(other):
                why = f"the code now calls {effect.name!r} with another request instead"
                raise mismatch(self.attempt.log.run_id, other, why)
            case reuse.Begin():
                if entry is not None:  # a fork may repeat it: its parent's call is looked up by this request
                    self._asked_for.discard(entry.intended.key)
                run_id, activation = self.attempt.log.run_id, self.attempt.activation
                key = reuse.idempotency_key(run_id, activation, effect.name, digest, occurrence)
                return await self._begin_new(Call(effect, digest, occurrence, key))
            case reuse.TakeRecorded(recorded):
                return await self._begin_new(Call(effect, digest, occurrence, recorded.intended.key), recorded)
            case reuse.RetryLater(key, until, meant, tries):
                await self._sleep(until, meant)
                return None, await self._intend(Call(effect, digest, occurrence, key), tries)
            case reuse.Again(key, tries):
                return None, await self._intend(Call(effect, digest, occurrence, key), tries)
            case _:
                found = await find_outcome(self.under_way, effect, decision)
                if found is not None:
                    self._reused.add(found.key)
                    return found, None
                call = Call(effect, digest, occurrence, decision.entry.intended.key)
                if decision.entry.intended.taken is not None:  # a replay does not repeat a call
                    return await self._begin_new(call, decision.entry)
                return None, await self._intend(call, reuse.again(decision.entry).tries)

    def _resumed(self, effect: Effect[T]) -> Effect[T]:
        """Return the call that was in progress, or made, when the step was stopped, if its arguments differ now.

        Arguments such as `uuid4()` differ each time the step runs: the outcome of the call is asked for once. Calls in
        tasks that the node starts have no order that could distinguish them.
        """
        if not in_step_task() or effect.continues or self.attempt.log.replay is not None:
            return effect
        if self._decided(effect, effect.digest, self._counts.get((effect.name, effect.digest), 0))[0] is not None:
            return effect
        at, forked_at = self.attempt.activation, self.attempt.log.machine.forked_at
        wanted = effect.kind, effect.name, effect.effect, at.attempt, innermost()
        for entry in self.under_way.before:
            made = entry.intended
            alike = (made.kind, made.name, made.effect, made.attempt, made.inside) == wanted
            if alike and made.key not in self._asked_for and made.seq > forked_at and reuse.lasts(entry):
                known = effect if effect.recall is None else effect.recall(made.request)
                return replace(known, request=dict(made.request), resumed_with=effect.request)
        return effect

    async def _begin_new(
        self, call: Call, entry: EffectEntry | None = None
    ) -> tuple[EffectSettled | None, Ticket | None]:
        """Reuse the result of another run, as a replay or a fork may; else journal the intent of the call.

        Args:
            entry: the call, if a replay's journal contains it as one that reuses a recorded result.

        Raises:
            Suspend: a person is asked whether to make it.
            CallDenied: the person denied it.
            Refused: a limit forbids it, or the replay ends here.
            TimedOut: the time limit of the step stopped it in the replayed run.
        """
        effect, log, tries = call.effect, self.attempt.log, None
        self._ask_for(effect, call.key)
        if log.replay is not None:
            found, tries = await replayed_calls.take_or_admit(self.under_way, log.replay, call, entry)
            if found is not None:
                self._reused.add(call.key)
                return found, None
        if effect.irreversible and log.machine.in_fork:
            adopted = await irreversible_calls.call_in_fork(self.under_way, call, self._asked_for)
            if adopted is not None:
                self._reused.add(call.key)
                return self.under_way.adopt(call, adopted.result), None
        elif effect.irreversible and self.under_way.before:
            await irreversible_calls.ask_before_another(self.under_way, call, self._asked_for)
        ticket = await self._intend(call, tries)
        if effect.irreversible and log.restored and log.replay is None and not self._asked_since_restore(call.key):
            return await self._ask_restored(call)
        return None, ticket

    def _asked_since_restore(self, key: str) -> bool:
        """Return True if a person permitted this call of a fork after the store was restored."""
        activation = self.attempt.activation
        given = activation.answers.get(irreversible_calls.question_id(activation, key))
        return given is not None and given.ts >= self.attempt.log.restored_at

    async def _ask_restored(self, call: Call) -> tuple[EffectSettled | None, Ticket | None]:
        """Find out what became of a call that the run may have made after the backup from which it was restored.

        The call is intended and not made: after a crash it is asked about as well.

        Raises:
            Suspend: a person is asked.
        """
        self.under_way.forget(call.key)
        entry = self.attempt.log.machine.ledger.entry(call.key)
        assert entry is not None
        found = await find_outcome(self.under_way, call.effect, reuse.Reconcile(entry))
        if found is None:
            return None, await self._intend(call, reuse.again(entry).tries)
        self._reused.add(found.key)
        return found, None

    async def _decide(
        self, effect: Effect[Any], digest: str, occurrence: int
    ) -> tuple[EffectEntry | None, reuse.Decision]:
        """Decide how to handle an effect, once concurrent tasks have had time to request theirs."""
        waits = patience()
        while True:
            entry, decision = self._decided(effect, digest, occurrence)
            pause = next(waits, None) if isinstance(decision, reuse.LeftBehind) else None
            if pause is None:
                return entry, decision
            await anyio.sleep(pause)

    def _decided(self, effect: Effect[Any], digest: str, occurrence: int) -> tuple[EffectEntry | None, reuse.Decision]:
        """Return the journal entry of an effect and the decision about it, as of now; see `find_and_decide`."""
        at = self.attempt.activation
        return reuse.find_and_decide(
            effect,
            digest,
            occurrence,
            self.attempt.log.machine,
            at,
            answered=lambda entry: outcome_question_id(at, entry) in at.answers,
            asked_for=self._asked_for,
            reused=self._reused,
        )

    async def _intend(self, call: Call, tries: int | None = None) -> Ticket:
        """Admit a call by the limits, and journal its intent. `tries`: None for the first time."""
        effect, again = call.effect, tries is not None
        if again and effect.resumed_with is not None and effect.recall is None:
            effect = replace(effect, request=effect.resumed_with)  # it is called with these arguments
            call = structs.replace(call, effect=effect, digest=effect.digest)
        reserve = None
        if effect.kind != "effect":
            reserve = await admit(self.attempt, self.under_way.callers, call, again=again)
        return await self.under_way.intend(call, again=again, tries=tries or 1, reserve=reserve)

    async def intend_retry(self, effect: Effect[Any], ticket: Ticket) -> Ticket:
        """Wait until a failed call is due again, journal its intent and return the ticket of the next try."""
        entry = self.attempt.log.machine.ledger.entry(ticket.key)
        tried = None if entry is None else entry.failed_try
        if tried is not None and tried.next_at is not None:
            await self._sleep(tried.next_at, tried.next_at - tried.ended)
        else:
            self.attempt.check_running()
        return await self._intend(Call(effect, ticket.digest, ticket.occurrence, ticket.key), ticket.tries + 1)

    async def _sleep(self, until: float, meant: float) -> None:
        await anyio.sleep(self.attempt.log.clock.left(until, meant))
        self.attempt.check_running()

    # -- ends ----------------------------------------------------------------------------------------------------

    def end(self, ticket: Ticket, effect: Effect[T], value: T) -> T:
        """Journal the result of an effect and return it in the form in which a replay returns it.

        An exception from it refuses the result of a call that has happened.
        """
        unknown = ticket.irreversible and effect.unknown is not None and effect.unknown(value)
        usage = None if effect.usage is None else effect.usage(value)
        try:
            encoded = effect.encoded(value)
            result = without_known_in(encoded)
            # If a secret was blanked, the node also gets the value that a replay will give it.
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
            return False  # the attempt is over; the stream that read it is only closed now
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
            asked, signal = attempt.failure_named(reuse.SUSPENDED, "it asked something first"), attempt.signal
            if isinstance(signal, Suspend) and signal.key == ticket.key:
                return Ending(error=asked, unknown=signal.begun, secret=signal.secret)
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
            usage = error.usage if isinstance(error, ReplyIncomplete) else None
            return Ending(
                error=attempt.failure(error), usage=usage, unknown=unknown, next_at=next_at, returned=returned
            )
        why = attempt.stopped()
        if why is None:
            return None
        if ticket.entered is False:
            return Ending(error=attempt.failure_named(reuse.NOT_MADE, "stopped before the call was made"))
        return Ending(error=attempt.failure_named(*why), unknown=ticket.irreversible)

    def result(self, settled: EffectSettled | None, effect: Effect[T]) -> T:
        """Return the journaled outcome of an effect; see `Effect.result`."""
        try:
            return effect.result(settled)
        except ModelError as error:
            if settled is not None and error.resumable:
                self._failed.append((error, Ticket(settled.key, settled.started, False, self.attempt)))
            raise

    # -- the end of the attempt ----------------------------------------------------------------------------------

    def reopen(self, errors: Sequence[BaseException]) -> bool:
        """Journal that calls are to be made again when the run is next resumed.

        These are the calls that raised the errors, and those that failed at the same time for a similar reason.
        Failures that the node had handled before stay: its later actions depend on them.

        Args:
            errors: the errors raised out of the node.

        Returns:
            False if none of them comes from a call of this attempt.
        """
        log = self.attempt.log
        entry = log.machine.ledger.entry
        failed = [
            (raised, ticket, span) for raised, ticket in self._failed if (span := reuse.failed_span(entry(ticket.key)))
        ]
        spans = [span for raised, _, span in failed if any(raised is error for error in errors)]
        for raised, ticket, (begun, ended) in failed:
            if any(begun <= last and first <= ended for first, last in spans):
                # The tries start again: before the run is resumed, something was repaired, or time has passed.
                ending = Ending(error=self.attempt.failure(raised), next_at=log.clock.now())
                self.under_way.settle(ticket.key, ticket.started, ending, tries=0)
        return bool(spans)

    def check(self) -> None:
        """Refuse to end the step if it drops a settled irreversible effect; end effects that are still open.

        Raises:
            ReplayMismatch: it drops one.
        """
        attempt, at, machine = self.attempt, self.attempt.activation, self.attempt.log.machine
        entries = machine.ledger.of(at.key)
        dropped = reuse.left_behind(entries, self._asked_for, self._reused, at.attempt, machine.forked_at)
        if dropped is not None:
            raise mismatch(machine.run_id, dropped, f"{at.node} ended without it")
        # The node itself stopped waiting for these: it will not request them again.
        for entry in entries:
            intended = entry.intended
            own = intended.attempt == at.attempt
            if own and reuse.settled_of(entry) is None and intended.key not in self.under_way:
                error = attempt.failure_named("Cancelled", f"{intended.node} stopped waiting for it")
                ending = Ending(error=error, unknown=intended.effect == "irreversible")
                self.under_way.settle(intended.key, intended.ts, ending)

    # -- effects in the journal ----------------------------------------------------------------------------------

    def lasts_inside(self, key: str) -> bool:
        """Return True if an irreversible effect happened inside a call, or may have."""
        entry = self.attempt.log.machine.ledger.entry
        return any(known is not None and reuse.lasts(known) for known in map(entry, self._within.get(key, ())))

    def _ask_for(self, effect: Effect[Any], key: str) -> None:
        self._asked_for.add(key)
        if effect.irreversible or effect.continues:
            for around in inside.get():
                self._within.setdefault(around, set()).add(key)

    def is_due(self, effect: Effect[Any]) -> tuple[bool, str]:
        """Return whether the effect would be made now, according to the journal, and its key if it has one."""
        wanted = effect.digest
        entry, decision = self._decided(effect, wanted, self._counts.get((effect.name, wanted), 0))
        return not isinstance(decision, reuse.Reuse), "" if entry is None else entry.intended.key


async def find_outcome(
    under_way: UnderWay, effect: Effect[T], decision: reuse.Reconcile | reuse.AskOutcome
) -> EffectSettled | None:
    """Return the end of an effect whose outcome was open, now known; None if the effect is called again.

    Raises:
        Suspend: a person is asked.
    """
    attempt, entry = under_way.attempt, decision.entry
    intended, doubts = entry.intended, dict[str, str]()
    if effect.resumed_with is not None:
        which = "those" if effect.recall is None else "the recorded ones"
        doubts["arguments"] = f"the step asks for it with other arguments now; {which} are used if it is called again"
    if isinstance(decision, reuse.Reconcile) and effect.reconcile is not None:
        try:
            with contained():
                found = effect.reconcile(intended.key)
                value = cast("T | None", await found if inspect.isawaitable(found) else found)
                result = None if value is None else effect.encoded(value)
        except Exception as error:
            doubts["reconcile"] = f"reconcile failed: {described(error)}"
        else:
            if value is not None:
                return under_way.settle_now(intended.key, Ending(result))
            if why_unknown(entry) != "refused":
                return None
            doubts["reconcile"] = "reconcile knows nothing of it, and it has returned"
    asked = 0
    while True:
        question = outcome_question(attempt, entry, asked, doubts, effect)
        if question.id not in attempt.activation.answers:
            await under_way.settle_down()
        answer = outcome_answer(answer_to(attempt, question))
        if answer.choice == "retry":
            return None
        if answer.choice != "happened":
            failure = attempt.failure_named("EffectFailed", failed_words(intended.name))
            ending = Ending(error=failure, returned=returned_by(entry), answered=True)
            return under_way.settle_now(intended.key, ending)
        try:
            with contained():
                result = answer.result if effect.validate is None else effect.validate(answer.result)
                effect.decode(result)
        except Exception as error:
            doubts["result"] = f"that cannot be its result: {message_of(error)}"
        else:
            return under_way.settle_now(intended.key, Ending(result, answered=True))
        asked += 1


def mismatch(run_id: str, entry: EffectEntry, why: str) -> ReplayMismatch:
    """Return the error for code that no longer makes an irreversible call which happened."""
    intended = entry.intended
    did = f"did {intended.name} (request {intended.digest}), which cannot be undone, and then crashed"
    if reuse.is_continued(entry):
        did = f"waits in the middle of {intended.name} (request {intended.digest}), which cannot be undone"
    return ReplayMismatch(
        f"run {run_id!r}: {intended.node} {did}; {why}. Resume it with the code that it was started with"
    )

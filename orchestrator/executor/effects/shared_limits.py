"""Limits that are checked before a call: those of the run and of its calling runs, which it spends as well.

    the caller is driven here        checked and journaled together with the call, no other step in between
    no process drives it             its lease is taken for a moment, and the call journaled
    another process drives it        it gets a message, and journals the call
    the call that began the run,
      or the caller, is over         no caller waits for it: only its own limits hold

The last three are rare: an inner run continues on its own because it was answered or resumed directly, or because
another process drives its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from orchestrator.errors import RunConflict, StoreError
from orchestrator.executor.commands import Stop
from orchestrator.executor.effects.callers import (
    Denied,
    Exceeded,
    Granted,
    Totals,
    ask_remote,
    caller_of,
    lacks_room,
    note_exceeded,
    note_spent,
    own_totals,
)
from orchestrator.executor.effects.effect import Attempt, Effect
from orchestrator.executor.interrupts import Lost, Refused
from orchestrator.executor.resources import Children
from orchestrator.executor.run_log import RunLog
from orchestrator.graph.limits import LimitsLeft, Reserve
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.queries import exceeded_limit, limits_left, must_reserve, must_wait, reserve_of
from orchestrator.kernel.records import Caller, LimitSpent

# -- a call of a step ------------------------------------------------------------------------------------------------


def remaining_limits(attempt: Attempt) -> LimitsLeft:
    """Return what is left of each limit of the run and of its calling runs."""
    own = limits_left(attempt.log.machine, attempt.activation)
    callers = callers_of(attempt.resources.children, attempt.log)
    return own if callers is None else callers.left(own)


async def admit(
    attempt: Attempt, callers: Callers | None, effect: Effect[Any], key: str, *, again: bool
) -> Reserve | None:
    """Wait until the limits leave room for a call and return its reservation, if it must be journaled.

    A repeated call was admitted before, so it is neither refused nor delayed.

    Raises:
        Refused: a limit of the run or of a calling run is spent.
    """
    log, activation = attempt.log, attempt.activation
    machine = log.machine
    while True:
        exceeded = None if again else exceeded_limit(activation)
        if exceeded is not None:
            limit, frame = exceeded
            log.push(LimitSpent(**log.now(), frame=frame, limit=limit, activation=activation.key))
            raise attempt.signalled(Refused())
        reserve = None
        if effect.reserve is not None and (must_reserve(activation) or (callers is not None and callers.reserve)):
            reserve = effect.reserve(machine.longest_reply, machine.costliest_call, remaining_limits(attempt).cost)
            if not again and must_wait(activation, reserve):
                await _wait_for(attempt, log)
                continue
        if callers is None:
            return reserve
        try:
            answer = await callers.admit(key, reserve or Reserve(), reserve_of(machine, key), new=not again)
        except (StoreError, RunConflict) as error:
            raise attempt.signalled(Lost(error)) from error
        if answer is None:
            attempt.check_running()
            return reserve
        if isinstance(answer, Denied):
            _cancel(log, answer)  # the run around it does so as well, unless it is not driven now
            raise attempt.signalled(Refused())
        await _wait_for(attempt, answer)


def _cancel(log: RunLog, denied: Denied) -> None:
    """Cancel a run whose call was denied by a calling run."""
    Stop("cancel", f"run {denied.run_id}", str(denied)).apply(log)


async def _wait_for(attempt: Attempt, what: RunLog | float) -> None:
    """Wait until a run journals something, or for some seconds, without occupying a place in the concurrency limit."""
    async with attempt.aside():
        await (anyio.sleep(what) if isinstance(what, float | int) else what.moved())
    attempt.check_running()


# -- calling runs ---------------------------------------------------------------------------------------------------


class Callers:
    """The calling runs of a run, nearest first."""

    def __init__(self, children: Children, log: RunLog, caller: Caller) -> None:
        self._children, self._log, self._caller = children, log, caller

    def _around(self) -> list[tuple[RunLog, EffectEntry]]:
        """Return the callers driven here, up to the first that is not, with the calls that they wait for."""
        found: list[tuple[RunLog, EffectEntry]] = []
        caller: Caller | None = self._caller
        while caller is not None:
            log = self._children.live(caller.run_id)
            entry = None if log is None else log.machine.ledger.entry(caller.key)
            if log is None or entry is None:
                break
            found.append((log, entry))
            caller = caller_of(log.machine)
        return found

    def left(self, own: LimitsLeft) -> LimitsLeft:
        """Return what is left of each limit, including those of the callers."""
        least = own.model_dump()
        for log, entry in self._around():
            activation = log.machine.activation(entry.intended.activation)
            if activation is None:
                break
            around = limits_left(log.machine, activation)
            for name in ("seconds", "tokens", "cost", "calls"):
                known, more = least[name], getattr(around, name)
                least[name] = more if known is None else known if more is None else min(known, more)
        return LimitsLeft(**least)

    @property
    def reserve(self) -> bool:
        """Whether a caller limits tokens or cost, so that calls reserve; true if that is unknown here."""
        caller: Caller | None = self._caller
        while caller is not None:
            log = self._children.live(caller.run_id)
            if log is None:
                return True
            entry = log.machine.ledger.entry(caller.key)
            activation = None if entry is None else log.machine.activation(entry.intended.activation)
            if activation is None:
                return False
            if must_reserve(activation):
                return True
            caller = caller_of(log.machine)
        return False

    async def admit(self, call: str, reserve: Reserve, before: Reserve, *, new: bool) -> Denied | RunLog | float | None:
        """Journal a call of the run in every caller, before it is made.

        Args:
            call: the call's key.
            reserve: its reservation.
            before: the reservation that it has already.
            new: whether the run has not counted it yet.

        Returns:
            None: the call may be made. `Denied`: a limit is spent, as the caller's journal says. A run: wait for its
            effects in progress, then ask again. A number: wait for so many seconds, then ask again.
        """
        granted: dict[str, Granted] = {}
        while True:
            asked = len(granted)
            found = await self._ask(call, reserve, before, granted, new=new)
            if not isinstance(found, list):
                return found
            if len(granted) == asked:  # else what is driven here may have moved on while another one was asked
                break
        for log, entry, inner in reversed(found):
            note_spent(log, entry, inner, call)
        return None

    async def _ask(
        self, call: str, reserve: Reserve, before: Reserve, granted: dict[str, Granted], *, new: bool
    ) -> list[tuple[RunLog, EffectEntry, Totals]] | Denied | RunLog | float:
        """Return the callers driven here with the totals to journal in each, or why the call is not admitted now.

        Args:
            granted: the answers of callers that are not driven here, by run id; new answers are added.
        """
        totals = self._with(call_reserve=reserve, before=before, new=new)
        found: list[tuple[RunLog, EffectEntry, Totals]] = []
        caller: Caller | None = self._caller
        while caller is not None:
            log = self._children.live(caller.run_id)
            if log is None:
                if caller.run_id not in granted:
                    answer = await ask_remote(self._children, caller, totals, call)
                    if isinstance(answer, Denied):
                        for between, _, _ in reversed(found):
                            _cancel(between, answer)
                    if not isinstance(answer, Granted):
                        return answer
                    granted[caller.run_id] = answer
                known = granted[caller.run_id]
                if known.totals is None:
                    break
                totals, caller = known.totals, known.caller
                continue
            entry = log.machine.ledger.entry(caller.key)
            if entry is None:
                break
            lacking = lacks_room(log.machine, entry, totals, reserve)
            if isinstance(lacking, Exceeded):
                return await self._deny(log, entry, lacking, [between for between, _, _ in reversed(found)])
            if lacking and new:  # one that is made again was allowed before
                return log
            found.append((log, entry, totals))
            totals, caller = totals.in_caller(log.machine, entry), caller_of(log.machine)
        return found

    async def _deny(self, log: RunLog, entry: EffectEntry, exceeded: Exceeded, between: Sequence[RunLog]) -> Denied:
        """Journal which limit forbids the call, and stop everything that waits for it, outermost run first."""
        activation = log.machine.activation(entry.intended.activation)
        note_exceeded(log, entry, exceeded)
        with anyio.CancelScope(shield=True):  # a crash must not leave inner runs cancelled without a reason
            await log.durable()
        denied = Denied(log.run_id, exceeded.limit)
        if activation is not None:
            log.halt(activation)
        for inner in between:
            _cancel(inner, denied)
        return denied

    def _with(self, *, call_reserve: Reserve, before: Reserve, new: bool) -> Totals:
        """Return the run's totals as they are after a call is journaled."""
        totals = own_totals(self._log.machine)
        usage = totals.usage.model_copy(update={"calls": totals.usage.calls + new})
        return Totals(totals.run_id, usage, totals.reserve - before + call_reserve, totals.head)

    def report(self, call: str) -> None:
        """Journal what the run has spent in callers that are driven here; for others the next call does."""
        totals, made = own_totals(self._log.machine), self._log.machine.ledger.entry(call)
        # Of what cannot be undone the callers know at once how far this run is: a fork of them begins behind it.
        lasting = made is not None and made.intended.effect == "irreversible"
        for log, entry in self._around():
            note_spent(log, entry, totals, call, always=lasting)
            totals = own_totals(log.machine)

    def hurry(self) -> None:
        """Start writing the callers' journals, without waiting."""
        for log, _ in self._around():
            log.hurry()

    async def durable(self) -> None:
        """Wait until the callers' journals are in the store.

        Raises:
            RunConflict, RunUnknown, StoreError: a journal cannot be written.
        """
        for log, _ in self._around():
            await log.durable()


def callers_of(children: Children, log: RunLog) -> Callers | None:
    """Return the calling runs of a run; None if no call started it."""
    caller = caller_of(log.machine)
    return None if caller is None else Callers(children, log, caller)

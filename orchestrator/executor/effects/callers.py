"""The runs around a run: what it spends is spent by the runs that called it, and their limits hold for it.

A graph called as a tool is a run of its own. Before each of its model and tool calls, every caller's journal gets a
record `spent` with the totals of the inner run, and another one when the call has ended. So what a caller may still
do follows from its own journal alone. As the records hold totals, a crash between two journals neither counts a call
twice nor loses one: the next record says the same, or more.

    the caller is driven here             checked and journaled together with the call, no other step in between
    nobody drives it, or another process  asked through the store (see `away`)
    the call that began the run is over   no caller waits for it: only its own limits hold
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from orchestrator.executor.commands import Cancel
from orchestrator.executor.effects.children import caller_of
from orchestrator.graph.limits import LimitsLeft, Reserve, Usage
from orchestrator.kernel.queries import exceeded_limit, limits_left, must_reserve, must_wait, reserve_of, total_reserve
from orchestrator.kernel.records import LimitSpent, Spent
from orchestrator.kernel.state import Phase

if TYPE_CHECKING:
    from orchestrator.executor.effects.children import Children
    from orchestrator.executor.run_log import RunLog
    from orchestrator.kernel.ledger import EffectEntry
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.records import Caller
    from orchestrator.views.run import Run


@dataclass(frozen=True)
class Denied:
    """A run around it forbids a call."""

    run_id: str
    limit: str
    """The limit of that run that is spent; empty: it does not wait for the inner run any more."""

    def __str__(self) -> str:
        if self.limit:
            return f"the limit {self.limit!r} of run {self.run_id} is spent"
        return f"run {self.run_id} does not wait for it any more"

    def cancel(self, live: RunLog) -> None:
        """Cancel a run inside of that one."""
        Cancel(f"run {self.run_id}", str(self)).apply(live)


@dataclass(frozen=True)
class Totals:
    """What a run has spent and reserved, as the runs around it count it."""

    run_id: str
    usage: Usage
    reserve: Reserve

    def in_caller(self, machine: Machine, entry: EffectEntry) -> Totals:
        """The totals of the calling run, once it has journaled these."""
        held = reserve_of(machine, entry.intended.key)
        return Totals(
            machine.run_id,
            changed(machine.shared_usage, entry.inner_usage or Usage(), self.usage),
            Reserve(
                tokens=total_reserve(machine).tokens - held.tokens + self.reserve.tokens,
                cost=total_reserve(machine).cost - held.cost + self.reserve.cost,
                calls=total_reserve(machine).calls - held.calls + self.reserve.calls,
            ),
        )


def changed(total: Usage, before: Usage, now: Usage) -> Usage:
    """A total with one part of it changed."""
    return Usage(
        calls=total.calls - before.calls + now.calls,
        input_tokens=total.input_tokens - before.input_tokens + now.input_tokens,
        output_tokens=total.output_tokens - before.output_tokens + now.output_tokens,
        cost=total.cost - before.cost + now.cost,
        estimated=total.estimated or now.estimated,
    )


def own_totals(machine: Machine) -> Totals:
    """What a run itself, and all runs inside it, have spent and reserved."""
    return Totals(machine.run_id, machine.shared_usage, total_reserve(machine))


def verdict(machine: Machine, entry: EffectEntry, inner: Totals, reserve: Reserve) -> tuple[str, str] | bool:
    """Whether a caller's limits leave room for one more call of its inner run.

    Args:
        inner: the inner run's totals with the call.
        reserve: what the call alone reserves.

    Returns:
        the limit that is spent and the path of its graph, both empty if the step that called the graph is gone; or
        whether the call has to wait for those under way.
    """
    activation = machine.activation(entry.intended.activation)
    if activation is None or activation.phase is Phase.PARKED:
        return "", ""
    known = entry.inner_usage or Usage()
    if inner.usage.calls > known.calls:  # else a crash came between the two journals, and it was allowed before
        # A crash may also have lost what the inner run spent since.
        spent = exceeded_limit(activation, changed(Usage(calls=-1), known, inner.usage))
        if spent is not None:
            return spent
    return must_wait(activation, reserve)


def spent_record(log: RunLog, entry: EffectEntry, inner: Totals, call: str, message: int | None = None) -> Spent:
    """The record of an inner run's totals in its caller's journal."""
    intended = entry.intended
    return Spent(
        **log.of(intended),
        key=intended.key,
        run=inner.run_id,
        call=call,
        usage=inner.usage,
        reserve=inner.reserve,
        message=message,
    )


def note(live: RunLog, entry: EffectEntry, inner: Totals, call: str, message: int | None = None) -> None:
    """Journal an inner run's totals, unless the caller's journal says so already."""
    known = entry.inner_usage or Usage()
    if message is not None or known != inner.usage or reserve_of(live.machine, entry.intended.key) != inner.reserve:
        live.push(spent_record(live, entry, inner, call, message), message)


def total_up(live: RunLog, key: str, run: Run | None) -> None:
    """Journal what the run that a call began has spent in all, now that nobody waits for it any more."""
    entry = live.machine.ledger.entry(key)
    if run is not None and entry is not None and live.machine.ended is None:
        note(live, entry, Totals(run.run_id, run.machine.shared_usage, Reserve()), "")


def deny(live: RunLog, entry: EffectEntry, limit: str, path: str) -> None:
    """Journal that a limit of a caller is spent."""
    if limit:
        live.push(
            LimitSpent(
                **live.now(),
                frame=path,
                limit=limit,
                activation=entry.intended.activation,
            )
        )


class Callers:
    """The runs around one that this process drives, the nearest first."""

    def __init__(self, children: Children, live: RunLog, caller: Caller) -> None:
        self._children, self._live, self._caller = children, live, caller

    def _around(self) -> list[tuple[RunLog, EffectEntry]]:
        """The callers that are driven here, up to the first that is not, with the calls that they wait in."""
        found: list[tuple[RunLog, EffectEntry]] = []
        caller: Caller | None = self._caller
        while caller is not None:
            live = self._children.live(caller.run_id)
            entry = None if live is None else live.machine.ledger.entry(caller.key)
            if live is None or entry is None:
                break
            found.append((live, entry))
            caller = caller_of(live.machine)
        return found

    def left(self, own: LimitsLeft) -> LimitsLeft:
        """What is left of each limit, with those of the callers."""
        least = own.model_dump()
        for live, entry in self._around():
            activation = live.machine.activation(entry.intended.activation)
            if activation is None:
                break
            around = limits_left(live.machine, activation)
            for name in ("seconds", "tokens", "cost", "calls"):
                known, more = least[name], getattr(around, name)
                least[name] = more if known is None else known if more is None else min(known, more)
        return LimitsLeft(**least)

    @property
    def reserve(self) -> bool:
        """Whether a caller limits tokens or cost, so that calls reserve; true where that is not known here."""
        caller: Caller | None = self._caller
        while caller is not None:
            live = self._children.live(caller.run_id)
            if live is None:
                return True
            entry = live.machine.ledger.entry(caller.key)
            activation = None if entry is None else live.machine.activation(entry.intended.activation)
            if activation is None:
                return False
            if must_reserve(activation):
                return True
            caller = caller_of(live.machine)
        return False

    async def admit(self, call: str, reserve: Reserve, before: Reserve, *, new: bool) -> Denied | RunLog | float | None:
        """Journal a call of the run in every caller, before it is made.

        Args:
            call: its key.
            reserve: what it reserves.
            before: what it reserves already.
            new: whether the run counts it from now on.

        Returns:
            None: it may be made. `Denied`: a limit is spent, the caller's journal says so. A run: wait for what it
            has under way, then ask again; or for so many seconds.
        """
        from orchestrator.executor.effects.remote_callers import Granted, ask_away

        granted: dict[str, Granted] = {}
        while True:
            totals = self._with(call_reserve=reserve, before=before, new=new)
            found: list[tuple[RunLog, EffectEntry, Totals]] = []
            caller: Caller | None = self._caller
            waited = False
            while caller is not None:
                live = self._children.live(caller.run_id)
                if live is None:
                    if caller.run_id not in granted:
                        answer = await ask_away(self._children.host, caller, totals, call)
                        if isinstance(answer, Denied):
                            for between, _, _ in reversed(found):
                                answer.cancel(between)
                        if not isinstance(answer, Granted):
                            return answer
                        granted[caller.run_id] = answer
                        waited = True
                    answered = granted[caller.run_id]
                    if answered.totals is None:
                        break
                    totals, caller = answered.totals, answered.caller
                    continue
                entry = live.machine.ledger.entry(caller.key)
                if entry is None:
                    break
                said = verdict(live.machine, entry, totals, reserve)
                if isinstance(said, tuple):
                    return await self._denied(live, entry, said, [between for between, _, _ in reversed(found)])
                if said and new:  # one that is made again was allowed before
                    return live
                found.append((live, entry, totals))
                totals, caller = totals.in_caller(live.machine, entry), caller_of(live.machine)
            if not waited:  # else what is driven here may have moved on
                break
        for live, entry, inner in reversed(found):
            note(live, entry, inner, call)
        return None

    async def _denied(
        self, live: RunLog, entry: EffectEntry, spent: tuple[str, str], between: Sequence[RunLog]
    ) -> Denied:
        """Journal which limit forbids the call, and stop all that waits for it, from the outermost run inwards."""
        activation = live.machine.activation(entry.intended.activation)
        deny(live, entry, *spent)
        with anyio.CancelScope(shield=True):  # a crash must not leave inner runs cancelled and nothing that says why
            await live.durable()
        denied = Denied(live.run_id, spent[0])
        if activation is not None:
            live.halt(activation)
        for inner in between:
            denied.cancel(inner)
        return denied

    def _with(self, *, call_reserve: Reserve, before: Reserve, new: bool) -> Totals:
        """The run's totals, once it has journaled a call."""
        totals = own_totals(self._live.machine)
        held = totals.reserve
        return Totals(
            totals.run_id,
            totals.usage.model_copy(update={"calls": totals.usage.calls + new}),
            Reserve(
                tokens=held.tokens - before.tokens + call_reserve.tokens,
                cost=held.cost - before.cost + call_reserve.cost,
                calls=held.calls - before.calls + call_reserve.calls,
            ),
        )

    def report(self, call: str) -> None:
        """Journal what the run has spent by now, where its callers are driven here; else the next call says so."""
        totals = own_totals(self._live.machine)
        for live, entry in self._around():
            note(live, entry, totals, call)
            totals = own_totals(live.machine)

    def hurry(self) -> None:
        """Begin to write the callers' journals now, without waiting for it."""
        for live, _ in self._around():
            live.hurry()

    async def durable(self) -> None:
        """Wait until the callers' journals are in the store.

        Raises:
            RunConflict, RunUnknown, StoreError: one cannot be written.
        """
        for live, _ in self._around():
            await live.durable()


def callers_of(children: Children, live: RunLog) -> Callers | None:
    """The runs around a run; None if no call began it."""
    caller = caller_of(live.machine)
    return None if caller is None else Callers(children, live, caller)

"""Limits that are checked before a call: those of the run and of its calling runs, which it spends as well.

A graph called as a tool is a run of its own. Before each of its model and tool calls, every caller's journal gets a
record `spent` with the totals of the inner run, and another one when the call has ended. So what a caller may still
do follows from its own journal alone. As the records hold totals, a crash between two journals neither counts a call
twice nor loses one: the next record holds the same, or more.

    the caller is driven here        checked and journaled together with the call, no other step in between
    no process drives it             its lease is taken for a moment, and the call journaled
    another process drives it        it gets a message, and journals the call
    the call that started the run,
      or the caller, is over         no caller waits for it: only its own limits hold

The last three are rare: an inner run continues on its own because it was answered or resumed directly, or because
another process drives its caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import anyio
from msgspec import Struct

from orchestrator.errors import RunConflict, RunEnded, RunUnknown, StoreError
from orchestrator.executor.calls.effect import Attempt, Call
from orchestrator.executor.commands import Stop
from orchestrator.executor.failures import Lost, Refused
from orchestrator.executor.run_log import Children, RunLog, ToolsFor
from orchestrator.graph.limits import NO_RESERVE, LimitsLeft, Reserve, Usage
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.limits import exceeded_limit, limits_left, must_reserve, must_wait, reserve_of, total_reserve
from orchestrator.kernel.records import Caller, LimitSpent, Spent
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase
from orchestrator.views.run import Run

# -- a call of a step -----------------------------------------------------------------------------------------------


def remaining_limits(attempt: Attempt) -> LimitsLeft:
    """Return what is left of each limit of the run and of its calling runs."""
    own = limits_left(attempt.log.machine, attempt.activation)
    callers = callers_of(attempt.log)
    return own if callers is None else callers.left(own)


async def admit(attempt: Attempt, callers: Callers | None, call: Call, *, again: bool) -> Reserve | None:
    """Wait until the limits leave room for a call and return its reservation, if it must be journaled.

    A repeated call was admitted before, so it is neither refused nor delayed.

    Raises:
        Refused: a limit of the run or of a calling run is spent.
    """
    log, activation, effect, key = attempt.log, attempt.activation, call.effect, call.key
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
            _cancel(log, answer)  # the calling run reports it as well, unless it is not driven now
            raise attempt.signalled(Refused())
        await _wait_for(attempt, answer)


def _cancel(log: RunLog, denied: Denied) -> None:
    """Cancel a run whose call was denied by a calling run."""
    Stop("cancel", f"run {denied.run_id}", str(denied)).apply(log)


async def _wait_for(attempt: Attempt, what: RunLog | float) -> None:
    """Wait until a run journals a record, or for some seconds, without occupying a place in the concurrency limit."""
    async with attempt.while_waiting():
        await (anyio.sleep(what) if isinstance(what, float | int) else what.moved())
    attempt.check_running()


# -- calling runs --------------------------------------------------------------------------------------------------


class Callers:
    """The calling runs of a run, nearest first."""

    def __init__(self, log: RunLog, caller: Caller) -> None:
        self._log, self._caller = log, caller

    def _around(self) -> list[tuple[RunLog, EffectEntry]]:
        """Return the callers driven here, up to the first that is not, with the calls that they wait for."""
        found: list[tuple[RunLog, EffectEntry]] = []
        caller: Caller | None = self._caller
        while caller is not None:
            log = self._log.children.live(caller.run_id)
            entry = None if log is None else log.machine.ledger.entry(caller.key)
            if log is None or entry is None:
                break
            found.append((log, entry))
            caller = log.machine.caller
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
        """Return True if a caller limits tokens or cost, so that calls reserve them; also if this is not known here."""
        caller: Caller | None = self._caller
        while caller is not None:
            log = self._log.children.live(caller.run_id)
            if log is None:
                return True
            entry = log.machine.ledger.entry(caller.key)
            activation = None if entry is None else log.machine.activation(entry.intended.activation)
            if activation is None:
                return False
            if must_reserve(activation):
                return True
            caller = log.machine.caller
        return False

    async def admit(self, call: str, reserve: Reserve, before: Reserve, *, new: bool) -> Denied | RunLog | float | None:
        """Journal a call of the run in every caller, before it is made.

        Args:
            call: the call's key.
            reserve: its reservation.
            before: its previous reservation.
            new: whether the run has not counted it yet.

        Returns:
            None: the call may be made. `Denied`: a limit is spent, according to the caller's journal. A run: wait for
            its effects in progress, then ask again. A number: wait for so many seconds, then ask again.
        """
        granted: dict[str, Granted] = {}
        while True:
            asked = len(granted)
            found = await self._ask(call, reserve, before, granted, new=new)
            if not isinstance(found, list):
                return found
            if len(granted) == asked:  # otherwise, callers driven here may have continued while another one was asked
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
            log = self._log.children.live(caller.run_id)
            if log is None:
                if caller.run_id not in granted:
                    answer = await ask_remote(self._log.children, caller, totals, call)
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
            if lacking and new:  # a repeated call was admitted before
                return log
            found.append((log, entry, totals))
            totals, caller = totals.in_caller(log.machine, entry), log.machine.caller
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
        """Return the run's totals after a call is journaled."""
        totals = own_totals(self._log.machine)
        usage = totals.usage.model_copy(update={"calls": totals.usage.calls + new})
        return Totals(totals.run_id, usage, totals.reserve - before + call_reserve, totals.head)

    def report(self, call: str) -> None:
        """Journal the run's usage in callers that are driven here; for others the next call does."""
        totals, made = own_totals(self._log.machine), self._log.machine.ledger.entry(call)
        # After irreversible calls, callers immediately record the run's position: a fork of them starts after it.
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


def callers_of(log: RunLog) -> Callers | None:
    """Return the calling runs of a run; None if no call started it."""
    caller = log.machine.caller
    return None if caller is None else Callers(log, caller)


# -- limits and journals of calling runs -------------------------------------------------------------------------------


class Totals(Struct, frozen=True):
    """Amounts that a run has spent and reserved, as its calling runs count them."""

    run_id: str
    usage: Usage
    reserve: Reserve
    head: int = 0
    """Number of its last record; 0: not known."""

    def in_caller(self, machine: RunState, entry: EffectEntry) -> Totals:
        """Return the totals of the calling run, once it has journaled these."""
        usage = machine.shared_usage - (entry.inner_usage or Usage()) + self.usage
        reserve = total_reserve(machine) - reserve_of(machine, entry.intended.key) + self.reserve
        return Totals(machine.run_id, usage, reserve, machine.head)


def own_totals(machine: RunState) -> Totals:
    """Return the amounts spent and reserved by a run and all runs inside it."""
    return Totals(machine.run_id, machine.shared_usage, total_reserve(machine), machine.head)


class Exceeded(Struct, frozen=True):
    """A limit of a caller leaves no room for a call."""

    limit: str
    """Name of the limit; empty: the step that called the graph is gone."""
    path: str = ""
    """Path of the caller's graph that has the limit."""


def lacks_room(machine: RunState, entry: EffectEntry, inner: Totals, reserve: Reserve) -> Exceeded | bool:
    """Check whether a caller's limits leave room for one more call of its inner run.

    Args:
        inner: the inner run's totals with the call.
        reserve: the reservation of the call alone.

    Returns:
        the exceeded limit; or whether the call must wait for those in progress.
    """
    activation = machine.activation(entry.intended.activation)
    if activation is None or activation.phase is Phase.PARKED:
        return Exceeded("")
    known = entry.inner_usage or Usage()
    if inner.usage.calls > known.calls:  # after a crash between the two journals it was already admitted
        # A crash may also have lost what the inner run spent since.
        exceeded = exceeded_limit(activation, inner.usage - known - Usage(calls=1))
        if exceeded is not None:
            return Exceeded(*exceeded)
    return must_wait(activation, reserve)


class Denied(Struct, frozen=True):
    """A calling run forbids a call."""

    run_id: str
    limit: str
    """The spent limit of that run; empty: it no longer waits for the inner run."""

    def __str__(self) -> str:
        if self.limit:
            return f"the limit {self.limit!r} of run {self.run_id} is spent"
        return f"run {self.run_id} no longer waits for it"


def note_spent(
    log: RunLog, entry: EffectEntry, inner: Totals, call: str, message: int | None = None, *, always: bool = False
) -> None:
    """Journal an inner run's totals in its caller's journal, unless they are already there.

    Args:
        log: the caller's log.
        entry: the call that started the inner run.
        call: key of the call of the inner run that changed the totals; empty at its end.
        message: the inbox message that contained them.
        always: journal them even if they are unchanged.
    """
    known, key = entry.inner_usage or Usage(), entry.intended.key
    if always or message is not None or known != inner.usage or reserve_of(log.machine, key) != inner.reserve:
        record = Spent(
            **log.of(entry.intended),
            key=key,
            run=inner.run_id,
            call=call,
            usage=inner.usage,
            reserve=NO_RESERVE if inner.reserve == NO_RESERVE else inner.reserve,  # the default is not written
            head=inner.head,
            message=message,
        )
        log.push(record, message)


def total_up(log: RunLog, key: str, run: Run | None) -> None:
    """Journal the total usage of the run that a call started, when no step waits for it any more."""
    entry = log.machine.ledger.entry(key)
    if run is not None and entry is not None and log.machine.ended is None:
        note_spent(log, entry, Totals(run.run_id, run.machine.shared_usage, Reserve(), run.seq), "")


def note_exceeded(log: RunLog, entry: EffectEntry, exceeded: Exceeded) -> None:
    """Journal that a limit of a caller is spent."""
    if exceeded.limit:
        activation = entry.intended.activation
        log.push(LimitSpent(**log.now(), frame=exceeded.path, limit=exceeded.limit, activation=activation))


class Spend(Struct, frozen=True):
    """A command to a caller: the amounts that its inner run, driven by another process, is about to spend."""

    key: str
    """Key of the call that started the inner run."""
    call: str
    inner: Totals

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Spend:
        """Return the command unchanged: it fits any run."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal the amounts. Returns False if a limit forbids it, or no step waits for the inner run."""
        entry = log.machine.ledger.entry(self.key)
        if entry is None or log.machine.ended is not None:
            return False
        lacking = lacks_room(log.machine, entry, self.inner, Reserve())
        if isinstance(lacking, Exceeded):
            activation = log.machine.activation(entry.intended.activation)
            note_exceeded(log, entry, lacking)
            if activation is not None:
                log.halt(activation)
            return False
        note_spent(log, entry, self.inner, self.call, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {
            "type": "spend",
            "key": self.key,
            "call": self.call,
            "run": self.inner.run_id,
            "usage": self.inner.usage.model_dump(mode="json"),
            "reserve": self.inner.reserve.model_dump(mode="json"),
            "head": self.inner.head,
        }

    @classmethod
    def of(cls, body: Mapping[str, object]) -> Spend | None:
        """Return the command in an inbox message; None if it is another one.

        Raises:
            ValidationError: its numbers are not valid.
        """
        if body.get("type") != "spend":
            return None
        usage, reserve = Usage.model_validate(body.get("usage")), Reserve.model_validate(body.get("reserve"))
        head = body.get("head")
        inner = Totals(str(body.get("run")), usage, reserve, head if isinstance(head, int) else 0)
        return cls(str(body.get("key")), str(body.get("call")), inner)


_AGAIN = 0.05
"""Seconds until a caller that could not answer is asked again."""


class Granted(Struct, frozen=True):
    """The caller has journaled the call."""

    totals: Totals | None = None
    """Totals of the caller; None: no step waits for the inner run, so the caller's calling runs are not asked."""
    caller: Caller | None = None
    """The call that started the caller."""


async def ask_remote(children: Children, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    """Journal a call of an inner run in a caller that is not driven here, or return why it is denied.

    Calls in progress are not waited for: whether those in the journal still run is not known here.

    Returns:
        `Granted`, `Denied`, or the seconds after which to ask again, if the caller could not answer.

    Raises:
        StoreError: the store failed.
    """
    try:
        borrowed = await children.borrow(caller.run_id)
    except (RunUnknown, RunEnded):
        return Granted()
    except RunConflict:
        return await _post(children, caller, inner, call)
    async with borrowed as log:
        entry = log.machine.ledger.entry(caller.key)
        if entry is None:
            return Granted()
        lacking = lacks_room(log.machine, entry, inner, Reserve())
        if isinstance(lacking, Exceeded):
            # The next executor finds the limit spent at its next call; without the caller's code nothing can be merged.
            return Denied(log.run_id, lacking.limit)
        note_spent(log, entry, inner, call)
        await log.durable()
        return _granted(log.machine)


async def _post(children: Children, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    """Like `ask_remote`, for a caller that another process drives."""
    received, record = await children.post(caller.run_id, Spend(caller.key, call, inner))
    if not received:
        return _AGAIN
    machine = (await children.load(caller.run_id)).machine
    if isinstance(record, Spent):
        return _granted(machine)
    entry = machine.ledger.entry(caller.key)
    if machine.ended is not None or entry is None:
        return Granted()
    lacking = lacks_room(machine, entry, inner, Reserve())
    return Denied(machine.run_id, lacking.limit) if isinstance(lacking, Exceeded) else _AGAIN


def _granted(machine: RunState) -> Granted:
    return Granted(own_totals(machine), machine.caller)


# -- the call that started a run ---------------------------------------------------------------------------------------


def child_id(parent: str, key: str) -> str:
    """Return the id of the run that a call of a run, with this idempotency key, starts: 24 hexadecimal digits."""
    return blake2b(f"{parent}\0{key}".encode(), digest_size=12).hexdigest()


def depth_of(machine: RunState) -> int:
    """Return the number of calling runs above a run, each of which waits for the next."""
    caller = machine.caller
    return 0 if caller is None else caller.depth

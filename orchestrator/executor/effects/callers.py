"""The runs around a run: which call began it, and what it spends of the limits of the runs that called it.

A graph called as a tool is a run of its own. Before each of its model and tool calls, every caller's journal gets a
record `spent` with the totals of the inner run, and another one when the call has ended. So what a caller may still
do follows from its own journal alone. As the records hold totals, a crash between two journals neither counts a call
twice nor loses one: the next record holds the same, or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from orchestrator.errors import RunConflict, RunEnded, RunUnknown
from orchestrator.executor.resources import Children
from orchestrator.executor.run_log import RunLog, ToolsFor
from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.kernel.queries import exceeded_limit, must_wait, reserve_of, total_reserve
from orchestrator.kernel.records import Caller, LimitSpent, Spent
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.state import Phase
from orchestrator.views.run import Run


def child_id(parent: str, key: str) -> str:
    """The id of the run that a call, with this idempotency key, of a run begins: 24 hexadecimal digits."""
    return blake2b(f"{parent}\0{key}".encode(), digest_size=12).hexdigest()


def old_child_id(parent: str, key: str) -> str:
    """The id that it had in earlier versions, longer by 17 characters than that of the run around it."""
    return f"{parent}.{key}"


def caller_of(machine: RunState) -> Caller | None:
    """The call that began a run; None if a person or a program did."""
    started = machine.started
    if started is None or machine.caller is not None or machine.fork is not None:
        return machine.caller
    parent, _, key = started.run_id.rpartition(".")
    if parent and started.labels.get("parent") == parent:  # begun by an earlier version
        return Caller(run_id=parent, key=key, depth=parent.count(".") + 1)
    return None


def depth_of(machine: RunState) -> int:
    """How many runs are around a run, each of which waits for the next."""
    caller = caller_of(machine)
    return 0 if caller is None else caller.depth


@dataclass(frozen=True)
class Totals:
    """What a run has spent and reserved, as the runs around it count it."""

    run_id: str
    usage: Usage
    reserve: Reserve
    head: int = 0
    """Number of its last record; 0: not known."""

    def in_caller(self, machine: RunState, entry: EffectEntry) -> Totals:
        """The totals of the calling run, once it has journaled these."""
        usage = machine.shared_usage - (entry.inner_usage or Usage()) + self.usage
        reserve = total_reserve(machine) - reserve_of(machine, entry.intended.key) + self.reserve
        return Totals(machine.run_id, usage, reserve, machine.head)


def own_totals(machine: RunState) -> Totals:
    """What a run itself, and all runs inside it, have spent and reserved."""
    return Totals(machine.run_id, machine.shared_usage, total_reserve(machine), machine.head)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit of a caller leaves no room for a call."""

    limit: str
    """Empty: the step that called the graph is gone."""
    path: str = ""
    """Of the caller's graph that has the limit."""


def lacks_room(machine: RunState, entry: EffectEntry, inner: Totals, reserve: Reserve) -> Exceeded | bool:
    """Whether a caller's limits leave room for one more call of its inner run.

    Args:
        inner: the inner run's totals with the call.
        reserve: what the call alone reserves.

    Returns:
        the limit that is exceeded; or whether the call has to wait for those under way.
    """
    activation = machine.activation(entry.intended.activation)
    if activation is None or activation.phase is Phase.PARKED:
        return Exceeded("")
    known = entry.inner_usage or Usage()
    if inner.usage.calls > known.calls:  # else a crash came between the two journals, and it was allowed before
        # A crash may also have lost what the inner run spent since.
        exceeded = exceeded_limit(activation, inner.usage - known - Usage(calls=1))
        if exceeded is not None:
            return Exceeded(*exceeded)
    return must_wait(activation, reserve)


@dataclass(frozen=True)
class Denied:
    """A run around it forbids a call."""

    run_id: str
    limit: str
    """The limit of that run that is spent; empty: it does not wait for the inner run any more."""

    def __str__(self) -> str:
        if self.limit:
            return f"the limit {self.limit!r} of run {self.run_id} is spent"
        return f"run {self.run_id} no longer waits for it"


def note_spent(
    log: RunLog, entry: EffectEntry, inner: Totals, call: str, message: int | None = None, *, always: bool = False
) -> None:
    """Journal an inner run's totals in its caller's journal, unless it has them already.

    Args:
        log: the caller's.
        entry: the call that began the inner run.
        call: key of the call of the inner run that changed the totals; empty at its end.
        message: the inbox message that brought them.
        always: journal them also if they are the same.
    """
    known, key = entry.inner_usage or Usage(), entry.intended.key
    if always or message is not None or known != inner.usage or reserve_of(log.machine, key) != inner.reserve:
        record = Spent(
            **log.of(entry.intended), key=key, run=inner.run_id, call=call, usage=inner.usage, reserve=inner.reserve,
            head=inner.head, message=message,
        )  # fmt: skip
        log.push(record, message)


def total_up(log: RunLog, key: str, run: Run | None) -> None:
    """Journal what the run that a call began has spent in all, when no step waits for it any more."""
    entry = log.machine.ledger.entry(key)
    if run is not None and entry is not None and log.machine.ended is None:
        note_spent(log, entry, Totals(run.run_id, run.machine.shared_usage, Reserve(), run.seq), "")


def note_exceeded(log: RunLog, entry: EffectEntry, exceeded: Exceeded) -> None:
    """Journal that a limit of a caller is spent."""
    if exceeded.limit:
        activation = entry.intended.activation
        log.push(LimitSpent(**log.now(), frame=exceeded.path, limit=exceeded.limit, activation=activation))


@dataclass(frozen=True, slots=True)
class Spend:
    """What an inner run that another process drives is about to spend, as a command to its caller."""

    key: str
    """Of the call that began the inner run."""
    call: str
    inner: Totals

    def checked(self, machine: RunState, tools: ToolsFor, now: float) -> Spend:
        """Itself: it fits any run."""
        return self

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: a limit forbids it, or no step waits for the inner run."""
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
            "type": "spend", "key": self.key, "call": self.call, "run": self.inner.run_id,
            "usage": self.inner.usage.model_dump(mode="json"), "reserve": self.inner.reserve.model_dump(mode="json"),
            "head": self.inner.head,
        }  # fmt: skip

    @classmethod
    def of(cls, body: Mapping[str, object]) -> Spend | None:
        """The command that a message of an inbox holds; None if it is another one.

        Raises:
            ValidationError: its figures are none.
        """
        if body.get("type") != "spend":
            return None
        usage, reserve = Usage.model_validate(body.get("usage")), Reserve.model_validate(body.get("reserve"))
        head = body.get("head")
        inner = Totals(str(body.get("run")), usage, reserve, head if isinstance(head, int) else 0)
        return cls(str(body.get("key")), str(body.get("call")), inner)


_AGAIN = 0.05
"""Seconds until a caller is asked again that could not answer."""


@dataclass(frozen=True)
class Granted:
    """The caller's journal has the call."""

    totals: Totals | None = None
    """Of the caller; None: no step waits for the inner run, so no run around the caller is asked."""
    caller: Caller | None = None
    """The call that began the caller."""


async def ask_remote(children: Children, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    """Journal a call of an inner run in a caller that is not driven here, or learn which limit forbids it.

    Calls under way are not waited for: whether those in the journal still run is not known here.

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
            # Who goes on with it finds the limit spent at its next call; without its code nothing can be merged.
            return Denied(log.run_id, lacking.limit)
        note_spent(log, entry, inner, call)
        await log.durable()
        return _granted(log.machine)


async def _post(children: Children, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    """The same, of a caller that another process drives."""
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
    return Granted(own_totals(machine), caller_of(machine))

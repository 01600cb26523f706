"""Asking a caller that this process does not drive whether its limits leave room for a call of an inner run.

That is rare: an inner run goes on by itself, because it was answered or resumed itself, or because another process
has its caller.

    nobody drives the caller     its lease is taken for a moment, and the call journaled
    another process drives it    it is told through the caller's inbox, and journals the call
    the caller is over           nobody waits for the inner run: only its own limits hold
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import RunConflict, RunEnded, RunUnknown
from orchestrator.executor.effects.callers import Denied, Totals, deny, note, own_totals, verdict
from orchestrator.executor.effects.children import caller_of
from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel.records import Spent

if TYPE_CHECKING:
    from orchestrator.executor.host.host import Host
    from orchestrator.executor.run_log import RunLog
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.records import Caller

_AGAIN = 0.05
"""Seconds until a caller is asked again that could not say."""


@dataclass(frozen=True)
class Granted:
    """The caller's journal has the call."""

    totals: Totals | None = None
    """Of the caller; None: no step waits for the inner run, so no run around the caller is asked."""
    caller: Caller | None = None
    """The call that began the caller."""


async def ask_away(host: Host, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    """Journal a call of an inner run in its caller, or learn which limit forbids it; or ask again in so many seconds.

    Calls under way are not waited for: whether those in the journal still run is not known here.

    Raises:
        StoreError: the store cannot say.
    """
    try:
        held = await host.borrow(caller.run_id)
    except (RunUnknown, RunEnded):
        return Granted()
    except RunConflict:
        return await _told(host, caller, inner, call)
    try:
        machine = held.machine
        entry = machine.ledger.entry(caller.key)
        if entry is None:
            return Granted()
        said = verdict(machine, entry, inner, Reserve())
        if isinstance(said, tuple):
            # Who goes on with it finds the limit spent at its next call; without its code nothing can be merged.
            return Denied(machine.run_id, said[0])
        note(held.log, entry, inner, call)
        await held.log.durable()
        return _granted(machine)
    finally:
        with anyio.CancelScope(shield=True):
            await host.release(held)


async def _told(host: Host, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    from orchestrator.executor.host.delivery import post
    from orchestrator.executor.host.reader import load

    taken, record = await post(host, caller.run_id, Spend(caller.key, call, inner))
    if not taken:
        return _AGAIN
    machine = (await load(host, caller.run_id)).machine
    if isinstance(record, Spent):
        return _granted(machine)
    entry = machine.ledger.entry(caller.key)
    if machine.ended is not None or entry is None:
        return Granted()
    said = verdict(machine, entry, inner, Reserve())
    return Denied(machine.run_id, said[0]) if isinstance(said, tuple) else _AGAIN


def _granted(machine: Machine) -> Granted:
    return Granted(own_totals(machine), caller_of(machine))


@dataclass(frozen=True, slots=True)
class Spend:
    """What an inner run that another process drives is about to spend, as a command to its caller."""

    key: str
    """Of the call that began the inner run."""
    call: str
    inner: Totals

    def apply(self, log: RunLog, message: int | None = None) -> bool:
        """Journal it. False: a limit forbids it, or no step waits for the inner run."""
        entry = log.machine.ledger.entry(self.key)
        if entry is None or log.machine.ended is not None:
            return False
        said = verdict(log.machine, entry, self.inner, Reserve())
        if isinstance(said, tuple):
            activation = log.machine.activation(entry.intended.activation)
            deny(log, entry, *said)
            if activation is not None:
                log.halt(activation)
            return False
        note(log, entry, self.inner, self.call, message)
        return True

    def body(self) -> dict[str, object]:
        """See `Command.body`."""
        return {
            "type": "spend", "key": self.key, "call": self.call, "run": self.inner.run_id,
            "usage": self.inner.usage.model_dump(mode="json"), "reserve": self.inner.reserve.model_dump(mode="json"),
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
        return cls(str(body.get("key")), str(body.get("call")), Totals(str(body.get("run")), usage, reserve))

"""Asking a caller that this process does not drive whether its limits leave room for a call of an inner run.

That is rare: an inner run goes on by itself, because it was answered or resumed itself, or because another process
has its caller.

    nobody drives the caller     its lease is taken for a moment, and the call journaled
    another process drives it    it is told through the caller's inbox, and journals the call
    the caller is over           nobody waits for the inner run: only its own limits hold
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import RunConflict, RunEnded, RunUnknown
from orchestrator.executor.effects.callers import Denied, Totals, deny, note, own_totals, verdict
from orchestrator.executor.effects.children import caller_of
from orchestrator.graph.limits import Reserve, Usage
from orchestrator.kernel.records import Spent

if TYPE_CHECKING:
    from orchestrator.executor.drive.drive import LiveRun
    from orchestrator.executor.host.host import Host
    from orchestrator.kernel.machine import Machine
    from orchestrator.kernel.records import Caller
    from orchestrator.stores.base import Message

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
        note(held, entry, inner, call)
        await held.durable()
        return _granted(machine)
    finally:
        with anyio.CancelScope(shield=True):
            await host.release(held)


async def _told(host: Host, caller: Caller, inner: Totals, call: str) -> Granted | Denied | float:
    from orchestrator.executor.host.delivery import post
    from orchestrator.executor.host.reading import load

    body: dict[str, object] = {
        "type": "spend", "key": caller.key, "call": call, "run": inner.run_id,
        "usage": inner.usage.model_dump(mode="json"), "reserve": inner.reserve.model_dump(mode="json"),
    }  # fmt: skip
    taken, record = await post(host, caller.run_id, body)
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


def take_spend(live: LiveRun, message: Message) -> bool:
    """Journal what an inner run that another process drives is about to spend. False: it may not, or nobody waits."""
    body = message.body
    entry = live.machine.ledger.entry(str(body.get("key")))
    if entry is None or live.machine.ended is not None:
        return False
    inner = Totals(
        str(body.get("run")), Usage.model_validate(body.get("usage")), Reserve.model_validate(body.get("reserve"))
    )
    said = verdict(live.machine, entry, inner, Reserve())
    if isinstance(said, tuple):
        activation = live.machine.activation(entry.intended.activation)
        deny(live, entry, *said)
        if activation is not None:
            live.halt(activation)
        return False
    note(live, entry, inner, str(body.get("call")), message.id)
    return True

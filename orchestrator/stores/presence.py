"""Whether the holder of a lease may be alive, as far as this process can tell.

A store's clock decides when a lease has expired. A process knows more in two cases: the holder's process ran on this
machine and is gone, or the holder was not heard from for as long as its leases last, although the store says that they
last longer (its clock was set back, or the entry is damaged).
"""

from __future__ import annotations

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.jsontypes import JsonObject
from orchestrator.stores.base import Lease
from orchestrator.stores.owner import is_dead, is_here

held_here: dict[str, str] = {}
"""Token of each lease that is held in this process -> the executor that holds it.

A lease that names this process and is not among them was given up, and blocks nobody. So a store notes those that it
gives out by `claim` here before they can be seen.
"""

_MOST_SEEN = 10_000

_seen: dict[str, tuple[float, float]] = {}
"""Holder -> its last known beat, and since when (by the steady clock) this process has seen that one."""


def may_live(lease: Lease, now_steady: float | None = None) -> bool:
    """Return whether the holder of a lease may be alive and keep it.

    Args:
        lease: the lease as the store gave it.
        now_steady: the steady clock, read no later than the lease; default: now.
    """
    if lease.token not in held_here and is_here(lease.owner):
        return False
    return is_present(lease.holder, lease.owner, lease.left, lease.ttl, lease.beat, now_steady)


def is_present(
    holder: str, owner: JsonObject, left: float, ttl: float, beat: float, now_steady: float | None = None
) -> bool:
    """Return whether a holder may be alive. Arguments as of `Lease` and `may_live`."""
    if left <= 0 or is_dead(owner):
        return False
    steady = SYSTEM_CLOCK.steady()
    known, since = _seen.get(holder, (None, 0.0))
    if known != beat:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[holder] = beat, steady
        return True
    return (steady if now_steady is None else now_steady) - since < ttl


def forget(holder: str) -> None:
    """Forget when a holder was heard from."""
    _seen.pop(holder, None)

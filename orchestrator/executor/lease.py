"""Who drives a run: leases, and telling a living holder from a dead one.

A lease names its holder's host, boot, process and start time. When the holder is a process of this host and that
process no longer exists, its runs are taken over at once. About any other holder, only the lease's expiry tells.

Clocks never decide who may write. Every append to a journal carries the lease's token, so the store refuses a writer
that lost its lease without noticing. Clocks only decide when a takeover is worth trying:

- A holder, and other processes on its machine, count in time since boot, which never jumps.
- A process whose clock disagrees watches for silence: once it has seen a lease unchanged for the lease's full
  duration, it may take the lease over, whatever expiry the lease states.
- A holder that may have lost its lease by any of its clocks, for example because it was suspended for an hour, asks
  the store before it performs an effect.

A failing store (a full disk, for example) cannot release a lease. Each process therefore also remembers which leases
it holds: a lease that names this process but is not among them blocks nobody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunConflict, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.stores.base import Lease, RunInfo, Store
from orchestrator.stores.owner import Owner, boot_id, is_dead, is_here, namespace

steady = SYSTEM_CLOCK.steady
"""Leases are shared between processes, so they use the machine's clock and never the executor's injected one."""
_POLL = 0.1
_MOST_SEEN = 10_000

_kept: dict[str, str] = {}
"""Token of each lease held in this process -> the executor that holds it."""

_seen: dict[str, tuple[float, float]] = {}
"""Token of another process's lease -> its last seen expiry, and since when (by `steady`) it has had that expiry."""


def clocks() -> tuple[float, float]:
    """Return the machine's wall-clock time and its time since boot, both in seconds."""
    return SYSTEM_CLOCK.now(), SYSTEM_CLOCK.steady()


def is_held(lease: Lease | None, at: tuple[float, float] | None = None) -> bool:
    """Return whether a holder that may be alive holds this lease.

    Args:
        lease: The lease as the store gave it; None means the run has none.
        at: Both clocks, taken no later than the lease was read; default: now.
    """
    if lease is None or is_dead(lease.owner):
        return False
    at = clocks() if at is None else at
    if left(lease, *at) <= 0 or _is_silent(lease, at[1]):
        return False
    return lease.token in _kept or not is_here(lease.owner)


def keeps(owner: Owner) -> bool:
    """Return whether this executor holds any run, or is about to acquire one."""
    return owner.executor in _kept.values()


def left(lease: Lease, now: float, now_steady: float) -> float:
    """Return the seconds until a lease expires if its holder never renews it, as far as clocks can tell; at least 0."""
    owner = lease.owner
    ttl, booted = owner.get("ttl"), owner.get("booted")
    same_boot = owner.get("boot") == boot_id() != "" and owner.get("times") == namespace("time")
    if same_boot and isinstance(booted, int | float):
        now = booted + now_steady  # what the holder's clock says, had it never jumped: it reckons so too
    seconds = max(0.0, lease.expires - now)
    return min(seconds, ttl) if isinstance(ttl, int | float) else seconds


def _is_silent(lease: Lease, now_steady: float) -> bool:
    """Return whether this process has seen the lease unchanged for its full duration."""
    ttl = lease.owner.get("ttl")
    expires, since = _seen.get(lease.token, (None, 0.0))
    if expires != lease.expires:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[lease.token] = lease.expires, steady()
        return False
    return isinstance(ttl, int | float) and now_steady - since >= ttl


class LeaseHandle:
    """A held lease, with the earliest time at which it can expire."""

    __slots__ = ("_booted", "_until", "_until_steady", "lease", "store", "ttl")

    def __init__(self, store: Store, lease: Lease, ttl: float, now_steady: float) -> None:
        self.store, self.lease, self.ttl = store, lease, ttl
        self._until, self._until_steady = lease.expires, now_steady + ttl
        self._booted = lease.expires - self._until_steady

    @property
    def token(self) -> str:
        """The lease's token, which every append to the journal carries."""
        return self.lease.token

    @property
    def fresh(self) -> bool:
        """Whether both clocks agree that the lease has not expired."""
        return steady() < self._until_steady and SYSTEM_CLOCK.now() < self._until

    async def renew(self) -> bool:
        """Renew the lease, and return False if another holder has it.

        Raises:
            StoreError: The store failed, so who holds the lease is unknown.
        """
        now, now_steady = clocks()  # before the store is asked: what it takes counts as gone
        lease = self.lease
        expires = self._booted + now_steady + self.ttl  # goes on as it began, when the wall clock jumps
        if not await self.store.renew_lease(lease.run_id, lease.token, expires):
            self._until_steady = 0.0  # never fresh again
            return False
        self.lease = replace(lease, expires=expires)
        self._until, self._until_steady = now + self.ttl, now_steady + self.ttl
        return True

    async def ensure(self) -> None:
        """Return once the lease is fresh, and renew it first if it may have expired.

        Raises:
            RunConflict: Another holder has the lease.
            StoreError: The store failed, so who holds the lease is unknown.
        """
        while not self.fresh:
            if not await self.renew():
                raise lost(self.lease.run_id)


def lost(run_id: str) -> RunConflict:
    """Return the error for a holder that lost its lease."""
    return RunConflict(run_id, "another executor took its lease over")


async def create(
    store: Store,
    info: RunInfo,
    records: Sequence[Record],
    owner: Owner,
    *,
    graph: JsonObject,
    ttl: float,
    stopping: Callable[[], bool] = lambda: False,
) -> LeaseHandle:
    """Create a run whose lease this process holds from the start. Arguments: see `Store.create` and `take`.

    Raises:
        RunExists: The store already has a run with this id.
    """
    lease, _, now_steady = _lease(info.run_id, owner, ttl)
    async with _held_from_now(store, lease, owner, stopping):
        await store.create(info, records, graph=graph, lease=lease)
    return LeaseHandle(store, lease, ttl, now_steady)


def _lease(run_id: str, owner: Owner, ttl: float) -> tuple[Lease, float, float]:
    """Return a new lease and both clocks at its start."""
    now, now_steady = clocks()
    data = {**owner.data(), "ttl": ttl, "booted": now - now_steady}
    return Lease(run_id, os.urandom(16).hex(), data, now + ttl), now, now_steady


async def take(
    store: Store,
    run_id: str,
    owner: Owner,
    *,
    ttl: float,
    wait: float = 0.0,
    stopping: Callable[[], bool] = lambda: False,
) -> LeaseHandle:
    """Acquire the lease of a run: at once if it is free or its holder is dead, otherwise within `wait` seconds.

    Args:
        wait: Seconds to wait for another holder to release the lease.
        stopping: Returns True when the process is stopping; then this function never returns.

    Raises:
        RunConflict: Another holder still has the lease.
        RunUnknown: The store has no run with this id.
    """
    until = anyio.current_time() + wait
    while True:
        at = clocks()
        held = await store.lease(run_id)
        if held is None or not is_held(held, at):
            lease, now, now_steady = _lease(run_id, owner, ttl)
            # One that has run out by our clock is taken only if it still has, in case its holder wakes just now.
            replaces = held.token if held is not None and held.expires >= now else None
            async with _held_from_now(store, lease, owner, stopping):
                taken = await store.take_lease(lease, replaces=replaces, now=now)
            if taken:
                if held is not None:
                    _seen.pop(held.token, None)
                return LeaseHandle(store, lease, ttl, now_steady)
            del _kept[lease.token]
            continue
        rest = until - anyio.current_time()
        if rest <= 0:
            raise RunConflict(run_id, _held_by(held, at))
        await anyio.sleep(min(rest, _POLL))


@asynccontextmanager
async def _held_from_now(store: Store, lease: Lease, owner: Owner, stopping: Callable[[], bool]) -> AsyncIterator[None]:
    """Count a lease as held here before anybody can see it in the store; no longer, if the block raises."""
    if stopping():
        await anyio.sleep_forever()
    _kept[lease.token] = owner.executor
    try:
        yield
    except BaseException as error:
        del _kept[lease.token]
        if not isinstance(error, Exception):
            with anyio.CancelScope(shield=True):
                await give_back(store, lease.run_id, lease.token)
        raise


async def give_back(store: Store, run_id: str, token: str) -> None:
    """Give a lease back. Where the store cannot note that, other processes wait for the lease's end."""
    try:
        with contextlib.suppress(StoreError):
            await store.drop_lease(run_id, token)
    finally:
        given_back(token)


def given_back(token: str) -> None:
    """Note that a lease was given back with the last records of its run."""
    _kept.pop(token, None)


def _held_by(lease: Lease, at: tuple[float, float]) -> str:
    owner = lease.owner
    return (
        f"process {owner.get('pid')} on {owner.get('host')} holds it, for at most {left(lease, *at):.0f} s "
        f"without a heartbeat; wait for it, or stop that process"
    )

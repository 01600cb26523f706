"""Who drives a run: leases, and telling a living holder from a dead one.

A lease names the holder's host, boot, process and start time. A holder on this host whose process is gone is
dead for certain, so its runs are taken over at once; of any other holder only the lease's end says anything.

No clock decides who may write: the journal's appends carry the lease's token, so that who lost it without knowing
is stopped by the store. Clocks only say when it is worth to try. A holder reckons with the time since boot, which
never jumps, and so do others on its machine. For those elsewhere whose clocks say otherwise, silence counts: a process that saw
a lease unchanged for as long as it lasts may take it, whatever its end says. And a holder asks the store before it
does anything outside, when by any of its clocks the lease may have run out: it may have been stopped for an hour.

A store that fails (its disk is full, say) does not take a lease back either. So a process also knows which leases
it keeps: one that names this process and is not among them holds nothing up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunConflict, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record
from orchestrator.stores.base import Lease, RunInfo, Store
from orchestrator.stores.owner import Owner, boot_id, is_dead, is_here, namespace

steady = SYSTEM_CLOCK.steady
"""A lease is between processes: their machines' clocks count, and not the one that an executor was given."""
_POLL = 0.1
_MOST_SEEN = 10_000

_kept: dict[str, str] = {}
"""Tokens of the leases by which executors of this process hold runs, and which executor that is."""

_seen: dict[str, tuple[float, float]] = {}
"""Token of another's lease -> its end when we last looked, and since when we have seen that end, by `steady`."""


def clocks() -> tuple[float, float]:
    """What both clocks of the machine say."""
    return SYSTEM_CLOCK.now(), SYSTEM_CLOCK.steady()


def is_held(lease: Lease | None, at: tuple[float, float] | None = None) -> bool:
    """Whether somebody who may be alive holds a run by this lease, which was read not before `at`."""
    if lease is None or is_dead(lease.owner):
        return False
    at = clocks() if at is None else at
    if left(lease, *at) <= 0 or _is_silent(lease, at[1]):
        return False
    return lease.token in _kept or not is_here(lease.owner)


def keeps(owner: Owner) -> bool:
    """Whether an executor of this process holds any run, or is just about to."""
    return owner.executor in _kept.values()


def left(lease: Lease, now: float, now_steady: float) -> float:
    """How many seconds a lease lasts if its holder is not heard of again, as far as clocks can tell; 0: none."""
    owner = lease.owner
    ttl, booted = owner.get("ttl"), owner.get("booted")
    same_boot = owner.get("boot") == boot_id() != "" and owner.get("times") == namespace("time")
    if same_boot and isinstance(booted, int | float):
        now = booted + now_steady  # what the holder's clock says, had it never jumped: it reckons so too
    seconds = max(0.0, lease.expires - now)
    return min(seconds, ttl) if isinstance(ttl, int | float) else seconds


def _is_silent(lease: Lease, now_steady: float) -> bool:
    """Whether we have seen this lease unchanged for as long as it lasts."""
    ttl = lease.owner.get("ttl")
    expires, since = _seen.get(lease.token, (None, 0.0))
    if expires != lease.expires:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[lease.token] = lease.expires, steady()
        return False
    return isinstance(ttl, int | float) and now_steady - since >= ttl


class LeaseHandle:
    """A lease on the side of its holder, who knows how long it lasts at least."""

    __slots__ = ("_booted", "_until", "_until_steady", "lease", "store", "ttl")

    def __init__(self, store: Store, lease: Lease, ttl: float, now_steady: float) -> None:
        self.store, self.lease, self.ttl = store, lease, ttl
        self._until, self._until_steady = lease.expires, now_steady + ttl
        self._booted = lease.expires - self._until_steady

    @property
    def token(self) -> str:
        """What the journal's appends carry."""
        return self.lease.token

    @property
    def fresh(self) -> bool:
        """Whether by both clocks nobody else can have it yet, unless their clocks are wrong."""
        return steady() < self._until_steady and SYSTEM_CLOCK.now() < self._until

    async def renew(self) -> bool:
        """Renew the lease. False: another holder has it.

        Raises:
            StoreError: the store cannot say.
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
        """Return when it is fresh.

        Raises:
            RunConflict: it is another's.
            StoreError: the store cannot say.
        """
        while not self.fresh:
            if not await self.renew():
                raise lost(self.lease.run_id)


def lost(run_id: str) -> RunConflict:
    """The error for a holder whose lease is another's."""
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
    """Add a run to a store, held from its first moment. Arguments as of `Store.create` and `take`.

    Raises:
        RunExists: the id is taken.
    """
    lease, _, now_steady = _lease(info.run_id, owner, ttl)
    if stopping():
        await anyio.sleep_forever()
    _kept[lease.token] = owner.executor
    try:
        await store.create(info, records, graph=graph, lease=lease)
    except BaseException as error:
        await _not_taken(store, lease, error)
        raise
    return LeaseHandle(store, lease, ttl, now_steady)


def _lease(run_id: str, owner: Owner, ttl: float) -> tuple[Lease, float, float]:
    """A new lease, and what both clocks said when it began."""
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
    """Take the lease of a run: at once if it is free or its holder is dead, else within `wait` seconds.

    Args:
        stopping: whether it is too late to take anything; then this never returns.

    Raises:
        RunConflict: somebody else holds it still.
        RunUnknown: there is no such run.
    """
    until = anyio.current_time() + wait
    while True:
        at = clocks()
        held = await store.lease(run_id)
        if held is None or not is_held(held, at):
            lease, now, now_steady = _lease(run_id, owner, ttl)
            # One that has run out by our clock is taken only if it still has, in case its holder wakes just now.
            replaces = held.token if held is not None and held.expires >= now else None
            if stopping():
                await anyio.sleep_forever()
            _kept[lease.token] = owner.executor  # before anybody can see it in the store
            try:
                taken = await store.take_lease(lease, replaces=replaces, now=now)
            except BaseException as error:
                await _not_taken(store, lease, error)
                raise
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


async def _not_taken(store: Store, lease: Lease, error: BaseException) -> None:
    """Forget a lease that was not taken because of an error."""
    del _kept[lease.token]
    if not isinstance(error, Exception):
        # A bare `asyncio.Task.cancel()` broke the wait for the store, which may have it: others would wait for its end.
        with anyio.CancelScope(shield=True):
            await give_back(store, lease.run_id, lease.token)


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

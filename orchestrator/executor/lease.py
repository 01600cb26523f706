"""Leases of runs, and how to distinguish live holders from dead ones.

A lease names its holder's machine, boot, process and start time. When the holder is a process of this machine and that
process no longer exists, its runs are taken over at once. For any other holder, only the lease's expiry counts. All
leases of one executor expire together, and one beat renews them.

Clocks never decide who may write. Every append to a journal carries the lease's token, so the store refuses a writer
that lost its lease without noticing. Clocks only decide when a takeover is worth trying:

- Whether a lease has expired is measured by the store's clock, so wrong clocks of processes do no harm.
- A process also watches for silence: once it has seen a holder without a beat for the lease's full duration, it may
  take the lease over, whatever the store says.
- A holder that may have lost its lease by any of its clocks, for example because it was suspended for an hour, asks
  the store before it performs an effect.

A failing store (a full disk, for example) cannot release a lease. Each process therefore also remembers which leases
it holds: a lease that names this process but is not among them blocks nobody, and each beat tries to release it again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.errors import RunConflict, RunUnknown, StoreError
from orchestrator.json import JsonObject
from orchestrator.stores.base import Lease, RunInfo, Store
from orchestrator.stores.owner import Owner, forget, held_here, may_live
from orchestrator.stores.requests import ClaimRequest, NewRun

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record

T = TypeVar("T")

steady = SYSTEM_CLOCK.steady
"""Leases are shared between processes, so they use the machine's clock, never the executor's injected one."""

_given_up: dict[str, tuple[str, str]] = {}
"""Token of a lease that the store could not release -> its executor, and its run."""


def clocks() -> tuple[float, float]:
    """Return the machine's wall-clock time and its time since boot, both in seconds."""
    return SYSTEM_CLOCK.now(), SYSTEM_CLOCK.steady()


def is_held(lease: Lease | None, now_steady: float | None = None) -> bool:
    """Return whether a holder that may be alive holds this lease.

    Args:
        lease: The lease as the store gave it; None means the run has none.
        now_steady: The steady clock, read no later than the lease; default: now.
    """
    return lease is not None and may_live(lease, now_steady)


def keeps(owner: Owner) -> bool:
    """Return whether this executor holds any run, or is about to acquire one."""
    return owner.executor in held_here.values()


class Presence:
    """The row of the store, renewed by beats, that keeps all leases of one executor.

    A lease is certain to be held until the row may have expired. If it expired, each lease has to be taken again, since
    others may have taken it over meanwhile: those that were verified in an older `epoch` are in doubt.
    """

    __slots__ = ("_until", "_until_steady", "epoch", "owner", "store", "ttl")

    def __init__(self, store: Store, owner: Owner, ttl: float) -> None:
        self.store, self.owner, self.ttl = store, owner, ttl
        self.epoch = 0
        self._until = self._until_steady = 0.0

    @property
    def fresh(self) -> bool:
        """Return True if both clocks agree that the leases have not expired."""
        return steady() < self._until_steady and SYSTEM_CLOCK.now() < self._until

    def taken(self, at: tuple[float, float]) -> None:
        """Record that a lease was taken, which counts as a beat. `at`: both clocks, before the store was called."""
        if not self.fresh:
            self.epoch += 1  # the row may have expired earlier
        self._until, self._until_steady = at[0] + self.ttl, at[1] + self.ttl

    async def beat(self) -> bool:
        """Renew all leases, and return False if each of them has to be taken again.

        Raises:
            StoreError: The store failed, so who holds the leases is unknown.
        """
        at, epoch = clocks(), self.epoch  # before the call of the store, whose duration counts
        if not await self.store.beat(self.owner.executor, self.ttl):
            if epoch == self.epoch:
                self.epoch, self._until_steady = epoch + 1, 0.0
            return False
        self._until, self._until_steady = at[0] + self.ttl, at[1] + self.ttl
        return True

    async def release_given_up(self) -> None:
        """Try again to release leases that a failing store could not."""
        for token, (executor, run_id) in list(_given_up.items()):
            if executor == self.owner.executor:
                with contextlib.suppress(StoreError):
                    await self.store.drop_lease(run_id, token)
                    _given_up.pop(token, None)


class LeaseHandle:
    """A held lease, with the time until which it is certain to be held."""

    __slots__ = ("_epoch", "lease", "presence")

    def __init__(self, presence: Presence, lease: Lease) -> None:
        self.presence, self.lease = presence, lease
        self._epoch = presence.epoch

    @property
    def token(self) -> str:
        """The lease's token, which every append to the journal carries."""
        return self.lease.token

    @property
    def fresh(self) -> bool:
        """Return True if this process certainly still holds the lease."""
        return self._epoch == self.presence.epoch and self.presence.fresh

    async def renew(self) -> bool:
        """Take the lease again if it is in doubt, and return False if it was taken over or released.

        Raises:
            StoreError: The store failed, so who holds the lease is unknown.
        """
        at = clocks()
        presence = self.presence
        try:
            lease = replace(self.lease, owner=presence.owner.data())
            kept = await presence.store.take_lease(lease, ttl=presence.ttl, replaces=self.token)
        except RunUnknown:
            kept = False
        if not kept:
            self._epoch = -1  # never fresh again
            return False
        presence.taken(at)
        self._epoch = presence.epoch
        return True

    async def ensure(self) -> None:
        """Return once the lease is fresh, and renew it first if it may have expired.

        Raises:
            RunConflict: Another holder has the lease.
            StoreError: The store failed, so who holds the lease is unknown.
        """
        while not self.fresh:
            if self._epoch == self.presence.epoch and await self.presence.beat():
                continue
            if not await self.renew():
                raise lost(self.lease.run_id)


def lost(run_id: str) -> RunConflict:
    """Return the error for a holder that lost its lease."""
    return RunConflict(run_id, "another executor took over its lease")


async def create(
    presence: Presence,
    info: RunInfo,
    records: Sequence[Record],
    *,
    graph: JsonObject,
    stopping: Callable[[], bool] = lambda: False,
) -> LeaseHandle:
    """Create a run whose lease this process holds from the start. Arguments: see `NewRun` and `take`.

    Raises:
        RunExists: The store already has a run with this id.
    """
    lease, at = _lease(info.run_id, presence.owner), clocks()
    new = NewRun(info, records, graph=graph, lease=lease, ttl=presence.ttl)
    await _held_from_now(presence, lease, stopping, partial(presence.store.create, new))
    presence.taken(at)
    return LeaseHandle(presence, lease)


async def claim(presence: Presence, request: ClaimRequest) -> list[tuple[RunInfo, LeaseHandle]]:
    """Take the leases of runs that could continue and that no executor drives; see `Store.claim`."""
    at = clocks()
    taken = await presence.store.claim(request)
    if not taken:
        return []
    for _, lease in taken:
        held_here[lease.token] = presence.owner.executor
    presence.taken(at)
    return [(info, LeaseHandle(presence, lease)) for info, lease in taken]


def _lease(run_id: str, owner: Owner) -> Lease:
    return Lease(run_id, os.urandom(16).hex(), owner.executor, owner.data())


async def take(
    presence: Presence, run_id: str, *, free: bool = False, stopping: Callable[[], bool] = lambda: False
) -> LeaseHandle:
    """Acquire the lease of a run, if it is free or its holder is dead.

    Args:
        free: True if the run's row, just read, has no lease: then it is taken without another look.
        stopping: Returns True when the process is stopping; then this function never returns.

    Raises:
        RunConflict: Another holder has the lease.
        RunUnknown: The store has no run with this id.
    """
    store = presence.store
    while True:
        at = clocks()
        held = None if free else await store.lease(run_id)
        if held is None or not is_held(held, at[1]):
            lease = _lease(run_id, presence.owner)
            # A lease that has expired is taken only if it is still expired, in case its holder has just woken.
            replaces = held.token if held is not None and held.left > 0 else None
            at = clocks()
            ask = partial(store.take_lease, lease, ttl=presence.ttl, replaces=replaces)
            if await _held_from_now(presence, lease, stopping, ask):
                if held is not None:
                    forget(held.holder)
                    _given_up.pop(held.token, None)
                presence.taken(at)
                return LeaseHandle(presence, lease)
            del held_here[lease.token]
            free = False
            continue
        raise RunConflict(run_id, _held_by(held))


async def _held_from_now(
    presence: Presence, lease: Lease, stopping: Callable[[], bool], take_it: Callable[[], Awaitable[T]]
) -> T:
    """Take a lease by calling `take_it`. It counts as held here before other processes can see it in the store.

    If `take_it` raises, it no longer counts as held.
    """
    if stopping():
        await anyio.sleep_forever()
    held_here[lease.token] = presence.owner.executor
    try:
        return await take_it()
    except BaseException as error:
        if isinstance(error, StoreError) or not isinstance(error, Exception):
            _given_up[lease.token] = presence.owner.executor, lease.run_id
        del held_here[lease.token]
        if not isinstance(error, Exception):
            with anyio.CancelScope(shield=True):
                await give_back(presence.store, lease.run_id, lease.token)
        raise


async def give_back(store: Store, run_id: str, token: str, fault: str | None = None) -> None:
    """Release a lease. If the store cannot record that, other processes wait for the lease's end.

    Args:
        store: The store of the run.
        run_id: The run.
        token: The token of the lease.
        fault: Why the drive was given up, see `Store.drop_lease`; None: it ended normally.
    """
    executor = held_here.get(token, "")
    _given_up[token] = executor, run_id  # before it is forgotten: an executor that stops waits for this
    try:
        with contextlib.suppress(StoreError):
            await store.drop_lease(run_id, token, fault=fault)
            _given_up.pop(token, None)
    finally:
        given_back(token)


def given_back(token: str) -> None:
    """Record that a lease was released with the last records of its run."""
    held_here.pop(token, None)


def _held_by(lease: Lease) -> str:
    owner = lease.owner
    return (
        f"process {owner.get('pid')} on {owner.get('host')} holds it, for at most {max(lease.left, 0.0):.0f} s "
        f"without a heartbeat; wait for it, or stop that process"
    )

"""The executors that hold leases of runs in memory, and the leases that they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.archived import Archived
from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.jsontypes import JsonObject
from orchestrator.stores.presence import is_present
from orchestrator.stores.rows import Holder, Lease, OpenQuestion, RunInfo, RunTotals
from orchestrator.stores.shared import DIED, STEP_LANDED, retry_delay


@dataclass(slots=True)
class MemoryRun:
    """A run: its row, its records, and its lease."""

    info: RunInfo
    number: int
    records: list[bytes]
    snapshots: dict[int, bytes] = field(default_factory=dict)
    totals: RunTotals | None = None
    questions: tuple[OpenQuestion, ...] = ()
    """The open ones, the oldest first."""
    token: str | None = None
    holder: str = ""
    taken: int = 0
    """The head when the lease was taken."""
    archived: Archived | None = None

    def release(self) -> None:
        """Note that its drive gave the lease back."""
        self.token, info = None, self.info
        if info.deaths or info.retry_at is not None or info.fault:
            self.info = info.changed(deaths=0, retry_at=None, fault="")

    def die(self, fault: str) -> None:
        """Note that its drive died, or was given up. The lease is gone."""
        landed = any(data.endswith(STEP_LANDED) for data in self.records[self.taken :])
        deaths = 1 if landed else self.info.deaths + 1
        retry_at = SYSTEM_CLOCK.now() + retry_delay(deaths)
        self.token, self.info = None, self.info.changed(deaths=deaths, retry_at=retry_at, fault=fault)


@dataclass(slots=True)
class _Holder:
    """An executor that holds leases."""

    owner: JsonObject
    ttl: float
    expires: float
    """By the steady clock."""
    robbed: bool = False
    """Whether a lease was taken from it since its last beat."""


class Holders:
    """The executors that hold leases, by id. The store's lock is held around each call."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    def lease(self, run: MemoryRun) -> Lease | None:
        """The run's lease as it stands now; None: no executor holds one."""
        if run.token is None:
            return None
        holder = self._holders.get(run.holder)
        if holder is None:
            return Lease(run.info.run_id, run.token, run.holder)
        left = holder.expires - SYSTEM_CLOCK.steady()
        return Lease(run.info.run_id, run.token, run.holder, holder.owner, left, holder.ttl, holder.expires)

    def listed(self, runs: Iterable[MemoryRun], most: int) -> list[Holder]:
        """The holders by id, with up to `most` of the runs that each of them has."""
        held: dict[str, list[str]] = {}
        for run in runs:
            if run.token is not None:
                held.setdefault(run.holder, []).append(run.info.run_id)
        now = SYSTEM_CLOCK.steady()
        found: list[Holder] = []
        for name in sorted(self._holders):
            one, ids = self._holders[name], held.get(name, [])
            found.append(Holder(name, one.owner, one.expires - now, one.ttl, len(ids), tuple(ids[: max(most, 0)])))
        return found

    def hold(self, name: str, owner: JsonObject, ttl: float) -> None:
        """Note that a holder is alive."""
        expires = SYSTEM_CLOCK.steady() + ttl
        known = self._holders.get(name)
        if known is None:
            self._holders[name] = _Holder(owner, ttl, expires)
        else:
            known.owner, known.ttl, known.expires = owner, ttl, expires

    def beat(self, name: str, ttl: float) -> bool:
        """Extend the leases of a holder, or end them with a `ttl` of 0; see `Store.beat`."""
        if ttl <= 0:
            return self._holders.pop(name, None) is not None
        found, now = self._holders.get(name), SYSTEM_CLOCK.steady()
        if found is None or found.expires <= now:
            return False
        robbed, found.robbed = found.robbed, False
        found.ttl, found.expires = ttl, now + ttl
        return not robbed

    def give(self, run: MemoryRun, lease: Lease) -> None:
        """Give a run to the holder of a lease, and take it from the holder that it has."""
        if run.token is not None and run.holder != lease.holder:
            self.rob(run)
            run.die(DIED)
        run.token, run.holder, run.taken = lease.token, lease.holder, run.info.head

    def rob(self, run: MemoryRun) -> None:
        """Note that a run's lease is taken from its holder, if it has one."""
        if run.token is not None and run.holder in self._holders:
            self._holders[run.holder].robbed = True

    def is_current(self, name: str) -> bool:
        """Whether the leases of a holder have not expired."""
        holder = self._holders.get(name)
        return holder is not None and holder.expires > SYSTEM_CLOCK.steady()

    def present(self) -> set[str]:
        """The holders that may be alive."""
        now = SYSTEM_CLOCK.steady()
        return {
            name
            for name, one in self._holders.items()
            if is_present(name, one.owner, one.expires - now, one.ttl, one.expires, now)
        }

    def expire_except(self, present: set[str]) -> None:
        """Let the leases of all other holders expire."""
        now = SYSTEM_CLOCK.steady()
        for name, holder in self._holders.items():
            if name not in present:
                holder.expires = min(holder.expires, now)

"""Who drives a run: leases, and telling a living holder from a dead one.

A lease names the holder's host, boot, process and start time. A holder on this host whose process is gone is
dead for certain, so its runs are taken over at once; of any other holder only the lease's end says anything. A
lease is a courtesy, not the fence: whoever lost it without knowing is stopped by the compare-and-set of the
journal's head.

A store that fails (its disk is full, say) does not take a lease back either. So a process also knows which leases
it keeps: one that names this process and is not among them holds nothing up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from orchestrator.errors import RunConflict, StoreError
from orchestrator.stores.base import Lease

if TYPE_CHECKING:
    from orchestrator.stores.base import Store

_POLL = 0.1

_kept: set[str] = set()
"""Tokens of the leases by which executors of this process hold runs."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One executor in one process, so that any other process can tell whether it still lives."""

    host: str
    boot: str
    """The kernel's boot id: processes of another boot are gone."""
    space: str
    """The process id namespace: a container's process ids mean nothing outside of it."""
    pid: int
    start: str
    """When the process started, in ticks since boot: a process id that was given anew has another one."""
    executor: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @classmethod
    def here(cls) -> Owner:
        """A new owner in this process."""
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot=_boot(), space=_space(), pid=pid, start=_process(pid)[1])

    def data(self) -> dict[str, object]:
        """As plain JSON."""
        return {name: getattr(self, name) for name in ("host", "boot", "space", "pid", "start", "executor")}

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


_PROCESS = ("host", "boot", "space", "pid", "start")


def is_dead(owner: Mapping[str, object]) -> bool:
    """Whether a lease's holder is gone for certain: it ran on this host, and its process is no more."""
    if owner.get("host") != socket.gethostname():
        return False
    if owner.get("boot") != _boot():
        return True
    if owner.get("space") != _space():
        return False
    pid = owner.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    state, start = _process(pid)
    # A killed process that its parent has not waited for yet still has its id.
    return state in ("Z", "X") or bool(start and start != owner.get("start"))


def is_held(lease: Lease | None, now: float | None = None) -> bool:
    """Whether somebody who may be alive holds a run by this lease."""
    if lease is None or lease.expires <= (time.time() if now is None else now) or is_dead(lease.owner):
        return False
    return lease.token in _kept or not _is_here(lease.owner)


def _is_here(owner: Mapping[str, object]) -> bool:
    here = Owner.here().data()
    return all(owner.get(part) == here[part] for part in _PROCESS)


async def take(store: Store, run_id: str, owner: Owner, *, ttl: float, wait: float = 0.0) -> Lease:
    """Take the lease of a run: at once if it is free or its holder is dead, else within `wait` seconds.

    Raises:
        RunConflict: somebody else holds it still.
        RunUnknown: there is no such run.
    """
    until = anyio.current_time() + wait
    while True:
        held = await store.lease(run_id)
        now = time.time()
        if held is None or not is_held(held, now):
            lease = Lease(run_id, uuid.uuid4().hex, owner.data(), now + ttl)
            _kept.add(lease.token)  # before anybody can see it in the store
            taken = False
            try:
                taken = await store.take_lease(lease, replaces=None if held is None else held.token, now=now)
            finally:
                if not taken:
                    _kept.discard(lease.token)
            if taken:
                return lease
            continue
        left = until - anyio.current_time()
        if left <= 0:
            raise RunConflict(run_id, _held_by(held, now))
        await anyio.sleep(min(left, _POLL, max(held.expires - now, 0.001)))


async def give_back(store: Store, run_id: str, token: str) -> None:
    """Give a lease back. Where the store cannot note that, other processes wait for the lease's end."""
    try:
        with contextlib.suppress(StoreError):
            await store.drop_lease(run_id, token)
    finally:
        _kept.discard(token)


def _held_by(lease: Lease, now: float) -> str:
    owner = lease.owner
    return (
        f"process {owner.get('pid')} on {owner.get('host')} holds it, for {lease.expires - now:.0f} s more if it "
        f"is not heard of again; wait for it, or stop that process"
    )


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, str]:
    """State and start time of a process; empty where the system does not tell."""
    try:
        # The name, in parentheses, may hold spaces and parentheses itself; fields 3 and 22 are what is wanted.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""

"""The holder of a lease: one executor in one process, so that other processes can check whether it is alive.

`may_live` decides whether the holder of a lease may be alive, as far as this process can determine.

A store's clock decides when a lease has expired. A process has more facts in two cases: the holder's process ran on
this machine and is gone, or the holder sent no beat for as long as its leases last, although by the store's clock they
last longer (its clock was set back, or the entry is damaged).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.clock import SYSTEM_CLOCK
from orchestrator.json import JsonObject

if TYPE_CHECKING:
    from orchestrator.stores.rows import Lease


@dataclass(frozen=True, slots=True)
class Owner:
    """One executor in one process, so that other processes can check whether it is alive."""

    host: str
    """The host's name, for messages."""
    machine: str
    """The machine's id, since hosts may share a name. Empty if the system has none."""
    boot: str
    """The kernel's boot id: processes of another boot are gone."""
    space: str
    """The process id namespace: a container's process ids mean nothing outside of it."""
    times: str
    """The time namespace: a container may count the time since boot differently."""
    pid: int
    start: str
    """When the process started, in ticks since boot: it differs if a process id is reused."""
    executor: str = field(default_factory=lambda: os.urandom(6).hex())
    worker: Mapping[str, object] | None = None
    """Facts about the executor, as plain JSON, while it works as a worker."""

    @classmethod
    def here(cls) -> Owner:
        """Return a new owner in this process."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            machine=machine_id(),
            boot=boot_id(),
            space=namespace("pid"),
            times=namespace("time"),
            pid=pid,
            start=_own_start(pid),
        )

    def data(self) -> dict[str, object]:
        """Return the owner as plain JSON."""
        found: dict[str, object] = {
            "host": self.host,
            "machine": self.machine,
            "boot": self.boot,
            "space": self.space,
            "pid": self.pid,
            "start": self.start,
            "times": self.times,
            "executor": self.executor,
        }
        if self.worker is not None:
            found["worker"] = dict(self.worker)
        return found

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


_PROCESS = ("machine", "boot", "space", "pid", "start")


def is_dead(owner: Mapping[str, object]) -> bool:
    """Return True if a lease's holder is certainly gone: it ran on this machine, and its process no longer exists."""
    if not boot_id() or owner.get("boot") != boot_id():
        # Machines that were cloned from one image may share an id, so their host names are compared as well.
        this_machine = owner.get("machine", "") == machine_id() and owner.get("host") == socket.gethostname()
        if not this_machine:
            return False
        if owner.get("boot") != boot_id():
            return bool(machine_id())
    if owner.get("space") != namespace("pid"):
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
    # A killed process keeps its id until its parent has waited for it.
    return state in ("Z", "X") or bool(start and start != owner.get("start"))


def is_here(owner: Mapping[str, object]) -> bool:
    """Return True if a lease's holder is this process."""
    here = Owner.here().data()
    return all(owner.get(part) == here[part] for part in _PROCESS)


@cache
def _own_start(pid: int) -> str:
    """Return when this process started. `pid`: its id."""
    return _process(pid)[1]


if hasattr(os, "register_at_fork"):  # a forked process may get the id of an ancestor that is gone
    os.register_at_fork(after_in_child=_own_start.cache_clear)


@cache
def machine_id() -> str:
    """Return the id that the system generated at installation, see machine-id(5); empty if there is none."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found = Path(path).read_text().strip()
        except OSError:
            continue
        if found and found != "uninitialized":
            return found
    return ""


@cache
def boot_id() -> str:
    """Return the id that the kernel generated at boot; empty if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace(kind: str) -> str:
    """Return the `pid` or `time` namespace of this process; empty if there are none."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, str]:
    """Return the state and start time of a process; empty if the system does not provide them."""
    try:
        # The name, in parentheses, may contain spaces and parentheses; only fields 3 and 22 are used.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


held_here: dict[str, str] = {}
"""Token of each lease that is held in this process -> the executor that holds it.

A lease that names this process and is not among them was given up, and blocks no other holder. So a store adds those
that it gives out by `claim` in this process before they become visible.
"""

_MOST_SEEN = 10_000

_seen: dict[str, tuple[float, float]] = {}
"""Holder -> its last known beat, and when (by the steady clock) this process first saw it."""


def may_live(lease: Lease, now_steady: float | None = None) -> bool:
    """Return whether the holder of a lease may be alive and keep it.

    Args:
        lease: the lease as the store returned it.
        now_steady: the steady clock, read no later than the lease; default: now.
    """
    if lease.token not in held_here and is_here(lease.owner):
        return False
    return is_present(lease.holder, lease.owner, lease.left, lease.ttl, lease.beat, now_steady)


def is_present(
    holder: str, owner: JsonObject, left: float, ttl: float, beat: float, now_steady: float | None = None
) -> bool:
    """Return whether a holder may be alive. For the arguments see `Lease` and `may_live`."""
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
    """Forget when a holder last sent a beat."""
    _seen.pop(holder, None)

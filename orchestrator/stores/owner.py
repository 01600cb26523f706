"""Who holds a lease: one executor in one process, so that any other process can tell whether it still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """One executor in one process, so that any other process can tell whether it still lives."""

    host: str
    boot: str
    """The kernel's boot id: processes of another boot are gone."""
    space: str
    """The process id namespace: a container's process ids mean nothing outside of it."""
    times: str
    """The time namespace: a container may count the time since boot in its own way."""
    pid: int
    start: str
    """When the process started, in ticks since boot: a process id that was given anew has another one."""
    executor: str = field(default_factory=lambda: os.urandom(6).hex())

    @classmethod
    def here(cls) -> Owner:
        """A new owner in this process."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            boot=boot_id(),
            space=namespace("pid"),
            times=namespace("time"),
            pid=pid,
            start=_process(pid)[1],
        )

    def data(self) -> dict[str, object]:
        """As plain JSON."""
        return {
            "host": self.host, "boot": self.boot, "space": self.space, "pid": self.pid, "start": self.start,
            "times": self.times, "executor": self.executor,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


_PROCESS = ("host", "boot", "space", "pid", "start")


def is_dead(owner: Mapping[str, object]) -> bool:
    """Whether a lease's holder is gone for certain: it ran on this host, and its process is no more."""
    if owner.get("host") != socket.gethostname():
        return False
    if owner.get("boot") != boot_id():
        return True
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
    # A killed process that its parent has not waited for yet still has its id.
    return state in ("Z", "X") or bool(start and start != owner.get("start"))


def is_here(owner: Mapping[str, object]) -> bool:
    """Whether a lease's holder is this process."""
    here = Owner.here().data()
    return all(owner.get(part) == here[part] for part in _PROCESS)


@cache
def boot_id() -> str:
    """The id that the kernel drew when it booted; empty where it draws none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace(kind: str) -> str:
    """The namespace of this process: `pid` or `time`; empty where there are none."""
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
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

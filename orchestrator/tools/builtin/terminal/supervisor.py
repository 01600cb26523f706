"""The process between this library and a shell. It ends all that the shell started: on request, when the shell ends,
and when the process that it works for has ended, even by `kill -9`, which closes a pipe, too.

It runs as a separate program and imports only the standard library. On Linux it is the "child subreaper" (`prctl(2)`)
of all processes that it starts: a process that loses its parent becomes its child, so none escapes by leaving the
process group or the session. Elsewhere it ends the shell's process group only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

STATUS = 9
"""Descriptor to which the shell writes its status; `sh` supports descriptors of one digit only."""
MARK = "ORCHESTRATOR_SHELL"
"""Environment variable that identifies processes whose supervisor was killed."""

_LINUX = sys.platform == "linux"
_PDEATHSIG, _SUBREAPER = 1, 36  # of prctl(2)
_LOOK = 1000
"""Milliseconds between checks that the parent still exists, in case a copy of the pipe outlives it."""
_SWEEP = 5.0
"""Seconds for killing all processes. Only those that the kernel holds, or of another user, take longer."""
_IGNORED = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
"""Found by name: this module is also imported on systems without terminals and these signals."""


def main(argv: list[str]) -> int:
    """Start `argv[4:]` and watch it. `argv[:4]`: the parent's id; descriptors of lifeline, status and end."""
    parent, lifeline, status, end = map(int, argv[:4])
    for fd in (lifeline, status, end):
        os.set_inheritable(fd, False)  # not inherited: no process that the shell starts keeps them open
    prctl = _prctl()
    if prctl is not None:
        prctl(_SUBREAPER, 1, 0, 0, 0)
    for one in _IGNORED:
        signal.signal(one, signal.SIG_IGN)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    shell = os.fork()
    if shell == 0:
        _become(argv[4:], status, prctl)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(status)
    code = _watch(shell, parent, lifeline, woken)
    _sweep(shell, reaped=code is not None)
    os.write(end, b"%d\n" % (-1 if code is None else code))
    return 0


def _prctl() -> Callable[..., object] | None:
    if not _LINUX:
        return None
    import ctypes  # imported late: the library imports this module too, and does not need it

    return ctypes.CDLL(None).prctl


def _become(command: list[str], status: int, prctl: Callable[..., object] | None) -> None:
    """Become the shell; never returns."""
    try:
        os.setsid()
        if prctl is not None:
            prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for one in (*_IGNORED, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(status, STATUS)
        os.set_inheritable(STATUS, True)  # also if it already had that number
        os.execve(command[0], command, os.environ)
    except BaseException as error:
        os.write(status, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _watch(shell: int, parent: int, lifeline: int, woken: int) -> int | None:
    """Wait for the shell's end, or until it is no longer wanted; return its exit code, None if it still runs."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(woken, select.POLLIN)
    while True:
        ready = dict(poll.poll(_LOOK))
        if woken in ready:
            os.read(woken, 512)
        code = _reap(shell)
        if code is not None:
            return code
        if lifeline in ready or os.getppid() != parent:
            return None


def _reap(shell: int) -> int | None:
    """Reap ended children; return the shell's exit code if it is among them."""
    found = None
    while True:
        try:
            pid, state = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        if pid == shell:
            code = os.waitstatus_to_exitcode(state)
            found = code if code >= 0 else 128 - code


def _sweep(shell: int, *, reaped: bool) -> None:
    """Kill all remaining processes, group by group: a group is killed at once, so it cannot escape by forking."""
    until = time.monotonic() + _SWEEP
    while time.monotonic() < until:
        left = below(os.getpid()) if _LINUX else ({} if reaped else {shell: shell})
        own = os.getpgrp()
        for group in {group for group in left.values() if group != own}:
            _kill(-group)
        for pid in left:
            _kill(pid)
        if not _LINUX:
            _kill(-shell)  # there may be other processes in its group
        _reap(shell)
        if not left or not _LINUX:
            return
        time.sleep(0.005)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it has ended, or belongs to another user
        os.kill(pid, signal.SIGKILL)


def below(root: int) -> dict[int, int]:
    """Return all descendants of a process, each with its process group, including zombies."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1]), int(fields[2])
    found: dict[int, int] = {}
    level = {root}
    while level:
        level = {pid for pid, (parent, _) in parents.items() if parent in level and pid not in found}
        found |= {pid: parents[pid][1] for pid in level}
    return found


def kill_marked(mark: str) -> int:
    """Kill all processes of this user that were started with this mark, after their supervisor has ended; return how
    many.

    A process that clears its environment is not found.
    """
    if not _LINUX:
        return 0
    wanted, count = f"{MARK}={mark}".encode(), 0
    for _ in range(100):
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, wanted)]
        for pid in found:
            _kill(pid)
        count += len(found)
        if not found:
            break
        time.sleep(0.005)
    return count


def _has(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return pid != os.getpid() and mark in file.read().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A process that ends together with all that it started, also when this process is killed.

Between this process and the other one there is a supervisor (see `supervisor.py`), which ends everything when a pipe is
closed.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from orchestrator.tools.builtin.terminal.supervisor import MARK, kill_marked

CHUNK = 65536
_PATIENCE = 10.0
"""Seconds that the supervisor has to end everything."""


class SupervisedProcess:
    """A process, all that it started, and the pipes to it. Use `start`, and always call `close`.

    Its standard input is the pipe `input`, its standard output and error are `output`. What it writes to the descriptor
    `supervisor.STATUS` arrives in `status`. `end` becomes readable when the process has ended. All are non-blocking.
    """

    def __init__(self) -> None:
        self.mark = secrets.token_hex(16)
        """Value of an environment variable that all of its processes inherit."""
        self.closed = False
        self.pipes: dict[str, int] = {}
        """Name of a pipe -> our end of it."""
        self._fds: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        # A process that is no longer referenced loses its lifeline, so the supervisor ends it.
        self._release = weakref.finalize(self, _close, self._fds)

    @classmethod
    async def start(cls, command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Self:
        """Start a program.

        Args:
            command: its full path and its arguments.
            cwd: the directory that it starts in.
            env: its complete environment.

        Raises:
            OSError: the program cannot be started.
        """
        process = cls()
        try:
            await anyio.to_thread.run_sync(partial(process._start, [*command], cwd, {**env, MARK: process.mark}))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await process.close()
            raise
        return process

    def _start(self, command: list[str], cwd: str, env: dict[str, str]) -> None:
        theirs: dict[str, int] = {}
        try:
            for name in ("status", "end", "output"):
                self.pipes[name], theirs[name] = os.pipe()
                os.set_blocking(self.pipes[name], False)
            for name in ("input", "lifeline"):
                theirs[name], self.pipes[name] = os.pipe()
                os.set_blocking(self.pipes[name], False)
        finally:
            self._fds.update(self.pipes.values())
            self._fds.update(theirs.values())
        told = [str(os.getpid()), str(theirs["lifeline"]), str(theirs["status"]), str(theirs["end"])]
        supervisor = str(Path(__file__).with_name("supervisor.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", supervisor, *told, *command],
                stdin=theirs["input"],
                stdout=theirs["output"],
                stderr=theirs["output"],
                pass_fds=[theirs[name] for name in ("lifeline", "status", "end")],
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        finally:
            self._fds.difference_update(theirs.values())
            for fd in theirs.values():
                os.close(fd)

    @property
    def has_ended(self) -> bool:
        """Return True if the process was closed or has ended."""
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self.pipes["end"], select.POLLIN)
        return bool(poll.poll(0))

    async def write(self, data: bytes) -> None:
        """Write to the standard input; data that an ended process does not read is lost."""
        fd, left = self.pipes["input"], memoryview(data)
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                await anyio.wait_writable(fd)
            except BrokenPipeError:
                return  # its end is noticed elsewhere

    def read(self, name: str, most: int = CHUNK) -> bytes | None:
        """Return the data that can be read now from a pipe; empty at its end, None if there is none yet."""
        try:
            return os.read(self.pipes[name], most)
        except BlockingIOError:
            return None

    async def readable(self, name: str) -> None:
        """Wait until data can be read from a pipe."""
        await anyio.wait_readable(self.pipes[name])

    async def close(self) -> int | None:
        """End the process and all that it started, and return its exit code; None if it was still running or is
        unknown.

        No such process is left when this returns, except those of other users, those that other programs started for
        it, and those that the kernel does not let die. Closing it again does nothing.
        """
        if self.closed:
            return None
        self.closed = True
        code: int | None = None
        with anyio.CancelScope(shield=True):
            if self._process is not None:
                self._drop("lifeline")
                self._drop("input")
                with anyio.move_on_after(_PATIENCE):
                    await self.readable("end")
                said = self.read("end")
                if said:
                    code = int(said)
                else:  # the supervisor was killed, or hangs
                    self._process.kill()
                    await anyio.to_thread.run_sync(kill_marked, self.mark)
                await anyio.to_thread.run_sync(self._process.wait)
        self._release()
        return None if code is None or code < 0 else code

    def _drop(self, name: str) -> None:
        fd = self.pipes.pop(name)
        self._fds.discard(fd)
        os.close(fd)


def _close(fds: set[int]) -> None:
    while fds:
        os.close(fds.pop())

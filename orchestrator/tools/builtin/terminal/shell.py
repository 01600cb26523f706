"""One shell process that is given commands, one after the other, and keeps its directory and variables between them.

Commands go to the shell's standard input, wrapped so that a command itself reads from `/dev/null`; what it prints comes
through one pipe, and its exit code through another, which commands do not inherit: nothing that a command prints can be
taken for its end. The shell is the child of a warden (see `warden.py`), which ends all that it started.
"""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.terminal.kept import Kept
from orchestrator.tools.builtin.terminal.warden import MARK, STATUS, kill_marked

_CHUNK = 65536
_PATIENCE = 10.0
"""Seconds that the warden has to end everything."""

Told = Callable[[bytes], Awaitable[None]]


class ShellEnded(Exception):
    """Raised when the shell is gone: the command ended it, or it was closed."""

    def __init__(self, code: int | None, said: str = "") -> None:
        self.code = code
        """Its exit code; None if it was killed together with its warden."""
        self.said = said
        """What kept it from starting."""
        super().__init__(f"the shell ended with exit code {code}")


class Shell:
    """A shell and all that it started. Use `start`, and `close` in any case.

    It runs one command at a time; who calls it sees to that.
    """

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        """The directory that it began in."""
        self.mark = secrets.token_hex(16)
        """Value of an environment variable that all of its processes inherit."""
        self.ran = 0
        """How many commands it was given."""
        self.closed = False
        self._fds: set[int] = set()
        self._pipes: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        # Whoever forgets it lets go of the lifeline, and the warden does the rest.
        self._release = weakref.finalize(self, _close, self._fds)

    @classmethod
    async def start(cls, command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Self:
        """Start a shell.

        Args:
            command: the shell's full path and its arguments.
            cwd: the directory that it begins in.
            env: its whole environment.

        Raises:
            ToolError: it cannot be started here.
        """
        if sys.platform == "win32":
            raise ToolError("a terminal needs a Unix system")
        shell = cls(cwd)
        try:
            await anyio.to_thread.run_sync(partial(shell._start, [*command], {**env, MARK: shell.mark}))
        except OSError as error:
            await shell.close()
            raise ToolError(f"the shell cannot be started in {cwd!r}: {error.strerror or error}") from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                await shell.close()
            raise
        return shell

    def _start(self, command: list[str], env: dict[str, str]) -> None:
        theirs: dict[str, int] = {}
        try:
            for name in ("status", "end", "output"):
                self._pipes[name], theirs[name] = os.pipe()
                os.set_blocking(self._pipes[name], False)
            for name in ("input", "lifeline"):
                theirs[name], self._pipes[name] = os.pipe()
                os.set_blocking(self._pipes[name], False)
        finally:
            self._fds.update(self._pipes.values())
            self._fds.update(theirs.values())
        told = [str(os.getpid()), str(theirs["lifeline"]), str(theirs["status"]), str(theirs["end"])]
        warden = str(Path(__file__).with_name("warden.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", warden, *told, *command],
                stdin=theirs["input"],
                stdout=theirs["output"],
                stderr=theirs["output"],
                pass_fds=[theirs[name] for name in ("lifeline", "status", "end")],
                cwd=self.cwd,
                env=env,
                start_new_session=True,
            )
        finally:
            self._fds.difference_update(theirs.values())
            for fd in theirs.values():
                os.close(fd)

    # -- commands ------------------------------------------------------------------------------------------------

    async def run(self, command: str, kept: Kept, told: Told | None = None) -> int:
        """Run a command to its end, and return its exit code.

        If this is cancelled, the command goes on: `close` the shell then.

        Args:
            kept: gets what is printed, also by jobs in the background that earlier commands left.
            told: gets it, too, as it comes.

        Raises:
            ShellEnded: the command ended the shell, or it was gone before.
        """
        token = secrets.token_hex(8)
        # With `command`, a syntax error in `eval` does not end the shell, and no function takes the place of `printf`.
        line = (
            f"command eval {shlex.quote(command)} </dev/null {STATUS}>&-\n"
            f"command printf '%s %s\\n' \"$?\" {token} >&{STATUS}\n"
        )
        self.ran += 1
        code: int | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, kept, told)
                group.start_soon(self._write, line.encode(errors="replace"))
                code = await self._ended(token)
                group.cancel_scope.cancel()
        finally:
            await self._drain(kept, told)
        if code is None:
            said = self._said.decode(errors="replace").strip()
            raise ShellEnded(await self.close(), said)
        return code

    async def _write(self, data: bytes) -> None:
        fd, left = self._pipes["input"], memoryview(data)
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                await anyio.wait_writable(fd)
            except BrokenPipeError:
                return  # the shell is gone, which is noticed elsewhere

    async def _read(self, kept: Kept, told: Told | None) -> None:
        while True:
            await anyio.wait_readable(self._pipes["output"])
            data = _read(self._pipes["output"])
            if data == b"":
                return
            if data is not None:
                kept.add(data)
                if told is not None:
                    await told(data)

    async def _drain(self, kept: Kept, told: Told | None) -> None:
        """Read what was printed before the end was told; no more, for a job in the background may print for ever."""
        left = 1 if self.closed else _CHUNK
        while left > 0:
            data = _read(self._pipes["output"], left)
            if not data:
                return
            left -= len(data)
            kept.add(data)
            if told is not None:
                with anyio.CancelScope(shield=True):
                    await told(data)

    async def _ended(self, token: str) -> int | None:
        """The command's exit code; None if the shell is gone."""
        code: int | None = None
        async with anyio.create_task_group() as group:

            async def status() -> None:
                nonlocal code
                while code is None:
                    await anyio.wait_readable(self._pipes["status"])
                    data = _read(self._pipes["status"])
                    if data == b"":
                        return  # the shell runs no commands any more, but may have become another program
                    code = self._told(data or b"", token)
                group.cancel_scope.cancel()

            group.start_soon(status)
            await anyio.wait_readable(self._pipes["end"])
            group.cancel_scope.cancel()
        return self._told(_read(self._pipes["status"]) or b"", token) if code is None else code

    def _told(self, data: bytes, token: str) -> int | None:
        """The exit code, if it is in what came through the status pipe; all else is kept as what was said."""
        self._said += data
        for line in self._said.decode(errors="replace").splitlines():
            code, _, its = line.partition(" ")
            if its == token and code.isdigit():
                self._said = b""
                return int(code)
        return None

    # -- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> int | None:
        """End the shell and all that it started, and return its exit code; None if it was running or is not known.

        Nothing of it is left when this returns, but for what belongs to other users, what other programs started for
        it, and what the kernel does not let die. Doing it again does nothing.
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
                    await anyio.wait_readable(self._pipes["end"])
                said = _read(self._pipes["end"])
                if said:
                    code = int(said)
                else:  # the warden was killed, or is stuck
                    self._process.kill()
                    await anyio.to_thread.run_sync(kill_marked, self.mark)
                await anyio.to_thread.run_sync(self._process.wait)
        self._release()
        return None if code is None or code < 0 else code

    def _drop(self, name: str) -> None:
        fd = self._pipes.pop(name)
        self._fds.discard(fd)
        os.close(fd)


def _read(fd: int, most: int = _CHUNK) -> bytes | None:
    """What can be read now; empty at the end, None if there is nothing yet."""
    try:
        return os.read(fd, most)
    except BlockingIOError:
        return None


def _close(fds: set[int]) -> None:
    while fds:
        os.close(fds.pop())

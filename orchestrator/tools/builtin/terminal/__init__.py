"""A persistent shell. It is not a sandbox.

A reference `terminal:work` names the initial directory; `terminal` alone is the current directory, or the one where a
run was started.

Commands are written to the shell's standard input, wrapped so that a command itself reads from `/dev/null`. Output
comes through one pipe, and the exit code through another, which commands do not inherit: output cannot be taken for the
end of a command. The shell is the child of a supervisor (see `supervisor.py`), which ends all processes that it
started.
"""

from __future__ import annotations

import codecs
import os
import secrets
import shlex
import shutil
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Self

import anyio

from orchestrator.context import Context
from orchestrator.errors import ToolError
from orchestrator.tools.builtin import texts
from orchestrator.tools.builtin.terminal.supervised import CHUNK, SupervisedProcess
from orchestrator.tools.builtin.terminal.supervisor import STATUS
from orchestrator.tools.pool import Pool
from orchestrator.tools.result import ToolResult
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox
from orchestrator.user_code import pass_fence


class BoundedOutput:
    """Collects bytes, and returns them as text in which the middle is left out if there are too many."""

    def __init__(self, limit: int) -> None:
        """
        Args:
            limit: bytes that are kept, half of them from the start and half from the end.
        """
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self.total = 0
        """Number of bytes added."""

    @property
    def cut(self) -> int:
        """Return the number of bytes left out."""
        return max(0, self.total - self._limit)

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.total += len(data)
        room = self._limit // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        most = self._limit - self._limit // 2
        while self._in_tail - len(self._tail[0]) >= most:
            self._in_tail -= len(self._tail.popleft())

    def text(self) -> str:
        """Return the kept output as text, with a note where the middle is missing. Invalid UTF-8 becomes U+FFFD."""
        tail = b"".join(self._tail)
        if not self.cut:
            return (self._head + tail).decode(errors="replace")
        tail = tail[-(self._limit - self._limit // 2) :]
        head, end = self._head.decode(errors="ignore"), tail.decode(errors="ignore")
        return f"{head}\n[... {self.cut} bytes left out ...]\n{end}"


OnOutput = Callable[[bytes], Awaitable[None]]


class ShellEnded(Exception):
    """Raised when the shell has ended: by a command, or because it was closed."""

    def __init__(self, code: int | None, said: str = "") -> None:
        self.code = code
        """Its exit code; None if it was killed together with its supervisor."""
        self.said = said
        """Reason why it did not start."""
        super().__init__(f"the shell ended with exit code {code}")


class Shell:
    """A shell and all the processes that it started. Use `start`, and always call `close`.

    It runs one command at a time, which its caller must ensure.
    """

    def __init__(self, process: SupervisedProcess, cwd: str) -> None:
        self._process = process
        self.cwd = cwd
        """Initial directory of the shell."""
        self.ran = 0
        """Number of commands run so far."""
        self._said = b""

    @property
    def mark(self) -> str:
        """Value of an environment variable that all of its processes inherit."""
        return self._process.mark

    @property
    def closed(self) -> bool:
        """True if the shell was closed or has ended."""
        return self._process.closed

    @classmethod
    async def start(cls, command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> Self:
        """Start a shell.

        Args:
            command: the shell's full path and its arguments.
            cwd: its initial directory.
            env: its complete environment.

        Raises:
            ToolError: the shell cannot be started.
        """
        if sys.platform == "win32":
            raise ToolError("a terminal needs a Unix system")
        try:
            return cls(await SupervisedProcess.start(command, cwd=cwd, env=env), cwd)
        except OSError as error:
            raise ToolError(f"the shell cannot be started in {cwd!r}: {error.strerror or error}") from None

    # -- commands ------------------------------------------------------------------------------------------------

    async def run(self, command: str, output: BoundedOutput, on_output: OnOutput | None = None) -> int:
        """Run a command to its end, and return its exit code.

        If this is cancelled, the command continues: close the shell in that case.

        Args:
            output: receives the output, also of background jobs of earlier commands.
            on_output: receives the output as it arrives.

        Raises:
            ShellEnded: the command ended the shell, or it had already ended.
        """
        token = secrets.token_hex(8)
        # With `command`, a syntax error in `eval` does not end the shell, and no function can replace `printf`.
        line = (
            f"command eval {shlex.quote(command)} </dev/null {STATUS}>&-\n"
            f"command printf '%s %s\\n' \"$?\" {token} >&{STATUS}\n"
        )
        self.ran += 1
        code: int | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, output, on_output)
                group.start_soon(self._process.write, line.encode(errors="replace"))
                code = await self._ended(token)
                group.cancel_scope.cancel()
        finally:
            await self._drain(output, on_output)
        if code is None:
            said = self._said.decode(errors="replace").strip()
            raise ShellEnded(await self.close(), said)
        return code

    async def _read(self, output: BoundedOutput, on_output: OnOutput | None) -> None:
        while True:
            await self._process.readable("output")
            data = self._process.read("output")
            if data == b"":
                return
            if data is not None:
                output.add(data)
                if on_output is not None:
                    await on_output(data)

    async def _drain(self, output: BoundedOutput, on_output: OnOutput | None) -> None:
        """Read only output that was printed before the command ended, as a background job may print for ever."""
        left = 1 if self.closed else CHUNK
        while left > 0:
            data = self._process.read("output", left)
            if not data:
                return
            left -= len(data)
            output.add(data)
            if on_output is not None:
                with anyio.CancelScope(shield=True):
                    await on_output(data)

    async def _ended(self, token: str) -> int | None:
        """Return the command's exit code; None if the shell has ended."""
        code: int | None = None
        async with anyio.create_task_group() as group:

            async def status() -> None:
                nonlocal code
                while code is None:
                    await self._process.readable("status")
                    data = self._process.read("status")
                    if data == b"":
                        return  # the shell runs no more commands, but may have become another program
                    code = self._exit_code(data or b"", token)
                group.cancel_scope.cancel()

            group.start_soon(status)
            await self._process.readable("end")
            group.cancel_scope.cancel()
        return self._exit_code(self._process.read("status") or b"", token) if code is None else code

    def _exit_code(self, data: bytes, token: str) -> int | None:
        """Return the exit code if the status pipe has delivered it; all other data is stored as output."""
        self._said += data
        for line in self._said.decode(errors="replace").splitlines():
            code, _, its = line.partition(" ")
            if its == token and code.isdigit():
                self._said = b""
                return int(code)
        return None

    # -- the end -------------------------------------------------------------------------------------------------

    async def close(self) -> int | None:
        """End the shell and all processes that it started; see `SupervisedProcess.close`."""
        return await self._process.close()


PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables of this process that are passed to a shell by default: no keys, no tokens."""
FIXED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}
"""Set unless given otherwise, as this terminal is not interactive."""
TIMED_OUT = 124
"""Exit code of a command that took too long, as in `timeout(1)`."""


class Session:
    """Holds the shell of one run, and replaces it when it ends."""

    def __init__(self, start: Callable[[], Awaitable[Shell]]) -> None:
        self._start = start
        self._shell: Shell | None = None

    async def ready(self, *, restart: bool) -> Shell:
        """Return a shell that accepts commands: the current one, unless it has ended or a new one is wanted."""
        if self._shell is not None and (restart or self._shell.closed):
            await self.aclose()
        if self._shell is None:
            self._shell = await self._start()
        return self._shell

    async def aclose(self) -> None:
        """End the shell and all processes that it started."""
        if self._shell is not None:
            shell, self._shell = self._shell, None
            await shell.close()


class Terminal(Tool):
    """A shell that runs commands. Each run has its own, which keeps its working directory, variables and background
    jobs between calls; calls of one run are made one after the other. Outside a run, the shell belongs to the `id` of a
    call, `await it(command="ls", id="a")`, or to this call alone.

        Terminal(cwd="work", timeout=300, env={"PATH": "/usr/bin:/bin"})

    This is not a sandbox: a command may do whatever this process's user may, so its risk is `dangerous`. A command that
    takes too long is killed with all processes that the shell started; so are all processes when the call is cancelled,
    when the run ends, and when this process dies in any way (on Linux; elsewhere processes that left the shell's
    process group survive).
    """

    name = "terminal"
    risk = "dangerous"
    effect = "irreversible"
    group = "terminal"

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | Iterable[str] = PASSED_ON,
        timeout: float = 60.0,
        output_limit: int = 30_000,
        shell: str | None = None,
        shells: int = 16,
        memory: int | None = None,
    ) -> None:
        """
        Args:
            cwd: initial directory of a shell; None: the current directory of this process when the shell starts.
            env: the environment of commands: names of variables to pass on from this process, or a mapping of
                variables. Nothing else is passed on.
            timeout: seconds that a command may take.
            output_limit: bytes that are kept of a command's output; the middle of longer output is left out.
            shell: path of a POSIX shell; None: `bash`, or else `sh`.
            shells: number of runs that may have a shell at the same time; others wait until one is released.
            memory: bytes of address space of each process (`ulimit -v`), not of all together; None: as this process.

        Raises:
            ValueError: a limit is not positive.
            TypeError: `env` is a string instead of a list.
        """
        if not timeout > 0 or output_limit < 2 or (memory is not None and memory < 1024):
            raise ValueError("Terminal: timeout, output_limit and memory must be positive numbers (memory: 1,024)")
        self._memory, self._cwd, self._seconds = memory, cwd, timeout
        self._env = dict(env) if isinstance(env, Mapping) else texts("env", env)
        self._limit, self._program = output_limit, shell
        self.pool = Pool[Session](self._session, shells)

    async def call(
        self, command: str, env: Session, ctx: Context[object] | None = None, restart: bool = False
    ) -> ToolResult:
        """Run a command in a shell, which keeps its working directory and variables for the next command.

        Commands have no input and no terminal. The middle of long output is left out. A command that takes too long is
        killed, so start servers and similar programs in the background, with their output in a file:
        `server > server.log 2>&1 &`.

        Args:
            command: the command; it may have several lines.
            restart: start a new shell; everything that the old one started is killed.
        """
        if "\0" in command:
            raise ToolError("a command cannot hold the character NUL")
        kept = BoundedOutput(self._limit)
        shell = await env.ready(restart=restart)
        notes = [] if shell.ran else [f"new shell in {shell.cwd}"]
        code = TIMED_OUT
        try:
            await pass_fence()  # a shell may have started, or the end of the old one awaited
            with anyio.move_on_after(self._seconds) as scope:
                code = await shell.run(command, kept, None if ctx is None else _live(ctx, self._limit))
            if scope.cancelled_caught:
                await shell.close()
                notes.append(
                    f"killed after {self._seconds:g} s, with everything else that this shell had started; "
                    "the next command gets a new shell"
                )
        except ShellEnded as ended:
            code = 128 + 9 if ended.code is None else ended.code
            notes.append(f"the shell ended; the next command gets a new one{': ' * bool(ended.said)}{ended.said}")
        except BaseException:
            await shell.close()
            raise
        if code:
            notes.insert(0, f"exit code {code}")
        return ToolResult(output=_with_notes(kept.text(), notes), exit_code=code, metadata={"bytes": kept.total})

    async def _session(self) -> Session:
        return Session(self._started)

    async def _started(self) -> Shell:
        given = self._env
        if not isinstance(given, Mapping):
            given = {name: os.environ[name] for name in given if name in os.environ}
        env = {**FIXED, **given}
        command = _command(self._program, env)
        if self._memory is not None:
            command = ["/bin/sh", "-c", 'ulimit -v "$0" && exec "$@"', str(self._memory // 1024), *command]
        return await Shell.start(command, cwd=self._where(), env=env)

    def _where(self) -> str:
        return os.getcwd() if self._cwd is None else os.path.abspath(self._cwd)


def _command(program: str | None, env: Mapping[str, str]) -> list[str]:
    """Return a shell's full path, with options that keep it from reading start-up files."""
    path = env.get("PATH", os.defpath)
    found = shutil.which(program, path=path) if program else shutil.which("bash", path=path) or "/bin/sh"
    if found is None:
        raise ToolError(f"there is no shell {program!r}: give its full path, or leave shell= out")
    return [found, "--noprofile", "--norc"] if os.path.basename(found) == "bash" else [found]


def _live(ctx: Context[object], limit: int) -> OnOutput:
    """Return a function that sends output to the watchers of the run as it arrives, up to a limit."""
    decoder, left = codecs.getincrementaldecoder("utf-8")("replace"), limit

    async def on_output(data: bytes) -> None:
        nonlocal left
        if left > 0:
            text = decoder.decode(data[:left])
            left -= len(data)
            if text:
                await ctx.progress(text)

    return on_output


def _with_notes(text: str, notes: list[str]) -> str:
    if not notes:
        return text or "(no output)"
    gap = "" if not text or text.endswith("\n") else "\n"
    return text + gap + "\n".join(f"[{note}]" for note in notes)


__all__ = ["Terminal", "at", "terminal"]

terminal = Terminal()


def at(directory: str) -> Toolbox:
    """Return the tools of a reference `terminal:DIRECTORY`.

    Raises:
        NotADirectoryError: it is not a directory.
    """
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"{directory!r} is not a directory")
    return Toolbox(Terminal(cwd=directory))

"""The client of `starter`: programs that it starts for tests."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 150.0
"""Seconds after which a process is taken to hang: on a busy machine one needs up to a minute to start."""
CODE = "tests.support.script"
"""The module whose first argument is Python code, as for `python -c`."""


class Begun:
    """`python -m MODULE ARGUMENTS` as a process. `loads`: further modules that it and later programs find imported."""

    def __init__(
        self,
        words: Sequence[object],
        *,
        streams: Sequence[int],
        module: str = "orchestrator",
        cwd: Path = ROOT,
        env: Mapping[str, str] = os.environ,
        terminal: bool = False,
        loads: Sequence[str] = (),
    ) -> None:
        self._told, theirs = socket.socketpair()
        self._told.settimeout(PATIENCE)
        order = {
            "module": module, "words": [*map(str, words)], "cwd": str(cwd), "env": dict(env), "terminal": terminal,
            "loads": [*loads],
        }  # fmt: skip
        with theirs:
            socket.send_fds(_starter(), [json.dumps(order).encode()], [*streams, theirs.fileno()])
        said, (self._process,), _, _ = socket.recv_fds(self._told, 5, 1)
        assert said == b"begun"
        self._code: int | None = None

    def signal(self, number: int) -> None:
        """Send the process a signal, unless it has ended."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._told, selectors.EVENT_READ)
            return self._code is not None or bool(waiting.select(0))

    def wait(self) -> int:
        """Wait until the process ends, and return its exit code."""
        if self._code is None:
            said = self._told.recv(16)
            assert said, "the starter is gone"
            self._code = int(said)
            self._told.close()
            os.close(self._process)
        return self._code

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()


class Piped(Begun):
    """A command whose output is read; its stdin is a string, or, if that is None, what `write` writes later."""

    def __init__(
        self,
        words: Sequence[object],
        *,
        module: str = "orchestrator",
        cwd: Path = ROOT,
        env: Mapping[str, str] = os.environ,
        stdin: str | None = "",
        loads: Sequence[str] = (),
    ) -> None:
        (read, self._in), (self._out, out), (self._err, err) = os.pipe(), os.pipe(), os.pipe()
        if stdin is not None:
            self.write(stdin)
            self.write_no_further()
        try:
            super().__init__(words, module=module, cwd=cwd, env=env, streams=(read, out, err), loads=loads)
        finally:
            for stream in (read, out, err):
                os.close(stream)

    def write(self, text: str) -> None:
        """Write to the command's stdin, at most as much as a pipe holds."""
        os.write(self._in, text.encode())

    def write_no_further(self) -> None:
        """Close this process's end of the command's stdin."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def read(self) -> tuple[str, str]:
        """Return what the command writes to stdout and stderr until it ends."""
        found = {self._out: b"", self._err: b""}
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as waiting:
            for stream in found:
                waiting.register(stream, selectors.EVENT_READ)
            while waiting.get_map():
                assert time.monotonic() < deadline, f"it hangs: {found}"
                for key, _ in waiting.select(1):
                    data = os.read(key.fd, 1 << 16)
                    found[key.fd] += data
                    if not data:
                        waiting.unregister(key.fd)
        return found[self._out].decode(), found[self._err].decode()

    def line(self, *, err: bool = False) -> str:
        """Return the next line that the command writes."""
        return next_line(self._err if err else self._out)

    def first_line(self, *, err: bool = False) -> str:
        """Return the first line that the command writes, and close the stream."""
        line = self.line(err=err)
        self.read_no_further(err=err)
        return line

    def read_no_further(self, *, err: bool = False) -> None:
        """Close this process's end of the command's stdout or stderr."""
        nothing, end = os.pipe()
        os.close(end)
        os.dup2(nothing, self._err if err else self._out)
        os.close(nothing)

    def close(self) -> None:
        super().close()
        self.write_no_further()
        for stream in (self._out, self._err):
            os.close(stream)


def next_line(stream: int) -> str:
    """Return the next line of a pipe, which has no other reader."""
    found = b""
    while not found.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], PATIENCE)
        assert ready, f"it hangs: {found!r}"
        data = os.read(stream, 1)
        assert data, f"no whole line: {found!r}"
        found += data
    return found.decode()


@contextlib.contextmanager
def piped(words: Sequence[str], **options: Any) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a program of any kind, yield it and the pipe of its stdout, and kill it at the end."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, **options) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.fileno()
        finally:
            process.kill()


@dataclass(frozen=True)
class Ended:
    """The result of a program: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


def run(words: Sequence[object], *, module: str = CODE, cwd: Path = ROOT, loads: Sequence[str] = ()) -> Ended:
    """Run a program to its end; by default the first argument is its code. It has no stdin.

    Args:
        words: the arguments of the program.
        module: the module that is run, as by `python -m`.
        cwd: the program's directory.
        loads: see `Begun`.
    """
    with contextlib.closing(Piped(words, module=module, cwd=cwd, loads=loads)) as program:
        out, err = program.read()
        return Ended(program.wait(), out, err)


@functools.cache
def _starter() -> socket.socket:
    """Return the socket of the process that starts programs, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.starter"], cwd=ROOT, env=env, stdin=theirs, start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.wait(PATIENCE)

    atexit.register(end)
    return ours

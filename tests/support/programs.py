"""Programs that `starter` begins, from the side of who wants them."""

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
"""The module whose first word is Python code: what `python -c` is."""


class Begun:
    """`python -m MODULE WORDS` as a process. `loads`: what else it finds imported, as those that follow it do."""

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
        """Send it a signal, if it is still there."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    @property
    def ended(self) -> bool:
        """Whether it has."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._told, selectors.EVENT_READ)
            return self._code is not None or bool(waiting.select(0))

    def wait(self) -> int:
        """Wait until it ends; its exit code."""
        if self._code is None:
            said = self._told.recv(16)
            assert said, "the starter is gone"
            self._code = int(said)
            self._told.close()
            os.close(self._process)
        return self._code

    def close(self) -> None:
        """Leave nothing behind."""
        self.signal(signal.SIGKILL)
        self.wait()


class Piped(Begun):
    """A command whose output is read; its stdin is a text, or nothing, or what is written later if it is None."""

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
        """Write to its stdin; no more than a pipe holds."""
        os.write(self._in, text.encode())

    def write_no_further(self) -> None:
        """Close our end of its stdin."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def read(self) -> tuple[str, str]:
        """What it writes until it ends."""
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
        """The next line that it writes."""
        return next_line(self._err if err else self._out)

    def first_line(self, *, err: bool = False) -> str:
        """The first line that it writes; the rest of this stream is not read."""
        line = self.line(err=err)
        self.read_no_further(err=err)
        return line

    def read_no_further(self, *, err: bool = False) -> None:
        """Close our end of its stdout or stderr."""
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
    """The next line of a pipe from which nothing else reads."""
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
    """A program of any kind and the pipe that it writes to; it is killed at the end, whatever has happened."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, **options) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.fileno()
        finally:
            process.kill()


@dataclass(frozen=True)
class Ended:
    """What a program came to: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


def run(words: Sequence[object], *, module: str = CODE, cwd: Path = ROOT, loads: Sequence[str] = ()) -> Ended:
    """Run a program to its end; by default the first word is its code. It has no stdin.

    Args:
        words: its command line.
        module: what it is, as `python -m` has it.
        cwd: its directory.
        loads: see `Begun`.
    """
    with contextlib.closing(Piped(words, module=module, cwd=cwd, loads=loads)) as program:
        out, err = program.read()
        return Ended(program.wait(), out, err)


@functools.cache
def _starter() -> socket.socket:
    """The one that begins them, for as long as this process lives."""
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

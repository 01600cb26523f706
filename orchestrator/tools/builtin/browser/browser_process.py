"""The browser process of a toolbox, and the connections to it.

The process starts with the first context and ends with the last one. It also ends with this process.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from orchestrator.errors import ToolError
from orchestrator.tools.builtin.terminal.supervised import SupervisedProcess

LENGTH = struct.Struct(">I")
READY = b"+"
"""What the process sends when a connection has its context."""
MOST = 64_000_000
"""Bytes of the longest message: a screenshot is in one."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
"""Variables of this process that are passed to the browser: no keys, no tokens, no proxies."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_STARTING = 30.0
"""Seconds that the browser has to start."""
_PREFIX = "orch-browser-"
_ENDED = "the browser has ended, with its pages: open them again"


def packed(message: dict[str, Any]) -> bytes:
    """Encode a message as bytes."""
    data = json.dumps(message, ensure_ascii=False).encode(errors="replace")
    return LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    """Return the length of the message after this header.

    Raises:
        ValueError: it exceeds the maximum length of a message.
    """
    found: int = LENGTH.unpack(head)[0]
    if found > MOST:
        raise ValueError(f"a message of {found} bytes is longer than {MOST}")
    return found


def unpacked(data: bytes) -> dict[str, Any]:
    """Decode a message from its bytes."""
    found: dict[str, Any] = json.loads(data)
    return found


class BrowserProcess:
    """Starts the process when it is needed, and ends it when no context is left."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._process: SupervisedProcess | None = None
        self._folder: Path | None = None
        self._users = 0
        self._round = 0
        """Number of processes so far: a session that outlives its own does not affect a later one."""
        self._lock: anyio.Lock | None = None
        self._loop: object = None

    async def open(self) -> BrowserSession:
        """Open a context.

        Raises:
            ToolError: no browser can be started.
        """
        async with self._locked():
            try:
                stream = await self._connected()
            except OSError:  # the process is about to end, for example because Chromium was killed
                await self._end()
                try:
                    stream = await self._connected()
                except OSError as error:
                    await self._end()
                    raise ToolError(f"the browser does not answer: {error}") from None
            self._users += 1
            return BrowserSession(stream, self, self._round)

    async def _connected(self) -> ByteStream:
        """Return a connection to the process, which is started if necessary."""
        if self._process is None or self._process.has_ended:
            await self._end()
            await self._begin()
        assert self._folder is not None
        try:
            stream = await anyio.connect_unix(str(self._folder / "s"))
            try:
                await stream.receive(len(READY))  # one about to end accepts connections only
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
            return stream
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise OSError("the connection ended") from error
        except OSError:
            raise
        except BaseException:  # cancelled: a process without a session would not end
            if not self._users:
                await self._end()
            raise

    async def left(self, number: int) -> None:
        """Record that a context was closed.

        Args:
            number: number of the process that had the context.
        """
        with anyio.CancelScope(shield=True):
            async with self._locked():
                if number != self._round:
                    return
                self._users -= 1
                if self._users <= 0:
                    await self._end()

    def _locked(self) -> anyio.Lock:
        """Return a lock of this event loop, and discard one that an earlier loop left."""
        here = anyio.lowlevel.current_token()
        if self._lock is None or self._loop != here:
            self._lock, self._loop = anyio.Lock(), here
        return self._lock

    async def _begin(self) -> None:
        program = _program(self._settings["program"])
        folder = self._folder = await anyio.to_thread.run_sync(_folder)
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        command = [sys.executable, "-P", "-m", "orchestrator.tools.builtin.browser.service"]
        try:
            process = await SupervisedProcess.start(
                command, cwd=str(self._folder), env={**env, "TMPDIR": str(self._folder), "HOME": str(self._folder)}
            )
        except OSError as error:
            raise ToolError(f"the process of the browser cannot be started: {error.strerror or error}") from None
        self._process = process
        self._users = 0
        self._round += 1
        settings = {**self._settings, "program": program, "socket": str(folder / "s")}
        try:
            await process.write(json.dumps(settings).encode() + b"\n")
            said = await _first_line(process)
        except TimeoutError:
            await self._end()
            raise ToolError(f"the browser did not start within {_STARTING:g} s") from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end()
            raise
        if said != "ready":
            await self._end()
            raise ToolError(said.removeprefix("failed ") if said.startswith("failed ") else _unstarted(said))

    async def _end(self) -> None:
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        self._users = 0
        with anyio.CancelScope(shield=True):
            if process is not None:
                await process.close()
            if folder is not None:
                await anyio.to_thread.run_sync(_remove, folder)


class BrowserSession:
    """A context of the browser, with its own connection. Messages are sent one at a time."""

    def __init__(self, stream: ByteStream, process: BrowserProcess, number: int) -> None:
        self._stream, self._process, self._number = stream, process, number
        self._received = BufferedByteReceiveStream(stream)
        self.ended = False

    async def do(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Send an action and return the browser's answer.

        Raises:
            ToolError: the action failed.
        """
        if self.ended:
            raise ToolError(_ENDED)
        try:
            await self._stream.send(packed({"do": action, **arguments}))
            size = length_of(await self._received.receive_exactly(LENGTH.size))
            answer = unpacked(await self._received.receive_exactly(size))
        except (OSError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead):
            self.ended = True
            raise ToolError(_ENDED) from None
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer

    async def aclose(self) -> None:
        """Close the context and all its pages."""
        self.ended = True
        try:
            await anyio.aclose_forcefully(self._stream)
        finally:
            await self._process.left(self._number)


def _program(named: str | None) -> str:
    """Return the path of the browser.

    Raises:
        ToolError: no browser is found.
    """
    found = next(filter(None, map(shutil.which, PROGRAMS if named is None else (named,))), None)
    if found is None and named is not None:
        raise ToolError(f"the browser cannot be started: {named!r} is not a program")
    if found is None:
        raise ToolError(
            f"there is no browser: install one of {', '.join(PROGRAMS)}, or name it with Browser(executable=...)"
        )
    return os.path.abspath(found)


async def _first_line(process: SupervisedProcess) -> str:
    """Return the first line that the process prints; empty if it ends without one."""
    said = b""
    with anyio.fail_after(_STARTING):
        while b"\n" not in said:
            await process.readable("output")
            data = process.read("output")
            if data == b"":
                break
            said += data or b""
    return said.decode(errors="replace").strip()[-500:].splitlines()[-1] if said.strip() else ""


def _unstarted(said: str) -> str:
    return f"the browser's process ended while it started{': ' * bool(said)}{said}"


def _folder() -> Path:
    """Return a directory for this process's browser, and remove directories that killed processes left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, ValueError):
            if left.stat().st_uid == os.getuid() and not _is_alive(int(left.name.split("-")[2])):
                _remove(left)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

"""A stdio server: its process, its messages, and its output on stderr.

The client's own transport keeps lines of any length, in quadratic time, drops a call whose answer it cannot read, and
writes the server's stderr to a file. This one replaces it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio

from orchestrator.errors import ToolUnavailable
from orchestrator.tools.mcp.untrusted import UNREADABLE, Tail, messages_in

if TYPE_CHECKING:
    from anyio.abc import Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage

    from orchestrator.tools.mcp.servers import StdioServer

LONGEST = 16 * 1024 * 1024
"""Maximum number of bytes of a message. Larger than any result that is useful to a model or a run."""
_ENDS = 400
_FIRST = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,100}")\s*,')
_LAST = re.compile(rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,100}")\s*\}\s*\Z')
GRACE = 2.0
"""Seconds that a server has to end, first after its input is closed, then after SIGTERM."""
_FLUSH = 0.5
_POLL = 0.01
_GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
LARGE = 256 * 1024
"""Bytes from which a message is read in a thread."""


class Cut(NamedTuple):
    """A line that exceeded the maximum length: its start, its end, and its length."""

    first: bytes
    last: bytes
    size: int


class Lines:
    """Splits a stream into lines. Time and space are linear in its length, with space bounded by the longest line."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._last = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | Cut]:
        """Yield the lines that end in this chunk."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            yield self._taken()
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        if self._size <= self._longest < self._size + len(part):
            self._parts = [b"".join([*self._parts, part])[:_ENDS]]
        elif self._size <= self._longest:
            self._parts.append(part)
        self._size += len(part)
        self._last = (self._last + part)[-_ENDS:]

    def _taken(self) -> bytes | Cut:
        whole, size, last = b"".join(self._parts), self._size, self._last
        self._parts, self._size, self._last = [], 0, b""
        return whole if size <= self._longest else Cut(whole[:_ENDS], last, size)


def id_of(first: bytes, last: bytes) -> int | str | None:
    """Return the id of an answer that is cut or cannot be read; None if its ends do not contain the id.

    Servers write it first or last. A server that gives a wrong id only ends one of its own calls.
    """
    found = _FIRST.match(first) or _LAST.search(last)
    if found is None:
        return None
    text = found[1].decode("utf-8", "replace")
    return text[1:-1] if text.startswith('"') else int(text)


@asynccontextmanager
async def stdio(server: StdioServer, tail: Tail, ended: anyio.Event) -> AsyncIterator[TransportStreams]:
    """Start a server, open its streams, and end it when they are left.

    Args:
        tail: receives other output of the server.
        ended: set when its output has ended.

    Raises:
        ToolUnavailable: the server cannot be started.
    """
    process = await _started(server)
    to_us, ours = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    mine, from_us = anyio.create_memory_object_stream["SessionMessage"](0)
    flushed, heard = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, to_us, tail, ended)
        tasks.start_soon(_write, process, from_us, flushed)
        tasks.start_soon(_listen, process, tail, heard)
        try:
            yield ours, mine
        finally:
            with anyio.CancelScope(shield=True):
                ours.close()
                mine.close()
                with anyio.move_on_after(_FLUSH):
                    await flushed.wait()
                await _end(process, heard)
            tasks.cancel_scope.cancel()
    for stream in (to_us, from_us):
        stream.close()


async def _started(server: StdioServer) -> Process:
    from mcp.client.stdio import get_default_environment

    try:
        return await anyio.open_process(
            [server.command, *server.args],
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        place = f" in {server.cwd}" if server.cwd and getattr(error, "filename", None) == server.cwd else ""
        raise ToolUnavailable(
            f"MCP server {server.name!r} cannot be started: {server.command!r}{place}: {why}; "
            "install it, or give its full path"
        ) from None


async def _read(
    process: Process, to_us: MemoryObjectSendStream[SessionMessage | Exception], tail: Tail, ended: anyio.Event
) -> None:
    """Forward the server's messages until its output ends."""
    from mcp.shared.message import SessionMessage

    assert process.stdout is not None
    lines = Lines()
    try:
        async with to_us:
            while True:
                for line in lines.feed(await process.stdout.receive()):
                    large = isinstance(line, bytes) and len(line) >= LARGE
                    found = await anyio.to_thread.run_sync(_messages, line, tail) if large else _messages(line, tail)
                    for message in found:
                        await to_us.send(SessionMessage(message))
    except _GONE:
        pass
    finally:
        ended.set()
    with suppress(*_GONE):  # the remaining output is read, so that the server can end
        while True:
            await process.stdout.receive()


def _messages(line: bytes | Cut, tail: Tail) -> list[JSONRPCMessage]:
    """Return the messages of a line; for a line that answers a request but cannot be read, an error for that request.

    A line that is no message is added to the server's other output.
    """
    from mcp.types import ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

    if isinstance(line, Cut):
        first, last, fault = line.first, line.last, f"it answered with {line.size:,} bytes, more than the limit"
    else:
        if not line.strip():
            return []
        first, last, fault = line, line[-1000:], "its answer cannot be read: it is not JSON, or nested too deeply"
        try:
            said = jsonrpc_message_adapter.validate_json(line, by_name=False)
            if isinstance(said, JSONRPCResponse):
                return [said]  # most messages, and the largest ones
        except (ValueError, RecursionError):
            pass
        try:
            found = messages_in(line)
        except (ValueError, RecursionError):
            found = []
        else:
            fault = "its answer is not a message of JSON-RPC"
        if found:
            return [jsonrpc_message_adapter.validate_python(one, by_name=False) for one in found]
        if not line.lstrip().startswith(b"{"):
            tail.add(line[:1000] + b"\n")  # printed to stdout, which is reserved for messages
            return []
    number = id_of(first, last)
    if number is None:
        tail.add(b"[a message that cannot be read]\n")
        return []
    return [JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=UNREADABLE, message=fault))]


async def _write(process: Process, from_us: MemoryObjectReceiveStream[SessionMessage], flushed: anyio.Event) -> None:
    assert process.stdin is not None
    try:
        async with from_us:
            async for item in from_us:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
    except _GONE:
        pass  # the server reads no more; the reader notices the end of its output
    finally:
        flushed.set()


async def _listen(process: Process, tail: Tail, heard: anyio.Event) -> None:
    assert process.stderr is not None
    try:
        with suppress(*_GONE):
            while True:
                tail.add(await process.stderr.receive())
    finally:
        heard.set()


async def _end(process: Process, heard: anyio.Event) -> None:
    """End a server and all that it started: close its input, then terminate it, then kill it."""
    assert process.stdin is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    if not await _ended(process):
        _signal(process, signal.SIGTERM)
        if not await _ended(process):
            _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))  # processes that the server left
    with anyio.move_on_after(_FLUSH):
        await heard.wait()  # its last output gives the reason
    with anyio.move_on_after(GRACE), suppress(*_GONE):
        await process.aclose()
        return
    # Processes that it started in another session keep its pipes open, about which asyncio would complain.
    close = getattr(getattr(getattr(process, "_process", None), "_transport", None), "close", None)
    if callable(close):
        close()


async def _ended(process: Process) -> bool:
    """Return True if the process ends in time. `wait` would also wait for processes that inherited its pipes."""
    with anyio.move_on_after(GRACE):
        while process.returncode is None:  # noqa: ASYNC110 - no event tells of the process alone
            await anyio.sleep(_POLL)
    return process.returncode is not None


def _signal(process: Process, number: int) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)

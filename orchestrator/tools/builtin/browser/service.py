"""The browser process: `python -m orchestrator.tools.builtin.browser.service`.

It reads its settings from standard input as one line of JSON, starts Chromium, listens on a socket in its own
directory, prints `ready`, and ends when its input ends. Each connection has its own context, which shares no cookies
with others and is closed with the connection. Playwright needs asyncio, while the library also runs on trio: hence
the separate process, with which all activity of the browser ends.

The browser reaches the network only through a proxy that checks every address and connects to the one it checked.
Chromium resolves no names and opens no connections itself: each request of a page, its scripts, frames and redirects
arrives here with a host name. The name is resolved once, all its addresses are checked, and the connection goes to
one of these, so a name that changes in between has no effect.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ToolError, install_command
from orchestrator.tools.builtin.browser.browser_process import LENGTH, READY, length_of, packed, unpacked
from orchestrator.tools.builtin.web_fetch.guard import Guard, system_resolver

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from orchestrator.tools.builtin.browser.tabs import Tabs


_HEAD = 65536
"""Bytes of the longest header of a request or response."""
_CHUNK = 65536
_SECONDS = 20.0
"""Seconds for a header to arrive, and for a connection to be made."""
_HOP = (b"connection:", b"proxy-connection:", b"keep-alive:", b"proxy-authorization:")
"""Headers that apply to one connection only."""

_OF_CHROMIUM = frozenset(
    {
        b"content-autofill.googleapis.com",
        b"edgedl.me.gvt1.com",
        b"optimizationguide-pa.googleapis.com",
        b"safebrowsing.googleapis.com",
        b"update.googleapis.com",
    }
)
"""Hosts that the browser contacts on its own, not for a page: the first receives the fields of each form."""


class Proxy:
    """Serves one context of the browser on its own port."""

    def __init__(self, guard: Guard, refused: Callable[[str], None], limit: int) -> None:
        """
        Args:
            guard: checks addresses.
            refused: called with the reason of each refusal.
            limit: maximum number of bytes of all responses together.
        """
        self._guard, self._refused = guard, refused
        self._left = limit
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start to listen on this machine, and return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                await self._one(reader, writer)
        except asyncio.CancelledError:
            pass  # the context is closed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a request or a tunnel."""
        async with asyncio.timeout(_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *headers = head[:-4].split(b"\r\n")
        method, target, version = first.split(b" ")
        tunnel = method == b"CONNECT"
        if tunnel and target.rpartition(b":")[0].lower() in _OF_CHROMIUM:
            writer.write(_answer(403, "refused"))
            await writer.drain()
            return  # before the check: a request that the page did not cause is not reported as the page's
        given = (b"https://" + target if tunnel else target).decode("ascii")
        try:
            url = self._guard.url(given)
            port = url.port or (443 if url.scheme == "https" else 80)
            addresses = await self._guard.addresses(url.host, port)
            there = await _connected(addresses, port)
        except ToolError as error:
            self._refused(str(error))
            writer.write(_answer(403, f"refused: {error}"))
            await writer.drain()
            return
        except (OSError, TimeoutError) as error:
            writer.write(_answer(502, f"cannot be reached: {error or 'no answer'}"))
            await writer.drain()
            return
        server_reader, server_writer = there
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                kept = [line for line in headers if not line.lower().startswith(_HOP)]
                request = b" ".join((method, _path(target), version))
                server_writer.write(b"\r\n".join((request, *kept, b"Connection: close", b"", b"")))
            await self._relay(reader, writer, server_reader, server_writer, tunnel=tunnel)
        finally:
            server_writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
        *,
        tunnel: bool,
    ) -> None:
        """Pass on what both sides send until one of them ends."""
        there = asyncio.create_task(_pump(reader, server_writer))
        here = asyncio.create_task(self._back(server_reader, writer, tunnel=tunnel))
        try:
            await asyncio.wait({there, here}, return_when=asyncio.FIRST_COMPLETED)
            if there.done() and there.exception() is not None:
                await here  # a server may answer before it has received the whole request
        finally:
            for task in (there, here):
                task.cancel()
            await asyncio.gather(there, here, return_exceptions=True)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, tunnel: bool) -> None:
        """Forward a response; the answer to a request is marked as the last of its connection."""
        if not tunnel:
            head = await reader.readuntil(b"\r\n\r\n")
            while _is_interim(head):
                head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(_HOP)]
            writer.write(b"\r\n".join((*lines, b"Connection: close", b"", b"")))
        while data := await reader.read(_CHUNK):
            self._left -= len(data)
            if self._left < 0:
                self._refused("the pages sent more data than the limit of this browser allows")
                writer.transport.abort()
                return
            writer.write(data)
            await writer.drain()


def _is_interim(head: bytes) -> bool:
    """Return True if another response follows the one with this header."""
    return re.match(rb"\S+ 1", head) is not None


def _path(target: bytes) -> bytes:
    """Return the path and query of an address, byte for byte as the browser wrote them."""
    found = re.match(rb"[A-Za-z]+://[^/?]*(.*)", target)
    path = found[1] if found else b""
    return path if path.startswith(b"/") else b"/" + path


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


async def _connected(addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of the addresses that can be reached.

    Raises:
        OSError: none can be reached.
    """
    fault: Exception = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(_SECONDS):
                return await asyncio.open_connection(address, port, limit=_HEAD)
        except OSError as error:
            fault = error
    raise fault


def _answer(status: int, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


ARGUMENTS = (
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--no-first-run",
    "--dns-prefetch-disable",
    # Without this, WebRTC sends datagrams to any address, bypassing the proxy.
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # Requests that bypass the proxy cannot resolve any host.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


class Service:
    """A browser and its contexts."""

    def __init__(self, settings: dict[str, Any], browser: Browser) -> None:
        self._settings, self._browser = settings, browser

    def _guard(self) -> Guard:
        given = self._settings
        names: dict[str, list[str]] = given["addresses"]

        async def resolve(host: str, port: int) -> list[str]:
            known = names.get(host.lower().rstrip("."))
            return await system_resolver(host, port) if known is None else known

        return Guard(private=given["allow_private"], hosts=given["hosts"], ports=given["ports"], resolve=resolve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection with its own context."""
        settings = self._settings
        from playwright.async_api import Error

        from orchestrator.tools.builtin.browser import tabs as of_tabs

        tabs: Tabs | None = None

        def refused(reason: str) -> None:
            if tabs is not None:
                tabs.refused(reason)

        guard = self._guard()
        proxy = Proxy(guard, refused, settings["limit"])
        context = None
        try:
            port = await proxy.start()
            width, height = settings["size"]
            context = await self._browser.new_context(
                proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
                viewport={"width": width, "height": height},
                accept_downloads=True,
                service_workers="block",
                locale=settings["locale"],
            )
            downloads = None if settings["downloads"] is None else Path(settings["downloads"])
            tabs = of_tabs.Tabs(
                context,
                guard,
                downloads=downloads,
                most=settings["tabs"],
                shown=settings["shown"],
                seconds=settings["seconds"],
            )
            writer.write(READY)
            await self._converse(tabs, reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, Error):
            pass  # the connection or the browser ended, for any reason
        finally:
            if context is not None:
                with suppress(Exception):
                    await context.close()
            await proxy.close()
            writer.close()

    async def _converse(self, tabs: Tabs, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer messages one after the other; if the connection ends, the current action is stopped."""
        while True:
            message = unpacked(await reader.readexactly(length_of(await reader.readexactly(LENGTH.size))))
            work = asyncio.ensure_future(_answered(tabs, message))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return  # the client sends nothing before it has an answer, so this is the end
            finally:
                gone.cancel()
                with suppress(asyncio.CancelledError):
                    await gone
                if not work.done():
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
            writer.write(packed(work.result()))
            await writer.drain()


async def _answered(tabs: Tabs, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return await tabs.do(message.pop("do"), message)
    except ToolError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"the browser failed: {type(error).__name__}: {str(error)[:300]!r}"}


async def main() -> int:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    settings = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    try:
        from playwright.async_api import async_playwright
    except ModuleNotFoundError:
        return _failed(f"playwright is not installed: {install_command('browser')}")
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(
                executable_path=settings["program"],
                args=[*ARGUMENTS],
                chromium_sandbox=settings["sandbox"],
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                env=dict(os.environ),
                ignore_default_args=["--disable-popup-blocking"],
            )
        except Exception as error:
            return _failed(f"{settings['program']} cannot be started: {str(error).strip().splitlines()[0][:300]}")
        service = Service(settings, browser)
        server = await asyncio.start_unix_server(service.serve, settings["socket"])
        async with server:
            print("ready", flush=True)
            _fall_silent()
            ended = loop.run_in_executor(None, sys.stdin.read)
            broken = asyncio.Event()
            browser.on("disconnected", lambda _: broken.set())
            waiting = asyncio.ensure_future(broken.wait())
            await asyncio.wait({asyncio.ensure_future(ended), waiting}, return_when=asyncio.FIRST_COMPLETED)
            os._exit(0)  # the supervisor ends the browser and all processes that it started


def _fall_silent() -> None:
    """Discard all further output: the pipe is read only until the browser is ready, and a full pipe would block."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def _failed(reason: str) -> int:
    print(f"failed {reason}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

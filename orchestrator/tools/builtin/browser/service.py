"""The process of a browser: `python -m orchestrator.tools.builtin.browser.service`.

It reads its settings from standard input as one line of JSON, starts Chromium, listens on a socket in a folder of its
own, prints `ready`, and ends when its input does. Each connection has a context of its own, with no cookie of another
one; the context is closed with the connection. Playwright runs in asyncio only, and the library in trio too: this is
why the browser has a process of its own, apart from the fact that all its activity ends with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ToolError, install_command
from orchestrator.tools.builtin.browser.browser_process import LENGTH, length_of, packed, unpacked
from orchestrator.tools.builtin.browser.proxy import Proxy
from orchestrator.tools.builtin.web_fetch.guard import Guard, system_resolver

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from orchestrator.tools.builtin.browser.tabs import Tabs

ARGUMENTS = (
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--no-first-run",
    "--dns-prefetch-disable",
    # WebRTC sends datagrams to any address otherwise, past the proxy.
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # Whatever does not go through the proxy finds no host.
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
        """Serve a connection with a context of its own."""
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
            await self._converse(tabs, reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, Error):
            pass  # the connection or the browser ended, in whatever way
        finally:
            if context is not None:
                with suppress(Exception):
                    await context.close()
            await proxy.close()
            writer.close()

    async def _converse(self, tabs: Tabs, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one message after the other; a connection that ends meanwhile ends the action."""
        while True:
            message = unpacked(await reader.readexactly(length_of(await reader.readexactly(LENGTH.size))))
            work = asyncio.ensure_future(_answered(tabs, message))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return  # nothing is sent before an answer, so this is the end
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
            os._exit(0)  # the supervisor ends the browser with all that it started


def _fall_silent() -> None:
    """Write no more: the pipe is read only until the browser is ready, and what filled it would have to wait."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def _failed(reason: str) -> int:
    print(f"failed {reason}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""The live page below a path of another site's address, in a real browser: mounted in an application, and behind a
proxy that hands the path on."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from orchestrator import Executor, web
from orchestrator.web import configured
from orchestrator.web.server import serve
from orchestrator.web.settings import Settings
from tests.support.browser import chromium
from tests.web.api import GRAPHS, pay

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from starlette.requests import Request

pytestmark = pytest.mark.browser
PREFIX = "/team-1/agents"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as browser:
        yield browser


def mounted(executor: Executor) -> Starlette:
    """An application that has others, too; none of their addresses are the page's."""

    async def other(request: Request) -> PlainTextResponse:
        return PlainTextResponse("another application", 418)

    made = web.app(executor)
    routes = [Mount(PREFIX, made), Route("/{path:path}", other, methods=["GET", "POST", "DELETE"])]
    app = Starlette(routes=routes)
    app.state.streams = made.state.streams
    return app


def prefixed(executor: Executor) -> Starlette:
    """As it is behind a proxy that hands on whole paths."""
    return configured(executor, Settings(prefix=PREFIX, poll=0.1))


@asynccontextmanager
async def _served(kind: str) -> AsyncIterator[tuple[str, Executor]]:
    bound = socket.create_server(("127.0.0.1", 0))
    async with (
        Executor("memory://", graphs=GRAPHS, tools=[pay], streams="always") as executor,
        anyio.create_task_group() as tasks,
    ):
        listening = anyio.Event()
        tasks.start_soon(serve, {"mounted": mounted, "prefixed": prefixed}[kind](executor), bound, listening)
        await listening.wait()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}", executor
        tasks.cancel_scope.cancel()


@contextmanager
def served(kind: str) -> Iterator[tuple[str, httpx2.Client, BlockingPortal, Executor]]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(_served(kind)) as (url, executor),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        yield url, client, portal, executor


@contextmanager
def window(browser: Browser, url: str) -> Iterator[Page]:
    """A window in which every request must be below the prefix, and be answered."""
    context = browser.new_context()
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(url + PREFIX + "/") else faults.append(one.url))
    page.on("response", lambda one: None if one.status < 400 else faults.append(f"{one.status} {one.url}"))
    yield page
    context.close()
    assert faults == []


def paths(page: Page) -> set[str]:
    """The paths of all that a page links to or has loaded."""
    found = page.evaluate(
        "[...document.querySelectorAll('a[href], form[action], script[src], link[href]')]"
        ".map((one) => one.href ?? one.action ?? one.src).filter((one) => typeof one === 'string' && one)"
    )
    return {urlsplit(one).path for one in found}


@pytest.mark.parametrize("kind", ["mounted", "prefixed"])
def test_every_screen_works_below_a_path(browser: Browser, kind: str) -> None:
    with served(kind) as (url, client, portal, executor), window(browser, url) as page:
        assert client.get(f"{PREFIX}/").headers["location"] == f"{PREFIX}/runs"
        page.goto(f"{url}{PREFIX}/")
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector("text=No runs yet")
        body = {"graph": "payment", "input": "ann", "run_id": "one", "labels": {"team": "a"}, "wait": True}
        made = client.post(f"{PREFIX}/api/runs", json=body)
        assert (made.status_code, made.headers["location"]) == (201, f"{PREFIX}/api/runs/one")
        page.wait_for_selector("#runs tr[data-status=paused]")
        assert all(path.startswith(f"{PREFIX}/") for path in paths(page)), paths(page)
        page.click("a.tag")
        page.wait_for_url("**/runs?label=team%3Aa")
        page.wait_for_selector("html[data-ready]")
        page.click(".row-link")
        page.wait_for_url(f"{url}{PREFIX}/runs/one*")
        page.wait_for_selector("#a-status:text-is('paused')")
        assert all(path.startswith(f"{PREFIX}/") for path in paths(page)), paths(page)
        page.keyboard.press("g")
        page.keyboard.press("i")
        page.wait_for_url(f"{url}{PREFIX}/inbox")
        page.click(".card >> text=Approve")
        page.wait_for_selector(".card.over")
        portal.call(executor.wait, "one", 60)
        page.goto(f"{url}{PREFIX}/runs/one")
        page.wait_for_selector("#a-status:text-is('completed')")
        described = client.get(f"{PREFIX}/api/openapi.json").json()
        assert described["servers"] == [{"url": PREFIX}]


@pytest.mark.parametrize("kind", ["mounted", "prefixed"])
def test_a_run_is_followed_below_a_path(browser: Browser, kind: str) -> None:
    with served(kind) as (url, client, *_), window(browser, url) as page:
        body = {"graph": "letter", "input": "bees", "run_id": "one", "wait": True}
        (question,) = client.post(f"{PREFIX}/api/runs", json=body).json()["waiting"]
        page.goto(f"{url}{PREFIX}/runs/one")
        page.wait_for_selector("#a-status:text-is('paused')")
        answer = {"question": question["id"], "digest": question["digest"], "approve": True}
        assert client.post(f"{PREFIX}/api/runs/one/answer", json=answer).status_code == 200
        page.wait_for_selector("#a-status:text-is('completed')")  # by its stream of events
        page.reload()
        page.wait_for_selector("#a-status:text-is('completed')")

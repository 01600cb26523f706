"""Pages of other origins: refused, unless the application names their origin."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from orchestrator import Executor
from orchestrator.protocols import a2a_app, agui_app, ui_app
from tests.protocols.served import Served, mail, served
from tests.protocols.test_ui_stream import posted, user
from tests.support.browser import chromium

SHOP = "https://shop.example"
TOKEN = "a-token-that-is-long-enough"
ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
HOSTILE = (
    "https://evil.example", f"{SHOP}.evil.example", "http://shop.example", f"{SHOP}:8443", f"{SHOP}/", "null", "",
    "https://SHOP.example", f"{SHOP}, https://evil.example",
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[Served]:
    """A chat that names an origin, and needs a token."""
    with served(lambda executor: ui_app(executor, mail, token=TOKEN, origins=[f"{SHOP}:443"]), ["Hello."]) as found:
        yield found


def test_a_preflight_of_a_named_origin_needs_no_token_and_names_what_may_be_sent(server: Served) -> None:
    found = server.client.options("/", headers={"Origin": SHOP, **ASKED})
    assert found.status_code == 204
    assert found.headers["access-control-allow-origin"] == SHOP
    assert "POST" in found.headers["access-control-allow-methods"]
    assert found.headers["access-control-allow-headers"] == "authorization,content-type"
    assert "access-control-allow-credentials" not in found.headers
    assert found.headers["vary"] == "Origin"


@pytest.mark.parametrize("wanted", ['x"y', "a" * 1001, "é"])
def test_a_preflight_about_odd_headers_allows_none(server: Served, wanted: str) -> None:
    headers = [("Origin", SHOP), ("Access-Control-Request-Method", "POST")]
    headers.append(("Access-Control-Request-Headers", wanted))
    found = server.client.options("/", headers=[(name, value.encode()) for name, value in headers])
    assert found.status_code == 204
    assert "access-control-allow-headers" not in found.headers


def test_a_page_of_a_named_origin_sends_and_reads_with_the_token_alone(server: Served) -> None:
    headers = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    refused = server.client.post("/", json=posted(user()), headers=headers)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, SHOP)
    headers["Authorization"] = f"Bearer {TOKEN}"
    found = server.client.post("/", json=posted(user()), headers=headers)
    assert server.events(found)
    assert found.headers["access-control-allow-origin"] == SHOP
    read = server.client.get("/mine", headers=headers)
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, SHOP)


@pytest.mark.parametrize("origin", HOSTILE)
def test_other_origins_are_refused_and_read_nothing(server: Served, origin: str) -> None:
    own = {"Origin": origin.encode(), "Authorization": f"Bearer {TOKEN}"}
    for found in (
        server.client.options("/", headers={**own, **ASKED}),
        server.client.post("/", json=posted(user()), headers=own),
        server.client.get("/mine", headers=own),
    ):
        assert found.status_code in (400, 403)
        assert "access-control-allow-origin" not in found.headers


def test_two_origins_and_another_host_are_refused(server: Served) -> None:
    two = [("Origin", SHOP), ("Origin", SHOP), ("Authorization", f"Bearer {TOKEN}")]
    assert server.client.get("/mine", headers=two).status_code == 403
    with served(lambda executor: ui_app(executor, mail, origins=[SHOP])) as local:
        foreign = {"Origin": SHOP, "Host": "evil.example", **ASKED}
        assert local.client.options("/", headers=foreign).status_code == 403


@pytest.mark.parametrize("make", [agui_app, ui_app])
@pytest.mark.parametrize("origin", ["*", "null", "shop.example", f"{SHOP}/", f"{SHOP}/path", "https://*.example", ""])
def test_what_is_no_origin_is_refused_at_once(make: Any, origin: str) -> None:
    with pytest.raises(ValueError, match="is not an origin: give scheme, host and port"):
        make(Executor(), mail, origins=[origin])


def test_without_names_no_page_of_another_origin_is_served() -> None:
    with served(lambda executor: agui_app(executor, mail)) as found:
        answer = found.client.options("/", headers={"Origin": SHOP, **ASKED})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)


def test_an_agent_offers_its_card_to_pages_of_a_named_origin() -> None:
    with served(lambda executor: a2a_app(executor, mail, url="http://127.0.0.1/", origins=[SHOP])) as found:
        card = found.client.get("/.well-known/agent-card.json", headers={"Origin": SHOP})
        assert (card.status_code, card.headers["access-control-allow-origin"]) == (200, SHOP)


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture
def pages() -> Iterator[list[str]]:
    """The addresses of two empty pages, each with a port of its own."""

    class Page(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(2)]
    threads = [Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    yield [f"http://127.0.0.1:{server.server_port}" for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.browser
def test_a_browser_lets_pages_of_the_named_origin_in_and_no_others(pages: list[str]) -> None:
    sends = """async ([url, token, body]) => {
        const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
        try { return (await (await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })).text()); }
        catch (error) { return String(error); }
    }"""
    own, other = pages

    def made(executor: Executor) -> Any:
        return ui_app(executor, mail, token=TOKEN, origins=[own])

    with served(made, ["Hello."]) as found, chromium() as browser:
        page = browser.new_page()
        page.goto(own)
        said = page.evaluate(sends, [f"{found.url}/", TOKEN, posted(user())])
        assert "Hello." in said
        page.goto(other)
        said = page.evaluate(sends, [f"{found.url}/", TOKEN, posted(user(), chat="theirs")])
        assert "TypeError" in said
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert found.client.get("/theirs", headers=headers).json()["messages"] == []

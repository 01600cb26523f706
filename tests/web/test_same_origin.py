"""`same_origin`: routes beside the API refuse what pages of other sites send, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from orchestrator import web

OTHERS: tuple[Mapping[str, str], ...] = (
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}, {"Origin": "http://shop.example:81"},
    {"Origin": "http://shop.example.evil.example"}, {"Origin": "http://shop.example@evil.example"},
    {"Origin": "http://shop.example, https://evil.example"}, {"Origin": "http://user@shop.example"},
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
)  # fmt: skip
OWN: tuple[Mapping[str, str], ...] = (
    {}, {"Origin": "http://shop.example", "Sec-Fetch-Site": "same-origin"}, {"Origin": "http://SHOP.example:80"},
    {"Origin": "https://shop.example"},  # behind a proxy that ends TLS
    {"Origin": "https://partner.example", "Sec-Fetch-Site": "cross-site"},
)  # fmt: skip


async def order(request: Request) -> Response:
    return PlainTextResponse((await request.body()).decode(), 201)


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


@pytest.fixture
def client() -> TestClient:
    """A client of an application with a route and a WebSocket, which one other origin may use."""
    routes = [Route("/orders", order, methods=["GET", "POST"]), WebSocketRoute("/talk", talk)]
    guarded = Middleware(web.same_origin, origins=["https://partner.example:443"])
    return TestClient(Starlette(routes=routes, middleware=[guarded]), base_url="http://shop.example")


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_a_write_of_a_page_of_another_site_is_refused(client: TestClient, headers: Mapping[str, str]) -> None:
    answer = client.post("/orders", content=b"text", headers={"Content-Type": "text/plain", **headers})
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert json.loads(answer.text)["detail"]


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_writes_of_own_pages_allowed_pages_and_programs_pass(client: TestClient, headers: Mapping[str, str]) -> None:
    answer = client.post("/orders", content=b"text", headers=headers)
    assert (answer.status_code, answer.text) == (201, "text")
    assert "content-security-policy" not in answer.headers, "headers are those of the application"


def test_a_link_on_another_site_opens_a_page_but_its_scripts_read_nothing(client: TestClient) -> None:
    assert client.get("/orders", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 201
    assert client.get("/orders", headers={"Origin": "https://evil.example"}).status_code == 403


def test_websockets_are_for_own_pages(client: TestClient) -> None:
    for headers in OWN:
        with client.websocket_connect("/talk", headers={"Host": "shop.example", **headers}) as socket:
            assert socket.receive_text() == "hello"
    for headers in OTHERS:
        if "Origin" in headers:  # which browsers always send with a WebSocket
            with pytest.raises(WebSocketDisconnect), client.websocket_connect("/talk", headers=dict(headers)):
                pass


def test_what_is_no_origin_is_refused_when_the_application_is_made() -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        web.same_origin(PlainTextResponse("ok"), ["shop.example/path"])

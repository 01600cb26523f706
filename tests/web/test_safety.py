"""Which requests are refused: each line of what docs/web_api.md says about safety."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.web.api import Api, api

TOKEN = "a-token-that-is-long-enough"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def open_api() -> Iterator[Api]:
    """A server for this machine, with one run that waits."""
    with api() as found:
        found.start("letter", run_id="one")
        yield found


@pytest.fixture(scope="module")
def locked() -> Iterator[Api]:
    """A server that wants a token."""
    with api(settings={"token": TOKEN}) as found:
        yield found


def raw(url: str, text: str) -> bytes:
    """The first bytes of the answer to what is written."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        return connection.recv(100_000)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "10.0.0.1"]
)
def test_another_host_is_refused(open_api: Api, host: str) -> None:
    found = open_api.get("runs", 403, headers={"Host": host})
    assert "is not served here" in found["detail"]


@pytest.mark.parametrize("host", ["", "a b", "user@localhost", "localhost:port", "[::1", "localhost, evil.example"])
def test_a_host_that_is_none_is_refused(open_api: Api, host: str) -> None:
    assert raw(open_api.url, f"GET /api/runs HTTP/1.1\nHost: {host}\n\n").startswith(b"HTTP/1.1 400")


def test_two_hosts_are_refused(open_api: Api) -> None:
    answer = raw(open_api.url, "GET /api/runs HTTP/1.1\nHost: localhost\nHost: evil.example\n\n")
    assert answer.startswith(b"HTTP/1.1 400")


def test_the_names_of_this_machine_are_served(open_api: Api) -> None:
    port = open_api.url.rpartition(":")[2]
    for host in (f"localhost:{port}", f"[::1]:{port}", f"LOCALHOST:{port}", "127.0.0.1"):
        assert open_api.get("runs", headers={"Host": host})["runs"]


def test_the_port_counts_where_it_is_named() -> None:
    with api(settings={"hosts": frozenset({"localhost:9"})}) as found:
        found.get("runs", 200, headers={"Host": "localhost:9"})
        found.get("runs", 403, headers={"Host": "localhost:10"})
        found.get("runs", 403, headers={"Host": "10.0.0.1:9"})


def test_addresses_are_served_where_a_server_listens_on_all() -> None:
    with api(settings={"addresses": True}) as found:
        for host, status in (("10.0.0.1:9", 200), ("[2001:db8::1]", 200), ("evil.example", 403), ("1.2.3", 403)):
            found.get("runs", status, headers={"Host": host})


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "file://", "http://[", "", "http://localhost@evil"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_another_origin_are_refused(open_api: Api, origin: str, method: str) -> None:
    found = open_api.client.request(method, "/api/runs", headers={"Origin": origin, **JSON}, content=b"{}")
    assert (found.status_code, found.json()["type"].rpartition(":")[2]) == (403, "origin-refused")
    assert "access-control-allow-origin" not in found.headers


def test_pages_of_its_own_origin_are_served(open_api: Api) -> None:
    for host in (open_api.url, open_api.url.replace("127.0.0.1", "localhost")):
        headers = {"Host": host.removeprefix("http://"), "Origin": host, "Sec-Fetch-Site": "same-origin"}
        assert open_api.post("runs", 422) is not None
        assert open_api.client.post("/api/runs", headers=headers, json={}).status_code == 422
    for host in ("127.0.0.1", "127.0.0.1:443"):  # a proxy ends TLS
        assert open_api.client.get("/api/runs", headers={"Host": host, "Origin": "https://127.0.0.1"}).is_success


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_writes_of_other_sites_are_refused(open_api: Api, site: str) -> None:
    for method, path in (("POST", "runs/one/cancel"), ("DELETE", "runs/one"), ("POST", "graphs/check")):
        found = open_api.client.request(method, f"/api/{path}", headers={"Sec-Fetch-Site": site, **JSON}, content=b"{}")
        assert found.status_code == 403
    assert open_api.get("runs/one", headers={"Sec-Fetch-Site": site})["status"] == "paused"


def test_no_other_site_is_let_in_by_a_preflight(open_api: Api) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    found = open_api.client.options("/api/runs", headers=headers)
    assert found.status_code == 403
    assert not [name for name in found.headers if name.startswith("access-control")]
    assert open_api.client.options("/api/runs").status_code == 405


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=x"],
)
def test_a_body_that_is_not_json_is_refused(open_api: Api, kind: str) -> None:
    for path in ("runs", "runs/one/cancel", "graphs/check"):
        found = open_api.client.post(f"/api/{path}", headers={"Content-Type": kind}, content=b'{"by": "x"}')
        assert found.status_code == 415
        assert found.headers["content-type"] == "application/problem+json"
    assert open_api.get("runs/one")["status"] == "paused"


def test_a_body_with_an_encoding_is_refused(open_api: Api) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    assert open_api.client.post("/api/runs", headers=headers, content=b"x").status_code == 415


def test_a_long_body_is_refused_whatever_its_length_says(open_api: Api) -> None:
    long = b'{"graph": "' + b"x" * (1 << 20) + b'"}'
    assert open_api.client.post("/api/runs", headers=JSON, content=long).status_code == 413

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(long), 10_000):
            yield long[start : start + 10_000]

    assert open_api.client.post("/api/runs", headers=JSON, content=pieces()).status_code == 413
    head = "POST /api/runs HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 9999999\n\n{"
    assert raw(open_api.url, head).startswith(b"HTTP/1.1 413")
    assert open_api.get("runs")["runs"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"3", b"\xff", b'{"graph": NaN}', b'{"graph": "\\ud800"}', b"[" * 100_000, b"9" * 10_000]
)
def test_a_body_that_cannot_be_read_is_refused(open_api: Api, body: bytes) -> None:
    found = open_api.client.post("/api/runs", headers=JSON, content=body)
    assert (found.status_code, found.headers["content-type"]) == (422, "application/problem+json")


def test_a_field_that_is_not_known_is_refused(open_api: Api) -> None:
    found = open_api.post("runs", 422, graph="plain", aprove="dangerous", limits={"steps": "many"})
    assert {one["field"] for one in found["errors"]} == {"aprove", "limits.steps"}
    assert [one["field"] for one in open_api.get("runs?stat=x", 422)["errors"]] == ["stat"]
    assert [one["field"] for one in open_api.get("runs?graph=x&graph=y", 422)["errors"]] == ["graph"]


# -- the token ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": "orchestrator=x"}, {"Cookie": f"other={TOKEN}"}, {"Authorization": "Bearer é"},
    ],
)  # fmt: skip
def test_nothing_is_answered_without_the_token(locked: Api, headers: dict[str, str]) -> None:
    sent = {name: value.encode() for name, value in headers.items()}
    for path in ("/", "/api/runs", "/api/openapi.json", "/nothing"):
        found = locked.client.get(path, headers=sent)
        assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert locked.client.post("/api/runs", headers=sent, json={}).status_code == 401


def test_the_token_is_taken_from_a_header(locked: Api) -> None:
    locked.get("runs", headers={"Authorization": f"Bearer {TOKEN}"})
    locked.get("runs", headers={"Authorization": f"bearer  {TOKEN}"})


def test_the_address_with_the_token_sets_a_cookie_and_loses_the_token(locked: Api) -> None:
    with httpx2.Client(base_url=locked.url) as browser:
        found = browser.get(f"/api/runs?limit=3&token={TOKEN}")
        assert (found.status_code, found.headers["location"]) == (303, "/api/runs?limit=3")
        cookie = found.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert "path=/" in cookie.lower()
        assert browser.get(found.headers["location"]).status_code == 200
        assert browser.get("/api/runs?token=wrong").status_code == 401
        assert browser.post(f"/api/runs?token={TOKEN}", json={}).status_code == 422  # by the cookie


def test_the_address_with_the_token_leads_to_no_other_host(locked: Api) -> None:
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        answer = raw(locked.url, f"GET {path}?token={TOKEN} HTTP/1.1\nHost: localhost\n\n").decode()
        location = re.search(r"^location: (.*?)\r$", answer, re.M)
        assert location is None or re.match(r"/(?![/\\])", location[1]), answer


@pytest.mark.parametrize("token", ["short", "with a space in the token", "semi;colon;semi;colon", "ünïcödé-ünïcödé-ü"])
def test_a_token_that_could_be_guessed_or_not_sent_is_refused(token: str) -> None:
    from orchestrator.web.settings import Settings

    with pytest.raises(ValueError, match="token is not usable"):
        Settings(token=token)


# -- read-only, and policies ----------------------------------------------------------------------------------------


def test_a_server_that_only_reads_has_no_route_that_writes() -> None:
    with api(settings={"read_only": True}) as found:
        run_id = found.portal.call(found.executor.submit, "letter", "bees")
        found.portal.call(found.executor.wait, run_id, 60)
        (question,) = found.get(f"runs/{run_id}")["waiting"]
        found.post("runs", 405, graph="letter", input="bees")
        for action in ("resume", "pause", "cancel", "fork", "replay", "send"):
            found.post(f"runs/{run_id}/{action}", 404)
        found.post(f"runs/{run_id}/answer", 404, question=question["id"], digest=question["digest"], approve=True)
        assert found.client.delete(f"/api/runs/{run_id}").status_code == 405
        assert found.get(f"runs/{run_id}")["status"] == "paused"
        assert found.post("graphs/check", text="name: x")["ok"] is False
        described = found.get("openapi.json")["paths"]
        assert {method for path in described.values() for method in path} == {"get", "post"}
        assert [path for path, methods in described.items() if "post" in methods] == ["/api/graphs/check"]


def test_approvals_in_advance_are_capped(open_api: Api) -> None:
    for risk in ("none", "read", "write", "dangerous"):
        open_api.post("runs", 403, graph="payment", input="ann", approve=risk)
        open_api.post("runs/one/resume", 403, approve=risk)
        open_api.post("runs/one/replay", 403, approve=risk)
    with api(settings={"approve": "write"}) as found:
        found.post("runs", 403, graph="payment", input="ann", approve="dangerous")
        assert found.start("payment", approve="write")["status"] == "completed"
        assert found.start("payment", approve="read")["status"] == "paused"


def test_only_graphs_of_the_server_are_started(open_api: Api, tmp_path: Any) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    for name in (f"{trap}:graph", "os", "os:system", "tool_user", "../letter"):
        found = open_api.post("runs", 404, graph=name)
        assert "unknown graph" in found["detail"]
        open_api.post("runs/one/fork", 404, graph=name)
        open_api.post("runs/one/replay", 404, graph=name)
    assert not (tmp_path / "sprung").exists()


# -- every answer ---------------------------------------------------------------------------------------------------


def test_every_answer_has_the_headers_of_safety(open_api: Api) -> None:
    pages = "runs", "runs/one", "runs/two", "nothing", "runs/one/drawing.svg", "runs/one/page.html", "runs/one/export"
    for path in pages:
        found = open_api.client.get(f"/api/{path}").headers
        assert "default-src 'none'" in found["content-security-policy"]
        assert "frame-ancestors 'none'" in found["content-security-policy"]
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cache-control"] == "no-store"
        assert "server" not in found
    refused = open_api.client.get("/api/runs", headers={"Host": "evil.example"}).headers
    assert refused["x-content-type-options"] == "nosniff"


def test_a_page_may_run_only_its_own_script(open_api: Api) -> None:
    found = open_api.client.get("/api/runs/one/page.html")
    policy = found.headers["content-security-policy"]
    assert re.search(r"script-src 'sha256-[\w+/]+=*'; style-src 'sha256-[\w+/]+=*'", policy)
    assert "unsafe" not in policy
    assert "script-src" not in open_api.client.get("/api/runs/one/drawing.svg").headers["content-security-policy"]


def test_secrets_are_blanked_except_in_what_is_approved() -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    with api() as found:
        found.post("runs", 201, graph="payment", input=secret, run_id="one", labels={"user": secret}, wait=True)
        (question,) = found.get("runs/one")["waiting"]
        assert question["payload"]["args"]["to"] == secret  # that is what will be called
        parts = "history", "records", "state", "export", "why", "page.html"
        for path in ("runs", "diff?runs=one,one", *(f"runs/one/{part}" for part in parts)):
            assert secret not in found.client.get(f"/api/{path}").text, path
        assert secret in found.client.get("/api/runs/one/export?redact=false").text
        found.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
        found.settled("one")
        assert secret not in found.client.get("/api/runs/one").text
        assert not [event for event in found.events("one") if secret in str(event)]


def test_a_server_that_only_reads_blanks_what_is_asked_too() -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    with api(settings={"read_only": True}) as found:
        run_id = found.portal.call(found.executor.submit, "payment", secret)
        found.portal.call(found.executor.wait, run_id, 60)
        assert secret not in found.client.get(f"/api/runs/{run_id}").text
        assert secret not in found.client.get("/api/questions").text

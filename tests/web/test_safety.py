"""Which requests are refused: each line of what docs/web_api.md says about safety."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from orchestrator import Graph, Limits, redaction
from orchestrator.render import redact_also
from orchestrator.web.principals import Sessions
from tests.support.sizes import sized
from tests.web.api import Api, api, letter

TOKEN = "a-token-that-is-long-enough"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def open_api() -> Iterator[Api]:
    """A server for this machine, with one run that waits."""
    with api() as found:
        found.start("letter", run_id="one")
        yield found
        goes_on(found)


@pytest.fixture(scope="module")
def locked() -> Iterator[Api]:
    """A server that wants a token."""
    with api(settings={"token": TOKEN}) as found:
        yield found


def goes_on(server: Api) -> None:
    """Whatever was sent to the server: it starts runs, these end, and the run that waited before still does."""
    assert server.start("plain")["status"] == "completed"
    assert server.get("runs/one")["status"] == "paused"


@pytest.fixture(autouse=sized(False, True))
def _after_each(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--full` the server is asked after each test, else after all of them."""
    yield
    if "open_api" in request.fixturenames:
        goes_on(request.getfixturevalue("open_api"))


def raw(url: str, text: str | bytes) -> bytes:
    """The answer to what is written, as no client would write it."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(text if isinstance(text, bytes) else text.replace("\n", "\r\n").encode())
        found = b""
        while not _whole(found):
            data = connection.recv(65536)
            if not data:
                break
            found += data
        return found


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
    return bool(end) and (length is None or len(body) >= int(length[1]))


def problem(answer: bytes) -> tuple[int, str]:
    """Status and name of the problem in an answer; the name is empty if the server did not get as far as the routes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert b"\r\naccess-control" not in head.lower()
    if b"application/problem+json" not in head:
        return status, ""
    found = json.loads(body)
    assert found["status"] == status
    return status, found["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "127.0.0.1.", "10.0.0.1", "0.0.0.0",
        "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.2", "[::]", "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:0:0:1]",
        "localhost.evil.example", "xn--localhost-", "localhost_", "-localhost",
    ],
)  # fmt: skip
def test_another_host_is_refused(open_api: Api, host: str) -> None:
    found = open_api.get("runs", 403, headers={"Host": host})
    assert "is not served here" in found["detail"]


@pytest.mark.parametrize(
    "host",
    [
        "", "a b", "user@localhost", "localhost:port", "[::1", "localhost, evil.example", "localhost:80:80",
        "localhost:",
        "localhost#evil.example", "localhost/evil.example", "evil.example\\localhost", "[::1%25lo]", "localhost:123456",
        "http://localhost", "%6cocalhost", "l\u00f6calhost",
    ],
)  # fmt: skip
def test_a_host_that_is_none_is_refused(open_api: Api, host: str) -> None:
    assert raw(open_api.url, f"GET /api/runs HTTP/1.1\nHost: {host}\n\n").startswith(b"HTTP/1.1 400")


def test_two_hosts_are_refused(open_api: Api) -> None:
    answer = raw(open_api.url, "GET /api/runs HTTP/1.1\nHost: localhost\nHost: evil.example\n\n")
    assert answer.startswith(b"HTTP/1.1 400")


TARGETS = {
    "another host in the target": ("GET http://evil.example/api/runs HTTP/1.1\nHost: localhost\n\n", 400),
    "this host in the target and another one in the header":
        ("GET http://localhost/api/runs HTTP/1.1\nHost: evil.example\n\n", 400),
    "a target that is a host": ("GET evil.example:80 HTTP/1.1\nHost: localhost\n\n", 400),
    "a tunnel to another host": ("CONNECT evil.example:80 HTTP/1.1\nHost: localhost\n\n", 400),
    "no target": ("OPTIONS * HTTP/1.1\nHost: localhost\n\n", 400),
    "no host, as HTTP 1.0 allows": ("GET /api/runs HTTP/1.0\n\n", 400),
    "no host and no version": ("GET /api/runs\n\n", 400),
    "a host on two lines": ("GET /api/runs HTTP/1.1\nHost: evil.example\n Host: localhost\n\n", 400),
    "a blank before the colon": ("GET /api/runs HTTP/1.1\nHost : localhost\n\n", 400),
    "a host that a proxy would have named":
        ("GET /api/runs HTTP/1.1\nHost: evil.example\nX-Forwarded-Host: localhost\nForwarded: host=localhost\n\n", 403),
    "an address that a proxy would have named":
        ("GET /nothing HTTP/1.1\nHost: localhost\nX-Original-URL: /api/runs\nX-Rewrite-URL: /api/runs\n\n", 404),
    "a method of its own": ("PROPFIND /api/runs HTTP/1.1\nHost: localhost\n\n", 405),
    "its own request sent back": ("TRACE /api/runs HTTP/1.1\nHost: localhost\nCookie: a=b\n\n", 405),
    "a web socket of another page": ((
        "GET /api/runs/one/events HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\n"
        "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nOrigin: http://evil.example\n\n"
    ), 403),
    "a header without an end": ("GET /api/runs HTTP/1.1\nHost: localhost\nX: " + "a" * 200_000 + "\n\n", 400),
    "an address without an end": (f"GET /api/runs?q={'a' * 200_000} HTTP/1.1\nHost: localhost\n\n", 400),
}  # fmt: skip


@pytest.mark.parametrize("attack", TARGETS)
def test_a_request_that_no_client_sends_is_refused(open_api: Api, attack: str) -> None:
    text, status = TARGETS[attack]
    assert problem(raw(open_api.url, text))[0] == status


FRAMINGS = {
    "two lengths": "Content-Length: 2\nContent-Length: 9\n\n{}",
    "a negative length": "Content-Length: -1\n\n{}",
    "a length with a sign": "Content-Length: +2\n\n{}",
    "a length in hexadecimal": "Content-Length: 0x2\n\n{}",
    "a length beyond all numbers": "Content-Length: 99999999999999999999999\n\n{}",
    "an encoding of the transfer": "Transfer-Encoding: gzip, chunked\n\n2\n{}\n0\n\n",
    "an encoding that is unknown": "Transfer-Encoding: xchunked\n\n2\n{}\n0\n\n",
    "a piece without a length": "Transfer-Encoding: chunked\n\nzz\n{}\n0\n\n",
    "a piece with a negative length": "Transfer-Encoding: chunked\n\n-2\n{}\n0\n\n",
}


@pytest.mark.parametrize("attack", FRAMINGS)
def test_a_body_whose_length_is_unclear_is_refused(open_api: Api, attack: str) -> None:
    head = "POST /api/graphs/check HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    assert 400 <= problem(raw(open_api.url, head + FRAMINGS[attack]))[0] < 500


def test_what_follows_a_body_is_no_request_of_its_own(open_api: Api) -> None:
    smuggled = "DELETE /api/runs/one HTTP/1.1\nHost: localhost\n\n"
    head = "POST /api/graphs/check HTTP/1.1\nHost: localhost\nContent-Type: application/json\nConnection: close\n"
    for framing in ("Content-Length: 2\n\n{}", "Content-Length: 2\nTransfer-Encoding: chunked\n\n2\n{}\n0\n\n"):
        assert problem(raw(open_api.url, head + framing + smuggled)) == (422, "invalid-body")
    assert open_api.get("runs/one")["status"] == "paused"


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
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "file://",
        "http://[",
        "",
        "http://localhost@evil",
        "http://127.0.0.1.evil.example",
        "https://localhost:1",
        "chrome-extension://abc",
        "http://localhost.",
    ],
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


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_can_link_here_and_embed_nothing(open_api: Api, site: str) -> None:
    """An image or a script needs no leave to be asked for, and no answer to cost something."""
    paths = "runs?q=x", "runs/one/events", "runs/one/drawing.svg", "stats"
    for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for path in paths:
            found = open_api.get(path, 403, headers=headers)
            assert found["type"].endswith(":site-refused")
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert open_api.get("runs/one", headers=link)["status"] == "paused"
    assert len(open_api.streams) == 0


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"])
def test_a_header_makes_no_other_method(open_api: Api, name: str) -> None:
    for method in ("DELETE", "POST"):
        assert open_api.get("runs/one", headers={name: method})["run_id"] == "one"
        open_api.get(f"runs/one?_method={method}", 422)
    assert open_api.client.post("/api/runs/one", headers={name: "DELETE", **JSON}, content=b"{}").status_code == 405


def test_an_address_that_is_read_changes_nothing(open_api: Api) -> None:
    for action in ("answer", "resume", "pause", "cancel", "fork", "replay", "send"):
        for method in ("GET", "HEAD"):
            assert open_api.client.request(method, f"/api/runs/one/{action}?by=x").status_code == 405


def test_no_other_site_is_let_in_by_a_preflight(open_api: Api) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    found = open_api.client.options("/api/runs", headers=headers)
    assert found.status_code == 403
    assert not [name for name in found.headers if name.startswith("access-control")]
    assert open_api.client.options("/api/runs").status_code == 405


@pytest.mark.parametrize(
    "kind",
    [
        "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=x",
        "text/plain; application/json", "application/jsonp", "text/json", "application/problem+json",
        "application/json, x",
        "application/json;charset=utf-7",
    ],
)  # fmt: skip
def test_a_body_that_is_not_json_is_refused(open_api: Api, kind: str) -> None:
    for path in ("runs", "runs/one/cancel", "graphs/check"):
        found = open_api.client.post(f"/api/{path}", headers={"Content-Type": kind}, content=b'{"by": "x"}')
        assert found.status_code == 415
        assert found.headers["content-type"] == "application/problem+json"
    assert open_api.get("runs/one")["status"] == "paused"


def test_a_body_with_an_encoding_is_refused(open_api: Api) -> None:
    bomb = gzip.compress(b'{"text": "' + b" " * (8 << 20) + b'"}')
    for encoding in ("gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip"):
        found = open_api.client.post("/api/graphs/check", headers={**JSON, "Content-Encoding": encoding}, content=bomb)
        assert (found.status_code, found.json()["type"].rpartition(":")[2]) == (415, "encoded")


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
    "body",
    [
        b"{", b"[]", b"3", b"\xff", b'{"graph": NaN}', b'{"graph": "\\ud800"}', b"[" * 100_000, b"9" * 10_000,
        b'{"graph": "plain", "input": %s}' % (b"[" * 5000 + b"]" * 5000), b'{"graph": "plain", "input": Infinity}',
        b'{"graph": "plain", "input": -Infinity}', b'{"graph": "plain", "limits": {"steps": 1e400}}',
        b'{"graph": "plain", "input": %s}' % (b"9" * 5000), b'{"graph": "plain", "graph": "letter"}',
        b'{"graph": "plain", "input": {"topic": "a", "topic": "b"}}', '\ufeff{"graph": "plain"}'.encode(),
        '{"graph": "plain"}'.encode("utf-16"), b'{"graph": "plain"} {}', b"{'graph': 'plain'}",
        b'{"graph": "pl\xc0\xafain"}',
        b'{"graph": "plain" /* */}', b'{"graph": "plain",}', b'{"graph": "a\nb"}', b"null",
    ],
    ids=range(24),
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_refused(open_api: Api, body: bytes) -> None:
    found = open_api.client.post("/api/runs", headers=JSON, content=body)
    assert (found.status_code, found.headers["content-type"]) == (422, "application/problem+json")


def test_a_field_that_is_not_known_is_refused(open_api: Api) -> None:
    found = open_api.post("runs", 422, graph="plain", aprove="dangerous", limits={"steps": "many"})
    assert {one["field"] for one in found["errors"]} == {"aprove", "limits.steps"}
    assert [one["field"] for one in open_api.get("runs?stat=x", 422)["errors"]] == ["stat"]
    assert [one["field"] for one in open_api.get("runs?graph=x&graph=y", 422)["errors"]] == ["graph"]


@pytest.mark.parametrize("depth", [100, 140, 199, 250])
def test_a_value_is_stored_as_deep_as_it_can_be_shown_or_refused(open_api: Api, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    body = b'{"graph": "chat", "wait": true, "run_id": "deep%d", "input": {"args": {"a": %s}}}' % (depth, nested)
    found = open_api.client.post("/api/runs", headers=JSON, content=body)
    assert found.status_code in (201, 422), found.text
    if found.status_code == 201:
        for path in ("", "/history", "/records", "/state", "/why", "/export", "/page.html", "/drawing.svg"):
            assert open_api.client.get(f"/api/runs/deep{depth}{path}").status_code == 200
        assert open_api.client.get(f"/runs/deep{depth}").status_code == 200


BOMBS = {
    "brackets": "[" * 500_000,
    "lists": "- " * 100_000,
    "mappings": "{a: " * 50_000,
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)),
    "a value in itself": "&a [*a]",
    "code": "!!python/object/apply:os.system ['touch sprung']",
    "a module": "state: os:environ\nnodes: {a: {kind: 'subprocess:run'}}",
}


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_the_check_of_a_graph_file_ends_whatever_its_text_is(open_api: Api, bomb: str, form: str) -> None:
    found = open_api.post("graphs/check", text=BOMBS[bomb], format=form, draw=True)
    assert (found["ok"], bool(found["problems"]), found["drawing"]) == (False, True, None)


def test_a_query_of_many_parameters_is_refused_at_once(open_api: Api) -> None:
    for query in (
        "&".join(f"x{number}=1" for number in range(5000)),
        "label=a:b&" * 5000,
        "&".join("q=x" for _ in range(200)),
    ):
        assert open_api.get(f"runs?{query}", 422)["errors"] == [
            {"field": "", "message": "it has more than 100 parameters"}
        ]


@pytest.mark.parametrize(
    "query",
    [
        "runs?limit=-1", "runs?limit=0", "runs?limit=201", "runs?limit=99999999999999999999999", "runs?limit=1e3",
        "runs?since=nan", "runs?since=inf", "runs?after=x", "runs?after=%00", "runs?label=x", "runs?status=x",
        "runs?waiting=2",
        "runs/one/history?after=-1", "runs/one/records?limit=5001", "runs/one/records?after=9007199254740993",
        "runs/one/state?at=0", "runs/one/why?seq=-1", "runs/one/events?after=-1", "questions?limit=0",
        "questions?after=%ff",
        "diff?runs=one", "diff?runs=one,", "stats?by=x", "stats?by=label:", "stats?by=day,day", "runs?q=" + "x" * 1001,
    ],
)  # fmt: skip
def test_a_query_beyond_its_bounds_is_refused(open_api: Api, query: str) -> None:
    open_api.get(query, 422)


@pytest.mark.parametrize(
    "query",
    ["%00", "%22%20OR%20*", "%27;DROP%20TABLE%20runs;--", "%25_%5C", "(((", "NEAR(a b)", "%ff%fe", "a*%20-b", "^", '"'],
)
def test_a_search_is_words_whatever_it_looks_like(open_api: Api, query: str) -> None:
    for name in ("q", "graph", "parent", "failed_tool"):
        assert isinstance(open_api.get(f"runs?{name}={query}")["runs"], list)
    assert isinstance(open_api.get(f"runs?label=x:{query}")["runs"], list)


PATHS = (
    "/static/../pages.py", "/static/%2e%2e/pages.py", "/static/..%2fpages.py", "/static/..%5cpages.py",
    "/static/%252e%252e/pages.py", "/static/./../templates/base.html", "/static/modules/../../page.py",
    "/static/modules/%2e%2e/%2e%2e/page.py", "/static//etc/hostname", "/static/%2fetc%2fhostname", "/static/%00",
    "/static/shell.js%00.html", "/static/shell.js/..", "/static/" + "a" * 5000, "/static/" + "a/" * 3000,
    "/static/%ff", "/static", "/static/", "/static/modules", "/static/modules/", "/..", "/../",
    "/%2e%2e/%2e%2e/etc/hostname",
    "/api/runs/..", "/api/runs/.", "/api/runs/%2e%2e", "/api/runs/../../etc/hostname", "/api/runs/%2e%2e%2fgraphs",
    "/api/runs/..%5c..%5cx", "/api/runs/one%00", "/api/runs/%00", "/api/runs/%ff", "/api/runs/one%2fnothing",
    "/api/runs//",
    "/api/runs/one;x=1", "/api/runs/one%0d%0aX-Evil:%201", "/api//runs", "//api/runs", "/API/runs", "/api/runs/",
    "/api/graphs/..", "/api/graphs/%00", "/api/graphs/%2e%2e%2fruns", "/runs/..%2f..%2fx", "/runs/one/data/",
    "/runs/%00",
    "/\\evil.example/", "/.git/config", "/.env",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_no_path_leads_out_of_what_is_served(open_api: Api, path: str) -> None:
    answer = raw(open_api.url, f"GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\n")
    assert problem(answer)[0] == 404
    assert b"X-Evil" not in answer.partition(b"\r\n\r\n")[0]


def test_bytes_that_no_address_has_are_refused(open_api: Api) -> None:
    for target in (b"/api/runs/\xff", b"/api/runs?q=\xff", b"/api/ru\x00ns", b"/api/runs\tHTTP/1.1"):
        assert raw(open_api.url, b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_a_file_is_read_and_nothing_else_can_be_done_with_it(open_api: Api) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert open_api.client.request(method, "/static/shell.js", headers=JSON, content=b"{}").status_code == 405
    for given in (
        "bytes=0-0,1-1,2-2",
        "bytes=-99999999999999999999",
        "bytes=" + ",".join(f"{n}-{n}" for n in range(2000)),
    ):
        found = open_api.client.get("/static/shell.js", headers={"Range": given})
        assert found.status_code in (200, 206)
        assert len(found.content) < 10_000
    assert open_api.client.get("/static/shell.js", headers={"Range": "lines=1"}).status_code == 400


@pytest.mark.parametrize(
    "run_id", [".", "..", "../x", "a/b", "a\\b", "a b", "a\r\nb", "a\x00", "\u202e", "", "x" * 201, "a@3", "--all"]
)
def test_a_run_gets_no_id_that_no_address_or_command_leads_to(open_api: Api, run_id: str) -> None:
    open_api.post("runs", 422, graph="plain", run_id=run_id)
    open_api.post("runs/one/fork", 422, at=2, run_id=run_id)
    open_api.post("runs/one/replay", 422, run_id=run_id)


@pytest.mark.parametrize("run_id", ["a%2fb", "a?b", "a#b", "<script>", "é", "%", "a;b", "x-", "con", "..."])
def test_a_run_is_found_by_the_address_that_its_start_names(open_api: Api, run_id: str) -> None:
    made = open_api.client.post("/api/runs", json={"graph": "plain", "run_id": run_id, "wait": True})
    assert made.status_code == 201, made.text
    assert made.headers["location"].isascii()
    assert open_api.client.get(made.headers["location"]).json()["run_id"] == run_id


# -- answers --------------------------------------------------------------------------------------------------------


def asked(found: Api, run_id: str) -> dict[str, str]:
    """The question that a run waits with, as an answer names it."""
    (question,) = found.get(f"runs/{run_id}")["waiting"]
    return {"question": question["id"], "digest": question["digest"]}


def test_an_answer_fits_the_question_of_its_own_run_only(open_api: Api) -> None:
    open_api.post("runs", 201, graph="payment", input="ann", run_id="ours", wait=True)
    open_api.post("runs", 201, graph="payment", input="eve", run_id="hers", wait=True)
    ours, hers = asked(open_api, "ours"), asked(open_api, "hers")
    open_api.post("runs/ours/answer", 404, **hers, approve=True)
    open_api.post("runs/ours/answer", 409, question=ours["question"], digest=hers["digest"], approve=True)
    open_api.post("runs/nothing/answer", 404, **ours, approve=True)
    assert asked(open_api, "ours") == ours


def test_a_digest_that_was_made_up_answers_nothing(open_api: Api) -> None:
    seen = asked(open_api, "one")
    digest = seen["digest"]
    for made_up in (
        "",
        "x",
        "0" * len(digest),
        digest.upper() + "x",
        digest[:-1],
        f"{digest} ",
        f"{digest}\u0000",
        "*",
    ):
        open_api.post("runs/one/answer", 409, question=seen["question"], digest=made_up, approve=True)
    for wrong in (None, 0, True, [digest], {"$ne": ""}):
        open_api.post("runs/one/answer", 422, question=seen["question"], digest=wrong, approve=True)
    open_api.post("runs/one/answer", 422, question=seen["question"], approve=True)
    assert asked(open_api, "one") == seen


def test_of_answers_at_the_same_time_one_counts() -> None:
    with api() as found:
        found.start("payment", run_id="one")
        seen = asked(found, "one")
        with ThreadPoolExecutor(8) as threads:
            sent = [
                {**seen, "by": f"p{number}", **({"approve": True} if number % 2 else {"deny": True})}
                for number in range(8)
            ]
            answers = list(threads.map(lambda body: found.client.post("/api/runs/one/answer", json=body), sent))
        assert sorted(one.status_code for one in answers) == [200] + [409] * 7
        winner = next(f"p{number}" for number, one in enumerate(answers) if one.status_code == 200)
        for one in answers:
            if one.status_code == 409:
                assert one.json()["became"]["by"] == winner
        found.settled("one")
        records = found.get("runs/one/records")["records"]
        assert [one["by"] for one in records if one["type"] == "answered"] == [winner]


def test_of_starts_with_one_id_at_the_same_time_one_counts() -> None:
    with api() as found, ThreadPoolExecutor(8) as threads:
        sent = [{"graph": "plain", "run_id": "one", "input": f"i{number}", "wait": True} for number in range(8)]
        answers = list(threads.map(lambda body: found.client.post("/api/runs", json=body), sent))
        assert sorted(one.status_code for one in answers) == [201] + [409] * 7
        assert len(found.get("runs")["runs"]) == 1


# -- slow clients ---------------------------------------------------------------------------------------------------


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    head = (
        b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    )
    with api(settings={"patience": 0.3}) as found:
        assert problem(raw(found.url, head)) == (408, "body-too-slow")
    with api() as found:
        host, port = found.url.removeprefix("http://").split(":")
        with ExitStack() as opened:
            for _ in range(sized(20, 100)):
                connection = opened.enter_context(socket.create_connection((host, int(port)), 60))
                connection.sendall(head)
            assert found.start("letter")["status"] == "paused"  # while they are on their way
            assert found.start("plain")["status"] == "completed"


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(open_api: Api) -> None:
    before = len(open_api.get("runs?limit=200")["runs"])
    host, port = open_api.url.removeprefix("http://").split(":")
    head = b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n"
    for body in (b"", b'{"graph": "plain"'):
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(head + body)
    assert len(open_api.get("runs?limit=200")["runs"]) == before


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
        assert TOKEN not in cookie
        assert "max-age=43200" in cookie.lower()


def test_a_session_is_one_browsers_and_ends_when_it_logs_out(locked: Api) -> None:
    with httpx2.Client(base_url=locked.url) as one, httpx2.Client(base_url=locked.url) as other:
        for browser in (one, other):
            assert browser.get(f"/runs?token={TOKEN}", follow_redirects=True).status_code == 200
        assert one.cookies["orchestrator"] != other.cookies["orchestrator"]
        assert 'id="log-out"' in one.get("/runs").text
        assert one.post("/api/logout", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert one.post("/api/logout").json() == {"ended": 1}
        assert (one.get("/api/runs").status_code, one.post("/api/logout").status_code) == (401, 401)
        assert other.get("/api/runs").status_code == 200
    by_token = locked.client.post("/api/logout", headers={"Authorization": f"Bearer {TOKEN}"})
    assert by_token.json() == {"ended": 0}


def test_a_session_ends_after_its_time() -> None:
    with api(settings={"token": TOKEN, "session": 1.5}) as found:
        entered = found.client.get(f"/api/runs?token={TOKEN}")
        cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
        for _ in range(3_000):
            if found.client.get("/api/runs", headers=cookie).status_code == 401:
                return
            time.sleep(0.01)
        pytest.fail("the session does not end")


@pytest.mark.full
@pytest.mark.parametrize("path", ["/api/runs", "/api/questions", "/api/runs/one/events", "/api/stats"])
def test_a_stream_ends_with_the_session_that_opened_it(path: str) -> None:
    with api(settings={"token": TOKEN, "recheck": 0.05, "heartbeat": 300.0}) as found:
        found.client.headers["Authorization"] = f"Bearer {TOKEN}"
        found.start("letter", run_id="one")
        with httpx2.Client(base_url=found.url, timeout=60) as browser:
            browser.get(f"/api/runs?token={TOKEN}")
            with browser.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
                texts = stream.iter_text()
                assert "retry" in next(texts)
                assert browser.post("/api/logout").json() == {"ended": 1}
                for _ in texts:
                    pass  # it comes to its end
        with found.client.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            assert "retry" in next(stream.iter_text())  # by the token there is no session


def test_many_sessions_take_bounded_room() -> None:
    sessions = Sessions(60)
    first = sessions.open()
    ids = [sessions.open() for _ in range(10_000)]
    assert not sessions.has_any([first])
    assert sessions.has_any(["none", ids[-1]])
    assert sessions.close([*ids, "none"]) == 10_000


def test_a_session_counts_in_one_of_two_cookies_and_the_token_nowhere_else(locked: Api) -> None:
    with httpx2.Client(base_url=locked.url) as browser:
        browser.get(f"/api/runs?token={TOKEN}")
        session = browser.cookies["orchestrator"]
    for cookie in (f"orchestrator={session}; orchestrator=x", f"orchestrator=x; orchestrator={session}"):
        assert locked.client.get("/api/runs", headers={"Cookie": cookie}).status_code == 200
    for headers in (
        {"Cookie": f"orchestrator={TOKEN}"}, {"Cookie": f"ORCHESTRATOR={session}"},
        {"Cookie": f"orchestrator={session}x"}, {"Authorization": f"Bearer {session}"},
        {"X-Token": TOKEN}, {"Authorization": TOKEN}, {"Authorization": f"Token {TOKEN}"},
        {"Proxy-Authorization": f"Bearer {TOKEN}"}, {"Referer": f"http://localhost/?token={TOKEN}"},
    ):  # fmt: skip
        assert locked.client.get("/api/runs", headers=headers).status_code == 401
    for query in (f"token={TOKEN}x", f"Token={TOKEN}", f"token[]={TOKEN}", f"token=x&token={TOKEN}", "token="):
        assert locked.client.get(f"/api/runs?{query}").status_code == 401
    assert locked.client.post(f"/api/runs?token={TOKEN}", json={}).status_code == 401


def test_a_page_of_another_site_cannot_use_a_token_that_it_has_not(locked: Api) -> None:
    """Were a browser to send the cookie along, the origin would be refused all the same."""
    with httpx2.Client(base_url=locked.url) as browser:
        browser.get(f"/api/runs?token={TOKEN}")
        cookie = {"Cookie": f"orchestrator={browser.cookies['orchestrator']}"}
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        assert locked.client.post("/api/runs", headers={**cookie, **JSON, **headers}, content=b"{}").status_code == 403


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def same(given: bytes, wanted: bytes) -> bool:
        compared.append((given, wanted))
        return given == wanted

    monkeypatch.setattr("orchestrator.web.guard.hmac.compare_digest", same)
    with api(settings={"token": TOKEN}) as found:
        assert found.client.get("/api/runs", headers={"Authorization": "Bearer one"}).status_code == 401
        assert found.client.get("/api/runs?token=three").status_code == 401
    given = {one for one, wanted in compared if wanted == TOKEN.encode()}
    assert {b"one", b"three"} <= given


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
        assert [path for path, methods in described.items() if "post" in methods] == [
            "/api/graphs/check", "/api/logout",
        ]  # fmt: skip


def test_approvals_in_advance_are_capped(open_api: Api) -> None:
    for risk in ("none", "read", "write", "dangerous"):
        open_api.post("runs", 403, graph="payment", input="ann", approve=risk)
        open_api.post("runs/one/resume", 403, approve=risk)
        open_api.post("runs/one/replay", 403, approve=risk)
    with api(settings={"approve": "write"}) as found:
        found.post("runs", 403, graph="payment", input="ann", approve="dangerous")
        assert found.start("payment", approve="write")["status"] == "completed"
        assert found.start("payment", approve="read")["status"] == "paused"


RAISES: list[dict[str, Any]] = [
    {"steps": None}, {"steps": 1001}, {"seconds": None}, {"tokens": 101}, {"cost": 2}, {"calls": 11}, {"visits": {}},
    {"visits": {"draft": 4}}, {"concurrency": 3}, {"steps": 3, "calls": None},
]  # fmt: skip


def bounded(**changes: Any) -> Graph:
    """A graph with each limit."""
    limits = {"steps": 1000, "seconds": 100, "tokens": 100, "cost": 1, "calls": 10, "visits": {"draft": 3}}
    found: Graph = letter.model_copy(update={"name": "bounded", "limits": Limits(**limits, concurrency=2, **changes)})
    return found


@pytest.mark.parametrize("limits", RAISES[:: sized(3, 1)])
def test_a_request_lowers_limits_and_raises_none(limits: dict[str, Any]) -> None:
    with api(bounded()) as found:
        assert found.post("runs", 403, graph="bounded", input="x", limits=limits)["type"].endswith("limits-refused")
        lower = {"steps": 500, "seconds": 9, "tokens": 9, "cost": 0.5, "calls": 9, "visits": {"draft": 3, "finish": 1}}
        found.post("runs", 201, graph="bounded", input="x", run_id="one", limits=lower, wait=True)
        found.post("runs/one/resume", 403, limits=limits)
        found.post("runs/one/resume", 403, limits={"steps": 501})
        assert found.get("runs/one")["limits"]["steps"] == 500
        found.post("runs/one/resume", 200, limits={"steps": 400})
        assert found.get("runs/one")["limits"]["steps"] == 400


def test_a_server_may_let_requests_raise_some_limits() -> None:
    with api(bounded(), settings={"limits": Limits(steps=2000, cost=None)}) as found:
        for limits, status in (
            ({"steps": 2000}, 201), ({"steps": 2001}, 403), ({"steps": None}, 403), ({"cost": None}, 201),
            ({"calls": 11}, 403), ({"calls": 10}, 201),
        ):  # fmt: skip
            found.post("runs", status, graph="bounded", input="x", limits=limits)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_principal_may_raise_limits_if_authorize_lets_it(allowed: bool) -> None:
    def authorize(request: object, action: str, run: object) -> str | None:
        return None if action == "raise_limits" and not allowed else "ann"

    with api(bounded(), settings={"authorize": authorize}) as found:
        found.post("runs", 201 if allowed else 403, graph="bounded", input="x", limits={"steps": None})


def test_whether_a_principal_may_raise_limits_is_asked_about_the_run_with_the_labels_of_its_family() -> None:
    def authorize(request: object, action: str, run: Any) -> str | None:
        return None if action == "raise_limits" and run.labels.get("team") != "a" else "ann"

    with api(bounded(), settings={"authorize": authorize}) as found:
        for team, status in (("b", 403), ("a", 201)):
            labels = {"team": team}
            found.post("runs", status, graph="bounded", input="x", limits={"steps": 1001}, run_id=team, labels=labels)
        found.post("runs", 201, graph="bounded", input="x", run_id="b", labels={"team": "b"})
        for team, status in (("b", 403), ("a", 200)):
            found.settled(team)
            found.post(f"runs/{team}/replay", 201, run_id=f"replay-{team}", at=1)
            found.post(f"runs/replay-{team}/resume", status, limits={"steps": 2000})


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


@pytest.mark.full
@pytest.mark.parametrize("secret", ["sk-abcdefghijklmnopqrstuvwxyz", "ACME-1234"])
def test_secrets_are_blanked_except_in_what_is_approved(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_own", [])
    redact_also(r"ACME-\d+")
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


def test_a_replay_on_another_graph_is_asked_about_as_a_run_of_that_graph() -> None:
    asked: list[tuple[str, str, dict[str, str]]] = []

    def authorize(request: Any, action: str, run: Any) -> str | None:
        if run is not None:
            asked.append((action, run.graph, dict(run.labels)))
        return "ann" if run is None or (run.graph != "loud" and run.labels.get("team") == "a") else None

    with api(settings={"authorize": authorize}) as found:
        found.start("plain", run_id="one", labels={"team": "a"})
        found.post("runs/one/replay", 403, graph="loud", live="always", run_id="two")
        assert asked[-1] == ("replay_run", "loud", {"team": "a"})
        assert found.post("runs/one/replay", 201)["same"]
        found.get("runs/two", 404)


def test_a_fault_of_authorize_is_a_problem_on_every_address_and_lets_no_one_in() -> None:
    def authorize(request: Any, action: str, run: Any) -> str:
        raise ZeroDivisionError("secret of the application")

    with api(settings={"authorize": authorize}) as found:
        of_api = ("/api/runs", "/api/openapi.json", "/api/graphs", "/api/workers")
        for path in (*of_api, "/runs", "/inbox", "/workers", "/graphs", "/costs"):
            answer = found.client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "secret" not in answer.text

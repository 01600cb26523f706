"""Attacks on what forks, compares, replays, tries and saves: other sites, odd texts, requests at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tests.support.sizes import sized
from tests.web.api import Api, api
from tests.web.forking import Shop, answer, pay
from tests.web.test_compose_check import HOSTILE, text_of
from tests.web.test_compose_save import files

JSON = {"Content-Type": "application/json"}
BOMBS = {
    **HOSTILE,
    "aliases of aliases": "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
    ),
    "an alias of itself": "name: &a [*a]\nnodes: &b {c: *b}",
    "thousands of levels": f"nodes: {'[' * 20_000}{']' * 20_000}",
    "thousands of levels of mappings": "".join(f"{' ' * n}a:\n" for n in range(600)),
    "a number without end": text_of("  a: {kind: repeat, times: 1e999999999}"),
    "times without end": text_of("  a: {kind: repeat, times: 999999999999999999999}"),
    "a guard that grows": text_of(
        "  a: {kind: route, cases: {y: '" + "[" * 60 + "n" + "]" * 60 + ".size() > 1'}, default: z}"
    ),
    "a key of many lines": f"? {'a' * 100_000}\n: 1\n",
    "many tags": "\n".join(f"a{n}: !!python/object/apply:os.system [x]" for n in range(500)),
    "many documents": "---\na: 1\n" * 5_000,
}  # fmt: skip
"""Texts that would cost far more than their length."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Api]:
    with api(settings={"save_graphs": folder}) as found:
        yield found


@pytest.mark.parametrize("path", ["graphs/check", "graphs/try", "graphs/save"])
@pytest.mark.parametrize("name", [*BOMBS][:: sized(5, 1)])
def test_a_text_that_would_cost_much_is_answered_soon_and_saved_nowhere(
    server: Api, folder: Path, path: str, name: str
) -> None:
    body: dict[str, Any] = {"text": BOMBS[name]}
    body |= {"name": "g"} if path.endswith("save") else {"input": "x"} if path.endswith("try") else {"prove": True}
    began = process_time()
    found = server.client.post(f"/api/{path}", content=json.dumps(body), headers=JSON)
    assert process_time() - began < 8, "it is bounded by count; this is far above what that costs"
    assert found.status_code in ((200, 422) if path.endswith("check") else (422,)), found.text
    assert found.status_code == 422 or found.json()["ok"] is False
    assert len(found.content) < 3_000_000
    assert files(folder) == []
    assert {row["graph"] for row in server.client.get("/try/api/runs").json()["runs"]} <= {"patterns"}


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_in_a_guard_takes_no_time_that_grows_with_its_text(server: Api, pattern: str) -> None:
    guard = f'x.matches("{pattern}")'
    text = text_of(f"  a: {{kind: route, cases: {{y: '{guard}'}}, default: z}}", "START -> a -> END")
    text = text.replace("name: g", "name: patterns")
    assert server.post("graphs/check", text=text)["ok"]
    began = process_time()
    found = server.post("graphs/try", 201, text=text, input={"x": f"{'a' * 5_000}!"}, wait=True)
    assert found["status"] == "completed"
    assert process_time() - began < 5


WRITES = (
    "runs/one/fork", "runs/one/fork/preview", "runs/one/replay", "replays", "replays/stop", "graphs/check",
    "graphs/try", "graphs/save",
)  # fmt: skip
READS = (
    "runs/one/fork/form?at=1", "runs/one/family", "replays?runs=one&batch=b", "diff/steps?runs=one,two",
    "diff/step?runs=one,two&step=end", "stats?by=day", "kinds", "graphs", "graphs/plain",
)  # fmt: skip
SCREENS = (
    "compare?runs=one,two", "replay?runs=one", "costs", "graphs", "graphs/plain", "compose", "runs/one/fork?at=1",
)  # fmt: skip


@pytest.mark.parametrize("below", ["", "/try"])
@pytest.mark.parametrize("path", WRITES)
def test_no_other_site_forks_replays_tries_or_saves(server: Api, folder: Path, path: str, below: str) -> None:
    address = f"{below}/api/{path}"
    body = json.dumps({"text": "x", "name": "quiet", "runs": ["one"], "batch": "b", "at": 1})
    for headers in (
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.example"}, {"Host": "evil.example:80"},
    ):  # fmt: skip
        assert server.client.post(address, content=body, headers={**JSON, **headers}).status_code == 403, headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        found = server.client.post(address, content=body, headers={"Content-Type": kind})
        assert found.status_code in (415, 404, 405), "404 and 405: what is before the body is wrong"
    for method in ("GET", "HEAD", "PUT", "PATCH"):
        found = server.client.request(method, address)
        assert found.status_code in (404, 405, 422)
    assert files(folder) == []


@pytest.mark.parametrize("path", [*(f"api/{one}" for one in READS), *SCREENS])
def test_no_other_site_reads_or_embeds_it(server: Api, path: str) -> None:
    for headers in (
        {"Origin": "http://evil.example"}, {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ):  # fmt: skip
        found = server.client.get(f"/{path}", headers=headers)
        assert found.status_code == 403, headers
        assert "access-control-allow-origin" not in found.headers
    own = server.client.get(f"/{path}", headers={"Accept": "text/html"} if path in SCREENS else {})
    assert "frame-ancestors 'none'" in own.headers["content-security-policy"]
    assert "unsafe-inline" not in own.headers["content-security-policy"].partition("style-src")[0]


# -- nothing irreversible happens twice ------------------------------------------------------------------------------


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def shops(shop: Shop) -> Iterator[Api]:
    with api(shop.graph, model=shop.model, settings={"poll": 0.05}) as found:
        yield found


def settled(server: Api) -> list[dict[str, Any]]:
    """All runs, once each has ended or waits."""
    rows = server.get("runs")["runs"]
    return [server.settled(row["run_id"]) for row in rows]


@pytest.mark.full
def test_a_fork_that_is_asked_for_twice_at_once_is_one_fork(shops: Api, shop: Shop) -> None:
    at = pay(shops, "one")["looked"]

    def fork(_: int) -> tuple[int, Any]:
        made = shops.client.post("/api/runs/one/fork", json={"at": at, "run_id": "two"})
        return made.status_code, made.json().get("run_id")

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(fork, range(16))]
    assert {status for status, _ in found} <= {201, 409}
    assert (201, "two") in found
    assert {row["run_id"] for row in settled(shops)} == {"one", "two"}
    assert len(shop.paid) == 1


@pytest.mark.full
def test_forks_at_the_same_time_pay_nothing_that_was_not_asked_about(shops: Api, shop: Shop) -> None:
    places = pay(shops, "one")
    at = [places["looked"], places["asked"], places["answered"], places["paid"] - 1]

    def fork(number: int) -> int:
        return shops.client.post("/api/runs/one/fork", json={"at": at[number % len(at)]}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(fork, range(16))} == {201}
    forks = [row for row in settled(shops) if row["run_id"] != "one"]
    assert len(forks) == 16
    assert {row["status"] for row in forks} == {"paused"}
    assert all(row["waiting"] for row in forks)
    assert len(shop.paid) == 1, "each fork asks first"


@pytest.mark.full
def test_an_answer_that_is_sent_to_a_fork_twice_pays_once(shops: Api, shop: Shop) -> None:
    at = pay(shops, "one", approve=False)["asked"]
    shops.post("runs/one/fork", 201, at=at, run_id="two")
    shops.settled("two")
    while shops.get("runs/two")["waiting"]:
        (question,) = shops.get("runs/two")["waiting"]
        body = {"question": question["id"], "digest": question["digest"], "approve": True}

        def send(_: int, body: dict[str, Any] = body) -> int:
            return shops.client.post("/api/runs/two/answer", json=body).status_code

        with ThreadPoolExecutor(8) as pool:
            sent = [*pool.map(send, range(8))]
        assert sent.count(200) >= 1
        shops.settled("two")
    assert len(shop.paid) == 1


@pytest.mark.full
def test_a_fork_of_a_run_that_is_just_paying_asks_before_it_pays_too(shops: Api, shop: Shop) -> None:
    """The parent's call has begun, and nobody knows whether it happened."""
    shops.post("runs", 201, graph="shop", input="Pay acme", run_id="one", wait=True)
    (question,) = shops.get("runs/one")["waiting"]
    body = {"question": question["id"], "digest": question["digest"], "approve": True}
    statuses: list[int] = []

    def fork() -> None:
        for at in [*range(5, 14)] * 2:
            statuses.append(shops.client.post("/api/runs/one/fork", json={"at": at}).status_code)

    forking = threading.Thread(target=fork)
    forking.start()
    shops.post("runs/one/answer", **body)
    forking.join(60)
    assert 201 in statuses
    rows = settled(shops)
    assert next(row for row in rows if row["run_id"] == "one")["status"] == "completed"
    assert len(shop.paid) == 1
    forked = next(row for row in rows if row["run_id"] != "one" and row["waiting"])
    answer(shops, forked["run_id"], deny=True)
    assert len(shop.paid) == 1

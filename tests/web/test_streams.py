"""Streams of events: what readers get when they come late, lose their connection, read slowly, or leave."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import unescape
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest

from orchestrator import Executor
from orchestrator.web import configured, run_commands
from orchestrator.web import server as server_module
from orchestrator.web.server import serve
from orchestrator.web.settings import Settings
from orchestrator.web.streams import OpenStreams, StoreWatch
from tests.support.shell import Shell
from tests.support.sizes import sized
from tests.web.api import LITTLE, Api, api, held, plain


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    """A server with a run that has ended."""
    with api(settings={"poll": 0.02}) as found:
        found.start("plain", run_id="done")
        yield found


@contextmanager
def connected(found: Api, *paths: str, room: int = 0, more: str = "") -> Iterator[socket.socket]:
    """A client that has sent its requests at once and reads nothing by itself."""
    text = "".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n" for path in paths)
    with sent(found, text, room=room) as client:
        yield client


@contextmanager
def posted(found: Api, path: str, body: str, length: int = 0) -> Iterator[socket.socket]:
    """A client that has sent a body, or the beginning of a longer one, and reads nothing by itself."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with sent(found, f"{head}Content-Length: {length or len(body)}\r\n\r\n{body}") as client:
        yield client


@contextmanager
def sent(found: Api, text: str, room: int = 0) -> Iterator[socket.socket]:
    """A client that has sent a text."""
    host, port = found.url.removeprefix("http://").split(":")
    with socket.socket() as client:
        if room:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        client.settimeout(60)
        client.connect((host, int(port)))
        client.sendall(text.encode())
        yield client


def until_read(client: socket.socket, text: str) -> str:
    """What comes until a text has come."""
    found = b""
    while text.encode() not in found:
        data = client.recv(65536)
        assert data, found
        found += data
    return found.decode()


def test_a_reader_that_connects_again_gets_what_it_missed_and_nothing_twice(server: Api) -> None:
    whole = list(server.events("done"))
    assert [one["seq"] for one in whole] == [1, 2, 3, 4]
    assert whole[-1]["type"] == "ended"
    for seen in (1, 3):
        assert [one["seq"] for one in server.events("done", after=seen)] == list(range(seen + 1, 5))
    assert [one["seq"] for one in server.stream("runs/done/events?after=2", {})] == [3, 4]
    with httpx2.stream(
        "GET", f"{server.url}/api/runs/done/events?after=1", headers={"Last-Event-ID": "3"}, timeout=60
    ) as found:
        text = found.read().decode()
    assert text.startswith("retry: 1000\n\nid: 4\ndata: {")


def test_a_reader_that_has_everything_of_an_ended_run_need_not_connect_again(server: Api) -> None:
    assert server.client.get("/api/runs/done/events", headers={"Last-Event-ID": "4"}).status_code == 204
    assert server.client.get("/api/runs/done/events?after=4").status_code == 204


@pytest.mark.parametrize("said", ["x", "-1", "1.5", "9" * 20, "²"])
def test_a_last_event_that_is_no_number_is_refused(server: Api, said: str) -> None:
    server.get("runs/done/events", 422, headers={"Last-Event-ID": said.encode()})


def test_a_stream_on_which_nothing_happens_has_a_heartbeat() -> None:
    with held(settings={"heartbeat": 0.05}) as (found, gate), connected(found, "/api/runs/one/events") as client:
        assert until_read(client, "\r\n:\n\n\r\n").count("id: ") >= 1
        found.portal.call(gate.go.set)
        until_read(client, '"type": "ended"')


@pytest.mark.full
def test_readers_of_a_run_get_all_of_its_events_and_hold_it_up_by_nothing() -> None:
    count = sized(50, 200)
    with held(settings={"streams": count}) as (found, gate):

        async def read_all() -> list[str]:
            ends: list[str] = []
            begun = anyio.Event()
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
            async with httpx2.AsyncClient(base_url=found.url, timeout=60, limits=limits) as client:

                async def read() -> None:
                    async with client.stream("GET", "/api/runs/one/events") as stream:
                        async for line in stream.aiter_lines():
                            if len(found.streams) == count:
                                begun.set()
                            if line.startswith("data: "):
                                last = line
                    ends.append(last)

                async with anyio.create_task_group() as tasks:
                    for _ in range(count):
                        tasks.start_soon(read)
                    with anyio.fail_after(60):
                        while len(found.streams) < count:  # noqa: ASYNC110  they are in another thread
                            await anyio.sleep(0.01)
                    full = await client.get("/api/runs/one/events")
                    assert (full.status_code, full.json()["type"].rpartition(":")[2]) == (503, "streams-full")
                    assert (await client.get("/api/runs/one")).json()["status"] == "running"
                    found.portal.start_task_soon(gate.go.set)  # type: ignore[arg-type]
            return ends

        ends = anyio.run(read_all)
        assert len(ends) == count
        assert all('"type": "ended"' in one for one in ends)
        Shell.until(lambda: len(found.streams) == 0)


def test_a_reader_that_reads_nothing_is_left_and_holds_up_no_run() -> None:
    with held(settings={"patience": 0.2}, send_buffer=LITTLE) as (found, gate):
        with connected(found, "/api/runs/one/events", room=4096) as client:
            until_read(client, "run_started")
            found.post("runs", 201, graph="loud", run_id="loud")
            with connected(found, "/api/runs/loud/events", room=4096) as slow:
                assert found.settled("loud")["status"] == "completed"
                Shell.until(lambda: len(found.streams) == 1)
                assert slow.fileno() >= 0
            found.portal.call(gate.go.set)
            until_read(client, '"type": "ended"')
        assert [one["seq"] for one in found.events("loud", after=1)][-1] == found.get("runs/loud")["seq"]


MANY = ("/api/openapi.json",) * 8
"""They are answered one after the other, until no further byte finds room."""


@pytest.mark.full
def test_a_client_that_reads_no_answer_is_left(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "READ_TIME", 0.2)
    with api(send_buffer=LITTLE) as found, connected(found, *MANY, room=4096):
        Shell.until(lambda: "the client does not read a response" in capfd.readouterr().err)


@pytest.mark.full
def test_a_client_that_reads_slowly_gets_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "READ_TIME", 3.0)
    with api(send_buffer=LITTLE) as found:
        whole = len(found.client.get(MANY[0]).content)
        with connected(found, MANY[0], room=4096, more="Connection: close\r\n") as client:
            answer = bytearray()
            for _ in range(45):
                answer += client.recv(1024)
                time.sleep(0.1)
            while data := client.recv(65536):
                answer += data
        assert len(answer.partition(b"\r\n\r\n")[2]) == whole


@pytest.mark.full
def test_a_client_that_reads_no_answer_gives_way_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    with api(send_buffer=LITTLE) as found, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connected(found, *MANY, room=4096))
        Shell.until(lambda: served(found))  # those before are still written to


def served(found: Api) -> bool:
    """Whether a client of its own is answered."""
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{found.url}/api/graphs", timeout=60).status_code == 200
    return False


def test_a_body_that_does_not_come_gives_way_to_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    with api(settings={"patience": 600.0}) as found, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(posted(found, "/api/runs", "{", length=1000))
        Shell.until(lambda: served(found))


def test_requests_that_wait_for_a_run_leave_connections_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    monkeypatch.setattr(run_commands, "_STOPPING", 0.2)
    body = {"graph": "held", "run_id": "one", "input": None, "wait": True}
    with held() as (found, gate), ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(posted(found, "/api/runs", json.dumps(body)))
        Shell.until(lambda: len(found.streams) == 4)
        assert found.post("runs", 503, **body)["type"].endswith("streams-full")
        assert found.post("graphs/try", 503, text="", wait=True)["type"].endswith("streams-full")
        assert found.post("runs/one/pause")["status"] == "running"  # soon, and not when its step has ended
        assert len(found.streams) == 4
        stack.close()
        Shell.until(lambda: len(found.streams) == 0)
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] == "completed"  # it had one step


def test_streams_leave_connections_for_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    with held() as (found, gate), ExitStack() as stack:
        for _ in range(4):
            until_read(stack.enter_context(connected(found, "/api/runs/one/events")), "run_started")
        assert found.get("runs/one/events", 503)["type"].endswith("streams-full")
        assert found.get("runs/one")["status"] == "running"
        found.portal.call(gate.go.set)


@pytest.mark.anyio
async def test_what_a_client_asked_for_is_done_though_it_leaves_at_once() -> None:
    async def left() -> dict[str, str]:
        return {"type": "http.disconnect"}

    done: list[str] = []
    for name, least in (("wait", 0.0), ("stop", 60.0)):
        async with OpenStreams(1).waiting(left, 60.0, least):
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            done.append(name)
    assert done == ["stop"]


def test_a_request_that_comes_with_the_one_before_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEAD_TIME", 0.2)
    paths = "/api/graphs", "/api/runs/one/events"
    with held(settings={"heartbeat": 0.1}) as (found, gate), connected(found, *paths) as client:
        until_read(client, "run_started")
        for _ in range(5):
            until_read(client, ":\n\n")
        found.portal.call(gate.go.set)
        until_read(client, '"type": "ended"')


@pytest.mark.full
def test_clients_end_idle_connections_before_the_server_does() -> None:
    """A client that keeps connections for 5 s, as httpx does, sends on none that the server closes at the same time."""
    with held() as (found, _), socket.create_connection(("127.0.0.1", int(found.url.rpartition(":")[2]))) as client:
        client.settimeout(60)
        for seconds in (0, 6):
            time.sleep(seconds)
            client.sendall(b"GET /api/graphs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until_read(client, '"graphs"')


def test_connections_send_what_they_have_at_once() -> None:
    """An event, or the end of an answer, waits for no acknowledgement of what was sent before it."""
    with socket.create_server(("127.0.0.1", 0)) as bound:

        async def listen() -> None:
            async with Executor("memory://") as executor, anyio.create_task_group() as tasks:
                listening = anyio.Event()
                tasks.start_soon(serve, configured(executor, Settings()), bound, listening)
                await listening.wait()
                delayed.append(not bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                tasks.cancel_scope.cancel()

        delayed: list[bool] = []
        anyio.run(listen)
        assert delayed == [False]


def test_a_reader_that_leaves_is_noticed() -> None:
    with held() as (found, gate):
        with connected(found, "/api/runs/one/events") as client:
            until_read(client, "run_started")
            assert len(found.streams) == 1
        Shell.until(lambda: len(found.streams) == 0)
        assert found.get("runs/one")["status"] == "running"
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] == "completed"


def test_streams_end_with_the_server() -> None:
    with held() as (found, _), connected(found, "/api/runs/one/events") as client:
        until_read(client, "run_started")
        found.portal.call(found.streams.close)
        until_read(client, "0\r\n\r\n")
        found.get("runs/one/events", 503)


def test_questions_are_listed_the_oldest_first_and_streamed_as_they_change(server: Api) -> None:
    for name in ("first", "second"):
        server.start("letter", run_id=name, labels={"kind": name})
    found = server.get("questions")
    assert ([one["run_id"] for one in found["questions"]], found["cursor"]) == (["first", "second"], None)
    assert [one["run_id"] for one in server.get("questions?label=kind:second")["questions"]] == ["second"]
    page = server.get("questions?limit=1")
    rest = server.get("questions", params={"limit": 1, "after": page["cursor"]})
    assert [one["run_id"] for one in (*page["questions"], *rest["questions"])] == ["first", "second"]
    assert server.get("questions?kind=input")["questions"] == []
    server.get("questions?after=x", 422)
    server.get("questions?kind=x", 422)
    assert server.get("questions?graph=plain")["questions"] == []
    stream = server.stream("questions", {"Accept": "text/event-stream"})
    seen = [next(stream) for _ in range(3)]
    assert [(one["type"], one["run_id"]) for one in seen] == [("opened", "first"), ("opened", "second"), ("ready", "")]
    question = seen[0]["opened"]["question"]
    server.post("runs/first/answer", question=question["id"], digest=question["digest"], approve=True)
    assert (one := next(stream))["type"] == "closed"
    assert one["run_id"] == "first"
    server.start("chat", run_id="third")
    assert [(one := next(stream))["type"], one["opened"]["question"]["kind"]] == ["opened", "input"]
    stream.close()
    asked = [one["asked"] for one in server.get("questions")["questions"]]
    assert all(one <= other for one, other in pairwise(asked))


def test_a_stream_of_questions_has_those_of_the_page_that_it_names(server: Api) -> None:
    for name in ("page-1", "page-2", "page-3"):
        server.start("letter", run_id=name, labels={"page": "yes"})
    first = server.get("questions?label=page:yes&limit=1")
    stream = server.stream(f"questions?label=page:yes&limit=1&after={first['cursor']}", EVENTS)
    seen = [next(stream) for _ in range(2)]
    assert [(one["type"], one["run_id"]) for one in seen] == [("opened", "page-2"), ("ready", "")]
    question = seen[0]["opened"]["question"]
    server.post("runs/page-2/answer", question=question["id"], digest=question["digest"], approve=True)
    assert [(one["type"], one["run_id"]) for one in (next(stream), next(stream))] == [
        ("closed", "page-2"), ("opened", "page-3"),
    ]  # fmt: skip
    stream.close()


def test_a_stream_of_runs_says_which_rows_of_its_page_are_others(server: Api) -> None:
    whole, asking = server.stream("runs?limit=2", EVENTS), server.stream("runs?label=of:stream&status=paused", EVENTS)
    first = next(whole)
    assert (first["type"], first["run_ids"]) == ("ready", [])
    assert next(asking)["type"] == "ready"
    server.start("chat", run_id="of-stream", labels={"of": "stream"})
    found = next(whole)
    while "of-stream" not in found["run_ids"]:
        found = next(whole)
    assert found["type"] == "changed"
    while found["questions"] == first["questions"]:  # it may be seen while it runs, and then once more
        found = next(whole)
    assert found["questions"] == first["questions"] + 1
    # how many questions wait may be another number before the rows are others
    assert next(one["run_ids"] for one in asking if one["run_ids"]) == ["of-stream"]
    server.post("runs/of-stream/cancel")
    assert next(one["run_ids"] for one in asking if one["run_ids"]) == ["of-stream"]
    for stream in (whole, asking):
        stream.close()


@pytest.mark.parametrize("query", ["limit=2", "status=paused&sort=graph", "label=of:stream", "q=stream"])
def test_a_screen_that_was_just_loaded_has_the_version_of_its_stream(server: Api, query: str) -> None:
    page = server.client.get(f"/runs?{query}").text
    found = re.search(r'data-changes="([^"]*)" data-shown="([^"]*)"', page)
    assert found is not None
    changes, shown = map(unescape, found.groups())
    stream = server.stream(changes.removeprefix("/"), EVENTS)
    assert next(stream)["version"] == shown
    server.start("chat", run_id=f"stream-{shown}", labels={"of": "stream"})
    assert next(one for one in stream if one["type"] == "changed")["version"] != shown
    stream.close()


EVENTS = {"Accept": "text/event-stream"}


@pytest.mark.parametrize("url", ["sqlite", "memory"])
def test_a_stream_looks_at_a_store_that_tells_of_changes_only_after_a_change(url: str, tmp_path: Path) -> None:
    async def look() -> None:
        async with Executor("memory://" if url == "memory" else f"sqlite:///{tmp_path}/runs.db") as executor:
            await executor.start(plain, run_id="one")
            watch = StoreWatch(executor.store, Settings(poll=0.001, heartbeat=3600))
            looks = 0

            async def turns() -> None:
                nonlocal looks
                while True:
                    await watch.wait()
                    looks += 1
                    await anyio.sleep(0.001)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turns)
                with anyio.fail_after(60):
                    while looks < 1:  # noqa: ASYNC110  the watch has nothing else to wait for
                        await anyio.sleep(0.001)
                    quiet = 0
                    while quiet != looks and (url == "sqlite" or looks < 20):  # until the first run is wholly written
                        quiet = looks
                        for _ in range(20):
                            await anyio.sleep(0.002)
                    await executor.start(plain, run_id="two")
                    while looks == quiet:  # noqa: ASYNC110
                        await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()

    anyio.run(look)


def test_where_descriptors_have_no_limit_a_server_takes_the_most_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert server_module.most_connections() == 4096

"""Reloads, late comers, lost connections, answers by others, and servers that are stopped: each page has the text."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from orchestrator.stores import open_store
from tests.support.sizes import sized
from tests.support.wire import Raw, Seen, Wire, chunk, served, sse
from tests.web.client import Page
from tests.web.server import Server, code, serving

pytestmark = pytest.mark.anyio
DRAFT = ["Dear", "Ann,", "the", "garden", "is", "in", "full", "bloom", "and", "the", "bees", "are", "busy.", ""]
FINISH = ["I", "remain,", "as", "ever,", "with", "the", "warmest", "regards,", "yours", "truly,", "Bob.", ""]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """uvicorn runs on asyncio, and a client is a client."""
    return str(request.param)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    """Replies word by word. The first one of the second kind takes longer than a server takes to stop."""
    finished: list[Seen] = []

    def reply(seen: Seen) -> Raw:
        first = "draft" in json.dumps(seen.body["messages"])
        parts = [sse(chunk({"content": f"{word} "}), done=False) for word in (DRAFT if first else FINISH)]
        gap = 0.2 if first else 0.06 if finished else 0.5
        if not first:
            finished.append(seen)
        return Raw(parts=[*parts, sse(chunk(finish="stop"))], gap=gap)

    with served(reply) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server, with the file of its runs."""
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="module")
def server(wire: Wire, place: Path) -> Iterator[Server]:
    """One server for all tests: it takes seconds to start."""
    with serving(place, wire.url) as found:
        yield found


def post(url: str, **given: object) -> Any:
    answer = httpx2.post(url, json=given, timeout=60)
    answer.raise_for_status()
    return answer.json()


def get(url: str) -> Any:
    answer = httpx2.get(url, timeout=60)
    answer.raise_for_status()
    return answer.json()


async def away(function: Any, *args: object, **more: object) -> Any:
    """Call a sync function in a thread."""
    return await anyio.to_thread.run_sync(partial(function, *args, **more))


async def journaled(place: Path, run_id: str) -> list[str]:
    """The replies of a run, by its journal."""
    store = open_store(f"sqlite:///{place}/runs.db")
    records = await store.read(run_id)
    await store.close()
    return [str(one.result["text"]) for one in records if one.type == "effect_settled" and isinstance(one.result, dict)]


def test_the_application_has_less_than_forty_lines() -> None:
    assert len([line for line in code().splitlines() if line.strip()]) < 40


async def test_every_page_has_the_text_of_the_journal_whatever_happens(server: Server, wire: Wire, place: Path) -> None:
    asked = len(wire.seen)
    run_id = (await away(post, f"{server.url}/runs", input="the garden"))["run_id"]
    page = Page(server.url, run_id)
    assert await page.read("token", 3)  # the connection breaks in the middle of the reply
    assert await page.read("token", 3)  # and again
    reloaded, late = Page(server.url, run_id), Page(server.url, run_id)
    assert await reloaded.read("asked")
    assert await page.read("asked")
    assert await late.read("asked")  # it comes when the reply is there
    for one in (page, reloaded, late):
        assert list(one.texts.values()) == [" ".join(DRAFT) + " "]
    assert reloaded.streamed == reloaded.settled  # by live events alone, it saw the same
    assert late.streamed == {}

    listed = {one["run_id"]: one["asks"] for one in await away(get, f"{server.url}/runs?status=paused")}
    assert listed[run_id] == "Send it?"
    (question,) = (await away(get, f"{server.url}/runs/{run_id}"))["waiting"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(page.read, "token", 2)
        said = {"question": question["id"], "approve": True}
        await away(post, f"{server.url}/runs/{run_id}/answers", **said, by="another client")
        after = await away(post, f"{server.url}/runs/{run_id}/answers", **said, by="a third one")  # no error
        assert after["run_id"] == run_id
    (answered,) = [event for event in page.events if event.type == "answered"]
    assert answered.data["by"] == "another client"

    assert len(wire.seen) == asked + 2
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:  # SIGTERM while two pages are connected in the middle of a reply
            newcomer = Page(server.url, run_id)
            tasks.start_soon(page.read)
            tasks.start_soon(newcomer.read)
            await anyio.sleep(0.1)
            assert await away(server.end) in (0, -signal.SIGTERM)
    assert "ended" not in {event.type for event in page.events}
    await away(server.begin)
    for one in (page, newcomer):
        assert await one.read("ended")
        assert list(one.texts.values()) == [" ".join(DRAFT) + " ", " ".join(FINISH) + " "]
    assert len(wire.seen) == asked + 3  # only the reply that was under way was asked for again
    assert await journaled(place, run_id) == [" ".join(DRAFT) + " ", " ".join(FINISH) + " "]
    final = await away(get, f"{server.url}/runs/{run_id}")
    assert (final["status"], final["output"]) == ("completed", await journaled(place, run_id))


async def test_a_request_that_is_cancelled_interrupts_no_run(server: Server) -> None:
    body = {"input": "the garden", "run_id": "mine"}
    for wait in (0.0, 0.005, 0.02):
        async with httpx2.AsyncClient() as client:
            with anyio.move_on_after(wait):
                await client.post(f"{server.url}/runs", json=body)
    assert (await away(post, f"{server.url}/runs", **body))["run_id"] == "mine"  # the same run, by its id
    page = Page(server.url, "mine")
    assert await page.read("asked")
    tokens = [str(event.data["text"]) for event in page.events if event.type == "token"]
    assert "".join(tokens) == " ".join(DRAFT) + " "  # each one once
    assert [one["run_id"] for one in await away(get, f"{server.url}/runs")].count("mine") == 1
    assert "resumed" not in {event.type for event in page.events}


@pytest.mark.parametrize("number", sized([signal.SIGKILL], [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
async def test_a_server_that_dies_in_the_middle_of_a_reply_goes_on_with_the_run(
    server: Server, number: int, place: Path
) -> None:
    run_id = (await away(post, f"{server.url}/runs", input="the garden"))["run_id"]
    page = Page(server.url, run_id)
    assert await page.read("token", 2)
    await away(server.end, number)
    await away(server.begin)
    assert await page.read("asked")
    assert page.streamed == page.settled
    assert "reset" in page.types
    assert list(page.texts.values()) == await journaled(place, run_id)


@pytest.mark.full
async def test_fastapi_takes_the_same_routes(wire: Wire, tmp_path: Path) -> None:
    with serving(tmp_path, wire.url, "fast") as server:
        run_id = (await away(post, f"{server.url}/runs", input="the garden"))["run_id"]
        page = Page(server.url, run_id)
        assert await page.read("asked")
        assert page.streamed == page.settled

"""What docs/middleware.md shows is what happens."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import orchestrator.models
from orchestrator.errors import ModelUnavailable
from orchestrator.graph import Usage
from orchestrator.models import Reply, with_middleware
from orchestrator.models.middleware import CassetteMode, __all__
from orchestrator.testing import ScriptedModel
from tests.contract.test_readme import awaited, blocks
from tests.models.speaker import Speaker
from tests.support.wire import said, served

PAGE = "docs/middleware.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text()
FIRST, MARKED, BRIEF, CACHE, LOGGED, RATE, FALLBACK, CASSETTE = blocks(PAGE)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the page are made in a directory of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORCHESTRATOR_CASSETTE", raising=False)


async def shown(code: str, *replies: Any, **names: Any) -> dict[str, Any]:
    given = {**vars(orchestrator.models), "ModelUnavailable": ModelUnavailable, "logging": logging}
    for name in ("Cache", "Logged", "RateLimit", "Fallback", "Cassette", "with_middleware"):
        given[name] = getattr(orchestrator.models, name)
    return await awaited(code, {**given, "inner": ScriptedModel(list(replies)), **names, "__name__": "page"})


async def test_the_first_example(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(said("Nodes and edges.")) as wire:
        monkeypatch.setenv("OPENAI_BASE_URL", wire.url)
        assert (await shown(FIRST))["reply"].text == "Nodes and edges."


async def test_layers_of_ones_own() -> None:
    marked = (await shown(MARKED))["Marked"]
    events = [event.text async for event in with_middleware(Speaker(["a", "b"]), marked()).stream("?")]
    assert events == ["A", "B", ""]
    inner = ScriptedModel(["ok"])
    await with_middleware(inner, (await shown(BRIEF))["Brief"]()).complete("Tell me!", temperature=1)
    assert [message.content for message in inner.requests[0].messages] == ["Be brief.", "Tell me!"]
    assert inner.requests[0].options == {"temperature": 1}


async def test_the_cache() -> None:
    assert (await shown(CACHE, Reply(text="4", usage=Usage(input_tokens=1))))["cache"].statistics().hits == 1


async def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await shown(LOGGED, "Keep it.")
    lines = [record.getMessage() for record in caplog.records if record.name == "shop"]
    written = [line.removeprefix("# ") for line in LOGGED.splitlines() if line.startswith("#")]
    assert lines[0] == written[0]
    assert (lines[1].split(" in ")[0], lines[1].split(" s: ")[1]) == (
        written[1].split(" in ")[0],
        written[1].split(" s: ")[1],
    )


async def test_the_limit() -> None:
    names = await shown(RATE, Reply(text="a", usage=Usage(input_tokens=7)), other=Speaker(["b"]))
    assert (names["limit"].statistics().requests, names["limit"].statistics().tokens) == (2, 8)


async def test_the_fallback(capsys: pytest.CaptureFixture[str]) -> None:
    await shown(FALLBACK, ModelUnavailable("the server is busy"), other=ScriptedModel(["hi"], name="other"))
    expected = next(line.removeprefix("# ") for line in FALLBACK.splitlines() if line.startswith("#"))
    assert capsys.readouterr().out.strip() == f"other {expected}"


async def test_the_cassette() -> None:
    assert (await shown(CASSETTE, "Go."))["reply"].text == "Go."
    assert (await shown(CASSETTE))["reply"].text == "Go."


async def test_every_layer_and_mode_is_on_the_page() -> None:
    told = {*__all__} - {"Ask", "CacheStatistics", "CacheStore", "CassetteMode", "MiddlewareModel", "RateStatistics"}
    for name in (*(told - {"usable"}), *CassetteMode.__args__):  # type: ignore[attr-defined]
        assert name in TEXT

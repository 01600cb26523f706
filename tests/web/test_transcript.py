"""The transcript of a run over the API: in parts, bounded, and for those who may see the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.models import Reply
from orchestrator.strategies.chat import chat
from orchestrator.testing import ScriptedModel
from tests.web.api import Api, api

HOSTILE = "<script>alert(1)</script>\u202e</script><!--"
LONG = 2_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    """A chat of three turns; the model's second reply is long."""
    model = ScriptedModel([HOSTILE, "a" * LONG, Reply(text="sk-proj-" + "Ab1" * 16)])
    with api(chat(), model=model) as found:
        found.post("runs", 201, graph="chat", input=HOSTILE, run_id="talk", wait=True)
        for _ in range(2):
            run = found.portal.call(found.executor.wait, "talk", 60)
            found.portal.call(found.executor.answer, "talk", run.waiting[0].id, "go on")
        yield found


def entries(server: Api, query: str = "") -> Any:
    return server.get(f"runs/talk/transcript{query}")["entries"]


def test_a_transcript_comes_in_parts(server: Api) -> None:
    whole, found, after = entries(server), [], 0
    while after is not None:
        part = server.get(f"runs/talk/transcript?limit=2&after={after}")
        assert len(part["entries"]) <= 2
        found += part["entries"]
        after = part["cursor"]
    assert found == whole
    assert [one["number"] for one in whole] == list(range(1, len(whole) + 1))
    assert whole[-1]["open"]
    assert server.get("runs/talk/transcript?after=9999")["entries"] == []


def test_texts_are_data_bounded_and_without_secrets(server: Api) -> None:
    found = entries(server)
    assert next(one["text"] for one in found if one.get("role") == "user") == HOSTILE
    turns = [one["text"] for one in found if one["kind"] == "turn"]
    assert turns[0] == HOSTILE
    assert len(turns[1]) < 60_000
    assert "characters more" in turns[1]
    assert "Ab1" not in turns[2]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "after=x", "before=3"])
def test_other_queries_are_refused(server: Api, query: str) -> None:
    server.get(f"runs/talk/transcript?{query}", 422)


def test_no_transcript_of_a_run_that_is_not_there(server: Api) -> None:
    server.get("runs/other/transcript", 404)

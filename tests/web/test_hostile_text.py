"""Text that attacks a page, in every field that others fill, on every screen and in every answer of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from orchestrator import Graph, ToolCall, node, tool
from orchestrator.graph import Usage
from orchestrator.models import Reply
from orchestrator.nodes import Ask
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.web.api import Api, Note, api, letter, payment, plain
from tests.web.hostile import HIDDEN, HOSTILE, SCRIPTS, faults
from tests.web.workers import announced

NAMED = "'\"><script>window.pwned=10<!--"
"""An id that a run can have: without spaces and slashes."""
BY = f"{SCRIPTS[0]}{HIDDEN}"
PROMPT = HOSTILE.replace("{", "{{").replace("}", "}}")
RUNS = ("mail", "choice", "broken", "cancelled", "denied", "child", "plain", NAMED)


@tool(risk="write", description=HOSTILE[:400])
def send_email(to: str, body: str, more: dict[str, list[str]] | None = None) -> str:
    return f"sent to {to}"


@tool(risk="none")
def fails(query: str) -> str:
    """Fail."""
    raise ConnectionError(HOSTILE)


@node(effect="pure")
async def breaks(state: Note) -> dict[str, str]:
    """Fail."""
    raise ValueError(HOSTILE)


broken = Graph(
    name="broken", state=Note, input="topic", output="parts", nodes={"breaks": breaks},
    edges="START -> breaks -> END", description=HOSTILE,
)  # fmt: skip
choice = Graph(
    name="choice", state=Note, input="topic", output="parts",
    nodes={"ask": Ask(prompt=PROMPT, choices=(HOSTILE, "no"), answer="tool")}, edges="START -> ask -> END",
)  # fmt: skip


def said(request: Any) -> Reply:
    """Every call that a hostile text could have talked the model into."""
    if request.messages[-1].role == "tool":
        return Reply(text=HOSTILE, usage=Usage(input_tokens=10))
    calls = (
        ToolCall(id="a", name="fails", arguments={"query": HOSTILE}),
        ToolCall(id="b", name=HOSTILE, arguments={HOSTILE: HOSTILE}),
        ToolCall(id="c", name="send_email", arguments={"to": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}}),
        ToolCall(id="d", name="send_email", arguments={"to": HOSTILE, "body": HOSTILE, "more": {HOSTILE: [HOSTILE]}}),
    )
    return Reply(text=HOSTILE, tool_calls=calls, usage=Usage(input_tokens=10))


def filled(found: Api) -> None:
    """Bring the texts into the store, as clients, models, tools and people can."""
    labels = {HOSTILE[:190]: HOSTILE}
    for graph, run_id in (
        ("mail", "mail"),
        ("choice", "choice"),
        ("broken", "broken"),
        ("plain", "plain"),
        ("plain", NAMED),
    ):
        found.post("runs", 201, graph=graph, input=HOSTILE, run_id=run_id, labels=labels, wait=True)
    for run_id in ("cancelled", "denied"):
        found.post("runs", 201, graph="letter", input=HOSTILE, run_id=run_id, labels=labels, wait=True)
    found.post("runs/cancelled/cancel", by=BY, reason=HOSTILE)
    (question,) = found.get("runs/denied")["waiting"]
    seen = {"question": question["id"], "digest": question["digest"]}
    found.post("runs/denied/answer", **seen, deny={"reason": HOSTILE}, by=BY)
    found.settled("denied")
    found.post("runs/plain/fork", 201, at=2, update={"topic": HOSTILE}, run_id="child", labels=labels)
    found.settled("child")
    assert [one["run_id"] for one in found.get("questions")["questions"]] == ["mail", "choice"]
    worker = {"graphs": [HOSTILE], "slots": 1, "version": HOSTILE}
    announced(found, HOSTILE, ttl=600.0, host=HOSTILE, worker=worker)
    found.post("runs/choice/send", event=SCRIPTS[1], data={HOSTILE: HOSTILE}, by=BY)


GRAPHS = (react(tools=[send_email, fails], name="mail"), choice, broken, letter, plain, payment)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Api]:
    """A server whose store is full of such text."""
    with api(*GRAPHS, model=ScriptedModel(said)) as found:
        filled(found)
        yield found


def html(found: Api, path: str, **query: str) -> str:
    answer = found.client.get(path, params=query or None)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


@pytest.mark.parametrize("run_id", RUNS, ids=[*RUNS[:-1], "named"])
def test_the_page_of_a_run_shows_it_as_text(hostile: Api, run_id: str) -> None:
    assert faults(html(hostile, f"/runs/{quote(run_id)}")) == []
    file = hostile.client.get(f"/api/runs/{quote(run_id)}/page.html")
    assert faults(file.text, file.headers["content-security-policy"]) == []


def test_the_list_and_the_inbox_show_it_as_text(hostile: Api) -> None:
    costs = f"/costs?{urlencode({'by': f'label:{HOSTILE[:190]}'})}"
    for path in ("/runs", "/inbox", "/workers", "/graphs", costs):
        text = html(hostile, path)
        assert "window.pwned" in text
        assert faults(text) == []
        assert "\\u202e" in text  # what turns the direction is shown as an escape


@pytest.mark.parametrize("name", ["q", "graph", "label", "failed_tool", "parent", "after"])
def test_a_filter_in_the_address_is_shown_as_text(hostile: Api, name: str) -> None:
    for path, text in product(("/runs", "/inbox"), (*SCRIPTS, HIDDEN)):
        answer = hostile.client.get(path, params={name: f"x:{text}"})
        if answer.status_code == 200:
            assert faults(answer.text) == []
        else:
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("run_id", RUNS, ids=[*RUNS[:-1], "named"])
def test_a_drawing_holds_no_script_and_may_run_none(hostile: Api, run_id: str) -> None:
    answer = hostile.client.get(f"/api/runs/{quote(run_id)}/drawing.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert faults(answer.text.partition("<svg")[2]) == []


@pytest.mark.full
def test_no_answer_of_the_api_is_read_as_a_page(hostile: Api) -> None:
    paths = [
        "runs",
        "questions",
        "workers",
        "graphs",
        "graphs/broken",
        "stats?by=label:x",
        f"diff?runs=mail,{quote(NAMED)}",
    ]
    for run_id in RUNS:
        paths += [f"runs/{quote(run_id)}{part}" for part in ("", "/history", "/records", "/state", "/why", "/export")]
    for path in (*paths, "runs/nothing<script>", "runs?status=<script>", "<script>"):
        answer = hostile.client.get(f"/api/{path}")
        assert answer.headers["content-type"].partition(";")[0] in (
            "application/json", "application/problem+json", "application/x-ndjson",
        ), path  # fmt: skip
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        if not path.endswith("/export"):  # a file, which has what the journal has
            assert answer.text.isascii()


def test_a_stream_has_one_line_for_each_event_whatever_its_texts_hold(hostile: Api) -> None:
    text = hostile.client.get("/api/runs/mail/records").json()["records"]
    with hostile.client.stream("GET", "/api/runs/denied/events") as stream:
        lines = stream.read().decode().split("\n")
    assert {line.partition(":")[0] for line in lines} == {"retry", "id", "data", ""}
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    assert text


def test_a_download_has_a_harmless_name(hostile: Api) -> None:
    for run_id in ('x";filename="evil.sh', "evil.html;x=.exe", "%0d%0aSet-Cookie:x=1", "é.jsonl"):
        hostile.post("runs", 201, graph="plain", input="x", run_id=run_id, wait=True)
        answer = hostile.client.get(f"/api/runs/{quote(run_id)}/export")
        assert answer.status_code == 200
        name = answer.headers["content-disposition"].removeprefix("attachment; filename=")
        assert (name[0], name[-7:]) == ('"', '.jsonl"')
        assert not set(name[1:-1]) & set('"\\;\r\n')
        assert "set-cookie" not in answer.headers


@pytest.mark.full
def test_half_a_character_in_a_text_of_a_model_breaks_no_screen() -> None:
    half = "\ud800<b>\udfff"

    def speaks(request: Any) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply(text=half)
        return Reply(text=half, tool_calls=(ToolCall(id="a", name="send_email", arguments={"to": half, "body": half}),))

    with api(*GRAPHS, model=ScriptedModel(speaks)) as found:
        found.post("runs", 201, graph="mail", input="x", run_id="one", wait=True)
        for path in (
            "/runs",
            "/inbox",
            "/runs/one",
            "/api/runs/one/page.html",
            "/runs/one/data",
            "/api/runs/one/drawing.svg",
        ):
            assert found.client.get(path).status_code == 200, path
        for part in ("", "/history", "/records", "/state", "/why", "/export", "/events"):
            if part != "/events":
                assert found.client.get(f"/api/runs/one{part}").status_code == 200, part
        assert faults(found.client.get("/inbox").text) == []

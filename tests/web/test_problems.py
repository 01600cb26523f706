"""An error of any door is in the library's own words: it names the field, what is wrong and the fix, and is bounded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Graph, Limits, Outcome, node
from tests.web.api import Api, Note, api, letter, plain

PYDANTIC = re.compile(r"Input should|Field required|not permitted|Value error|String should|Unprocessable|pydantic|__")


def refused(found: Api, path: str, status: int = 422, /, **body: Any) -> dict[str, str]:
    """The faults of a query (or of a body) by field, in words of our own."""
    said = found.post(path, status, **body) if body else found.get(path, status)
    assert PYDANTIC.search(json.dumps(said)) is None
    return {one["field"]: one["message"] for one in said["errors"]}


def test_a_query_names_each_field_and_the_fix() -> None:
    with api() as found:
        assert refused(found, "runs?limit=9999&stauts=failed&waiting=perhaps&label=team&begun_since=2026-02-30") == {
            "limit": "give 200 at most",
            "stauts": "there is no such parameter: did you mean 'status'?",
            "waiting": "give true or false",
            "label.0": "use the form name:value",
            "begun_since": "give a day that exists, such as 2026-11-29",
        }
        assert refused(found, "runs?since=yesterday") == {"since": "give a number or a time in ISO 8601"}
        assert refused(found, "runs?limit=1&limit=2") == {"limit": "it is given more than once"}


def test_a_body_names_each_field_and_the_fix() -> None:
    with api() as found:
        body = {"graf": "letter", "approve": "all", "limits": {"steps": 0, "cost": -1, "step": 3}, "labels": {"a": 1}}
        assert refused(found, "runs", **body) == {
            "graph": "it is missing: the name of a graph of this server",
            "graf": "there is no such field: did you mean 'graph'?",
            "approve": "give 'none', 'read', 'write' or 'dangerous'",
            "limits.steps": "give 1 or more",
            "limits.cost": "give more than 0",
            "limits.step": "there is no such field: leave it out",
            "labels.a": "give a text",
        }
        assert refused(found, "runs", graph="letter", run_id="x" * 201) == {"run_id": "give 200 characters at most"}
        found.start("letter", run_id="r")
        assert refused(found, "runs/r/notes", score=1e308) == {"score": "give 1e300 at most"}
        assert refused(found, "runs/r/notes", score=-1e308) == {"score": "give -1e300 or more"}


def test_types_that_a_field_may_have_are_one_message() -> None:
    """And of these types, the one that was meant says what is wrong in it."""
    with api() as found:
        found.start("letter", run_id="r")
        answer = {"question": "q", "digest": "d"}
        assert refused(found, "runs/r/answer", **answer, approve=1) == {"approve": "give true or an object"}
        assert refused(found, "runs/r/answer", **answer, deny={"reason": 3}) == {"deny.reason": "give a text"}
        assert refused(found, "runs/r/answer", **answer, approve={"args": [1]}) == {"approve.args": "give an object"}
        assert refused(found, "runs/r/answer", **answer) == {"": "give exactly one of approve, deny and value"}


def test_a_page_is_refused_in_the_same_words() -> None:
    with api() as found:
        found.start("plain", run_id="r")
        for path in ("/runs/r?step=2", "/inbox?limit=x", "/costs?by=moon", "/replay?runs=r&live=perhaps"):
            said = found.client.get(path, headers={"Accept": "text/html"})
            assert said.status_code == 422
            assert PYDANTIC.search(said.text.partition("<main")[2]) is None
            assert "The query or the body does not fit" in said.text
        assert "step: there is no such parameter" in found.client.get("/runs/r?step=2").json()["detail"]


@pytest.mark.parametrize("screen", ["runs", "inbox", "workers", "graphs", "costs", "compose", "compare", "replay"])
def test_a_screen_that_is_opened_alone_has_something_to_do(screen: str) -> None:
    with api() as found:
        assert found.client.get(f"/{screen}", headers={"Accept": "text/html"}).status_code == 200
        found.start("plain", run_id="<b>a,b")
        said = found.client.get(f"/{screen}", headers={"Accept": "text/html"})
        assert said.status_code == 200
        assert "<b>a,b" not in said.text


def test_runs_to_compare_are_chosen_on_the_page() -> None:
    with api() as found:
        for name in ("one", "two"):
            found.start("plain", run_id=name)
        alone = found.client.get("/compare", headers={"Accept": "text/html"}).text
        assert '<input type="checkbox" name="runs" value="one"' in alone
        one = found.client.get("/compare?runs=one", headers={"Accept": "text/html"}).text
        assert re.search(r'value="one"[^>]* checked', one)
        assert not re.search(r'value="two"[^>]* checked', one)
        assert "Compare 2 runs" in found.client.get("/compare?runs=one&runs=two").text
        assert refused(found, "diff/steps?runs=one") == {"runs": "name 2 to 6 runs, and not 1"}


def test_a_refusal_does_not_repeat_what_was_sent_and_is_bounded() -> None:
    with api() as found:
        secret = "hunter2" * 10_000
        for body in (
            {"graph": "letter", secret: 1},
            {"graph": "letter", "labels": {f"{secret}{n}": n for n in range(5)}},
            {"graph": "letter", "labels": {str(n): n for n in range(5_000)}},
            {"graph": "letter", "limits": {"visits": {f"{n}{'x' * 300}": 0 for n in range(1_000)}}},
            {"graph": ["letter"] * 10_000},
            {f"unknown{n}": n for n in range(5_000)},
        ):
            answer = found.client.post("/api/runs", json=body)
            assert answer.status_code == 422
            assert len(answer.content) < 20_000
            assert len(answer.json()["detail"]) < 2_100
            assert len(answer.json()["errors"]) <= 51


def test_hostile_text_in_a_refusal_stays_text() -> None:
    with api() as found:
        said = found.client.get("/runs?<script>alert(1)</script>=1", headers={"Accept": "text/html"})
        assert said.status_code == 422
        assert "<script>alert" not in said.text
        assert "&lt;script&gt;" in said.text


@node(effect="pure")
async def broken(state: Note) -> None:
    raise RuntimeError("broken")


fails: Graph = plain.model_copy(update={"name": "fails", "nodes": {"draft": broken, "finish": broken}})


@node(outcomes=("again", "enough"), effect="pure")
async def turn(state: Note) -> Outcome[Any]:
    return Outcome("again")


loops = Graph(
    name="loops", state=Note, input="topic", output="parts", nodes={"turn": turn}, limits=Limits(steps=3),
    edges="START -> turn\nturn -> turn : again\nturn -> END : enough",
)  # fmt: skip
COMMAND = re.compile(r"`orchestrator|(^|\\s)--[a-z]")


def test_what_a_page_cannot_do_is_said_to_be_done_where_the_server_runs() -> None:
    """A person at a page types no commands: the fix is a button, a field, or named as one of the server."""
    with api(letter, plain, fails, loops) as found:
        found.start("letter", run_id="asks")
        for graph in ("plain", "fails", "loops"):
            found.start(graph, run_id=graph)
        words = [
            found.get("runs/nowhere", 404)["detail"],
            found.post("runs/asks/answer", 404, question="q", digest="d", value=1)["detail"],
            found.post("runs/plain/resume", 409, retry=True)["detail"],
            found.post("runs/fails/resume", 409)["detail"],
            found.post("runs/loops/resume", 409)["detail"],
            found.post("runs/loops/resume", 409, retry=True)["detail"],
            found.post("runs/plain/send", 409, event="news")["detail"],
            found.post("runs/plain/fork", 422)["detail"],
            found.post("runs/plain/fork", 422, at=2, branch="0")["detail"],
            found.post("runs/plain/fork", 422, at=2, result=1)["detail"],
            found.post("runs/plain/fork", 422, at=2, answer={"value": 1, "digest": "d" * 32})["detail"],
            found.post("runs/plain/fork", 422, at=1, request={"options": {"a": 1}, "digest": "d" * 32})["detail"],
            found.post("runs/plain/notes", 422, text="x", step=1)["detail"],
        ]
        assert [one for one in words if COMMAND.search(one)] == []
        assert words[3] == "run 'fails' has ended (failed); to continue it, retry it"
        assert words[4].endswith("to continue it, retry it with higher limits")
        assert words[5].endswith("steps=3 are spent (3 used): raise that limit, to 6")


def test_a_graph_that_the_server_lacks_is_to_be_given_where_it_runs(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    with api(letter, store=store) as found:
        found.start("letter", run_id="one")
    with api(plain, store=store) as found:
        detail = found.post("runs/one/resume", 404)["detail"]
        assert detail.endswith("name its graph with --graph (where the server runs)")

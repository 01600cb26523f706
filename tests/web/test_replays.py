"""Replays of many runs, over the API and on their screen."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from orchestrator import ToolCall, tool
from orchestrator.models import Reply
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from tests.web import essays
from tests.web.api import Api, api, held
from tests.web.hostile import HOSTILE, faults

TOPICS = ("tea", "milk", "soup")


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    """A server with three runs of a graph, and an edited version of that graph."""
    graphs = essays.writing(), essays.writing("Tell me about", "edited")
    with api(*graphs, model=essays.model(), settings={"poll": 0.05}) as found:
        for topic in TOPICS:
            found.post("runs", 201, graph="writing", input=topic, run_id=topic, wait=True)
        yield found


def over(found: Api, batch: str, *runs: str) -> Any:
    """The replays, once this server works on them no more."""
    for _ in range(600):
        shown = found.get(f"replays?{urlencode({'runs': ','.join(runs), 'batch': batch})}")
        if not shown["going"]:
            return shown
        time.sleep(0.05)
    raise AssertionError("the replays are not over")


@pytest.mark.full
def test_runs_are_replayed_on_an_edited_graph_and_the_table_says_what_it_changed(served: Api) -> None:
    begun = served.post("replays", 201, runs=[*TOPICS, "tea"], graph="edited")
    assert [row["run_id"] for row in begun["replays"]] == [*TOPICS], "each run once"
    found = over(served, begun["batch"], *TOPICS)
    assert (found["done"], found["same"], found["different"], found["going"]) == (3, 0, 3, False)
    for row in found["replays"]:
        assert (row["outcome"], row["status"], row["graph"]) == ("different", "diverged", "edited")
        assert row["first"] == "draft: the request to model scripted differs"
        assert (row["step"], row["made"], row["cost"], row["after"]) == ("1:/draft", 0, 0.0, "")
        assert row["before"].startswith("Polished: ")
        shown = served.get(f"runs/{row['replay_id']}")
        assert (shown["parent"]["run_id"], shown["parent"]["relation"]) == (row["run_id"], "replay")
        texts = served.get(f"diff/step?runs={row['run_id']},{row['replay_id']}&step={row['step']}")
        lines = texts["row"]["differences"][0][0]["lines"]
        assert f"-Write about {row['run_id']}." in lines
        assert f"+Tell me about {row['run_id']}." in lines


def test_a_replay_of_the_same_graph_is_the_same_and_saves_its_cost(served: Api) -> None:
    served.post("replays", 201, runs=[*TOPICS], batch="same1")
    found = over(served, "same1", *TOPICS)
    assert [(row["outcome"], row["made"], row["cost"]) for row in found["replays"]] == [("same", 0, 0.0)] * 3
    assert all(row["saved_calls"] == 2 and row["saved_cost"] > 0 for row in found["replays"])
    assert all(row["before"] == row["after"] for row in found["replays"])


def test_a_live_replay_makes_the_calls_and_says_what_they_cost(served: Api) -> None:
    served.post("replays", 201, runs=["tea"], graph="edited", live="always", batch="live1")
    (row,) = over(served, "live1", "tea")["replays"]
    assert (row["outcome"], row["status"], row["made"]) == ("different", "completed", 2)
    assert row["cost"] > 0
    assert row["after"] == "Polished: An essay that answers: Tell me about tea"


def test_a_run_that_cannot_be_replayed_says_why_and_the_others_are(served: Api) -> None:
    served.post("replays", 201, runs=["tea", "nothing", "soup"], batch="some1")
    found = over(served, "some1", "tea", "nothing", "soup")
    assert [row["outcome"] for row in found["replays"]] == ["same", "failed", "same"]
    assert "no run 'nothing'" in found["replays"][1]["error"]
    served.post("replays", 201, runs=["tea", "soup"], at=2**50, batch="far1")
    far = over(served, "far1", "tea", "soup")
    assert [row["outcome"] for row in far["replays"]] == ["failed", "failed"]
    assert all("record" in row["error"] for row in far["replays"])
    assert found["done"] == 3


def test_the_same_batch_again_replays_nothing_twice_and_another_order_is_refused_in_its_rows(served: Api) -> None:
    for _ in range(2):
        served.post("replays", 201, runs=["tea"], batch="twice")
        (row,) = over(served, "twice", "tea")["replays"]
        assert row["outcome"] == "same"
    served.post("replays", 201, runs=["tea"], batch="twice", graph="edited")
    (row,) = over(served, "twice", "tea")["replays"]
    assert row["outcome"] == "failed"
    assert "is not this replay" in row["error"]


def test_what_does_not_fit_is_refused(served: Api) -> None:
    for body in (
        {}, {"runs": []}, {"runs": ["tea"], "batch": "a b"}, {"runs": ["tea"], "live": "sometimes"},
        {"runs": ["tea"], "at": -1}, {"runs": [f"r{number}" for number in range(101)]},
    ):  # fmt: skip
        served.post("replays", 422, **body)
    served.post("replays", 404, runs=["tea"], graph="nothing")
    served.post("replays", 403, runs=["tea"], approve="dangerous")
    served.post("replays/stop", 404, batch="unknown")
    for query in ("runs=tea", "batch=b", "runs=&batch=b", f"runs={','.join(f'r{n}' for n in range(101))}&batch=b"):
        served.get(f"replays?{query}", 422)
    (row,) = served.get("replays?runs=tea&batch=never")["replays"]
    assert (row["outcome"], row["status"]) == ("absent", "")


@pytest.mark.full
def test_a_batch_is_followed_stopped_and_gone_on_with() -> None:
    with held(settings={"poll": 0.05}) as (found, gate):
        found.start("plain", run_id="two")
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] == "completed"
        gate.go.__init__()  # type: ignore[misc]  # closed once more: replays of the step wait
        found.post("replays", 201, runs=["two", "one"], batch="b1")
        stream = found.stream("replays?runs=two,one&batch=b1", {"Accept": "text/event-stream"})
        assert next(stream) == {"type": "ready"}
        rows: Any = {}
        for _ in range(200):
            rows = found.get("replays?runs=two,one&batch=b1")
            if [row["outcome"] for row in rows["replays"]] == ["same", "running"]:
                break
            time.sleep(0.05)
        assert rows["going"]
        stopped = found.post("replays/stop", batch="b1")
        assert next(stream) == {"type": "changed"}
        stream.close()
        stopped = over(found, "b1", "two", "one")
        assert [row["outcome"] for row in stopped["replays"]] == ["same", "stopped"]
        text = found.client.get("/replay?runs=two,one&batch=b1").text
        assert "Go on with 1" in text
        found.portal.call(gate.go.set)
        found.post("replays", 201, runs=["two", "one"], batch="b1")
        assert [row["outcome"] for row in over(found, "b1", "two", "one")["replays"]] == ["same", "same"]


@pytest.mark.full
def test_where_a_replay_asks_a_person_answers_and_what_cannot_be_undone_is_never_called_by_itself() -> None:
    sent = []

    @tool(risk="write", effect="irreversible")
    def send_email(to: str) -> str:
        """Send an email."""
        sent.append(to)
        return "sent"

    def said(request: Any) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply(text="done")
        to = str(request.messages[-1].content).split()[-1]
        return Reply(text="I write.", tool_calls=(ToolCall(id="a", name="send_email", arguments={"to": to}),))

    graphs = react(tools=[send_email], name="mail"), react(tools=[send_email], name="kind", system="Be kind.")
    with api(*graphs, model=ScriptedModel(said), settings={"approve": "dangerous"}) as found:
        found.post("runs", 201, graph="mail", input="write to ann", run_id="one", approve="dangerous", wait=True)
        if not sent:
            (question,) = found.get("runs/one")["waiting"]
            found.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
            assert found.settled("one")["status"] == "completed"
        assert sent == ["ann"]
        found.post("replays", 201, runs=["one"], graph="kind", live="always", batch="b1", approve="dangerous")
        (row,) = over(found, "b1", "one")["replays"]
        assert (row["outcome"], row["status"], sent) == ("asks", "paused", ["ann"])
        assert ">Answer</a>" in found.client.get("/replay?runs=one&batch=b1&graph=kind&live=always").text


def test_the_form_and_the_table_are_pages_with_addresses_of_their_own(served: Api) -> None:
    text = served.client.get("/replay?runs=tea,milk&graph=edited&live=ask&at=0").text
    assert faults(text) == []
    for said in (
        "Replay 2 runs", '<option value="edited" selected>', 'value="ask" checked', '<option value="0" selected>',
        'href="/runs/milk"',
    ):  # fmt: skip
        assert said in text, said
    served.post("replays", 201, runs=["tea", "milk"], graph="edited", batch="page1")
    over(served, "page1", "tea", "milk")
    text = served.client.get("/replay?runs=tea,milk&graph=edited&batch=page1").text
    assert faults(text) == []
    assert "2 of 2 are over: 2 different" in text
    compared = re.findall(r'class="compare" href="([^"]*)"', text)
    assert len(compared) == 2
    shown = served.client.get(compared[0].replace("&amp;", "&"))
    assert shown.status_code == 200
    assert "Tell me" in shown.text
    assert 'href="/replay?runs=tea%2Cmilk&amp;graph=edited&amp;live=never"' in text
    for path, status in (("/replay", 200), ("/replay?runs=", 200), ("/replay?runs=nothing", 404)):
        answer = served.client.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, "<!DOCTYPE html>" in answer.text) == (status, True)


def test_a_server_that_only_reads_shows_replays_and_begins_none() -> None:
    with api(settings={"read_only": True}) as found:
        found.portal.call(lambda: found.executor.start("plain", "bees", run_id="one"))
        found.portal.call(lambda: found.executor.replay("one", replay_id="b1-fa51fd49abf6"))
        assert "it replays nothing" in found.client.get("/replay?runs=one").text
        text = found.client.get("/replay?runs=one&batch=b1").text
        assert "<button" not in text.partition('id="progress"')[2].partition("</table>")[0]
        assert found.client.post("/api/replays", json={"runs": ["one"]}).status_code == 405


def test_authorize_is_asked_about_each_run_and_about_the_graph() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if run is not None and (run.run_id == "secret" or run.graph == "loud") else "ann"

    with api(settings={"authorize": authorize}) as found:
        found.start("plain", run_id="one")
        found.portal.call(lambda: found.executor.start("plain", "bees", run_id="secret"))
        replays = found.post("replays", 201, runs=["one", "secret"], batch="b1")["replays"]
        assert (replays[1]["outcome"], replays[1]["error"]) == ("failed", "there is no run 'secret'")
        found.post("replays", 403, runs=["one"], graph="loud")
        over(found, "b1", "one", "secret")
        assert found.client.get("/replay?runs=one,secret").status_code == 404
        assert "there is no run" in found.client.get("/replay?runs=one,secret&batch=b1").text
        (replay,) = found.portal.call(lambda: found.executor.runs(relation="replay")).runs
        assert replay.parent is not None
        assert replay.parent.run_id == "one"


def test_what_a_run_says_is_text() -> None:
    with api() as found:
        found.post("runs", 201, graph="plain", input=HOSTILE, run_id="one", wait=True)
        found.post("replays", 201, runs=["one", "<b>"], batch="b1")
        over(found, "b1", "one", "<b>")
        for query in ("runs=one", "runs=one,<b>&batch=b1"):
            text = found.client.get(f"/replay?{query}").text
            assert "window.pwned" in text
            assert faults(text) == []


@pytest.mark.full
def test_no_more_than_a_few_batches_go_on_at_the_same_time() -> None:
    with held() as (found, gate):
        found.portal.call(gate.go.set)
        found.settled("one")
        gate.go.__init__()  # type: ignore[misc]  # closed once more
        for number in range(8):
            found.post("replays", 201, runs=["one"], batch=f"b{number}")
        problem = found.post("replays", 503, runs=["one"])
        assert "8 batches" in problem["detail"]
        found.post("replays/stop", batch="b0")
        over(found, "b0", "one")
        found.post("replays", 201, runs=["one"], batch="b9")
        found.portal.call(gate.go.set)
        over(found, "b9", "one")

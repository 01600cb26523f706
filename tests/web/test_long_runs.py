"""The page of a long run: it opens with the first records, and the rest comes part by part."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Graph, ToolCall, tool
from orchestrator.kernel.records import Record
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Confirm
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.strategies.react import react
from orchestrator.testing import ScriptedModel
from orchestrator.web.screens import run_feed
from tests.support.executors import Log, count, counting
from tests.support.sizes import sized
from tests.web.api import Api, api
from tests.web.windows import Screens

PART = 20
asking = Graph(
    name="asking", state=Log, nodes={"count": count, "confirm": Confirm(prompt="Send it?")},
    edges="START -> count\ncount -> count : again\ncount -> confirm : enough\n"
    "confirm -> END : approved\nconfirm -> END : denied",
    output="n", limits=counting().limits,
)  # fmt: skip


@tool(risk="none", effect="pure")
def look(number: int) -> str:
    """Look.

    Args:
        number: which.
    """
    return f"thing {number}"


def looking(rounds: int) -> ScriptedModel:
    """A model that looks at one thing after another, and then answers."""

    def reply(request: ModelRequest) -> Reply:
        number = sum(one.role == "tool" for one in request.messages) + 1
        call = ToolCall(id=f"c{number}", name="look", arguments={"number": number})
        return Reply(text="I look.", tool_calls=(call,)) if number <= rounds else Reply(text="That was all.")

    return ScriptedModel(reply)


@contextmanager
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int) -> Iterator[Api]:
    """A server with the ended run `talk` of an agent, of which each answer has `PART` records and 10 entries."""
    monkeypatch.setattr(run_feed, "PART", PART)
    monkeypatch.setattr(run_feed, "ENTRIES", 10)
    graph, url = react(tools=[look], name="agent", max_steps=rounds + 1), f"sqlite:///{tmp_path}/runs.db"
    with api(graph, store=url, model=looking(rounds)) as served:
        served.post("runs", 201, graph="agent", run_id="talk", input="Look.", wait=True)
    with api(graph, store=url) as served:  # it has read nothing yet
        yield served


class Counting(SQLiteStore):
    """A store that remembers how many records each read gave."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reads: list[int] = []

    async def read(self, *args: Any, **kw: Any) -> list[Record]:
        found = await super().read(*args, **kw)
        self.reads.append(len(found))
        return found


@contextmanager
def long_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[tuple[Api, Counting]]:
    """A server with a run that has ended, and one that asks."""
    monkeypatch.setattr(run_feed, "PART", PART)
    with api(counting(), asking, store=f"sqlite:///{tmp_path}/runs.db") as served:
        for graph, run_id in (("counting", "ended"), ("asking", "asks")):
            body = {"graph": graph, "run_id": run_id, "input": {"until": steps}, "wait": True}
            assert served.post("runs", 201, **body)["steps"] >= steps
    store = Counting(f"{tmp_path}/runs.db")
    with api(counting(), asking, store=store) as served:
        yield served, store


def opened(served: Api, run_id: str) -> dict[str, Any]:
    """What the page of a run begins with."""
    text = served.client.get(f"/runs/{run_id}").text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def changed(served: Api, run_id: str, version: str) -> dict[str, Any]:
    """What the page gets that has a version."""
    answer: dict[str, Any] = served.client.get(f"/runs/{run_id}/data?after={version}").json()
    return answer


@pytest.mark.full
@pytest.mark.parametrize("steps", [sized(50, 200), sized(200, 2000)])
def test_each_answer_is_made_of_as_few_records_however_long_the_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    with long_runs(tmp_path, monkeypatch, steps) as (served, store):
        document = opened(served, "ended")
        assert sum(store.reads) <= 3 * PART
        assert (document["head"], document["of"]) == (PART, steps + 2)
        assert (document["status"], document["output"], document["counted"]) == ("completed", str(steps), steps)
        assert document["why"] == f"{PART} of {steps + 2:,} records are read"
        seen, version, change = document["head"], document["version"], document
        while seen < document["of"]:
            store.reads.clear()
            change = changed(served, "ended", version)
            assert sum(store.reads) <= PART
            assert len(change["steps"]) <= PART + 1
            version = change["version"]
            seen, before = change["head"]["head"], seen
            assert seen == min(before + PART, steps + 2)
        assert change["output"] == steps
        assert "read" not in change["head"]["why"]
        assert change["head"]["of"] == change["head"]["head"]


@pytest.mark.full
def test_a_page_that_comes_later_gets_what_is_read_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with long_runs(tmp_path, monkeypatch, 90) as (served, _):
        first, *_, later = [opened(served, "ended") for _ in range(4)]
        assert later["head"] == first["head"] + 3 * PART
        assert len(changed(served, "ended", first["version"])["steps"]) > 3 * PART
        whole = changed(served, "ended", "of-another-server.1")["whole"]
        assert [step["seq"] for step in whole["steps"]] == [*range(2, 92)]


@pytest.mark.full
def test_what_a_run_was_before_it_was_reopened_is_read_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with long_runs(tmp_path, monkeypatch, 50) as (served, _):
        served.post("runs/asks/cancel")
        served.settled("asks")
        served.post("runs/asks/resume", retry=True)
        served.settled("asks")
        document = opened(served, "asks")
        version, change = document["version"], document
        for _ in range(10):
            change = changed(served, "asks", version)
            version = (change.get("whole") or change)["version"]
        head = change["head"]
        assert head["head"] == head["of"] == served.get("runs/asks")["seq"]
        assert head["status"] == "paused"


@pytest.mark.full
@pytest.mark.parametrize(
    ("bound", "lately", "kept"),
    [
        ("_RECORDS", 60.0, True),
        ("_RECORDS", 0.0, False),
        ("_SIZE", 60.0, True),
        ("_SIZE", 0.0, False),
        ("_MOST", 60.0, False),
    ],
)
def test_long_and_large_runs_that_are_followed_at_the_same_time_are_both_read_to_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, lately: float, kept: bool
) -> None:
    monkeypatch.setattr(run_feed, bound, 60)
    monkeypatch.setattr(run_feed, "_LATELY", lately)
    with long_runs(tmp_path, monkeypatch, 50) as (served, _):
        versions = {run_id: opened(served, run_id)["version"] for run_id in ("ended", "asks")}
        heads, again = dict.fromkeys(versions, 0), 0
        for _ in range(6):
            for run_id in versions:
                change = changed(served, run_id, versions[run_id])
                again += "whole" in change
                found = change.get("whole") or change
                versions[run_id], heads[run_id] = found["version"], (change.get("whole") or change["head"])["head"]
        if kept:
            assert (again, min(heads.values())) == (0, 52)
        else:  # the one that was not asked for the longest time was forgotten
            assert again


def said(served: Api, before: int) -> dict[str, Any]:
    """Entries of the transcript for the page."""
    answer: dict[str, Any] = served.client.get(f"/runs/talk/data?talk={before}").json()
    return answer


def test_the_newest_entries_of_a_transcript_come_before_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, 12) as served:
        whole = served.get("runs/talk/transcript")["entries"]
        assert opened(served, "talk")["head"] == PART
        newest = said(served, 0)
        assert newest["count"] == len(whole)
        assert newest["entries"][-1]["call"]["result"]["text"] == "That was all."
        found = newest["entries"]
        while found[0]["number"] > 1:
            found = said(served, found[0]["number"])["entries"] + found
        assert [(one["number"], one["said"][1], one["node"]) for one in found] == [
            (one["number"], one["seq"], one["node"]) for one in whole
        ]
        assert [one["said"][0] for one in found] == [one["kind"] for one in whole]
        version = opened(served, "talk")["version"]
        while (change := changed(served, "talk", version))["head"]["head"] < change["head"]["of"]:
            version = change["version"]
        assert said(served, 0) == newest  # and the same when all is read
        assert said(served, 1)["entries"] == []


def test_each_message_is_on_the_page_once_however_many_requests_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path, monkeypatch, 12) as served:
        monkeypatch.setattr(run_feed, "PART", 1000)
        calls = [call for step in opened(served, "talk")["steps"] for call in step.get("calls", ())]
        asked = [call for call in calls if call["kind"] == "model"]
        assert len(asked) == 13
        assert [len(call["messages"]) for call in asked[1:]] == [2] * 12
        sizes = [len(call["messages"]) + call.get("behind", [0, 0])[1] for call in asked]
        assert sizes == [sizes[0] + 2 * number for number in range(13)]
        assert [call["behind"][0] for call in asked[1:]] == [call["seq"] for call in asked[:-1]]


@pytest.mark.parametrize("query", ["talk=-1", "talk=x", f"talk={2**53 + 1}"])
def test_other_places_in_a_transcript_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    with agent(tmp_path, monkeypatch, 1) as served:
        assert served.client.get(f"/runs/talk/data?{query}").status_code == 422
        assert served.client.get("/runs/other/data?talk=0").status_code == 404


@pytest.mark.browser
def test_the_newest_messages_of_a_long_run_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    with agent(tmp_path, monkeypatch, 120) as served:
        screens = Screens(browser, served.url)
        whole = served.get("runs/talk/transcript?limit=1000")["entries"]
        page = screens.open("/runs/talk#view=transcript")
        last = page.locator("#a-talk .entry").last
        last.filter(has_text="That was all.").wait_for()
        page.wait_for_selector(f"#a-moment:has-text('record {served.get('runs/talk')['seq']:,}/')")
        assert "That was all." in last.inner_text()  # who reads the end still does
        earlier = page.locator("#a-talk .part").first
        while earlier.is_visible():
            earlier.click()
        assert page.locator("#a-talk .entry").count() == len(whole)
        last.locator(".by .link", has_text="think").click()
        page.wait_for_selector(f"#a-slider[aria-valuetext*='step {len(opened(served, 'talk')['steps']) - 1} of']")
        page.click("#a-tab-model")
        sent = page.locator("#a-panel .message")
        assert sent.count() == 2 * 120 + 2 + 1  # system, question, rounds, reply
        screens.close()
        assert not screens.faults


@pytest.mark.browser
def test_the_address_of_a_late_step_leads_there_when_the_page_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    with agent(tmp_path, monkeypatch, 60) as served:
        screens = Screens(browser, served.url)
        for address, place in (("step=200", "step 200 of"), ("seq=300", "record 300 of")):
            page = screens.open(f"/runs/talk#{address}")
            page.wait_for_selector(f"#a-slider[aria-valuetext*='{place}']")
            page.wait_for_selector(f"#a-slider[max='{served.get('runs/talk')['seq']}']")
            assert place in str(page.get_attribute("#a-slider", "aria-valuetext"))
            assert address in page.url
            assert page.inner_text("#a-said") == ""
        screens.close()
        assert not screens.faults


@pytest.mark.browser
def test_the_page_reads_on_until_it_has_the_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    with long_runs(tmp_path, monkeypatch, 130) as (served, _):
        screens = Screens(browser, served.url)
        page = screens.open("/runs/ended")
        assert page.inner_text("#a-status") == "completed"
        assert "130" in page.inner_text("#a-cards")
        page.wait_for_selector("#a-moment:has-text('record 132/132')")
        assert page.evaluate("document.querySelector('#a-slider').max") == "132"
        assert "records are read" not in page.inner_text("#a-why")
        rows = page.locator(".rows [role=treeitem]").count()
        moment, marks = page.inner_text("#a-moment"), page.inner_html("#a-canvas")
        page.reload()  # the server has all of it now, and gives it at once
        page.wait_for_selector("#a-moment:has-text('record 132/132')")
        assert page.inner_text("#a-moment") == moment
        assert page.locator(".rows [role=treeitem]").count() == rows
        assert page.inner_html("#a-canvas").strip() == marks.strip()
        screens.close()
        assert not screens.faults


@pytest.mark.browser
def test_a_long_run_that_asks_is_answered_and_followed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    with long_runs(tmp_path, monkeypatch, 130) as (served, _):
        screens = Screens(browser, served.url)
        page = screens.open("/runs/asks")
        page.wait_for_selector("#questions article.card:not(.over)")
        page.click("#questions article.card:not(.over) >> text=Approve")
        page.wait_for_selector("#a-status:text-is('completed')")
        page.wait_for_selector(f"#a-moment:has-text('record {served.get('runs/asks')['seq']}/')")
        screens.close()
        assert not screens.faults

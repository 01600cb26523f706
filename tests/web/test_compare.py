"""Runs compared side by side, over the API and on their screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from orchestrator import Executor, Graph, Limits, Outcome, node
from orchestrator.web import alignments
from orchestrator.web.alignments import align
from orchestrator.web.screens.compare import lines_of
from tests.web import essays
from tests.web.api import Api, Note, api, held
from tests.web.hostile import HOSTILE, faults

NAMED = 'a,"b"<i>\'c'
"""An id with what separates ids, and what separates attributes."""


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    """A server with a run, a fork of it with another state, and a replay."""
    with api(essays.writing(), model=essays.model()) as found:
        found.post("runs", 201, graph="writing", input="tea", run_id="parent", wait=True)
        found.post("runs/parent/fork", 201, at=2, update={"topic": "coffee"}, run_id="fork")
        assert found.settled("fork")["status"] == "completed"
        found.post("runs/parent/replay", 201, run_id="replay")
        found.post("runs", 201, graph="writing", input="milk", run_id=NAMED, wait=True)
        yield found


def rows(text: str) -> dict[str, str]:
    """The rows of the steps on the screen."""
    return {row[1]: row[0] for row in re.finditer(r'<tr id="row-\w+" data-step="([^"]*)".*?</tr>', text, re.DOTALL)}


def test_a_fork_is_put_beside_its_parent_row_by_row(served: Api) -> None:
    found = served.get("diff/steps?runs=parent,fork")
    assert [run["run_id"] for run in found["runs"]] == ["parent", "fork"]
    assert [row["key"] for row in found["rows"]] == ["start", "1:/check", "1:/draft", "1:/polish", "end"]
    assert [[note["kind"] for note in row["differences"][0]] for row in found["rows"]] == [
        ["state"], [], ["request", "update"], ["request", "update"], ["output"],
    ]  # fmt: skip
    assert (found["total"], found["differing"], found["first"]["key"], found["cursor"]) == (5, 4, "start", None)
    one, other = found["rows"][2]["steps"]
    assert (one["number"], one["status"], one["outcome"]) == (2, "done", "done")
    assert other["tokens"] - one["tokens"] == len("coffee") - len("tea")
    assert one["cost"] > 0
    parent, fork = found["runs"]
    assert fork["tokens"] > parent["tokens"], "with what it inherited"


def test_rows_come_in_parts_and_only_those_that_differ(served: Api) -> None:
    first = served.get("diff/steps?runs=parent,fork&limit=2")
    assert ([row["key"] for row in first["rows"]], first["cursor"]) == (["start", "1:/check"], 2)
    rest = served.get("diff/steps?runs=parent,fork&limit=3&after=2")
    assert ([row["number"] for row in rest["rows"]], rest["cursor"]) == ([2, 3, 4], None)
    differing = served.get("diff/steps?runs=parent,fork&different=true&limit=3")
    assert ([row["key"] for row in differing["rows"]], differing["cursor"]) == (["start", "1:/draft", "1:/polish"], 3)
    assert served.get("diff/steps?runs=parent,replay&different=true")["rows"] == []


def test_the_texts_of_a_step_show_its_prompts_its_answer_and_the_state_behind_it(served: Api) -> None:
    found = served.get("diff/step?runs=parent,fork,replay&step=1:/draft")
    request, update = found["row"]["differences"][0]
    assert "-Write about tea." in request["lines"]
    assert "+Write about coffee." in request["lines"]
    assert any("An essay that answers: Write about coffee" in line for line in update["lines"])
    assert found["row"]["differences"][1] == []
    fork, replay = found["states"]
    assert (fork["run_id"], fork["same"], replay["same"], replay["lines"]) == ("fork", False, True, [])
    assert '+"topic": "coffee"' in fork["lines"]
    end = served.get("diff/step?runs=parent,fork&step=end")
    assert [note["kind"] for note in end["row"]["differences"][0]] == ["output"]
    assert served.get("diff/step?runs=parent,fork&step=start")["states"] == []
    served.get("diff/step?runs=parent,fork&step=7:/draft", 404)
    for step in ("", "draft", "x:/draft", "-1:/draft"):
        served.get(f"diff/step?runs=parent,fork&step={step}", 422)


def test_runs_that_cannot_be_compared_are_a_clear_page(served: Api) -> None:
    seven = ",".join(["parent", *"bcdefg"])
    for runs, status, said in (
        ("parent,nothing", 404, "nothing"),
        (seven, 422, "name 2 to 6 runs, and not 7"),
        ("parent,fork,parent", 422, "is listed twice"),
    ):
        assert said in served.get(f"diff/steps?runs={runs}", status)["detail"] + str(
            served.get(f"diff/steps?runs={runs}", status)
        )
        answer = served.client.get(f"/compare?runs={runs}", headers={"Accept": "text/html"})
        assert answer.status_code == status
        assert "<!DOCTYPE html>" in answer.text
        assert said in answer.text
    for runs, count in (("parent", 1), ("", 0)):
        assert f"name 2 to 6 runs, and not {count}" in served.get(f"diff/steps?runs={runs}", 422)["detail"]


def test_the_screen_has_the_rows_the_figures_and_a_way_to_the_first_difference(served: Api) -> None:
    text = served.client.get("/compare?runs=parent,fork").text
    assert faults(text) == []
    found = rows(text)
    assert list(found) == ["start", "1:/check", "1:/draft", "1:/polish", "end"]
    assert "first difference" in found["start"]
    assert 'href="/runs/parent#step=2"' in found["1:/draft"]
    assert 'href="/runs/fork#step=2"' in found["1:/draft"]
    assert '<span class="kind">request</span>' in found["1:/draft"]
    assert '<b class="change" title="tokens, compared with A">+3</b>' in found["1:/draft"]
    assert "differs" not in found["1:/check"]
    assert "4 of 5 rows differ" in text
    (first,) = re.findall(r'id="first" href="([^"]*)"', text)
    assert first.startswith("/compare?runs=parent%2Cfork&amp;step=start#row-")
    assert 'data-changes="/diff/steps?runs=parent%2Cfork"' in text


def test_a_row_that_the_address_names_is_open_and_words_that_differ_are_marked(served: Api) -> None:
    text = served.client.get("/compare?runs=parent,fork&step=1:/draft").text
    assert faults(text) == []
    assert "Write about <mark>coffee</mark>." in text
    assert "Write about <mark>tea</mark>." in text
    part = served.client.get("/compare/step?runs=parent,fork&step=1:/draft").text
    assert "Write about <mark>coffee</mark>." in part
    assert "<!DOCTYPE" not in part
    assert served.client.get("/compare?runs=parent,fork&step=9:/draft").status_code == 404


def test_a_page_of_many_rows_leads_to_the_first_difference_on_another_page(served: Api) -> None:
    text = served.client.get("/compare?runs=parent,replay&limit=2").text
    assert 'id="first"' not in text
    assert "All took the same steps" in text
    text = served.client.get("/compare?runs=fork,parent&limit=2&after=4").text
    assert list(rows(text)) == ["end"]
    assert "rows 5 to 5 of 5" in text
    (first,) = re.findall(r'id="first" href="([^"]*)"', text)
    assert "start" in rows(served.client.get(first.replace("&amp;", "&").partition("#")[0]).text)
    assert 'rel="prev"' in text
    assert "No rows here" in served.client.get("/compare?runs=fork,parent&after=50").text
    assert "Nothing differs" in served.client.get("/compare?runs=parent,replay&different=true").text


def test_an_id_with_commas_is_named_in_a_parameter_of_its_own(served: Api) -> None:
    query = f"runs=parent&runs={quote(NAMED)}"
    assert [run["run_id"] for run in served.get(f"diff/steps?{query}")["runs"]] == ["parent", NAMED]
    text = served.client.get(f"/compare?{query}").text
    assert faults(text) == []
    assert f'data-changes="/diff/steps?runs=parent&amp;runs={quote(NAMED)}"' in text


def test_a_run_that_goes_on_is_followed() -> None:
    with held(settings={"poll": 0.05}) as (found, gate):
        found.start("plain", run_id="two")
        stream = found.stream("diff/steps?runs=one,two", {"Accept": "text/event-stream"})
        assert next(stream) == {"type": "ready"}
        before = found.get("diff/steps?runs=one,two")
        assert before["rows"][1]["steps"][0]["status"] == "running"
        found.portal.call(gate.go.set)
        assert next(stream) == {"type": "changed"}
        assert found.settled("one")["status"] == "completed"
        assert found.get("diff/steps?runs=one,two")["rows"][1]["steps"][0]["status"] == "done"
        stream.close()


def test_authorize_is_asked_about_each_run() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if run is not None and run.run_id == "secret" else "ann"

    with api(settings={"authorize": authorize}) as found:
        found.start("plain", run_id="one")
        found.portal.call(found.executor.submit, "plain", "bees")
        found.portal.call(lambda: found.executor.submit("plain", "bees", run_id="secret"))
        found.get("diff/steps?runs=one,secret", 404)
        found.get("diff/step?runs=one,secret&step=start", 404)
        for path in ("/compare?runs=one,secret", "/compare/step?runs=one,secret&step=start"):
            assert found.client.get(path).status_code == 404


@pytest.mark.full
def test_what_a_run_says_is_text() -> None:
    with api() as found:
        for run_id, text in (("one", HOSTILE), ("two", f"{HOSTILE} {HOSTILE}")):
            found.post("runs", 201, graph="plain", input=text, run_id=run_id, wait=True)
        for step in ("start", "end", "1:/draft"):
            for path in (f"/compare?runs=one,two&step={step}", f"/compare/step?runs=one,two&step={step}"):
                text = found.client.get(path).text
                assert "window.pwned" in text
                assert faults(text) == []
        assert found.client.get("/api/diff/steps?runs=one,two").text.isascii()


def test_secrets_are_blanked() -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    with api() as found:
        for run_id, text in (("one", f"bees {secret}"), ("two", f"wasps {secret}1")):
            found.post("runs", 201, graph="plain", input=text, run_id=run_id, wait=True)
        paths = ["/api/diff/steps?runs=one,two", "/compare?runs=one,two"]
        paths += [f"/compare/step?runs=one,two&step={step}" for step in ("start", "end", "1:/draft")]
        for path in paths:
            answer = found.client.get(path)
            assert answer.status_code == 200
            assert secret not in answer.text


def test_words_that_differ_are_marked_across_lines_and_long_texts_are_marked_whole() -> None:
    diff = ["@@ -1 +1,2 @@", " same", "-one two three", "+one", "+2 three", "@@ -9 +9 @@", "-x", "… 7 more lines"]
    assert [(line.kind, line.parts) for line in lines_of(diff)] == [
        ("alike", [("same", False)]),
        ("cut", [("one", False), (" two", True), (" three", False)]),
        ("added", [("one", False)]),
        ("added", [("2", True), (" three", False)]),
        ("note", [("⋯", False)]),
        ("cut", [("x", False)]),
        ("note", [("… 7 more lines", False)]),
    ]
    long = lines_of(["-" + "a b " * 600, "+" + "a c " * 600])
    assert [line.parts for line in long] == [[("a b " * 600, False)], [("a c " * 600, False)]]


def test_a_server_that_only_reads_compares() -> None:
    with api(settings={"read_only": True}) as found:
        for run_id in ("one", "two"):
            found.portal.call(lambda run_id=run_id: found.executor.submit("plain", "bees", run_id=run_id))
            found.portal.call(found.executor.wait, run_id, 60)
        assert found.client.get("/compare?runs=one,two").status_code == 200
        text = found.client.get("/runs").text
        assert 'data-bulk="compare"' in text
        assert 'data-bulk="delete"' not in text


def test_the_service_keeps_few_comparisons_and_makes_one_anew_when_a_run_changed(served: Api) -> None:
    assert isinstance(served.executor, Executor)
    for runs in ("parent,fork", "fork,parent", "parent,replay", "replay,parent", "fork,replay"):
        served.get(f"diff/steps?runs={runs}")
    served.post("runs/parent/fork", 201, at=2, run_id="late", start=False)
    before = served.get("diff/steps?runs=parent,late")["runs"][1]["status"]
    served.post("runs/late/resume")
    served.settled("late")
    assert (before, served.get("diff/steps?runs=parent,late")["runs"][1]["status"]) == ("paused", "completed")


@pytest.mark.parametrize(("size", "aligned"), [(alignments._SIZE, 2), (60, 3)])
def test_of_large_comparisons_only_the_last_is_kept(
    served: Api, monkeypatch: pytest.MonkeyPatch, size: int, aligned: int
) -> None:
    made: list[object] = []

    def counted(runs: Any) -> Any:
        made.append(runs)
        return align(runs)

    monkeypatch.setattr(alignments, "align", counted)
    monkeypatch.setattr(alignments, "_SIZE", size)
    one, other = (f"large-{size}-{number}" for number in range(2))
    for run_id in (one, other):
        served.post("runs", 201, graph="writing", input="tea", run_id=run_id, wait=True)
    for runs in (f"{one},{other}", f"{other},{one}", f"{other},{one}", f"{one},{other}"):
        served.get(f"diff/steps?runs={runs}")
    assert len(made) == aligned


@pytest.mark.full
def test_long_runs_come_in_pages_and_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    late = 0

    @node(effect="pure", outcomes=("more", "done"))
    async def count(state: Note) -> Outcome[str]:
        number = int(state.topic) + 1
        parts = f"{late} later" if number == 700 else ""
        return Outcome("more" if number < 1000 else "done", {"topic": str(number), "parts": parts})

    edges = "START -> count\ncount -> count : more\ncount -> END : done"
    long = Graph(
        name="long", state=Note, input="topic", output="parts", nodes={"count": count}, edges=edges,
        limits=Limits(visits={"count": 1000}),
    )  # fmt: skip
    aligned = 0

    def counted(runs: Any) -> Any:
        nonlocal aligned
        aligned += 1
        return align(runs)

    monkeypatch.setattr(alignments, "align", counted)
    with api(long) as found:
        for run_id in ("one", "two"):
            late += 1
            found.post("runs", 201, graph="long", input="0", run_id=run_id, wait=True)
        text = found.client.get("/compare?runs=one,two").text
        assert len(rows(text)) == 100
        assert "2 of 1,002 rows differ" in text
        (first,) = re.findall(r'id="first" href="([^"]*)"', text)
        assert "after=700" in first
        assert "700:/count" in rows(found.client.get(first.replace("&amp;", "&").partition("#")[0]).text)
        last = found.client.get("/compare?runs=one,two&after=1000").text
        assert list(rows(last)) == ["1000:/count", "end"]
        assert list(rows(found.client.get("/compare?runs=one,two&different=true").text)) == ["700:/count", "end"]
        assert aligned == 1

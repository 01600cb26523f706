"""What the API answers: lists and details of runs, graphs, and commands, as the executor has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from orchestrator import Executor, errors, web
from orchestrator.stores import RunInfo
from orchestrator.web.documents import RunResult, RunRow
from tests.cli.test_run import RESULT
from tests.support.executors import hanging, single
from tests.support.sizes import quick_on
from tests.web.api import GRAPHS, Api, api, held, letter


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    """A server with a run that has ended, one that waits, and one that failed."""
    with api() as found:
        found.start("plain", run_id="done", labels={"user": "ann", "team": "a:b"})
        found.start("letter", run_id="waits", labels={"user": "bob"})
        yield found


# -- reading --------------------------------------------------------------------------------------------------------


def test_runs_are_listed_by_pages_and_filters(server: Api) -> None:
    first = server.get("runs?limit=1")
    second = server.get("runs", params={"limit": 1, "after": first["cursor"]})
    assert [one["run_id"] for page in (first, second) for one in page["runs"]] == ["waits", "done"]
    for query, found in {
        "status=completed": ["done"], "status=paused&status=completed": ["waits", "done"], "status=failed": [],
        "graph=letter": ["waits"], "label=user:ann": ["done"], "label=user:ann&label=team:a:b": ["done"],
        "label=user:ann&label=team:x": [], "q=BEES": ["waits", "done"], "q=wasps": [], "since=0": ["waits", "done"],
        "since=2999-01-01T00:00:00Z": [], "parent=done": [],
        "waiting=true": ["waits"], "waiting=false": ["done"], "q=ann": ["done"], "q=Send": ["waits"],
    }.items():  # fmt: skip
        assert [one["run_id"] for one in server.get(f"runs?{query}")["runs"]] == found, query


def test_runs_and_their_rows_are_the_documents_of_the_command_line() -> None:
    assert set(RunRow.model_fields) == set(RunInfo("r", "g", "running").to_json())
    assert set(RunResult.model_fields) == RESULT


def test_a_row_says_what_happened(server: Api) -> None:
    rows = {one["run_id"]: one for one in server.get("runs")["runs"]}
    assert (rows["done"]["input"], rows["done"]["steps"], rows["done"]["labels"]["user"]) == ("bees", 2, "ann")
    assert "finished" in rows["done"]["output"]
    assert (rows["waits"]["question"], rows["waits"]["waiting"], rows["waits"]["driver"]) == ("Send it?", 1, "")


@pytest.mark.parametrize(
    "query", ["status=x", "limit=0", "limit=x", "since=yesterday", "label=x", "after=%00", "q=" + "x" * 2000]
)
def test_filters_that_do_not_fit_are_named(server: Api, query: str) -> None:
    (wrong,) = {one["field"].partition(".")[0] for one in server.get(f"runs?{query}", 422)["errors"]}
    assert wrong == query.partition("=")[0]


def test_a_run_is_shown_as_it_is_and_as_it_was(server: Api) -> None:
    found = server.get("runs/done")
    assert (found["status"], found["output"]) == ("completed", ["draft of bees", "finished"])
    assert found["state"]["topic"] == "bees"
    assert found["why"]
    before = server.get("runs/done/state?at=2")
    assert (before["seq"], before["status"], before["state"]["parts"]) == (2, "running", ["draft of bees"])
    (branch,) = server.get("runs/waits")["branches"]
    assert branch["node"] == "confirm"


def test_steps_and_records_come_in_parts(server: Api) -> None:
    for name in ("steps", "records"):
        path = f"runs/done/{'history' if name == 'steps' else name}"
        whole = server.get(path)
        assert whole["cursor"] is None
        seen, cursor = [], 0
        while cursor is not None:
            part = server.get(f"{path}?limit=1&after={cursor}")
            seen += part[name]
            cursor = part["cursor"]
        assert seen == whole[name]
    assert [step["node"] for step in server.get("runs/done/history")["steps"]] == ["draft", "finish"]
    assert [one["seq"] for one in server.get("runs/done/records")["records"]] == [1, 2, 3, 4]


def test_a_run_is_drawn_explained_exported_and_written_as_a_page(server: Api) -> None:
    for path, media, text in (
        ("drawing.svg", "image/svg+xml", "<svg"), ("drawing.svg?at=1", "image/svg+xml", "<svg"),
        ("page.html", "text/html", "<!DOCTYPE html>"), ("export", "application/x-ndjson", '{"type":"export"'),
    ):  # fmt: skip
        found = server.client.get(f"/api/runs/done/{path}")
        assert (found.status_code, found.headers["content-type"].partition(";")[0]) == (200, media)
        assert found.text.startswith(text)
    assert server.get("runs/done/why?seq=2")["steps"][0]["step"] == "draft"
    lines = server.client.get("/api/runs/done/export?redact=false").text.splitlines()
    assert [json.loads(line)["type"] for line in lines][:2] == ["export", "graph"]


@pytest.mark.parametrize("path", ["state?at=9", "drawing.svg?at=9", "why?seq=9"])
def test_a_record_that_is_not_there_is_not_found(server: Api, path: str) -> None:
    assert "has 4 records" in server.get(f"runs/done/{path}", 404)["detail"]


@pytest.mark.parametrize("run_id", ["nothing", "x" * 300, "a%20b", "a%00b", "%C3%A4", "a%5Cb", "%E2%80%AE", "..%2F.."])
@pytest.mark.parametrize("path", ["", "/history", "/events", "/page.html"])
def test_a_run_that_is_not_there_is_not_found(server: Api, run_id: str, path: str) -> None:
    server.get(f"runs/{run_id}{path}", 404)


def test_graphs_are_shown_with_their_form(server: Api) -> None:
    assert [one["name"] for one in server.get("graphs")["graphs"]] == sorted(one.name for one in GRAPHS)
    found = server.get("graphs/letter")
    assert found["drawing"].startswith("<svg")
    assert next(iter(found["form"]["properties"])) == "topic"
    assert found["form"]["properties"]["topic"] == {"type": "string", "default": ""}
    assert found["form"]["x-input"] == ["topic"]
    assert found["data"]["nodes"].keys() == letter.nodes.keys()
    server.get("graphs/nothing", 404)
    server.get("graphs/check", 404)


def test_a_graph_file_is_checked_line_by_line(server: Api, tmp_path: Any) -> None:
    nodes = "nodes:\n  a: {kind: ask, prompt: hi, answer: x}\n"
    good = f"name: g\nstate: {{fields: {{x: str}}}}\n{nodes}edges: START -> a -> END\n"
    found = server.post("graphs/check", text=good, draw=True)
    assert (found["ok"], found["graph"], found["problems"]) == (True, "g", [])
    assert found["drawing"].startswith("<svg")
    for text, line, said in (
        (good.replace("a -> END", "b -> END"), 5, "b"),
        (good.replace("kind: ask", "kind: aks"), 4, "ask"),
        (good.replace("state:", "stat:"), 2, "stat"),
        ("name: [", 1, ""), ("- 1", 0, ""), ("", 0, ""), ("a: 1\na: 2", 2, "a"),
    ):  # fmt: skip
        found = server.post("graphs/check", text=text)
        assert found["ok"] is False, text
        assert any(one["line"] == line and said in one["message"] for one in found["problems"]), found
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    code = good.replace("{kind: ask, prompt: hi, answer: x}", f"'{trap}:node'")
    assert server.post("graphs/check", text=code)["skipped"] or not server.post("graphs/check", text=code)["ok"]
    assert not (tmp_path / "sprung").exists()
    assert server.post("graphs/check", text='{"name": "g"}', format="json")["ok"] is False


def test_runs_are_compared_with_the_first(server: Api) -> None:
    found = server.get("diff?runs=done,waits,done")
    assert [one["run_id"] for one in found["runs"]] == ["done", "waits", "done"]
    assert [one["same"] for one in found["diffs"]] == [False, True]
    server.get("diff?runs=done,nothing", 404)
    for runs in ("done", "", ",".join(["done"] * 7)):
        server.get(f"diff?runs={runs}", 422)


def test_what_runs_spent_is_summed_up(server: Api) -> None:
    groups = {one["group"]["graph"]: one for one in server.get("stats?by=graph")["groups"]}
    assert (groups["plain"]["runs"], groups["plain"]["statuses"]) == (1, {"completed": 1})
    (ann,) = server.get("stats?by=label:user&label=user:ann")["groups"]
    assert (ann["group"], ann["runs"]) == ({"label:user": "ann"}, 1)
    assert server.get("stats?until=0")["groups"] == []
    server.get("stats?by=weather", 422)


# -- commands -------------------------------------------------------------------------------------------------------


def test_a_run_is_started_once_by_its_id() -> None:
    with api() as found:
        made = found.client.post("/api/runs", json={"graph": "plain", "input": "bees", "run_id": "mine"})
        assert (made.status_code, made.headers["location"]) == (201, "/api/runs/mine")
        assert found.post("runs", 201, graph="plain", input="bees", run_id="mine")["run_id"] == "mine"
        problem = found.post("runs", 409, graph="plain", input="wasps", run_id="mine")
        assert (problem["type"].rpartition(":")[2], problem["run_id"]) == ("run-exists", "mine")
        assert len(found.get("runs")["runs"]) == 1
        for body in ({"input": {"nothing": 1}}, {"run_id": "a b"}, {"input": {"topic": 3}}):
            found.post("runs", 422, **{"graph": "plain", "input": "bees", **body})
        found.post("runs", 201, graph="plain", limits={"steps": 1}, run_id="limited", wait=True)
        assert found.get("runs/limited")["status"] == "exhausted"


def test_a_question_is_answered_once_and_the_second_client_learns_by_whom() -> None:
    with api() as found:
        (question,) = found.start("letter", run_id="one")["waiting"]
        seen = {"question": question["id"], "digest": question["digest"]}
        assert (
            found.post("runs/one/answer", 409, **{**seen, "digest": "another"}, approve=True)["became"]["status"]
            == "open"
        )
        found.post("runs/one/answer", 404, **{**seen, "question": "nothing"}, approve=True)
        found.post("runs/one/answer", 422, **seen, approve={"args": {"x": 1}})
        found.post("runs/one/answer", 422, **seen, value="yes")
        for both in ({}, {"approve": True, "deny": True}, {"approve": False}, {"deny": None}):
            found.post("runs/one/answer", 422, **seen, **both)
        assert found.get("runs/one")["seq"] == 3
        found.post("runs/one/answer", **seen, deny={"reason": "no bees"}, by="ann")
        assert found.settled("one")["status"] == "completed"
        stale = found.post("runs/one/answer", 409, **seen, approve=True, by="bob")
        assert stale["type"].endswith("stale-answer")
        assert (stale["became"]["status"], stale["became"]["by"]) == ("answered", "ann")
        assert stale["became"]["answer"] == {"type": "deny", "reason": "no bees"}
        assert "ann answered it" in stale["detail"]
        (record,) = [one for one in found.get("runs/one/records")["records"] if one["type"] == "answered"]
        assert record["by"] == "ann"


def test_arguments_are_edited_and_checked() -> None:
    with api() as found:
        (question,) = found.start("payment", run_id="one")["waiting"]
        seen = {"question": question["id"], "digest": question["digest"]}
        found.post("runs/one/answer", 422, **seen, approve={"args": {"amount": "much", "to": "ann"}})
        found.post("runs/one/answer", **seen, approve={"args": {"amount": 7, "to": "ann"}})
        assert found.settled("one")["state"]["args"] == {"amount": 7, "to": "ann"}


def test_a_question_for_a_value_takes_any_json() -> None:
    with api() as found:
        (question,) = found.start("chat", run_id="one")["waiting"]
        found.post("runs/one/answer", question=question["id"], digest=question["digest"], value="well")
        assert found.settled("one")["state"]["tool"] == "well"


def test_a_run_is_paused_resumed_cancelled_retried_and_deleted() -> None:
    with api() as found:
        found.start("letter", run_id="one")
        assert found.post("runs/one/pause", by="ann", reason="lunch")["status"] == "paused"
        found.post("runs/one/resume")
        assert found.post("runs/one/cancel", by="ann")["status"] == "cancelled"
        found.post("runs/one/cancel", 409)
        found.post("runs/one/resume", 409)
        found.post("runs/one/resume", retry=True)
        assert found.settled("one")["status"] == "paused"
        assert found.client.delete("/api/runs/one").json() == {"deleted": ["one"]}
        found.get("runs/one", 404)
        assert found.client.delete("/api/runs/one").status_code == 404


def test_a_run_that_is_driven_is_not_deleted_and_its_pause_is_not_waited_for_without_end() -> None:
    with held(settings={"wait": 0.05}) as (found, gate):
        assert found.client.delete("/api/runs/one").status_code == 409
        assert found.post("runs/one/pause")["status"] == "running"
        found.portal.call(gate.go.set)
        assert found.settled("one")["status"] in ("paused", "completed")


def test_a_fork_and_a_replay_are_runs_of_their_own() -> None:
    with api() as found:
        found.start("plain", run_id="one")
        made = found.client.post("/api/runs/one/fork", json={"at": 2, "update": {"topic": "wasps"}, "run_id": "two"})
        assert (made.status_code, made.headers["location"]) == (201, "/api/runs/two")
        assert found.settled("two")["state"]["topic"] == "wasps"
        assert found.get("runs/two")["parent"] == {"run_id": "one", "seq": 2, "relation": "fork"}
        assert found.get("runs?parent=one")["runs"][0]["run_id"] == "two"
        still = found.post("runs/one/fork", 201, at=2, start=False)
        assert [one["kind"] for one in still["waiting"]] == ["pause"]
        found.post("runs/one/fork", 422, at=99)
        found.post("runs/one/fork", 422, at=2, update={"nothing": 1})
        replay = found.post("runs/one/replay", 201, run_id="three")
        assert (replay["run_id"], replay["same"]) == ("three", True)
        (question,) = found.start("letter", run_id="four")["waiting"]
        forked = found.post(
            "runs/four/fork", 201, answers={question["id"]: {"deny": True, "digest": question["digest"]}}, run_id="five"
        )
        assert found.settled(forked["run_id"])["status"] == "completed"


def test_an_event_is_sent_once_by_its_id() -> None:
    with api() as found:
        found.start("letter", run_id="one")
        for _ in range(2):
            found.post("runs/one/send", event="news", data={"x": 1}, id="e1", by="ann")
        events = [one for one in found.get("runs/one/records")["records"] if one["type"] == "event_received"]
        assert [one["name"] for one in events] == ["news"]
        found.post("runs/one/send", 422, event="")


def test_an_event_that_no_node_waits_for_is_kept_with_a_warning() -> None:
    with api() as found:
        found.start("letter", run_id="one")
        sent = found.post("runs/one/send", event="news")
        assert "no node of graph 'letter' waits for it" in sent["warning"]
        (untaken,) = found.get("runs/one/why")["untaken"]
        assert (untaken["name"], untaken["why"]) == ("news", sent["warning"])


# -- who ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_application_decides_who_may_do_what_and_names_who_did() -> None:
    asked: list[tuple[str, str | None]] = []

    async def authorize(request: Any, action: str, run: Any) -> str | None:
        asked.append((action, None if run is None else run.run_id))
        user = request.headers.get("x-user")
        if user is None or (run is not None and run.labels.get("user") not in (user, None)):
            return None
        return str(user)

    with api(settings={"authorize": authorize, "hosts": None}) as found:
        ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
        found.get("runs", 403)
        found.get("openapi.json", 403)
        for user in ("ann", "bob"):
            body = {"graph": "letter", "input": "bees", "run_id": user, "labels": {"user": user}, "wait": True}
            assert found.client.post("/api/runs", json=body, headers={"x-user": user}).status_code == 201
        assert [one["run_id"] for one in found.get("runs?limit=1", headers=ann)["runs"]] == ["ann"]
        assert [one["run_id"] for one in found.get("questions", headers=bob)["questions"]] == ["bob"]
        found.get("runs/ann", 404, headers=bob)
        found.get("diff?runs=ann,bob", 404, headers=bob)
        same = {"graph": "letter", "input": "bees", "run_id": "ann", "labels": {"user": "bob"}}
        assert found.client.post("/api/runs", json=same, headers=bob).status_code == 409  # it is the run of another
        mine = {"graph": "letter", "input": "bees", "labels": {"user": "ann"}}
        assert found.client.post("/api/runs", json=mine, headers=bob).status_code == 403
        for body, status in (({"run_id": "ann"}, 409), ({"labels": {"user": "ann"}}, 403)):
            assert found.client.post("/api/runs/bob/fork", json=body, headers=bob).status_code == status
        assert found.client.post("/api/runs/bob/replay", json={"run_id": "ann"}, headers=bob).status_code == 409
        (question,) = found.get("runs/ann", headers=ann)["waiting"]
        said = {"question": question["id"], "digest": question["digest"], "approve": True}
        assert found.client.post("/api/runs/ann/answer", json={**said, "by": "eve"}, headers=ann).status_code == 403
        assert found.client.post("/api/runs/ann/answer", json=said, headers=bob).status_code == 404
        assert found.client.post("/api/runs/ann/answer", json={**said, "by": "ann"}, headers=ann).status_code == 200
        found.portal.call(found.executor.wait, "ann", 60)
        records = found.get("runs/ann/records", headers=ann)["records"]
        assert [one["by"] for one in records if one["type"] == "answered"] == ["ann"]
    assert ("answer_question", "ann") in asked
    assert ("list_runs", None) in asked


class User:
    """A user of an application."""

    name = "ann"


@pytest.mark.parametrize("said", [User(), "ann"])
def test_a_principal_is_a_name_or_has_one(said: object) -> None:
    with api(settings={"authorize": lambda *_: said}) as found:
        (question,) = found.start("letter", run_id="one")["waiting"]
        found.post("runs/one/answer", question=question["id"], digest=question["digest"], approve=True)
        assert "ann" in {one.get("by") for one in found.get("runs/one/records")["records"]}


@pytest.mark.parametrize("said", [True, "", 3, object()])
def test_a_principal_without_a_name_is_a_fault_that_lets_nobody_in(said: object) -> None:
    with api(settings={"authorize": lambda *_: said}) as found:
        problem = found.get("runs", 500)
        assert "Traceback" not in str(problem)
        assert "principal" not in str(problem)


# -- problems, and other loops --------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_used_is_a_problem_for_a_while(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise errors.StoreUnavailable("the disk is full")

    monkeypatch.setattr(server.executor.store, "info", full)
    found = server.client.get("/api/runs/done")
    assert (found.status_code, found.headers["retry-after"], found.json()["detail"]) == (503, "1", "the disk is full")


def test_a_fault_of_the_server_is_logged_and_not_told(
    server: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(server.executor.store, "info", broken)
    found = server.client.get("/api/runs/done")
    assert (found.status_code, found.headers["x-content-type-options"]) == (500, "nosniff")
    assert "secret reason" not in found.text
    assert "the secret reason" in caplog.text


def test_another_method_and_another_address_are_problems(server: Api) -> None:
    found = server.client.put("/api/runs/done")
    assert (found.status_code, found.headers["content-type"]) == (405, "application/problem+json")
    assert {one.strip() for one in found.headers["allow"].split(",")} == {"GET", "HEAD", "DELETE"}
    server.get("nothing", 404)
    assert server.client.head("/api/runs").status_code == 200
    assert server.client.head("/api/runs/done/events").status_code == 200
    assert server.client.get("/").headers["location"] == "/runs"


@pytest.mark.anyio
async def test_the_application_works_on_both_event_loops() -> None:
    async with Executor(graphs=GRAPHS) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            made = await client.post("/api/runs", json={"graph": "letter", "input": "bees", "wait": True})
            run_id, (question,) = made.json()["run_id"], made.json()["waiting"]
            assert [one["run_id"] for one in (await client.get("/api/questions")).json()["questions"]] == [run_id]
            said = {"question": question["id"], "digest": question["digest"], "approve": True}
            assert (await client.post(f"/api/runs/{run_id}/answer", json=said)).status_code == 200
            await executor.wait(run_id, 60)
            text = (await client.get(f"/api/runs/{run_id}/events")).text
            assert '"type": "ended"' in text
            for path in ("", "/page.html", "/drawing.svg", "/why", "/export", "/history"):
                assert (await client.get(f"/api/runs/{run_id}{path}")).status_code == 200
            assert (await client.post("/api/graphs/check", json={"text": "name: x"})).status_code == 200


@pytest.mark.full
@pytest.mark.anyio
@quick_on("asyncio")
async def test_the_application_is_mounted_in_another_one() -> None:
    from fastapi import FastAPI
    from starlette.applications import Starlette

    async with Executor(graphs=GRAPHS) as executor:
        for outer in (FastAPI(), Starlette()):
            outer.mount("/agents", web.app(executor))
            transport = httpx2.ASGITransport(app=outer)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                made = await client.post("/agents/api/runs", json={"graph": "plain", "input": "bees", "wait": True})
                assert made.status_code == 201
                assert (await client.get(made.headers["location"])).json()["status"] == "completed"
                described = (await client.get("/agents/api/openapi.json")).json()
                assert described["servers"] == [{"url": "/agents"}]
                assert (await client.get("/agents/")).headers["location"] == "/agents/runs"
        transport = httpx2.ASGITransport(app=web.app(executor, prefix="/agents"))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/agents/api/runs")).status_code == 200
            assert (await client.get("/api/runs")).status_code == 404
        async with httpx2.AsyncClient(transport=transport, base_url="http://example.org") as client:
            assert (await client.get("/agents/api/runs")).status_code == 403
        with pytest.raises(ValueError, match="prefix"):
            web.app(executor, prefix="agents/")


@pytest.mark.anyio
async def test_a_client_that_disconnects_interrupts_no_run() -> None:
    import anyio

    slow, began = hanging()
    graph = single(slow.fn, name="slow")
    async with Executor(graphs=[graph]) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def leave() -> None:
                        await began.wait()
                        scope.cancel()

                    tasks.start_soon(leave)
                    await client.post("/api/runs", json={"graph": "slow", "run_id": "one", "wait": True})
            assert (await client.get("/api/runs/one")).json()["status"] == "running"
            await executor.cancel("one")

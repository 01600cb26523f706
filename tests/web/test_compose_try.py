"""Texts are tried in a store of their own: bounded, asked about, gone with the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
import yaml

from orchestrator import Executor, Graph, OfflineModel, web
from orchestrator.errors import StoreError
from orchestrator.web.compose import scratch
from orchestrator.web.compose.scratch import Scratch, ScratchStore
from tests.web.api import GRAPHS, Api, api, pay

CALL = """\
name: calls
state:
  fields:
    topic: str
    tool: {type: str, default: pay}
    args: {type: 'dict[str, any]', default: {amount: 3, to: bob}}
    result: {type: any, default: null}
input: topic
nodes: {go: {kind: execute}}
edges: START -> go -> END
"""
QUIET = """\
name: quiet
state: {fields: {topic: str, rounds: {type: 'list[int]', default: []}}}
input: topic
nodes: {count: {kind: repeat, times: 3}}
edges: START -> count -> END
"""
ENDLESS = QUIET.replace("START -> count -> END", "['START -> count -> count', 'count -> END : error']")
MODEL = """\
name: asks
state: {fields: {question: str, reply: {type: str, default: ''}}}
input: question
output: reply
nodes: {write: {kind: complete}}
edges: START -> write -> END
"""


@pytest.fixture
def server() -> Iterator[Api]:
    with api(settings={"approve": "write"}) as found:
        yield found


def tried(server: Api, run_id: str) -> Any:
    return server.client.get(f"/try/api/runs/{run_id}").json()


def test_a_text_is_tried_and_is_no_run_of_the_server(server: Api) -> None:
    answer = server.client.post("/api/graphs/try", json={"text": QUIET, "input": "x", "wait": True})
    found = answer.json()
    assert (answer.status_code, found["status"], found["output"]["rounds"]) == (201, "completed", [1, 2, 3])
    assert answer.headers["Location"] == f"/try/api/runs/{found['run_id']}"
    assert server.client.get(answer.headers["Location"]).json()["status"] == "completed"
    assert server.client.get(f"/try/runs/{found['run_id']}").status_code == 200
    assert server.client.get(f"/try/api/runs/{found['run_id']}/history").json()["steps"]
    assert server.get("runs")["runs"] == []
    assert server.get("graphs")["graphs"][0]["name"] != "quiet"
    server.get(f"runs/{found['run_id']}", 404)
    forked = server.client.post(f"/try/api/runs/{found['run_id']}/fork", json={"at": 1})
    assert forked.status_code == 201


@pytest.mark.parametrize("path", ["api/graphs/try", "api/graphs/check", "api/graphs/save", "api/kinds"])
def test_tries_make_no_further_tries(server: Api, path: str) -> None:
    assert server.client.post(f"/try/{path}", json={"text": QUIET}).status_code in (404, 405)
    assert server.client.post("/try/api/runs", json={"graph": "quiet"}).status_code == 405


def test_a_call_that_changes_something_is_asked_about_although_the_text_asks_nothing(server: Api) -> None:
    found = server.post("graphs/try", 201, text=CALL, input="x", wait=True)
    (question,) = found["waiting"]
    assert (found["status"], question["kind"], question["payload"]["tool"]) == ("paused", "approval", "pay")
    body = {"question": question["id"], "digest": question["digest"], "approve": {"args": {"amount": 4, "to": "eve"}}}
    assert server.client.post(f"/try/api/runs/{found['run_id']}/answer", json=body).status_code == 200
    assert ended(server, found["run_id"])["output"]["result"]["output"] == "eve has 4"


def ended(server: Api, run_id: str) -> Any:
    for _ in range(400):
        found = tried(server, run_id)
        if found["status"] not in ("running", "paused"):
            return found
        anyio.run(anyio.sleep, 0.05)
    raise AssertionError(found)


def test_a_denied_call_is_not_made(server: Api) -> None:
    found = server.post("graphs/try", 201, text=CALL, input="x", wait=True)
    (question,) = found["waiting"]
    body = {"question": question["id"], "digest": question["digest"], "deny": {"reason": "no"}}
    server.client.post(f"/try/api/runs/{found['run_id']}/answer", json=body)
    assert "bob has" not in str(ended(server, found["run_id"]))


def test_a_policy_of_the_server_holds_for_tries(server: Api) -> None:
    found = server.post("graphs/try", 201, text=CALL, input="x", wait=True, approve="write")
    assert found["status"] == "completed"
    server.post("graphs/try", 403, text=CALL, input="x", approve="dangerous")


@pytest.mark.full
def test_a_call_in_a_graph_that_is_a_tool_of_the_text_is_asked_about(server: Api) -> None:
    inner = CALL.replace("\n", "\n          ").strip()
    text = f"""\
name: outer
state:
  fields:
    tool: {{type: str, default: calls}}
    args: {{type: 'dict[str, any]', default: {{topic: x}}}}
    result: {{type: any, default: null}}
nodes:
  go:
    kind: execute
    tools:
      - name: calls
        description: Calls.
        graph:
          {inner}
edges: START -> go -> END
"""
    found = server.post("graphs/try", 201, text=text, input={}, wait=True)
    assert found["status"] == "paused", found
    assert [one["payload"]["tool"] for one in found["waiting"]] == ["calls"] or found["waiting"][0]["payload"]


@pytest.mark.parametrize("ref", ["os:system", "tests.web.hostile:x", "no_such_module:x", "tests.web.api:Gate"])
def test_a_text_that_names_other_code_is_not_tried(server: Api, ref: str) -> None:
    text = QUIET.replace("{kind: repeat, times: 3}", f"'{ref}'")
    assert ref in server.post("graphs/try", 422, text=text, input="x")["detail"]
    text = QUIET.replace("{kind: repeat, times: 3}", f"{{kind: call, ref: '{ref}'}}")
    assert ref in server.post("graphs/try", 422, text=text, input="x")["detail"]


def test_a_text_may_use_the_functions_of_the_graphs_of_the_server(server: Api) -> None:
    text = server.get("graphs/plain")["yaml"]
    assert server.post("graphs/try", 201, text=text, input="bees", wait=True)["status"] == "completed"


def test_a_faulty_text_is_refused_with_its_faults(server: Api) -> None:
    server.post("graphs/try", 422, text=QUIET.replace("times: 3", "tims: 3"))
    server.post("graphs/try", 422, text="[")
    server.post("graphs/try", 422, text=QUIET.replace("times: 3", "times: 1000000000"))
    server.post("graphs/try", 422, text=QUIET, input={"nothing": 1})


def test_a_model_is_chosen_by_its_name() -> None:
    with api(model=OfflineModel(), models={"fast": OfflineModel()}) as server:
        for model in (None, "offline", "default", "fast"):
            found = server.post("graphs/try", 201, text=MODEL, input="What is 2+3?", model=model, wait=True)
            assert found["status"] == "completed", found
        assert "there is no model" in server.post("graphs/try", 422, text=MODEL, input="x", model="os:system")["detail"]
        named = MODEL.replace("{kind: complete}", "{kind: complete, model: fast}")
        assert server.post("graphs/try", 201, text=named, input="2+3", wait=True)["status"] == "completed"


def test_a_try_is_limited_whatever_its_text_says(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "STEPS", 7)
    text = ENDLESS.replace("nodes:", "limits: {steps: 100000000}\nnodes:")
    found = server.post("graphs/try", 201, text=text, input="x", limits={"steps": None, "seconds": None}, wait=True)
    assert (found["status"], found["steps"]) == ("exhausted", 7)
    assert server.post("graphs/try", 201, text=text, input="x", limits={"steps": 2}, wait=True)["steps"] == 2


@pytest.mark.full
def test_the_oldest_tries_make_room(server: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_RUNS", 3)
    made = [server.post("graphs/try", 201, text=CALL, input="x", wait=True)["run_id"]]
    made += [server.post("graphs/try", 201, text=QUIET, input="x", wait=True)["run_id"] for _ in range(5)]
    left = {one["run_id"] for one in server.client.get("/try/api/runs").json()["runs"]}
    assert left == {made[0], *made[-2:]}, "those that have ended go first"
    waiting = [server.post("graphs/try", 201, text=CALL, input="x", wait=True)["run_id"] for _ in range(4)]
    left = {one["run_id"] for one in server.client.get("/try/api/runs").json()["runs"]}
    assert left == {*waiting[-3:]}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
async def test_a_store_that_is_full_takes_nothing_until_its_largest_run_is_gone() -> None:
    graph = Graph.from_data(
        {"name": "g", "state": {"fields": {"x": "str"}}, "nodes": {"a": {"kind": "ask", "prompt": "?", "answer": "x"}},
         "edges": "START -> a -> END"}, resolve=True,
    )  # fmt: skip
    async with Executor(graphs=GRAPHS, tools=[pay]) as outer:
        tries = Scratch(outer)
        tries.store = tries.executor.store  # type: ignore[assignment]
        assert isinstance(tries.store, ScratchStore)
        tries.store._most = 20_000
        options: dict[str, Any] = {"model": None, "limits": None, "approve": None, "labels": {}}
        first = await tries.start(graph, {"x": "a" * 30_000}, **options)
        assert tries.store.full
        with pytest.raises(StoreError, match="is full"):
            await tries.executor.start(graph, {"x": "b"})
        second = await tries.start(graph, {"x": "c"}, **options)
        assert [row.run_id for row in (await tries.executor.runs()).runs] == [second.run_id]
        assert first.run_id != second.run_id
        assert not tries.store.full


@pytest.mark.anyio
async def test_old_tries_are_deleted_and_their_graphs_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_data(
        {"name": "g", "state": {"fields": {"x": "str"}}, "nodes": {"a": {"kind": "ask", "prompt": "?", "answer": "x"}},
         "edges": "START -> a -> END"}, resolve=True,
    )  # fmt: skip
    async with Executor(graphs=GRAPHS, tools=[pay]) as outer:
        tries = Scratch(outer)
        await tries.start(graph, {"x": "a"}, model=None, limits=None, approve=None, labels={})
        assert list(tries.executor.graphs) == ["g"]
        monkeypatch.setattr(scratch, "LONGEST", -1.0)
        monkeypatch.setattr(scratch, "_UNUSED", 0.0)
        for _ in range(100):
            if not (await tries.executor.runs()).runs and not tries.executor.graphs and not tries.store.size:
                break
            await anyio.sleep(0.1)
        assert list((await tries.executor.runs()).runs) == []
        assert dict(tries.executor.graphs) == {}
        assert tries.store.size == 0


@pytest.mark.anyio
async def test_tries_work_in_an_application_on_both_event_loops() -> None:
    async with Executor(graphs=GRAPHS, tools=[pay]) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor, prefix="/agents"))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"text": QUIET, "input": "x", "wait": True}
            found = (await client.post("/agents/api/graphs/try", json=body)).json()
            assert found["status"] == "completed", found
            shown = await client.get(f"/agents/try/runs/{found['run_id']}")
            assert shown.status_code == 200
            assert "/agents/try/static/" in shown.text


@pytest.mark.anyio
async def test_authorize_is_asked_about_tries_and_their_runs() -> None:
    asked: list[tuple[str, str | None]] = []

    def authorize(request: Any, action: str, run: Any) -> str | None:
        asked.append((action, None if run is None else run.graph))
        return None if run is not None and run.labels.get("team") == "b" else "ann"

    async with Executor(graphs=GRAPHS, tools=[pay]) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor, authorize=authorize))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"text": QUIET, "input": "x", "wait": True}
            refused = await client.post("/api/graphs/try", json={**body, "labels": {"team": "b"}})
            assert refused.status_code == 403
            found = (await client.post("/api/graphs/try", json=body)).json()
            await client.get(f"/try/api/runs/{found['run_id']}")
    assert ("try_graph", None) in asked
    assert ("try_graph", "quiet") in asked
    assert ("show_run", "quiet") in asked


def test_a_server_that_only_reads_tries_nothing(tmp_path: Any) -> None:
    with api(settings={"read_only": True}) as server:
        assert server.client.post("/api/graphs/try", json={"text": QUIET}).status_code in (404, 405)
        assert server.client.get("/try/api/runs").status_code == 404


def test_a_graph_inside_of_two_is_asked_about_after_one_of_these_is_forgotten() -> None:
    data = yaml.safe_load(CALL.replace("topic: str", "topic: {type: str, default: x}"))
    inner = Graph.from_data(data)
    outer = [
        Graph.from_data({**data, "name": name, "nodes": {"go": {"kind": "subgraph", "graph": data}}})
        for name in ("first", "second")
    ]
    executor = Executor("memory://", tools=[pay])
    for graph in outer:
        executor.add_graph(graph, ask_from="write")
    asked = executor._host.resources.asked
    executor.graphs.remove(outer[0])
    assert (inner.content in asked, outer[0].content in asked) == (True, False)
    executor.graphs.remove(outer[1])
    assert not asked


@pytest.mark.parametrize("limits", [{"steps": None}, {"steps": 10**9}, {"seconds": None}])
def test_the_limits_of_a_try_are_not_lifted_when_it_goes_on(server: Api, limits: dict[str, Any]) -> None:
    found = server.post("graphs/try", 201, text=ENDLESS, input="x", limits={"steps": 5}, wait=True)
    body = {"retry": True, "limits": limits}
    assert server.client.post(f"/try/api/runs/{found['run_id']}/resume", json=body).status_code == 403
    assert tried(server, found["run_id"])["status"] == "exhausted"


def _named(request: Any, action: str, run: object) -> str | None:
    return request.headers.get("x-user")


@pytest.mark.full
def test_a_principal_sees_its_own_tries_only() -> None:
    ann, bob = {"X-User": "ann"}, {"X-User": "bob"}
    with api(settings={"authorize": _named}) as server:
        body = {"text": QUIET, "input": "secret of ann", "wait": True, "labels": {"principal": "bob"}}
        made = server.client.post("/api/graphs/try", json=body, headers=ann).json()
        path = f"/try/api/runs/{made['run_id']}"
        for below in ("", "/history", "/records", "/state", "/drawing.svg", "/export", "/page.html", "/family"):
            assert server.client.get(path + below, headers=ann).status_code == 200, below
            assert server.client.get(path + below, headers=bob).status_code == 404, below
        assert server.client.post(f"{path}/fork", json={"at": 1}, headers=bob).status_code == 404
        forked = server.client.post(f"{path}/fork", json={"at": 1}, headers=ann).json()
        assert server.client.get(f"/try/api/runs/{forked['run_id']}", headers=bob).status_code == 404
        lists = [server.client.get("/try/api/runs", headers=who).json()["runs"] for who in (ann, bob)]
        assert [len(rows) for rows in lists] == [2, 0]


def test_a_principal_sees_the_graphs_and_costs_of_its_own_tries_only() -> None:
    ann, bob = {"X-User": "ann"}, {"X-User": "bob"}
    text = QUIET.replace("name: quiet", "name: of_ann")
    assert text != QUIET
    with api(settings={"authorize": _named}) as server:
        body = {"text": text, "input": "x", "wait": True}
        assert server.client.post("/api/graphs/try", json=body, headers=ann).status_code == 201
        for path in ("api/graphs/of_ann", "graphs/of_ann", "graphs/of_ann/drawing.svg", "compose?graph=of_ann"):
            assert server.client.get(f"/try/{path}", headers=ann).status_code == 200, path
            assert server.client.get(f"/try/{path}", headers=bob).status_code == 404, path
        for path in ("api/graphs", "graphs", "api/stats?by=graph", "costs?by=graph", "compose"):
            seen = ["of_ann" in server.client.get(f"/try/{path}", headers=who).text for who in (ann, bob)]
            assert seen == [True, False], path


@pytest.mark.anyio
async def test_tries_of_one_principal_do_not_push_out_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.from_data(yaml.safe_load(QUIET), resolve=True)
    monkeypatch.setattr(scratch, "MOST_RUNS", 4)
    options: dict[str, Any] = {"model": None, "limits": None, "approve": None, "labels": {}}
    async with Executor(graphs=GRAPHS, tools=[pay]) as outer:
        tries = Scratch(outer)
        kept = await tries.start(graph, {"topic": "a"}, **options, principal="ann")
        await tries.executor.wait(kept.run_id)
        for _ in range(9):
            made = await tries.start(graph, {"topic": "b"}, **options, principal="bob")
            await tries.executor.wait(made.run_id)
        rows = (await tries.executor.runs()).runs
        assert [row.labels["principal"] for row in rows] == ["bob"] * 3 + ["ann"]
        assert rows[-1].run_id == kept.run_id

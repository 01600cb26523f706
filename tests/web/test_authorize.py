"""What `authorize` refuses is nowhere: in lists, families, replays and streams, and by no other name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from orchestrator.web.endpoint import Endpoint
from orchestrator.web.replays import id_of
from orchestrator.web.routes import ROUTES
from tests.web.api import Api, api, letter, loud, payment, plain

OPENED = {"Accept": "text/event-stream"}


class Rules:
    """Refuses runs by their ids, by their graphs, and those that are labelled as secret."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.graphs: set[str] = set()
        self.on = True

    def __call__(self, request: Any, action: str, run: Any) -> str | None:
        if not self.on or run is None:
            return "ann"
        secret = run.labels.get("secret") == "yes" and "x-chief" not in request.headers
        return None if secret or run.run_id in self.ids or run.graph in self.graphs else "ann"


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def server(rules: Rules) -> Iterator[Api]:
    settings = {"authorize": rules, "poll": 0.05, "recheck": 0.2}
    with api(plain, letter, payment, loud, settings=settings) as found:
        yield found


CHIEF = {"x-chief": "1"}


def secret(server: Api, path: str, **body: Any) -> Any:
    answer = server.client.post(f"/api/{path}", json=body, headers=CHIEF)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def listed(server: Api, path: str = "runs") -> set[str]:
    return {row["run_id"] for row in server.get(path)["runs"]}


def test_a_replay_of_a_run_is_hidden_with_it(server: Api) -> None:
    secret(server, "runs", graph="plain", input="x", run_id="one", labels={"secret": "yes"}, wait=True)
    secret(server, "runs/one/replay", run_id="again")
    secret(server, "runs/again/fork", run_id="forked", at=1, start=False)
    secret(server, "runs/again/replay", run_id="third")
    for run_id in ("one", "again", "forked", "third"):
        for path in (f"runs/{run_id}", f"runs/{run_id}/records", f"runs/{run_id}/state", f"runs/{run_id}/events"):
            server.get(path, 404)
        assert server.client.get(f"/api/runs/{run_id}", headers=CHIEF).status_code == 200
    assert listed(server) == set()
    server.post("runs/again/fork", 404, at=1)
    server.get("diff/steps?runs=one,again", 404)


def same_answers(server: Api, method: str, path: str, **options: Any) -> httpx2.Response:
    """The answer to a request about a run that is hidden, which is that about a run that there is not."""
    answers = []
    for run_id in ("run-of-hers", "run-of-none"):
        text = json.dumps(options.get("json", {})).replace("ID", run_id)
        found = server.client.request(
            method,
            path.replace("ID", run_id),
            headers=options.get("headers"),
            content=None if method == "GET" else text,
        )
        said = found.text.replace(run_id, "ID").replace(id_of("b1", run_id), "REPLAY")
        answers.append((found.status_code, found.headers["content-type"], said))
    assert answers[0] == answers[1]
    return found


@pytest.mark.parametrize("route", [route for route in ROUTES if route.of_run], ids=lambda route: route.action)
def test_a_run_that_is_hidden_is_answered_for_as_one_that_there_is_not(route: Endpoint, rules: Rules) -> None:
    with api(settings={"authorize": rules}) as server:
        server.start("letter", run_id="run-of-hers")
        rules.ids.add("run-of-hers")
        path = route.path.replace("{run_id}", "ID")
        body = {"content-type": "application/json"}
        assert same_answers(server, route.method, path, headers=body).status_code == 404
        if route.media == "text/html":
            assert same_answers(server, route.method, path, headers={"accept": "text/html"}).status_code == 404
        rules.ids.clear()
        assert server.get("runs/run-of-hers")["status"] == "paused"


def test_a_run_that_is_hidden_is_not_told_from_one_that_there_is_not_where_requests_name_runs(
    server: Api, rules: Rules
) -> None:
    server.start("plain", run_id="one")
    server.start("plain", run_id="run-of-hers")
    server.post("replays", 201, runs=["run-of-hers"], batch="b1")
    rules.ids.add("run-of-hers")
    for path in ("diff?runs=one,ID", "diff/steps?runs=one,ID", "diff/step?runs=one,ID&step=start"):
        assert same_answers(server, "GET", f"/api/{path}").status_code == 404
    for path in ("/compare?runs=one,ID", "/compare/step?runs=one,ID&step=start", "/replay?runs=one,ID"):
        assert same_answers(server, "GET", path, headers={"accept": "text/html"}).status_code == 404
    assert same_answers(server, "GET", "/api/replays?runs=ID&batch=b1").json()["replays"][0]["error"]
    said = {"runs": ["ID"], "batch": "b1"}
    answer = same_answers(server, "POST", "/api/replays", json=said, headers={"content-type": "application/json"})
    assert answer.json()["replays"][0]["outcome"] == "failed"
    for run_id, batch in (("run-of-hers", "b1"), ("run-of-none", "b3")):
        answer = server.client.post("/api/replays/stop", json={"batch": batch})
        assert (answer.status_code, "batch-unknown" in answer.text) == (404, True), run_id
    assert len(server.portal.call(lambda: server.executor.runs(relation="replay")).runs) == 1


def test_an_id_that_is_taken_by_a_hidden_run_is_taken(server: Api) -> None:
    server.start("plain", run_id="one")
    secret(server, "runs", graph="plain", input="bees", run_id="run-of-hers", labels={"secret": "yes"}, wait=True)
    for path, body in (
        ("runs", {"graph": "plain", "input": "bees"}), ("runs", {"graph": "plain", "input": "another"}),
        ("runs/one/fork", {"at": 1}), ("runs/one/replay", {}),
    ):  # fmt: skip
        assert server.post(path, 409, run_id="run-of-hers", **body)["detail"] == (
            "run 'run-of-hers' exists already: another run has this id; choose another run id"
        )


def test_a_principal_that_sees_a_run_is_told_what_it_may_not_do() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if action in ("delete_run", "run_page") else "ann"

    with api(settings={"authorize": authorize}) as server:
        server.start("plain", run_id="one")
        answer = server.client.delete("/api/runs/one")
        assert (answer.status_code, answer.json()["detail"]) == (403, "you may not do this here: delete_run")


def test_a_question_of_a_replay_is_hidden_with_its_run(server: Api) -> None:
    secret(server, "runs", graph="letter", input="x", run_id="one", labels={"secret": "yes"}, wait=True)
    secret(server, "runs/one/replay", run_id="again", update={"topic": "y"}, at=1)
    assert server.client.get("/api/questions", headers=CHIEF).json()["questions"]
    assert server.get("questions")["questions"] == []
    assert server.client.get("/inbox").text.count("Send it?") == 0


def test_replays_on_a_graph_that_is_hidden_are_not_shown_beside_their_runs(server: Api, rules: Rules) -> None:
    server.start("plain", run_id="one")
    server.post("replays", 201, runs=["one"], graph="letter", batch="b1")
    for _ in range(200):
        shown = server.get("replays?runs=one&batch=b1")
        if not shown["going"]:
            break
    rules.graphs = {"letter"}
    (row,) = server.get("replays?runs=one&batch=b1")["replays"]
    assert (row["outcome"], row["error"]) == ("failed", "you may not see this replay here")
    assert (row["first"], row["before"], row["after"], row["status"]) == ("", "", "", "")
    assert "you may not see" in server.client.get("/replay?runs=one&batch=b1").text


@pytest.mark.full
def test_a_family_counts_only_runs_that_may_be_seen(server: Api, rules: Rules) -> None:
    server.start("plain", run_id="one")
    for number in range(50):
        server.post("runs/one/fork", 201, at=2, run_id=f"fork-{number:02}", start=False)
    rules.ids = {f"fork-{number:02}" for number in range(3, 50)}
    found = server.get("runs/one/family")
    assert [one["run_id"] for one in found["runs"]] == ["one", "fork-00", "fork-01", "fork-02"]
    assert found["more"] == []
    rules.ids = {f"fork-{number:02}" for number in range(20, 50)}
    assert (len(server.get("runs/one/family")["runs"]), server.get("runs/one/family")["more"]) == (21, [])
    rules.ids = {f"fork-{number:02}" for number in range(21, 50)}
    assert (len(server.get("runs/one/family")["runs"]), server.get("runs/one/family")["more"]) == (21, ["one"])


def test_a_family_names_no_parent_that_is_hidden(server: Api, rules: Rules) -> None:
    server.start("plain", run_id="parent-of-all")
    server.post("runs/parent-of-all/fork", 201, at=2, run_id="two", start=False)
    server.post("runs/two/fork", 201, at=2, run_id="three", start=False)
    rules.ids = {"parent-of-all"}
    assert "parent-of-all" not in json.dumps(server.get("runs/two/family"))
    family = {one["run_id"]: one["parent"] for one in server.get("runs/three/family")["runs"]}
    assert family == {"two": "", "three": "two"}


@pytest.mark.parametrize(
    "path",
    [
        "runs/held/events", "diff/steps?runs=held,other", "replays?runs=held,other&batch=b1", "runs", "questions",
        "stats?by=graph", "workers",
    ],
)  # fmt: skip
def test_a_stream_ends_once_its_reader_may_not_have_it(path: str) -> None:
    allowed = True

    def authorize(request: Any, action: str, run: Any) -> str | None:
        return "ann" if allowed else None

    settings = {"authorize": authorize, "poll": 0.05, "recheck": 0.1}
    with api(letter, settings=settings) as server:
        for run_id in ("held", "other"):
            server.start("letter", run_id=run_id)
        came, ended = threading.Event(), threading.Event()

        def read() -> None:
            for _ in server.stream(path, OPENED):
                came.set()
            ended.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        assert came.wait(20)
        assert not ended.wait(0.3), "it goes on while its reader may have it"
        allowed = False
        assert ended.wait(20)
        reader.join(20)


def test_a_stream_ends_where_authorize_fails() -> None:
    broken = False

    def authorize(request: Any, action: str, run: Any) -> str | None:
        if broken:
            raise LookupError("the login is down")
        return "ann"

    with api(letter, settings={"authorize": authorize, "poll": 0.05, "recheck": 0.1}) as server:
        server.start("letter", run_id="one")
        events = server.stream("runs/one/events", {})
        next(events)
        broken = True
        list(events)  # it ends


@pytest.mark.parametrize("yes", [1, 1.0, "true", "yes", 0, False, None, [], {"args": 1}, [True]], ids=repr)
@pytest.mark.parametrize("kind", ["approve", "deny"])
def test_an_approval_is_given_by_true_alone(kind: str, yes: object, server: Api) -> None:
    """In an answer, and in a fork's: whatever else is true somewhere is refused."""
    (question,) = server.start("payment", run_id="one")["waiting"]
    said = {"digest": question["digest"], kind: yes}
    server.post("runs/one/answer", 422, question=question["id"], **said)
    server.post("runs/one/fork", 422, answers={question["id"]: said}, run_id="f")
    server.post("runs/one/fork/preview", 422, answers={question["id"]: said})
    assert server.get("runs/one")["status"] == "paused"
    assert listed(server) == {"one"}

"""What `authorize` refuses is nowhere: in lists, families, replays and streams, and by no other name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

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
            server.get(path, 403)
        assert server.client.get(f"/api/runs/{run_id}", headers=CHIEF).status_code == 200
    assert listed(server) == set()
    server.post("runs/again/fork", 403, at=1)
    server.get("diff/steps?runs=one,again", 403)


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
        assert not ended.wait(0.5), "it goes on while its reader may have it"
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

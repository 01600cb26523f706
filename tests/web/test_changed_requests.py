"""One step again with another request, over the API: who may, what is refused, what it leaves in the journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import Graph
from orchestrator.testing import ScriptedModel
from tests.executor.test_changed_requests import echo, letters
from tests.web.api import Api, api

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with api(letters, model=ScriptedModel(echo)) as found:
        found.post("runs", 201, graph="letters", input="bees", run_id="one", wait=True)
        yield found


def form(server: Api, run: str = "one", at: int = 2) -> Any:
    return server.get(f"runs/{run}/fork/form?at={at}")["request"]


def test_the_form_has_the_messages_and_options(server: Api) -> None:
    found = form(server)
    assert [(one["role"], one["content"], one["whole"]) for one in found["messages"]] == [
        ("system", "Be brief.", True), ("user", "Write about bees", True),
    ]  # fmt: skip
    assert server.get("runs/one/fork/form?at=3")["request"] is None
    assert json.loads(form(server, at=5)["options"]) == {"temperature": 1}


def test_a_step_runs_again_with_an_edited_message(server: Api) -> None:
    found = form(server)
    messages = [{"ref": found["messages"][0]["ref"]}, {"role": "user", "content": HOSTILE}]
    request = {"messages": messages, "digest": found["digest"]}
    preview = server.post("runs/one/fork/preview", at=2, request=request)
    assert preview["steps"] == 0
    server.post("runs/one/fork", 201, at=2, request=request, run_id="two", by="ann")
    fork = server.settled("two")
    assert (fork["status"], fork["state"]["draft"]) == ("paused", f"<Be brief. | {HOSTILE}>")
    assert "with another request" in fork["why"]
    records = {one["type"]: one for one in server.get("runs/two/records")["records"]}
    assert records["forked"]["by"] == "ann"
    (member,) = [one for one in server.get("runs/two/family")["runs"] if one["run_id"] == "two"]
    assert member["differs"][0].startswith("another request: <img")
    kinds = [one["kind"] for one in server.get("diff?runs=one,two")["diffs"][0]["differences"]]
    assert kinds[:2] == ["request", "result"]
    server.post("runs/two/resume")
    assert server.settled("two")["status"] == "completed"


def test_the_fork_may_go_on(server: Api) -> None:
    request = {"options": {"temperature": 0}, "digest": form(server)["digest"]}
    server.post("runs/one/fork", 201, at=2, request=request, pause=False, run_id="on")
    assert server.settled("on")["status"] == "completed"


def test_requests_that_do_not_fit_are_refused(server: Api) -> None:
    known = form(server)["digest"]
    runs = len(server.get("runs")["runs"])
    server.post("runs/one/fork", 409, at=2, request={"options": {"a": 1}, "digest": "f" * 32})  # it is another one
    for request in (
        {"options": {"a": 1}},  # not what was shown
        {"digest": known},
        {"digest": known, "messages": []},
        {"digest": known, "messages": [{"ref": "f" * 32}]},
        {"digest": known, "messages": [{"role": "root", "content": "x"}]},
        {"digest": known, "messages": [{"role": "user", "content": "x", "evil": 1}]},
        {"digest": known, "tools": []},
        {"digest": known, "options": {}},
        "x",
    ):
        server.post("runs/one/fork", 422, at=2, request=request)
        server.post("runs/one/fork/preview", 422, at=2, request=request)
    for at in (1, 99):
        server.post("runs/one/fork", 422, at=at, request={"options": {"a": 1}, "digest": known})
    assert len(server.get("runs")["runs"]) == runs


def test_it_needs_the_right_to_fork() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if action == "fork_run" else "ann"

    graph: Graph = letters
    with api(graph, model=ScriptedModel(echo), settings={"authorize": authorize}) as found:
        found.post("runs", 201, graph="letters", input="bees", run_id="one", wait=True)
        request = {"options": {"temperature": 0}, "digest": form(found)["digest"]}
        found.post("runs/one/fork", 403, at=2, request=request)


def test_a_body_of_many_megabytes_is_refused(server: Api) -> None:
    request = {"messages": [{"role": "user", "content": "x" * 10_000_000}], "digest": form(server)["digest"]}
    server.post("runs/one/fork", 413, at=2, request=request)

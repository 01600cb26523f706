"""Who works on a store, over the API and on its screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.stores.rows import MAX_DEATHS
from tests.web.api import Api, api
from tests.web.hostile import HOSTILE, faults
from tests.web.workers import SAID, announced, announced_dead, held, parked


@pytest.fixture
def served() -> Iterator[Api]:
    """A server whose store has workers in every state, and a parked run."""
    with api() as found:
        held(found, announced(found, "alive"), *(f"run-{number}" for number in range(7)))
        announced(found, "draining", worker={**SAID, "draining": True})
        announced(found, "lapsed", ttl=0.000001)
        announced_dead(found, "dead")
        parked(found, "stuck", "no model: api_key=sk-abcdefghijklmnopqrstuvwx")
        yield found


def rows(text: str) -> dict[str, str]:
    """The rows of the workers on a screen."""
    return {
        row[1]: row[0] for row in re.finditer(r'<tr id="worker-\w+" data-worker="([^"]*)".*?</tr>', text, re.DOTALL)
    }


def test_the_list_has_the_workers_in_every_state_and_the_parked_runs(served: Api) -> None:
    found = served.get("workers")
    assert {one["id"] for one in found["workers"]} == {"alive", "draining", "lapsed", "dead"}
    assert all(one["state"] == one["id"] for one in found["workers"])
    first = found["workers"][0]
    assert (first["host"], first["graphs"], first["more_graphs"], first["slots"]) == ("far", ["plain"], 0, 3)
    assert (first["started"], first["version"], first["ttl"], first["worker"]) == (1.5, "1.2.3", 60.0, True)
    assert (first["held"], len(first["runs"])) == (7, 5)
    assert 0.0 <= first["heartbeat"] < 60.0
    assert {one["state"] for one in found["workers"][2:]} == {"lapsed", "dead"}, "those that live come first"
    (run,) = found["parked"]
    assert (run["run_id"], run["graph"], run["deaths"], run["status"]) == ("stuck", "plain", MAX_DEATHS, "interrupted")
    assert run["fault"].startswith("no model")
    assert "abcdefghijkl" not in run["fault"]
    assert (found["more_workers"], found["more_parked"]) == (0, False)


def test_a_store_that_nobody_works_on_has_an_empty_list() -> None:
    with api() as found:
        assert found.get("workers") == {"workers": [], "more_workers": 0, "parked": [], "more_parked": False}
        assert "No worker is there" in found.client.get("/workers").text


def test_the_lists_are_bounded(served: Api) -> None:
    announced(served, "many", worker={**SAID, "graphs": [f"graph-{number}" for number in range(130)]})
    (many,) = [one for one in served.get("workers")["workers"] if one["id"] == "many"]
    assert (len(many["graphs"]), many["more_graphs"]) == (50, 80)
    parked(served, "stuck-too")
    found = served.get("workers?limit=1")
    assert (len(found["workers"]), found["more_workers"]) == (1, 4)
    assert ([run["run_id"] for run in found["parked"]], found["more_parked"]) == (["stuck"], True)
    text = served.client.get("/workers?limit=1").text
    assert "4 more are not shown" in text
    assert "Further runs are parked" in text
    for query in ("limit=0", "limit=501", "after=x"):
        served.get(f"workers?{query}", 422)


def test_the_screen_has_what_the_list_has(served: Api) -> None:
    text = served.client.get("/workers").text
    assert '<p class="lead" id="summary">1 alive, 1 draining, 1 lapsed, 1 dead</p>' in text
    found = rows(text)
    assert list(found)[:2] == ["alive", "draining"]
    assert all(f'<span class="pill {name}"' in found[name] for name in found)
    assert re.findall(r'href="(/runs/[^"]*)"', found["alive"]) == [f"/runs/run-{number}" for number in range(5)]
    for said in ("7 of 3", "and 2 more", "lapses after 1 min<", 'href="/runs?graph=plain"', "version 1.2.3"):
        assert said in found["alive"], said
    assert "Other workers take its runs over" in found["dead"]
    (stuck,) = re.findall(r'<tr id="parked-\w+" data-run="stuck".*?</tr>', text, re.DOTALL)
    for said in ('href="/runs/stuck"', "no model", f"{MAX_DEATHS} drives in a row", 'data-resume="stuck"'):
        assert said in stuck, said
    assert "abcdefghijkl" not in text


def test_an_executor_that_is_no_worker_is_listed_while_it_holds_a_run() -> None:
    with api() as found:
        held(found, announced(found, "by-hand", worker=None), "r")
        text = found.client.get("/workers").text
        assert "1 other holds runs" in text
        assert "takes up no runs by itself" in rows(text)["by-hand"]


def test_a_parked_run_that_is_resumed_leaves_the_list(served: Api) -> None:
    served.post("runs/stuck/resume")
    assert served.settled("stuck")["status"] == "completed"
    assert served.get("workers")["parked"] == []
    assert 'id="parked-' not in served.client.get("/workers").text


def test_a_server_that_only_reads_names_the_command_that_continues_a_run() -> None:
    with api(settings={"read_only": True}) as found:
        parked(found, "stuck")
        text = found.client.get("/workers").text
        assert "data-resume" not in text
        assert "orchestrator resume RUN" in text


def test_authorize_is_asked_about_the_list_and_about_each_run_in_it() -> None:
    refused: set[str] = set()

    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if action in refused or (run is not None and run.run_id.startswith("secret")) else "ann"

    with api(settings={"authorize": authorize}) as found:
        held(found, announced(found, "w"), "open", "secret-1")
        parked(found, "secret-2")
        (one,) = found.get("workers")["workers"]
        assert (one["runs"], one["held"]) == (["open"], 2)
        assert found.get("workers")["parked"] == []
        assert "secret" not in found.client.get("/workers").text
        refused |= {"list_workers"}
        found.get("workers", 403)
        assert found.client.get("/workers").status_code == 200
        refused |= {"view_workers"}
        assert found.client.get("/workers").status_code == 403


def test_a_stream_says_when_the_list_is_another_one_and_when_a_worker_is_heard_from() -> None:
    with api(settings={"poll": 0.05}) as found:
        announced(found, "w")
        stream = found.stream("workers", {"Accept": "text/event-stream"})
        assert next(stream) == {"type": "ready"}
        announced(found, "other")
        assert next(stream) == {"type": "changed"}
        announced(found, "w")
        assert next(stream) == {"type": "changed"}
        announced(found, "w", worker={**SAID, "draining": True})
        assert next(stream) == {"type": "changed"}
        parked(found, "stuck")
        assert next(stream) == {"type": "changed"}
        stream.close()


@pytest.mark.full
def test_what_a_worker_says_of_itself_is_text() -> None:
    with api() as found:
        said = {"graphs": [HOSTILE, "\ud800<b>"], "slots": 1, "started": 1.0, "version": HOSTILE}
        announced(found, HOSTILE, host=HOSTILE, worker=said)
        announced(found, "half", host="\ud800<b>")
        parked(found, "stuck", HOSTILE)
        answer = found.client.get("/workers")
        assert answer.status_code == 200
        assert faults(answer.text) == []
        assert "window.pwned" in answer.text
        assert "\\u202e" in answer.text  # what turns the direction is shown as an escape
        told = found.client.get("/api/workers")
        assert (told.status_code, told.text.isascii()) == (200, True)

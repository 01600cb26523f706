"""The screen of runs: its order, its filters in the address, replays apart, and the archive for a chosen run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from orchestrator.stores import RunInfo
from orchestrator.stores.rows import ReplayFacts
from orchestrator.testing import ScriptedModel
from tests.web.api import Api, api
from tests.web.costs import called, spent, used

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp"


@pytest.fixture(scope="module")
def served() -> Iterator[Api]:
    """A server with three runs, and two replays of one of them."""
    with api() as found:
        spent(found, "cheap", "2026-01-30", used("small", 900, 0.001), called("fetch", 1), labels={"team": "maps"})
        spent(found, "dear", "2026-02-01", used("large", 100, 2.5), graph="other", status="failed", seconds=90.0)
        spent(found, "free", "2026-02-02", used("free", 700, 0.0), seconds=9.0, labels={"who": HOSTILE})
        spent(found, "ended", "2026-02-03", status="cancelled", replay=ReplayFacts(True), error="diverged: model large")
        spent(found, "went-on", "2026-02-04", replay=ReplayFacts(True, 2, 10, 0.5))
        spent(found, "same", "2026-02-05", replay=ReplayFacts(False, 4, 10, 0.5))
        yield found


def page(served: Api, query: str = "") -> str:
    answer = served.client.get(f"/runs{query}")
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def listed(text: str) -> list[str]:
    return re.findall(r'data-run="([^"]*)"', text)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("", ["free", "dear", "cheap"]),
        ("?ascending=true", ["cheap", "dear", "free"]),
        ("?sort=cost", ["dear", "cheap", "free"]),
        ("?sort=duration&ascending=true", ["cheap", "free", "dear"]),
        ("?sort=graph", ["free", "cheap", "dear"]),
        ("?sort=graph&ascending=true", ["dear", "free", "cheap"]),
        ("?sort=status&ascending=true", ["free", "cheap", "dear"]),
        ("?replays=true&sort=updated", ["same", "went-on", "ended", "free", "dear", "cheap"]),
        ("?diverged=true", ["went-on", "ended"]),
        ("?relation=replay", ["same", "went-on", "ended"]),
        ("?parent=one", ["same", "went-on", "ended"]),
        ("?parent=one&replays=false", []),
        ("?status=cancelled&replays=true", ["ended"]),
        ("?model=large", ["dear"]),
        ("?tool=fetch&node=act", ["cheap"]),
        ("?q=cheap&sort=cost", ["cheap"]),
        ("?q=&graph=&label=&begun_since=&begun_until=&sort=", ["free", "dear", "cheap"]),
        ("?begun_since=2026-01-31&begun_until=2026-02-01", ["dear"]),
    ],
)
def test_the_address_says_which_runs_and_in_which_order(served: Api, query: str, ids: list[str]) -> None:
    assert listed(page(served, query)) == ids


@pytest.mark.parametrize("query", ["sort=size", "ascending=maybe", "diverged=x", "label=x", "model=" + "x" * 201])
def test_what_no_list_has_is_refused_in_words(served: Api, query: str) -> None:
    answer = served.client.get(f"/runs?{query}", headers={"Accept": "text/html"})
    assert (answer.status_code, query.partition("=")[0] in answer.text) == (422, True)
    assert served.client.get(f"/api/runs?{query}").status_code == 422


def test_a_page_follows_another_in_any_order(served: Api) -> None:
    for query in ("sort=cost", "sort=graph&ascending=true", "ascending=true", "sort=updated&replays=true"):
        whole, found, address = listed(page(served, f"?{query}")), [], f"?{query}&limit=1"
        while address:
            text = page(served, address)
            found += listed(text)
            older = re.search(r'id="older" rel="next" href="/runs(\?[^"]*)"', text)
            address = unescape(older[1]) if older else ""
        assert found == whole
    wrong = served.client.get("/api/runs?sort=cost&after=1.0_1")
    assert (wrong.status_code, "a list sorted by cost" in wrong.text) == (422, True)


def test_a_title_of_a_column_sorts_by_it_and_then_the_other_way(served: Api) -> None:
    def title(text: str, name: str) -> tuple[str, str]:
        found = re.search(rf'<th[^>]*?(?: aria-sort="(\w+)")?><a href="([^"]*)">{name}', text)
        assert found is not None
        return found[1] or "", unescape(found[2])

    said, leads = title(page(served, "?graph=plain"), "Cost")
    assert (said, leads) == ("", "/runs?graph=plain&sort=cost")
    said, leads = title(page(served, "?graph=plain&sort=cost"), "Cost")
    assert (said, leads) == ("descending", "/runs?graph=plain&sort=cost&ascending=true")
    assert title(page(served), "Graph")[1] == "/runs?sort=graph&ascending=true"
    assert title(page(served, "?sort=cost"), "Started")[1] == "/runs"


def test_a_replay_that_ended_where_it_diverged_is_not_called_cancelled(served: Api) -> None:
    text = page(served, "?diverged=true")
    assert re.findall(r'class="pill (\w+)"', text) == ["completed", "diverged"]
    assert "its status is cancelled" in text
    rows = {row["run_id"]: row for row in served.get("runs?relation=replay")["runs"]}
    assert {name: (row["status"], row["diverged"]) for name, row in rows.items()} == {
        "ended": ("cancelled", True),
        "went-on": ("completed", True),
        "same": ("completed", False),
    }
    assert "Replays hidden" in page(served)
    assert "Replays shown" in text


def test_a_run_without_a_known_price_costs_no_zero(served: Api) -> None:
    text = page(served)
    cells = re.findall(r'<td class="n cost"[^>]*>([^<]*)<', text)
    assert cells == ["?", "2.50", "0.0010"]


def test_the_words_of_a_search_go_with_the_run_that_is_opened(served: Api) -> None:
    assert 'href="/runs/cheap#q=cheap%20%26"' in page(served, "?q=cheap+%26&sort=cost")
    assert 'href="/runs/cheap"' in page(served)


def test_the_form_offers_graphs_and_labels_and_keeps_the_other_filters(served: Api) -> None:
    text = page(served, "?status=completed&label=team:maps&graph=plain")
    assert '<option value="plain" selected>' in text
    assert '<input type="hidden" name="status" value="completed">' in text
    assert '<input type="hidden" name="label" value="team:maps">' in text
    assert '<option value="team:maps">' in text
    assert "onerror" not in "".join(re.findall(r"<datalist.*?</datalist>", page(served), re.DOTALL))


def test_the_stream_of_the_screen_is_about_the_runs_that_it_has(served: Api) -> None:
    changes = re.search(r'data-changes="/runs\?([^"]*)"', page(served, "?sort=cost"))
    assert changes is not None
    rows = served.get(f"runs?{unescape(changes[1])}")["runs"]
    assert [row["run_id"] for row in rows] == listed(page(served, "?sort=cost"))


def archive_of(place: Path) -> dict[str, Any]:
    return {"store": f"sqlite:///{place}/runs.db", "archive": f"file://{place}/archive"}


def test_a_run_that_has_ended_is_archived_and_another_one_is_not(tmp_path: Path) -> None:
    with api(**archive_of(tmp_path), model=ScriptedModel(["x"] * 9)) as found:
        found.start("plain", run_id="done")
        found.start("chat", run_id="waits")
        assert 'data-bulk="archive"' in page(found)
        answer = found.post("runs/done/archive", 200)
        assert answer["archived"]["size"] > 0
        assert found.get("runs/done")["archived"]["name"] == answer["archived"]["name"]
        assert found.post("runs/done/archive", 200) == answer, "again: it is there"
        assert "only runs that have ended" in found.post("runs/waits/archive", 409)["detail"]
        found.post("runs/none/archive", 404)
        assert "archived" in page(found)


def test_a_server_without_an_archive_says_so(served: Api) -> None:
    assert "has no archive" in served.post("runs/cheap/archive", 409)["detail"]
    assert 'data-bulk="archive"' not in page(served)


def test_runs_of_others_are_neither_archived_nor_deleted_nor_retried(tmp_path: Path) -> None:
    def authorize(request: Request, action: str, run: RunInfo | None) -> str | None:
        return None if run is not None and run.labels.get("team") == "theirs" else "ann"

    with api(**archive_of(tmp_path), settings={"authorize": authorize, "hosts": None}) as found:
        spent(found, "theirs", "2026-01-30", labels={"team": "theirs"})
        spent(found, "mine", "2026-01-30", labels={"team": "mine"})
        for method, path, body in (
            ("POST", "runs/theirs/archive", {}),
            ("POST", "runs/theirs/resume", {"retry": True}),
            ("DELETE", "runs/theirs", None),
        ):
            assert found.client.request(method, f"/api/{path}", json=body).status_code == 404
        assert listed(page(found)) == ["mine"]
        for query in ("sort=cost", "ascending=true", "q=theirs&sort=cost"):
            assert "theirs" not in [row["run_id"] for row in found.get(f"runs?{query}")["runs"]]

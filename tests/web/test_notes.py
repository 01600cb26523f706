"""Notes and scores over HTTP: whose they are, who may see, write and delete them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.stores.rows import MAX_NOTES
from tests.web.api import Api, api, letter, plain

SECRET = "sk-live-0123456789abcdef0123456789"
EVIL = f"</script><script>window.pwned=1</script> \u202e\x1b[31m {SECRET}"


@pytest.fixture
def served() -> Iterator[Api]:
    with api(plain, letter) as found:
        found.start("plain", run_id="one")
        yield found


def steps(served: Api, run_id: str = "one") -> list[int]:
    return [step["seq"] for step in served.get(f"runs/{run_id}/history")["steps"]]


def test_a_note_on_a_step_and_a_score_on_the_run_are_written_listed_and_deleted(served: Api) -> None:
    step = steps(served)[0]
    note = served.post("runs/one/notes", 201, text=EVIL, step=step, by="ann")
    score = served.post("runs/one/notes", 201, score=0.5, name="quality")
    assert (note["step"], note["score"], note["by"]) == (step, None, "ann")
    assert SECRET not in note["text"]
    assert note["text"].startswith("</script>")
    assert served.get("runs/one/notes")["notes"] == [note, score]
    assert served.get("runs/one/notes", params={"step": step})["notes"] == [note]
    assert served.client.delete(f"/api/runs/one/notes/{note['id']}").json() == {"deleted": note["id"]}
    assert served.client.delete(f"/api/runs/one/notes/{note['id']}").status_code == 404
    assert served.get("runs/one/notes")["notes"] == [score]
    assert served.client.delete("/api/runs/one").status_code == 200
    assert served.client.get("/api/runs/one/notes").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": "x" * 4001}, "text"),
        ({"text": "x", "name": "x" * 101}, "name"),
        ({"text": "x", "by": "x" * 201}, "by"),
        ({"text": "x", "step": 1}, "step"),
        ({"text": "x", "step": -1}, "step"),
        ({"text": "x", "step": 10**30}, "step"),
        ({"text": "x", "step": "2"}, "step"),
        ({"score": "1"}, "score"),
        ({"score": True}, "score"),
        ({"text": "x", "at": 1}, "at"),
        ({"text": "x", "id": "a"}, "id"),
        ({"text": "x", "run": "two"}, "run"),
    ],
)
def test_what_cannot_be_a_note_is_refused_at_its_field(served: Api, body: dict[str, Any], field: str) -> None:
    problem = served.post("runs/one/notes", 422, **body)
    assert field in [fault["field"] for fault in problem["errors"]]
    assert served.get("runs/one/notes")["notes"] == []


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1e400"])
def test_a_score_is_a_finite_number(served: Api, score: str) -> None:
    body = f'{{"score": {score}}}'
    answer = served.client.post("/api/runs/one/notes", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


def test_a_missing_run_and_a_form_of_another_site_write_nothing(served: Api) -> None:
    assert served.client.get("/api/runs/nope/notes").status_code == 404
    served.post("runs/nope/notes", 404, text="x")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.client.post("/api/runs/one/notes", content="text=x", headers=form).status_code == 415
    site = {"Sec-Fetch-Site": "cross-site"}
    assert served.client.post("/api/runs/one/notes", json={"text": "x"}, headers=site).status_code == 403
    assert served.get("runs/one/notes")["notes"] == []


def test_many_clients_at_once_write_no_more_than_fit(served: Api) -> None:
    for _ in range(MAX_NOTES - 8):
        served.portal.call(served.executor.notes.write, "one", "x")
    with ThreadPoolExecutor(8) as pool:
        wrote = pool.map(lambda _: served.client.post("/api/runs/one/notes", json={"text": "y"}).status_code, range(24))
    assert sorted(wrote) == [201] * 8 + [422] * 16
    assert len(served.get("runs/one/notes")["notes"]) == MAX_NOTES


class Rules:
    """Bob may not see notes, guests may only read, and nobody but ann sees her runs."""

    def __call__(self, request: Any, action: str, run: Any) -> str | None:
        user = str(request.headers["x-user"])
        if run is not None and run.labels.get("owner", user) != user:
            return None
        if (user == "bob" and action == "list_notes") or (user == "guest" and action in ("write_note", "delete_note")):
            return None
        return user


def as_(user: str) -> dict[str, str]:
    return {"x-user": user}


@pytest.fixture
def ruled() -> Iterator[Api]:
    with api(plain, settings={"authorize": Rules()}) as found:
        for run_id, labels in (("one", {}), ("hers", {"owner": "ann"})):
            body = {"graph": "plain", "input": "bees", "run_id": run_id, "labels": labels, "wait": True}
            assert found.client.post("/api/runs", json=body, headers=as_("ann")).status_code == 201
        yield found


def write(ruled: Api, user: str, run_id: str = "one", **body: Any) -> Any:
    return ruled.client.post(f"/api/runs/{run_id}/notes", json=body, headers=as_(user))


def test_who_wrote_a_note_is_the_principal_and_no_body_says_another(ruled: Api) -> None:
    assert write(ruled, "ann", text="mine").json()["by"] == "ann"
    assert write(ruled, "ann", text="mine", by="ann").status_code == 201
    refused = write(ruled, "ann", text="not mine", by="bob")
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (403, "by-refused")
    notes = ruled.client.get("/api/runs/one/notes", headers=as_("ann")).json()["notes"]
    assert [(note["text"], note["by"]) for note in notes] == [("mine", "ann")] * 2


def test_a_principal_deletes_only_its_own_notes(ruled: Api) -> None:
    note = write(ruled, "ann", text="mine").json()
    path = f"/api/runs/one/notes/{note['id']}"
    assert ruled.client.delete(path, headers=as_("bob")).status_code == 403
    assert ruled.client.delete(path, headers=as_("guest")).status_code == 403
    assert ruled.client.delete(path, headers=as_("ann")).status_code == 200


def test_each_right_is_asked_for_and_a_hidden_run_looks_like_none(ruled: Api) -> None:
    write(ruled, "ann", text="a secret of ann's")
    assert write(ruled, "guest", text="x").status_code == 403
    assert ruled.client.get("/api/runs/one/notes", headers=as_("guest")).status_code == 200
    assert ruled.client.get("/api/runs/one/notes", headers=as_("bob")).status_code == 403
    for method, path in (("GET", "notes"), ("POST", "notes"), ("DELETE", "notes/a")):
        hidden = ruled.client.request(method, f"/api/runs/hers/{path}", headers=as_("bob"), json={"text": "x"})
        missing = ruled.client.request(method, f"/api/runs/none/{path}", headers=as_("bob"), json={"text": "x"})
        assert (hidden.status_code, missing.status_code) == (404, 404)
        assert hidden.text.replace("hers", "none") == missing.text


def test_pages_and_exports_have_no_notes_for_who_may_not_list_them(ruled: Api) -> None:
    write(ruled, "ann", text="a remark of ann's")
    for path in ("page.html", "export"):
        assert "remark of ann" in ruled.client.get(f"/api/runs/one/{path}", headers=as_("ann")).text
        assert "remark of ann" not in ruled.client.get(f"/api/runs/one/{path}", headers=as_("bob")).text


def test_a_server_that_only_reads_lists_notes_and_writes_none() -> None:
    with api(plain) as found:
        found.start("plain", run_id="one")
        found.post("runs/one/notes", 201, text="x")
        store = found.executor.store
        with api(plain, store=store, settings={"read_only": True}) as reading:
            assert len(reading.get("runs/one/notes")["notes"]) == 1
            reading.post("runs/one/notes", 405, text="x")

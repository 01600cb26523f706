"""Texts are saved as files, never over another one unseen, and are graphs of the server from then on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator import Executor, web
from orchestrator.web.compose.checks import Texts
from orchestrator.web.compose.saved import SavedGraphs, digest_of
from orchestrator.web.problems import HttpProblem
from tests.web.api import GRAPHS, Api, api, pay
from tests.web.test_compose_try import CALL, QUIET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "graphs"
    found.mkdir()
    return found


@pytest.fixture
def server(folder: Path) -> Iterator[Api]:
    with api(settings={"save_graphs": folder}) as found:
        yield found


def files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name != ".lock")


def test_a_saved_text_is_a_graph_of_the_server(server: Api, folder: Path) -> None:
    text = f"# mine\n{QUIET}"
    made = server.post("graphs/save", 201, name="quiet", text=text)
    assert made == {"name": "quiet", "digest": digest_of(text.encode()), "file": "quiet.yaml"}
    assert (files(folder), (folder / "quiet.yaml").read_text()) == (["quiet.yaml"], text)
    shown = server.get("graphs/quiet")
    assert shown["saved"] == {"text": text, "digest": made["digest"]}
    assert server.get("graphs/plain")["saved"] is None
    assert "quiet" in {one["name"] for one in server.get("graphs")["graphs"]}
    assert server.start("quiet", run_id="one")["output"]["rounds"] == [1, 2, 3]
    assert server.post("runs/one/fork", 201, at=1)["graph"] == "quiet"


@pytest.mark.full
def test_a_file_is_replaced_only_by_one_who_names_its_digest(server: Api, folder: Path) -> None:
    first = server.post("graphs/save", 201, name="quiet", text=QUIET)["digest"]
    other = QUIET.replace("times: 3", "times: 4")
    refused = server.post("graphs/save", 409, name="quiet", text=other)
    assert refused["digest"] == first
    assert "-nodes: {count: {kind: repeat, times: 3}}" in refused["difference"]
    assert "+nodes: {count: {kind: repeat, times: 4}}" in refused["difference"]
    server.post("graphs/save", 409, name="quiet", text=other, replaces="0" * 64)
    assert (folder / "quiet.yaml").read_text() == QUIET
    second = server.post("graphs/save", 201, name="quiet", text=other, replaces=first)["digest"]
    assert server.start("quiet")["output"]["rounds"] == [1, 2, 3, 4]
    server.post("graphs/save", 409, name="quiet", text=QUIET, replaces=first)
    (folder / "quiet.yaml").unlink()
    assert server.post("graphs/save", 409, name="quiet", text=QUIET, replaces=second)["type"].endswith("graph-gone")
    assert files(folder) == []


NO_NAMES = (
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a.yaml", ".hidden", "a b", "a\nb", "a\x00b", "con", "NUL",
    "lpt1", "x" * 101, "x" * 300, "-rf", "1a", "\u0301bc", "a\u202e", "~", "$HOME", "C:x", "a%2fb",
)  # fmt: skip


def test_a_name_that_is_no_name_is_refused(server: Api, folder: Path) -> None:
    for name in NO_NAMES:
        before = files(folder.parent)
        server.post("graphs/save", 422, name=name, text=QUIET.replace("name: quiet", f"name: {name!r}"))
        assert (files(folder), files(folder.parent)) == ([], before), name


def test_a_name_that_looks_like_that_of_a_file_is_refused(server: Api, folder: Path) -> None:
    server.post("graphs/save", 201, name="abc", text=QUIET.replace("name: quiet", "name: abc"))
    name = "\u0430bc"  # its first letter is Cyrillic
    refused = server.post("graphs/save", 409, name=name, text=QUIET.replace("name: quiet", f"name: {name}"))
    assert "there is a file abc.yaml" in refused["detail"]
    assert files(folder) == ["abc.yaml"]


def test_a_text_that_is_no_graph_of_this_name_is_not_saved(server: Api, folder: Path) -> None:
    server.post("graphs/save", 422, name="loud", text=QUIET)
    server.post("graphs/save", 422, name="quiet", text="name: quiet")
    for ref in ("os:system", "no_such_module:x", "tests.web.hostile:x"):
        text = QUIET.replace("{kind: repeat, times: 3}", f"{{kind: call, ref: '{ref}'}}")
        assert ref in server.post("graphs/save", 422, name="quiet", text=text)["detail"]
    refused = server.post("graphs/save", 409, name="plain", text=QUIET.replace("name: quiet", "name: plain"))
    assert refused["type"].endswith("graph-given")
    assert files(folder) == []


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_what_is_no_plain_file_is_neither_read_nor_written(server: Api, folder: Path, kind: str) -> None:
    secret, place = folder.parent / "secret", folder / "quiet.yaml"
    secret.write_text(QUIET)
    if kind == "link":
        place.symlink_to(secret)
    elif kind == "dangling":
        place.symlink_to(folder.parent / "nothing")
    elif kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    for replaces in (None, digest_of(QUIET.encode())):
        server.post("graphs/save", 409, name="quiet", text=QUIET, replaces=replaces)
    assert secret.read_text() == QUIET
    assert not (folder.parent / "nothing").exists()
    assert files(folder) == ["quiet.yaml"]
    assert "quiet" not in {one["name"] for one in server.get("graphs")["graphs"]}


def test_a_name_that_differs_in_capitals_only_is_taken(server: Api) -> None:
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    server.post("graphs/save", 409, name="Quiet", text=QUIET.replace("name: quiet", "name: Quiet"))


def test_a_server_without_a_folder_says_so() -> None:
    with api() as server:
        found = server.post("graphs/save", 409, name="quiet", text=QUIET)
        assert found["type"].endswith("save-off")
    with api(settings={"read_only": True}) as server:
        assert server.client.post("/api/graphs/save", json={"name": "quiet", "text": QUIET}).status_code in (404, 405)
    with pytest.raises(ValueError, match="does not exist; create it first"):
        web.app(Executor(), save_graphs="/no/such/folder")


@pytest.mark.full
def test_calls_of_a_saved_graph_are_asked_about_also_after_a_restart(folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    with api(settings={"save_graphs": folder}, store=store) as server:
        server.post("graphs/save", 201, name="calls", text=CALL)
        found = server.start("calls", run_id="one")
        assert [one["payload"]["tool"] for one in found["waiting"]] == ["pay"]
    (folder / "broken.yaml").write_text("name: [")
    (folder / "named.yaml").write_text(QUIET)
    (folder / "code.yaml").write_text(QUIET.replace("{kind: repeat, times: 3}", "os:system"))
    (folder / "no graph.txt").write_text("x")
    with api(settings={"save_graphs": folder}, store=store) as server:
        assert {"calls", "plain"} <= {one["name"] for one in server.get("graphs")["graphs"]}
        assert not {"broken", "named", "code", "quiet"} & {one["name"] for one in server.get("graphs")["graphs"]}
        (question,) = server.get("runs/one")["waiting"]
        body = {"question": question["id"], "digest": question["digest"], "approve": True}
        server.post("runs/one/answer", **body)
        assert server.settled("one")["output"]["result"]["output"] == "bob has 3"
        assert server.start("calls")["status"] == "paused"
        forked = server.post("runs/one/fork", 201, at=1)
        assert server.settled(forked["run_id"])["status"] == "paused", "an approval of the parent does not count"


def test_of_many_saves_at_once_one_wins_and_the_others_see_it(server: Api, folder: Path) -> None:
    def save(number: int) -> tuple[int, Any]:
        text = QUIET.replace("times: 3", f"times: {number + 1}")
        answer = server.client.post("/api/graphs/save", json={"name": "quiet", "text": text})
        return answer.status_code, answer.json()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(save, range(12)))
    won = [body["digest"] for status, body in found if status == 201]
    assert len(won) == 1
    assert {body["digest"] for status, body in found if status == 409} <= {*won}
    assert (files(folder), digest_of((folder / "quiet.yaml").read_bytes())) == (["quiet.yaml"], won[0])


PROGRAM = """
import sys
from pathlib import Path
from orchestrator import Executor
from orchestrator.web.compose.saved import SavedGraphs
from orchestrator.web.compose.checks import Texts
from orchestrator.web.problems import HttpProblem

folder, number, text = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
executor = Executor()
saved = SavedGraphs(folder, executor, Texts(executor))
made = 0
for turn in range(20):
    while True:
        saved.read_changed()
        saved.settle()
        known = saved.files.get("quiet")
        times = 0 if known is None else int(known.text.rpartition("times: ")[2].split("}")[0])
        try:
            digest = None if known is None else known.digest
            saved.save("quiet", text.replace("times: 3", f"times: {times + 1}"), digest)
        except HttpProblem as problem:
            assert problem.status == 409, problem
            continue
        break
"""


@pytest.mark.full
def test_two_processes_that_save_lose_nothing_of_each_other(folder: Path) -> None:
    """Each adds one to what it has seen, and again if it was refused: a lost write would be missing in the sum."""
    words = [sys.executable, "-c", PROGRAM, str(folder)]
    begun = [subprocess.Popen([*words, str(number), QUIET], stderr=subprocess.PIPE) for number in range(2)]
    for one in begun:
        _, error = one.communicate(timeout=120)
        assert one.returncode == 0, error.decode()
    assert "times: 40" in (folder / "quiet.yaml").read_text()
    assert files(folder) == ["quiet.yaml"]


def test_what_another_process_saved_is_a_graph_here_too(server: Api, folder: Path) -> None:
    other = Executor(graphs=GRAPHS)
    SavedGraphs(folder, other, Texts(other)).save("quiet", QUIET, None)
    assert server.start("quiet")["status"] == "completed"


def test_a_file_that_cannot_be_written_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(graphs=GRAPHS, tools=[pay])
    saved = SavedGraphs(folder, executor, Texts(executor))
    saved.save("quiet", QUIET, None)
    saved.settle()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HttpProblem, match="No space left"):
        saved.save("quiet", QUIET.replace("times: 3", "times: 4"), digest_of(QUIET.encode()))
    assert (files(folder), (folder / "quiet.yaml").read_text()) == (["quiet.yaml"], QUIET)
    saved.settle()
    assert executor.graphs["quiet"].nodes["count"].times == 3  # type: ignore[attr-defined]  # of kind repeat


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.anyio
async def test_authorize_is_asked_and_both_event_loops_save(folder: Path) -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if action == "save_graph" and run is not None and run.graph != "quiet" else "ann"

    async with Executor(graphs=GRAPHS) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor, authorize=authorize, save_graphs=folder))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            other = {"name": "other", "text": QUIET.replace("name: quiet", "name: other")}
            assert (await client.post("/api/graphs/save", json=other)).status_code == 403
            assert (await client.post("/api/graphs/save", json={"name": "quiet", "text": QUIET})).status_code == 201
            made = await client.post("/api/runs", json={"graph": "quiet", "input": "x", "wait": True})
            assert made.json()["status"] == "completed"
    assert files(folder) == ["quiet.yaml"]


def test_the_difference_of_texts_of_very_many_lines_is_not_sought(server: Api) -> None:
    """Lines that occur often take difflib minutes, in which no other text could be saved."""
    text = QUIET + "#\n" * 3_000
    server.post("graphs/save", 201, name="quiet", text=text)
    refused = server.post("graphs/save", 409, name="quiet", text=f"{text}# more\n")
    assert refused["difference"].endswith("too many to compare here")


def test_a_server_whose_folder_is_gone_still_has_its_graphs(server: Api, folder: Path) -> None:
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    shutil.rmtree(folder)
    assert "quiet" in {one["name"] for one in server.get("graphs")["graphs"]}
    server.get("graphs/none", 404)
    server.post("graphs/save", 503, name="other", text=QUIET.replace("name: quiet", "name: other"))

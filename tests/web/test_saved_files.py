"""The folder of saved graphs changes while servers work on it, and nothing of the server waits for it."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator import Executor, web
from orchestrator.graph.model import GraphDefinition
from orchestrator.tools.result import Risk
from orchestrator.tools.toolbox import Toolbox
from orchestrator.web.compose import saved
from orchestrator.web.compose.checks import Texts
from orchestrator.web.compose.saved import SavedGraphs, digest_of
from orchestrator.web.problems import HttpProblem
from tests.support.programs import next_line, piped
from tests.support.sizes import sized
from tests.web.api import GRAPHS, Api, api, pay
from tests.web.test_compose_try import QUIET

OTHER = QUIET.replace("times: 3", "times: 4")
ODD = QUIET.replace("{kind: repeat, times: 3}", "{kind: odd}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "graphs"
    found.mkdir()
    return found


@pytest.fixture
def server(folder: Path) -> Iterator[Api]:
    with api(settings={"save_graphs": folder}) as found:
        yield found


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def listed(server: Api) -> set[str]:
    return {one["name"] for one in server.get("graphs")["graphs"]} - {graph.name for graph in GRAPHS}


def drafts(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name.endswith(".draft"))


def named(name: str) -> str:
    return QUIET.replace("name: quiet", f"name: {name}")


def test_nothing_waits_for_a_process_that_holds_the_folder(
    server: Api, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save waits for it in a thread; graphs are looked up, and runs are listed, at the same time."""
    monkeypatch.setattr(saved, "_PATIENCE", sized(2.0, 5.0))
    with (folder / ".lock").open("w") as held, ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        saving = pool.submit(server.post, "graphs/save", 503, name="quiet", text=QUIET)
        time.sleep(0.3)
        for _ in range(3):
            server.get("graphs/none", 404)
            listed(server)
            server.get("runs")
        assert not saving.done()
        assert saving.result(60)["type"].endswith("save-busy")


@pytest.mark.full
def test_other_requests_go_on_while_many_files_are_read(server: Api, folder: Path) -> None:
    for number in range(200):
        (folder / f"g{number}.yaml").write_text(named(f"g{number}"))
    ended: list[str] = []

    def ask(path: str) -> None:
        server.get(path)
        ended.append(path)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(ask, "graphs")
        time.sleep(0.05)
        pool.submit(ask, "runs").result(60)
    assert ended == ["runs", "graphs"]
    assert len(listed(server)) == 200


def test_only_the_file_that_is_asked_for_is_read(server: Api, folder: Path) -> None:
    for name in ("first", "second"):
        (folder / f"{name}.yaml").write_text(named(name))
    assert server.get("graphs/second")["name"] == "second"
    assert "first" not in server.executor.graphs


def test_a_file_that_another_process_replaced_is_started_as_it_is_now(server: Api, folder: Path) -> None:
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    assert server.start("quiet")["output"]["rounds"] == [1, 2, 3]
    (folder / "quiet.yaml").write_text(OTHER)
    assert server.start("quiet")["output"]["rounds"] == [1, 2, 3, 4]


def test_the_graph_of_a_file_that_is_deleted_is_gone_with_all_its_versions(server: Api, folder: Path) -> None:
    first = server.post("graphs/save", 201, name="quiet", text=QUIET)["digest"]
    server.post("graphs/save", 201, name="quiet", text=OTHER, replaces=first)
    (folder / "quiet.yaml").unlink()
    server.get("graphs/quiet", 404)
    assert listed(server) == set()
    server.post("runs", 404, graph="quiet", input="x")
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    assert listed(server) == {"quiet"}
    (folder / "quiet.yaml").unlink()
    assert listed(server) == set()


def test_the_graph_of_a_file_that_has_become_faulty_is_not_used_and_the_fault_is_said(
    server: Api, folder: Path
) -> None:
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    (folder / "quiet.yaml").write_text(ODD)
    assert "odd" in server.get("graphs/quiet", 404)["detail"]
    assert "odd" in server.post("runs", 404, graph="quiet", input="x")["detail"]
    assert listed(server) == set()
    (folder / "quiet.yaml").write_text(OTHER)
    assert server.start("quiet")["output"]["rounds"] == [1, 2, 3, 4]


def test_a_file_with_a_new_date_and_the_same_text_is_not_read_as_a_graph_again(server: Api, folder: Path) -> None:
    server.post("graphs/save", 201, name="quiet", text=QUIET)
    known = server.executor.graphs["quiet"]
    os.utime(folder / "quiet.yaml", (1, 1))
    assert listed(server) == {"quiet"}
    assert server.executor.graphs["quiet"] is known


class Watched(Executor):
    """Notes in which threads its graphs are changed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.threads: list[int] = []

    def add_graph(self, graph: GraphDefinition, *, ask_from: Risk | None = None) -> None:
        self.threads.append(threading.get_ident())
        super().add_graph(graph, ask_from=ask_from)


@pytest.mark.anyio
async def test_the_graphs_of_the_executor_are_changed_by_its_event_loop_only(folder: Path) -> None:
    async with Watched(graphs=GRAPHS) as executor:
        transport = httpx2.ASGITransport(app=web.app(executor, save_graphs=folder))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.post("/api/graphs/save", json={"name": "quiet", "text": QUIET})).status_code == 201
            (folder / "other.yaml").write_text(named("other"))
            (folder / "third.yaml").write_text(named("third"))
            assert (await client.get("/api/graphs/other")).status_code == 200
            assert (await client.get("/api/graphs")).status_code == 200
        assert {"quiet", "other", "third"} <= set(executor.graphs)
        assert executor.threads == [threading.get_ident()] * 3


class Remote(Toolbox):
    """Tools of a server, which are known once it is connected."""

    def __init__(self) -> None:
        super().__init__()
        self.known = False

    @property
    def ready(self) -> bool:
        return self.known


def test_a_file_that_names_a_tool_is_read_again_when_the_tools_are_known(folder: Path) -> None:
    remote = Remote()
    executor = Executor(graphs=GRAPHS, tools=Toolbox(pay, remote))
    text = QUIET.replace("{kind: repeat, times: 3}", "{kind: complete, tools: ['tests.web.api:pay']}")
    (folder / "quiet.yaml").write_text(text.replace("topic", "question").replace("rounds", "reply"))
    saved = SavedGraphs(folder, executor, Texts(executor))
    assert "is not part of this program's code" in saved.faults["quiet"]
    remote.known = True
    saved.read_changed()
    saved.settle()
    assert "is no code" not in saved.faults.get("quiet", "")


def test_a_graph_that_the_program_adds_later_is_not_replaced(server: Api, folder: Path) -> None:
    other = Executor()
    SavedGraphs(folder, other, Texts(other)).save("plain2", named("plain2"), None)
    mine = next(graph for graph in GRAPHS if graph.name == "plain").model_copy(update={"name": "plain2"})
    server.portal.call(server.executor.add_graph, mine)
    assert "plain2" in listed(server)
    assert server.executor.graphs["plain2"] is mine
    (folder / "plain2.yaml").unlink()
    assert "plain2" in listed(server)


def test_a_full_folder_takes_no_further_file(server: Api, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "MOST_FILES", 2)
    for name in ("b", "c"):
        server.post("graphs/save", 201, name=name, text=named(name))
    assert server.post("graphs/save", 409, name="a", text=named("a"))["type"].endswith("graphs-full")
    assert listed(server) == {"b", "c"}
    (folder / "a.yaml").write_text(named("a"))
    assert listed(server) == {"a", "b"}
    assert server.get("graphs/c", 404)


@pytest.mark.full
def test_two_servers_that_save_the_same_graph_at_once_agree(folder: Path) -> None:
    with api(settings={"save_graphs": folder}) as one, api(settings={"save_graphs": folder}) as two:
        digest: str | None = None
        for turn in range(8):
            texts = [QUIET.replace("times: 3", f"times: {2 * turn + which + 1}") for which in range(2)]

            def save(which: int, texts: list[str] = texts, digest: str | None = digest) -> tuple[int, Any]:
                body = {"name": "quiet", "text": texts[which], "replaces": digest}
                answer = (one, two)[which].client.post("/api/graphs/save", json=body)
                return answer.status_code, answer.json()

            with ThreadPoolExecutor(2) as pool:
                answers = [*pool.map(save, range(2))]
            assert sorted(status for status, _ in answers) == [201, 409]
            digest = next(body["digest"] for status, body in answers if status == 201)
            text = (folder / "quiet.yaml").read_text()
            assert (digest_of(text.encode()), text in texts) == (digest, True)
            assert [which.get("graphs/quiet")["saved"]["digest"] for which in (one, two)] == [digest] * 2
            assert one.get("graphs/quiet")["content"] == two.get("graphs/quiet")["content"]


SAVER = """
import sys
from pathlib import Path
from orchestrator import Executor
from orchestrator.web.compose.saved import SavedGraphs
from orchestrator.web.compose.checks import Texts

folder, text = Path(sys.argv[1]), sys.argv[2] + "# padding\\n" * 20_000
executor = Executor()
saved = SavedGraphs(folder, executor, Texts(executor))
digest = None
print("ready", flush=True)
for number in range(1, 100_000):
    digest = saved.save("quiet", text.replace("times: 3", f"times: {number}"), digest).digest
"""


@pytest.mark.full
def test_a_process_that_is_killed_while_it_saves_leaves_whole_files_and_nothing_else(folder: Path) -> None:
    for turn in range(sized(2, 6)):
        (folder / "quiet.yaml").unlink(missing_ok=True)
        words = [sys.executable, "-c", SAVER, str(folder), QUIET]
        with piped(words) as (process, said):
            assert next_line(said) == "ready\n"
            until = time.monotonic() + 60
            while not drafts(folder) and time.monotonic() < until:
                pass
            time.sleep(0.0007 * turn)
            process.send_signal(signal.SIGKILL)
        left = folder / "quiet.yaml"
        executor = Executor()
        saved = SavedGraphs(folder, executor, Texts(executor))
        assert saved.faults == {}
        if left.exists():
            assert left.read_text().endswith("# padding\n")
            assert len(left.read_text().splitlines()) == 20_000 + len(QUIET.splitlines())
        with pytest.raises(HttpProblem):
            saved.save("quiet", QUIET, "0" * 64)
        assert drafts(folder) == []

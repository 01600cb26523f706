"""The source of the function behind a node: shown where the server may, and nothing else."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Graph, node
from orchestrator.nodes import Subgraph
from tests.web.api import Api, Note, api, letter

SECRET = "sk-live-0123456789abcdef0123456789"


@node
def works(state: Note) -> dict[str, object]:
    """A step whose key is sk-live-0123456789abcdef0123456789."""
    return {"parts": "done"}


inner = Graph(name="inner", state=Note, nodes={"works": works}, edges="START -> works -> END")
outer = Graph(
    name="outer", state=Note, input="topic", output="parts", nodes={"works": works, "below": Subgraph(graph=inner)},
    edges="START -> works -> below -> END",
)  # fmt: skip
ON = {"sources": True}
FILE = '''
import functools

from orchestrator import Graph, node
from tests.web.api import Note

PASSWORD = "hunter2 before"


def noted(function):
    """hunter2 in a wrapper."""
    @functools.wraps(function)
    def wrapper(state):
        return function(state, "hunter2 of the wrapper")
    return wrapper


class Server:
    password = "hunter2 of the class"

    def __call__(self, state: Note) -> dict[str, object]:
        return {"parts": "called"}

    def method(self, state: Note) -> dict[str, object]:
        return {"parts": "method"}  # the last line


@node
@noted
def wrapped(state: Note, key=None) -> dict[str, object]:
    """Within."""
    return {"parts": "wrapped"}


OTHER = "hunter2 behind"
made = {"k": "hunter2", "first": lambda state: {"parts": "1"}, "second": lambda state: {"parts": "2"}, "z": "hunter2"}


def bound(state: Note, key: str) -> dict[str, object]:
    return {"parts": key}


def long(state: Note) -> dict[str, object]:
    """HERE"""
    return {"parts": "long"}


nodes = {
    "wrapped": wrapped, "method": node(Server().method, name="method"), "first": node(made["first"], name="first"),
    "second": node(made["second"], name="second"), "long": node(long), "called": node(Server(), name="called"),
    "partly": node(functools.partial(bound, key="hunter2 given"), name="partly"),
}
graph = Graph(name="file", state=Note, input="topic", nodes=nodes, edges="START -> " + " -> ".join(nodes) + " -> END")
'''


def test_file_line_and_text_of_a_nodes_function_are_shown_with_secrets_blanked() -> None:
    with api(outer, settings=ON) as served:
        served.start("outer", run_id="one")
        for name in ("works", "below/works"):
            found = served.get("runs/one/source", params={"node": name})
            assert found["file"] == __file__
            assert found["text"].startswith("@node\ndef works(")
            assert SECRET not in found["text"]
            assert found["same"] is True


@pytest.mark.parametrize("name", ["nope", "below", "works/works", "../../etc/passwd", "below/nope", "confirm"])
def test_what_is_no_function_of_the_graph_has_no_source(name: str) -> None:
    with api(outer, letter, settings=ON) as served:
        served.start("outer", run_id="one")
        assert served.client.get("/api/runs/one/source", params={"node": name}).status_code == 404
        assert served.client.get("/api/runs/none/source", params={"node": name}).status_code == 404


def test_it_is_off_unless_the_server_is_told_to() -> None:
    with api(outer) as served:
        served.start("outer", run_id="one")
        answer = served.client.get("/api/runs/one/source", params={"node": "works"})
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (403, "sources-off")
        assert "data-sources" not in served.client.get("/runs/one").text


def test_it_needs_a_right_of_its_own() -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return None if action == "show_source" else "ann"

    with api(outer, settings={**ON, "authorize": authorize}) as served:
        served.start("outer", run_id="one")
        assert served.client.get("/api/runs/one/source", params={"node": "works"}).status_code == 403


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file of a user, with secrets beside its functions that do not look like secrets."""
    place = tmp_path / "user_file.py"
    place.write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield place
    sys.modules.pop("user_file", None)


def source(served: Api, name: str, status: int = 200) -> Any:
    answer = served.client.get("/api/runs/one/source", params={"node": name})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_only_the_function_itself_is_shown_and_nothing_beside_it(file: Path) -> None:
    graph = importlib.import_module("user_file").graph
    with api(graph, settings=ON) as served:
        served.start("file", run_id="one")
        assert source(served, "wrapped")["text"].startswith("@node\n@noted\ndef wrapped(")
        assert source(served, "method")["text"].strip().endswith("# the last line")
        assert source(served, "first")["text"] == 'lambda state: {"parts": "1"}'
        assert source(served, "second")["text"] == 'lambda state: {"parts": "2"}'
        for name in ("called", "partly"):
            source(served, name, 404)
        for name in graph.nodes:
            assert "hunter2" not in served.client.get("/api/runs/one/source", params={"node": name}).text


@pytest.mark.parametrize(
    "changed",
    [
        "PASSWORD = 'hunter2'\n" * 40,  # other lines stand where the function stood
        FILE.replace('"parts": "wrapped"', '"parts": "hunter2"'),
        FILE.replace('"""Within."""', '"""Within."""  \n    hunter2 = 1'),
        "x = (\n" + FILE,
        "",
    ],
)
def test_of_a_file_that_has_changed_since_nothing_is_shown(file: Path, changed: str) -> None:
    with api(importlib.import_module("user_file").graph, settings=ON) as served:
        served.start("file", run_id="one")
        file.write_text(changed)
        os.utime(file, (1, 1))
        found = served.client.get("/api/runs/one/source", params={"node": "wrapped"})
        assert found.status_code in (404, 409)
        assert "hunter2" not in found.text


def test_a_huge_function_is_cut_and_no_secret_shows_at_the_cut(file: Path) -> None:
    file.write_text(FILE.replace("HERE", "x" * 49_850 + f"\n {SECRET} " + "y" * 1_000_000))
    with api(importlib.import_module("user_file").graph, settings=ON) as served:
        served.start("file", run_id="one")
        text = source(served, "long")["text"]
        assert len(text) == 50_000
        assert SECRET[:12] not in text


def test_runs_of_others_and_names_of_files_have_no_source(file: Path) -> None:
    def authorize(request: Any, action: str, run: Any) -> str | None:
        return "ann" if run is None or run.labels.get("of") == "ann" else None

    with api(outer, letter, settings={**ON, "authorize": authorize, "prefix": "/agents"}) as served:
        served.portal.call(lambda: served.executor.start(outer, "bees", run_id="one"))
        assert served.client.get("/agents/api/runs/one/source", params={"node": "works"}).status_code == 404

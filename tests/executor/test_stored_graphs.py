"""Graphs that are rebuilt from what a store says: once for each text in a process, and without code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import Executor, Graph
from orchestrator.executor import loader
from orchestrator.graph.model import GraphDefinition
from orchestrator.graph.reading import UnresolvedNode
from orchestrator.json import JsonObject
from tests.support.executors import Log, counting, says, single

pytestmark = pytest.mark.anyio


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the graphs that are rebuilt."""
    found: list[str] = []
    real = loader.stored_graph

    def counted(data: JsonObject) -> GraphDefinition:
        found.append(str(data["name"]))
        return real(data)

    loader._rebuilt.cache_clear()
    monkeypatch.setattr(loader, "stored_graph", counted)
    yield found
    loader._rebuilt.cache_clear()


async def test_a_stored_graph_is_rebuilt_once_for_all_loads_and_executors(tmp_path: Path, rebuilt: list[str]) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        for number in range(3):
            await executor.start(counting(), {"until": 2}, run_id=f"r{number}")
    for _ in range(3):
        async with Executor(url) as executor:
            runs = [await executor.load(f"r{number}") for number in range(3)]
            assert {run.output for run in runs} == {2}
            assert len({id(run.definition) for run in runs}) == 1
            await executor.history("r0")
    assert rebuilt == ["counting"]


async def test_an_executor_that_has_the_graph_uses_its_own_code(tmp_path: Path, rebuilt: list[str]) -> None:
    url, graph = f"sqlite:///{tmp_path}/runs.db", counting()
    async with Executor(url) as executor:
        await executor.start(graph, {"until": 2}, run_id="r")
    async with Executor(url) as without, Executor(url, graphs=[graph]) as having:
        bare, own = (await without.load("r")).definition, (await having.load("r")).definition
        assert own is graph
        assert isinstance(bare.nodes["count"], UnresolvedNode)
        assert (await without.load("r")).definition is bare
    other = counting()
    async with Executor(url, graphs=[other]) as executor:
        assert (await executor.load("r")).definition is other
    assert rebuilt == ["counting"]


async def test_graphs_of_one_digest_whose_nodes_have_another_order_are_not_mixed(tmp_path: Path) -> None:
    """The digest does not contain the order of nodes, which stores keep."""
    graph = Graph(
        name="two", state=Log, nodes={"a": says("a"), "b": says("b")},
        edges="START -> a -> b -> END", output="log",
    )  # fmt: skip
    orders = []
    for name, names in (("one", ["a", "b"]), ("other", ["b", "a"])):
        data = json.loads(json.dumps(graph.data()))
        data["nodes"] = {key: data["nodes"][key] for key in names}
        url = f"sqlite:///{tmp_path}/{name}.db"
        async with Executor(url) as executor:
            await executor.store.put_graph(graph.content, data)
            await executor.start(graph, {}, run_id="r")
        async with Executor(url) as executor:
            found = (await executor.load("r")).definition
            assert found.content == graph.content
            orders.append([*found.nodes])
    assert orders == [["a", "b"], ["b", "a"]]


async def test_nothing_is_imported_because_a_stored_graph_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    graph = single(lambda state: None, name="named")
    data = json.loads(json.dumps(graph.data()))
    data["nodes"]["work"]["ref"] = "never_imported:work"
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):
        found = loader._rebuilt(json.dumps(data))
        assert isinstance(found.nodes["work"], UnresolvedNode)
    assert "never_imported" not in sys.modules

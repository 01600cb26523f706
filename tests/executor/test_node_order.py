"""Graphs whose nodes are not in alphabetical order keep their order in stores and files.

The order decides which of several joins fires first (R8): in the graph of these tests one step is left for two joins,
and the join that the graph names first takes it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from orchestrator import Context, Executor, Graph, Limits, Update, node
from orchestrator.errors import GraphError
from orchestrator.graph import versions
from orchestrator.json import canonical
from orchestrator.stores import Store, open_store
from orchestrator.stores.memory import MemoryStore
from tests.support.executors import Log

pytestmark = pytest.mark.anyio

NAMES = ["start", "second", "first", "zulu", "alpha"]
TAKEN = ["start", "first", "second", "zulu"]
"""What is said if `zulu`, which the graph names before `alpha`, takes the last step."""


@node
async def start(state: Log, ctx: Context) -> Update:
    await ctx.ask("input", prompt="Go on?")
    return {"log": "start"}


@node
async def first(state: Log) -> Update:
    return {"log": "first"}


@node
async def second(state: Log) -> Update:
    return {"log": "second"}


@node
async def zulu(state: Log) -> Update:
    return {"log": "zulu"}


@node
async def alpha(state: Log) -> Update:
    return {"log": "alpha"}


@node
async def more(state: Log) -> Update:
    return {"log": "more"}


EDGES = """
START -> start -> first, second
first -> zulu, alpha
second -> alpha, zulu
zulu -> END
alpha -> END
"""
LATER = EDGES.replace("zulu -> END", "zulu -> more -> END")
"""The edges of a later version."""


def ordered(*names: str, edges: str = EDGES) -> Graph:
    parts: dict[str, Any] = {"start": start, "first": first, "second": second, "more": more}
    parts |= {"zulu": zulu.with_(join="all"), "alpha": alpha.with_(join="all")}
    return Graph(
        name="joins", state=Log, nodes={name: parts[name] for name in names}, edges=edges, output="log",
        limits=Limits(steps=4),
    )  # fmt: skip


async def paused(store: Store, graph: Graph) -> str:
    async with Executor(store, graphs=[graph]) as executor:
        run = await executor.start(graph)
    assert run.status == "paused"
    return run.run_id


async def finished(store: Store, graph: Graph, run_id: str) -> object:
    async with Executor(store, graphs=[graph]) as executor:
        (question,) = (await executor.load(run_id)).waiting
        run = await executor.answer(run_id, question.id, "yes")
        assert run.status == "exhausted"
        return run.output


async def nodes_of(store: Store, run_id: str, *graphs: Graph) -> list[str]:
    """The nodes of a run, read without its own graph."""
    async with Executor(store, graphs=graphs) as executor:
        return [*(await executor.load(run_id)).definition.nodes]


async def test_a_run_is_read_without_its_code_in_the_order_of_its_graph(store: Store) -> None:
    graph = ordered(*NAMES)
    run_id = await paused(store, graph)
    assert await nodes_of(store, run_id) == NAMES
    assert await finished(store, graph, run_id) == TAKEN
    async with Executor(store) as executor:
        run = await executor.load(run_id)
    assert (run.output, [*run.definition.nodes]) == (TAKEN, NAMES)


async def test_a_graph_made_from_what_a_store_holds_takes_the_same_steps(store: Store) -> None:
    graph = ordered(*NAMES)
    run_id = await paused(store, graph)
    again = Graph.from_data(await store.graph(graph.content), resolve=True)
    assert ([*again.nodes], again.content) == (NAMES, graph.content)
    assert await finished(store, again, run_id) == TAKEN


@pytest.mark.parametrize("suffix", ["yaml", "json"])
async def test_a_graph_file_keeps_the_order_of_the_nodes(tmp_path: Path, suffix: str) -> None:
    graph = ordered(*NAMES)
    graph.save(tmp_path / f"joins.{suffix}")
    again = Graph.load(tmp_path / f"joins.{suffix}")
    assert ([*again.nodes], again.content) == (NAMES, graph.content)
    store = MemoryStore()
    assert await finished(store, again, await paused(store, again)) == TAKEN


async def test_copies_keep_the_order_of_the_nodes(store: Store) -> None:
    run_id = await paused(store, ordered(*NAMES))
    other = MemoryStore()
    await store.copy(run_id, other)
    assert await nodes_of(other, run_id) == NAMES


async def test_a_later_version_in_another_order_leaves_the_stored_one_as_it_is(store: Store) -> None:
    run_id = await paused(store, ordered(*NAMES))
    later = ordered(*sorted([*NAMES, "more"]), edges=LATER)
    assert await nodes_of(store, run_id, later) == NAMES


async def test_a_run_of_an_earlier_version_of_the_library_goes_on_in_the_order_of_its_graph(tmp_path: Path) -> None:
    """Earlier versions stored all keys in alphabetical order."""
    graph, url = ordered(*NAMES), f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url, graphs=[graph]) as executor:
        run_id = (await executor.start(graph)).run_id
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        connection.execute("UPDATE graphs SET data = ?", (canonical(graph.data()),))
        connection.commit()
    store = open_store(url)
    assert await nodes_of(store, run_id) == sorted(NAMES)
    later = ordered("more", *NAMES, edges=LATER)
    assert await nodes_of(store, run_id, later) == NAMES
    assert await finished(store, graph, run_id) == TAKEN
    await store.close()


SORTED = sorted(NAMES)
"""An order in which `alpha`, which edges name after `zulu`, takes the last step."""


async def test_graphs_that_declare_their_joins_in_another_order_are_two_versions_of_one_structure_each() -> None:
    one, other = ordered(*NAMES), ordered(*SORTED)
    assert one.structure != other.structure
    assert one.content != other.content
    elsewhere = ordered("first", "second", "start", "zulu", "alpha")
    assert (elsewhere.structure, elsewhere.content) == (one.structure, one.content)


async def test_a_step_that_was_taken_is_not_taken_again_when_its_graph_declares_its_joins_in_another_order(
    store: Store,
) -> None:
    for names in (NAMES, SORTED):  # both versions are in one store
        graph = ordered(*names)
        run_id = await paused(store, graph)
        await finished(store, graph, run_id)
    other = ordered(*NAMES)
    async with Executor(store, graphs=[other]) as executor:
        before = await executor.load(run_id)
        assert before.output == ["start", "first", "second", "alpha"]
        run = await executor.resume(run_id, retry=True, limits=Limits(steps=6))
        assert run.status == "completed"
        assert run.output == ["start", "first", "second", "zulu", "alpha"]  # merged in the order of branches
        assert sorted(entry.node for entry in await executor.history(run_id)) == SORTED
        assert run.definition.structure == other.structure
    async with Executor(store) as executor:
        assert (await executor.load(run_id)).output == run.output


async def test_stored_data_says_the_order_of_joins_where_the_order_of_its_keys_is_lost() -> None:
    graph = ordered("zulu", "first", "start", "alpha", "second", edges=EDGES.replace("zulu, alpha", "alpha, zulu"))
    lost = json.loads(canonical(graph.data()))
    again = Graph.from_data(lost, resolve=True)
    assert [name for name in again.nodes if again.nodes[name].join] == ["zulu", "alpha"]
    assert (again.structure, again.content) == (graph.structure, graph.content)
    for wrong in (["zulu", "nowhere"], "zulu", [1], {"zulu": 1}):
        with pytest.raises(GraphError, match="'join_order' must be a list of joins"):
            Graph.from_data({**lost, "join_order": wrong})


@pytest.mark.parametrize("manner", ["continue", "strict"])
async def test_runs_from_before_the_order_was_in_digests_continue_in_their_graph(
    store: Store, manner: Literal["continue", "strict"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph is the same one, so that not even `strict` asks for anything."""
    with monkeypatch.context() as before:
        before.setattr(versions, "join_order", lambda joins, edges: ())
        old = ordered(*SORTED)
        run_id = await paused(store, old)
    graph = ordered(*SORTED)
    assert old.structure != graph.structure
    assert await nodes_of(store, run_id) == SORTED
    async with Executor(store, graphs=[graph], on_change=manner) as executor:
        assert not [one for one in await executor.graphs.check_runs(graph) if one.refused]
        (question,) = (await executor.load(run_id)).waiting
        run = await executor.answer(run_id, question.id, "yes")
        assert (run.status, run.output) == ("exhausted", ["start", "first", "second", "alpha"])
        assert (await executor.load(run_id)).definition.structure == graph.structure
    async with Executor(store) as executor:
        assert (await executor.load(run_id)).output == run.output

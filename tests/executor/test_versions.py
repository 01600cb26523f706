"""Graphs that changed while a run of theirs was waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import create_model

from orchestrator import Approve, Context, Executor, Graph, Outcome, Update, node
from orchestrator.errors import GraphChanged, GraphUnknown
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.stores import open_store
from orchestrator.stores.base import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel
from tests.support.executors import Log, says

pytestmark = pytest.mark.anyio

EDGES = """
    START -> before -> ask
    ask -> after : approved
    ask -> END   : denied
    after -> END
"""


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    found = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/runs.db")
    yield found
    await found.close()


def graph(edges: str = EDGES, *, prompt: str = "Go on?", state: Any = Log, name: str = "g", **nodes: Any) -> Graph:
    """A graph that waits in the middle; nodes of it can be other ones."""
    found = {"before": says("before"), "ask": Confirm(prompt=prompt), "after": says("after")}
    found = {key: nodes.pop(key, value) for key, value in found.items()} | nodes
    found = {key: value for key, value in found.items() if value is not None}
    return Graph(name=name, state=state, input="question", nodes=found, edges=edges, output="log")


async def waiting(store: Store) -> str:
    """A run of the graph as it was, which waits; its question."""
    async with Executor(store) as executor:
        run = await executor.start(graph(), run_id="r")
    assert run.status == "paused"
    return run.waiting[0].id


async def approved(store: Store, question: str) -> None:
    """Approve without any code."""
    async with Executor(store) as executor:
        await executor.answer("r", question, Approve(), resume=False)


async def changes(executor: Executor) -> list[Any]:
    """What the journal says that changed, each time."""
    return [event.data.get("changes") async for event in executor.events("r") if event.type == "resumed"]


# -- content -----------------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_in_changed_content_and_is_told_what_changed(store: Store) -> None:
    question = await waiting(store)
    changed = graph(prompt="Really?", after=says("now").with_(version="2"))
    async with Executor(store, graphs=[changed]) as executor:
        run = await executor.answer("r", question, Approve())  # asked in other words; it is the same approval
        assert run.output == ["before", "now"]
        (told,) = await changes(executor)
        assert "node 'ask': prompt changed" in told
        assert any(line.startswith("node 'after': ") and "version" in line for line in told)
        assert not any("before" in line for line in told)


async def test_what_did_not_change_is_not_told(store: Store) -> None:
    await approved(store, await waiting(store))
    async with Executor(store, graphs=[graph()], on_change="strict") as executor:
        assert (await executor.resume("r")).output == ["before", "after"]
        assert await changes(executor) == [None]


async def test_strict_refuses_changed_content_until_it_is_accepted(store: Store) -> None:
    await approved(store, await waiting(store))
    changed = graph(after=says("now").with_(version="2"))
    async with Executor(store, graphs=[changed], on_change="strict") as executor:
        before = await executor.load("r")
        for _ in range(2):
            with pytest.raises(GraphChanged, match=r"(?s)'r': graph 'g' changed .*node 'after': .*accept_changes=True"):
                await executor.resume("r")
        assert await executor.recover() == []
        assert await store.lease("r") is None
        assert (await executor.load("r")).seq == before.seq
        run = await executor.resume("r", accept_changes=True)
        assert run.output == ["before", "now"]
        assert len((await changes(executor))[0]) >= 1


async def test_what_was_accepted_once_is_the_graph_from_then_on(store: Store) -> None:
    second = graph(prompt="Really?")
    question = await waiting(store)
    async with Executor(store, graphs=[second], on_change="strict") as executor:
        assert (await executor.resume("r", accept_changes=True)).status == "paused"
        assert (await executor.resume("r")).status == "paused"
        assert question == (await executor.load("r")).waiting[0].id
    async with Executor(store, graphs=[graph()], on_change="strict") as executor:
        with pytest.raises(GraphChanged, match="node 'ask': prompt changed"):
            await executor.resume("r")


# -- structure ---------------------------------------------------------------------------------------------------------


def fields(**more: Any) -> Any:
    """The state with other fields."""
    return create_model("Log", __base__=Log, **more)


@node(outcomes=("done", "other"), effect="pure")
def forks(state: Log) -> Any:
    """Another outcome."""
    return {"log": "forks"}


CHANGED = {
    "the node that it is at was renamed": (
        graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?")),
        ["node 'ask' is gone (blocks this run)", "node 'confirm' is new"],
    ),
    "a node ahead is gone": (
        graph("START -> before -> ask -> END", after=None),
        ["node 'after' is gone (blocks this run)", "edge ask -> after : approved is gone (blocks this run)",
         "edge ask -> END is new (blocks this run)"],
    ),
    "an edge ahead leads elsewhere": (
        graph(EDGES.replace("after -> END", "after -> more -> END"), more=says("more")),
        ["edge after -> END is gone (blocks this run)", "node 'more' is new"],
    ),
    "a node ahead has another outcome": (
        graph(EDGES + "after -> END : other", after=forks),
        ["node 'after' has outcomes done, other, it had done (blocks this run)"],
    ),
    "a node ahead joins": (
        graph(after=says("after").with_(join="each")),
        ["node 'after' says join='each', it said join=None (blocks this run)"],
    ),
    "the state has another field": (
        graph(state=fields(more=(int, 0))), ["state field 'more' is new (blocks this run)"],
    ),
    "a field has another type": (
        graph(state=fields(n=(float, 0.0))), ["state field 'n' has another type or reducer (blocks this run)"],
    ),
    "a node ahead is a graph": (
        graph(after=Subgraph(Graph(name="i", state=Log, nodes={"a": says("a")}, edges="START -> a -> END"))),
        ["node 'after' has a graph inside (blocks this run)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
async def test_changed_structure_ahead_is_refused_with_all_that_differs(store: Store, what: str) -> None:
    changed, lines = CHANGED[what]
    question = await waiting(store)
    async with Executor(store, graphs=[changed]) as executor:
        before = await executor.load("r")
        resume = partial(executor.resume, "r", accept_changes=True)
        for refused in (resume, partial(executor.answer, "r", question, Approve())):
            with pytest.raises(GraphChanged, match=r"run 'r' is at ask, and graph 'g' changed on its way") as caught:
                await refused()
            for line in lines:
                assert f"  - {line}" in str(caught.value).splitlines(), str(caught.value)
        now = await executor.load("r")
        assert (now.status, now.seq, now.waiting) == ("paused", before.seq, before.waiting)
        assert await store.lease("r") is None
    async with Executor(store, graphs=[graph()]) as executor:  # as it was: nothing is lost
        assert (await executor.answer("r", question, Approve())).output == ["before", "after"]


async def test_changed_structure_behind_does_not_matter(store: Store) -> None:
    question = await waiting(store)
    changed = graph(
        EDGES.replace("START -> before", "START -> new -> other"), before=None, new=says("new"), other=says("other"),
        after=says("now"),
    )  # fmt: skip
    async with Executor(store, graphs=[changed]) as executor:
        run = await executor.answer("r", question, Approve())
        assert run.status == "completed"
        assert run.output == ["before", "now"]  # in the code of the new graph
        fresh = await executor.start(changed, run_id="fresh")
        assert fresh.values["log"] == ["new", "other"]
        assert [point.node for point in await executor.history("r")] == ["before", "ask", "after"]


async def test_a_graph_of_another_name_is_another_graph(store: Store) -> None:
    await waiting(store)
    async with Executor(store, graphs=[graph(name="h")]) as executor:
        with pytest.raises(GraphUnknown, match=r"graph 'g', which this executor does not have \(it has h\)"):
            await executor.resume("r")
        run = await executor.load("r")  # looking needs no code
        assert run.status == "paused"
        assert "after" in run.to_mermaid()


async def test_an_interrupted_step_is_not_run_in_a_node_that_is_another_one(store: Store) -> None:
    ran: list[str] = []

    @node
    async def first(state: Log, ctx: Context) -> Update:
        ran.append("first")
        return {"log": (await ctx.model.complete("?")).text}  # there is no model: it is interrupted

    @node(outcomes=("yes", "no"))
    async def second(state: Log) -> Outcome[Literal["yes", "no"]]:
        ran.append("second")
        return Outcome("yes")

    def one(step: Any) -> Graph:
        return Graph(name="g", state=Log, input="question", nodes={"step": step}, edges="START -> step -> END")

    async with Executor(store) as executor:
        with pytest.raises(GraphUnknown, match="uses a model"):
            await executor.start(one(first), run_id="r")
    async with Executor(store, graphs=[one(second)]) as executor:
        with pytest.raises(GraphChanged, match="node 'step' has outcomes yes, no, it had done"):
            await executor.resume("r")
        assert (await executor.load("r")).status == "interrupted"
    async with Executor(store, graphs=[one(first)], model=ScriptedModel(["hi"])) as executor:
        assert (await executor.resume("r")).values["log"] == ["hi"]
    assert ran == ["first", "first"]


async def test_what_a_run_waits_in_the_middle_of_may_not_change_inside(store: Store) -> None:
    def outer(**inner: Any) -> Graph:
        sub = Subgraph(graph(name="inner", **inner), outputs={"answer": "question"})
        return Graph(
            name="outer", state=Log, input="question", nodes={"sub": sub, "last": says("last")},
            edges="START -> sub -> last -> END", output="log",
        )  # fmt: skip

    async with Executor(store) as executor:
        (question,) = (await executor.start(outer(), run_id="r")).waiting
    assert (question.path, question.node) == ("sub", "ask")
    edges = EDGES.replace("after -> END", "after -> more -> END")
    async with Executor(store, graphs=[outer(edges=edges, more=says("more"))]) as executor:
        with pytest.raises(GraphChanged, match=r"the graph inside node 'sub' changed: .*node 'more' is new"):
            await executor.answer("r", question.id, Approve())
    async with Executor(store, graphs=[outer(prompt="Really?")], on_change="strict") as executor:
        with pytest.raises(GraphChanged, match="node 'sub': graph changed"):
            await executor.resume("r")
        assert (await executor.resume("r", accept_changes=True)).status == "paused"
        run = await executor.answer("r", question.id, Approve())
        assert run.status == "completed"
        assert run.output == ["last"]


# -- several versions in one executor ----------------------------------------------------------------------------------


async def test_a_run_goes_on_in_the_version_it_has_and_a_new_one_begins_in_the_newest(store: Store) -> None:
    question = await waiting(store)
    new = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"), after=says("new"))
    async with Executor(store, graphs=[new, graph()]) as executor:
        run = await executor.answer("r", question, Approve())
        assert (run.status, run.output) == ("completed", ["before", "after"])
        assert run.definition.structure == graph().structure
        fresh = await executor.start("g", run_id="fresh")
        assert fresh.waiting[0].node == "confirm"
        assert (await executor.answer("fresh", fresh.waiting[0].id, Approve())).output == ["before", "new"]
        assert await changes(executor) == [None]


async def test_of_versions_of_one_structure_the_one_of_the_runs_content_goes_on(store: Store) -> None:
    question = await waiting(store)
    newest, other = graph(after=says("newest").with_(version="3")), graph(after=says("other").with_(version="2"))
    async with Executor(store, graphs=[newest, other, graph()], on_change="strict") as executor:
        assert (await executor.answer("r", question, Approve())).output == ["before", "after"]


async def test_without_its_content_a_run_goes_on_in_the_newest_version_of_its_structure(store: Store) -> None:
    question = await waiting(store)
    longer = graph(EDGES.replace("after -> END", "after -> more -> END"), more=says("more"))
    one, two = graph(after=says("one").with_(version="3")), graph(after=says("two").with_(version="2"))
    async with Executor(store, graphs=[longer, one, two]) as executor:
        assert (await executor.answer("r", question, Approve())).output == ["before", "one"]


async def test_a_version_that_is_given_twice_is_one(store: Store) -> None:
    question = await waiting(store)
    async with Executor(store, graphs=[graph(), graph()]) as executor:
        assert (await executor.answer("r", question, Approve())).output == ["before", "after"]

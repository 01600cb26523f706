"""Migrations that a graph declares: runs of its earlier versions go on by them, and no user passes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field, JsonValue

from orchestrator import Approve, Executor, Graph, Run, tool
from orchestrator.errors import GraphChanged, GraphError, InvalidMigration
from orchestrator.graph import Migration
from orchestrator.nodes import Confirm, Execute, Subgraph
from tests.executor.test_versions import approved, fields, graph, store, waiting  # noqa: F401  a fixture
from tests.support.executors import Log, says

pytestmark = pytest.mark.anyio

EDGES = """
    START   -> before -> confirm
    confirm -> after : approved
    confirm -> END   : denied
    after   -> END
"""
RENAMED = Migration(nodes={"ask": "confirm"})


class Around(BaseModel):
    """The state of a graph around another one."""

    question: str = ""
    log: list[Any] = []


def later(migrations: Sequence[Migration] = (RENAMED,), edges: str = EDGES, *, state: Any = Log, **nodes: Any) -> Graph:
    """The next version: the node that runs wait at has another name."""
    found = {"before": says("before"), "confirm": Confirm(prompt="Go on?"), "after": says("after"), **nodes}
    return Graph(name="g", state=state, input="question", nodes=found, edges=edges, output="log", migrations=migrations)


async def moves(executor: Executor, run_id: str = "r") -> list[Any]:
    """What each migration renamed."""
    return [event.data.get("nodes", {}) async for event in executor.events(run_id) if event.type == "migrated"]


async def finished(executor: Executor, run: Run) -> Run:
    """The run at its end, with all that it asks approved."""
    while run.waiting:
        run = await executor.answer(run.run_id, run.waiting[0].id, Approve())
    return run


async def test_resume_recover_and_workers_move_a_run_by_the_migration_that_its_graph_declares(store: Any) -> None:  # noqa: F811
    for way in ("resume", "recover", "work"):
        async with Executor(store) as executor:
            asked = await executor.start(graph(), {}, run_id=way)
            await executor.answer(way, asked.waiting[0].id, Approve(), resume=False)
        async with Executor(store, graphs=[later()]) as executor:
            if way == "resume":
                run = await executor.resume(way)
            elif way == "recover":
                (run,) = await executor.recover()
            else:
                await executor.workers.drive(way)
                run = await executor.load(way)
            assert (await finished(executor, run)).output == ["before", "after"]
            assert await moves(executor, way) == [{"ask": "confirm"}]


async def test_resume_of_many_runs_moves_them_and_a_fork_is_moved(store: Any) -> None:  # noqa: F811
    for name in ("a", "b"):
        async with Executor(store) as executor:
            await executor.start(graph(), {}, run_id=name)
    async with Executor(store, graphs=[later()]) as executor:
        fork = await executor.fork("a", run_id="f", graph="g")
        assert (await finished(executor, fork)).output == ["before", "after"]
        found = await executor.resume_all(status="paused")
        assert {"a", "b"} <= {one.run_id for one in found.runs}
        for name in ("a", "b"):
            assert (await finished(executor, await executor.load(name))).output == ["before", "after"]


async def test_the_first_migration_that_the_run_fits_is_taken_and_only_if_it_does_not_fit_without(store: Any) -> None:  # noqa: F811
    question = await waiting(store)
    gone = Migration(nodes={"gone": "confirm"})
    async with Executor(store, graphs=[later([gone, RENAMED])]) as executor:
        run = await executor.resume("r")
        assert run.waiting[0].id != question
        assert (await finished(executor, run)).output == ["before", "after"]
        assert await moves(executor) == [{"ask": "confirm"}]
    async with Executor(store, graphs=[graph()]) as executor:
        await executor.start(graph(), {}, run_id="fits")
    more = graph(
        more=says("more"),
        edges="START -> before -> ask\nask -> after : approved\nask -> END : denied\nafter -> more -> END",
    )
    declaring = more.model_copy(update={"migrations": [Migration(nodes={"before": "more"})]})
    async with Executor(store, graphs=[declaring]) as executor:
        assert (await finished(executor, await executor.resume("fits"))).output == ["before", "after", "more"]
        assert await moves(executor, "fits") == [{}]


async def test_a_migration_that_is_passed_goes_before_the_declared_one(store: Any) -> None:  # noqa: F811
    await waiting(store)
    async with Executor(store, graphs=[later()]) as executor:
        with pytest.raises(InvalidMigration, match="no node 'nothing'"):
            await executor.resume("r", migrate=Migration(nodes={"nothing": "confirm"}))
        run = await executor.resume("r", migrate=Migration(nodes={"ask": "after"}, accept=True))
        assert run.output == ["before", "after"]
        assert await moves(executor) == [{"ask": "after"}]


async def test_a_run_that_fits_no_declared_migration_is_refused_with_the_reason(store: Any) -> None:  # noqa: F811
    await waiting(store, question="why")
    graphs = [later(state=fields(needed=(int, ...)))]
    async with Executor(store, graphs=graphs) as executor:
        with pytest.raises(GraphChanged, match=r"(?s)does not fit a migration that the graph declares: .*'needed'"):
            await executor.resume("r")
        assert await executor.recover() == []
        (found,) = await executor.graphs.check_runs(graphs[0])
        assert found.refused
        assert await moves(executor) == []
        state = {"needed": lambda old: len(old["question"])}
        graphs[0] = later([Migration(nodes={"ask": "confirm"}, state=state)], state=fields(needed=(int, ...)))
        (found,) = await executor.graphs.check_runs(graphs[0])
        assert not found.refused
    async with Executor(store, graphs=graphs) as executor:
        assert (await finished(executor, await executor.resume("r"))).values["needed"] == 3


MORE = """
    START -> before -> ask
    ask -> after : approved
    ask -> END   : denied
    after -> more -> END
"""
REWIRED = """
    START -> before -> ask
    ask   -> last  : approved
    ask   -> END   : denied
    last  -> after -> END
"""


async def test_changes_ahead_are_accepted_only_by_a_migration_that_says_so(store: Any) -> None:  # noqa: F811
    await waiting(store)

    def rewired(*migrations: Migration) -> Graph:
        made = graph(REWIRED, last=says("last"))
        return made.model_copy(update={"migrations": migrations})

    async with Executor(store, graphs=[rewired(Migration())]) as executor:
        with pytest.raises(GraphChanged, match=r"accept_changes=True"):
            await executor.resume("r")
    async with Executor(store, graphs=[rewired(Migration(accept=True))], on_change="strict") as executor:
        with pytest.raises(GraphChanged, match=r"accept_changes=True"):
            await executor.resume("r")
    async with Executor(store, graphs=[rewired(Migration(accept=True))]) as executor:
        run = await finished(executor, await executor.resume("r"))
        assert run.output == ["before", "last", "after"]


@tool(risk="dangerous")
async def wipe() -> str:
    """Wipe."""
    return "wiped"


class Wiping(Log, Execute.State):
    """A call that is about to be made."""

    tool: str = "wipe"


@pytest.mark.parametrize("inside", [False, True])
async def test_a_confirmation_that_is_gone_is_never_accepted_by_a_declaration(store: Any, inside: bool) -> None:  # noqa: F811
    def wiping(edges: str, *migrations: Migration, **nodes: Any) -> Graph:
        made = {"before": says("before"), "execute": Execute(), **nodes}
        found = Graph(
            name="w", state=Wiping, input="question", nodes=made, edges=edges, output="log", migrations=migrations
        )
        if not inside:
            return found
        inner = Subgraph(found, inputs={"question": "question"}, outputs={"log": "log"})
        return Graph(
            name="o", state=Around, input="question", nodes={"w": inner}, edges="START -> w -> END", output="log"
        )

    edges = "START -> before -> ask\nask -> execute : approved\nask -> END : denied\nexecute -> END"
    old = wiping(edges, ask=Confirm(tool="tool", args="args"))
    async with Executor(store, tools=[wipe]) as executor:
        await executor.start(old, {}, run_id="r", pause_before={"w/before" if inside else "before"})
    new = wiping("START -> before -> execute -> END", Migration(accept=True))
    async with Executor(store, graphs=[new], tools=[wipe]) as executor:
        with pytest.raises(GraphChanged, match=r"(?s)without a confirmation.*accept_changes=True"):
            await executor.resume("r")
        (found,) = await executor.graphs.check_runs(new)
        assert (found.refused, found.options) == (True, ("--accept-changes",))
        assert (await executor.resume("r", accept_changes=True)).status == "completed"


def nested(inner: Graph, name: str = "sub", migrations: Sequence[Migration] = ()) -> Graph:
    """A graph around another one."""
    return Graph(
        name="outer", state=Around, input="question",
        nodes={name: Subgraph(inner, inputs={"question": "question"}, outputs={"log": "log"})},
        edges=f"START -> {name} -> END", output="log", migrations=migrations,
    )  # fmt: skip


async def test_migrations_of_a_graph_hold_where_it_is_a_subgraph_too(store: Any) -> None:  # noqa: F811
    state = fields(count=(int, 3))
    async with Executor(store) as executor:
        await executor.start(nested(graph(state=state)), {}, run_id="r")
        await executor.start(nested(nested(graph(state=state))), {}, run_id="deep")
    inner = later([Migration(nodes={"ask": "confirm"}, state={"total": "count"})], state=fields(total=(int, 0)))
    outer = nested(inner, "draft", [Migration(nodes={"sub": "draft"})])
    async with Executor(store, graphs=[outer]) as executor:
        run = await executor.resume("r")
        assert [token.values["total"] for token in run.machine.live_tokens() if token.node == "confirm"] == [3]
        assert (await finished(executor, run)).output == ["before", "after"]
        assert await moves(executor) == [{"sub": "draft", "sub/ask": "draft/confirm"}]
    async with Executor(store, graphs=[nested(outer)]) as executor:
        assert (await finished(executor, await executor.resume("deep"))).output == ["before", "after"]


async def test_what_an_unchanged_node_asked_stays_open_and_its_approval_counts(store: Any) -> None:  # noqa: F811
    """Only where the graph says that its changes are accepted."""
    for accept in (True, False):
        name = "accepted" if accept else "again"
        async with Executor(store) as executor:
            question = (await executor.start(nested(graph()), {}, run_id=name)).waiting[0]
        outer = nested(graph(), "draft", [Migration(nodes={"sub": "draft"}, accept=accept)])
        async with Executor(store, graphs=[outer]) as executor:
            run = await executor.resume(name)
            now = run.waiting[0]
            assert (now.path, now.node) == ("draft", "ask")
            assert (now.id == question.id, now.digest == question.digest) == (accept, accept)
            assert (await finished(executor, run)).output == ["before", "after"]
    async with Executor(store) as executor:
        question = (await executor.start(nested(graph()), {}, run_id="answered")).waiting[0]
        await executor.answer("answered", question.id, Approve(), by="ann", resume=False)
    async with Executor(
        store, graphs=[nested(graph(), "draft", [Migration(nodes={"sub": "draft"}, accept=True)])]
    ) as executor:
        assert (await executor.resume("answered")).output == ["before", "after"]


async def test_an_answer_to_a_run_of_an_earlier_version_is_taken_and_moves_it(store: Any) -> None:  # noqa: F811
    async with Executor(store) as executor:
        question = (await executor.start(nested(graph()), {}, run_id="r")).waiting[0]
    outer = nested(graph(), "draft", [Migration(nodes={"sub": "draft"}, accept=True)])
    async with Executor(store, graphs=[outer]) as executor:
        run = await executor.answer("r", question.id, Approve(), digest=question.digest)
        assert run.output == ["before", "after"]


async def test_an_approval_that_led_elsewhere_is_asked_for_again(store: Any) -> None:  # noqa: F811
    await approved(store, await waiting(store))
    changed = graph(after=says("now").with_(version="2"), more=says("more"), edges=f"{graph_edges()}\nmore -> END")
    changed = changed.model_copy(update={"migrations": [Migration(accept=True)]})
    async with Executor(store, graphs=[changed]) as executor:
        run = await executor.resume("r")
        assert run.status == "paused"
        assert (await finished(executor, run)).output == ["before", "more"]


def graph_edges() -> str:
    """An approval leads to another node."""
    return "START -> before -> ask\nask -> more : approved\nask -> after : denied\nafter -> END"


async def test_a_graph_that_is_a_tool_moves_its_runs(store: Any) -> None:  # noqa: F811
    def asking(inner: Graph) -> Graph:
        class Calling(Log, Execute.State):
            tool: str = "g"
            args: dict[str, JsonValue] = Field(default={"question": "why"})

        asks = Execute().with_(tools=[inner.as_tool("g", "Asks.", risk="none")])
        return Graph(name="asking", state=Calling, nodes={"execute": asks}, edges="START -> execute -> END")

    begun, changed = (
        one.model_copy(update={"input": "question"}) for one in (graph(), later(state=fields(more=(int, 0))))
    )
    async with Executor(store) as executor:
        run = await executor.start(asking(begun), {}, run_id="r")
        assert run.waiting[0].kind == "approval"
    async with Executor(store, graphs=[asking(changed), changed]) as executor:
        run = await finished(executor, await executor.resume("r"))
        assert run.status == "completed", run.error
        assert run.values["result"]["output"] == ["before", "after"]


def test_migrations_are_no_part_of_digests_data_or_equality() -> None:
    plain = later([])
    declaring = plain.model_copy(update={"migrations": [RENAMED]})
    assert plain == declaring
    assert (plain.structure, plain.content, plain.data()) == (declaring.structure, declaring.content, declaring.data())
    assert declaring.with_limits(steps=5).replace(after=says("now")).migrations == (RENAMED,)
    assert plain.migrations == ()
    with pytest.raises(GraphError, match="migrations must be a list"):
        later({"ask": "confirm"})  # type: ignore[arg-type]

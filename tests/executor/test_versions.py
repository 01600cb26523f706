"""Graphs that changed while a run of theirs was waiting."""

from __future__ import annotations

import pickle
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import create_model, model_validator
from pydantic_core import to_json

from orchestrator import Approve, Context, Executor, Graph, Outcome, Update, node
from orchestrator.errors import GraphChanged, GraphUnknown, InvalidMigration, InvalidValue, StaleAnswer, StepError
from orchestrator.graph import Migration
from orchestrator.kernel.snapshot import dump, load
from orchestrator.nodes import Confirm, Subgraph
from orchestrator.render.moments import replay
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
    return Graph(name=name, state=state, nodes=found, edges=edges, output="log")


async def waiting(store: Store, **values: Any) -> str:
    """A run of the graph as it was, which waits; its question."""
    async with Executor(store) as executor:
        run = await executor.start(graph(), values, run_id="r")
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
        ["migration: node 'ask' is gone, and the run is at it", "compatible: node 'confirm' is new"],
        ("--rename", "ask=confirm"),
    ),
    "the node behind it is gone": (
        graph("START -> before -> ask -> END", after=None),
        ["compatible: node 'after' is gone", "decision: edge ask -> after : approved is gone",
         "decision: edge ask -> END is new"],
        ("--accept-changes",),
    ),
    "a node ahead has another outcome": (
        graph(EDGES + "after -> END : other", after=forks),
        ["decision: node 'after' has outcomes done, other, it had done"],
        ("--accept-changes",),
    ),
    "a value has another type, and the node is another one": (
        graph(EDGES.replace("ask", "confirm"), state=fields(n=(float, 0.5)), ask=None, confirm=Confirm(prompt="?")),
        ["migration: state field 'n' has another type, and has a value",
         "migration: node 'ask' is gone, and the run is at it"],
        ("--rename", "ask=confirm", "--rename", "state.n=n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
async def test_a_refusal_has_every_difference_with_its_grade_and_a_way_that_works(store: Store, what: str) -> None:
    changed, lines, options = CHANGED[what]
    question = await waiting(store, n=3)
    async with Executor(store, graphs=[changed]) as executor:
        before = await executor.load("r")
        for refused in (partial(executor.resume, "r"), partial(executor.answer, "r", question, Approve())):
            with pytest.raises(GraphChanged, match=r"run 'r' is at ask, and graph 'g' changed") as caught:
                await refused()
            for line in lines:
                assert f"  - {line}" in str(caught.value).splitlines(), str(caught.value)
            assert caught.value.options == options
            assert f"orchestrator resume r {' '.join(options)}" in str(caught.value)
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert await executor.recover() == []
        now = await executor.load("r")
        assert (now.status, now.seq, now.waiting) == ("paused", before.seq, before.waiting)
        assert await store.lease("r") is None
        arguments = eval(f"dict({caught.value.call.partition(', accept')[0]})", {"Migration": Migration})
        run = await executor.resume("r", **{**arguments, "accept_changes": "accept_changes=True" in caught.value.call})
        while run.status == "paused":
            run = await executor.answer("r", run.waiting[0].id, Approve())
        assert run.status == "completed"


async def test_a_renamed_node_that_a_run_is_at_is_never_a_success(store: Store) -> None:
    await waiting(store)
    renamed = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"))
    async with Executor(store, graphs=[renamed]) as executor:
        for accept in (False, True):
            with pytest.raises(GraphChanged):
                await executor.resume("r", accept_changes=accept)
        run = await executor.resume("r", migrate=Migration(nodes={"ask": "confirm"}))
        assert (run.status, run.values["log"]) == ("paused", ["before"])


async def test_a_migration_that_touches_a_node_asks_again_and_an_old_answer_does_not_count(store: Store) -> None:
    old = await waiting(store)
    renamed = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"))
    async with Executor(store, graphs=[renamed]) as executor:
        run = await executor.resume("r", migrate=Migration(nodes={"ask": "confirm"}))
        (question,) = run.waiting
        assert (question.node, question.id == old) == ("confirm", False)
        with pytest.raises(StaleAnswer):
            await executor.answer("r", old, Approve())
        assert (await executor.answer("r", question.id, Approve())).output == ["before", "after"]


async def test_an_approval_that_was_given_and_not_used_is_asked_for_again_where_its_node_changed(store: Store) -> None:
    await approved(store, await waiting(store))
    renamed = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"))
    async with Executor(store, graphs=[renamed]) as executor:
        run = await executor.resume("r", migrate=Migration(nodes={"ask": "confirm"}))
        assert (run.status, run.waiting[0].node) == ("paused", "confirm")


INVALID = {
    "no such node": (Migration(nodes={"asks": "confirm"}), "has no node 'asks'; it has "),
    "no such new node": (Migration(nodes={"ask": "confirms"}), "the new version has no node 'confirms'"),
    "no such field": (Migration(nodes={"ask": "confirm"}, state={"m": "n"}), "has no field 'm'"),
    "no such source": (Migration(nodes={"ask": "confirm"}, state={"n": "m"}), "there is no field 'm'"),
    "not a value": (Migration(nodes={"ask": "confirm"}, state={"n": lambda old: "x"}), "field 'n'"),
    "an error": (Migration(nodes={"ask": "confirm"}, state=lambda old: old["m"]), "the function raised KeyError"),
    "no mapping": (Migration(nodes={"ask": "confirm"}, state=lambda old: 3), "returned a int"),
    "no such join": (Migration(nodes={"ask": "confirm"}, joins={"k": "ask"}), "joins: there is no node 'k'"),
    "no such field to drop": (Migration(nodes={"ask": "confirm"}, drop=["m"]), "there is no field 'm'"),
}


@pytest.mark.parametrize("what", INVALID)
async def test_a_migration_that_does_not_fit_is_refused_before_it_is_journaled(store: Store, what: str) -> None:
    migration, fault = INVALID[what]
    await waiting(store)
    renamed = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"))
    async with Executor(store, graphs=[renamed]) as executor:
        before = await executor.load("r")
        with pytest.raises(InvalidMigration, match=re.escape(fault)):
            await executor.resume("r", migrate=migration)
        assert (await executor.load("r")).seq == before.seq
        assert await store.lease("r") is None


async def test_values_are_mapped_added_and_given_up_and_the_journal_says_which(store: Store) -> None:
    await waiting(store, n=3)
    changed = graph(state=fields(count=(int, 0), n=(str, ""), more=(list[int], [7])))
    async with Executor(store, graphs=[changed]) as executor:
        migrate = Migration(state={"count": lambda old: old["n"] * 2, "n": lambda old: f"was {old['n']}"})
        run = await executor.resume("r", migrate=migrate)
        assert {name: run.values[name] for name in ("count", "n", "more")} == {"count": 6, "n": "was 3", "more": [7]}
        (moved,) = [event.data async for event in executor.events("r") if event.type == "migrated"]
        assert moved["values"] == {"count": 6, "n": "was 3", "more": [7]}
        assert (moved["structure_before"], moved["structure"]) == (graph().structure, changed.structure)
        assert (moved["content_before"], moved["content"]) == (graph().content, changed.content)
        at = await executor.load("r", at=run.seq - 2)
        assert at.values["n"] == 3  # earlier records fold in their own graph


async def test_a_model_validator_of_the_new_state_refuses_a_migration(store: Store) -> None:
    class Strict(Log):
        more: int = 0

        @model_validator(mode="after")
        def _check(self) -> Strict:
            if self.n == 3:
                raise ValueError("n is 3")
            return self

    await waiting(store, n=3)
    async with Executor(store, graphs=[graph(state=Strict)]) as executor:
        with pytest.raises(GraphChanged, match="n is 3"):
            await executor.resume("r")


async def test_strict_refuses_a_compatible_change_until_it_is_accepted(store: Store) -> None:
    question = await waiting(store)
    longer = graph(EDGES.replace("after -> END", "after -> more -> END"), more=says("more"))
    async with Executor(store, graphs=[longer], on_change="strict") as executor:
        with pytest.raises(GraphChanged, match="compatible: node 'more' is new") as caught:
            await executor.resume("r")
        assert caught.value.options == ("--accept-changes",)
        await executor.resume("r", accept_changes=True)
        assert (await executor.answer("r", question, Approve())).output == ["before", "after", "more"]


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


async def test_changes_inside_a_subgraph_are_graded_by_its_path(store: Store) -> None:
    def outer(**inner: Any) -> Graph:
        sub = Subgraph(graph(name="inner", **inner), outputs={"answer": "question"})
        return Graph(
            name="outer", state=Log, input="question", nodes={"sub": sub, "last": says("last")},
            edges="START -> sub -> last -> END", output="log",
        )  # fmt: skip

    async with Executor(store) as executor:
        (question,) = (await executor.start(outer(), run_id="r")).waiting
    assert (question.path, question.node) == ("sub", "ask")
    edges = EDGES.replace("after : approved", "more : approved") + "more -> after"
    async with Executor(store, graphs=[outer(edges=edges, more=says("more"))]) as executor:
        with pytest.raises(GraphChanged, match=r"decision: edge ask -> after : approved in 'sub' is gone"):
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


# -- what else has to follow a migration -------------------------------------------------------------------------------


async def migrated(store: Store, **values: Any) -> tuple[Graph, int]:
    """A run that was moved to a graph in which the node that it is at has another name; the record of the move."""
    await waiting(store, **values)
    new = graph(
        EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"), state=fields(more=(int, 7))
    )
    async with Executor(store, graphs=[new]) as executor:
        await executor.resume("r", migrate=Migration(nodes={"ask": "confirm"}))
        moved = [event.seq async for event in executor.events("r") if event.type == "migrated"]
    assert moved[0] is not None
    return new, moved[0]


async def test_a_snapshot_behind_a_migration_is_loaded_in_the_new_graph(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.executor.snapshots.EVERY", 1)
    monkeypatch.setattr("orchestrator.executor.snapshots.BYTES", 1 << 20)
    new, at = await migrated(store)
    run = await _loaded(store)
    machine = run.machine
    await store.put_snapshot("r", machine.head, to_json(dump(machine)))
    for graphs in ([], [new], [new, graph()]):
        async with Executor(store, graphs=graphs) as executor:
            again = await executor.load("r")
            assert (again.values, again.waiting, again.definition.structure) == (run.values, run.waiting, new.structure)
            assert again.at(at - 1).values == {name: run.values[name] for name in run.values if name != "more"}
            assert again.overlay() == run.overlay()
    async with Executor(store, graphs=[new]) as executor:
        assert (await executor.answer("r", run.waiting[0].id, Approve())).output == ["before", "after"]


async def _loaded(store: Store) -> Any:
    async with Executor(store) as executor:
        return await executor.load("r")


async def test_a_fork_before_a_migration_is_in_the_old_graph_and_one_behind_it_in_the_new_one(store: Store) -> None:
    new, at = await migrated(store)
    async with Executor(store, graphs=[new, graph()]) as executor:
        old_fork = await executor.fork("r", at=at - 1, run_id="old")
        assert (old_fork.waiting[0].node, old_fork.definition.structure) == ("ask", graph().structure)
        new_fork = await executor.fork("r", at=(await executor.load("r")).seq, run_id="new")
        assert (new_fork.waiting[0].node, new_fork.values["more"]) == ("confirm", 7)
        for fork in (old_fork, new_fork):
            run = await executor.answer(fork.run_id, fork.waiting[0].id, Approve())
            assert (run.status, run.output) == ("completed", ["before", "after"])
            assert run.to_svg()


async def test_a_fork_goes_on_in_a_graph_of_another_structure(store: Store) -> None:
    await waiting(store)
    longer = graph(EDGES.replace("after -> END", "after -> more -> END"), more=says("more"))
    async with Executor(store, graphs=[graph()]) as executor:
        seq = (await executor.load("r")).seq
        fork = await executor.fork("r", at=seq, graph=longer, run_id="f")
        assert [event.type async for event in executor.events("f")].count("migrated") == 1
        run = await executor.answer("f", fork.waiting[0].id, Approve())
        assert run.output == ["before", "after", "more"]
        assert (await executor.load("r")).definition.structure == graph().structure


async def test_a_page_shows_what_came_before_a_migration_at_the_parts_of_the_last_version(store: Store) -> None:
    _, at = await migrated(store)
    run = await _loaded(store)
    replayed = replay(run.definition, run.records(), plan=run.plan)
    before = replayed.at(at - 1)
    assert "waiting" in before["node-confirm"].classes
    taken = {part for part, mark in before.items() if "taken" in mark.classes}
    assert taken == {"edge-START--before", "edge-before--confirm"}
    assert "node-confirm" in run.to_html()


async def test_a_refusal_suggests_names_inside_a_subgraph_that_has_another_name_itself(store: Store) -> None:
    def outer(name: str, ask: str) -> Graph:
        edges = EDGES.replace("ask", ask)
        inner = graph(edges, name="inner", **{"ask": None, ask: Confirm(prompt="Go on?")})
        nodes = {name: Subgraph(inner)}
        return Graph(name="outer", state=Log, nodes=nodes, edges=f"START -> {name} -> END", output="n")

    async with Executor(store) as executor:
        await executor.start(outer("sub", "ask"), run_id="r")
    async with Executor(store, graphs=[outer("draft", "confirm")]) as executor:
        with pytest.raises(GraphChanged) as caught:
            await executor.resume("r")
        assert caught.value.options == ("--rename", "sub=draft", "--rename", "sub/ask=draft/confirm")
        run = await executor.resume("r", migrate=Migration(nodes={"sub": "draft", "sub/ask": "draft/confirm"}))
        assert (run.waiting[0].path, run.waiting[0].node) == ("draft", "confirm")


async def test_a_failed_run_is_continued_in_a_version_that_does_not_fail(store: Store) -> None:
    @node
    async def fails(state: Log) -> Update:
        raise StepError("broken")

    async with Executor(store) as executor:
        run = await executor.start(graph(after=fails), run_id="r")
        assert (await executor.answer("r", run.waiting[0].id, Approve())).status == "failed"
    mended = graph(EDGES.replace("after", "later"), after=None, later=says("later"))
    async with Executor(store, graphs=[mended]) as executor:
        with pytest.raises(GraphChanged, match="node 'after' is gone, and the run is at it"):
            await executor.resume("r", retry=True)
        run = await executor.resume("r", retry=True, migrate=Migration(nodes={"after": "later"}))
        assert (run.status, run.output) == ("completed", ["before", "later"])


async def test_an_edited_version_checks_against_the_runs_of_a_store(store: Store) -> None:
    await waiting(store)
    renamed = graph(EDGES.replace("ask", "confirm"), ask=None, confirm=Confirm(prompt="Go on?"))
    longer = graph(EDGES.replace("after -> END", "after -> more -> END"), more=says("more"))
    async with Executor(store) as executor:
        (found,) = await executor.graphs.check_runs(renamed)
        assert (found.run_id, found.grade, found.refused, found.at) == ("r", "migration", True, ["ask"])
        assert found.options == ("--rename", "ask=confirm")
        (found,) = await executor.graphs.check_runs(longer)
        assert (found.grade, found.refused) == ("compatible", False)
        assert await executor.graphs.check_runs(graph(name="other")) == []


async def test_a_run_has_the_references_that_it_was_last_given_and_its_snapshots_have_them(store: Store) -> None:
    async with Executor(store) as executor:
        await executor.start(graph(), run_id="r", refs={"graph": "old:graph"})

    def named(root_id: str, name: str, has: Mapping[str, object]) -> dict[str, object] | None:
        asked.append((root_id, name, dict(has)))
        return None if has.get("graph") == "new:graph" else {**has, "graph": "new:graph"}

    asked: list[tuple[str, str, dict[str, object]]] = []
    new = graph(EDGES.replace("after -> END", "after -> last -> END"), last=says("last"))
    async with Executor(store, graphs=[new], refs=named) as executor:
        run = await executor.resume("r")
        assert run.refs == {"graph": "new:graph"}
        assert (await executor.resume("r")).seq == run.seq, "references that stay are not journaled again"
        assert asked == [("r", "g", {"graph": "old:graph"}), ("r", "g", {"graph": "new:graph"})]
        loaded = await executor.load("r")
        assert loaded.refs == run.refs
        assert (await executor.load("r", at=2)).refs == {"graph": "old:graph"}
        restored = load(loaded.machine.plan, dump(loaded.machine))
        assert restored.refs == run.refs
        fork = await executor.fork("r", at=2, graph=new, start=False)
        assert fork.refs == {"graph": "new:graph"}
        assert (await executor.fork("r", at=2, start=False)).refs == {"graph": "old:graph"}
        again = await executor.replay("r", new)
        assert again.run.refs == {"graph": "new:graph"}


async def test_references_that_cannot_be_stored_are_refused_and_the_run_stays_as_it_is(store: Store) -> None:
    question = await waiting(store)
    async with Executor(store, graphs=[graph()], refs=lambda *_: {"graph": object()}) as executor:
        before = await executor.load("r")
        with pytest.raises(InvalidValue, match="refs"):
            await executor.resume("r")
        assert (await executor.load("r")).seq == before.seq
        assert (await store.info("r")).lease is None
    await approved(store, question)

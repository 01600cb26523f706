"""Runs that ended, were reopened, and move to another version of their graph: what was set aside goes with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest

from orchestrator import Context, Executor, Graph, Limits, Run, Update, node
from orchestrator.errors import RunEnded, StoreUnavailable
from orchestrator.graph import Migration
from orchestrator.graph.model import GraphDefinition
from orchestrator.kernel.records import Record, StepFailed
from orchestrator.kernel.snapshot import dump
from orchestrator.nodes import Ask, Subgraph
from orchestrator.stores import Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.requests import Append
from tests.support.executors import Log, says

pytestmark = pytest.mark.anyio


class More(Log):
    more: str = "new"


class Bug:
    """A bug that is there until it is repaired, and what was done."""

    def __init__(self) -> None:
        self.there = True
        self.done: list[str] = []

    def node(self, name: str) -> Any:
        """A node that notes its name and then meets the bug."""

        @node
        async def work(ctx: Context[Any]) -> Update:
            await ctx.effect("note", lambda: self.done.append(name), returns=type(None))
            if self.there:
                raise ZeroDivisionError(f"a bug in {name}")
            return {"log": name}

        return work


async def folds_equally(store: Store, run: Run, *graphs: GraphDefinition) -> None:
    """What is folded from the journal, with and without code, is what the run is."""
    for given in ((), graphs):
        async with Executor(store, graphs=given) as executor:
            found = await executor.load(run.run_id)
            assert dump(found.machine) == dump(run.machine)
            for at in range(1, run.seq):
                await executor.load(run.run_id, at)


def rescued(state: Any = Log, *, last: str = "c", extra: bool = False) -> Graph:
    nodes: dict[str, Any] = {"a": says("a"), "b": says("b"), last: says("c"), "d": says("d")}
    if extra:
        nodes["e"] = says("e")
    return Graph(
        name="g", state=state, output="log", limits=Limits(steps=3),
        nodes={**nodes, "help": Ask(prompt="What now?", answer="answer")},
        edges=f"START -> a, b\na -> {last} -> d -> {'e -> ' if extra else ''}END\nb -> END\n"
        "* -> help : exhausted\nhelp -> END",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("new", "migrate"),
    [
        (rescued(More), Migration()),
        (rescued(extra=True), Migration()),
        (rescued(More, last="x"), Migration(nodes={"c": "x"})),
    ],
)
async def test_branches_before_a_spent_limit_move_with_the_run(store: Store, new: Graph, migrate: Migration) -> None:
    async with Executor(store) as executor:
        run = await executor.start(rescued(), {}, run_id="r")
        assert (run.status, run.waiting[0].node) == ("paused", "help")
    async with Executor(store, graphs=[new]) as executor:
        run = await executor.resume("r", migrate=migrate)
        assert run.definition.structure == new.structure
        run = await executor.answer("r", run.waiting[0].id, "go on")
        assert (run.status, run.output) == ("exhausted", ["a", "c", "b"])
        run = await executor.resume("r", retry=True, limits=Limits(steps=9))
        assert (run.status, run.output) == ("completed", ["a", "c", "d", *(["e"] if "e" in new.nodes else []), "b"])
        assert run.values["answer"] == ""  # what followed the limit is undone
    await folds_equally(store, run, new)


async def test_branches_that_do_not_fit_the_new_version_are_forgotten_and_the_run_goes_on(store: Store) -> None:
    new = Graph(
        name="g", state=Log, output="log", nodes={"a": says("a"), "help": Ask(prompt="What now?", answer="answer")},
        edges="START -> a -> END\n* -> help : exhausted\nhelp -> END",
    )  # fmt: skip
    async with Executor(store) as executor:
        await executor.start(rescued(), {}, run_id="r")
    async with Executor(store, graphs=[new]) as executor:
        run = await executor.resume("r", accept_changes=True)
        run = await executor.answer("r", run.waiting[0].id, "go on")
        assert (run.status, run.output) == ("exhausted", ["a", "c", "b"])
        with pytest.raises(RunEnded, match="merged in an earlier version"):
            await executor.resume("r", retry=True, limits=Limits(steps=9))
    await folds_equally(store, run, new)


class Dying(MemoryStore):
    """A store that loses its power before a record is written."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Record], bool] = lambda record: False

    async def append(self, append: Append) -> int:
        kept = list(takewhile(lambda one: not self.before(one), append.records))
        if len(kept) == len(append.records):
            return await super().append(append)
        if kept:
            await super().append(Append(append.run_id, kept, after=append.after, lease=append.lease))
        raise StoreUnavailable("no power")


def nested(bug: Bug, *, sub: str = "sub", state: Any = Log, deep: str = "y") -> Graph:
    inner = Graph(
        name="in", state=state, output="log", edges=f"START -> x -> {deep} -> END",
        nodes={"x": says("x"), deep: bug.node("y")},
    )  # fmt: skip
    return Graph(
        name="g", state=state, output="log", edges=f"START -> a -> {sub} -> j -> END",
        nodes={"a": says("a"), sub: Subgraph(inner), "j": says("j")},
    )  # fmt: skip


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize(
    ("changed", "migrate"),
    [
        ({"deep": "z"}, Migration(nodes={"sub/y": "sub/z"})),
        ({"sub": "other", "state": More}, Migration(nodes={"sub": "other"})),
    ],
)
async def test_a_graph_inside_that_failed_goes_on_in_the_new_version(
    changed: dict[str, Any], migrate: Migration, died: bool
) -> None:
    """Also where the process died when the graph had failed, and before the step around it had."""
    bug, store = Bug(), Dying()
    if died:
        store.before = lambda record: isinstance(record, StepFailed) and record.node == "sub"
    async with Executor(store) as executor:
        with contextlib.suppress(StoreUnavailable):
            await executor.start(nested(bug), {}, run_id="r")
        assert ((await executor.load("r")).status == "failed") is not died
    store.before = lambda record: False
    new = nested(bug, **changed)
    async with Executor(store, graphs=[new]) as executor:
        run = await executor.resume("r", retry=not died, migrate=migrate, accept_changes=True)
        assert run.status == "failed"
        bug.there = False
        run = await executor.resume("r", retry=True)
        assert (run.status, run.output) == ("completed", ["a", "j"])
        types = [one.type for one in run.records()]
        assert types.count("graph_opened") == 1
        assert types.count("migrated") == 1
        assert bug.done.count("y") == (2 if died else 3)
    await folds_equally(store, run, new)


async def test_a_run_that_failed_and_has_not_ended_moves_with_its_tokens() -> None:
    """The process died between the failure and the end."""
    bug, store = Bug(), Dying()
    store.before = lambda record: record.type == "ended"
    old = Graph(
        name="g", state=Log, nodes={"a": says("a"), "b": bug.node("b"), "c": says("c")}, output="log",
        edges="START -> a -> b -> c -> END",
    )  # fmt: skip
    new = Graph(
        name="g", state=More, nodes={"a": says("a"), "x": bug.node("b"), "c": says("c")}, output="log",
        edges="START -> a -> x -> c -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[old]) as executor:
        with pytest.raises(StoreUnavailable):
            await executor.start(old, {}, run_id="r")
    store.before = lambda record: False
    async with Executor(store, graphs=[new]) as executor:
        run = await executor.load("r")
        assert run.machine.result is not None
        assert run.machine.ended is None
        run = await executor.resume("r", migrate=Migration(nodes={"b": "x"}))
        assert run.status == "failed"
        bug.there = False
        run = await executor.resume("r", retry=True)
        assert (run.status, run.output) == ("completed", ["a", "b", "c"])
    await folds_equally(store, run, new)

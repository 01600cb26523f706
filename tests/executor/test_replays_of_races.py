"""Replays of races: a join of some merges what it merged in the replayed run, whatever order calls would end in."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.models.base import ModelRequest
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import ScriptedModel
from tests.executor.test_replay import Log
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio
BRANCHES = {"a": 2, "b": 1, "c": 1, "d": 2}
"""Branch -> its steps, one behind the other."""


def asks(name: str) -> Any:
    @node
    async def ask(ctx: Context[Any]) -> Update:
        return {"log": (await ctx.model.complete(name)).text}

    return ask


def race(join: int, *, rest: str) -> Graph:
    """Branches that meet in a join of some, behind which all that it merged is in a request."""
    names = {branch: [f"{branch}{number}" for number in range(steps)] for branch, steps in BRANCHES.items()}
    nodes: dict[str, Any] = {name: asks(name) for some in names.values() for name in some}

    @node
    async def last(state: Log, ctx: Context[Any]) -> Update:
        return {"log": (await ctx.model.complete(" ".join(sorted(state.log)))).text}

    nodes["join"] = last.with_(join=join, **({"rest": rest} if rest else {}))
    edges = f"START -> {', '.join(some[0] for some in names.values())}\n"
    edges += "\n".join(" -> ".join([*some, "join"]) for some in names.values()) + "\njoin -> END"
    return Graph(name="race", state=Log, input="topic", output="log", nodes=nodes, edges=edges)


class Outside:
    """A model whose replies come in a given order: of those that are waited for, the first of the order comes first."""

    def __init__(self, order: str) -> None:
        self._order, self._waiting = order, dict[str, anyio.Event]()
        self.model = ScriptedModel(self._reply)

    async def _reply(self, request: ModelRequest) -> str:
        said = request.messages[-1].content
        arrived = self._waiting[said] = anyio.Event()
        try:
            await arrived.wait()
        finally:
            del self._waiting[said]
        return said

    async def answer(self) -> None:
        while True:
            await anyio.wait_all_tasks_blocked()
            first = min(self._waiting, key=lambda said: (self._order.find(said[0]), said), default=None)
            if first is None:
                await anyio.lowlevel.checkpoint()
            else:
                self._waiting[first].set()


async def recorded(store: MemoryStore, graph: Graph, order: str) -> Run:
    """A run whose branches come to the join in this order."""
    outside, runs = Outside(order), list[Run]()
    async with Executor(store, graphs=[graph], model=outside.model) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(outside.answer)
        runs.append(await executor.start(graph, "x"))
        tasks.cancel_scope.cancel()
    return runs[0]


@pytest.mark.full
@quick_on("trio")
@pytest.mark.parametrize("rest", ["", "run"])
@pytest.mark.parametrize("join", [1, 2, 3])
async def test_a_join_of_some_merges_in_a_replay_what_it_merged(join: int, rest: str) -> None:
    graph = race(join, rest=rest)
    orders = ["dcba", "adbc", *map("".join, itertools.permutations(BRANCHES))]
    outputs = set()
    for order in orders[: sized(2, 10)]:
        store = MemoryStore()
        run = await recorded(store, graph, order)
        assert run.status == "completed"
        outputs.add(str(run.output))
        async with Executor(store, graphs=[graph]) as executor:
            for at in (None, *range(run.seq // 2, run.seq, sized(run.seq, 5))):
                replay = await executor.replay(run.run_id, at=at)
                assert replay.same, f"{order} at {at} {replay.diverged_at}\n{replay.diff.to_text()}"
                assert (replay.made, replay.run.output) == (0, run.output)
    assert len(outputs) > 1

"""Input that a fork or a map behind START cannot open with is refused, before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, node
from orchestrator.errors import InvalidInput
from orchestrator.nodes import Subgraph
from orchestrator.stores.base import Store

pytestmark = pytest.mark.anyio


class Work(BaseModel):
    tasks: list[dict[str, Any]] = []
    enough: int = 1


@node
def does(state: Work) -> None:
    """Do a task."""


mapped = Graph(
    name="mapped", state=Work, nodes={"does": does, "join": does.with_(join="all")},
    edges="START -> does : each tasks\ndoes -> join -> END",
)  # fmt: skip
counted = Graph(
    name="counted", state=Work, nodes={"a": does, "b": does, "join": does.with_(join="enough")},
    edges="START -> a, b\na, b -> join -> END",
)  # fmt: skip
FAULTS = [
    (
        {"tasks": [{"id": "a", "needs": ["b"]}, {"id": "b", "needs": ["a"]}]},
        "'a', 'b' depend on each other in a circle",
    ),
    ({"tasks": [{"id": "a", "needs": ["c"]}]}, "item 'a' needs 'c', and no item has that id"),
    ({"tasks": [{"id": "a", "needs": []}, {"id": "a", "needs": []}]}, "items 0 and 1 have the same id 'a'"),
    ({"tasks": [{"id": ["a"], "needs": [{}]}]}, "item 0 has an invalid id"),
]


@pytest.mark.parametrize(("given", "fault"), FAULTS)
async def test_items_that_a_map_at_the_start_cannot_order_are_refused(
    store: Store, given: dict[str, Any], fault: str
) -> None:
    async with Executor(store, graphs=[mapped]) as executor:
        for begin in (executor.start, executor.submit, executor.enqueue):
            with pytest.raises(InvalidInput, match="START maps over 'tasks': .*" + fault):
                await begin(mapped, given)
        assert (await executor.runs()).runs == ()


async def test_a_join_at_the_start_that_waits_for_no_branch_is_refused(store: Store) -> None:
    async with Executor(store, graphs=[counted]) as executor:
        with pytest.raises(InvalidInput, match="START opens a fork, and join waits for as many branches as 'enough'"):
            await executor.start(counted, {"enough": 0})
        assert (await executor.start(counted, {"enough": 2})).status == "completed"


@pytest.mark.parametrize(("given", "fault"), FAULTS[:1])
async def test_the_step_of_a_graph_whose_start_has_such_a_map_fails(
    store: Store, given: dict[str, Any], fault: str
) -> None:
    outer = Graph(
        name="outer", state=Work, nodes={"inner": Subgraph(mapped, inputs={"tasks": "tasks"})},
        edges="START -> inner -> END",
    )  # fmt: skip
    async with Executor(store, graphs=[outer]) as executor:
        run = await executor.start(outer, given)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "InvalidInput"
    assert fault in run.error.message
    assert "inner" in run.error.message

"""A run that stands still is looked at in a copy of its state, which costs no more when its values are large."""

from __future__ import annotations

import copy
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Executor, Graph, node
from orchestrator.nodes import Confirm


class Orders(BaseModel):
    """Calls that are asked about, each in a branch of its own."""

    orders: list[Any] = []
    order: Any = None
    done: Any = None


@node(effect="pure")
async def take(state: Orders) -> dict[str, object]:
    """The input, kept once more."""
    return {"done": state.orders}


orders: Graph = Graph(
    name="orders", state=Orders, input="orders",
    nodes={"take": take, "ask": Confirm(prompt="Do it?", show=["done"])},
    edges="START -> take\ntake -> ask : each orders\nask -> END : approved\nask -> END : denied",
)  # fmt: skip


async def calls_of_a_copy(size: int) -> int:
    """How often functions of `copy` are called for the state of a run with values of this size."""
    found = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and frame.f_code.co_filename == copy.__file__

    async with Executor(graphs=[orders]) as executor:
        run = await executor.start(orders, [[{} for _ in range(size)], {"size": size}], run_id="one")
        assert len(run.waiting) == 2
        await executor.send("one", "word", [{} for _ in range(size)], resume=False)
        machine = (await executor.load("one")).machine
        sys.setprofile(count)
        try:
            made = machine.copy()
        finally:
            sys.setprofile(None)
        assert made.head == machine.head
        assert [*made.questions.values()] == [*machine.questions.values()]
    return found


@pytest.mark.anyio
async def test_a_copy_of_a_state_costs_no_more_when_its_values_are_large() -> None:
    assert await calls_of_a_copy(1) == await calls_of_a_copy(1000) > 0


@node(effect="pure")
async def rest(state: Orders) -> None:
    """Nothing."""


idle: Graph = Graph(
    name="idle", state=Orders, input="orders", output="order", nodes={"rest": rest}, edges="START -> rest -> END"
)


async def calls_on_the_loop(size: int, do: Callable[[Executor, list[Any]], Awaitable[object]]) -> int:
    """How many functions of the library the event loop's thread calls for a run whose values have this size."""
    found = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and "/orchestrator/" in frame.f_code.co_filename

    async with Executor(graphs=[idle]) as executor:
        given = [[{"name": "x" * 50} for _ in range(size)]]
        await executor.start(idle, given, run_id="one")
        sys.setprofile(count)
        try:
            await do(executor, given)
        finally:
            sys.setprofile(None)
    return found


@pytest.mark.anyio
@pytest.mark.parametrize(
    "do",
    [
        lambda executor, _: executor.replay("one", replay_id="again"),
        lambda executor, given: executor.replay("one", replay_id="again", update={"orders": given}),
        lambda executor, given: executor.fork("one", at=1, update={"done": given}, start=False),
        lambda executor, given: executor.forks.preview("one", at=1, update={"done": given}),
    ],
    ids=["replay", "replay with another state", "fork", "preview of a fork"],
)
async def test_the_state_of_a_replay_or_fork_is_checked_in_a_thread(
    do: Callable[[Executor, list[Any]], Awaitable[object]],
) -> None:
    few, many = 2_000, 6_000  # both of a size that is worked on in a thread
    await calls_on_the_loop(few, do)  # what is imported or made once
    assert await calls_on_the_loop(many, do) - await calls_on_the_loop(few, do) < (many - few) / 2

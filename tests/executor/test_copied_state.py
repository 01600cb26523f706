"""A run that stands still is looked at in a copy of its state, which costs no more when its values are large."""

from __future__ import annotations

import copy
import sys
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

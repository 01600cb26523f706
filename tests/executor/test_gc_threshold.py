"""`Executor(gc_threshold=)`: how often Python looks for garbage while the executor is open."""

from __future__ import annotations

import gc

import pytest

from orchestrator import Executor

pytestmark = pytest.mark.anyio


async def test_the_threshold_holds_while_the_executor_is_open() -> None:
    before = gc.get_threshold()
    async with Executor(gc_threshold=50_000):
        assert gc.get_threshold() == (50_000, *before[1:])
    assert gc.get_threshold() == before


async def test_the_highest_of_several_holds_and_the_last_one_restores_it() -> None:
    before = gc.get_threshold()
    first, second = Executor(gc_threshold=60_000), Executor(gc_threshold=50_000)
    await first.open()
    await second.open()
    assert gc.get_threshold()[0] == 60_000
    await first.close()
    assert gc.get_threshold()[0] == 50_000
    await second.close()
    assert gc.get_threshold() == before


async def test_an_executor_without_one_leaves_the_threshold_alone() -> None:
    before = gc.get_threshold()
    async with Executor():
        assert gc.get_threshold() == before


async def test_a_threshold_that_would_turn_the_collector_off_is_refused() -> None:
    with pytest.raises(ValueError, match="give a positive number of objects, or None"):
        Executor(gc_threshold=0)

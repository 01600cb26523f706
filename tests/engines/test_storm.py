"""Engines, workers and stores fail over and over, while runs pay, wait and ask."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engines.crew import Server, crew
from tests.engines.storms import KINDS, Figures, plan, storm
from tests.support.postgres import PostgresServer
from tests.support.sizes import quick_on


async def stormy(server: Server, store: PostgresServer, folder: Path, count: int, seed: int) -> Figures:
    """So many faults."""
    store.create_database("storm")
    url = store.url("storm", patience=5)
    async with crew(folder, server, url, {"poll": 1.0}, {"poll": 1.0}, slowest=0.3) as found:
        result = await storm(found, server, store, plan(seed, count), seed)
    result.check()
    return result


def test_a_plan_follows_from_its_seed_and_has_all_kinds() -> None:
    one = plan(1, 25)
    assert one == plan(1, 25)
    assert one != plan(2, 25)
    assert set(Counter(fault.kind for fault in one).values()) == {25 // len(KINDS)}
    assert {fault.victim for fault in one} == {0, 1}


@pytest.mark.anyio
@pytest.mark.peer
@quick_on("asyncio")
async def test_one_fault_of_each_kind(server: Server, own_postgres: PostgresServer, tmp_path: Path) -> None:
    result = await stormy(server, own_postgres, tmp_path, len(KINDS), seed=3)
    print("\n".join(result.lines()))
    assert set(result.faults.values()) == {1}


@pytest.mark.anyio
@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_storm_of_faults(server: Server, own_postgres: PostgresServer, tmp_path: Path, scale: int) -> None:
    """`--storm-scale N`: 5 N faults."""
    result = await stormy(server, own_postgres, tmp_path, 5 * scale, seed=scale)
    print("\nstorm of engines:", *result.lines(), sep="\n  ")
    assert result.faults.total() == 5 * scale

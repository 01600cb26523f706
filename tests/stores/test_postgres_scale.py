"""A database of very many runs is opened, listed, searched and claimed from at the cost of one of few.

Counted are the pages that the server looks at, not seconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from orchestrator import Executor
from orchestrator.stores import open_store
from orchestrator.stores.owner import Owner
from orchestrator.stores.postgres import listing
from orchestrator.stores.requests import ClaimRequest, RunQuery
from tests.stores.test_many_runs import LISTS, QUESTIONS, SAMPLES, filled, refuse
from tests.support.many_runs import copied
from tests.support.postgres import PostgresDatabase
from tests.support.postgres_costs import Pages, multiplied
from tests.support.sizes import quick_on, sized

pytestmark = pytest.mark.anyio
FEW, MANY = 500, sized(5_000, 50_000)
Costs = dict[str, tuple[int, float]]

LARGE = {"runs", "labels", "records", "summaries", "run_totals", "run_parts", "failed_tools", "questions"}
"""Tables that grow with the runs."""


async def costs(url: str, pages: Pages, oldest: float) -> Costs:
    """Pages and seconds of everything that is done with a store."""
    found: Costs = {}

    async def cost(name: str, work: Callable[[], Awaitable[object]]) -> object:
        before, began = pages.count, time.perf_counter()
        result = await work()
        found[name] = pages.count - before, time.perf_counter() - began
        return result

    async def opened() -> None:
        store = open_store(url)
        await store.runs(RunQuery(limit=1))
        await store.close()

    async with Executor(url, tools=[refuse]) as executor:
        await cost("open", opened)
        for name, filters in (LISTS | {"since": {"since": oldest}, "not waiting": {"waiting": False}}).items():
            if "rare" in filters.get("labels", {}):
                continue  # a store of few has none
            page = await executor.runs(**filters, limit=20)
            await cost(name, lambda filters=filters: executor.runs(**filters, limit=20))
            if page.cursor is not None:
                await cost(
                    f"{name}: next",
                    lambda filters=filters, after=page.cursor: executor.runs(**filters, limit=20, after=after),
                )
        for name, filters in QUESTIONS.items():
            if "rare" in filters.get("labels", {}):
                continue
            await cost(name, lambda filters=filters: executor.questions(**filters, limit=20))
        store, owner = executor.store, Owner.here()
        await cost("read", lambda: store.read("done"))
        await cost("row", lambda: store.info("done"))
        # So many need fewer pages of an index than `grown` grants; a small table is read whole instead.
        await cost("heads", lambda: store.heads(["done", "asks", *(f"run-{number}" for number in range(18))]))
        assert await cost("claim", lambda: store.claim(ClaimRequest(owner, graphs=None, limit=10, ttl=30.0))) == []
        assert await cost("next due", lambda: store.next_due(None)) is None
        assert await cost("parked", store.parked) == []
        assert await cost("recover", lambda: executor.recover()) == []
        await cost("prune nothing", lambda: executor.prune(older_than=datetime.fromtimestamp(oldest, UTC)))
    return found


def grown(before: Costs, after: Costs) -> dict[str, tuple[int, int]]:
    """What costs more than among few runs. A tree with one more floor is looked at on one more page each time."""
    return {
        name: (before[name][0], count)
        for name, (count, _) in after.items()
        if name in before and count > 1.5 * before[name][0] + 100
    }


@quick_on("asyncio")
async def test_a_page_of_any_list_costs_no_more_among_many_runs(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNTED", 50)  # in both stores more are found than are counted
    async with Executor(postgres.url, tools=[refuse]) as executor:
        await filled(executor)
        oldest = (await executor.store.info("done")).created
        await copied(executor.store, SAMPLES, 100)
    multiplied(postgres, SAMPLES, FEW - 100, first=100)
    postgres.execute("ANALYZE")  # what the server believes from now on
    pages = Pages(monkeypatch)
    before = await costs(postgres.url, pages, oldest)
    multiplied(postgres, SAMPLES, MANY - FEW, first=FEW)
    pages.whole.clear()
    after = await costs(postgres.url, pages, oldest)
    assert grown(before, after) == {}
    assert LARGE.isdisjoint(pages.whole)


@pytest.mark.storm
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_database_of_very_many_runs_costs_what_one_of_few_costs(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, scale: int
) -> None:
    """20,000 runs, or a million with `--storm-scale 50`. Seconds are printed."""
    few = 500 if scale < 50 else 10_000
    most = 20_000 * scale
    monkeypatch.setattr(listing, "COUNTED", few // 10)  # in both stores more are found than are counted
    async with Executor(postgres.url, tools=[refuse]) as executor:
        await filled(executor)
        oldest = (await executor.store.info("done")).created
    multiplied(postgres, SAMPLES, few)
    pages = Pages(monkeypatch)
    before = await costs(postgres.url, pages, oldest)
    multiplied(postgres, SAMPLES, most - few, first=few)
    pages.whole.clear()
    after = await costs(postgres.url, pages, oldest)
    print(f"\nopened, listed and claimed from: {few:,} and {most:,} runs")
    for name, (count, seconds) in after.items():
        if name in before:
            first, took = before[name]
            print(f"{name:28} {first:8,} {count:8,} pages, {took * 1e3:8.1f} {seconds * 1e3:8.1f} ms")
    assert grown(before, after) == {}
    assert LARGE.isdisjoint(pages.whole)

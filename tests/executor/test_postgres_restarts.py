"""Runs that pay while their PostgreSQL server restarts, in each way: nothing is paid twice, and every run ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Literal

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, Tool, node, tool
from orchestrator.kernel.records import Asked, EffectSettled
from tests.support.postgres import PostgresServer
from tests.support.sizes import quick_on, sized

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

WAYS = ("fast", "immediate", "killed")
"""It ends what its clients do; it drops all and recovers from its log; all of its processes are killed."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that the tests of this module restart."""
    found = PostgresServer.make(durable=True)
    try:
        # What a server wrote outlives its processes without any sync; a commit still waits until it is written.
        found.execute("ALTER SYSTEM SET fsync = off")
        found.execute("SELECT pg_reload_conf()")
        found.make_template()
        yield found
    finally:
        found.remove()


@pytest.fixture
def url(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """An empty store."""
    name = f"test_{abs(hash(request.node.name))}"
    server.create_database(name)
    return server.url(name)


def restart(server: PostgresServer, way: str) -> None:
    """Restart a server at once."""
    if way == "killed":
        server.kill()
    else:
        server.stop(way)
    server.start()


class Shopping(BaseModel):
    rounds: int = 0
    most: int = 10


def shop(paid: list[str], pause: float) -> tuple[Graph, Tool]:
    """A graph of rounds in each of which something is paid, and its tool; what was paid is in the list."""

    @tool
    async def pay(what: str, idempotency_key: str) -> str:
        """Pay; nobody can look up what was paid."""
        paid.append(f"{what} {idempotency_key}")
        await anyio.sleep(pause)
        return f"paid for {what}"

    @node
    async def buy(state: Shopping, ctx: Context) -> Outcome[Literal["more", "enough"]]:
        assert not (await ctx.tool("pay", what=f"{ctx.run_id} {state.rounds}")).failed
        return Outcome("more" if state.rounds + 1 < state.most else "enough", rounds=state.rounds + 1)

    graph = Graph(
        name="shop", state=Shopping, nodes={"buy": buy}, edges="START -> buy\nbuy -> buy : more\nbuy -> END : enough",
        input="most", output="rounds", limits=Limits(steps=None),
    )  # fmt: skip
    return graph, pay


async def all_ended(executor: Executor, count: int) -> None:
    """Wait until so many runs have completed."""
    while len((await executor.runs(status="completed", limit=1000)).runs) < count:  # noqa: ASYNC110
        await anyio.sleep(0.05)


async def storm(server: PostgresServer, url: str, runs: int, rounds: int, restarts: int, seed: int = 0) -> list[str]:
    """Drive runs by two workers while the server restarts so many times; what was paid."""
    chance, paid = random.Random(seed), list[str]()
    graph, pay = shop(paid, 0.02)
    async with (
        Executor(url, graphs=[graph], tools=[pay]) as one,
        Executor(url, graphs=[graph], tools=[pay]) as two,
        anyio.create_task_group() as tasks,
    ):
        for number in range(runs):
            await one.enqueue(graph, rounds, run_id=f"r{number}")
        tasks.start_soon(partial(one.work, slots=runs // 2 + 1, poll=0.1))
        tasks.start_soon(partial(two.work, slots=runs // 2 + 1, poll=0.1))
        hit = 0
        for number in range(restarts):
            await anyio.sleep(chance.uniform(0.05, 0.3))
            hit += len(paid) < runs * rounds
            await anyio.to_thread.run_sync(restart, server, WAYS[number % len(WAYS)])
        with anyio.fail_after(120):
            await all_ended(one, runs)
        tasks.cancel_scope.cancel()
    assert hit == restarts, "the runs were over before the last restart"
    return paid


async def check(url: str, runs: int, rounds: int, paid: list[str]) -> None:
    """Hold what was paid, and the journals, against what is promised."""
    assert {times for _, times in Counter(paid).items()} == {1}, "a payment was made twice"
    assert len(paid) == runs * rounds
    async with Executor(url) as executor:
        for number in range(runs):
            records = await executor.store.read(f"r{number}")
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            settled = [record for record in records if isinstance(record, EffectSettled)]
            assert (len(settled), all(record.ok for record in settled)) == (rounds, True)
            assert not any(isinstance(record, Asked) for record in records)
            assert await executor.store.lease(f"r{number}") is None
        assert [finding for finding in await executor.store.check() if not finding.note] == []


@pytest.mark.full
async def test_nothing_is_paid_twice_while_the_server_restarts_in_each_way(server: PostgresServer, url: str) -> None:
    runs, rounds = sized(6, 20), sized(40, 80)
    paid = await storm(server, url, runs, rounds, restarts=sized(3, 9))
    await check(url, runs, rounds, paid)


@pytest.mark.storm
async def test_a_storm_of_restarts(server: PostgresServer, url: str, scale: int) -> None:
    """`--storm-scale N`: 20 runs of 40 N payments, and 6 N restarts."""
    runs, rounds = 20, 40 * scale
    paid = await storm(server, url, runs, rounds, restarts=6 * scale, seed=scale)
    await check(url, runs, rounds, paid)
    print(f"\nstorm of restarts: {6 * scale} restarts of the server, {len(paid)} payments, none twice, none lost")

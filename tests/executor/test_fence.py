"""Calls that wait for their turn while their process is stopped and their run is taken over."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from orchestrator import Context, Executor, Graph, Retry, Update, node, tool
from orchestrator.kernel.records import EffectSettled
from orchestrator.tools import Pool
from tests.executor.contest import AT_A_TIME
from tests.executor.lives import Program, programs
from tests.executor.outside import Outside, outside
from tests.executor.test_ownership import Scene, on_one_loop_each
from tests.executor.test_processes import aside, until
from tests.support.executors import Log, single
from tests.support.sizes import sized
from tests.support.stores import kinds

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def one() -> Iterator[Program]:
    """Another process."""
    with programs(1, "contest") as (found,):
        yield found


@pytest.fixture
async def scene(url: str, one: Program, anyio_backend: str) -> AsyncIterator[Scene]:
    with outside() as world:
        yield Scene(url, world, one, anyio_backend)
        one.stop()


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "books": ("book", {}),
    "notes": ("note", {}),
    "visits": ("visit", {}),
    "travels": ("travel", {"concurrency": AT_A_TIME}),
    "learns": ("model", {}),
}
"""Graph -> what the outside is asked for, and what the executor is given."""


@kinds("postgresql", "sqlite")
@on_one_loop_each("way", sized([*WAYS][::2], [*WAYS, *WAYS]))
async def test_calls_that_waited_while_the_run_was_taken_over_are_not_made(scene: Scene, way: str) -> None:
    what, options = WAYS[way]
    gate = scene.world.close(what)
    zombie = scene.begin(way, ttl=0.7, **options)
    await aside(partial(scene.world.arrived, what, AT_A_TIME))
    await aside(partial(zombie.stop, scene.store))
    entered = by(scene.world, zombie.name)
    gate.set()
    async with scene.here(**options) as executor:
        run = await executor.resume("r", wait=30)
        assert (run.status, len(run.output)) == ("completed", 60)
        zombie.send(signal.SIGCONT)
        assert (await aside(zombie.end))["error"] == "RunConflict"
    assert by(scene.world, zombie.name) == entered == AT_A_TIME
    if what in ("book", "note"):
        keys = [asked.key for asked in scene.world.asked]
        assert len(set(keys)) == len(keys), "an irreversible call was made twice"


@on_one_loop_each("way", ["books", "learns"])
async def test_calls_that_waited_while_the_lease_ran_out_are_made_if_the_run_was_not_taken_over(
    scene: Scene, way: str
) -> None:
    what, options = WAYS[way]
    gate = scene.world.close(what)
    sleeper = scene.begin(way, ttl=0.3, **options)
    await aside(partial(scene.world.arrived, what, AT_A_TIME))
    await aside(partial(sleeper.stop, scene.store))
    gate.set()
    await anyio.sleep(0.5)
    sleeper.send(signal.SIGCONT)
    assert (await aside(sleeper.result))["status"] == "completed"
    assert by(scene.world, sleeper.name) == scene.world.count(what) == 60


def by(world: Outside, life: str) -> int:
    """How many requests a process made."""
    return sum(asked.life == life for asked in world.asked)


# -- calls that were never made ----------------------------------------------------------------------------------------


async def test_a_call_that_still_waited_when_its_run_was_cancelled_is_known_not_to_have_been_made() -> None:
    pool = Pool(dict, 1)
    calls: list[str] = []

    @tool(pool=pool)
    async def pay(who: str, env: dict[str, str]) -> str:
        """Pay."""
        calls.append(who)
        await anyio.sleep_forever()
        raise AssertionError

    def paying(who: str) -> Any:
        async def work(ctx: Context) -> Update:
            return {"log": (await ctx.tool("pay", who=who)).text}

        return single(work, name=who)

    async with Executor(tools=[pay]) as executor:
        await executor.submit(paying("ann"), run_id="ann")
        await until(so(lambda: calls))
        await executor.submit(paying("bob"), run_id="bob")
        await until(so(lambda: pool.statistics().waiting))
        for run_id, unknown in (("bob", False), ("ann", True)):
            await executor.cancel(run_id)
            records = await executor.store.read(run_id)
            (settled,) = [record for record in records if isinstance(record, EffectSettled)]
            assert (settled.ok, settled.unknown) == (False, unknown)
    assert calls == ["ann"]


async def test_a_call_whose_time_ran_out_while_it_waited_for_a_thread_is_made_by_a_retry_without_asking() -> None:
    calls: list[int] = []
    stopped = threading.Event()

    @node(effect="irreversible", timeout=0.1, retry=Retry(attempts=3, wait=0.01))
    def send(ctx: Context) -> Update:
        calls.append(ctx.attempt)
        return {"log": "sent"}

    async def retried() -> bool:
        return any(record.type == "step_retried" for record in await executor.store.read("r"))

    async def occupy(ctx: Context) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_A_TIME):
                tasks.start_soon(partial(ctx.effect, "wait", stopped.wait, returns=bool))
            await until(retried)
            stopped.set()

    async def wait() -> None:
        await until(so(lambda: executor._host.resources.threads.available_tokens == 0))

    graph = Graph(
        name="busy", state=Log, nodes={"occupy": node(occupy), "wait": node(wait), "send": send},
        edges="START -> occupy, wait\noccupy -> END\nwait -> send -> END", output="log",
    )  # fmt: skip
    async with Executor() as executor:
        run = await executor.start(graph, run_id="r")
        for one in await executor.store.read("r"):
            if getattr(one, "node", "") == "send":
                print(one)
        assert (run.status, run.output) == ("completed", ["sent"])
        ends = [record for record in await executor.store.read("r") if isinstance(record, EffectSettled)]
    sent = [record for record in ends if record.node == "send"]
    assert len(calls) == 1
    assert not any(record.unknown for record in sent)
    assert [record.ok for record in sent] == [False] * (len(sent) - 1) + [True]
    assert len(sent) > 1, "the call never waited"


async def test_an_instance_is_not_lost_by_a_call_that_was_cancelled_while_it_waited_for_a_thread() -> None:
    pool = Pool(dict, 1)
    freed = threading.Event()

    @tool(pool=pool)
    def use(env: dict[str, str]) -> str:
        """Use it."""
        return "used"

    assert await use(id="a") == "used"
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, freed.wait)
        while not anyio.to_thread.current_default_thread_limiter().borrowed_tokens:
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.05) as scope:
            await use(id="a")
        assert scope.cancelled_caught
        freed.set()
    with anyio.fail_after(60):
        assert await use(id="b") == "used"


def so(true: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """As `until` wants it."""

    async def now() -> object:
        return true()

    return now

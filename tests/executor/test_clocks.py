"""Clocks that disagree or jump: what was written by one of them is never waited for longer than was meant."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Limits, Retry, Update, node
from orchestrator.kernel.records import EffectSettled
from orchestrator.nodes import Subgraph
from tests.executor.lives import Program, programs
from tests.executor.outside import outside
from tests.executor.test_ownership import HOUR, Scene
from tests.executor.test_processes import aside, until
from tests.support.executors import Log, chain

pytestmark = pytest.mark.anyio

SOON = 0.6 * HOUR
"""Seconds that are far less than an hour, and far more than anything here takes."""


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


def each(*cases: object) -> pytest.MarkDecorator:
    """Each case with a clock that is ahead and one that is behind, in turn on asyncio and on trio."""
    pairs = itertools.product(cases, (HOUR, -HOUR))
    loops = itertools.cycle(("asyncio", "trio", "trio", "asyncio"))
    return pytest.mark.parametrize(
        ("case", "ahead", "anyio_backend"),
        [(case, ahead, loop) for (case, ahead), loop in zip(pairs, loops, strict=False)],
        indirect=["anyio_backend"],
    )


@each("stumble", "call_again")
async def test_a_pause_before_a_further_try_is_not_prolonged_by_a_wrong_clock(
    scene: Scene, case: str, ahead: float
) -> None:
    first = scene.begin(case, ahead=ahead)
    async with scene.here() as executor:

        async def waits() -> bool:
            try:
                records = await executor.store.read("r")
            except Exception:  # it has not begun
                return False
            return any(r.type == "step_retried" or (isinstance(r, EffectSettled) and r.next_at) for r in records)

        await until(waits)
        first.kill()
        await aside(first.end)
        with anyio.fail_after(120):
            run = await executor.resume("r", wait=60)
        assert run.status == "completed"


@each("wait_for_word")
async def test_a_deadline_is_not_put_off_by_a_wrong_clock(scene: Scene, case: str, ahead: float) -> None:
    first = scene.begin(case, ahead=ahead)
    assert (await aside(first.result))["status"] == "paused"
    async with scene.here() as executor:

        async def recovered() -> bool:
            return bool(await executor.recover())

        assert await until(recovered) < SOON
        run = await executor.load("r")
        assert (run.status, run.output) == ("completed", ["deny"])


@each("wait_for_word")
async def test_a_deadline_of_another_clock_passes_while_something_else_runs(
    case: str, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = anyio.Event()

    async def asks(ctx: Context) -> Update:
        return {"log": (await ctx.ask("input", prompt="?", deadline=0.3)).type}

    async def works() -> Update:
        begun.set()
        await anyio.sleep(1)
        return {"log": "worked"}

    graph = Graph(
        name="both", state=Log, nodes={"asks": node(asks), "works": node(works)},
        edges="START -> asks, works\nasks -> END\nworks -> END", output="log",
    )  # fmt: skip
    right = time.time
    async with Executor(graphs=[graph]) as executor:
        monkeypatch.setattr(time, "time", lambda: right() + ahead)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(executor.start, graph, run_id="r"))
            await begun.wait()
            tasks.cancel_scope.cancel()
        monkeypatch.setattr(time, "time", right)
        run = await executor.resume("r")
        assert (run.status, run.output) == ("completed", ["deny", "worked"])


# -- a clock that jumps while a run is driven --------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_clock_that_jumps_neither_spends_nor_gives_seconds(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time

    async def jumps() -> Update:
        monkeypatch.setattr(time, "time", lambda: right() + jump)
        return {"log": "jumped"}

    async def works() -> Update:
        await anyio.sleep(0.4)
        return {"log": "worked"}

    limits = Limits(seconds=SOON)
    run = await chain(node(jumps), node(works), limits=limits).run()
    assert (run.status, run.output) == ("completed", ["jumped", "worked"])
    assert 0.3 < run.seconds < SOON
    monkeypatch.setattr(time, "time", right)
    run = await chain(node(jumps), node(works), limits=Limits(seconds=0.2)).run()
    assert run.status == "exhausted"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_clock_that_jumps_moves_no_time_out_pause_or_deadline(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time

    async def stumbles(ctx: Context) -> Update:
        monkeypatch.setattr(time, "time", lambda: right() + jump)
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        return {"log": "stumbled"}

    async def sleeps() -> None:
        await anyio.sleep(60)

    graph = Graph(
        name="outer", state=Log,
        nodes={
            "stumbles": node(retry=Retry(attempts=2, wait=0.05))(stumbles),
            "sub": Subgraph(chain(node(sleeps), name="inner"), timeout=0.2),
            "late": node(late),
        },
        edges="START -> stumbles -> sub -> END\nsub -> late : timeout\nlate -> END", output="log",
    )  # fmt: skip
    with anyio.fail_after(20):
        run = await graph.run()
    assert (run.status, run.output) == ("completed", ["stumbled", "late"])


async def late() -> Update:
    return {"log": "late"}

"""Who may go on with a run: fenced out at once, asked before an effect, told by clocks that may be wrong."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Context, Executor, Graph, Retry, Tool, Update, node, tool
from orchestrator.errors import RunConflict
from orchestrator.kernel.records import Ended, Record
from orchestrator.stores import open_store
from orchestrator.stores.base import Lease, Store
from orchestrator.stores.memory import MemoryStore
from orchestrator.stores.sqlite import SQLiteStore
from tests.executor.contest import ACTS, Sure, fetch, opened
from tests.executor.lives import Life, Program, programs
from tests.executor.outside import Outside, outside
from tests.executor.program import Trip, agree, tidy, tools
from tests.executor.test_processes import aside, until
from tests.support.executors import Log, chain, says, single
from tests.support.sizes import quick_on, sized
from tests.support.stores import execute

pytestmark = pytest.mark.anyio

HOUR = 3600.0
WHAT = {"model": "model", "stream": "model", "order": "order", "fetch": "fetch", "save": "save", "send": "send"}
"""What the outside is asked for by each act."""
NAME = {**WHAT, "model": "far", "stream": "far"}
"""What the journal calls it."""


def on_one_loop_each(what: str, cases: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize by cases, in turn on asyncio and on trio: those that take time need not all run on both."""
    pairs = list(zip(cases, itertools.cycle(("asyncio", "trio")), strict=False))
    return pytest.mark.parametrize((what, "anyio_backend"), pairs, indirect=["anyio_backend"])


def elsewhere() -> Lease:
    """A lease of run `r` whose holder cannot be looked at from here."""
    token = f"lease {time.monotonic_ns()}"
    return Lease("r", token, token, {"host": "elsewhere", "machine": "another", "boot": "another", "pid": 7})


async def taken(store: Store, ttl: float = 60.0) -> Lease:
    """Have a run taken over, whoever holds it."""
    held = await store.lease("r")
    assert held is not None
    lease = elsewhere()
    assert await store.take_lease(lease, ttl=ttl, replaces=held.token)
    return lease


async def taken_for_hours(store: Store, path: str, ttl: float) -> Lease:
    """The same with a lease that is to be renewed soon, and ends in an hour all the same, as a wrong clock has it."""
    lease = elsewhere()
    assert await store.take_lease(lease, ttl=ttl)
    late(path, lease)
    return lease


def late(path: str, lease: Lease) -> None:
    """Let a lease end an hour later."""
    execute(path, f"UPDATE holders SET expires = expires + {HOUR} WHERE holder = '{lease.holder}'")


# -- the fence ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    found = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/runs.db")
    yield found
    await found.close()


async def test_who_was_taken_over_writes_nothing_though_its_successor_has_not_written_yet(store: Store) -> None:
    begun, released = anyio.Event(), anyio.Event()

    async def work(state: Log) -> Update:
        begun.set()
        await released.wait()
        return {"log": "late"}

    async with Executor(store) as executor:
        await executor.submit(single(work), run_id="r")
        await begun.wait()
        before = await store.read("r")
        mine = await taken(store)
        released.set()
        with pytest.raises(RunConflict, match="taken over"):
            await executor.wait("r")
        assert await store.read("r") == before
        assert await store.lease("r") == mine
        assert (await store.info("r")).status == "running"


async def test_who_gave_its_lease_back_writes_nothing_more(store: Store) -> None:
    async def work(ctx: Context) -> Update:
        held = await store.lease("r")
        assert held is not None
        await store.drop_lease("r", held.token)
        return {"log": "late"}

    graph = single(work)
    async with Executor(store) as executor:
        with pytest.raises(RunConflict):
            await executor.start(graph, run_id="r")
        assert (await executor.load("r")).values["log"] == []


async def test_a_tool_is_not_tried_again_by_who_lost_the_run_meanwhile(store: Store) -> None:
    calls: list[int] = []

    @tool(effect="idempotent", retry=Retry(attempts=3, wait=0.0))
    async def fails() -> str:
        """Fails, after so long a time that others took the run over."""
        calls.append(1)
        await taken(store)
        time.sleep(0.4)  # noqa: ASYNC251  nothing in this process goes on meanwhile
        raise ConnectionError("gone")

    async def work(ctx: Context) -> Update:
        return {"log": (await ctx.tool("fails")).text}

    tools: list[Tool] = [fails]
    async with Executor(store, tools=tools, lease_ttl=0.3) as executor:
        with pytest.raises(RunConflict):
            await executor.start(single(work), run_id="r")
    assert len(calls) == 1
    assert [record.type for record in await store.read("r")] == ["run_started", "effect_intended"]


async def test_an_effect_is_called_whose_lease_ran_out_and_is_still_ours(store: Store) -> None:
    async def work(ctx: Context) -> Update:
        for number in range(3):
            time.sleep(0.25)  # noqa: ASYNC251  nothing in this process goes on meanwhile
            await ctx.effect(f"e{number}", lambda: "done", returns=str)
        return {"log": "done"}

    async with Executor(store, lease_ttl=0.2) as executor:
        run = await executor.start(single(work), run_id="r")
    assert run.output == ["done"]


async def test_of_two_runs_the_one_that_was_taken_over_is_lost_and_the_other_goes_on(store: Store) -> None:
    released = anyio.Event()

    async def work(state: Log) -> Update:
        await released.wait()
        return {"log": "went on"}

    graph = single(work)
    async with Executor(store, lease_ttl=0.3) as executor:
        for run_id in ("q", "r"):
            await executor.submit(graph, run_id=run_id)
        mine = await taken(store)
        with pytest.raises(RunConflict, match="took over its lease"):
            await executor.wait("r")  # found out by a beat: no record is written meanwhile
        released.set()
        assert (await executor.wait("q")).output == ["went on"]
        assert await store.lease("r") == mine
        assert (await store.info("r")).deaths == 1


async def test_all_runs_of_an_executor_are_renewed_by_one_write(tmp_path: Path) -> None:
    released = anyio.Event()

    async def work(state: Log) -> Update:
        await released.wait()
        return {"log": "went on"}

    graph = single(work)
    async with Executor(f"sqlite:///{tmp_path}/runs.db", lease_ttl=0.6) as executor:
        ids = [await executor.submit(graph, run_id=f"r{number}") for number in range(20)]
        assert isinstance(executor.store, SQLiteStore)
        before, began = executor.store.statistics().writes, time.monotonic()
        await anyio.sleep(1.3)
        writes, seconds = executor.store.statistics().writes - before, time.monotonic() - began
        assert 0 < writes <= 2 + 6 * seconds, "one for each lease would be 20 times as many"
        assert None not in [await executor.store.lease(run_id) for run_id in ids]
        released.set()
        for run_id in ids:
            assert (await executor.wait(run_id)).output == ["went on"]


# -- other processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one() -> Iterator[Program]:
    """Another process."""
    with programs(1, "contest") as (found,):
        yield found


class Scene:
    """A store, a world outside, and a run in another process."""

    def __init__(self, store: str, world: Outside, program: Program, backend: str) -> None:
        self.store, self.world, self._program, self._backend = store, world, program, backend

    def begin(self, act: str, **order: Any) -> Life:
        """Let the other process begin a run of one effect."""
        return self._program.begin(
            act, store=self.store, url=self.world.url, run_id="r", backend=self._backend, **order
        )

    def here(self, **options: Any) -> Executor:
        """An executor in this process."""
        return opened(self.store, Sure(self.world.url, "here"), **options)


@pytest.fixture
async def scene(url: str, one: Program, anyio_backend: str) -> AsyncIterator[Scene]:
    with outside() as world:
        yield Scene(url, world, one, anyio_backend)
        one.stop()


async def is_stopped(life: Life) -> bool:
    """Whether a process is stopped just now."""
    return Path(f"/proc/{life.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def whole(records: list[Record]) -> bool:
    """Whether a journal has no gap and one end."""
    ends = sum(isinstance(record, Ended) for record in records)
    return ends == 1 and [record.seq for record in records] == list(range(1, len(records) + 1))


@on_one_loop_each("act", [*ACTS][:: sized(2, 1)])
async def test_who_wakes_after_its_run_was_taken_over_does_not_call_what_it_intended(scene: Scene, act: str) -> None:
    zombie = scene.begin(act, before=NAME[act], ttl=0.5)
    async with scene.here() as executor:
        await until(partial(is_stopped, zombie))
        assert scene.world.count(WHAT[act]) == 0
        run = await executor.resume("r", wait=30)
        if run.status == "paused":  # nobody can know that the other never called
            assert [question.kind for question in run.waiting] == ["unknown_outcome"]
            assert run.waiting[0].payload["tool"] == act
            said = {"notes": "yes"} if act == "send" else "yes"
            run = await executor.answer("r", run.waiting[0].id, {"choice": "happened", "result": said})
        assert run.status == "completed"
        assert scene.world.count(WHAT[act]) == (0 if act in ("order", "send") else 1)
        zombie.send(signal.SIGCONT)
        assert (await aside(zombie.end))["error"] == "RunConflict"
        assert zombie.name not in {asked.life for asked in scene.world.asked}
        assert whole(await executor.store.read("r"))


async def test_the_intent_of_who_lost_the_run_stays_open_for_the_next(scene: Scene) -> None:
    zombie = scene.begin("order", before="order", ttl=0.4)
    async with scene.here() as executor:
        await until(partial(is_stopped, zombie))
        mine = await taken(executor.store, 1.0)
        await anyio.sleep(0.5)
        zombie.send(signal.SIGCONT)
        told = await aside(zombie.end)
        assert told["error"] == "RunConflict"
        assert await executor.store.lease("r") == mine
        assert [record.type for record in await executor.store.read("r")][-1] == "effect_intended"
        run = await executor.resume("r", wait=30)
        assert [question.kind for question in run.waiting] == ["unknown_outcome"]
    assert scene.world.asked == []


@on_one_loop_each("act", ["stream", "order"])
async def test_who_wakes_and_was_not_taken_over_goes_on(scene: Scene, act: str) -> None:
    sleeper = scene.begin(act, before=NAME[act], ttl=0.3)
    await until(partial(is_stopped, sleeper))
    await anyio.sleep(0.5)
    async with scene.here() as executor:
        assert (await executor.load("r")).status == "interrupted"
        sleeper.send(signal.SIGCONT)
        assert (await aside(sleeper.result))["status"] == "completed"
    assert [asked.life for asked in scene.world.asked] == [sleeper.name]


async def test_a_step_that_takes_longer_than_a_lease_is_held(scene: Scene) -> None:
    gate = scene.world.close("order")
    holder = scene.begin("order", ttl=2.0)
    async with scene.here() as executor:
        await aside(partial(scene.world.arrived, "order"))
        first = await executor.store.lease("r")
        for wait in (0.0, 2.8):
            with pytest.raises(RunConflict, match=r"for at most [012] s"):
                await executor.resume("r", wait=wait)
        last = await executor.store.lease("r")
        assert first is not None
        assert last is not None
        assert last.token == first.token
        assert last.beat >= first.beat + 1.0
        assert await executor.recover() == []
        gate.set()
        assert (await aside(holder.result))["status"] == "completed"
    assert scene.world.count("order") == 1


# -- clocks ------------------------------------------------------------------------------------------------------------


@on_one_loop_each("ahead", [-HOUR, HOUR])
async def test_a_holder_with_a_wrong_clock_is_left_alone_while_it_lives_and_no_longer(
    scene: Scene, ahead: float
) -> None:
    scene.world.close("fetch")
    holder = scene.begin("fetch", ttl=2.0, ahead=ahead)
    async with scene.here() as executor:
        await aside(partial(scene.world.arrived, "fetch"))
        for wait in (0.0, 2.5):
            with pytest.raises(RunConflict, match=r"for at most [012] s"):
                await executor.resume("r", wait=wait)
        assert await executor.workers.recoverable() == []
        assert (await executor.load("r")).status == "running"
        await aside(partial(holder.stop, scene.store))
        scene.world.gates.pop("fetch").set()
        run = await executor.resume("r", wait=60)
        assert run.status == "completed"
        holder.send(signal.SIGCONT)
        assert (await aside(holder.end))["error"] == "RunConflict"
        assert whole(await executor.store.read("r"))


@on_one_loop_each("jump", sized([HOUR], [-HOUR, HOUR]))
async def test_a_clock_that_jumps_in_a_running_holder_loses_nothing(scene: Scene, jump: float) -> None:
    gate = scene.world.close("order")
    holder = scene.begin("order", ttl=2.0, jump=jump)
    async with scene.here() as executor:
        await aside(partial(scene.world.arrived, "order"))
        holder.send(signal.SIGUSR1)
        before = await executor.store.lease("r")
        assert before is not None
        with pytest.raises(RunConflict):
            await executor.resume("r", wait=2.5)
        after = await executor.store.lease("r")
        assert after is not None
        assert 0.6 < after.beat - before.beat < 60
        gate.set()
        assert (await aside(holder.result))["status"] == "completed"
        assert whole(await executor.store.read("r"))
    assert scene.world.count("order") == 1


@on_one_loop_each("jump", [-HOUR, HOUR])
async def test_a_clock_that_jumps_here_takes_nothing_from_a_living_holder(
    scene: Scene, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = scene.world.close("order")
    holder = scene.begin("order", ttl=2.0)
    async with scene.here() as executor:
        await aside(partial(scene.world.arrived, "order"))
        right = time.time
        monkeypatch.setattr(time, "time", lambda: right() + jump)
        with pytest.raises(RunConflict):
            await executor.resume("r", wait=2.5)
        assert await executor.workers.recoverable() == []
        gate.set()
        assert (await aside(holder.result))["status"] == "completed"


async def left_behind(scene: Scene, executor: Executor) -> None:
    """A run that somebody began and let go."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(executor.start, "fetch", run_id="r"))
        await aside(partial(scene.world.arrived, "fetch"))
        tasks.cancel_scope.cancel()


async def test_a_lease_that_ends_far_off_is_waited_for_no_longer_than_it_lasts(scene: Scene) -> None:
    scene.world.close("fetch")
    async with scene.here() as executor:
        await left_behind(scene, executor)
        scene.world.gates.pop("fetch").set()
        await taken_for_hours(executor.store, scene.store, 2.5)
        with pytest.raises(RunConflict, match=r"for at most [123] s"):
            await executor.resume("r")
        with pytest.raises(RunConflict):
            await executor.resume("r", wait=0.2)
        run = await executor.resume("r", wait=60)
        assert run.status == "completed"


async def test_who_looks_again_and_again_takes_such_a_lease_too(scene: Scene) -> None:
    scene.world.close("fetch")
    async with scene.here() as executor:
        await left_behind(scene, executor)
        scene.world.gates.pop("fetch").set()
        await taken_for_hours(executor.store, scene.store, 2.5)
        assert await executor.recover() == []

        async def recovered() -> list[Any]:
            return list(await executor.recover())

        await until(recovered)
        assert (await executor.load("r")).status == "completed"


async def test_a_lease_that_ends_far_off_and_is_renewed_is_left_alone(scene: Scene) -> None:
    scene.world.close("fetch")
    async with scene.here() as executor:
        await left_behind(scene, executor)
        lease = await taken_for_hours(executor.store, scene.store, 2.0)

        async def beat() -> None:
            while True:
                await anyio.sleep(0.2)
                assert await executor.store.beat(lease.holder, 2.0)
                late(scene.store, lease)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            with pytest.raises(RunConflict):
                await executor.resume("r", wait=2.8)
            tasks.cancel_scope.cancel()


# -- after a deploy ----------------------------------------------------------------------------------------------------


@node(effect="pure")
def changed(state: Trip) -> Update:
    """What the next version of the code does in the end."""
    return {"notes": "by the new code"}


@node(effect="pure")
async def overdue(state: Trip, ctx: Context) -> Update:
    """Wait for a person, not for long."""
    return {"notes": str((await ctx.ask("input", prompt="?", deadline=0.3)).type)}


def version(last: Any) -> list[Graph]:
    """The graphs of one version of the code."""
    return [
        Graph(
            name=name, state=Trip, nodes={"first": first, "last": last}, edges="START -> first -> last -> END",
            output="notes",
        )
        for name, first in (("working", fetch), ("asking", agree), ("hurrying", overdue), ("idle", agree))
    ]  # fmt: skip


async def test_after_a_deploy_everything_that_can_go_on_does(scene: Scene) -> None:
    scene.world.close("fetch")
    world = Sure(scene.world.url, "here")
    old, new = version(tidy), version(changed)

    async def dies(executor: Executor) -> None:
        """The old process, with its code."""
        for graph in old:
            await executor.submit(graph, run_id=graph.name)
        await until(partial(asked, executor, "asking"))
        await until(partial(asked, executor, "hurrying"))
        await until(partial(asked, executor, "idle"))
        await aside(partial(scene.world.arrived, "fetch"))

    async def asked(executor: Executor, run_id: str) -> bool:
        return (await executor.load(run_id)).status == "paused"

    async with Executor(scene.store, graphs=old, tools=tools(world), deps=world) as executor:
        await dies(executor)
        question = (await executor.load("asking")).waiting[0]
        await executor.store.post(
            "asking",
            {"type": "answer", "question": question.id, "answer": {"type": "value", "value": "yes"}, "by": "ann"},
        )
    scene.world.gates.pop("fetch").set()
    await anyio.sleep(0.3)
    async with Executor(scene.store, graphs=new, tools=tools(world), deps=world) as executor:
        assert set(await executor.workers.recoverable()) == {"working", "asking", "hurrying"}
        found = {run.run_id: run for run in await executor.recover()}
        assert {name: run.status for name, run in found.items()} == dict.fromkeys(
            ("working", "asking", "hurrying"), "completed"
        )
        for run in found.values():
            assert run.values["notes"][-1] == "by the new code"
            told = [event async for event in executor.events(run.run_id) if event.type == "resumed"]
            assert any("last" in line for event in told for line in event.data["changes"])
        assert await executor.workers.recoverable() == []
        assert (await executor.load("idle")).status == "paused"


@quick_on("asyncio")
async def test_a_process_that_is_told_to_end_gives_back_what_it_was_only_taking_up(tmp_path: Path) -> None:
    for turns in range(0, 60, sized(12, 4)):
        url = f"sqlite:///{tmp_path}/{turns}.db"
        graph = chain(says("begun"), says("never", anyio.sleep_forever))
        async with Executor(url, graphs=[graph]) as executor, anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(partial(executor.start, graph, run_id=f"r{number}"))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await executor._host.stop()
            ids = [info.run_id for info in (await executor.runs()).runs]
            assert [await executor.store.lease(run_id) for run_id in ids] == [None] * len(ids)
            tasks.cancel_scope.cancel()

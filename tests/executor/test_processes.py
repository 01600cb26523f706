"""One run, several processes: who drives it, who may speak to it, and what becomes of it when its holder dies."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from orchestrator import Executor, Run
from orchestrator.errors import QuestionUnknown, RunConflict, RunEnded, StaleAnswer
from orchestrator.executor import Event
from orchestrator.stores.base import Lease
from tests.executor.lives import Life, Program, programs
from tests.executor.outside import Outside, outside
from tests.executor.program import World, opened, to_its_end
from tests.support.sizes import quick_on

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SOON = 12.0
"""Seconds; what is promised is one, and a lease lasts 30."""
WHOLE = {"status": "completed", "error": None}


@pytest.fixture(scope="module")
def two() -> Iterator[list[Program]]:
    """Two other processes."""
    with programs(2) as found:
        yield found


class Scene:
    """A store, a world outside, and runs in other processes."""

    def __init__(self, store: str, world: Outside, found: list[Program], backend: str) -> None:
        self.store, self.world, self._programs, self._backend = store, world, found, backend

    def begin(self, number: int, do: str, **order: Any) -> Life:
        """Let a process do something with the run."""
        return self._programs[number].begin(
            do, store=self.store, url=self.world.url, run_id="r", backend=self._backend, **order
        )

    def here(self, **options: Any) -> Executor:
        """An executor in this process."""
        return opened(self.store, World(self.world.url, "here"), **options)

    async def to_its_end(self, executor: Executor) -> Any:
        """Go on with the run in this process."""
        return await to_its_end(executor, World(self.world.url, "here"), "r")

    def by(self, life: Life | str) -> list[str]:
        """What a process asked for."""
        name = life if isinstance(life, str) else life.name
        return [asked.what for asked in self.world.asked if asked.life == name]


@pytest.fixture
async def scene(url: str, two: list[Program], anyio_backend: str) -> AsyncIterator[Scene]:
    with outside() as world:
        yield Scene(url, world, two, anyio_backend)
        for program in two:
            program.stop()


async def aside(work: Callable[[], T]) -> T:
    """Wait for something that blocks."""
    return await anyio.to_thread.run_sync(work)


def soon(what: str, seconds: float) -> None:
    """Hold that something was seen soon; `pytest -s` shows how soon."""
    print(f"{what} from another process was seen after {seconds:.2f} s")
    assert seconds < SOON


async def until(true: Callable[[], Awaitable[object]]) -> float:
    """Wait until something is so; how long it took."""
    started = time.monotonic()
    with anyio.fail_after(30):
        while not await true():  # noqa: ASYNC110  what another process does sets no event here
            await anyio.sleep(0.01)
    return time.monotonic() - started


async def recorded(executor: Executor, kind: str) -> list[Event]:
    """The events of this type that the run has so far."""
    return [event async for event in executor.events("r") if event.type == kind]


async def interrupted(executor: Executor) -> bool:
    """Whether it is known that nobody drives the run."""
    return (await executor.load("r")).status == "interrupted"


# -- who drives it -----------------------------------------------------------------------------------------------------


async def test_of_two_that_resume_a_run_one_ends_it_and_the_other_is_told(scene: Scene) -> None:
    gate = scene.world.close("model")
    dead = scene.begin(0, "start")
    scene.world.arrived("model")
    dead.kill()
    dead.end()
    both = [scene.begin(0, "trip"), scene.begin(1, "trip")]
    scene.world.arrived("model", 2)
    winner, loser = both if scene.by(both[0]) else both[::-1]
    told = loser.end()
    assert told["error"] == "RunConflict"
    assert f"process {winner.pid} on " in told["message"]
    gate.set()
    assert WHOLE.items() <= winner.result().items()
    assert scene.by(loser) == []


async def test_of_two_that_race_at_most_one_does_anything_twice(scene: Scene) -> None:
    async with scene.here() as executor:
        for number in range(3):
            dead = scene.begin(0, "start", graph="trip")
            scene.world.arrived("model", 1)
            dead.kill()
            dead.end()
            both = [scene.begin(0, "trip"), scene.begin(1, "trip")]
            told = [life.end() for life in both]
            ended = [one["result"]["status"] for one in told if "result" in one]
            refused = [one["error"] for one in told if "error" in one]
            assert set(ended) == {"completed"}, (number, told)
            assert set(refused) <= {"RunConflict"}
            for what in ("book", "order", "send"):
                assert scene.world.count(what) == 1
            assert (await executor.load("r")).status == "completed"
            await executor.store.delete("r")
            scene.world.forget()


async def test_a_run_of_a_killed_process_is_taken_over_at_once(scene: Scene) -> None:
    gate = scene.world.close("model")
    dead = scene.begin(0, "start")
    scene.world.arrived("model")
    async with scene.here() as executor:
        assert (await executor.load("r")).status == "running"
        with pytest.raises(RunConflict, match=f"process {dead.pid} on .* holds it"):
            await executor.resume("r")
        dead.kill()
        dead.end()
        gate.set()
        lease = await executor.store.lease("r")
        assert lease is not None
        assert lease.left > 15
        assert (await executor.load("r")).status == "interrupted"
        assert [info.status for info in (await executor.runs(status="interrupted")).runs] == ["interrupted"]
        assert await executor.workers.recoverable() == ["r"]
        run = await scene.to_its_end(executor)
        assert run.status == "completed"
        assert await executor.store.lease("r") is None


async def test_a_killed_process_whose_parent_has_not_looked_is_dead_too(scene: Scene, two: list[Program]) -> None:
    gate = scene.world.close("model")
    dead = scene.begin(0, "start")
    scene.world.arrived("model")
    two[0].send(signal.SIGSTOP)
    dead.kill()
    gate.set()
    async with scene.here() as executor:
        assert await until(partial(interrupted, executor)) < SOON
        assert (await scene.to_its_end(executor)).status == "completed"
    two[0].send(signal.SIGCONT)
    dead.end()


async def test_the_lease_of_another_host_is_waited_for(scene: Scene) -> None:
    gate = scene.world.close("model")
    dead = scene.begin(0, "start")
    scene.world.arrived("model")
    dead.kill()
    dead.end()
    gate.set()
    async with scene.here() as executor:
        held = await executor.store.lease("r")
        assert held is not None
        expires = time.time() + 3.5
        owner = {**held.owner, "host": "elsewhere", "machine": "another", "boot": "another"}
        assert await executor.store.take_lease(Lease("r", "t", "t", owner), ttl=3.5, replaces=held.token)
        assert (await executor.load("r")).status == "running"
        with pytest.raises(RunConflict, match=f"process {dead.pid} on elsewhere holds it, for at most [1234] s"):
            await executor.resume("r")
        with pytest.raises(RunConflict):
            await executor.resume("r", wait=0.05)
        run = await executor.resume("r", wait=60)
        assert time.time() >= expires
        assert run.status == "paused"


# -- zombies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("awake", ["during", "after"])
async def test_a_zombie_starts_nothing_more(scene: Scene, awake: str) -> None:
    gate = scene.world.close("model")
    zombie = scene.begin(0, "start", ttl=2.5)
    scene.world.arrived("model")
    zombie.stop(scene.store)
    async with scene.here() as executor:
        with pytest.raises(RunConflict):
            await executor.resume("r")
        async with anyio.create_task_group() as tasks:
            if awake == "after":
                gate.set()
                run = await executor.resume("r", wait=30)
                zombie.send(signal.SIGCONT)
            else:
                tasks.start_soon(partial(executor.resume, "r", wait=30))
                await aside(lambda: scene.world.arrived("model", 2))
                zombie.send(signal.SIGCONT)
                await anyio.sleep(0.1)
                gate.set()
        told = await aside(zombie.end)
        assert told["error"] == "RunConflict"
        assert scene.by(zombie) == ["model"]
        run = await scene.to_its_end(executor)
        assert run.status == "completed"
        events = [event async for event in executor.events("r")]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    for what in ("book", "order", "send"):
        assert scene.world.count(what) == 1


async def test_who_lost_its_lease_stops_by_itself(scene: Scene) -> None:
    gate = scene.world.close("model")
    holder = scene.begin(0, "start", ttl=0.9)
    scene.world.arrived("model")
    async with scene.here() as executor:
        held = await executor.store.lease("r")
        assert held is not None
        mine = Lease("r", "mine", "me", {**held.owner, "host": "elsewhere", "machine": "another", "boot": "another"})
        assert await executor.store.take_lease(mine, ttl=60.0, replaces=held.token)
        told = await aside(holder.end)
        gate.set()
        assert told["error"] == "RunConflict"
        assert "took over its lease" in told["message"]
        assert scene.by(holder) == ["model"]
        lease = await executor.store.lease("r")
        assert lease is not None
        assert lease.token == "mine"


# -- speaking to it ----------------------------------------------------------------------------------------------------


@quick_on("trio")
async def test_a_pause_from_another_process_is_seen_soon_and_lets_land_what_runs(scene: Scene) -> None:
    gate = scene.world.close("model")
    holder = scene.begin(0, "start")
    scene.world.arrived("model")
    async with scene.here() as executor, anyio.create_task_group() as tasks:
        paused: list[Run] = []
        back = anyio.Event()

        async def pause() -> None:
            paused.append(await executor.pause("r", by="ann", reason="lunch"))
            back.set()

        tasks.start_soon(pause)
        soon("a pause", await until(partial(recorded, executor, "paused")))
        assert not paused  # what runs has not landed yet
        gate.set()
        assert (await aside(holder.result))["status"] == "paused"
        with anyio.fail_after(30):
            await back.wait()
        assert paused[0].status == "paused"
        assert [question.kind for question in paused[0].waiting] == ["pause"]
        assert await executor.store.inbox(["r"]) == []
        (told,) = await recorded(executor, "paused")
        assert (told.data["by"], told.data["reason"]) == ("ann", "lunch")
        assert [event.node for event in await recorded(executor, "step_done")] == ["plan"]
        assert scene.world.count("model") == 1
        assert (await scene.to_its_end(executor)).status == "completed"
        assert scene.world.count("model") == 1 + 5 + 3


async def test_a_cancel_from_another_process_is_seen_soon_and_does_not_wait_for_what_runs(scene: Scene) -> None:
    scene.world.close("model")
    holder = scene.begin(0, "start")
    scene.world.arrived("model")
    async with scene.here() as executor:
        started = time.monotonic()
        run = await executor.cancel("r", by="ann", reason="enough")
        soon("a cancel", time.monotonic() - started)
        assert run.status == "cancelled"
        assert (await aside(holder.result))["status"] == "cancelled"
        assert [event.data["ok"] for event in await recorded(executor, "effect_settled")] == [False]
        for act in (executor.cancel, executor.pause, executor.resume):
            with pytest.raises(RunEnded, match="cancelled"):
                await act("r")


async def test_an_answer_from_another_process_is_seen_soon_by_who_drives_the_run(scene: Scene) -> None:
    gate = scene.world.close("model")
    holder = scene.begin(0, "start", graph="beside")
    scene.world.arrived("model")
    async with scene.here() as executor:
        await until(partial(recorded, executor, "asked"))
        run = await executor.load("r")
        assert run.status == "running"
        (question,) = run.waiting
        started = time.monotonic()
        with pytest.raises(QuestionUnknown):
            await executor.answer("r", "no such", "yes")
        with pytest.raises(StaleAnswer):
            await executor.answer("r", question.id, "yes", digest="another")
        run = await executor.answer("r", question.id, "yes", by="ann", resume=False)
        assert run.waiting == ()
        await aside(lambda: scene.world.arrived("model", 2))
        soon("an answer", time.monotonic() - started)
        with pytest.raises(StaleAnswer, match="closed"):
            await executor.answer("r", question.id, "yes")
        assert scene.by(holder) == ["model", "model"]  # the holder went on with it
        gate.set()
        run = await executor.wait("r", timeout=30)
        assert run.status == "completed"
        assert run.output == (await aside(holder.result))["output"]
        (told,) = await recorded(executor, "answered")
        assert (told.data["by"], told.data["answer"]) == ("ann", {"type": "value", "value": "yes"})


async def test_of_two_answers_from_two_processes_one_counts(scene: Scene) -> None:
    gate = scene.world.close("model")
    holder = scene.begin(0, "start", graph="beside")
    scene.world.arrived("model")
    refused: list[str] = []
    async with scene.here() as executor, scene.here() as other:
        await until(partial(recorded, executor, "asked"))
        (question,) = (await executor.load("r")).waiting

        async def answer(by: Executor, value: str) -> None:
            try:
                await by.answer("r", question.id, value, resume=False)
            except StaleAnswer:
                refused.append(value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, executor, "one")
            tasks.start_soon(answer, other, "two")
        assert len(refused) == 1
        gate.set()
        result = await aside(holder.result)
        assert result["status"] == "completed"
        assert result["values"]["notes"].count("one" if refused == ["two"] else "two") == 1
        assert refused[0] not in result["values"]["notes"]
        assert await executor.store.inbox(["r"]) == []


async def test_a_command_to_a_run_whose_holder_dies_is_carried_out_here(scene: Scene) -> None:
    scene.world.close("model")
    holder = scene.begin(0, "start")
    scene.world.arrived("model")
    holder.send(signal.SIGSTOP)
    async with scene.here() as executor, anyio.create_task_group() as tasks:
        cancelled: list[Run] = []
        back = anyio.Event()

        async def cancel() -> None:
            cancelled.append(await executor.cancel("r"))
            back.set()

        tasks.start_soon(cancel)
        await until(lambda: executor.store.inbox(["r"]))
        assert not cancelled
        holder.kill()
        await aside(holder.end)
        with anyio.fail_after(30):
            await back.wait()
        assert cancelled[0].status == "cancelled"
        assert await executor.store.inbox(["r"]) == []


async def test_an_interrupt_from_the_keyboard_leaves_a_run_that_goes_on(scene: Scene) -> None:
    gate = scene.world.close("fetch")
    holder = scene.begin(0, "start")
    scene.world.arrived("fetch", 4 + 1)  # one place is looked at a second time
    holder.send(signal.SIGINT)
    assert (await aside(holder.end))["error"] == "KeyboardInterrupt"
    gate.set()
    async with scene.here() as executor:
        assert (await executor.load("r")).status == "interrupted"
        assert await executor.store.lease("r") is None
        assert scene.world.count("model") == 1 + 4 + 1
        assert (await scene.to_its_end(executor)).status == "completed"
        assert scene.world.count("model") == 1 + 4 + 1 + 3  # every reply that had arrived was kept

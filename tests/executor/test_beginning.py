"""Beginning runs, waiting for them, leaving them, and going on with those that were left."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import Context, Executor, Limits, Run, Update, node
from orchestrator.errors import GraphUnknown, InvalidInput, InvalidValue, RunEnded, RunExists, RunUnknown
from orchestrator.executor import Event
from orchestrator.stores.base import Store
from orchestrator.testing import MockClock, ScriptedModel
from tests.support.executors import Log, chain, says, single
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


class Gated:
    """A graph that waits at a gate, between two effects; what it did is counted."""

    def __init__(self, name: str = "gated", *, is_open: bool = False) -> None:
        self.done: list[str] = []
        self.reached = anyio.Event()
        self.gate = anyio.Event()
        if is_open:
            self.gate.set()

        async def act(what: str) -> str:
            self.done.append(what)
            return what

        async def first(state: Log, ctx: Context) -> Update:
            return {"log": await ctx.effect("act", act, "first", returns=str, effect="irreversible")}

        async def waits(state: Log, ctx: Context) -> Update:
            said = await ctx.effect("act", act, "before the gate", returns=str, effect="irreversible")
            self.reached.set()
            await self.gate.wait()
            return {"log": said}

        async def last(state: Log, ctx: Context) -> Update:
            return {"log": await ctx.effect("act", act, "last", returns=str, effect="irreversible")}

        self.graph = chain(node(first), node(waits), node(last), name=name)
        self.output = ["first", "before the gate", "last"]


async def asks(state: Log, ctx: Context) -> Update:
    """Wait for a person, for a second or two at most if the state says so."""
    answer = await ctx.ask("input", prompt="go?", deadline=0.2 if state.n else None)
    return {"log": str(getattr(answer, "value", answer.type))}


async def all_events(executor: Executor, run_id: str) -> list[Event]:
    return [event async for event in executor.events(run_id)]


# -- the same id is the same run -------------------------------------------------------------------------------------


async def test_the_same_id_and_input_is_the_same_run(store: Store) -> None:
    work = Gated(is_open=True)
    async with Executor(store) as executor:
        runs = [await executor.start(work.graph, "?", run_id="r") for _ in range(3)]
        assert await executor.submit(work.graph, {"question": "?"}, run_id="r", labels={"more": "labels"}) == "r"
        assert [run.output for run in runs] == [work.output] * 3
        assert len({run.seq for run in runs}) == 1
        assert work.done == work.output
        assert len((await executor.runs()).runs) == 1


@pytest.mark.parametrize("executors", [1, 2])
async def test_who_begins_a_run_that_is_under_way_waits_for_it(store: Store, executors: int) -> None:
    work = Gated()
    found: list[Run] = []

    async def begin(executor: Executor) -> None:
        found.append(await executor.start(work.graph, "?", run_id="r"))

    async with Executor(store) as one, Executor(store) as two, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(begin, (one, two)[number % executors])
        await work.reached.wait()
        await anyio.sleep(0.1)
        assert not found
        work.gate.set()
    assert [run.output for run in found] == [work.output] * 4
    assert work.done == work.output


async def test_an_id_that_another_run_has_is_refused(store: Store) -> None:
    work = Gated(is_open=True)
    async with Executor(store) as executor:
        await executor.start(work.graph, "?", run_id="r")
        with pytest.raises(RunExists, match=r"'r'.* is a run of 'gated' with another input"):
            await executor.start(work.graph, "another", run_id="r")
        with pytest.raises(RunExists, match=r"'r'.* is a run of graph 'gated'"):
            await executor.submit(Gated("other").graph, "?", run_id="r")
        with pytest.raises(RunExists, match=r"stream\(graph\) starts a new run"):
            async with executor.stream(work.graph, "?", run_id="r"):
                pass
    assert work.done == work.output


async def test_an_id_of_a_paused_run_gives_the_paused_run_and_of_an_interrupted_one_goes_on(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        for _ in range(2):
            run = await executor.start(single(asks, name="asks"), run_id="paused")
            assert [question.prompt for question in run.waiting] == ["go?"]
        await interrupt(executor, work, run_id="r")
        work.gate.set()
        run = await executor.start(work.graph, run_id="r")
        assert run.output == work.output
    assert work.done == work.output


@pytest.mark.parametrize("name", ["", "a b", "a@3", "a/b", "a\\b", "a\nb", "x" * 201, "-x", 5, b"x"])
async def test_an_id_that_is_none(name: Any) -> None:
    async with Executor() as executor:
        with pytest.raises(InvalidValue, match=r"run.id"):
            await executor.start(chain(says("a")), run_id=name)
        assert (await executor.runs()).runs == ()


async def test_what_does_not_fit_begins_nothing() -> None:
    async with Executor() as executor:
        for begin in (executor.start, executor.submit):
            with pytest.raises(InvalidInput, match="n"):
                await begin(chain(says("a")), {"n": "many"})
            with pytest.raises(GraphUnknown, match="unknown"):
                await begin("unknown")
            with pytest.raises(ValueError, match="is not a risk"):
                await begin(chain(says("a")), approve="everything")
        assert (await executor.runs()).runs == ()
        assert (await executor.start(chain(says("a"), name="given"))).output == ["a"]
        assert (await executor.start("given")).output == ["a"]  # it was given by now


async def test_an_executor_is_opened_once_and_before_it_is_used() -> None:
    executor = Executor()
    with pytest.raises(RuntimeError, match="not open: use it in `async with"):
        await executor.start(chain(says("a")))
    async with executor:
        with pytest.raises(RuntimeError, match="already open"):
            await executor.__aenter__()
    for wrong in ({"on_change": "maybe"}, {"concurrency": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Executor(**wrong)  # type: ignore[arg-type]


# -- waiting ---------------------------------------------------------------------------------------------------------


async def test_waiting_can_time_out_and_the_run_goes_on(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor, Executor(store) as other:
        run_id = await executor.submit(work.graph)
        await work.reached.wait()
        for waiter in (executor, other):
            for timeout in (0.1, 0):
                with pytest.raises(TimeoutError, match=f"{run_id}.* it continues"):
                    await waiter.wait(run_id, timeout)
            assert (await waiter.load(run_id)).status == "running"
        work.gate.set()
        for waiter in (executor, other):
            assert (await waiter.wait(run_id, 20)).output == work.output
            assert (await waiter.wait(run_id)).output == work.output
            with pytest.raises(RunUnknown, match="none"):
                await waiter.wait("none")


async def test_waiting_ends_when_a_run_pauses_or_is_left(store: Store) -> None:
    work = Gated()
    async with Executor(store) as other:
        async with Executor(store) as executor:
            paused = await executor.submit(single(asks, name="asks"))
            assert (await other.wait(paused, 20)).status == "paused"
            left = await executor.submit(work.graph)
            await work.reached.wait()
        assert (await other.wait(left, 20)).status == "interrupted"


# -- leaving ---------------------------------------------------------------------------------------------------------


async def interrupt(executor: Executor, work: Gated, run_id: str = "r") -> None:
    """Cancel the task that awaits a run, when it is at its gate."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await work.reached.wait()
                scope.cancel()

            tasks.start_soon(stop)
            run = await executor.start(work.graph, run_id=run_id)
            raise AssertionError(f"nothing interrupted {run}")


async def left_well(executor: Executor, work: Gated, run_id: str = "r") -> None:
    """The run was interrupted: nobody holds it, nothing of it is lost, and it goes on."""
    run = await executor.load(run_id)
    assert run.status == "interrupted"
    assert await executor.store.lease(run_id) is None
    assert "cancelled" not in [event.type for event in await all_events(executor, run_id)]
    assert run.values["log"] == ["first"]
    work.gate.set()
    assert (await executor.resume(run_id)).output == work.output
    assert work.done == work.output


async def test_cancelling_who_awaits_a_run_interrupts_it(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        await interrupt(executor, work)
        await left_well(executor, work)


async def test_a_time_out_around_a_run_interrupts_it(store: Store) -> None:
    work = Gated()

    async def run_out(scope: anyio.CancelScope) -> None:
        await work.reached.wait()
        scope.deadline = anyio.current_time()

    async with Executor(store) as executor, anyio.create_task_group() as tasks:
        with pytest.raises(TimeoutError):  # noqa: PT012  the scope is the block's
            with anyio.fail_after(60) as scope:
                tasks.start_soon(run_out, scope)
                await executor.start(work.graph, run_id="r")
        await left_well(executor, work)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_a_bare_asyncio_task_interrupts_its_run(store: Store, anyio_backend: str) -> None:
    work = Gated()
    async with Executor(store) as executor:
        task = asyncio.create_task(executor.start(work.graph, run_id="r"))
        await work.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left_well(executor, work)


async def test_closing_an_executor_interrupts_what_it_still_runs(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        await executor.submit(work.graph, run_id="r")
        await work.reached.wait()
    async with Executor(store, graphs=[work.graph]) as executor:
        await left_well(executor, work)


@pytest.mark.parametrize("how", ["start", "resume"])
async def test_cancelled_at_any_moment_a_run_is_held_by_nobody_and_goes_on(store: Store, how: str) -> None:
    await cancelled_at_moments(store, how, sized(27, 9))


@pytest.mark.storm
@pytest.mark.parametrize("how", ["start", "resume"])
async def test_cancelled_at_every_moment_a_run_is_held_by_nobody_and_goes_on(
    store: Store, how: str, scale: int
) -> None:
    await cancelled_at_moments(store, how, max(1, 5 // scale))


async def cancelled_at_moments(store: Store, how: str, step: int) -> None:
    """Cancel a run after ever more turns of its tasks."""
    undisturbed = 0
    for moment in (*range(0, 160, step), *(200 * 2**power for power in range(16))):
        work = Gated(is_open=how == "start")
        run_id = f"r{moment}"
        async with Executor(store) as executor:
            if how == "resume":
                await interrupt(executor, work, run_id)
                work.gate.set()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_at, scope, moment)
                    await (executor.resume(run_id) if how == "resume" else executor.start(work.graph, run_id=run_id))
                    undisturbed += 1
                    tasks.cancel_scope.cancel()
            try:
                run = await executor.load(run_id)
            except RunUnknown:
                assert work.done == []
                continue
            assert await store.lease(run_id) is None
            if run.status == "interrupted":
                run = await executor.resume(run_id)
                while run.waiting:  # an effect of which nobody knows whether it happened
                    said = {"choice": "happened", "result": work.done[-1]}
                    run = await executor.answer(run_id, run.waiting[0].id, said)
            assert run.output == work.output
            assert work.done == work.output
        if undisturbed > 1:
            break
    assert undisturbed, "every one was cut short"


async def cancel_at(scope: anyio.CancelScope, moment: int) -> None:
    """Cancel when everybody else had so many turns."""
    for _ in range(moment):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


# -- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_shows_what_is_journaled_and_gives_the_run(store: Store) -> None:
    work = Gated(is_open=True)
    async with Executor(store) as executor:
        async with executor.stream(work.graph, "?", labels={"a": "b"}) as live:
            with pytest.raises(RuntimeError, match="is still running: read its events to the end"):
                _ = live.run
            seen = [event async for event in live]
        assert live.run.output == work.output
        journaled = [event for event in seen if event.seq is not None]
        assert journaled == await all_events(executor, live.run_id)
        assert [event.node for event in seen if event.type == "step_started"] == ["n0", "n1", "n2"]


async def test_leaving_a_stream_early_interrupts_its_run(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        async with executor.stream(work.graph, run_id="r") as live:
            async for event in live:
                if event.type == "effect_settled" and work.reached.is_set():
                    break
        await left_well(executor, work)


async def test_an_error_inside_of_a_stream_interrupts_its_run_and_stays_what_it_is(store: Store) -> None:
    work = Gated()

    async def breaks(executor: Executor) -> None:
        async with executor.stream(work.graph, run_id="r"):
            await work.reached.wait()
            raise LookupError("mine")

    async with Executor(store) as executor:
        with pytest.raises(LookupError, match="mine"):
            await breaks(executor)
        await left_well(executor, work)


async def test_who_follows_a_run_sees_all_of_it_whoever_drives_it(store: Store) -> None:
    work = Gated()
    seen: dict[str, list[Event]] = {"here": [], "there": []}

    async def follow(name: str, executor: Executor) -> None:
        async for event in executor.events("r", follow=True):
            seen[name].append(event)

    async with Executor(store) as executor, Executor(store) as other, anyio.create_task_group() as tasks:
        await executor.submit(work.graph, run_id="r")
        tasks.start_soon(follow, "here", executor)
        tasks.start_soon(follow, "there", other)
        await work.reached.wait()
        with anyio.fail_after(60):  # while the run goes on
            while not seen["there"] or seen["there"][-1].type != "effect_settled":  # noqa: ASYNC110  it polls the store
                await anyio.sleep(0.01)
        work.gate.set()
        run = await executor.wait("r")
        with anyio.fail_after(20):
            stored = await all_events(executor, "r")
    assert [event for event in seen["here"] if event.seq is not None] == stored
    assert seen["there"] == stored
    assert stored[-1].type == "ended"
    assert run.seq == len(stored)


# -- going on --------------------------------------------------------------------------------------------------------


async def test_recover_goes_on_with_what_can_go_on_and_leaves_the_rest(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    work, other, lacking = Gated("work"), Gated("other"), single(asks, name="lacking", model="none")
    asking = single(asks, name="asks", takes=None)
    async with Executor(store, models={"none": ScriptedModel([])}, idle="sleep") as executor:
        await interrupt(executor, work, "interrupted")
        await interrupt(executor, other, "another")
        lost = await executor.start(lacking, run_id="lacking")
        await executor.answer("lacking", lost.waiting[0].id, "yes", resume=False)
        await executor.start(asking, run_id="unanswered")
        run = await executor.start(asking, run_id="answered")
        await executor.answer("answered", run.waiting[0].id, "yes", resume=False)
        await executor.start(asking, {"n": 1}, run_id="overdue")
        await executor.start(asking, run_id="paused")
        await executor.pause("paused")
        await executor.start(asking, {"n": 1}, run_id="overdue.and.paused")
        await executor.pause("overdue.and.paused")
        await executor.start(chain(says("a")), run_id="ended")
        assert (await executor.load("answered")).status == "running"
        assert (await executor.load("interrupted")).status == "interrupted"
    await anyio.sleep(0.25)
    for gated in (work, other):
        gated.gate.set()
    async with Executor(store, graphs=[work.graph, asking, lacking]) as executor:
        await executor.submit(Gated("busy").graph, run_id="busy")
        lost_ids = {"interrupted", "another", "answered", "overdue", "lacking", "overdue.and.paused"}
        assert set(await executor.workers.recoverable()) == lost_ids
        assert [run.run_id for run in await executor.recover(only=["interrupted"])] == ["interrupted"]
        with caplog.at_level(logging.WARNING, "orchestrator"):
            runs = {run.run_id: run for run in await executor.recover()}
        assert {name: run.output for name, run in runs.items()} == {
            "answered": ["yes"], "overdue": ["deny"], "overdue.and.paused": None,
        }  # fmt: skip
        assert [question.kind for question in runs["overdue.and.paused"].waiting] == ["pause"]
        assert "run lacking cannot be recovered" in caplog.text
        assert work.done == work.output
        assert await executor.recover() == []
        assert {name: (await executor.load(name)).status for name in ("unanswered", "paused", "busy")} == {
            "unanswered": "paused", "paused": "paused", "busy": "running",
        }  # fmt: skip


async def test_two_that_recover_at_the_same_time_share_the_work(store: Store) -> None:
    works = [Gated(f"work{number}") for number in range(6)]
    async with Executor(store) as executor:
        for number, work in enumerate(works):
            await interrupt(executor, work, f"r{number}")
            work.gate.set()
    graphs = [work.graph for work in works]
    found: list[list[Run]] = []

    async def recover(executor: Executor) -> None:
        found.append(await executor.recover())

    async with Executor(store, graphs=graphs) as one, Executor(store, graphs=graphs) as two:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recover, one)
            tasks.start_soon(recover, two)
        for number, work in enumerate(works):
            assert (await one.load(f"r{number}")).output == work.output
            assert work.done == work.output
    assert sorted(run.run_id for runs in found for run in runs) == [f"r{number}" for number in range(6)]


async def test_what_cannot_be_resumed(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        await executor.start(chain(says("a"), name="ends"), run_id="ended")
        with pytest.raises(RunEnded, match=r"completed"):
            await executor.resume("ended")
        with pytest.raises(RunUnknown):
            await executor.resume("none")
        await interrupt(executor, work)
    async with Executor(store) as executor:
        with pytest.raises(GraphUnknown, match=r"graph 'gated', which this executor does not have.*graphs=\["):
            await executor.resume("r")
        assert (await executor.load("r")).status == "interrupted"
        assert await store.lease("r") is None


async def test_time_between_two_drives_does_not_count(store: Store, clock: MockClock) -> None:
    work = Gated()
    limited = work.graph.with_limits(Limits(seconds=5))
    async with Executor(store, clock=clock) as executor:
        with anyio.move_on_after(0.4):
            await executor.start(limited, run_id="r")
        before = (await executor.load("r")).seconds
        await anyio.sleep(3600)
        work.gate.set()
        run = await executor.resume("r")
    assert run.seconds < before + 3600


async def test_a_run_can_be_interrupted_again_and_again(store: Store) -> None:
    work = Gated()
    async with Executor(store) as executor:
        await interrupt(executor, work)
        for _ in range(5):
            work.reached = anyio.Event()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(cancel_when, work.reached, scope))
                    await executor.resume("r")
        assert work.done == work.output[:2]
        await left_well(executor, work)


async def cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel when something has happened."""
    await event.wait()
    scope.cancel()

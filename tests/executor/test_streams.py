"""Streams of runs that exist, runs that go on in the background, and how far events are followed."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchestrator import Approve, Context, Executor, Graph, Run, Update, node
from orchestrator.errors import InvalidAnswer, QuestionUnknown, RunConflict, RunExists, RunUnknown, StaleAnswer
from orchestrator.executor import Event
from orchestrator.nodes import Sleep
from orchestrator.stores.base import RunInfo, Store
from orchestrator.stores.memory import MemoryStore
from tests.support.executors import Log, chain, says
from tests.support.programs import CODE, Piped

pytestmark = pytest.mark.anyio


class Gate:
    """A node that waits until its gate is open."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached, self.open = anyio.Event(), anyio.Event()
        if is_open:
            self.open.set()

    async def wait(self, state: Log) -> Update:
        """Wait, and say so."""
        self.reached.set()
        await self.open.wait()
        return {"log": "through"}


async def asks(state: Log, ctx: Context) -> Update:
    """Ask a person two questions, one after the other."""
    first = await ctx.ask("input", prompt="first?")
    return {"log": str(getattr(first, "value", first.type))}


def asking(gate: Gate) -> object:
    return chain(node(asks), node(gate.wait), name="asking")


async def asked(executor: Executor, graph: object, run_id: str = "r") -> str:
    """A run that waits for an answer; gives the question's id."""
    run = await executor.start(graph, run_id=run_id)  # type: ignore[arg-type]
    (question,) = run.waiting
    return question.id


def kinds(events: list[Event]) -> list[str]:
    """What is journaled."""
    return [event.type for event in events if event.seq is not None]


# -- streams of runs that exist --------------------------------------------------------------------------------------


async def test_a_stream_answers_and_goes_on_until_the_run_ends(store: Store) -> None:
    gate = Gate(is_open=True)
    async with Executor(store) as executor:
        question = await asked(executor, asking(gate))
        before = (await executor.load("r")).seq
        async with executor.stream(run_id="r", answers={question: "yes"}, by="ann") as live:
            assert live.run_id == "r"
            seen = [event async for event in live]
        assert live.run.status == "completed"
        assert live.run.output == ["yes", "through"]
        journaled = [event for event in seen if event.seq is not None]
        assert journaled == [event async for event in executor.events("r", after=before)]
        assert kinds(seen)[0] == "answered"
        assert seen[0].data["by"] == "ann"
        assert any(event.type == "step_started" for event in seen)


async def test_a_stream_ends_where_the_run_pauses_again(store: Store) -> None:
    async with Executor(store) as executor:
        graph = chain(node(asks), node(asks), name="twice")
        question = await asked(executor, graph)
        async with executor.stream(run_id="r", answers={question: "one"}) as live:
            seen = [event async for event in live]
        assert live.run.status == "paused"
        assert kinds(seen)[-1] == "asked"
        (second,) = live.run.waiting
        async with executor.stream(run_id="r", answers={second.id: "two"}, after=0) as live:
            again = [event async for event in live]
        assert live.run.output == ["one", "two"]
        assert [event.seq for event in again if event.seq is not None] == list(range(1, live.run.seq + 1))


async def test_a_stream_resumes_what_was_interrupted(store: Store) -> None:
    gate = Gate()
    async with Executor(store) as executor:
        async with executor.stream(asking(gate), run_id="r") as live:
            run = [event async for event in live] and live.run
        async with executor.stream(run_id="r", answers={run.waiting[0].id: "yes"}) as live:
            await gate.reached.wait()  # leaving interrupts the drive that this stream began
        assert (await executor.load("r")).status == "interrupted"
        gate.open.set()
        async with executor.stream(run_id="r") as live:
            assert kinds([event async for event in live])[0] == "resumed"
        assert live.run.output == ["yes", "through"]


async def test_leaving_a_stream_leaves_a_run_alone_that_goes_on_in_the_background(store: Store) -> None:
    gate = Gate()
    async with Executor(store) as executor:
        await executor.submit(chain(node(gate.wait), says("last")), run_id="r")
        async with executor.stream(run_id="r", after=0) as live:
            async for event in live:
                assert event.type == "run_started"
                break
        gate.open.set()
        run = await executor.wait("r")
        assert (run.status, run.output) == ("completed", ["through", "last"])
        assert "resumed" not in kinds([event async for event in executor.events("r") if event.seq and event.seq < 3])


async def test_leaving_a_stream_leaves_a_run_alone_that_sleeps_in_the_background(store: Store) -> None:
    nodes = {"first": says("first"), "sleep": Sleep(seconds=0.3), "last": says("last")}
    graph = Graph(name="sleeper", state=Log, nodes=nodes, edges="START -> first -> sleep -> last -> END", output="log")
    async with Executor(store) as executor:
        await executor.submit(graph, run_id="r")
        async for event in executor.events("r", follow=True):
            if event.type == "timer_set":
                break
        await anyio.sleep(0.05)
        async with executor.stream(run_id="r") as live:
            pass
        assert (await executor.wait("r", 5)).output == ["first", "last"]
        await executor.submit(graph, run_id="s")
        async with executor.stream(run_id="s", after=0) as live:
            assert kinds([event async for event in live])[-1] == "ended"
        assert live.run.output == ["first", "last"]


async def test_a_stream_of_a_run_that_another_executor_drives_follows_it(store: Store) -> None:
    gate = Gate()
    graph = chain(node(gate.wait), name="there")
    async with Executor(store, graphs=[graph]) as executor, Executor(store) as other:
        await other.submit(graph, run_id="r")
        await gate.reached.wait()
        async with executor.stream(run_id="r", after=0) as live:
            gate.open.set()
            seen = [event async for event in live]
        assert kinds(seen)[-1] == "ended"
        assert live.run.output == ["through"]
        with pytest.raises(RunUnknown):
            async with executor.stream(run_id="nothing"):
                pass


async def test_a_stream_gets_what_comes_while_it_looks_whether_the_run_goes_on() -> None:
    gate = Gate()

    class EndsWhileLookedAt(MemoryStore):
        async def info(self, run_id: str) -> RunInfo:
            found = await super().info(run_id)
            if reading and not gate.open.is_set():
                gate.open.set()
                await other.wait("r")
            return found

    store, reading = EndsWhileLookedAt(), False
    graph = chain(node(gate.wait), name="there")
    async with Executor(store, graphs=[graph]) as executor, Executor(store) as other:
        await other.submit(graph, run_id="r")
        await gate.reached.wait()
        async with executor.stream(run_id="r", after=0) as live:
            seen = [await anext(live)]
            reading = True
            seen += [event async for event in live]
    assert kinds(seen) == ["run_started", "step_done", "ended"]


async def test_a_stream_ends_where_another_executor_gives_a_run_up(store: Store) -> None:
    gate = Gate()
    graph = chain(node(gate.wait), name="there")
    async with Executor(store, graphs=[graph]) as executor:
        async with Executor(store) as other:
            await other.submit(graph, run_id="r")
            await gate.reached.wait()
            async with executor.stream(run_id="r", after=0) as live:
                await other.__aexit__(None, None, None)
                seen = [event async for event in live]
            await other.__aenter__()
        assert kinds(seen) == ["run_started"]
        assert live.run.status == "interrupted"


async def test_the_stream_of_an_ended_run_gives_its_events_and_is_no_dead_end(store: Store) -> None:
    async with Executor(store) as executor:
        await executor.start(chain(says("a")), run_id="r")
        async with executor.stream(run_id="r", after=0) as live:
            seen = [event async for event in live]
        assert kinds(seen) == ["run_started", "step_done", "ended"]
        assert live.run.status == "completed"
        async with executor.stream(run_id="r") as live:
            assert [event async for event in live] == []
        assert live.run.status == "completed"


async def test_without_resume_a_stream_only_answers(store: Store) -> None:
    gate = Gate()
    async with Executor(store) as executor:
        question = await asked(executor, asking(gate))
        async with executor.stream(run_id="r", answers={question: "yes"}, resume=False) as live:
            assert kinds([event async for event in live]) == ["answered"]
        assert live.run.status == "running"
        assert not gate.reached.is_set()


async def test_answers_of_a_stream_are_taken_all_or_none(store: Store) -> None:
    async with Executor(store) as executor:
        both = chain(node(asks), name="both")
        question = await asked(executor, both)
        head = (await executor.load("r")).seq
        for answers, error in (
            ({question: "yes", "another": "no"}, QuestionUnknown),
            ({"another": "no", question: "yes"}, QuestionUnknown),
            ({question: Approve()}, InvalidAnswer),
        ):
            with pytest.raises(error):
                async with executor.stream(run_id="r", answers=answers):
                    pass
            assert (await executor.load("r")).seq == head
        async with executor.stream(run_id="r", answers={question: "yes"}) as live:
            assert [event async for event in live]
        with pytest.raises(StaleAnswer):
            async with executor.stream(run_id="r", answers={question: "yes"}):
                pass


async def test_a_stream_is_of_a_new_run_or_of_one_that_exists(store: Store) -> None:
    graph = chain(says("a"))
    async with Executor(store) as executor:
        await executor.start(graph, run_id="r")
        with pytest.raises(RunExists, match=r"stream\(run_id=\.\.\.\) reads an existing one"):
            async with executor.stream(graph, run_id="r"):
                pass
        with pytest.raises(TypeError, match="labels can be given only for a new run"):
            async with executor.stream(run_id="r", labels={"a": "b"}):  # type: ignore[call-overload]
                pass
        with pytest.raises(TypeError, match="answers, after can be given only for an existing run"):
            async with executor.stream(graph, answers={}, after=0):  # type: ignore[call-overload]
                pass
        with pytest.raises(TypeError, match="give a graph, or the run_id"):
            async with executor.stream():  # type: ignore[call-overload]
                pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_stream_of_a_run_whose_process_dies_ends_and_the_next_stream_goes_on(
    tmp_path: Path, number: int, anyio_backend: str
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    code = f"import tests.executor.test_streams as t, anyio; anyio.run(t.waits_forever, {url!r})"
    patience[:] = [anyio.Event()]
    with closing(Piped([code], module=CODE, loads=[__name__])) as other:
        assert await anyio.to_thread.run_sync(other.line) == "waits\n"
        async with Executor(url, graphs=[patient]) as executor:
            async with executor.stream(run_id="r", after=0) as live:
                other.signal(number)
                seen = [event async for event in live]
            assert kinds(seen) == ["run_started"]
            assert live.run.status == "interrupted"
            patience[0].set()
            async with executor.stream(run_id="r") as live:
                assert kinds([event async for event in live])[0] == "resumed"
            assert (live.run.status, live.run.output) == ("completed", ["patient"])


patience = [anyio.Event()]
"""Set when a patient run may go on."""


@node
async def wait_long(state: Log) -> Update:
    """Wait until it is told to go on, if ever."""
    print("waits", flush=True)
    await patience[0].wait()
    return {"log": "patient"}


patient = chain(wait_long, name="patient")


async def waits_forever(url: str) -> None:
    """Drive a run that does not end."""
    async with Executor(url) as executor:
        await executor.start(patient, run_id="r")


# -- going on in the background --------------------------------------------------------------------------------------


async def test_an_answer_in_the_background_is_durable_and_outlives_its_caller(store: Store) -> None:
    gate = Gate()
    async with Executor(store) as executor:
        question = await asked(executor, asking(gate))
        found: list[Run] = []
        answered = anyio.Event()
        async with anyio.create_task_group() as request:

            async def handle() -> None:
                found.append(await executor.answer("r", question, "yes", background=True))
                answered.set()
                await anyio.sleep_forever()

            request.start_soon(handle)
            await answered.wait()
            await gate.reached.wait()
            request.cancel_scope.cancel()  # the web request is gone
        (run,) = found
        assert run.status == "running"
        assert not run.waiting
        gate.open.set()
        assert (await executor.wait("r")).output == ["yes", "through"]
        with pytest.raises(StaleAnswer):
            await executor.answer("r", question, "yes", background=True)


async def test_cancelling_an_answer_in_the_background_at_any_moment_leaves_no_run_interrupted(store: Store) -> None:
    gate = Gate(is_open=True)
    async with Executor(store) as executor:
        for turns in range(30):
            question = await asked(executor, asking(gate), f"r{turns}")
            async with anyio.create_task_group() as request:
                request.start_soon(cancel_after, request.cancel_scope, turns)
                await executor.answer(f"r{turns}", question, "yes", background=True)
            run = await executor.wait(f"r{turns}")
            assert run.status in ("paused", "completed"), turns  # the answer was taken and the run went on, or neither


async def cancel_after(scope: anyio.CancelScope, turns: int) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_run_is_resumed_in_the_background(store: Store) -> None:
    gate = Gate()
    graph = chain(node(gate.wait), says("last"))
    async with Executor(store) as executor:
        async with executor.stream(graph, run_id="r"):
            await gate.reached.wait()
        run = await executor.resume("r", background=True)
        assert run.status == "running"
        assert (await executor.resume("r", background=True)).status == "running"  # it goes on already
        async with Executor(store, graphs=[graph]) as other:
            with pytest.raises(RunConflict):
                await other.resume("r", background=True)
        gate.open.set()
        assert (await executor.wait("r")).output == ["through", "last"]


async def test_a_run_that_fails_in_the_background_says_so_to_who_waits(store: Store) -> None:
    @node
    async def breaks(state: Log) -> Update:
        raise LookupError("broken")

    async with Executor(store) as executor:
        question = await asked(executor, chain(node(asks), breaks))
        await executor.answer("r", question, "yes", background=True)
        assert (await executor.wait("r")).status == "failed"


async def test_a_question_of_a_run_that_goes_on_is_answered_in_the_background(store: Store) -> None:
    gate = Gate()
    nodes = {"ask": node(asks), "wait": node(gate.wait)}
    forked = Graph(name="forked", state=Log, nodes=nodes, edges="START -> ask, wait -> END", output="log")
    async with Executor(store) as executor, Executor(store, graphs=[forked]) as other:
        await executor.submit(forked, run_id="r")
        async for event in executor.events("r", follow=True):
            if event.type == "asked":
                break
        (question,) = (await executor.load("r")).waiting
        run = await other.answer("r", question.id, "yes", background=True)  # handed to the executor that drives it
        assert not run.waiting
        gate.open.set()
        assert (await executor.wait("r")).status == "completed"


# -- how far events are followed -------------------------------------------------------------------------------------


async def test_events_are_followed_to_the_pause_or_to_the_end(store: Store) -> None:
    gate = Gate()
    ends: dict[str, list[str]] = {}
    stopped = anyio.Event()
    async with Executor(store) as executor, Executor(store) as other, anyio.create_task_group() as tasks:

        async def follow(name: str, by: Executor, until: object) -> None:
            events = by.events("r", follow=True, until=until)  # type: ignore[arg-type]
            ends[name] = kinds([event async for event in events])
            if len(ends) == 2:
                stopped.set()

        question = await asked(executor, asking(gate))
        tasks.start_soon(follow, "here", executor, "pause")
        tasks.start_soon(follow, "there", other, "pause")
        tasks.start_soon(follow, "on", other, "end")
        await stopped.wait()
        assert {tuple(seen) for seen in ends.values()} == {("run_started", "asked")}
        gate.open.set()
        await executor.answer("r", question, "yes")
    assert ends["on"][-1] == "ended"


async def test_events_that_are_not_followed_end_wherever_the_run_is(store: Store) -> None:
    async with Executor(store) as executor:
        await asked(executor, asking(Gate()))
        for until in ("end", "pause"):
            seen = [event async for event in executor.events("r", until=until)]  # type: ignore[arg-type]
            assert kinds(seen) == ["run_started", "asked"]
        with pytest.raises(ValueError, match="until='never': use 'end' or 'pause'"):
            executor.events("r", until="never")  # type: ignore[arg-type]

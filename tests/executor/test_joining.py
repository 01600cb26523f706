"""Joining a run that another process began: it goes on as by `resume`, or what it waits for is returned."""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Context, Executor, Graph, Run, Update, node
from orchestrator.errors import ModelMisconfigured
from orchestrator.executor.resuming import Waiting, borrow
from orchestrator.models import ModelRequest, Reply, RequestModel
from orchestrator.nodes import Sleep, Wait
from orchestrator.stores.rows import MAX_DEATHS
from orchestrator.testing.store_conformance.helpers import a_lease
from tests.support.executors import Log, says
from tests.support.programs import CODE, Piped
from tests.support.sizes import quick_on, sized
from tests.support.stores import KINDS, kinds
from tests.web.api import api

pytestmark = [pytest.mark.anyio, quick_on("asyncio")]

SHORT, SOON = 0.6, 60.0
"""Seconds of a timer; seconds within which all is over on a busy machine."""


class Answers(RequestModel):
    """A model that answers, or one that is set up wrong."""

    name = "answers"

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses

    async def respond(self, request: ModelRequest) -> Reply:
        if self.refuses:
            raise ModelMisconfigured("refused")
        return Reply(text="hello")


@node
async def talk(state: Log, ctx: Context) -> Update:
    """Ask the model."""
    return {"log": (await ctx.model.complete("hi")).text}


@node
async def ask(state: Log, ctx: Context) -> Update:
    """Ask a person."""
    return {"log": str(getattr(await ctx.ask("input", prompt="well?"), "value", "denied"))}


def graph_of(what: str) -> Graph:
    """The graph of a run that another process brought so far."""
    edges = "START -> first -> last -> END"
    first: Any = {"sleeping": Sleep(seconds=SHORT), "answered": ask, "at": says("begun")}.get(what, talk)
    if what.startswith("deadline"):
        first = Wait(event="never", deadline=SHORT if what == "deadline passed" else 3600.0)
        edges = "START -> first\nfirst -> last : received\nfirst -> last : timeout\nlast -> END"
    nodes = {"first": first, "last": says("last")}
    return Graph(name="joined", state=Log, input="question", nodes=nodes, edges=edges, output="log")


async def bring(executor: Executor, what: str) -> None:
    """Begin run `r` and bring it to where it is joined."""
    graph = graph_of(what)
    if what == "at":
        await executor.enqueue(graph, run_id="r", at=time.time() + SHORT)
        return
    if what == "answered":
        run = await executor.start(graph, run_id="r")
        await executor.answer("r", run.waiting[0].id, "yes", resume=False)
        return
    await executor.submit(graph, run_id="r")
    if what in ("backing off", "parked"):
        with pytest.raises(ModelMisconfigured):
            await executor.wait("r")
        for number in range(1, MAX_DEATHS if what == "parked" else 1):
            await executor.store.take_lease(a_lease("r", f"t{number}"), ttl=60.0)
            await executor.store.drop_lease("r", f"t{number}", fault="refused")
        return
    while (await executor.load("r")).status != "paused":  # noqa: ASYNC110  it is driven in the background
        await anyio.sleep(0.01)


async def begin(url: str, what: str) -> None:
    """What the process does that is killed."""
    async with Executor(url, model=Answers(refuses=True)) as executor:
        await bring(executor, what)
        print("there", flush=True)
        await anyio.sleep_forever()


def joined_by_post(url: str, graph: Graph) -> str:
    """The status that a client gets that starts the run once more, and waits for it."""
    with api(graph, store=url, model=Answers(refuses=False), lease_ttl=1.0) as found:
        return str(found.post("runs", 201, graph="joined", run_id="r", wait=True)["status"])


async def join(url: str, what: str, how: str) -> str:
    """Join run `r`; its status then."""
    graph = graph_of(what)
    await anyio.sleep(SHORT if what == "deadline passed" else 0)
    if how == "POST":
        return await anyio.to_thread.run_sync(joined_by_post, url, graph)
    run: Run
    async with Executor(url, graphs=[graph], model=Answers(refuses=False), lease_ttl=1.0) as executor:
        if how == "stream":
            async with executor.stream(run_id="r") as live:
                async for _ in live:
                    pass
            run = live.run
        elif how == "submit":
            run = await executor.wait(await executor.submit(graph, run_id="r"))
        elif how == "start":
            run = await executor.start(graph, run_id="r")
        else:
            run = await (executor.wait("r") if how == "wait" else executor.resume("r"))
        assert (await executor.load("r")).status == run.status
    return run.status


HOWS = ("start", "submit", "wait", "stream", "POST", "resume")
WHATS = ("sleeping", "deadline passed", "deadline to come", "backing off", "parked", "answered", "at")
FATES = ("killed", "closed", "alive")
THIN = [(KINDS[n % 2], HOWS[n % 6], WHATS[n % 7], FATES[(n + n // 3) % 3]) for n in range(14)]
ALL = [cell for cell in itertools.product(KINDS, HOWS, WHATS, FATES) if cell[1::2] != ("resume", "alive")]
"""Where another executor is quicker, `resume` alone says so by an error."""
CELLS = sized([*THIN, ("sqlite", "wait", "answered", "killed")], ALL)


async def test_a_run_that_another_executor_is_taking_up_is_not_returned_as_paused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with Executor(url) as executor:
        await bring(executor, "deadline passed")
    await anyio.sleep(SHORT)
    async with Executor(url, graphs=[graph_of("deadline passed")]) as executor:
        await executor.store.take_lease(a_lease("r", "other"), ttl=60.0)
        assert await Waiting(executor._host, "r").look() is None
        await executor.store.drop_lease("r", "other")
        assert (await executor.wait("r")).status == "completed"


@pytest.mark.parametrize(("places", "how", "what", "fate"), CELLS, indirect=["places"])
async def test_who_joins_a_run_goes_on_with_it_or_gets_what_it_waits_for(
    url: str, how: str, what: str, fate: str
) -> None:
    with anyio.fail_after(SOON):
        if fate == "killed":
            code = f"import tests.executor.test_joining as t, anyio; anyio.run(t.begin, {url!r}, {what!r})"
            with closing(Piped([code], module=CODE, loads=[__name__])) as process:
                assert await anyio.to_thread.run_sync(process.line) == "there\n"
                process.signal(signal.SIGKILL)
                process.wait()
            status = await join(url, what, how)
        else:
            async with Executor(url, model=Answers(refuses=True)) as executor:
                await bring(executor, what)
                if fate == "alive":
                    status = await join(url, what, how)
            if fate == "closed":
                status = await join(url, what, how)
    left = how == "wait" and what in ("backing off", "parked")  # `wait` says so, and leaves what to do to its caller
    assert status == ("paused" if what == "deadline to come" else "interrupted" if left else "completed")


@pytest.mark.full
@kinds("sqlite")
@pytest.mark.parametrize("what", ["sleeping", "deadline passed"])
async def test_an_executor_that_sleeps_joins_as_it_resumes(url: str, what: str) -> None:
    """Before its time has come the run is paused; behind that it goes on, whichever call joins it."""
    graph = graph_of(what)
    for number, how in enumerate(("start", "wait", "submit")):
        run_id = f"r{number}"
        async with Executor(url, graphs=[graph], idle="sleep") as executor:
            run = await executor.start(graph, run_id=run_id)
            assert run.status == "paused"
            deadline = run.waiting[0].deadline
            assert deadline is not None
        async with Executor(url, graphs=[graph], idle="sleep") as executor:
            early = await (executor.wait(run_id) if how == "wait" else executor.start(graph, run_id=run_id))
            assert early.status == "paused" or time.time() >= deadline
            await anyio.sleep(max(0.0, deadline - time.time()) + 0.05)
            with anyio.fail_after(SOON):
                if how == "start":
                    assert (await executor.start(graph, run_id=run_id)).status == "completed"
                elif how == "submit":
                    await executor.submit(graph, run_id=run_id)
                assert (await executor.wait(run_id)).status == "completed"


@kinds("sqlite")
async def test_the_pause_of_a_person_is_lifted_by_no_call_that_joins(url: str) -> None:
    graph = graph_of("sleeping")
    async with Executor(url, graphs=[graph]) as executor:
        await executor.enqueue(graph, run_id="r", at=time.time() + 3600)
        await executor.pause("r")
        for call in (executor.start(graph, run_id="r"), executor.wait("r")):
            assert (await call).status == "paused"
        await executor.submit(graph, run_id="r")
        assert (await executor.load("r")).status == "paused"


@kinds("sqlite")
async def test_a_stream_goes_on_with_a_run_that_slept_elsewhere_when_its_process_was_killed(url: str) -> None:
    graph = graph_of("sleeping")
    async with Executor(url, graphs=[graph]) as executor:
        async with Executor(url) as other:
            await bring(other, "sleeping")
            while "r" in other._host.live:  # noqa: ASYNC110  its drive has asked, and is about to end
                await anyio.sleep(0.01)
            held = await borrow(other._host, "r")  # so the stream follows it
            async with executor.stream(run_id="r", after=0) as live:
                await other._host.release(held)
                await other.__aexit__(None, None, None)
                with anyio.fail_after(SOON):
                    seen = [event async for event in live]
            await other.__aenter__()
        assert seen[-1].type == "ended"
        assert live.run.status == "completed"


@kinds("sqlite")
async def test_wait_leaves_a_run_to_a_living_worker_that_has_its_graph(url: str) -> None:
    graph = graph_of("sleeping")
    async with Executor(url, graphs=[graph], lease_ttl=0.5) as executor, Executor(url, graphs=[graph]) as busy:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: busy.work(slots=1, graphs=[graph.name], graph_slots={graph.name: 1}))
            while not await executor.workers.list():  # noqa: ASYNC110  the worker says so in the store
                await anyio.sleep(0.01)
            await executor.enqueue(graph, run_id="r")
            with anyio.fail_after(SOON):
                run = await executor.wait("r")
            resumed = [event for event in [e async for e in executor.events("r")] if event.type == "resumed"]
            tasks.cancel_scope.cancel()
        assert run.status == "completed"
        assert {event.data["holder"] for event in resumed} == {str(busy._host.owner)}

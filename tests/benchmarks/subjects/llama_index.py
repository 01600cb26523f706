"""LlamaIndex Workflows; a context can be written down, but no step is committed by itself."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from tests.benchmarks.subjects import Figures, Workload, sizes
from tests.benchmarks.subjects.floor import imported


class Again(Event):
    n: int


class Work(Event):
    item: int


class Worked(Event):
    item: int


class Loop(Workflow):
    @step
    async def begin(self, event: StartEvent) -> Again:
        return Again(n=0)

    @step
    async def again(self, event: Again) -> Again | StopEvent:
        return Again(n=event.n + 1) if event.n + 1 < sizes.LOOP else StopEvent(result=event.n + 1)


class Fan(Workflow):
    @step
    async def begin(self, ctx: Context, event: StartEvent) -> Work | None:
        for item in range(event.branches):
            ctx.send_event(Work(item=item))
        await ctx.store.set("branches", event.branches)
        return None

    @step(num_workers=1000)
    async def work(self, event: Work) -> Worked:
        return Worked(item=event.item + 1)

    @step
    async def join(self, ctx: Context, event: Worked) -> StopEvent | None:
        found = ctx.collect_events(event, [Worked] * await ctx.store.get("branches"))
        return None if found is None else StopEvent(result=len(found))


def loop(folder: Path) -> Figures:
    async def run() -> float:
        started = time.perf_counter()
        assert await Loop(timeout=None).run() == sizes.LOOP
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / sizes.LOOP * 1e6}


def fan(branches: int, folder: Path) -> Figures:
    async def run() -> float:
        started = time.perf_counter()
        assert await Fan(timeout=None).run(branches=branches) == branches
        return time.perf_counter() - started

    return {"us": asyncio.run(run()) / branches * 1e6}


WORKLOADS: dict[str, Workload] = {
    "loop": loop,
    "fan_100": partial(fan, 100),
    "import": partial(imported, "import workflows"),
}

"""LlamaIndex Workflows; a context can be written down, but no step is committed by itself."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from tests.benchmarks.subjects import Figures, Preparation, Workload, sizes
from tests.benchmarks.subjects.floor import imported
from tests.benchmarks.subjects.idle import idle
from tests.benchmarks.subjects.stopwatch import Stopwatch


class Again(Event):
    n: int
    until: int


class Work(Event):
    item: Any


class Worked(Event):
    item: int


class Loop(Workflow):
    @step
    async def begin(self, event: StartEvent) -> Again:
        return Again(n=0, until=event.until)

    @step
    async def again(self, event: Again) -> Again | StopEvent:
        n = event.n + 1
        return Again(n=n, until=event.until) if n < event.until else StopEvent(result=n)


class Asking(Workflow):
    @step
    async def begin(self, ctx: Context, event: StartEvent) -> Again:
        return Again(n=0, until=event.until)

    @step
    async def again(self, ctx: Context, event: Again) -> Again | InputRequiredEvent:
        n = event.n + 1
        await ctx.store.set("n", n)
        return Again(n=n, until=event.until) if n < event.until else InputRequiredEvent(prefix="Go on?")

    @step
    async def answered(self, ctx: Context, event: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=await ctx.store.get("n"))


class Fan(Workflow):
    @step
    async def begin(self, ctx: Context, event: StartEvent) -> Work | None:
        await ctx.store.set("branches", len(event.work))
        for item in event.work:
            ctx.send_event(Work(item=item))
        return None

    @step(num_workers=1000)
    async def work(self, event: Work) -> Worked:
        return Worked(item=(event.item["id"] if isinstance(event.item, dict) else event.item) + 1)

    @step
    async def join(self, ctx: Context, event: Worked) -> StopEvent | None:
        found = ctx.collect_events(event, [Worked] * await ctx.store.get("branches"))
        return None if found is None else StopEvent(result=len(found))


def loop(steps: int, runs: int, folder: Path) -> Figures:
    async def run() -> Stopwatch:
        flow = Loop(timeout=None)
        with Stopwatch() as took:
            for _ in range(runs):
                assert await flow.run(until=steps) == steps
        return took

    return asyncio.run(run()).figures("us", steps * runs)


def fan(items: list[Any], folder: Path) -> Figures:
    async def run() -> Stopwatch:
        with Stopwatch() as took:
            assert await Fan(timeout=None).run(work=items) == len(items)
        return took

    return asyncio.run(run()).figures("us", len(items))


async def asked(handler: Any) -> None:
    """Come back when it waits for an answer."""
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            return


def to_resume(folder: Path) -> None:
    async def run() -> None:
        handler = Asking(timeout=None).run(until=sizes.RESUMED)
        await asked(handler)
        (folder / "context.json").write_text(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()

    asyncio.run(run())


def resume(folder: Path) -> Figures:
    """From a context in a file."""

    async def run() -> Stopwatch:
        with Stopwatch() as took:
            flow = Asking(timeout=None)
            ctx = Context.from_dict(flow, json.loads((folder / "context.json").read_text()))
            handler = flow.run(ctx=ctx)
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
            assert await handler == sizes.RESUMED
        return took

    return asyncio.run(run()).figures("ms")


def waiting(runs: int, folder: Path) -> Figures:
    async def run() -> Figures:
        kept: list[Any] = []

        async def start(first: int, last: int) -> None:
            flow = Asking(timeout=None)
            for _ in range(first, last):
                kept.append(handler := flow.run(until=3))
                await asked(handler)

        figures = await idle(start, runs)
        for handler in kept:
            await handler.cancel_run()
        return figures

    return asyncio.run(run())


def build(nodes: int, folder: Path) -> Figures:
    """A class of as many steps, each with an event of its own."""
    events = [type(f"E{number}", (Event,), {"__annotations__": {"n": int}}) for number in range(nodes)]

    def made(number: int) -> Any:
        taken: Any = events[number] if number else StartEvent
        given: Any = events[number + 1] if number + 1 < nodes else events[1] | StopEvent

        async def body(self: Any, event: Any) -> Any:
            return given(n=0)

        body.__annotations__.update(event=taken, **{"return": given})
        body.__name__, body.__qualname__ = f"n{number}", f"Built.n{number}"
        return step(body)

    with Stopwatch() as took:
        flow = type("Built", (Workflow,), {f"n{number}": made(number) for number in range(nodes)})
        flow(timeout=None)
    return took.figures("ms")


WORKLOADS: dict[str, Workload] = {
    "loop": partial(loop, sizes.LOOP, 1),
    "one_memory": partial(loop, 1, sizes.SINGLE),
    "fan_100": partial(fan, list(range(100))),
    "map_100": partial(fan, [sizes.record(n) for n in range(100)]),
    "resume": resume,
    f"waiting_{sizes.WAITING[0]}": partial(waiting, sizes.WAITING[0]),
    "import": partial(imported, "import workflows"),
    **{f"build_{nodes}": partial(build, nodes) for nodes in sizes.NODES},
}
PREPARED: dict[str, Preparation] = {"resume": to_resume}

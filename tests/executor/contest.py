"""A program whose process is stopped at an exact moment, or has a wrong clock, or fights with others for runs.

`python -m tests.executor.contest`; how orders are given and what is told is as in `program`.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Collection, Mapping
from typing import Annotated, Any, cast

import anyio
import anyio.to_thread
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Update, append, node
from orchestrator.errors import ModelUnavailable, RunConflict, RunError
from orchestrator.kernel.records import EffectIntended
from orchestrator.kernel.status import FINAL
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest
from orchestrator.models.middleware import RateLimit, with_middleware
from orchestrator.stores import Store, open_store
from orchestrator.stores.requests import Append
from tests.executor.program import TRIP, FarModel, Trip, World, looked_up, main, send, tell, tools


@node
async def model(state: Trip, ctx: Context) -> Update:
    """Ask a model."""
    return {"notes": (await ctx.model.complete("model")).text}


@node
async def stream(state: Trip, ctx: Context) -> Update:
    """Ask a model, and hear it word by word."""
    replies = [event.reply async for event in ctx.model.stream("stream")]
    return {"notes": replies[-1].text if replies[-1] is not None else ""}


@node
async def order(state: Trip, ctx: Context) -> Update:
    """Call an irreversible tool."""
    return {"notes": (await ctx.tool("order", seats=1)).text}


@node
async def fetch(state: Trip, ctx: Context) -> Update:
    """Call an idempotent tool."""
    return {"notes": (await ctx.tool("fetch", place="a", attempt=1)).text}


@node
async def save(state: Trip, ctx: Context[World]) -> Update:
    """Call a function."""

    def saved(idempotency_key: str) -> str:
        return str(ctx.deps.ask("save", idempotency_key))

    return {"notes": await ctx.effect("save", saved, returns=str)}


PAUSE = 1.0
"""Seconds before a further try, and of a deadline."""
AT_A_TIME = 40
"""How many worker threads there are, and how many model calls at a time."""


@node(retry=Retry(attempts=3, wait=PAUSE, jitter=0.0))
async def stumble(state: Trip, ctx: Context[World]) -> Update:
    """Fail in the first attempt."""
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return {"notes": "stumbled"}


@node
async def call_again(state: Trip, ctx: Context) -> Update:
    """Ask a model that is there only when this process is not its first."""
    return {"notes": (await ctx.models["failing"].complete("again")).text}


@node
async def wait_for_word(state: Trip, ctx: Context) -> Update:
    """Wait for a person, not for long."""
    return {"notes": (await ctx.ask("input", prompt="?", deadline=PAUSE)).type}


class Failing(FarModel):
    """A model that only the process of the tests reaches."""

    name = "failing"
    retry = Retry(attempts=3, wait=PAUSE, jitter=0.0)

    def __init__(self, world: World, life: str) -> None:
        super().__init__(world)
        self._life = life

    async def respond(self, request: ModelRequest) -> Reply:
        if self._life != "here":
            raise ModelUnavailable("not yet")
        return await super().respond(request)


ACTS = {
    one: Graph(name=one, state=Trip, nodes={one: fn}, edges=f"START -> {one} -> END", output="notes")
    for one, fn in {
        "model": model, "stream": stream, "order": order, "fetch": fetch, "save": save, "send": send,
    }.items()
}  # fmt: skip
"""One effect each."""


@node(effect="pure")
def tidy_up(state: BaseModel) -> None:
    """Nothing outside."""


WAITS = {
    one: Graph(name=one, state=Trip, nodes={one: fn}, edges=f"START -> {one} -> END", output="notes")
    for one, fn in {"stumble": stumble, "call_again": call_again, "wait_for_word": wait_for_word}.items()
}
"""One wait each."""


class Crowd(BaseModel):
    """More things to do at a time than there are worker threads."""

    places: list[str] = [f"place {number}" for number in range(60)]
    seen: Annotated[list[str], append] = []


@node
async def book(ctx: Context, item: str) -> Update:
    """Call an irreversible tool whose function is sync."""
    return {"seen": (await ctx.tool("book", nights=int(item.removeprefix("place ")))).text}


@node
async def note(ctx: Context[World], item: str) -> Update:
    """Call an irreversible sync function."""

    def noted(idempotency_key: str) -> str:
        return str(ctx.deps.ask("note", idempotency_key))

    return {"seen": await ctx.effect("note", noted, returns=str, effect="irreversible", reconcile=ctx.deps.known)}


@node
def visit(ctx: Context[World], item: str) -> Update:
    """A sync node that does something itself."""
    return {"seen": ctx.deps.ask("visit", item)}


@node
async def travel(ctx: Context[World], item: str) -> Update:
    """An async node that does something itself."""
    asking = functools.partial(ctx.deps.ask, "travel", item)
    limiter = anyio.CapacityLimiter(1)  # its own thread: nothing lies between the beginning and the request
    return {"seen": await anyio.to_thread.run_sync(asking, abandon_on_cancel=True, limiter=limiter)}


@node
async def learn(ctx: Context, item: str) -> Update:
    """Ask a model that only so many may ask at a time."""
    return {"seen": (await ctx.models["busy"].complete(f"about {item}")).text}


CROWDS = {
    f"{one}s": Graph(
        name=f"{one}s", state=Crowd, nodes={"begin": tidy_up, one: fn},
        edges=f"START -> begin\nbegin -> {one} : each places\n{one} -> END", output="seen",
    )
    for one, fn in {"book": book, "note": note, "visit": visit, "travel": travel, "learn": learn}.items()
}  # fmt: skip
"""The same effect 60 times at once, of which 40 are begun while the others wait."""


def stops(store: Store, before: str) -> Store:
    """Have the process of a store stopped in the moment in which the intent of some effect is durable."""
    append = store.append

    async def stopping(request: Append) -> int:
        head = await append(request)
        if any(isinstance(record, EffectIntended) and record.name == before for record in request.records):
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread, so that nothing comes after it
        return head

    vars(store)["append"] = stopping
    return store


class Sure(World):
    """A world in which nothing is ever tried again on a guess: what is not known counts as done."""

    def known(self, key: str) -> Any:
        found = super().known(key)
        return "nobody knows" if found is None else found


def set_clock(ahead: float, jump: float) -> None:
    """Let the wall clock of this process be wrong, and jump at SIGUSR1."""
    right, wrong = time.time, [ahead]

    def leap(number: int, frame: object) -> None:
        wrong[0] += jump

    vars(time)["time"] = lambda: right() + wrong[0]
    signal.signal(signal.SIGUSR1, leap)


def opened(store: str, world: World, **options: Any) -> Executor:
    """An executor that can run all of this."""
    given = [TRIP, *ACTS.values(), *WAITS.values(), *CROWDS.values()]
    kept = stops(open_store(store), options.pop("before", ""))
    model = FarModel(world)
    busy = with_middleware(model, RateLimit(concurrency=AT_A_TIME))
    models = {"busy": busy, "failing": Failing(world, world.life)}
    return Executor(kept, graphs=given, model=model, models=models, tools=tools(world), deps=world, **options)


async def act(executor: Executor, run_id: str, graph: str) -> object:
    """One run of one effect."""
    run = await executor.start(graph, run_id=run_id)
    return {"status": run.status, "output": run.output}


async def fight(executor: Executor, world: World, run_ids: Collection[str], graph: str) -> object:
    """Bring runs to their ends, whoever else is about it."""
    for run_id in run_ids:
        with contextlib.suppress(RunConflict):
            await executor.submit(graph, run_id=run_id)
    rounds = 0
    while True:
        rounds += 1
        page = await executor.runs(limit=1000)
        open_ = [info for info in page.runs if info.status not in FINAL]
        if len(page.runs) == len(run_ids) and not open_:
            return rounds
        for info in open_:
            if info.waiting:
                for question in (await executor.load(info.run_id)).waiting:
                    unknown = question.kind == "unknown_outcome"
                    said = looked_up(world, info.run_id, question.payload) if unknown else "yes"
                    with contextlib.suppress(RunError):
                        await executor.answer(info.run_id, question.id, said, resume=False)
        await executor.recover()
        await anyio.sleep(0.2)


async def carry_out(order: Mapping[str, Any]) -> object:
    """Do what an order says, with an executor of its own."""
    world = Sure(order["url"], order["life"])
    set_clock(order.get("ahead", 0.0), order.get("jump", 0.0))
    tell(ready=True)
    options = {"lease_ttl": order.get("ttl", 30.0), "before": order.get("before", "")}
    options["concurrency"] = order.get("concurrency")
    async with opened(order["store"], world, **options) as executor:
        if order["do"] == "fight":
            return await fight(executor, world, cast("list[str]", order["runs"]), order.get("graph", TRIP.name))
        return await act(executor, order["run_id"], order["do"])


if __name__ == "__main__":
    main(carry_out)

"""A program whose process is stopped at an exact moment, or has a wrong clock, or fights with others for runs.

`python -m tests.executor.contest`; how orders are given and what is told is as in `program`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import anyio

from orchestrator import Context, Executor, Graph, Update, node
from orchestrator.errors import RunConflict, RunError
from orchestrator.kernel.records import FINAL, EffectIntended, Record
from orchestrator.stores.sqlite import SQLiteStore
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


ACTS = {
    one: Graph(name=one, state=Trip, nodes={one: fn}, edges=f"START -> {one} -> END", output="notes")
    for one, fn in {
        "model": model, "stream": stream, "order": order, "fetch": fetch, "save": save, "send": send,
    }.items()
}  # fmt: skip
"""One effect each."""


class Stopped(SQLiteStore):
    """A store whose process is stopped in the moment in which the intent of some effect is durable."""

    before = ""

    async def append(self, run_id: str, records: Sequence[Record], **options: Any) -> int:
        head = await super().append(run_id, records, **options)
        if any(isinstance(record, EffectIntended) and record.name == self.before for record in records):
            os.kill(os.getpid(), signal.SIGSTOP)
        return head


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
    given = [TRIP, *ACTS.values()]
    file = Stopped(store.removeprefix("sqlite:///"))
    file.before = options.pop("before", "")
    return Executor(file, graphs=given, model=FarModel(world), tools=tools(world), deps=world, **options)


async def act(executor: Executor, run_id: str, graph: str) -> object:
    """One run of one effect."""
    run = await executor.start(graph, run_id=run_id)
    return {"status": run.status, "output": run.output}


async def fight(executor: Executor, world: World, run_ids: Collection[str]) -> object:
    """Bring runs to their ends, whoever else is about it."""
    for run_id in run_ids:
        with contextlib.suppress(RunConflict):
            await executor.submit(TRIP, run_id=run_id)
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
    async with opened(order["store"], world, **options) as executor:
        if order["do"] == "fight":
            return await fight(executor, world, cast("list[str]", order["runs"]))
        return await act(executor, order["run_id"], order["do"])


if __name__ == "__main__":
    main(carry_out)

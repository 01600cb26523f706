"""Another program, see `program`, with several runs at once whose irreversible effects nobody but a person can look up.

The order `tour` names the runs: they go on beside each other, in one executor, until all have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import anyio
import anyio.to_thread
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Retry, Tool, Update, append, node, tool
from orchestrator.errors import RunEnded, RunUnknown
from orchestrator.graph.model import ITEM
from orchestrator.nodes import Subgraph
from tests.executor.program import FarModel, World, main, tell


class Tour(BaseModel):
    """Places that are seen beside each other."""

    places: list[str] = ["a", "b", "c"]
    notes: Annotated[list[str], append] = []


class Stay(BaseModel):
    """One of them."""

    place: str = ""
    paid: str = ""


def tools(world: World) -> list[Tool]:
    """One tool of each way to be repeated; what became of the irreversible one has to be asked."""

    @tool(effect="read")
    def peek(place: str, idempotency_key: str) -> str:
        """Look at a place."""
        return str(world.ask("peek", idempotency_key, place))

    @tool(effect="idempotent")
    def hold(place: str, idempotency_key: str) -> str:
        """Keep a place free."""
        return str(world.ask("hold", idempotency_key, place))

    @tool
    async def order(place: str, what: str, idempotency_key: str) -> str:
        """Order something there."""
        return str(
            await anyio.to_thread.run_sync(
                world.ask, "order", idempotency_key, f"{what} {place}", abandon_on_cancel=True
            )
        )

    return [peek, hold, order]


@node
async def plan(state: Tour, ctx: Context) -> Update:
    """Ask a model."""
    return {"notes": (await ctx.model.complete(f"{ctx.run_id} plan")).text}


@node(retry=Retry(attempts=3, wait=0.01))
async def visit(state: Tour, ctx: Context, item: str) -> Update:
    """An irreversible call, and then a failure: the next attempt has to go on with what was done."""
    ordered = await ctx.tool("order", place=item, what="dinner")
    seen = await ctx.tool("peek", place=item)
    if item == "b" and ctx.attempt == 1:
        raise ConnectionError("not yet")
    return {"notes": f"{ordered.text} {seen.text}"}


@node
async def settle_in(state: Stay, ctx: Context) -> Update:
    """Inside of a subgraph: something idempotent and something irreversible."""
    await ctx.tool("hold", place=state.place)
    return {"paid": (await ctx.tool("order", place=state.place, what="bed")).text}


@node(join="all", retry=Retry(attempts=3, wait=0.01))
async def ship(state: Tour, ctx: Context[World]) -> Update:
    """The connection breaks at the first attempt: nobody knows whether it happened until somebody looks."""

    def act(idempotency_key: str) -> str:
        broken = ctx.attempt == 1
        return str(ctx.deps.ask("refused" if broken else "ship", idempotency_key, "luggage", fails=broken))

    return {"notes": await ctx.effect("ship", act, returns=str, effect="irreversible")}


@node(effect="irreversible")
async def send(state: Tour, ctx: Context[World]) -> Update:
    """A node that must not run twice."""
    return {"notes": await anyio.to_thread.run_sync(ctx.deps.ask, "send", f"{ctx.run_id} send", abandon_on_cancel=True)}


STAY = Graph(name="stay", state=Stay, nodes={"settle_in": settle_in}, edges="START -> settle_in -> END", output="paid")
TOUR = Graph(
    name="tour",
    state=Tour,
    nodes={
        "plan": plan,
        "visit": visit,
        "stay": Subgraph(STAY, inputs={"place": ITEM}, outputs={"notes": "paid"}),
        "ship": ship,
        "send": send,
    },
    edges="START -> plan\nplan -> visit : each places\nvisit -> stay -> ship -> send -> END",
    output="notes",
    limits=Limits(steps=100),
)
IRREVERSIBLE = 3 + 3 + 1 + 1
"""Effects of one run that must happen once: dinners and beds, the luggage, what is sent."""


def looked_up(world: World, run_id: str, payload: Mapping[str, Any]) -> object:
    """What somebody who looks says of an effect of unknown end."""
    found = world.known(f"{run_id} send" if payload["tool"] == "send" else payload["key"])
    if found is None:
        return "retry"
    return {"choice": "happened", "result": {"notes": found} if payload["tool"] == "send" else found}


async def to_its_end(executor: Executor, world: World, run_id: str) -> object:
    """Go on with a tour, or begin it, and answer what it asks as somebody would who looks before."""
    try:
        run = await executor.resume(run_id)
    except RunUnknown:
        run = await executor.start(TOUR, run_id=run_id)
    except RunEnded:  # killed after the end was journaled, and before it was told
        run = await executor.load(run_id)
    while run.status == "paused":
        question = run.waiting[0]
        assert question.kind == "unknown_outcome", question
        found = await anyio.to_thread.run_sync(looked_up, world, run_id, question.payload)
        run = await executor.answer(run_id, question.id, found, by="somebody who looked")
    return {"status": run.status, "output": run.output, "steps": run.steps, "error": run.error and str(run.error)}


async def carry_out(order: Mapping[str, Any]) -> object:
    """Do what an order says, with an executor of its own."""
    world = World(order["url"], order["life"])
    told: dict[str, object] = {}
    tell(ready=True)
    async with Executor(
        order["store"], graphs=[TOUR], model=FarModel(world), tools=tools(world), deps=world
    ) as executor:

        async def one(run_id: str) -> None:
            told[run_id] = await to_its_end(executor, world, run_id)

        async with anyio.create_task_group() as tasks:
            for run_id in order["run_ids"]:
                tasks.start_soon(one, run_id)
    return told


if __name__ == "__main__":
    main(carry_out)

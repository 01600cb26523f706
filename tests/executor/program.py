"""A program with a run in it, for tests that stop, kill and double it: `python -m tests.executor.program`.

It reads orders, one JSON object a line, carries out each in a process of its own (a fork, so that the next one
costs no imports), and tells about it on stdout:

    {"pid": 1234}              the order's process has begun
    {"ready": true}            it is about to open its executor
    {"result": ...}            it is through; `error` instead, if it raised an error of ours
    {"ended": 0}               it is gone; -9 if it was killed
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Outcome, Retry, Run, Tool, Update, append, node, tool
from orchestrator.errors import OrchestratorError, RunEnded, RunUnknown
from orchestrator.models import Reply
from orchestrator.models.base import ModelRequest, RequestModel
from tests.executor.outside import ask, now


class Trip(BaseModel):
    """What a trip is made of."""

    places: list[str] = ["a", "b", "c", "d"]
    seen: Annotated[list[str], append] = []
    paid: Annotated[list[str], append] = []
    notes: Annotated[list[str], append] = []
    rounds: int = 0


class World:
    """The way outside that one process has."""

    def __init__(self, url: str, life: str) -> None:
        self._url, self.life = url, life

    def ask(self, what: str, key: str, args: object = "", *, fails: bool = False, began: float | None = None) -> Any:
        """Have something done; blocks. `began`: see `Asked`."""
        return ask(self._url, began=began, life=self.life, what=what, key=key, args=args, fails=fails)

    def known(self, key: str) -> Any:
        """What was done under a key; None: nothing. Blocks."""
        return ask(self._url, what="known", key=key)


class FarModel(RequestModel):
    """A model on the other side of a connection."""

    name = "far"

    def __init__(self, world: World) -> None:
        self._world = world

    async def respond(self, request: ModelRequest) -> Reply:
        prompt = str(request.messages[-1].content)
        said = await anyio.to_thread.run_sync(self._world.ask, "model", prompt, prompt, abandon_on_cancel=True)
        return Reply(text=said)


def tools(world: World) -> list[Tool]:
    """One tool of each way to be repeated."""

    @tool(effect="idempotent")
    def fetch(place: str, attempt: int, idempotency_key: str) -> str:
        """Look at a place. One of them is found at the second attempt only."""
        return str(world.ask("fetch", idempotency_key, place, fails=place == "c" and attempt == 1))

    @tool
    def book(nights: int, idempotency_key: str) -> str:
        """Book; it can be looked up afterwards."""
        return str(world.ask("book", idempotency_key, nights))

    @tool
    async def order(seats: int, idempotency_key: str) -> str:
        """Order; somebody has to ask whether it happened."""
        asking = functools.partial(world.ask, "order", idempotency_key, seats, began=now())
        return str(await anyio.to_thread.run_sync(asking, abandon_on_cancel=True))

    book.reconcile = world.known  # type: ignore[attr-defined]
    return [fetch, book, order]


@node
async def plan(state: Trip, ctx: Context) -> Update:
    """Ask a model."""
    return {"notes": (await ctx.model.complete("plan")).text}


@node(retry=Retry(attempts=2, wait=0.01))
async def look(state: Trip, ctx: Context, item: str) -> Update:
    """Two calls for each place."""
    reply = await ctx.model.complete(f"about {item}, {ctx.attempt}")
    seen = await ctx.tool("fetch", place=item, attempt=ctx.attempt)
    if seen.failed:
        raise ConnectionError(seen.error)
    return {"seen": f"{reply.text} {seen.text}"}


@node(join="all")
async def pay(state: Trip, ctx: Context) -> Update:
    """Two irreversible calls at the same time."""
    paid: dict[str, str] = {}

    async def one(name: str, **args: object) -> None:
        paid[name] = (await ctx.tool(name, **args)).text

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(one, "book", nights=len(state.seen)))
        tasks.start_soon(functools.partial(one, "order", seats=2))
    return {"paid": paid["book"] + paid["order"]}


@node(effect="irreversible")
async def send(state: Trip, ctx: Context[World]) -> Update:
    """A node that must not run twice."""
    asking = functools.partial(ctx.deps.ask, "send", f"{ctx.run_id} send", began=now())
    return {"notes": await anyio.to_thread.run_sync(asking, abandon_on_cancel=True)}


@node
async def agree(state: Trip, ctx: Context) -> Update:
    """Wait for a person."""
    return {"notes": (await ctx.ask("input", prompt="go on?")).value}


@node
async def write(state: Trip, ctx: Context[World]) -> Outcome[Literal["again", "enough"]]:
    """Three rounds of a model and a function."""
    said = (await ctx.model.complete(f"round {state.rounds}")).text

    def save(text: str, idempotency_key: str) -> str:
        return str(ctx.deps.ask("save", idempotency_key, text))

    saved = await ctx.effect("save", save, said, returns=str)
    return Outcome("again" if state.rounds < 2 else "enough", rounds=state.rounds + 1, notes=saved)


@node(effect="pure")
def tidy(state: Trip) -> Update:
    """Nothing outside."""
    return {"notes": f"{len(state.notes)} notes"}


TRIP = Graph(
    name="trip",
    state=Trip,
    nodes={"plan": plan, "look": look, "pay": pay, "send": send, "agree": agree, "write": write, "tidy": tidy},
    edges="""
        START -> plan
        plan -> look : each places
        look -> pay -> send -> agree -> tidy -> write
        write -> tidy : again
        write -> END : enough
    """,
    output="notes",
    limits=Limits(steps=100),
)


@node(effect="pure")
def begin(state: Trip) -> Update:
    """Nothing yet."""
    return None


@node
async def answered(state: Trip, ctx: Context) -> Update:
    """What the answer leads to."""
    return {"notes": (await ctx.model.complete(f"answered: {state.notes[-1]}")).text}


BESIDE = Graph(
    name="beside",
    state=Trip,
    nodes={"begin": begin, "plan": plan, "agree": agree, "answered": answered, "tidy": tidy.with_(join="all")},
    edges="""
        START -> begin -> plan, agree
        agree -> answered
        plan, answered -> tidy -> END
    """,
    output="notes",
)
"""One branch works while another one waits for a person."""


def opened(store: str, world: World, **options: Any) -> Executor:
    """An executor that can run all of this."""
    return Executor(store, graphs=[TRIP, BESIDE], model=FarModel(world), tools=tools(world), deps=world, **options)


def looked_up(world: World, run_id: str, payload: Mapping[str, Any]) -> object:
    """What somebody who looks says of an effect of unknown end."""
    found = world.known(f"{run_id} send" if payload["tool"] == "send" else payload["key"])
    if found is None:
        return "retry"
    return {"choice": "happened", "result": {"notes": found} if payload["tool"] == "send" else found}


async def to_its_end(executor: Executor, world: World, run_id: str) -> Run:
    """Go on with a trip, or begin it, and answer what it asks as somebody would who looks before."""
    try:
        run = await executor.resume(run_id)
    except RunUnknown:
        run = await executor.start(TRIP, run_id=run_id)
    except RunEnded:  # killed after the end was journaled, and before it was told
        run = await executor.load(run_id)
    while run.status == "paused":
        question = run.waiting[0]
        said = looked_up(world, run_id, question.payload) if question.kind == "unknown_outcome" else "yes"
        run = await executor.answer(run_id, question.id, said)
    return run


async def carry_out(order: Mapping[str, Any]) -> object:
    """Do what an order says, with an executor of its own."""
    run_id, do = order["run_id"], order["do"]
    world = World(order["url"], order["life"])
    tell(ready=True)
    async with opened(order["store"], world, lease_ttl=order.get("ttl", 30.0)) as executor:
        if do == "trip":
            run = await to_its_end(executor, world, run_id)
        elif do == "start":
            run = await executor.start(order.get("graph", "trip"), run_id=run_id)
        else:
            run = await getattr(executor, do)(run_id)
        error = None if run.error is None else str(run.error)
        return {"status": run.status, "output": run.output, "values": run.values, "steps": run.steps, "error": error}


Act: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[object]]
"""How a program carries out its orders."""


def tell(**what: object) -> None:
    """Say something to who gave the order."""
    os.write(1, json.dumps(what).encode() + b"\n")


def powerless() -> None:
    """Give up what lets root write files that may only be read."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")


def _live(order: Mapping[str, Any], act: Act) -> None:
    try:
        if order.get("powerless"):
            powerless()
        tell(result=anyio.run(act, order, backend=order.get("backend", "asyncio")))
    except (OrchestratorError, KeyboardInterrupt) as error:
        tell(error=type(error).__name__, message=str(error))
    except BaseException:
        tell(error="crash", message=traceback.format_exc())


def main(act: Act = carry_out) -> None:
    """Carry out orders until there are no more."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live(json.loads(line), act)
            os._exit(0)
        tell(pid=pid)
        tell(ended=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()

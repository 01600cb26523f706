"""A worker on a host of its own: `python -m tests.executor.errand_program ORDER` takes up errands until it is ended.

ORDER is JSON: `store`, `world` (host and port of what is outside), `life` (its name there), `own` (the name of a graph
that only this host has), `ttl`, `slots`, `poll` and `backend`.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Limits, Retry, Update, append, node
from tests.executor.outside import now

IRREVERSIBLE = ("pay", "ship")
"""What must not be done twice. Nothing but a look outside tells whether it was done."""
EFFECTS = ("look", "pay", "wrap", "ship")
"""The effects of an errand, in their order."""
_TRIES = Retry(attempts=50, wait=0.1, max_wait=0.5)
"""While a host has no network every call fails at once."""


class Errand(BaseModel):
    """What a run does."""

    number: int = 0
    notes: Annotated[list[str], append] = []


class Far:
    """The way outside. A request that is cancelled closes its connection."""

    def __init__(self, world: tuple[str, int], life: str) -> None:
        self._world, self._life = world, life

    async def ask(self, what: str, key: str, args: object = "") -> str:
        """Have something done.

        Raises:
            ConnectionError: nothing, or an error, came back.
        """
        body = json.dumps({"life": self._life, "what": what, "key": key, "args": args, "began": now()}).encode()
        async with await anyio.connect_tcp(*self._world) as stream:
            await stream.send(b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            said = b"".join([part async for part in stream])
        head, _, answer = said.partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise ConnectionError(f"{what}: {head[:80]!r}")
        return str(json.loads(answer)["result"])


async def act(ctx: Context[Far], what: str) -> Update:
    """One effect."""

    async def call(idempotency_key: str) -> str:
        return await ctx.deps.ask(what, idempotency_key, ctx.run_id)

    once = what in IRREVERSIBLE
    return {"notes": await ctx.effect(what, call, returns=str, effect="irreversible" if once else "idempotent")}


@node(retry=_TRIES)
async def look(state: Errand, ctx: Context[Far]) -> Update:
    return await act(ctx, "look")


@node(retry=_TRIES)
async def pay(state: Errand, ctx: Context[Far]) -> Update:
    return await act(ctx, "pay")


@node(retry=_TRIES)
async def wrap(state: Errand, ctx: Context[Far]) -> Update:
    return await act(ctx, "wrap")


@node(retry=_TRIES)
async def ship(state: Errand, ctx: Context[Far]) -> Update:
    return await act(ctx, "ship")


def errand(name: str) -> Graph[Errand]:
    """The graph, under a name."""
    return Graph(
        name=name, state=Errand, input="number", output="notes",
        nodes={"look": look, "pay": pay, "wrap": wrap, "ship": ship},
        edges="START -> look -> pay -> wrap -> ship -> END", limits=Limits(steps=400),
    )  # fmt: skip


ERRAND = errand("errand")
"""Errands that any worker does."""


async def main(order: dict[str, Any]) -> None:
    """Work until the process ends."""
    far = Far(tuple(order["world"]), order["life"])
    graphs = [ERRAND, errand(order["own"])]
    async with Executor(order["store"], graphs=graphs, deps=far, lease_ttl=order["ttl"]) as executor:
        await executor.work(slots=order["slots"], poll=order["poll"])


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("orchestrator").setLevel(logging.DEBUG)
    found = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)  # where it hangs is written into its log
    logging.info("begins as %s", found["life"])
    anyio.run(main, found, backend=found["backend"])

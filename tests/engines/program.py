"""A worker whose runs an engine delivers: `python -m tests.engines.program ORDER`.

ORDER is JSON: `store`, `engine` ("": none, it finds its runs by itself), `world` (host and port of what is outside),
`life` (its name there), `ttl`, `poll`, `grace`, and `graphs` (names of those that it has).
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
from typing import Any

import anyio

from orchestrator import Context, Executor, Graph, Limits, Update, engines, node
from orchestrator.kernel.question import Deny
from tests.executor.errand_program import ERRAND, Errand, Far, act, look, pay, ship


@node
async def ask(state: Errand, ctx: Context[Far]) -> Update:
    """A person decides, within some time."""
    said = await ctx.ask("input", prompt="Go on?", deadline=state.number / 1000)
    return {"notes": "late" if isinstance(said, Deny) else str(said.value)}  # type: ignore[union-attr]


@node
async def rest(state: Errand, ctx: Context[Far]) -> Update:
    """A wait of the run, in which nobody drives it."""
    await ctx.sleep(0.5)
    return {"notes": "rested"}


@node
async def slow(state: Errand, ctx: Context[Far]) -> Update:
    """An effect that lasts as long as its gate is closed."""
    return await act(ctx, "slow")


asking = Graph(
    name="asking", state=Errand, input="number", output="notes",
    nodes={"pay": pay, "ask": ask, "ship": ship}, edges="START -> pay -> ask -> ship -> END",
)  # fmt: skip
resting = Graph(
    name="resting", state=Errand, input="number", output="notes",
    nodes={"pay": pay, "rest": rest, "again": rest, "ship": ship}, edges="START -> pay -> rest -> again -> ship -> END",
)  # fmt: skip
slowly = Graph(
    name="slowly", state=Errand, input="number", output="notes",
    nodes={"look": look, "slow": slow, "ship": ship}, edges="START -> look -> slow -> ship -> END",
    limits=Limits(steps=100),
)  # fmt: skip
GRAPHS = {one.name: one for one in (ERRAND, asking, resting, slowly)}


async def main(order: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    far = Far(tuple(order["world"]), order["life"])
    graphs = [GRAPHS[name] for name in order["graphs"]]
    engine, stop = engines.engine_at(order["engine"]) if order["engine"] else None, anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with (
            Executor(order["store"], graphs=graphs, deps=far, lease_ttl=order["ttl"]) as executor,
            anyio.create_task_group() as tasks,
        ):

            async def listen() -> None:
                async for _ in signals:
                    stop.set()

            tasks.start_soon(listen)
            if engine is None:
                logging.getLogger("orchestrator").info("it begins; without an engine, no workers are registered")
            how: dict[str, Any] = {"slots": 40, "poll": order["poll"], "grace": order["grace"], "stop": stop}
            await (executor.work(**how) if engine is None else engines.work(executor, engine, **how))
            tasks.cancel_scope.cancel()
    if engine is not None:
        await engine.aclose()


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("orchestrator").setLevel(logging.INFO)
    found = json.loads(sys.argv[1])
    faulthandler.register(signal.SIGUSR1)  # where it hangs is written into its log
    anyio.run(main, found)

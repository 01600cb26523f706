"""A run whose call asks for input, or becomes a task: python asking.py STORE FOLDER SAYS GRAPH prints its id.

SAYS is what a server says, see `odd.py`, or the address of a server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Retry, Update, node
from orchestrator.tools.mcp import McpToolbox

ODD = Path(__file__).with_name("odd.py")


class Paying(BaseModel):
    """What a run that pays knows."""

    said: str = ""


async def pay(state: Paying, ctx: Context) -> Update:
    """Pays through the server, and fails if that does."""
    return {"said": str((await ctx.tool("pay", check=True)).output)}


async def slow(state: Paying, ctx: Context) -> Update:
    """Calls a tool that takes long."""
    return {"said": str((await ctx.tool("slow", check=True, question="?")).output)}


def graph(name: str, attempts: int, calls: Any = pay) -> Graph[Paying]:
    once = node(calls, retry=Retry(attempts=attempts, wait=0, jitter=0, on=("Exception",)))
    return Graph(name=name, state=Paying, nodes={"pay": once}, edges="START -> pay -> END", output="said")


paying, retrying, slowly = graph("paying", 1), graph("retrying", 2), graph("slowly", 1, slow)


def toolbox(folder: Path, says: Any, **options: Any) -> McpToolbox:
    """The tools of a server that says this, see `odd.py`; or of the one at this address."""
    if isinstance(says, str):
        return McpToolbox.http(says, backoff=0.01)
    return McpToolbox.stdio(sys.executable, "-S", str(ODD), str(folder), json.dumps(says), backoff=0.01, **options)


async def main() -> None:
    used = {"paying": paying, "retrying": retrying, "slowly": slowly}[sys.argv[4]]
    box = toolbox(Path(sys.argv[2]), json.loads(sys.argv[3]))
    async with Executor(store=sys.argv[1], graphs=[used], tools=[box]) as executor:
        run_id = await executor.submit(used, {})
        while not any(one.type in ("asked", "timer_set") for one in await executor.store.read(run_id)):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        print(run_id, flush=True)
        await anyio.sleep(600)  # until it is killed


if __name__ == "__main__":
    anyio.run(main)

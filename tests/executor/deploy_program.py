"""Two versions of a graph: `orchestrator worker --app tests.executor.deploy_program:app`, with VERSION=a or VERSION=b.

Version b changes the function of each node. A charge cannot be undone. It writes a line to the file that `DIARY` names.
"""

from __future__ import annotations

import os

import anyio
from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node
from orchestrator.executor import App
from tests.executor.work_program import note

CHARGES = 4
"""Of each run."""


class Account(BaseModel):
    number: int = 0
    charged: list[str] = []


async def charge_once(state: Account, ctx: Context, version: str) -> Update:
    """One charge, and a short wait."""

    async def call() -> str:
        note(f"{ctx.run_id} {len(state.charged)}")
        await anyio.sleep(0.2)
        return version

    return {"charged": [*state.charged, await ctx.effect("charge", call, returns=str, effect="irreversible")]}


@node
async def charge_a(state: Account, ctx: Context) -> Update:
    """Charge, as version a does."""
    found = await charge_once(state, ctx, "a")
    await anyio.sleep(0.8)
    return found


@node
async def charge_b(state: Account, ctx: Context) -> Update:
    """Charge, as version b does."""
    return await charge_once(state, ctx, "b")


def accounts(version: str) -> Graph:
    """Return a version of the graph."""
    charge = {"a": charge_a, "b": charge_b}[version]
    nodes = {f"charge{number}": charge for number in range(CHARGES)}
    return Graph(
        name="accounts", state=Account, input="number", output="charged", nodes=nodes,
        edges=f"START -> {' -> '.join(nodes)} -> END",
    )  # fmt: skip


app = App(graphs=[accounts(os.environ.get("VERSION", "a"))])

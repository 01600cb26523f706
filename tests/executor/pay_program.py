"""Runs that pay: `orchestrator worker --app tests.executor.pay_program:app`.

A payment cannot be undone. Each writes a line to the file that the environment variable `DIARY` names.
"""

from __future__ import annotations

import anyio
from pydantic import BaseModel

from orchestrator import Context, Graph, Update, node
from orchestrator.executor import App
from tests.executor.work_program import note

PAYMENTS = 5
"""Of each run."""


class Bill(BaseModel):
    number: int = 0
    paid: int = 0


@node
async def pay(state: Bill, ctx: Context) -> Update:
    """One payment, and a short wait."""

    async def call() -> str:
        note(f"{ctx.run_id} {state.paid}")
        await anyio.sleep(0.02)
        return "paid"

    await ctx.effect("pay", call, returns=str, effect="irreversible")
    await anyio.sleep(0.1)
    return {"paid": state.paid + 1}


bills = Graph(
    name="bills", state=Bill, input="number", output="paid",
    nodes={f"pay{number}": pay for number in range(PAYMENTS)},
    edges="START -> " + " -> ".join(f"pay{number}" for number in range(PAYMENTS)) + " -> END",
)  # fmt: skip
app = App(graphs=[bills])

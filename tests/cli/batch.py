"""A batch of orders whose code has a bug: copied into a directory, where its tests replace `BUG` by code without it.

What happens outside is written to a diary, a line for each call.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from pydantic import BaseModel

from orchestrator import Context, Graph, Limits, Update, node, tool

DIARY = Path(__file__).with_name("diary.txt")
BUG = 6
"""Every so many orders one fails; 0: none."""


def note(what: str) -> None:
    """One line, in one write."""
    file = os.open(DIARY, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{what}\n".encode())
    finally:
        os.close(file)


class Order(BaseModel):
    number: int = 0
    receipt: str = ""
    parcel: str = ""


@tool(effect="irreversible", risk="none")
async def pay(order: int) -> str:
    """Pay for an order."""
    note(f"pay {order}")
    return f"receipt {order}"


@node(effect="irreversible")
async def reserve(state: Order) -> None:
    note(f"reserve {state.number}")


@node
async def buy(state: Order, ctx: Context[object]) -> Update:
    result = await ctx.tool("pay", order=state.number)
    if BUG and state.number % BUG == 0:
        raise ZeroDivisionError(f"order {state.number} met a bug")
    return {"receipt": str(result.output)}


@node(effect="irreversible")
async def ship(state: Order) -> Update:
    note(f"ship {state.number}")
    await anyio.sleep(0.1)  # long enough to be killed in
    return {"parcel": f"parcel {state.number}"}


graph = Graph(
    name="orders",
    state=Order,
    input="number",
    nodes={"reserve": reserve, "buy": buy, "ship": ship},
    edges="START -> reserve -> buy -> ship -> END",
    output=["receipt", "parcel"],
    limits=Limits(steps=10),
)

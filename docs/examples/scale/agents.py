"""An app for several workers: a graph that needs neither a model nor a key.

orchestrator worker --app agents:app --store postgresql://...
orchestrator enqueue agents:orders "3 kettles" --store postgresql://...
"""

from __future__ import annotations

from typing import Literal

import anyio
from pydantic import BaseModel

from orchestrator import Graph, Outcome, Update, node
from orchestrator.executor import App
from orchestrator.nodes import Confirm

LARGE = 500
"""Orders of this many pieces, or more, need an approval."""


class Order(BaseModel):
    """What was ordered, and what became of it."""

    text: str = ""
    pieces: int = 0
    result: str = ""


@node
async def count(state: Order) -> Outcome[Literal["small", "large"]]:
    """Read how many pieces were ordered."""
    pieces = sum(int(word) for word in state.text.split() if word.isdecimal())
    await anyio.sleep(0.1)  # where a real app asks a model
    return Outcome("large" if pieces >= LARGE else "small", {"pieces": pieces})


@node
async def pack(state: Order) -> Update:
    """Pack the pieces, which takes 20 ms each."""
    await anyio.sleep(0.02 * state.pieces)
    return {}


@node
async def ship(state: Order) -> Update:
    """Say what was shipped."""
    return {"result": f"shipped {state.pieces}"}


orders = Graph(
    name="orders",
    state=Order,
    input="text",
    output="result",
    nodes={"count": count, "ask": Confirm(prompt="Ship it?", show=("text",)), "pack": pack, "ship": ship},
    edges="""
        START -> count
        count -> ask  : large
        count -> pack : small
        ask   -> pack : approved
        ask   -> END  : denied
        pack  -> ship -> END
    """,
)
app = App(graphs=[orders])

"""An app for several workers: a graph that needs neither a model nor a key.

orchestrator worker --app agents:app --store postgresql://...
orchestrator enqueue agents:orders "3 kettles" --store postgresql://...
"""

from __future__ import annotations

import anyio
from pydantic import BaseModel

from orchestrator import Graph, Update, node
from orchestrator.executor import App


class Order(BaseModel):
    """What was ordered, and what became of it."""

    text: str = ""
    pieces: int = 0
    result: str = ""


@node
async def count(state: Order) -> Update:
    """Read how many pieces were ordered."""
    await anyio.sleep(0.1)  # where a real app asks a model
    return {"pieces": sum(int(word) for word in state.text.split() if word.isdigit())}


@node
async def ship(state: Order) -> Update:
    """Say what was shipped."""
    return {"result": f"shipped {state.pieces}"}


orders = Graph(
    name="orders",
    state=Order,
    input="text",
    output="result",
    nodes={"count": count, "ship": ship},
    edges="START -> count -> ship -> END",
)
app = App(graphs=[orders])

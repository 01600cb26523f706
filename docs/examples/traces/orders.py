"""Orders that a model describes and a person approves: a run with a nested graph, a map, an MCP call and a pause.

export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:6006/v1/traces
orchestrator enqueue orders.py:order "tea, bread" --run-id order-1 --tools mcp:"python stock.py"
orchestrator worker --app orders.py:app
"""

import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Context, Graph, OpenAIModel, Update, append, node
from orchestrator.executor import App
from orchestrator.models import Price
from orchestrator.nodes import ITEM, Complete, Confirm, Subgraph
from orchestrator.tools.mcp import McpToolbox


class Item(BaseModel):
    item: str
    count: int = 0
    text: str = ""


class Order(BaseModel):
    text: str
    items: list[str] = []
    lines: Annotated[list[str], append] = []
    sent: bool = False


@node(tools=["in_stock"])
async def look_up(state: Item, ctx: Context) -> Update:
    found = await ctx.tool("in_stock", item=state.item, check=True)
    return {"count": int(found.output)}


@node(effect="pure")
async def split(state: Order) -> Update:
    return {"items": [item.strip() for item in state.text.split(",")]}


@node(effect="irreversible")
async def send(state: Order) -> Update:
    return {"sent": True}


describe = Graph(
    name="describe",
    state=Item,
    nodes={
        "look_up": look_up,
        "write": Complete(prompt="Describe {item} in a sentence. In stock: {count}", result="text"),
    },
    edges="START -> look_up -> write -> END",
    output="text",
)
order = Graph(
    name="order",
    state=Order,
    input="text",
    nodes={
        "split": split,
        "describe": Subgraph(describe, inputs={"item": ITEM}, outputs={"lines": "text"}),
        "approve": Confirm(prompt="Send this order?", show=("lines",), join="all"),
        "send": send,
    },
    edges="""
        START -> split
        split -> describe : each items
        describe -> approve
        approve -> send : approved
        send -> END
        approve -> END : denied
    """,
    output="lines",
)
app = App(
    graphs=[order],
    model=OpenAIModel("gpt-4o-mini", price=Price(input=0.15, output=0.6)),
    tools=[McpToolbox.stdio(sys.executable, str(Path(__file__).with_name("stock.py")))],
)

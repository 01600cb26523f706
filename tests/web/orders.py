"""A graph with fields of each kind that waits for an event, and one that asks a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from orchestrator import Context, Graph, node
from orchestrator.nodes import Wait


class Paid(BaseModel):
    """The data of the event."""

    order: int
    amount: Annotated[float, Field(description="In euros.")]
    how: Literal["card", "cash"] = "card"
    items: list[str] = []


class Order(BaseModel):
    order_id: Annotated[int, Field(description="The number of the order.")]
    items: Annotated[list[str], Field(description="What is ordered")] = []
    sizes: list[float] = []
    notes: str = "none"
    payment: Paid | None = None
    out: str = ""


@node(effect="pure")
async def ship(state: Order) -> dict[str, str]:
    paid = state.payment
    return {"out": f"{state.order_id} {state.items} {state.sizes} {paid and (paid.amount, paid.items)}"}


orders = Graph(
    name="orders", state=Order, input=("order_id", "items", "sizes", "notes"), output="out",
    nodes={"wait": Wait(event="paid", match={"order": "order_id"}, into="payment", deadline=86400), "ship": ship},
    edges="START -> wait -> ship -> END",
)  # fmt: skip


@node
async def think(state: Order, ctx: Context) -> dict[str, str]:
    """Ask the model of the run."""
    return {"out": (await ctx.model.complete(state.notes)).text}


thinks = Graph(
    name="thinks", state=Order, input=("order_id", "notes"), output="out",
    nodes={"think": think, "again": Wait(event="more"), "think2": think},
    edges="START -> think -> again -> think2 -> END",
)  # fmt: skip

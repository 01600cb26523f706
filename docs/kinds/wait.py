from typing import Any

from pydantic import BaseModel

from orchestrator import Executor, Graph
from orchestrator.nodes import Wait


class Order(BaseModel):
    number: int
    payment: dict[str, Any] = {}


graph = Graph(
    name="order",
    state=Order,
    input="number",
    nodes={"paid": Wait(event="payment", match={"order": "number"}, into="payment")},
    edges="START -> paid -> END",
    output="payment",
)


# Run it.
async def main() -> None:
    async with Executor() as executor:
        run = await executor.start(graph, 7)
        run = await executor.send(run.run_id, "payment", {"order": 7, "amount": 20})
        assert run.output == {"order": 7, "amount": 20}

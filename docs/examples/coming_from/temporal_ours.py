"""An order that is priced, approved by an event and shipped, with a retry: the program of temporal_theirs.py."""

from typing import Literal

import anyio
from pydantic import BaseModel

from orchestrator import Executor, Graph, Outcome, Retry, Update, node
from orchestrator.nodes import Wait

attempts: list[str] = []


class State(BaseModel):
    item: str
    total: int = 0
    approved: bool = False
    result: str = "denied"


@node(effect="pure")
async def price(state: State) -> Update:
    return {"total": len(state.item)}


@node(effect="pure")
async def decide(state: State) -> Outcome[Literal["yes", "no"]]:
    return Outcome("yes" if state.approved else "no")


@node(effect="idempotent", retry=Retry(attempts=3, wait=0.1), timeout=10)
async def ship(state: State) -> Update:
    attempts.append(state.item)
    if len(attempts) == 1:
        raise ConnectionError("the carrier does not answer")
    return {"result": f"{state.item} shipped after {len(attempts)} attempts"}


graph = Graph(
    name="order",
    state=State,
    input="item",
    nodes={
        "price": price,
        "approve": Wait(event="approve", into="approved", deadline=7 * 24 * 3600),
        "decide": decide,
        "ship": ship,
    },
    edges="""
        START -> price -> approve
        approve -> decide : received
        decide -> ship : yes
        decide -> END : no
        ship -> END
    """,
    output="result",
)


async def main() -> None:
    async with Executor("memory://", graphs=[graph]) as executor:
        run = await executor.start(graph, "tea", run_id="1")
        print("waits:", run.state.total)
        await executor.send("1", "approve", True)
        print((await executor.wait("1")).output)


anyio.run(main)

from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Ask, Route


class Ticket(BaseModel):
    priority: int
    reply: str = ""


graph = Graph(
    name="ticket",
    state=Ticket,
    input="priority",
    nodes={"sort": Route(cases={"urgent": "priority > 7"}, default="routine"), "ask": Ask(prompt="What now?")},
    edges="""
        START -> sort
        sort -> ask : urgent
        sort -> END : routine
        ask -> END
    """,
    output="reply",
)


# Run it.
async def main() -> None:
    run = await graph.run(9)
    assert run.waiting[0].prompt == "What now?"

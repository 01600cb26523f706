from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Extract


class Sum(BaseModel):
    reply: str
    answer: str = ""


graph = Graph(
    name="sum",
    state=Sum,
    input="reply",
    nodes={"read": Extract(form="number")},
    edges="""
        START -> read
        read -> END : found
        read -> END : missing
    """,
    output="answer",
)


# Run it.
async def main() -> None:
    run = await graph.run("First 20 + 8 = 28. So the answer is 28.")
    assert run.output == "28"

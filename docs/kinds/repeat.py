from typing import Annotated

from pydantic import BaseModel

from orchestrator import Graph, append
from orchestrator.nodes import Complete, Repeat, Subgraph
from orchestrator.testing import ScriptedModel


class Idea(BaseModel):
    reply: str = ""


class Ideas(BaseModel):
    rounds: list[int] = []
    ideas: Annotated[list[str], append] = []


idea = Graph(
    name="idea", state=Idea, nodes={"write": Complete(prompt="Name an animal.")}, edges="START -> write -> END"
)
graph = Graph(
    name="ideas",
    state=Ideas,
    nodes={"three": Repeat(times=3), "idea": Subgraph(idea, outputs={"ideas": "reply"})},
    edges="""
        START -> three
        three -> idea : each rounds
        idea -> END
    """,
    output="ideas",
)


# Run it.
async def main() -> None:
    run = await graph.run(model=ScriptedModel(lambda request: "A cat."))
    assert run.output == ["A cat.", "A cat.", "A cat."]

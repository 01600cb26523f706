from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.nodes import Complete, Subgraph
from orchestrator.testing import ScriptedModel


class Text(BaseModel):
    text: str
    reply: str = ""


class Page(BaseModel):
    body: str
    summary: str = ""


shorten = Graph(
    name="shorten",
    state=Text,
    nodes={"write": Complete(prompt="In a sentence: {text}")},
    edges="START -> write -> END",
)
graph = Graph(
    name="page",
    state=Page,
    input="body",
    nodes={"shorten": Subgraph(shorten, inputs={"text": "body"}, outputs={"summary": "reply"})},
    edges="START -> shorten -> END",
    output="summary",
)


# Run it.
async def main() -> None:
    run = await graph.run("It rained all day.", model=ScriptedModel(["Rain."]))
    assert run.output == "Rain."
